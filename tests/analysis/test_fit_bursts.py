"""Bursts of faults, found again although those on a node or two do not look like bursts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster_scenarios import fault, small
from ettr.analysis import Analysis
from ettr.analysis.calibration.fit import fit_site
from ettr.analysis.calibration.fit_faults import LEAST_SEEN, FittedBursts, fitted_bursts
from ettr.sim.cluster.faults import burst_hits
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_parts import BurstProcess
from ettr.store import open_store

DAYS, NODES = 200.0, 40
SPREAD_S = 600.0


def site(per_year: float, hit_share: float, per_1000_node_days: float) -> ClusterScenario:
    """Forty nodes for 200 days, with bursts and with faults that come alone."""
    return small(
        machines={"nodes": NODES},
        period={"days": DAYS},
        faults=(fault("filesystem", per_1000_node_days, repair_mean_s=3600.0),),
        bursts=(BurstProcess("filesystem", "cluster", per_year, hit_share, SPREAD_S),),
        lemons={"share": 0.0},
        checks={"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
    )


def found(made: ClusterScenario, seed: int) -> tuple[FittedBursts | None, float]:
    """What is fitted to one history, and its faults of no burst per 1,000 node-days."""
    hits = burst_hits(made, seed)
    rng = np.random.default_rng(seed)
    expected = made.faults[0].per_1000_node_days / 1000.0 * NODES * DAYS
    n = rng.poisson(expected)
    alone_s, on = rng.uniform(0.0, DAYS * 86_400.0, n), rng.integers(0, NODES, n)
    start_s = np.concatenate([[float(hit.time_s) for hit in hits], alone_s])
    node = np.array([f"n{k}" for k in (*(hit.node for hit in hits), *on.tolist())], dtype=object)
    fit = fitted_bursts(start_s, node, DAYS, NODES)
    if fit is None:
        return None, start_s.size / (NODES * DAYS) * 1000.0
    single = start_s.size - sum(group.size for group in fit.groups)
    return fit, (single - fit.unseen_faults) / (NODES * DAYS) * 1000.0


@pytest.mark.parametrize("hits", [2.5, 4.0, 15.0])
def test_bursts_that_hit_few_nodes_are_of_the_rate_and_size_that_was_planted(hits: float):
    """Of bursts that hit 2.5 of 40 nodes in the mean fewer than a half look like bursts."""
    per_year, rate = 60.0, 5.0
    made = site(per_year, hits / NODES, rate)
    fits = [found(made, seed) for seed in range(30)]
    known = [(fit, alone) for fit, alone in fits if fit is not None]
    per_years = np.array([fit.per_year.estimate for fit, _ in known])
    shares = np.array([fit.hit_share.estimate for fit, _ in known]) * NODES
    rates = np.array([alone for _, alone in known])
    assert per_years.size == 30
    for values, truth in ((per_years, per_year), (shares, hits), (rates, rate)):
        error = float(values.std()) / np.sqrt(values.size)
        assert values.mean() == pytest.approx(truth, abs=3.0 * error + 0.1 * truth)
    held = [fit.per_year.low <= per_year <= fit.per_year.high for fit, _ in known]
    held += [fit.hit_share.low <= hits / NODES <= fit.hit_share.high for fit, _ in known]
    assert np.mean(held) > 0.8
    if hits == 2.5:
        # what the bursts that were seen would have said
        seen = np.mean([len(fit.groups) for fit, _ in known]) / DAYS * 365.25
        assert seen < 0.6 * per_year
        assert np.mean([fit.seen_share for fit, _ in known]) < 0.6


def test_bursts_on_hardly_more_nodes_than_are_seen_are_not_taken_for_any_number_of_them():
    """All that is seen hits three nodes: as well one of a thousand, or ten times as many."""
    begin_s = np.repeat(np.arange(20) * 5.0 * 86_400.0, 3)
    alone_s = np.arange(200) * 500_000.0 + 9000.0
    start_s = np.concatenate([begin_s, alone_s])
    node = np.array([f"n{k % NODES}" for k in range(start_s.size)], dtype=object)
    fit = fitted_bursts(start_s, node, 1200.0, NODES)
    assert fit is not None
    assert fit.seen_share == pytest.approx(LEAST_SEEN)
    assert "25% are seen, the fewest that are considered" in fit.what
    # none of the bursts that are not seen has a fault where each fault is of one that is
    bare = fitted_bursts(begin_s, node[: begin_s.size], 100.0, NODES)
    assert bare is not None
    assert bare.hit_share.estimate == pytest.approx(3.0 / NODES)


def test_bursts_on_every_node_are_all_seen():
    start_s = np.repeat(np.arange(10) * 864_000.0, NODES)
    node = np.array([f"n{k % NODES}" for k in range(start_s.size)], dtype=object)
    fit = fitted_bursts(start_s, node, 100.0, NODES)
    assert fit is not None
    assert (fit.hit_share.estimate, fit.seen_share, fit.unseen_faults) == (1.0, 1.0, 0.0)
    assert fit.what == "10 bursts of 40.0 nodes on average"


def test_faults_that_come_alone_are_no_bursts():
    made = site(0.0, 0.0, 5.0)
    assert [found(made, seed)[0] for seed in range(10)] == [None] * 10


@pytest.mark.slow
def test_a_simulated_store_gives_its_bursts_and_the_rate_of_single_faults_back(tmp_path: Path):
    """A year of bursts in three stores: each by itself is of chance, their mean less so."""
    made = replace(
        site(120.0, 3.0 / NODES, 10.0),
        period=replace(small().period, days=120.0),
        arrivals=replace(small().arrivals, jobs_per_day=3.0),
    )
    fits = []
    for seed in (1, 2, 3):
        with open_store(tmp_path / f"site{seed}", create=True) as opened:
            simulate_into(opened, made, seed, "site", "site", tmp_path / f"truth{seed}")
            fits.append(fit_site(Analysis(opened), "site").scenario)
    (bursts,) = zip(*(fit.bursts for fit in fits), strict=True)
    (faults,) = zip(*(fit.faults for fit in fits), strict=True)
    assert np.mean([one.per_year for one in bursts]) == pytest.approx(120.0, rel=0.25)
    assert np.mean([one.hit_share * NODES for one in bursts]) == pytest.approx(3.0, rel=0.15)
    # of all nodes, lemons among them
    more = [1.0 + fit.lemons.share * (fit.lemons.factor - 1.0) for fit in fits]
    rates = [one.per_1000_node_days * k for one, k in zip(faults, more, strict=True)]
    assert np.mean(rates) == pytest.approx(10.0, rel=0.35)
    source = fits[0].sources
    assert "are seen" in source["bursts[1].per_year"]
    assert "are of bursts on fewer than 3 nodes" in source["faults[1].per_1000_node_days"]
