"""The first faults of all nodes at once are those that each node would draw by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cluster_scenarios import fault
from ettr.sim.cluster.faults import FaultClock, NodeDraws, law_of
from ettr.sim.streams import stream

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
