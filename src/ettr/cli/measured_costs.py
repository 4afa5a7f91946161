"""Costs that a run has measured of itself, which replace those that a plan would assume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ettr.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OptionsT = TypeVar("OptionsT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Times by the option that they replace, in seconds.

    Attributes:
        source: The file.
        times_s: `write`, `restart`, `replace`, `step`; what was not met is left out.
    """

    source: str
    times_s: Mapping[str, float]

    def into(self, options: OptionsT) -> OptionsT:
        """Options with the measured times where nothing was typed."""
        from dataclasses import fields, replace

        open_ones = {
            field.name: f"{self.times_s[field.name]!r}s"
            for field in fields(options)
            if field.name in self.times_s and getattr(options, field.name) is None
        }
        return replace(options, **open_ones)

    def words(self, used: frozenset[str]) -> tuple[str, ...]:
        """What was taken from the file, in a sentence.

        Args:
            used: Options whose value came from it.
        """
        from ettr.plan.run import spell

        listed = ", ".join(
            f"--{name} {spell(at_s)}" for name, at_s in self.times_s.items() if name in used
        )
        if not listed:
            return (f"Nothing in {self.source} was needed: what it measured was typed as well.",)
        return (
            f"Measured, not assumed ({self.source}): {listed}. A run of another size may take "
            "longer.",
        )


def measured_costs(path: Path) -> MeasuredCosts:
    """Costs from the record of a run: `measured.json` next to its checkpoints, or progress.jsonl.

    Raises:
        UsageError: it is neither, or nothing in it was timed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--measured {path}: cannot be read ({error})") from error
    times = _of_timings(text) or _of_progress(path)
    known = {name: at_s for name, at_s in times.items() if at_s is not None and at_s > 0}
    if not known:
        raise UsageError(
            f"--measured {path}: no step, save or restart was timed in it; give measured.json from "
            "a checkpoint folder of ettr.elastic, or progress.jsonl of the recorder"
        )
    return MeasuredCosts(str(path), known)


def _of_timings(text: str) -> dict[str, float | None] | None:
    """Times of `measured.json`; None where the text is not that."""
    from ettr.recovery.restore_costs import RunTimings

    try:
        raw = json.loads(text)
        timed = RunTimings.from_dict(raw) if isinstance(raw, dict) and "restores" in raw else None
    except ValueError:
        return None
    return None if timed is None else {"step": timed.step_s, "replace": timed.regroup_s}


def _of_progress(path: Path) -> dict[str, float | None]:
    from ettr.errors import EttrError
    from ettr.progress.goodput import goodput_of_file
    from ettr.recovery.timings import measured_by

    try:
        run = measured_by(goodput_of_file(path))
    except (EttrError, ValueError):
        return {}
    return {"step": run.step_s, "write": run.save_stall_s, "restart": run.restart_s}
