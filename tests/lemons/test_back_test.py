"""The back-test: fleets whose truth is planted, a store counted by hand, and public traces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cli.program import ettr
from ettr.estimates import Interval
from ettr.lemons.back_test import (
    back_test,
    edges_of,
    false_accusations,
    rate_ratio,
    size_uplift,
    sliding_windows,
)
from ettr.lemons.candidates import role_names
from ettr.lemons.fleet import fault_strata
from shared_data import shared

DAY_S, NODES, DAYS = 86_400.0, 400, 112


def _scores(rates_per_day: np.ndarray, seed: int):
    """A back-test of a fleet whose nodes (rows) fail at these rates on each day (columns)."""
    rng = np.random.default_rng(seed)
    spans = {("c", f"n{at}"): (0.0, DAYS * DAY_S) for at in range(NODES)}
    faults = [
        (("c", f"n{at}"), float((day + rng.random()) * DAY_S), "gpu")
        for at, day in np.argwhere(rng.random(rates_per_day.shape) < rates_per_day)
    ]
    windows = sliding_windows(0.0, DAYS * DAY_S, 28.0, 28.0)
    fleet = fault_strata(spans, faults, {}, edges_of(windows))
    return back_test(fleet, windows, 0.1)[0]


def test_lemons_that_stay_lemons_have_their_planted_ratio_afterwards():
    rates = np.full((NODES, DAYS), 0.01)
    rates[:10] = 0.3
    scores = _scores(rates, seed=1)
    assert len(scores.windows) == 3
    assert {one.node for one in scores.nodes} == {f"n{at}" for at in range(10)}
    assert scores.lift.contains(30.0)
    assert scores.failed_again.estimate == 1.0
    assert scores.lemon_share.high == 1.0
    # 10 of 400 nodes at thirty times the rate have 300 / 690 of the failures
    assert scores.caught.contains(300 / 690)


def test_nodes_that_fail_in_one_spell_alone_are_no_lemons_afterwards():
    rates = np.full((NODES, DAYS), 0.01)
    for at, first in enumerate(range(0, 84, 28)):
        rates[10 * at : 10 * at + 10, first : first + 28] = 0.3
    scores = _scores(rates, seed=2)
    assert scores.claims >= 20
    assert scores.lift.contains(1.0)
    assert scores.lemon_share.high < 0.3
    surest = scores.calibration[-1]
    assert surest.ratio.high < 0.5


def test_intervals_of_the_lift_hold_the_truth_as_often_as_they_state():
    rng, held = np.random.default_rng(3), 0
    for _ in range(400):
        count, others = rng.poisson(6.0), rng.poisson(300.0)
        # the nodes in question have a hundredth of the others' exposure and twice their rate
        held += rate_ratio(count, others / 100, others, confidence=0.9).contains(2.0)
    assert held >= 0.87 * 400


def test_without_failures_of_others_a_lift_has_no_estimate():
    assert rate_ratio(3, 0.0, 0.0) == Interval(None, 0.0, np.inf)


def test_what_claimed_nodes_are_spared_is_less_what_others_would_have_had():
    size = size_uplift((9, 16), 100, 20.0, 8.0, 2.0, 1.0, np.random.default_rng(0))
    assert size.fall.estimate == pytest.approx(0.3)
    assert size.fall.low < 0.3 < size.fall.high
    assert (size.failed_share, size.failed_share_without) == pytest.approx((0.2, 0.14))
    price = false_accusations(7.0, 10, Interval(0.8, 0.6, 0.9), 20.0, size.fall)
    assert price.ordinary_claims.estimate == pytest.approx(2.0)
    assert price.node_days_lost.high == pytest.approx(28.0)
    assert price.node_days_per_failure == pytest.approx(70 / 6)


def test_a_name_that_stands_out_in_several_clusters_is_a_role():
    nodes = {"a": 1000, "b": 1000, "c": 400}
    claims = [("a", "n0"), ("b", "n0"), ("c", "n0"), ("a", "n7"), ("b", "n9")]
    assert role_names(claims, nodes) == {"n0"}
    # of 300 claims in each of two clusters some fall on the same names by chance
    many = [(cluster, f"n{at}") for cluster in "ab" for at in range(300)]
    assert role_names(many, nodes) == frozenset()


HEADER = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """56 days of 30 nodes with a job a day each; n7 fails every third day, n20 once late."""
    place = tmp_path_factory.mktemp("back-test")
    rows, first = [HEADER], datetime(2026, 3, 1, tzinfo=UTC)
    for day in range(56):
        for node in range(30):
            fails = (node == 7 and day % 3 == 0) or (node, day) == (20, 50)
            start = first + timedelta(days=day)
            end = start + timedelta(hours=24)
            times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start, start, end))
            state = "NODE_FAIL" if fails else "COMPLETED"
            rows.append(
                f"c|{30 * day + node}|train|ann|{state}|0:0|{times}|86400|1|n{node}"
                "|node=1,gres/gpu=8"
            )
    (place / "sacct.psv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    done = ettr("ingest", place / "store", place / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return place / "store"


@pytest.mark.slow
def test_a_store_is_scored_as_counted_by_hand(store: Path):
    found = ettr("lemons", store, "--back-test", "--json").json
    assert (found["format"], found["basis"]) == ("ettr-lemons-back-test", "jobs")
    scores = found["scores"]
    assert scores["claims"] == scores["scored"] == 1
    (node,) = scores["nodes"]
    # ends on days 28 to 56 of the jobs that began on days 30, 33, ..., 54
    assert (node["node"], node["later_failures"]) == ("n7", 9)
    assert node["later_node_days"] == pytest.approx(28)
    every = found["all_sizes"]
    assert (every["attempts"], every["failures"], every["of_claimed"]) == (28 * 30, 10, 9)
    # n20 fails once in the 29 * 28 node-days of the other nodes
    assert every["of_ordinary"] == pytest.approx(28 * 1 / (29 * 28))
    assert [size["size_to"] for size in found["sizes"]] == [8]
    assert "failed" in ettr("lemons", store, "--back-test", "--detail").out
    assert ettr("lemons", store, "--back-test", "--csv").out.count("\n") == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["n7", "--back-test"], "leave one out"),
        (["--fit-days", "7"], "only --back-test has windows"),
        (["--back-test", "--fit-days", "50", "--score-days", "50"], "the logs span 56"),
        (["--back-test", "--score-days", "0.01"], "more than"),
    ],
)
def test_windows_that_cannot_be_are_refused(store: Path, words: list[str], says: str):
    done = ettr("lemons", store, *words)
    assert done.code == 2
    assert says in done.err


@pytest.mark.slow
def test_lanl_node_0_is_a_role_and_persistent_nodes_fail_three_times_as_often(tmp_path: Path):
    trace = shared("data/traces/lanl/LA-UR-05-7318-failure-data-1996-2005.csv.zst")
    done = ettr("ingest", tmp_path / "lanl", trace, "--timezone", "America/Denver")
    assert done.code == 0, done.err
    systems = [word for at in (18, 19, 20) for word in ("--cluster", f"lanl-{at}")]
    asked = (tmp_path / "lanl", *systems, "--since", "2002-04-01")
    found = ettr("lemons", *asked, "--json").json
    with_role = [one for one in found["candidates"] if one["has_role"]]
    assert {(one["cluster"], one["node"]) for one in with_role} == {
        (f"lanl-{at}", "node0") for at in (18, 19, 20)
    }
    assert not any(one["claimed"] for one in with_role)
    windows = ("--back-test", "--fit-days", "365", "--score-days", "180", "--json")
    scores = ettr("lemons", *asked, *windows).json["scores"]
    assert scores["roles"] == ["node0"]
    assert scores["lift"]["low"] > 2
    assert scores["lift"]["high"] < 6
    named = {(one["cluster"], one["node"]) for one in scores["nodes"]}
    assert {("lanl-18", "node32"), ("lanl-19", "node256"), ("lanl-19", "node512")} <= named


@pytest.mark.slow
def test_infinitehbd_claims_few_because_its_second_half_does_not_bear_them_out(tmp_path: Path):
    trace = shared("data/traces/infinitehbd/fault_trace.json.zst")
    assert ettr("ingest", tmp_path / "store", trace, "--nodes", "400").code == 0
    found = ettr("lemons", tmp_path / "store", "--json").json
    assert sum(one["claimed"] for one in found["candidates"]) == 0
    scored = ettr("lemons", tmp_path / "store", "--back-test", "--json").json
    # what 28 days would have claimed does not go on failing, and the answer says so first
    assert scored["scores"]["lemon_share"]["high"] < 0.2
    assert scored["notes"][0].startswith("The claims do not hold here")
