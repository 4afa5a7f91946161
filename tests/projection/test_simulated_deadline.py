"""A time budget by simulation: under independent failures it is that of the exact form."""

from dataclasses import replace

import numpy as np
import pytest

from ettr.analysis.own_failures import (
    FailureLaw,
    ReplayedTimeline,
    simulated_deadline,
)
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import TimeBudget, deadline_plan
from ettr.units import SECONDS_PER_DAY as DAY_S
from projection.constant_rate import Independent

RUN = PlannedRun(
    n_nodes=512,
    failures_per_node_day=6.5e-3,
    interval_s=1800.0,
    write_s=60.0,
    restart_s=900.0,
    productive_s=20 * DAY_S,
)


def independent(_run: PlannedRun) -> FailureLaw:
    return Independent()


def bursts(_run: PlannedRun) -> FailureLaw:
    """Twenty failures within a minute, every ten days."""
    rng = np.random.default_rng(5)
    times = np.concatenate([10 * DAY_S * i + rng.uniform(0, 60.0, 20) for i in range(12)])
    return ReplayedTimeline(np.sort(times), 120 * DAY_S, 20 * DAY_S)


@pytest.mark.parametrize("chance", [0.5, 0.9])
def test_independent_failures_need_the_size_of_the_exact_form(chance: float) -> None:
    budget = TimeBudget(20 * DAY_S, chance)
    exact = deadline_plan(RUN, budget)
    found = simulated_deadline(exact, RUN, independent)
    assert exact.smallest is not None
    assert found.smallest is not None
    assert found.simulated
    assert found.smallest.n_nodes == pytest.approx(exact.smallest.n_nodes, rel=0.02)
    assert found.smallest.chance >= chance
    assert found.smallest.mean_s == pytest.approx(exact.smallest.mean_s, rel=0.01)
    for one, other in ((found.as_planned, exact.as_planned), (found.smallest, exact.smallest)):
        assert one.ettr == pytest.approx(other.ettr, rel=0.01)


def test_spares_are_those_of_the_exact_form() -> None:
    budget = TimeBudget(20 * DAY_S, 0.9, repair_s=2 * DAY_S)
    exact = deadline_plan(RUN, budget)
    found = simulated_deadline(exact, RUN, independent)
    assert exact.as_planned.spares is not None
    assert found.as_planned.spares == pytest.approx(exact.as_planned.spares, abs=2)


def test_bursts_need_more_spares_and_fewer_nodes() -> None:
    """Failures at one moment cost one restart, but take as many nodes."""
    budget = TimeBudget(21 * DAY_S, 0.9, repair_s=DAY_S / 4)
    exact = deadline_plan(RUN, budget)
    found = simulated_deadline(exact, RUN, bursts)
    assert exact.smallest is not None
    assert found.smallest is not None
    assert exact.as_planned.spares is not None
    assert found.as_planned.spares is not None
    assert found.as_planned.spares > 2 * exact.as_planned.spares
    without_repair = replace(exact, budget=replace(budget, repair_s=None))
    unspared = simulated_deadline(without_repair, RUN, bursts)
    assert unspared.smallest is not None
    assert unspared.smallest.n_nodes < exact.smallest.n_nodes


def test_a_budget_below_the_work_of_any_size_has_no_answer() -> None:
    """A write longer than the MTTF of every size in question: nothing ends."""
    run = replace(RUN, failures_per_node_day=5.0, write_s=3600.0, interval_s=3600.0)
    found = simulated_deadline(
        deadline_plan(run, TimeBudget(25 * DAY_S, 0.9, keep_interval=True)), run, independent
    )
    assert found.smallest is None
    assert "No size" in found.sentence
