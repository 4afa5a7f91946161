"""Where the scheduled time of one run went, as the training itself recorded it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ettr.metrics.instants import Floats
from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class ScheduledSplit:
    """Scheduled hours of a run; the parts add up to the whole.

    `redone_h` are steps that had to be done again, `unsaved_h` those after the last checkpoint of
    a run that ended otherwise than by completing. `restart_h` is start-up of each attempt until
    its first step, and restarts within attempts. `other_h` is the rest: steps cut short, waits
    for a failure to be noticed, gaps in the record.
    """

    productive_h: float
    redone_h: float
    unsaved_h: float
    save_h: float
    restore_h: float
    restart_h: float
    stall_h: float
    other_h: float

    @property
    def scheduled_h(self) -> float:
        """The whole."""
        return (
            self.productive_h
            + self.redone_h
            + self.unsaved_h
            + self.save_h
            + self.restore_h
            + self.restart_h
            + self.stall_h
            + self.other_h
        )


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Progress events of one run from one rank, in order of time."""

    times_s: Floats
    events: np.ndarray[tuple[int], np.dtype[np.str_]]
    steps: Floats
    durations_s: Floats

    def __len__(self) -> int:
        return len(self.times_s)


def split_scheduled(
    record: RunRecord, spans_s: list[tuple[float, float]], *, ended: bool, completed: bool
) -> ScheduledSplit | None:
    """Split the scheduled time of a run; None where the record holds no step.

    A step is productive if no later event does it again or goes back behind it: a later step of
    the same or a lower number, or a later restore to a lower one.

    Args:
        record: its progress.
        spans_s: start and end of its attempts in seconds since 1970, in order.
        ended: whether it is over.
        completed: whether its last attempt completed.
    """
    is_step = record.events == "step"
    if not is_step.any():
        return None
    durations_s = _filled(record, spans_s)
    lost = _done_again(record)
    unsaved = np.zeros(len(record), dtype=bool)
    finished = completed or bool((record.events == "end").any())
    if ended and not finished:
        saves = record.steps[record.events == "save"]
        unsaved = is_step & ~lost & (record.steps > (np.nanmax(saves) if len(saves) else -1))
    parts = {
        "productive_h": durations_s[is_step & ~lost & ~unsaved].sum(),
        "redone_h": durations_s[is_step & lost].sum(),
        "unsaved_h": durations_s[unsaved].sum(),
        "save_h": durations_s[record.events == "save"].sum(),
        "restore_h": durations_s[record.events == "restore"].sum(),
        "stall_h": durations_s[record.events == "stall"].sum(),
        "restart_h": durations_s[record.events == "restart"].sum()
        + sum(_start_up(record, durations_s, span) for span in spans_s),
    }
    scheduled_s = sum(end_s - start_s for start_s, end_s in spans_s)
    parts["other_h"] = max(scheduled_s - sum(parts.values()), 0.0)
    return ScheduledSplit(
        **{name: float(seconds) / SECONDS_PER_HOUR for name, seconds in parts.items()}
    )


def _filled(record: RunRecord, spans_s: list[tuple[float, float]]) -> Floats:
    """Durations; a step without one lasted since the event before it, or its attempt's start."""
    starts_s = np.array([start_s for start_s, _ in spans_s])
    own = starts_s[np.maximum(np.searchsorted(starts_s, record.times_s, side="right") - 1, 0)]
    before_s = np.concatenate([[-np.inf], record.times_s[:-1]])
    since_s = np.maximum(record.times_s - np.maximum(before_s, own), 0.0)
    known = np.nan_to_num(record.durations_s)
    guess = np.isnan(record.durations_s) & (record.events == "step")
    return np.where(guess, since_s, known)


def _done_again(record: RunRecord) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Steps behind which a later step or restore goes back."""
    reach = np.full(len(record), np.inf)
    reach[record.events == "step"] = record.steps[record.events == "step"]
    reach[record.events == "restore"] = record.steps[record.events == "restore"] + 0.5
    lowest_after = np.minimum.accumulate(np.nan_to_num(reach, nan=np.inf)[::-1])[::-1]
    later = np.concatenate([lowest_after[1:], [np.inf]])
    return np.asarray((record.events == "step") & (later <= record.steps))


def _start_up(record: RunRecord, durations_s: Floats, span: tuple[float, float]) -> float:
    """Seconds from an attempt's start to its first step that no other event explains."""
    low, high = (int(i) for i in np.searchsorted(record.times_s, span, side="right"))
    steps = np.flatnonzero(record.events[low:high] == "step")
    if not len(steps):
        return float(span[1] - span[0] - durations_s[low:high].sum())
    first = low + int(steps[0])
    begun_s = record.times_s[first] - durations_s[first]
    return max(float(begun_s - span[0] - durations_s[low:first].sum()), 0.0)
