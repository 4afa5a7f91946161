"""The back-test of beliefs holds for the truth, and fails when coverage or rates are wrong."""

from __future__ import annotations

import numpy as np

from checks.known_fleet import Fleet, every, run, true_knowledge
from ettr.checks.back_test import check_back_test

SEEDS, JOBS = range(2), 30
TRUE, HIGH, LOW = 1.0, 3.0, 0.15


def test_it_holds_for_the_truth_and_fails_when_coverage_is_wrong():
    holds = {TRUE: 0, HIGH: 0, LOW: 0}
    foretold = counted = 0.0
    for seed in SEEDS:
        fleet = Fleet.drawn(seed)
        past = run(fleet, every, true_knowledge(fleet), JOBS, 300 + seed, recorded=True)
        for times in holds:
            stated = np.minimum(fleet.coverage * times, 1.0)
            moments, strike = past.moments, fleet.strike_per_h
            found = check_back_test(moments, fleet.rates, strike, stated, 0.98)
            holds[times] += found.holds
            if times == TRUE:
                foretold += found.incidents.expected
                counted += found.incidents.found
    assert holds[TRUE] == len(SEEDS)
    assert holds[HIGH] == 0
    assert holds[LOW] == 0
    # the count is Poisson: three standard deviations
    assert abs(foretold - counted) <= 3 * counted**0.5
