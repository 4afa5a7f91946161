"""What a restore from a source will take: from bytes and seconds that were timed, a guess before.

Standard library only.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ettr.errors import UsageError

_NOTE = "measured.json"


@dataclass(frozen=True, slots=True)
class RestorePrior:
    """The guess until a restore was timed: what every restore takes, and how fast bytes come."""

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: a value is out of range.
        """
        if not (self.latency_s >= 0 and self.bytes_per_s > 0):
            raise UsageError(
                f"restore prior of {self.latency_s} s and {self.bytes_per_s} bytes/s; the time is "
                "0 or more, the rate above 0"
            )


@dataclass(frozen=True, slots=True)
class Restores:
    """Restores from one source that were timed, together: how many, bytes, seconds."""

    n: int = 0
    total_bytes: int = 0
    total_s: float = 0.0

    def with_one(self, n_bytes: int, duration_s: float) -> Restores:
        """These and one more."""
        return Restores(self.n + 1, self.total_bytes + n_bytes, self.total_s + duration_s)

    @property
    def bytes_per_s(self) -> float | None:
        """Mean rate; None: nothing was timed."""
        return self.total_bytes / self.total_s if self.total_s > 0 else None


def predicted_s(n_bytes: int, restores: Restores, prior: RestorePrior) -> float:
    """Seconds that a restore of so many bytes will take.

    Without a timed one the prior's. Else their mean, of which the prior's latency stays as it is
    and the rest follows the bytes.
    """
    if restores.n == 0:
        return prior.latency_s + n_bytes / prior.bytes_per_s
    mean_s, mean_bytes = restores.total_s / restores.n, restores.total_bytes / restores.n
    if mean_bytes == 0:
        return mean_s
    latency_s = min(prior.latency_s, mean_s)
    return latency_s + (mean_s - latency_s) * n_bytes / mean_bytes


@dataclass(frozen=True, slots=True)
class Timed:
    """What one process has timed of its run.

    step_s, regroup_s: means, None where nothing was timed. restores: by the name of the source.
    """

    step_s: float | None
    regroup_s: float | None
    restores: Mapping[str, Restores]

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        kept = {source: asdict(one) for source, one in self.restores.items()}
        return {"step_s": self.step_s, "regroup_s": self.regroup_s, "restores": kept}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Timed:
        """What `to_dict` gave.

        Raises:
            ValueError: it is something else, or no time.
        """
        try:
            restores = {str(k): Restores(**one) for k, one in raw["restores"].items()}
            found = cls(raw["step_s"], raw["regroup_s"], restores)
            seconds = [found.step_s or 0.0, found.regroup_s or 0.0]
            for one in restores.values():
                seconds += [one.n, one.total_bytes, one.total_s]
            sane = all(math.isfinite(value) and value >= 0 for value in seconds)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no timings: {error!r}") from error
        if not sane:
            raise ValueError(f"a time or a size below 0 or without end: {raw}")
        return found


def together(said: Iterable[Timed]) -> Timed:
    """One account of what several ranks timed, the same on each of them.

    They timed the same events: the rank that has met the most of them counts, the slowest among
    equals, since the group waits for it.
    """
    ranks = list(said)
    restores: dict[str, Restores] = {}
    for rank in ranks:
        for source, one in rank.restores.items():
            known = restores.get(source, Restores())
            if (one.n, one.total_s) > (known.n, known.total_s):
                restores[source] = one
    step_s = next((rank.step_s for rank in ranks if rank.step_s is not None), None)
    regroup_s = next((rank.regroup_s for rank in ranks if rank.regroup_s is not None), None)
    return Timed(step_s, regroup_s, restores)


def write_note(folder: Path, timed: Timed) -> None:
    """Leave what was timed beside the checkpoints, for a job of which no process lives on.

    It only helps a choice: it is not flushed to the disk, and a failure to write it is passed over.
    """
    fresh = folder / f".{_NOTE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(timed.to_dict()))
        fresh.replace(folder / _NOTE)
    except OSError:
        with suppress(OSError):
            fresh.unlink()


def read_note(folder: Path) -> Timed | None:
    """What was left there; None: nothing that can be read."""
    try:
        return Timed.from_dict(json.loads((folder / _NOTE).read_text()))
    except (OSError, ValueError):
        return None
