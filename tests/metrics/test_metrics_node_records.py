"""Each node's record, and the times from an error to a node that works again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import CensoredData, binom, ecdf

from cli.program import EVENTS, SACCT, ettr, write_logs
from ettr.analysis.node_history import _named
from ettr.errors import UsageError
from ettr.metrics.survival import durations
from synthetic.site import SYMPTOMS, SitePlan, SiteTruth, write_site

pytestmark = pytest.mark.slow

LOGS = ("sacct.psv", "events.psv", "kernel.log", "slurmctld.log", "topology.conf", "nodes.txt")


def stored(folder: Path, *files: Path) -> Path:
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def records(store: Path) -> Any:
    done = ettr("node", store, "--json")
    assert done.code == 0, done.err
    return done.json


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    return stored(folder, *write_logs(folder))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SiteTruth]:
    folder = tmp_path_factory.mktemp("site")
    truth = write_site(folder, SitePlan(nodes=160, days=30, lemons=3, maintenance_day=20), seed=0)
    return stored(folder, *(folder / name for name in LOGS)), truth


def test_a_node_that_failed_once(small: Path):
    [first, *others] = records(small)["nodes"]
    assert first["node"] == "n1"
    assert first["failures"] == 1
    # of the 73 node-hours that jobs ran
    assert first["node_days"] == pytest.approx(36 / 24)
    assert first["expected_failures"] == pytest.approx(36 / 73)
    assert first["chance"] == pytest.approx(1.0)
    assert first["failed_attempts"] == 1
    assert first["unplanned_outages"] == 1
    assert first["unplanned_h"] == 6.0
    assert first["outages_by_reason"] == [
        {"reason_class": "not-responding", "is_planned": False, "outages": 1, "hours": 6.0}
    ]
    assert [(one["check"], one["code"], one["events"]) for one in first["codes"]] == [
        ("xid", "79", 1)
    ]
    assert first["last_repair"] == "2026-03-02T18:00:00Z"
    assert first["is_out"] is False
    assert sum(one["expected_failures"] for one in (first, *others)) == pytest.approx(1.0)
    assert {one["node"] for one in others} == {"n2", "n3", "n4"}
    assert all(one["failures"] == 0 for one in others)


def test_the_five_spans_of_one_failure(small: Path):
    [all_of_them, one] = records(small)["recovery_times"]
    assert (all_of_them["symptom"], one["symptom"]) == (None, "gpu-unavailable")
    hours = {span["span"]: span["times"] for span in one["spans"]}
    measured = {name: times["median_h"]["estimate"] for name, times in hours.items()}
    assert measured == {
        "detect": pytest.approx(1 / 60),  # XID at 11:59, the attempt ends at 12:00
        "drain": 0.0,
        "requeue": 1.0,
        "repair": 6.0,
        "return": None,  # no job ran on n1 again: 16 h until the logs end
    }
    assert hours["return"]["still_open"] == 1
    assert hours["return"]["median_h"]["low"] == 16.0


def test_what_the_logs_lack_is_not_measured(tmp_path: Path):
    (tmp_path / "sacct.psv").write_text(SACCT)
    store = stored(tmp_path, tmp_path / "sacct.psv")
    found = records(store)
    spans = {span["span"]: span for span in found["recovery_times"][0]["spans"]}
    assert {name: span["not_measured"] for name, span in spans.items()} == {
        "detect": 1,
        "drain": 1,
        "requeue": 0,
        "repair": 1,
        "return": 0,
    }
    assert all(one["unplanned_outages"] is None and one["is_out"] is None for one in found["nodes"])
    text = ettr("node", store, "--detail").out
    assert "Outages are not measured: the logs hold no states of nodes." in text
    assert "not measured" in text.partition("Time to repair")[2]


def test_a_node_that_is_not_drained_within_a_day_is_censored_there(tmp_path: Path):
    files = write_logs(tmp_path)
    files[-1].write_text(
        EVENTS.replace("2026-03-02T12:00:00|2026-03-02T18", "2026-03-03T18:00:00|2026-03-03T20")
    )
    spans = records(stored(tmp_path, *files))["recovery_times"][0]["spans"]
    drain, repair = (one for one in spans if one["span"] in {"drain", "repair"})
    assert drain["times"]["still_open"] == 1
    assert drain["times"]["median_h"]["low"] == 24.0
    assert repair["not_measured"] == 1


def test_one_node_says_what_is_known_of_it(small: Path):
    text = ettr("node", small, "n1", "--detail").out
    assert text.startswith("Node n1 of c")
    assert "1 failure is blamed on it in 1.50 node-days, where 0.493 are expected" in text
    assert "2026-03-02 12:00:00" in text
    history = ettr("node", small, "c/n1", "--json").json
    assert history["failures"][0]["job_id"] == "2"
    assert history["outages"][0]["end"] == "2026-03-02T18:00:00Z"
    [device] = history["devices"]
    assert (device["code"], device["device"], device["events"]) == ("79", "0000:3b:00", 1)
    assert "0000:3b:00" in text
    assert ettr("node", small, "n1", "--since", "2026-03-03", "--json").json["devices"] == []


def test_an_unknown_node_ends_with_similar_names(small: Path):
    done = ettr("node", small, "n11", "--detail")
    assert done.code == 2
    assert "no log names a node 'n11'; similar names: n1" in done.err


def test_a_node_of_an_unknown_cluster_ends_with_the_clusters_that_have_it():
    records = tuple(
        SimpleNamespace(cluster=cluster, node=node) for cluster in "ab" for node in ("n3", "n7")
    )
    for name in ("c/n3", "b/n33"):
        with pytest.raises(UsageError, match=r"similar names: a/n3, b/n3"):
            _named(records, name)
    with pytest.raises(UsageError, match=r"no log names a node 'x/n3'; similar names: n3"):
        _named(records[:2], "x/n3")


def test_the_planted_lemons_come_first(site: tuple[Path, SiteTruth]):
    store, truth = site
    found = records(store)
    assert {one["node"] for one in found["nodes"][:3]} == set(truth.lemons)
    by_node = {one["node"]: one for one in found["nodes"]}
    for node in by_node:
        assert by_node[node]["failures"] == sum(one.node == node for one in truth.failures)
    worst = found["nodes"][0]
    # nodes of its type of GPU
    like = [one for one in found["nodes"] if one["gpu_type"] == worst["gpu_type"]]
    days = sum(one["node_days"] for one in like)
    of_type = sum(one["failures"] for one in like)
    tail = binom.sf(worst["failures"] - 1, of_type, worst["node_days"] / days)
    ran = sum(one["node_days"] > 0 for one in found["nodes"])
    assert worst["chance"] == pytest.approx(min(1.0, ran * tail), rel=1e-6)


def test_a_selection_has_its_own_nodes_and_failures(site: tuple[Path, SiteTruth]):
    store, truth = site
    cut = "2026-07-16"
    early, late = (
        ettr("node", store, option, cut, "--json").json for option in ("--until", "--since")
    )
    for node in truth.lemons:
        halves = [next(n for n in half["nodes"] if n["node"] == node) for half in (early, late)]
        assert sum(n["failures"] for n in halves) == sum(one.node == node for one in truth.failures)
    [only] = ettr("node", store, "--node", min(truth.lemons), "--json").json["nodes"]
    assert only["node"] == min(truth.lemons)


def test_racks_of_the_topology_have_rates_that_add_up(site: tuple[Path, SiteTruth]):
    store, truth = site
    found = records(store)
    # read before the inventory and after it, a node has what each of them knows
    assert all(one["gpu_type"] and one["switch"] and one["pod"] for one in found["nodes"])
    leaves = [one for one in found["places"] if one["kind"] == "switch"]
    assert len(leaves) == 10
    assert sum(one["nodes"] for one in leaves) == 160
    assert sum(one["failures"] for one in leaves) == len(truth.failures)
    days = sum(one["node_days"] for one in found["nodes"])
    assert sum(one["node_days"] for one in leaves) == pytest.approx(days)
    name = found["nodes"][0]["node"]
    history = ettr("node", store, name, "--json").json
    assert [one["kind"] for one in history["places"]] == ["pod", "switch"]
    assert "switch leaf" in ettr("node", store, name, "--detail").out


def test_repairs_are_as_long_as_planted(site: tuple[Path, SiteTruth]):
    store, _ = site
    for one in records(store)["recovery_times"][1:]:
        median = next(s for s in one["spans"] if s["span"] == "repair")["times"]["median_h"]
        planted_h = SYMPTOMS[one["symptom"]].repair_mean_h * np.log(2)
        if one["failures"] >= 5:
            assert (median["low"] or 0.0) < 2.0 * planted_h
            assert median["high"] is None or median["high"] > 0.5 * planted_h


def test_medians_are_those_of_another_kaplan_meier_estimator():
    rng = np.random.default_rng(5)
    hours, over = rng.exponential(10.0, 60), rng.random(60) < 0.7
    theirs = ecdf(CensoredData(uncensored=hours[over], right=hours[~over])).sf
    first = theirs.quantiles[np.flatnonzero(theirs.probabilities <= 0.5)[0]]
    assert durations(hours, over).median_h.estimate == pytest.approx(first)
