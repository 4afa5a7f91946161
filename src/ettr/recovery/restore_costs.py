"""The timings of one run, and the predicted time of a restore from them or from a prior.

Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ettr.errors import UsageError
from ettr.files import write_text
from ettr.plan.intervals import exact_interval_s
from ettr.progress.goodput import GoodputSplit

_FILE_NAME = "measured.json"


@dataclass(frozen=True, slots=True)
class RestorePrior:
    """The guess until a restore was timed: the time of any restore, and the rate of bytes."""

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: a value is out of range."""
        if not (self.latency_s >= 0 and self.bytes_per_s > 0):
            raise UsageError(
                f"restore prior of {self.latency_s} s and {self.bytes_per_s} bytes/s; the time is "
                "0 or more, the rate above 0"
            )


@dataclass(frozen=True, slots=True)
class RestoreTimings:
    """The restores from one source that were timed: their number, bytes and seconds in total."""

    n: int = 0
    total_bytes: int = 0
    total_s: float = 0.0

    def with_one(self, n_bytes: int, duration_s: float) -> RestoreTimings:
        """These and one more."""
        return RestoreTimings(self.n + 1, self.total_bytes + n_bytes, self.total_s + duration_s)

    @property
    def bytes_per_s(self) -> float | None:
        """Mean rate; None: nothing was timed."""
        return self.total_bytes / self.total_s if self.total_s > 0 else None


def predicted_s(n_bytes: int, restores: RestoreTimings, prior: RestorePrior) -> float:
    """Seconds that a restore of `n_bytes` will take.

    By the prior where no restore was timed. Otherwise by their mean: the prior's latency stays, and
    the rest is proportional to the bytes.
    """
    if restores.n == 0:
        return prior.latency_s + n_bytes / prior.bytes_per_s
    mean_s, mean_bytes = restores.total_s / restores.n, restores.total_bytes / restores.n
    if mean_bytes == 0:
        return mean_s
    latency_s = min(prior.latency_s, mean_s)
    return latency_s + (mean_s - latency_s) * n_bytes / mean_bytes


@dataclass(frozen=True, slots=True)
class RunTimings:
    """The times that one process has measured of its run.

    step_s, regroup_s: means, None where nothing was timed. restores: by the name of the source.
    """

    step_s: float | None
    regroup_s: float | None
    restores: Mapping[str, RestoreTimings]

    def to_dict(self) -> dict[str, Any]:
        """The timings as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> RunTimings:
        """The timings that `to_dict` returned.

        Raises:
            ValueError: it is of another form, or holds a value that is no time.
        """
        try:
            restores = {str(k): RestoreTimings(**one) for k, one in raw["restores"].items()}
            timings = cls(raw["step_s"], raw["regroup_s"], restores)
            values = [timings.step_s or 0.0, timings.regroup_s or 0.0]
            for one in restores.values():
                values += [one.n, one.total_bytes, one.total_s]
            in_range = all(math.isfinite(value) and value >= 0 for value in values)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no timings: {error!r}") from error
        if not in_range:
            raise ValueError(f"a time or a size that is below 0 or not finite: {raw}")
        return timings


def combined_timings(of_ranks: Iterable[RunTimings]) -> RunTimings:
    """The timings of several ranks as one, the same on each of them.

    They timed the same events: the rank with the most of them counts, the slowest among equals,
    since the group waits for it.
    """
    ranks = list(of_ranks)
    restores: dict[str, RestoreTimings] = {}
    for rank in ranks:
        for source, one in rank.restores.items():
            known = restores.get(source, RestoreTimings())
            if (one.n, one.total_s) > (known.n, known.total_s):
                restores[source] = one
    step_s = next((rank.step_s for rank in ranks if rank.step_s is not None), None)
    regroup_s = next((rank.regroup_s for rank in ranks if rank.regroup_s is not None), None)
    return RunTimings(step_s, regroup_s, restores)


def write_timings(folder: Path, timed: RunTimings) -> None:
    """Leave the timings with the checkpoints, for a job of which no process survives.

    They only help a choice: they are not flushed to the disk, and a failed write is ignored.
    """
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _FILE_NAME, json.dumps(timed.to_dict()))


def read_timings(folder: Path) -> RunTimings | None:
    """The timings in a folder; None: not there, or not readable."""
    try:
        return RunTimings.from_dict(json.loads((folder / _FILE_NAME).read_text()))
    except (OSError, ValueError):
        return None


# -- What a run measures of itself while it trains, and the plan that follows from it -------------
#
# Standard library only.


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Means of what a run has measured of itself, in seconds; None: not met yet.

    save_stall_s: what the loop waited for one checkpoint. restore_s, restart_s: of one recovery.
    """

    step_s: float
    save_stall_s: float | None
    restore_s: float | None
    restart_s: float | None
    saves: int
    recoveries: int


class Measuring:
    """Collects the times of a run as they happen; `run()` are their means."""

    def __init__(self) -> None:
        events = ("step", "save", "restore", "restart")
        self.restores: dict[str, RestoreTimings] = {}
        self._counts = dict.fromkeys(events, 0)
        self._totals = dict.fromkeys(events, 0.0)

    def add(self, event: str, duration_s: float | None) -> None:
        """Take one event of the progress recorder; others than step, save, restore, restart pass.

        Hand it to the recorder: `listener=lambda e: measuring.add(e.event, e.duration_s)`.
        """
        if event in self._counts and duration_s is not None:
            self._counts[event] += 1
            self._totals[event] += duration_s

    def restored(self, source: str, n_bytes: int, duration_s: float) -> None:
        """Take the time of one restore by its source (`RecoverySource`) and size."""
        self.restores[source] = self.restores.get(source, RestoreTimings()).with_one(
            n_bytes, duration_s
        )

    def timed(self) -> RunTimings:
        """What was timed, for the planner."""
        run = self.run()
        return RunTimings(run.step_s or None, run.restart_s, dict(self.restores))

    def run(self) -> MeasuredRun:
        """The means so far; a step of 0 s where none was timed."""
        mean = {k: self._totals[k] / n if n else None for k, n in self._counts.items()}
        return MeasuredRun(
            mean["step"] or 0.0,
            mean["save"],
            mean["restore"],
            mean["restart"],
            self._counts["save"],
            self._counts["restart"],
        )


def measured_by(split: GoodputSplit) -> MeasuredRun:
    """Means of a run from the split of its record, live or from a file.

    The restart is all the time from the last event before a failure until the run goes on, less the
    restore: what a failure costs besides lost steps, whether or not an event carries its duration.
    """
    steps = split.steps + split.redone_steps + split.unsaved_steps + split.unrecorded_steps
    restarting_s = split.restart_s - split.first_start_s
    stepping_s = split.productive_s + split.redone_s + split.unsaved_s
    return MeasuredRun(
        step_s=stepping_s / steps if steps else 0.0,
        save_stall_s=split.save_s / split.saves if split.saves else None,
        restore_s=split.restore_s / split.restores if split.restores else None,
        restart_s=restarting_s / split.restarts if split.restarts else None,
        saves=split.saves,
        recoveries=split.restarts,
    )


def interval_steps(measured: MeasuredRun, *, mttf_s: float, most_steps: int = 1_000_000) -> int:
    """Steps between checkpoints at which the expected ETTR is largest, 1 at least.

    Args:
        most_steps: the answer where saves cost nothing to wait for is 1, where nothing fails this.

    Raises:
        UsageError: no step was timed yet, or the MTTF is not above 0.
    """
    if not measured.step_s > 0:
        raise UsageError("no step has been timed; record steps with their duration first")
    if not mttf_s > 0:
        raise UsageError(f"mttf_s: {mttf_s} was given; give a number above 0")
    best_s = exact_interval_s(measured.save_stall_s or 0.0, mttf_s)
    if math.isinf(best_s):
        return most_steps
    return min(max(1, round(best_s / measured.step_s)), most_steps)
