"""A planned run simulated, as the planner shows it next to the exact form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.models.data import NodeRepair
from ettr.models.law import LifeLaw
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, SimulatedRun
from ettr.plan.wallclock import QUANTILES, ends
from ettr.sim.one_run import Precision, RunOutcome, simulate_run
from ettr.sim.scenario import Bursts, RepairTime, RunScenario, plain_run
from ettr.units import SECONDS_PER_DAY

_FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)
_OFF = 0.1
"""A simulation of a fleet in use for long meets the failures of the rate to within this share."""
_NOTICED = 0.0005
"""An interval must gain so much to be preferred to the one planned: the last digit printed."""
_COARSE = Precision(0.004, most_replicas=256, most_failures=100_000)


@dataclass(frozen=True, slots=True)
class PlannedSimulation:
    """What to simulate a planned run with.

    Attributes:
        life_of: Law of a node's life, by its mean in seconds, which is that of the failure rate.
        words: That law, in words.
        node_repair: What a repair does to the age of a node.
        repair_time: How long one takes; None where a failed node is replaced at once.
        spares: Nodes held ready.
        detection_s: From a failure until it is noticed.
        age_s: Age of the nodes when the run begins; None for a fleet in use for long.
        bursts: Failures that bring others; None where each comes alone.
        seed: Of the random streams.
        precision: When to stop.
    """

    life_of: Callable[[float], LifeLaw]
    words: str
    node_repair: NodeRepair
    repair_time: RepairTime | None = None
    spares: int = 0
    detection_s: float = 0.0
    age_s: float | None = None
    bursts: Bursts | None = None
    seed: int = 1
    precision: Precision = Precision()  # noqa: RUF009 - frozen

    def scenario(self, run: PlannedRun) -> RunScenario:
        """The run at its own failure rate, interval and length."""
        life = self.life_of(SECONDS_PER_DAY / run.failures_per_node_day)
        return RunScenario(
            *plain_run(run, life),
            age_s=self.age_s,
            node_repair=self.node_repair,
            repair_time=self.repair_time,
            spares=self.spares,
            detection_s=self.detection_s,
            bursts=self.bursts,
        )

    def outcome(self, run: PlannedRun, precision: Precision | None = None) -> RunOutcome:
        """The run simulated."""
        return simulate_run(self.scenario(run), self.seed, precision or self.precision)


def simulated_plan(
    run: PlannedRun, by: PlannedSimulation, per_node_day: Interval | None = None
) -> SimulatedRun:
    """A planned run simulated, at the rate to design for and at the ends of its interval.

    Intervals are compared on the same random streams.

    Args:
        run: As planned.
        by: What to simulate it with.
        per_node_day: The failure rate of a node with its interval.

    Raises:
        UsageError: nothing fails, or nodes of a given age and a run without end.
    """
    if not run.failures_per_node_day > 0:
        raise UsageError("nothing fails at a rate of 0: there is nothing to simulate")
    long_run = by.age_s is None
    if not long_run and math.isinf(run.productive_s):
        raise UsageError("nodes of a given age grow older in a run without end; give --days")
    watched = replace(run, productive_s=math.inf) if long_run else run
    outcome = by.outcome(watched)
    finite = outcome
    if long_run and math.isfinite(run.productive_s) and ends(run):
        finite = by.outcome(run)
    tried = {
        factor: by.outcome(replace(watched, interval_s=factor * run.interval_s), _COARSE).ettr
        for factor in _FACTORS
    }
    best = max(tried, key=lambda factor: tried[factor])
    # on like streams a difference is known better than either end of it
    gain = tried[best] - tried[1.0]
    best, gain = (best, gain) if gain > _NOTICED else (1.0, 0.0)
    scenario, lengths = by.scenario(run), finite.lengths
    off = _off_the_rate(watched, outcome) if long_run else ""
    return SimulatedRun(
        law=f"{by.words}; {scenario.words}",
        why=off,
        ettr=outcome.ettr,
        ettr_error=outcome.ettr_error,
        exact_ettr=exact_ettr(watched),
        best_interval_s=best * run.interval_s,
        best_ettr=outcome.ettr + gain,
        mean_s=None if lengths is None else lengths.mean_s,
        quantiles=()
        if lengths is None
        else tuple((share, lengths.quantile_s(share)) for share in QUANTILES),
        draws=outcome.replicas,
        seed=by.seed,
        engine=f"simulation, event by event ({outcome.engine})",
        failures="the failures and repairs given",
        long_run=long_run,
        ettr_at_rate_ends=_at_ends(watched, by, outcome, per_node_day),
        failures_per_node_day=outcome.failures_per_node_day,
        short_of_nodes=None if by.repair_time is None else outcome.short.short_of_nodes,
        detecting=outcome.short.detecting if by.detection_s else None,
        precise=outcome.precise and finite.precise and not off,
    )


def _off_the_rate(run: PlannedRun, outcome: RunOutcome) -> str:
    """Why a simulation is not to be believed: it has not met the failures that its law promises."""
    share = outcome.failures_per_node_day / run.failures_per_node_day
    if abs(share - 1.0) <= _OFF:
        return ""
    return (
        f"The simulation met {share:.2f} times the failures of the rate: the law is so extreme "
        "that rare nodes or bursts decide, and the simulated ETTR is not to be relied on."
    )


def _at_ends(
    run: PlannedRun, by: PlannedSimulation, outcome: RunOutcome, per_node_day: Interval | None
) -> Interval | None:
    """ETTR simulated at the ends of the rate; None where it has none, or no upper one."""
    if per_node_day is None or not 0 < per_node_day.low < per_node_day.high < math.inf:
        return None
    low, high = (
        by.outcome(replace(run, failures_per_node_day=rate), _COARSE).ettr
        for rate in (per_node_day.high, per_node_day.low)
    )
    return Interval(outcome.ettr, min(low, outcome.ettr), max(high, outcome.ettr))
