"""A run gets some nodes of a fleet whose nodes differ: which ones is part of the band."""

import numpy as np
import pytest

from ettr.analysis.fleet_evidence import FleetEvidence
from ettr.analysis.projecting import project_fleet
from ettr.models.data import Counts
from ettr.plan.run import RunShape

FLEET, DAYS = 2048, 60.0


def drawn_fleet(rng, spread, expected):
    """Rates per node-day, gamma with that squared coefficient of variation, and failures seen."""
    rates = rng.gamma(1.0 / spread, spread, FLEET) * expected / (FLEET * DAYS)
    counts = Counts(rng.poisson(rates * DAYS), np.full(FLEET, DAYS))
    return rates, FleetEvidence("fleet", counts, {}, "all jobs", FLEET, 1, 8.0, DAYS)


def mttf_h(evidence, n_nodes):
    (point,) = project_fleet(evidence, [n_nodes], RunShape(1), confidence=0.9).points
    return point.projection.mttf_h


@pytest.mark.slow
@pytest.mark.parametrize("spread", [4.0, 20.0])
def test_the_band_holds_the_mttf_of_the_nodes_that_the_run_gets(spread):
    """256 of 2,048 nodes. Without the draw 90 % bands held .75 and .55 of such fleets."""
    rng = np.random.default_rng(int(spread))
    inside = 0
    for _ in range(80):
        rates, evidence = drawn_fleet(rng, spread, 100)
        got = rng.choice(rates, 256, replace=False)
        inside += mttf_h(evidence, 256).contains(24.0 / got.sum())
    assert inside >= 68  # .85 of 80; at .90 fewer have a chance of 4 %


def test_equal_nodes_are_no_draw():
    counts = Counts(np.full(FLEET, 1), np.full(FLEET, DAYS))
    even = FleetEvidence("even", counts, {}, "all jobs", FLEET, 1, 8.0, DAYS)
    few, many = (mttf_h(even, n) for n in (16, 2048))
    assert few.high / few.low == pytest.approx(many.high / many.low)


def test_a_single_node_of_a_fleet_of_lemons_may_never_fail():
    _, evidence = drawn_fleet(np.random.default_rng(1), 20.0, 300)
    one, all_of_them = mttf_h(evidence, 1), mttf_h(evidence, FLEET)
    assert one.high > 1e6 * one.estimate
    assert all_of_them.high < 2 * all_of_them.estimate
    assert one.estimate == pytest.approx(FLEET * all_of_them.estimate)
