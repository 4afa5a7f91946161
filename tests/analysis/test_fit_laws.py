"""The law of the time between faults of a node, found again in histories drawn without our code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster_scenarios import fault, played, small
from ettr.analysis import Analysis
from ettr.analysis.calibration.back_test import quantities_of
from ettr.analysis.calibration.fit import fit_site
from ettr.analysis.calibration.fit_faults import (
    LEAST_GAPS,
    MOST_HAZARD,
    FaultTimes,
    _Faults,
    evenness,
    fault_times,
    fitted_bursts,
    fitted_law,
    hazard_of_rate,
    service_times,
)
from ettr.analysis.calibration.record import Fitted, Machine, OutageSpans, simulated_record
from ettr.sim.cluster.run import simulate_into
from ettr.store import open_store

DAY_S = 86_400.0
DAYS = 200.0
MEAN_DAYS = 60.0
Life = Callable[[np.random.Generator], float]


def weibull(shape: float) -> Life:
    return lambda rng: float(rng.weibull(shape)) / math.gamma(1.0 + 1.0 / shape)


def lognormal(sigma: float) -> Life:
    return lambda rng: math.exp(sigma * rng.normal() - sigma * sigma / 2.0)


def exponential(rng: np.random.Generator) -> float:
    return float(rng.exponential())


def history(
    life: Life, seed: int, nodes: int = 200, spread: float = 0.0, growth: float = 1.0
) -> FaultTimes:
    """Nodes in service for long, seen for 200 days; lives of mean 60 days, repairs of 5 hours.

    Args:
        life: Draws a life of mean 1.
        seed: Of the draws.
        nodes: How many.
        spread: Variance of the nodes' rates over their mean squared.
        growth: Rate of the second half over that of the first.
    """
    rng = np.random.default_rng(seed)
    node, start, down, before, quiet = [], [], [], [], []
    for one in range(nodes):
        rate = rng.gamma(1.0 / spread, spread) if spread else 1.0
        at = -rng.uniform(20.0, 40.0) * MEAN_DAYS
        seen: list[tuple[float, float]] = []
        while (at := at + life(rng) * MEAN_DAYS / rate) < DAYS:
            repair = min(rng.exponential(0.2), DAYS - at)
            if at >= 0.0 and rng.random() < (1.0 / growth if at < DAYS / 2 else 1.0):
                seen.append((at, repair))
            at += repair
        if not seen:
            quiet.append(DAYS)
        node += [one] * len(seen)
        start += [at for at, _ in seen]
        down += [repair for _, repair in seen]
        before += [seen[0][0]] * len(seen) if seen else []
    start_s, down_s, before_s, quiet_s = (
        np.array(one, dtype=np.float64) * DAY_S for one in (start, down, before, quiet)
    )
    begin_s, end_s = np.zeros(start_s.size), np.full(start_s.size, DAYS * DAY_S)
    return FaultTimes(
        np.array(node, dtype=np.int64), start_s, down_s, before_s, begin_s, end_s, quiet_s
    )


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize(("spread", "growth"), [(0.0, 1.0), (0.5, 3.0)])
def test_constant_rates_stay_so_though_nodes_and_months_differ(
    spread: float, growth: float, seed: int
):
    assert fitted_law(history(exponential, seed, spread=spread, growth=growth), 1) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("law", "form", "life"),
    [
        ("weibull", 0.6, weibull(0.6)),
        ("weibull", 2.0, weibull(2.0)),
        ("lognormal", 1.5, lognormal(1.5)),
        ("lognormal", 0.4, lognormal(0.4)),
    ],
)
def test_the_law_of_the_gaps_is_found(law: str, form: float, life: Life, seed: int):
    found = fitted_law(history(life, seed), 1)
    assert found is not None
    assert found["law"].value == law
    assert found["form"].value == pytest.approx(form, rel=0.12)
    low, high = found["form"].low, found["form"].high
    assert low is not None
    assert high is not None
    assert low < float(found["form"].value) < high
    assert high / low < 1.5


@pytest.mark.parametrize("nodes", [3, 4, 20])
def test_the_spread_of_bursts_is_that_in_which_their_faults_come(nodes: int):
    """Uniform over 600 s, as a scenario has it; 30 bursts of so many nodes, days apart."""
    rng, n_bursts, spread_s = np.random.default_rng(nodes), 30, 600.0
    begin_s = np.arange(n_bursts) * 3.0 * DAY_S
    start_s = (begin_s[:, None] + rng.uniform(0.0, spread_s, (n_bursts, nodes))).ravel()
    n = start_s.size
    node = np.array([f"n{k % nodes}" for k in range(n)], dtype=object)
    found = fitted_bursts(start_s, node, 3.0 * n_bursts, 40)
    assert found is not None
    # variance of a range of k: 2 (k - 1) / ((k + 1)^2 (k + 2)) of the squared spread
    error_s = spread_s * math.sqrt(2.0 / ((nodes - 1) * (nodes + 2)) / n_bursts)
    assert found.spread_s == pytest.approx(spread_s, abs=3.0 * error_s)


@pytest.mark.slow
def test_a_falling_hazard_is_seen_though_nodes_and_months_differ():
    found = fitted_law(history(weibull(0.6), 1, spread=0.5, growth=3.0), 1)
    assert found is not None
    assert found["form"].value == pytest.approx(0.6, rel=0.2)


@pytest.mark.parametrize("seed", range(1, 7))
def test_nodes_that_come_late_or_leave_early_keep_a_constant_rate(seed: int):
    """Half of the nodes come in the last 60 days of 200, the others leave in the first 140."""
    whole = history(exponential, seed, nodes=500)
    late = whole.node % 2 == 1
    begin_s, end_s = np.where(late, 140.0, 0.0) * DAY_S, np.where(late, DAYS, 140.0) * DAY_S
    kept = (whole.start_s >= begin_s) & (whole.start_s < end_s)
    _, first = np.unique(whole.node[kept], return_index=True)
    before_s = (whole.start_s - begin_s)[kept][first]
    times = FaultTimes(
        whole.node[kept], whole.start_s[kept],
        np.minimum(whole.down_s, end_s - whole.start_s)[kept],
        before_s[np.searchsorted(np.unique(whole.node[kept]), whole.node[kept])],
        begin_s[kept], end_s[kept], np.zeros(0),
    )  # fmt: skip
    assert service_times(times).gap_s.size >= LEAST_GAPS
    assert abs(evenness(times).z) < 3.3
    assert fitted_law(times, 1) is None
    assert evenness(replace(times, begin_s=0.0 * begin_s[kept])).z > 3.3  # were it not known
    longest = (end_s - whole.start_s)[kept].max()
    assert service_times(times).last_s.max() <= longest


def test_a_lemon_of_lives_nearly_alike_has_a_hazard_still():
    law = {"law": Fitted("lognormal", ""), "form": Fitted(0.4, "")}
    factor = hazard_of_rate(5.0, [(law, 10)])
    assert 1e3 < factor < MOST_HAZARD
    assert hazard_of_rate(20.0, [({**law, "form": Fitted(0.1, "")}, 10)]) == MOST_HAZARD


def test_few_gaps_or_few_nodes_say_nothing():
    sparse = history(weibull(0.5), 1, nodes=8)
    assert service_times(sparse).gap_s.size < LEAST_GAPS
    assert fitted_law(sparse, 1) is None
    crowd = history(weibull(0.5), 1, nodes=200)
    few = crowd.node < 9
    loud = replace(
        crowd,
        node=np.repeat(crowd.node[few], 8),
        start_s=np.repeat(crowd.start_s[few], 8) + np.tile(np.arange(8.0), int(few.sum())),
        down_s=np.zeros(8 * int(few.sum())),
        before_s=np.repeat(crowd.before_s[few], 8),
        begin_s=np.repeat(crowd.begin_s[few], 8),
        end_s=np.repeat(crowd.end_s[few], 8),
    )
    assert service_times(loud).gap_s.size >= LEAST_GAPS
    assert evenness(loud).n_nodes < 10
    assert evenness(loud).p_value < 0.01
    assert fitted_law(loud, 1) is None


def test_no_faults_are_no_law():
    none = np.zeros(0)
    nothing = FaultTimes(np.zeros(0, dtype=np.int64), *[none] * 5, np.array([1e6]))
    assert fitted_law(nothing, 1) is None
    assert evenness(nothing).p_value == 1.0


def test_repairs_of_any_fault_are_not_in_service():
    # b: fault A at 10 h (2 h repair), fault B at 20 h (3 h), A at 40 h (1 h); logs end at 100 h.
    # c: B at 5 h (4 h), A at 30 h (1 h). d: no fault of A, B at 50 h (6 h). e: none. x: a lemon.
    rows = [
        ("A", "b", 10, 2), ("B", "b", 20, 3), ("A", "b", 40, 1), ("B", "c", 5, 4),
        ("A", "c", 30, 1), ("B", "d", 50, 6), ("A", "x", 1, 1),
    ]  # fmt: skip
    texts = [np.array([row[i] for row in rows], dtype=object) for i in (0, 1)]
    hours = [np.array([row[i] for row in rows], dtype=np.float64) * 3600.0 for i in (2, 3)]
    flags = np.ones(len(rows), dtype=np.bool_)
    faults = _Faults(*texts, *hours, flags, flags, flags, flags, flags)
    spans = dict.fromkeys("bcde", (0.0, 100 * 3600.0))
    times = fault_times(faults, "A", texts[1] != "x", spans)
    seen = service_times(times)
    assert (seen.first_s / 3600.0).tolist() == [10.0, 26.0]  # 30 h less the repair of B
    assert (seen.gap_s / 3600.0).tolist() == [25.0]  # 30 h less two and three
    assert (seen.last_s / 3600.0).tolist() == [59.0, 69.0]
    assert sorted((seen.quiet_s / 3600.0).tolist()) == [94.0, 100.0]
    assert seen.mean_s / 3600.0 == pytest.approx((36 + 25 + 128 + 194) / 3)


def test_the_hazard_of_a_lemon_follows_from_how_often_it_fails():
    def law(name: str, form: float) -> dict[str, Fitted]:
        return {"law": Fitted(name, ""), "form": Fitted(form, "")}

    assert hazard_of_rate(9.0, [(None, 5), (None, 7)]) == 9.0
    # a Weibull life with a hazard h times as high is h ** (1 / shape) times as short
    assert hazard_of_rate(9.0, [(law("weibull", 0.5), 10)]) == pytest.approx(3.0, rel=1e-3)
    assert hazard_of_rate(9.0, [(law("weibull", 2.0), 10)]) == pytest.approx(81.0, rel=1e-3)
    half = hazard_of_rate(9.0, [(law("weibull", 0.5), 10), (None, 10)])
    assert half + half * half == pytest.approx(18.0, rel=1e-3)
    assert hazard_of_rate(1.0, [(law("lognormal", 1.5), 10)]) == 1.0


@pytest.mark.slow
def test_a_simulated_cluster_gives_its_law_back(tmp_path: Path):
    shape = 0.5
    made = small(
        machines={"nodes": 160},
        period={"days": 90.0},
        arrivals={"jobs_per_day": 5.0},
        faults=(fault("main-memory", 25.0, repair_mean_s=7200.0, repair_sigma=0.5,
                      node_down_chance=0.0, law="weibull", form=shape),),
        bursts=(),
        lemons={"share": 0.0},
        checks={"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
    )  # fmt: skip
    with open_store(tmp_path / "site", create=True) as opened:
        simulate_into(opened, made, 1, "site", "site", tmp_path / "truth")
        fitted = fit_site(Analysis(opened), "site").scenario
    (found,) = fitted.faults
    assert found.law == "weibull"
    assert found.form == pytest.approx(shape, rel=0.15)
    rate = found.per_1000_node_days
    assert 15.0 < rate < 35.0


def test_outages_soon_after_another_are_counted_within_nodes():
    def outage(node: int, day: float) -> tuple[int, float]:
        return node, day * DAY_S

    # the second and third of node 0 come within a week of the one before, that of node 1 does not
    rows = [outage(0, 1), outage(1, 2), outage(0, 7), outage(0, 13.5), outage(0, 30), outage(1, 9)]
    rows += [outage(node, 40) for node in range(2, 18)]
    node, start_s = np.array(rows).T
    spans = OutageSpans(
        node.astype(np.int64), start_s, start_s + 60.0, np.full(node.size, "", dtype=object)
    )
    tables, run = played(small(period={"days": 1.0}, arrivals={"jobs_per_day": 0.0}, bursts=()))
    empty = simulated_record(tables, run.truth(), Machine(20, 8, "GPUs"))
    record = replace(empty, outages=spans, has_jobs=False)
    assert quantities_of(record, 0.0, 50 * DAY_S)["outages soon after another"].value == 2 / 22
    # what began before the time that is asked about does not count, nor what follows it
    late = quantities_of(record, 8 * DAY_S, 50 * DAY_S)["outages soon after another"]
    assert late.value is None  # 19 outages are too few
