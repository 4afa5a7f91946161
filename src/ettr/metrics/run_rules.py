"""What users choose of runs and of what they lose: assumptions, which need no log."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ettr.defaults import PREEMPTION_TOLERANCE_S, PREEMPTION_WINDOW_S
from ettr.errors import UsageError
from ettr.tables import ATTEMPTS

GAP_H = 12.0
LOST_CAP_MIN = 30.0


@dataclass(frozen=True, slots=True)
class RunRule:
    """How attempts become runs.

    `id_column` names a column of `attempts` that holds the user's run id; `comment_pattern` is a
    regular expression whose first group is the run id within the comment.
    """

    gap_h: float = GAP_H
    id_column: str | None = None
    comment_pattern: str | None = None

    def check(self) -> None:
        """Accept the rule.

        Raises:
            UsageError: a negative gap, a column that is not there, a pattern without a group.
        """
        if self.gap_h < 0:
            raise UsageError(f"gap_h {self.gap_h} is negative; give hours, such as 12")
        if self.id_column is not None and self.id_column not in ATTEMPTS.names:
            raise UsageError(
                f"no column {self.id_column!r} in `attempts`; give one of "
                f"{', '.join(ATTEMPTS.names)}"
            )
        if self.comment_pattern is None:
            return
        try:
            groups = re.compile(self.comment_pattern).groups
        except re.error as error:
            raise UsageError(f"comment pattern {self.comment_pattern!r}: {error}") from error
        if not groups:
            raise UsageError(
                f"comment pattern {self.comment_pattern!r} has no group; put the run id in "
                "brackets, as in run=([a-z0-9-]+)"
            )


@dataclass(frozen=True, slots=True)
class PreemptionRule:
    """When a preemption counts as caused by a restart; both lengths in seconds.

    Attributes:
        rule_window_s: Longest time from the end of the preempted attempt to the restart.
        log_tolerance_s: Longest time between the end of the preempted attempt and its line in the
            controller's log; a restart may be as much later.
    """

    rule_window_s: float = PREEMPTION_WINDOW_S
    log_tolerance_s: float = PREEMPTION_TOLERANCE_S


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a run without progress is assumed to do; `lost_share` of an interval goes at each end.

    An interval here includes the save that ends it.
    """

    checkpoint_interval_min: float
    restart_min: float
    save_min: float
    lost_share: float


@dataclass(frozen=True, slots=True)
class CheckpointAssumptions:
    """A band of scenarios, from the worst to the best, around the one in the middle.

    Source:
        Kokolis et al. (2025), v1: checkpoints every 60 min and restarts of 5 min, half an interval
        lost: the middle one. The others are ours.
    """

    worst: Scenario = Scenario(120.0, 15.0, 5.0, 1.0)
    middle: Scenario = Scenario(60.0, 5.0, 0.0, 0.5)
    best: Scenario = Scenario(10.0, 1.0, 0.0, 0.0)

    def check(self) -> None:
        """Accept the assumptions.

        Raises:
            UsageError: a scenario with an interval that is not above its save, or a negative time.
        """
        for name in ("worst", "middle", "best"):
            case: Scenario = getattr(self, name)
            if (
                case.checkpoint_interval_min <= case.save_min
                or min(case.restart_min, case.save_min) < 0
                or not 0 <= case.lost_share <= 1
            ):
                raise UsageError(
                    f"{name} scenario {case}: give an interval above the save time, times of 0 or "
                    "more, and a lost share between 0 and 1"
                )

    def narrowed(
        self,
        interval_min: float | None = None,
        restart_min: float | None = None,
        save_min: float | None = None,
    ) -> CheckpointAssumptions:
        """The same scenarios with an interval, a restart or a save of known length.

        Where the save is not known, a short interval is not half spent in saving: a save takes no
        larger share of it than in the usual worst case.

        Raises:
            UsageError: as `check` does.
        """
        usual = CheckpointAssumptions().worst
        most = usual.save_min / usual.checkpoint_interval_min

        def known(case: Scenario) -> Scenario:
            interval = case.checkpoint_interval_min if interval_min is None else interval_min
            return replace(
                case,
                checkpoint_interval_min=interval,
                restart_min=case.restart_min if restart_min is None else restart_min,
                save_min=min(case.save_min, most * interval) if save_min is None else save_min,
            )

        made = CheckpointAssumptions(known(self.worst), known(self.middle), known(self.best))
        made.check()
        return made
