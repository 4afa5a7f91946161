"""The table `blame`: weights of each failure over the nodes of its attempt sum to one."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from cli.program import ettr
from ettr.lemons.candidates import (
    BURST,
    NAMED,
    NOBODY,
    SHARED,
    WORKLOAD,
    PlacedFailure,
    blame,
    rates_of,
)
from ettr.lemons.fleet import Stratum
from ettr.lemons.model import NodeCounts, SharedFailure

HEAD = "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
RAN = [
    f"{1 + node}|a|u|c|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-11T00:00:00"
    f"|864000|1|n{node}|gres/gpu=8"
    for node in range(25)
]
FAILED = [
    f"{job}|a|u|c|NODE_FAIL|2026-01-11T00:00:00|2026-01-11T00:00:00|2026-01-1{day}T00:00:00"
    f"|{86_400 * (day - 1)}|{count}|{nodes}|gres/gpu={8 * count}"
    for job, day, count, nodes in (
        (50, 2, 1, "n3"),
        (51, 4, 1, "n3"),
        (52, 6, 4, "n[3-6]"),
        (53, 8, 1, "None assigned"),
    )
]


def _store(place: Path, rows: list[str], *more: Path) -> Path:
    (place / "sacct.psv").write_text("\n".join([HEAD, *rows]) + "\n")
    done = ettr("ingest", place / "store", place / "sacct.psv", *more, "--timezone", "UTC")
    assert done.code == 0, done.err
    return place / "store"


def _exported(store: Path, table: str, *options: str) -> list[dict[str, str]]:
    to = store.parent / f"{'-'.join([table, *options])}.csv"
    done = ettr("export", store, "--table", table, "--to", to, *options)
    assert done.code == 0, done.err
    with to.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_exported_table_sums_to_the_failures(tmp_path: Path):
    rows = _exported(_store(tmp_path, [*RAN, *FAILED]), "blame")
    by_job = defaultdict(list)
    for row in rows:
        by_job[row["attempt_id"].split("@")[0]].append(row)
    assert set(by_job) == {"c/50", "c/51", "c/52", "c/53"}
    for some in by_job.values():
        assert sum(float(row["weight"]) for row in some) == pytest.approx(1.0)
    assert [(row["node"], row["basis"]) for row in by_job["c/50"]] == [("n3", NAMED)]
    assert [(row["node"], row["basis"]) for row in by_job["c/53"]] == [("", NOBODY)]
    shared = {row["node"]: float(row["weight"]) for row in by_job["c/52"]}
    assert shared.keys() == {"n3", "n4", "n5", "n6"}
    # the node that failed twice alone is the likelier culprit; the others are alike
    assert shared["n3"] > 1.5 * shared["n4"]
    assert shared["n4"] == pytest.approx(shared["n6"], rel=0.05)


def _summary(tmp_path: Path, rows: list[str]) -> dict[str, dict[str, str]]:
    exported = _exported(_store(tmp_path, [*RAN, *rows]), "node_summary")
    return {row["node"]: row for row in exported}


@pytest.mark.slow
def test_where_every_culprit_is_named_the_weights_of_nodes_are_their_failures(tmp_path: Path):
    for row in _summary(tmp_path, FAILED[:2]).values():
        assert float(row["blame"]) == float(row["failures"])


@pytest.mark.slow
def test_a_failure_that_blames_no_node_counts_in_parts(tmp_path: Path):
    nodes = _summary(tmp_path, FAILED[:3])
    assert [nodes[f"n{at}"]["failures"] for at in (3, 4)] == ["2", "0"]
    assert 2 < float(nodes["n3"]["blame"]) < 3
    assert sum(float(row["blame"]) for row in nodes.values()) == pytest.approx(3)


@pytest.mark.slow
def test_a_node_and_its_switch_have_their_parts_of_failures_that_blame_no_node(tmp_path: Path):
    topology = tmp_path / "topology.conf"
    topology.write_text("SwitchName=s0 Nodes=n[0-4]\nSwitchName=s1 Nodes=n[5-24]\n")
    store = _store(tmp_path, [*RAN, *FAILED[:3]], topology)
    nodes = {row["node"]: float(row["blame"]) for row in _exported(store, "node_summary")}
    found = ettr("node", store, "c/n3", "--json").json
    assert (found["record"]["failures"], found["record"]["blame"]) == (2, nodes["n3"])
    found = ettr("node", store, "--json").json
    assert {one["node"]: one["blame"] for one in found["nodes"]} == nodes
    first, second = sorted(found["places"], key=lambda one: str(one["name"]))
    assert (first["failures"], second["failures"]) == (2, 0)
    assert first["blame"] == pytest.approx(nodes["n3"] + nodes["n4"])
    assert second["blame"] == pytest.approx(nodes["n5"] + nodes["n6"])
    for one in (first, second):
        per_1000 = 1000 * one["blame"] / one["node_days"]
        assert one["blame_per_1000_node_days"] == pytest.approx(per_1000)
    part = f"it has {nodes['n3']:.2f} failures"
    assert part in " ".join(ettr("node", store, "c/n3", "--detail").out.split())


def test_what_a_burst_shares_is_no_nodes_fault():
    [node, nobody] = blame([PlacedFailure("c", "a", "n1", ("n1", "n2"))], {}, {"a": 0.25}, {})
    assert (node.node, node.weight, node.basis) == ("n1", 0.25, NAMED)
    assert (nobody.node, nobody.weight, nobody.basis) == (None, 0.75, BURST)


def test_what_a_workload_brings_with_it_is_no_nodes_fault():
    made = blame([PlacedFailure("c", "a", None, ("n1", "n2"))], {}, {}, {"a": 0.1})
    assert [(one.node, one.basis) for one in made] == [
        ("n1", SHARED),
        ("n2", SHARED),
        (None, WORKLOAD),
    ]
    assert [one.weight for one in made] == pytest.approx([0.05, 0.05, 0.9])


def test_without_any_rate_the_nodes_share_alike():
    made = blame([PlacedFailure("c", "a", None, ("n1", "n2"))], {}, {}, {})
    assert [(one.node, one.weight, one.basis) for one in made] == [
        ("n1", 0.5, SHARED),
        ("n2", 0.5, SHARED),
    ]


@pytest.mark.slow
def test_a_user_whose_jobs_fail_everywhere_is_stated_and_accuses_no_node(tmp_path: Path):
    """Bob's jobs on eight nodes fail 30 times; ann's, on all 24, once."""
    rows = [
        f"{100 + at}|a|{user}|c|{state}|2026-01-{day:02}T00:00:00|2026-01-{day:02}T00:00:00"
        f"|2026-01-{day + 1:02}T00:00:00|86400|{count}|{nodes}|gres/gpu={8 * count}"
        for at, (user, state, day, count, nodes) in enumerate(
            [
                *(("ann", "COMPLETED", day, 24, "n[0-23]") for day in range(1, 25)),
                ("ann", "NODE_FAIL", 25, 24, "n[0-23]"),
                *(("bob", "NODE_FAIL", 1 + at % 27, 8, "n[0-7]") for at in range(30)),
            ]
        )
    ]
    store = _store(tmp_path, rows)
    found = ettr("lemons", store, "--json").json
    assert not any(one["claimed"] for one in found["candidates"])
    assert any("30 of them are of users" in note for note in found["notes"])
    scored = ettr("lemons", store, "--back-test", "--json").json
    assert any(
        "each fit knows something of the period after it" in note for note in scored["notes"]
    )

    def of_workload(*options: str) -> list[float]:
        blamed = _exported(store, "blame", *options)
        return [float(row["weight"]) for row in blamed if row["basis"] == WORKLOAD]

    assert len(of_workload()) == 30
    assert min(of_workload()) > 0.5
    # of bob's jobs alone no log says that those of others fail less often
    assert of_workload("--user", "bob") == of_workload()


def test_the_rates_of_few_nodes_leave_out_what_their_workload_brought():
    named, days = np.zeros(2), np.full(2, 10.0)
    shared = (SharedFailure(np.arange(2), 0.25), SharedFailure(np.arange(2), 0.75))
    group = Stratum("c", None, ("n1", "n2"), NodeCounts(days, named, shared), ((), ()), 0)
    assert rates_of([group], [None]) == {("c", "n1"): 0.05, ("c", "n2"): 0.05}
