"""Rates are of one type of GPU where types differ, and a job on nodes of several counts in each.

Made by hand: eight nodes of H100, four of A100, two without GPUs; 40 days of one job a day and
node. Of H100 32 jobs fail, 16 of them on h7; of A100 two. One job runs for ten days on h0 and c0.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr
from ettr.estimates import Interval
from ettr.metrics.rates import ClassRate, main_class

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, DAY_S, RAN_S = 40, 86400, 72000
HEAD = (
    "JobID|JobName|User|Cluster|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes"
    "|NodeList|AllocTRES\n"
)
FAILED = {
    *((f"h{n}", day) for n in range(1, 5) for day in range(n, DAYS, 10)),
    *(("h7", day) for day in range(1, DAYS, 5)),
    *(("h7", day) for day in range(3, DAYS, 5)),
    *(("a1", day) for day in (7, 23)),
}


def at(second: float) -> str:
    return f"{FIRST + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("types")
    lines: list[str] = []

    def job(nodes: str, n: int, begin_s: int, ran_s: int, state: str, gpus: int) -> None:
        begin, end = at(begin_s), at(begin_s + ran_s)
        tres = f"cpu=64,gres/gpu={gpus}" if gpus else "cpu=64"
        lines.append(
            f"{len(lines) + 1}|j|u{len(lines) % 5}|c|{nodes[0]}|{state}|0:0|{begin}|{begin}|{end}"
            f"|{ran_s}|{n}|{nodes}|{tres}\n"
        )

    nodes = [*(f"h{n}" for n in range(8)), *(f"a{n}" for n in range(4)), "c0", "c1"]
    for node in nodes:
        for day in range(DAYS):
            state = "NODE_FAIL" if (node, day) in FAILED else "COMPLETED"
            job(node, 1, day * DAY_S + 600, RAN_S, state, 0 if node[0] == "c" else 8)
    job("c0,h0", 2, DAYS * DAY_S, 10 * DAY_S, "COMPLETED", 8)
    (folder / "sacct.psv").write_text(HEAD + "".join(lines))
    types = {"h": " Gres=gpu:h100:8", "a": " Gres=gpu:a100:4", "c": " Gres=(null)"}
    (folder / "nodes.txt").write_text(
        "".join(f"NodeName={node} CPUTot=64{types[node[0]]} State=IDLE\n" for node in nodes)
    )
    files = (folder / "sacct.psv", folder / "nodes.txt")
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC", "--cluster", "c")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.fixture(scope="module")
def report(store: Path) -> dict[str, Any]:
    done = ettr("report", store, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def node_days(nodes: int, more: float = 0.0) -> float:
    return nodes * DAYS * RAN_S / DAY_S + more


def test_a_job_on_two_classes_counts_in_each_by_its_nodes(report: dict[str, Any]) -> None:
    by_class = {one["name"]: one for one in report["failures"]["by_class"]}
    assert by_class["h100"]["node_days"] == pytest.approx(node_days(8, 10))
    assert by_class["a100"]["node_days"] == pytest.approx(node_days(4))
    assert by_class["cpu"]["node_days"] == pytest.approx(node_days(2, 10))
    assert [by_class[name]["failures"] for name in ("h100", "a100", "cpu")] == [32, 2, 0]


def test_rates_are_of_the_type_on_which_most_ran_where_types_differ(
    report: dict[str, Any], store: Path
) -> None:
    failures = report["failures"]
    assert failures["of_class"] == "h100"
    assert failures["all_jobs"]["failures"] == 32
    assert failures["all_jobs"]["node_days"] == pytest.approx(node_days(8, 10))
    mttf = next(one for one in report["summary"] if one["question"].startswith("MTTF"))
    assert mttf["question"].endswith("on h100 nodes")
    assert report["mttf"]["gpus_per_node"] == 8
    done = ettr("failures", store, "--gpu-type", "a100", "--json")
    assert (done.json["all_jobs"]["failures"], done.json["of_class"]) == (2, "")


def test_first_lines_say_of_which_type_they_are(store: Path, tmp_path: Path) -> None:
    first = ettr("failures", store).out.splitlines()[0]
    assert first.startswith("32 failures in 277 node-days of h100 nodes alone, ")
    whole = " ".join(ettr("failures", store, "--detail").out.split())
    assert "32 infrastructure failures in 276.67 node-days of runtime of h100 nodes alone:" in whole
    assert ettr("mttf", store).out.startswith("A job of 5-8 h100 GPUs fails every ")
    text = " ".join(ettr("report", store, "--output", tmp_path / "r.html").out.split())
    assert "A job of 5 to 8 h100 GPUs fails every" in text
    assert "32 failures on h100 nodes alone" in text


def test_any_two_types_that_differ_are_not_taken_together() -> None:
    """Of the most common type neither of the others differs, one from the other sevenfold."""
    nothing = Interval.unknown()
    main, good, bad = (
        ClassRate(name, True, failures, node_days, nothing)
        for name, failures, node_days in (("a", 21, 600.0), ("b", 2, 200.0), ("c", 14, 200.0))
    )
    assert (main_class([main, good]), main_class([main, bad])) == ("", "")
    assert main_class([main, good, bad]) == "a"


def test_nodes_are_compared_with_those_of_their_class(report: dict[str, Any]) -> None:
    nodes = {one["node"]: one for one in report["node_records"]["nodes"]}
    assert nodes["h7"]["expected_failures"] == pytest.approx(
        32 * DAYS * RAN_S / DAY_S / node_days(8, 10)
    )
    assert nodes["a1"]["expected_failures"] == pytest.approx(2 / 4)
    assert nodes["c1"]["expected_failures"] == 0
    worst = next(one for one in report["summary"] if "worst nodes" in one["question"])
    assert worst["answer"] == "h7"
    assert "lemon" in worst["detail"]


def test_a_period_says_of_the_failures_that_it_counts_how_sure_they_are(
    report: dict[str, Any],
) -> None:
    this = report["previous"]["this"]
    assert sum(this["by_confidence"].values()) == this["failures"]


def test_what_a_node_lost_is_a_number_of_the_node(report: dict[str, Any]) -> None:
    """Half an hour of eight GPUs each."""
    nodes = {one["node"]: one for one in report["node_records"]["nodes"]}
    assert nodes["h7"]["lost_gpu_hours"] == pytest.approx(16 * 8 * 0.5)
    assert nodes["a1"]["lost_gpu_hours"] == pytest.approx(2 * 8 * 0.5)
    assert nodes["h0"]["lost_gpu_hours"] == 0


def test_what_a_past_period_lost_is_a_count_with_what_it_hangs_on(report: dict[str, Any]) -> None:
    """From 5 to 75 minutes of work and restart a failure: half of 10 and of 120, and 15 more.

    Logs end with day 50: the last 30 days begin with day 20.
    """
    this = report["previous"]["this"]
    failures = sum(day >= 20 for _, day in FAILED)
    assert this["counted_gpu_hours"] == pytest.approx(
        {"estimate": failures * 4, "low": failures * 8 / 12, "high": failures * 10}
    )
    cost = report["summary"][0]
    assert "by how often jobs checkpoint" in cost["answer"]
    assert "--interval" in cost["detail"]


def test_types_are_compared_with_each_other(store: Path) -> None:
    done = ettr("compare", store, "--by", "gpu-type", "--json")
    assert done.code == 0, done.err
    h100, a100 = done.json["fleets"]
    assert (h100["name"], a100["name"]) == ("h100", "a100")
    assert (h100["failures"], a100["failures"]) == (32, 2)
    assert h100["node_days"] == pytest.approx(node_days(8, 10))
    refused = ettr("compare", store, "--by", "rack")
    assert (refused.code, "gpu-type only" in refused.err) == (2, True)


def test_partitions_are_compared_on_all_nodes_with_gpus(store: Path) -> None:
    """Partition a has none of the type that rates are of; others have nodes without GPUs."""
    done = ettr("compare", store, "--partition", "a", "--all-jobs", "--json")
    assert done.code == 0, done.err
    a100, others = done.json["fleets"]
    assert (a100["failures"], others["failures"]) == (2, 32)
    assert a100["node_days"] == pytest.approx(node_days(4))
    assert others["node_days"] == pytest.approx(node_days(8, 10))
    assert {a100["jobs"], others["jobs"]} == {"all jobs on nodes with GPUs"}


def test_two_periods_say_of_which_type_they_are(store: Path) -> None:
    done = ettr("compare", store, "--before", "2026-03-21T00:00:00Z", "--all-jobs", "--json")
    assert done.code == 0, done.err
    fleets = done.json["fleets"]
    assert sum(one["failures"] for one in fleets) == 32
    assert {one["jobs"] for one in fleets} == {"all jobs on h100 nodes"}


def test_a_place_is_its_nodes(store: Path, tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(
        "SwitchName=leaf1 Nodes=h[0-3],a1\nSwitchName=leaf2 Nodes=h[4-7],a[0,2-3],c[0-1]\n"
        "SwitchName=pod1 Switches=leaf[1-2]\n"
    )
    placed = tmp_path / "store"
    files = (store.parent / "sacct.psv", store.parent / "nodes.txt", tmp_path / "topology.conf")
    done = ettr("ingest", placed, *files, "--timezone", "UTC", "--cluster", "c")
    assert done.code == 0, done.err
    leaf = ettr("failures", placed, "--place", "leaf1", "--json")
    assert leaf.code == 0, leaf.err
    by_hand = ettr("failures", placed, "--node", "h[0-3]", "--node", "a1", "--json").json
    assert leaf.json["all_jobs"] == by_hand["all_jobs"]
    assert leaf.json["selection"]["words"] == "place leaf1"
    everything = ettr("failures", placed, "--place", "pod1", "--json").json
    assert everything["all_jobs"]["failures"] == 32
    refused = ettr("failures", placed, "--place", "leaf9")
    assert (refused.code, "leaf1, leaf2, pod1" in refused.err) == (2, True)
