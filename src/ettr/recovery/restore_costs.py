"""The predicted time of a restore: from restores that were timed, or a prior before.

Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from ettr.errors import UsageError
from ettr.files import write_text

_FILE_NAME = "measured.json"


@dataclass(frozen=True, slots=True)
class RestorePrior:
    """The guess until a restore was timed: the time of any restore, and the rate of bytes."""

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


class RunTimingsJson(TypedDict):
    """`RunTimings` as JSON."""

    step_s: float | None
    regroup_s: float | None
    restores: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class RunTimings:
    """The times that one process has measured of its run.

    step_s, regroup_s: means, None where nothing was timed. restores: by the name of the source.
    """

    step_s: float | None
    regroup_s: float | None
    restores: Mapping[str, RestoreTimings]

    def to_dict(self) -> RunTimingsJson:
        """The timings as JSON."""
        restores = {source: asdict(one) for source, one in self.restores.items()}
        return {"step_s": self.step_s, "regroup_s": self.regroup_s, "restores": restores}

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
