"""Where the lists of nodes say all that was held, each figure is that of the join with it."""

from __future__ import annotations

from dataclasses import replace

import ibis
import pyarrow as pa
import pytest

from ettr.metrics.exposure import exposure
from ettr.metrics.instants import fetch
from ettr.metrics.listed_nodes import every_node_is_listed
from ettr.metrics.node_jobs import node_jobs
from ettr.metrics.user_failures import user_failures
from ettr.tables import ATTEMPTS
from fact_tables import facts_of
from synthetic.cluster import ClusterPlan, build_cluster
from synthetic.tables import on_duckdb


def listed_cluster() -> dict[str, ibis.Table]:
    """A cluster whose attempts list the nodes that they held, some of which never ran."""
    tables = dict(build_cluster(ClusterPlan(days=5.0), seed=4).tables)
    nodes: dict[str, list[str]] = {}
    for row in tables["allocations"].to_pylist():
        nodes.setdefault(row["attempt_id"], []).append(row["node"])
    rows = tables["attempts"].to_pylist()
    for row in rows:
        held = nodes.get(row["attempt_id"])
        row["node_list"] = None if held is None else ",".join(sorted(held))
        row["n_nodes"] = row["n_nodes"] if held is None else len(held)
    # cancelled in the queue: it asked for nodes, and has none
    rows.append({**rows[0], "attempt_id": "queued", "start": None, "elapsed_s": 0.0})
    rows[-1] |= {"node_list": None, "state": "CANCELLED", "n_nodes": 3}
    tables["attempts"] = pa.Table.from_pylist(rows, schema=ATTEMPTS.arrow_schema)
    return on_duckdb(tables)


def is_listed(attempts: ibis.Table, allocations: ibis.Table) -> bool:
    return every_node_is_listed(facts_of({"attempts": attempts, "allocations": allocations}))


@pytest.mark.slow
def test_each_figure_is_that_of_the_join():
    tables = listed_cluster()
    attempts, held = tables["attempts"], tables["allocations"]
    assert is_listed(attempts, held)
    spared, joined = (exposure(facts_of(tables, all_listed=listed)) for listed in (True, False))
    assert spared.none_foreign is joined.none_foreign is True
    assert spared.basis.node_hours == pytest.approx(joined.basis.node_hours, rel=1e-12)
    for name in ("attempts_named", "attempts_counted", "attempts_unknown"):
        assert getattr(spared.basis, name) == getattr(joined.basis, name)
    ours, theirs = (
        {row["attempt_id"]: row for row in fetch(one.by_attempt).to_pylist()}
        for one in (spared, joined)
    )
    assert ours.keys() == theirs.keys()
    assert {row["n_held"] for row in ours.values()} >= {1, 20, None}
    for attempt_id, row in theirs.items():
        assert ours[attempt_id].pop("node_s") == pytest.approx(row.pop("node_s"), rel=1e-12)
        assert ours[attempt_id] == row

    by_lists, by_joins = (
        node_jobs(facts_of(tables, all_listed=listed)) for listed in (True, False)
    )
    assert by_lists.keys() == by_joins.keys()
    for node, one in by_joins.items():
        assert by_lists[node].elapsed_s == pytest.approx(one.elapsed_s, rel=1e-12)
        assert replace(by_lists[node], elapsed_s=one.elapsed_s) == one
    assert sum(one.multi_node_failures for one in by_joins.values()) > 0
    assert sum(one.single_node_attempts for one in by_joins.values()) > 0

    found = user_failures(facts_of(tables, all_listed=True))
    assert found == user_failures(facts_of(tables, all_listed=False))
    assert found.one_node_attempts > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        *("a row less", "a row more", "a row of no attempt", "another time", "another start"),
        *("another end", "no list", "no number", "less than none", "another name"),
        "one for another",
    ],
)
def test_whatever_is_held_beside_the_lists_is_noticed(what):
    tables = listed_cluster()
    attempts, held = tables["attempts"], tables["allocations"]
    listed = attempts.filter(attempts["node_list"].notnull())
    several = listed.filter(listed["n_nodes"] > 1).order_by("attempt_id").limit(2)
    first, second = fetch(several, "attempt_id")["attempt_id"].to_pylist()
    single = listed.filter(listed["n_nodes"] == 1)
    alone = fetch(single.order_by("attempt_id").limit(1), "attempt_id")["attempt_id"][0].as_py()
    nodes = fetch(held.filter(held["attempt_id"] == first).order_by("node"), "node")["node"]
    one_row = (held["attempt_id"] == first) & (held["node"] == nodes[0].as_py())
    of_first = attempts["attempt_id"] == first
    day = ibis.interval(days=1)
    later = {
        column: ibis.cases((one_row, held[column] + day), else_=held[column])
        for column in ("start", "end")
    }
    more_s = ibis.cases((one_row, held["elapsed_s"] + 1.0), else_=held["elapsed_s"])
    row = held.filter(one_row)
    changed_held = {
        "a row less": held.filter(~one_row),
        "a row more": ibis.union(held, row),
        "a row of no attempt": ibis.union(
            held, row.mutate(attempt_id=ibis.literal("none")).cast(held.schema())
        ),
        "another time": held.mutate(elapsed_s=more_s),
        "another start": held.mutate(start=later["start"]),
        "another end": held.mutate(end=later["end"]),
        "one for another": held.mutate(
            attempt_id=ibis.cases((one_row, second), else_=held["attempt_id"])
        ),
    }
    changed_attempts = {
        "no list": attempts.mutate(
            node_list=ibis.cases((of_first, ibis.null("string")), else_=attempts["node_list"])
        ),
        "no number": attempts.mutate(
            n_nodes=ibis.cases((of_first, ibis.null("int64")), else_=attempts["n_nodes"])
        ),
        "less than none": attempts.mutate(
            n_nodes=ibis.cases((of_first, -1), else_=attempts["n_nodes"])
        ),
        "another name": attempts.mutate(
            node_list=ibis.cases(
                (attempts["attempt_id"] == alone, attempts["node_list"] + ".example.org"),
                else_=attempts["node_list"],
            )
        ),
    }
    assert not is_listed(changed_attempts.get(what, attempts), changed_held.get(what, held))
