"""Coverage, lead times, false alarms and the effect of a check, against planted truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from ettr.checks.coverage import (
    BlamedEnd,
    NodeChange,
    alarms_of,
    catches,
    coverage_by_symptom,
    effect_of,
    firings_of,
    history_of,
    median_interval,
)

HOUR = 3600.0
DAY = 24 * HOUR


def planted(rng, coverage, lead_mean_h):
    """60 failures of a symptom on 200 nodes, some with an alarm before them; a year of watching."""
    failures, firings = [], {}
    for node in range(60):
        end = rng.uniform(30, 330) * DAY
        failures.append(BlamedEnd(node, end, "gpu-memory"))
        if rng.random() < coverage:
            first = end - rng.exponential(lead_mean_h) * HOUR
            firings[node] = [(first, first)]
    return failures, firings, dict.fromkeys(range(200), (0.0, 365 * DAY))


def test_planted_coverage_and_lead_are_within_their_intervals():
    holds = {"coverage": 0, "lead": 0}
    for seed in range(50):
        rng = np.random.default_rng(seed)
        coverage = rng.uniform(0.2, 0.9)
        failures, firings, watched = planted(rng, coverage, 2.0)
        (found,) = coverage_by_symptom("c", failures, firings, watched, 24 * HOUR)
        holds["coverage"] += found.coverage_share.contains(coverage)
        holds["lead"] += found.lead_h.contains(2.0 * np.log(2))
    assert holds["coverage"] >= 41
    assert holds["lead"] >= 41


def test_a_wrong_coverage_is_outside_of_the_interval():
    outside = 0
    for seed in range(10):
        failures, firings, watched = planted(np.random.default_rng(seed), 0.8, 2.0)
        (found,) = coverage_by_symptom("c", failures, firings, watched, 24 * HOUR)
        outside += not found.coverage_share.contains(0.4)
    assert outside == 10


def test_what_the_check_itself_named_is_no_coverage():
    failures = [BlamedEnd("a", 9 * HOUR, "x", alone="c"), BlamedEnd("b", 9 * HOUR, "x")]
    watched = {"a": (0.0, DAY), "b": (0.0, DAY)}
    firings = {"a": [(8 * HOUR, 8 * HOUR)]}
    (found,) = coverage_by_symptom("c", failures, firings, watched, 6 * HOUR)
    assert (found.failures, found.fired_before, found.missed, found.own) == (1, 0, 1, 1)
    # 6 of 48 node-hours have a firing before them
    assert found.by_chance_share == pytest.approx(6 / 48)


def test_alarms_are_told_apart():
    failures = [BlamedEnd("a", 5 * HOUR, "x")]
    firings = {
        "a": [(4 * HOUR, 4 * HOUR), (20 * HOUR, 20 * HOUR)],
        "b": [(4 * HOUR, 4 * HOUR)],
        "c": [(4 * HOUR, 4 * HOUR)],
        "d": [(5 * HOUR, 5 * HOUR)],
    }
    failures.append(BlamedEnd("d", 5 * HOUR, "x"))
    runs = {"a": [(0.0, 40 * HOUR)], "b": [(0.0, 40 * HOUR)], "c": [(0.0, 5 * HOUR)]}
    found = alarms_of(failures, firings, {"b": [6 * HOUR]}, runs, 6 * HOUR)
    assert (found.before_failure, found.false_alarms) == (1, 1)
    assert (found.at_failure, found.taken_out, found.unknown, found.firings) == (1, 1, 1, 5)


def test_reports_are_folded_into_firings():
    reports = [(0.0, 0.0), (HOUR, HOUR), (9 * HOUR, 10 * HOUR), (9.5 * HOUR, 9.6 * HOUR)]
    assert firings_of(reports) == [(0.0, HOUR), (9 * HOUR, 10 * HOUR)]


def test_the_median_has_the_exact_order_statistics():
    values = list(range(1, 11))
    found = median_interval(values, 0.9)
    # Conover: of 10 values the 2nd and the 9th hold the median with 97.9 %, the 3rd and 8th 89.1 %
    assert (found.low, found.estimate, found.high) == (2, 5.5, 9)
    assert not np.isfinite(median_interval([1.0, 2.0], 0.9).high)


def test_the_effect_of_a_check_is_that_of_the_binomial_law():
    nodes = [NodeChange(6, 100.0, 1, 100.0), NodeChange(6, 100.0, 2, 100.0)]
    found = effect_of(nodes)
    # with equal node-days the failures after are binomial: Clopper and Pearson's ends
    assert found.rate_ratio.estimate == pytest.approx(3 / 12, rel=1e-6)
    share = found.rate_ratio.high / (1 + found.rate_ratio.high)
    assert binom.cdf(3, 15, share) == pytest.approx(0.05, abs=1e-6)
    assert found.verdict == "fewer"


def test_nodes_that_were_bad_from_the_start_do_not_pass_for_an_effect():
    rng = np.random.default_rng(4)
    decided = 0
    for _ in range(20):
        rate = rng.choice([0.01, 0.3], 12, p=[0.8, 0.2])
        days = rng.uniform(10, 60, (2, 12))
        counts = rng.poisson(rate * days)
        found = effect_of(
            NodeChange(int(a), d, int(b), e) for a, b, d, e in zip(*counts, *days, strict=True)
        )
        decided += found.verdict != "not decided"
    assert decided <= 5
    assert effect_of([]).rate_ratio.estimate is None


def test_the_back_test_holds_for_a_true_coverage_and_fails_when_it_is_wrong():
    middle = 180 * DAY
    agrees = {"halves": 0, "typed": 0}
    wrong = {"halves": 0, "too high": 0, "too low": 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        failures, firings, watched = planted(rng, 0.7, 2.0)
        # half of what fired is taken out of service: no failure comes of it
        out = {place: [own[0][0] + HOUR] for place, own in firings.items() if rng.random() < 0.5}
        came = [one for one in failures if one.place not in out]
        found = catches("c", came, firings, out, watched, 24 * HOUR)
        assert len(found) == len(failures)
        agrees["halves"] += history_of(found, middle, None, 0.9).agrees
        agrees["typed"] += history_of(found, middle, 0.7, 0.9).agrees
        wrong["too high"] += not history_of(found, middle, 0.95, 0.9).agrees
        wrong["too low"] += not history_of(found, middle, 0.35, 0.9).agrees
        # from the middle on it finds next to nothing
        later = [(time, caught and time < middle) for time, caught in found]
        wrong["halves"] += not history_of(later, middle, None, 0.9).agrees
    # 36 of 40 on average at 90 %, exact tests more
    assert min(agrees.values()) >= 32
    assert min(wrong.values()) >= 38
