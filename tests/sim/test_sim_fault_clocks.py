"""The first faults of all nodes at once are those that each node would draw by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cluster_scenarios import fault
from ettr.sim.cluster.faults import FaultClock, NodeDraws, law_of
from ettr.sim.cluster.scenario_parts import FaultProcess
from ettr.sim.engine import stream
from ettr.units import SECONDS_PER_DAY

NODES, SEED = 40, 7


@pytest.mark.parametrize(("law", "form"), [("constant", 1.0), ("weibull", 0.7), ("lognormal", 1.2)])
def test_first_faults_are_those_of_each_node_by_itself(law: str, form: float) -> None:
    process = replace(fault("gpu-memory", 20.0), law=law, form=form)
    law_itself = law_of(process)
    assert law_itself is not None
    clock_s, lived_s = law_itself.service_ages()
    uniform = stream(SEED, "ages gpu-memory").random(NODES)
    ages_s = np.interp(uniform * lived_s[-1], lived_s, clock_s)
    draws = NodeDraws(SEED, "lives gpu-memory", NODES)

    due_s = FaultClock(process, NODES, SEED, frozenset({3, 5}), 20.0).first_due_s()

    for node in range(NODES):
        here = law_itself.cumulative_hazard(ages_s[[node]])
        ends = here + draws.exponential(node) / (20.0 if node in (3, 5) else 1.0)
        left_s = float(law_itself.clock_at(ends)[0] - ages_s[node])
        assert due_s[node] == math.ceil(max(1.0, left_s))


def test_lemons_with_factor_0_never_fail_and_draw_nothing() -> None:
    clock = FaultClock(fault("gpu-memory", 20.0), NODES, SEED, frozenset({3}), 0.0)

    assert np.isinf(clock.first_due_s()[3])
    assert np.isfinite(np.delete(clock.first_due_s(), 3)).all()


def rate_of(process: FaultProcess, days: float, n_nodes: int = 4000) -> float:
    """Faults of 1,000 node-days of nodes that are never out of service."""
    clock, n = FaultClock(process, n_nodes, SEED, frozenset(), 1.0), 0
    for node in range(n_nodes):
        while (due_s := clock.due_s(node)) < days * SECONDS_PER_DAY:
            clock.strike(node, due_s)
            n += 1
    return 1000.0 * n / (n_nodes * days)


@pytest.mark.parametrize(
    ("form", "as_new_share", "rate"),
    [(0.7, 1.0, 3.0), (0.7, 0.7, 2.8), (0.7, 0.0, 2.3), (1.5, 0.7, 3.2), (1.5, 0.0, 4.1)],
)
def test_a_stated_rate_is_that_of_nodes_as_new_after_each_fault(
    form: float, as_new_share: float, rate: float
) -> None:
    """What else comes out is what the docstring of the process says, over 330 days."""
    process = replace(fault("gpu-memory", 3.0), law="weibull", form=form, as_new_share=as_new_share)
    # about 4,000 faults: three standard errors are 5 %
    assert rate_of(process, 330.0) == pytest.approx(rate, rel=0.05)
    said = " ".join((FaultProcess.__doc__ or "").split())
    assert "2.8 over 330 days at a share of 0.7 and 2.3 at 0" in said
    assert "shape 1.5 gives 3.2 and 4.1" in said
