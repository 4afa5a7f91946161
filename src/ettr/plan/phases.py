"""A run that grows or shrinks: phases of different size, one after the other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.cost import Price, cost_of
from ettr.plan.intervals import with_best_interval
from ettr.plan.renewal import exact_ettr, expected_failures, expected_wallclock_s
from ettr.plan.run import PlannedRun
from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class PhaseLength:
    """Nodes of a phase, and the productive time in it."""

    n_nodes: int
    productive_s: float


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase as planned.

    Attributes:
        held_gpu_hours: Expected, waits in the queue not included; infinite where it will not end.
    """

    n_nodes: int
    productive_s: float
    interval_s: float
    wallclock_s: float
    expected_failures: float
    ettr: float
    held_gpu_hours: float

    @property
    def ends(self) -> bool:
        """Whether it can be expected to end at all."""
        return math.isfinite(self.held_gpu_hours)


@dataclass(frozen=True, slots=True)
class PhasedRun:
    """All phases.

    Attributes:
        ettr: GPU time that is productive over GPU time of all phases: large phases weigh more.
        price: Of a GPU-hour, for which GPUs are held; None where not given.
    """

    phases: tuple[Phase, ...]
    wallclock_s: float
    expected_failures: float
    ettr: float
    gpu_hours: float
    price: Price | None = None

    @property
    def held_gpu_hours(self) -> float:
        """Of all phases, waits in the queue not included; infinite where one will not end."""
        return sum(phase.held_gpu_hours for phase in self.phases)


def phased_run(
    run: PlannedRun,
    lengths: Sequence[PhaseLength],
    *,
    keep_interval: bool,
    price: Price | None = None,
) -> PhasedRun:
    """The phases of a run, each with the write, restart, queue and failure rate of `run`.

    Args:
        keep_interval: Save at the interval of `run`, not at the best of each phase.

    Raises:
        UsageError: no phase, or values that no run can have.
    """
    if not lengths:
        raise UsageError("a run without phases; give one or more, such as 4096:10d,8192:20d")
    phases = tuple(_phase(run, length, keep_interval) for length in lengths)
    node_s = sum(phase.n_nodes * phase.wallclock_s for phase in phases)
    kept = sum(phase.n_nodes * phase.productive_s for phase in phases)
    return PhasedRun(
        phases,
        sum(phase.wallclock_s for phase in phases),
        sum(phase.expected_failures for phase in phases),
        kept / node_s if math.isfinite(node_s) else 0.0,
        run.gpus_per_node * node_s / SECONDS_PER_HOUR,
        price,
    )


def _phase(run: PlannedRun, length: PhaseLength, keep_interval: bool) -> Phase:
    at = replace(run, n_nodes=length.n_nodes, productive_s=length.productive_s)
    if not keep_interval and at.write_s and at.failures_per_s:
        at = with_best_interval(at)
    ettr = exact_ettr(at)
    cost = cost_of(at, Interval(ettr, ettr, ettr), None)
    return Phase(
        at.n_nodes,
        at.productive_s,
        at.interval_s,
        expected_wallclock_s(at),
        expected_failures(at),
        ettr,
        math.inf if cost is None else cost.held_gpu_hours.low,
    )
