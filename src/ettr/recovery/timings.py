"""What a run measures of itself while it trains, and the plan that follows from it.

Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.plan.intervals import exact_interval_s
from ettr.progress.goodput import GoodputSplit
from ettr.recovery.restore_costs import RestoreTimings, RunTimings


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
        raise UsageError(f"mttf_s: {mttf_s} was given; it lies above 0")
    best_s = exact_interval_s(measured.save_stall_s or 0.0, mttf_s)
    if math.isinf(best_s):
        return most_steps
    return min(max(1, round(best_s / measured.step_s)), most_steps)
