"""Rows that name no cluster, among those of one cluster, of several and of none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ettr.facts.naming import Naming
from ettr.tables import TABLES
from ettr.tables.rows import DEFAULT_CLUSTER, UNNAMED_NOTE
from fact_tables import facts_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMED, BARE = "named", "bare"


def tables(
    nodes: dict[str, Iterable[str]], events: dict[str, Iterable[str | None]]
) -> dict[str, pa.Table]:
    """Nodes by the cluster that names them, events without one by their file; all is in memory."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for cluster, names in nodes.items():
        rows["nodes"] += [{"cluster": cluster, "node": n, "file_id": NAMED} for n in names]
    for file_id, some in events.items():
        rows["events"] += [
            {"event_id": f"{file_id}{place}", "cluster": DEFAULT_CLUSTER, "node": node}
            | {"time": NOON, "file_id": file_id}
            for place, node in enumerate(some)
        ]
    rows["files"] = [{"file_id": NAMED}, *({"file_id": f, "notes": UNNAMED_NOTE} for f in events)]
    return {name: pa.Table.from_pylist(some, loose(name)) for name, some in rows.items()}


def loose(name: str) -> pa.Schema:
    """The schema of a table in which any column may be null."""
    return pa.schema([pa.field(one.name, one.type) for one in TABLES[name].arrow_schema])


def placed(nodes: dict[str, Iterable[str]], **events: Iterable[str | None]) -> list[Any]:
    """The cluster of each event, by file and place."""
    rows = facts_of(tables(nodes, events)).rows("named_events")
    found = sorted(rows, key=lambda row: row["event_id"])
    return [(row["node"], row["cluster"]) for row in found]


TWO = {"alpha": ["n1", "n2", "a3"], "beta": ["n1", "n2", "b3"]}


def test_among_the_logs_of_one_cluster_all_rows_are_its_own() -> None:
    assert placed({"alpha": ["n1"]}, bare=["n1", "elsewhere", None]) == [
        ("n1", "alpha"), ("elsewhere", "alpha"), (None, "alpha"),
    ]  # fmt: skip


def test_without_a_named_cluster_rows_stay_as_they_are() -> None:
    assert placed({}, bare=["n1"]) == [("n1", DEFAULT_CLUSTER)]


def test_a_file_is_of_the_cluster_that_alone_has_some_of_its_nodes() -> None:
    """a3 is of alpha only; so is then n1, which beta has as well, and what names no node."""
    assert placed(TWO, bare=["a3", "n1", None]) == [
        ("a3", "alpha"), ("n1", "alpha"), (None, "alpha"),
    ]  # fmt: skip


def test_nodes_that_both_clusters_have_decide_nothing() -> None:
    assert placed(TWO, bare=["n1", "n2"]) == [("n1", DEFAULT_CLUSTER), ("n2", DEFAULT_CLUSTER)]


def test_a_central_log_of_both_clusters_is_split_by_node() -> None:
    assert placed(TWO, bare=["a3", "b3", "n1", None]) == [
        ("a3", "alpha"), ("b3", "beta"), ("n1", DEFAULT_CLUSTER), (None, DEFAULT_CLUSTER),
    ]  # fmt: skip


def test_a_host_name_with_a_domain_is_the_node_s_of_its_cluster() -> None:
    assert placed(TWO, bare=["a3.site.org", "B3", "n1.site.org"]) == [
        ("a3", "alpha"), ("b3", "beta"), ("n1.site.org", DEFAULT_CLUSTER),
    ]  # fmt: skip


def test_two_domains_and_addresses_name_no_node_of_a_cluster() -> None:
    nodes = {"alpha": ["a1", "a2", "a3", "10"], "beta": ["b1", "b2"]}
    bare = ["a3.east.org", "a3.west.org", "10.0.0.1", "a1", "a2", "b1", "b2"]
    found = placed(nodes, bare=bare)
    assert found[:3] == [(one, DEFAULT_CLUSTER) for one in bare[:3]]
    assert [cluster for _, cluster in found[3:]] == ["alpha", "alpha", "beta", "beta"]


def test_a_file_of_a_third_cluster_that_shares_a_name_is_of_none() -> None:
    third = ["a3", "k1", "k2"]
    assert placed(TWO, bare=third) == [(node, DEFAULT_CLUSTER) for node in third]


def test_each_file_is_judged_by_its_own_nodes() -> None:
    assert placed(TWO, one=["a3", None], two=["b3", None]) == [
        ("a3", "alpha"), (None, "alpha"), ("b3", "beta"), (None, "beta"),
    ]  # fmt: skip


def test_a_note_says_what_became_of_the_rows() -> None:
    note = f"records without a cluster's name were {UNNAMED_NOTE}"
    assert Naming().words(note) == note
    one = facts_of(tables({"alpha": ["n1"]}, {BARE: ["n1"]})).given("naming")
    assert one.words(note).endswith("taken as 'alpha', the only one that other logs name")
    two = facts_of(tables(TWO, {BARE: ["n1"]})).given("naming")
    assert two.words(note).endswith(
        "taken as the cluster of their nodes where these are nodes of one cluster only, else as "
        "'cluster' (--cluster names it)"
    )


def test_a_row_that_two_inventories_share_is_of_neither_cluster() -> None:
    """n1 is a node of both; whichever inventory is read last has the row in the store."""
    both = tables(TWO, {BARE: ["a3"]})
    rows = [
        {"cluster": DEFAULT_CLUSTER, "node": node, "file_id": BARE} for node in ("a3", "n1", "idle")
    ]
    more = pa.Table.from_pylist(rows, loose("nodes"))
    made = facts_of(both | {"nodes": pa.concat_tables([both["nodes"], more])})
    found = {(row["cluster"], row["node"]) for row in made.rows("named_nodes")}
    assert {pair for pair in found if pair[0] == DEFAULT_CLUSTER} == {
        (DEFAULT_CLUSTER, "n1"), (DEFAULT_CLUSTER, "idle"),
    }  # fmt: skip
    assert ("alpha", "a3") in found


def test_jobs_without_nodes_are_of_neither_cluster() -> None:
    """A queue of pending jobs alone: nothing says whose they are, and it is known that it is so."""
    both = tables(TWO, {BARE: []})
    row = {"cluster": DEFAULT_CLUSTER, "job_id": "1", "submit": NOON, "file_id": BARE}
    jobs = pa.Table.from_pylist([row], loose("attempts"))
    made = facts_of(both | {"attempts": jobs})
    assert made.given("naming").is_by_node
    assert [row["cluster"] for row in made.rows("named_attempts")] == [DEFAULT_CLUSTER]
