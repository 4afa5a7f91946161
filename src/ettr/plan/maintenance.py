"""Planned maintenance: stops that are announced, so that the run saves before them."""

import math
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.plan.renewal import exact_ettr, expected_recovery_s
from ettr.plan.run import PlannedRun, spell


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """Stops of one length at one distance, from the beginning of one to that of the next."""

    length_s: float
    every_s: float

    def __post_init__(self) -> None:
        """Check the times.

        Raises:
            UsageError: a stop is as long as the time between two, or a time cannot be.
        """
        if not 0 < self.length_s < self.every_s < math.inf:
            raise UsageError(
                f"maintenance of {spell(self.length_s)} every {spell(self.every_s)} leaves no time "
                "to train; give a length above 0 and a longer time between two, such as 4h/30d"
            )


@dataclass(frozen=True, slots=True)
class Maintained:
    """A run with planned maintenance.

    Attributes:
        plan: The stops.
        share: Of the wall-clock, for stops, the saves before and the restarts after them.
        ettr: Of the run with them.
        wallclock_s: Expected, of a run of finite length; None for the long run.
    """

    plan: MaintenancePlan
    share: float
    ettr: float
    wallclock_s: float | None


def maintained(run: PlannedRun, plan: MaintenancePlan) -> Maintained:
    """A run with stops: each costs a save, its length and a recovery, and no work.

    The wait in the queue after it is counted, failures during the stop are not.
    """
    once_s = run.write_s + plan.length_s + expected_recovery_s(run)
    share = min(1.0, once_s / plan.every_s)
    ettr = exact_ettr(run) * (1.0 - share)
    finite = math.isfinite(run.productive_s)
    wallclock_s = run.productive_s / ettr if finite and ettr > 0 else math.inf if finite else None
    return Maintained(plan, share, ettr, wallclock_s)
