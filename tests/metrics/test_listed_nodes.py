"""Where the lists of nodes say all that was held, each figure is that of the join with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from operator import itemgetter

import pyarrow as pa
import pytest

from ettr.metrics.exposure import every_node_is_listed, exposure_basis, node_jobs
from ettr.metrics.sizes import user_failures
from ettr.tables import ALLOCATIONS, ATTEMPTS
from fact_tables import facts_of
from synthetic.cluster import ClusterPlan, build_cluster
from synthetic.tables import every_table


@cache
def listed_cluster() -> dict[str, pa.Table]:
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
    return every_table(tables)


def is_listed(attempts: pa.Table, allocations: pa.Table) -> bool:
    return every_node_is_listed(facts_of({"attempts": attempts, "allocations": allocations}))


@pytest.mark.slow
def test_each_figure_is_that_of_the_join():
    tables = listed_cluster()
    attempts, held = tables["attempts"], tables["allocations"]
    assert is_listed(attempts, held)
    both = tuple(facts_of(tables, all_listed=listed) for listed in (True, False))
    spared, joined = map(exposure_basis, both)
    assert spared.node_hours == pytest.approx(joined.node_hours, rel=1e-12)
    for name in ("attempts_named", "attempts_counted", "attempts_unknown"):
        assert getattr(spared, name) == getattr(joined, name)
    ours, theirs = (
        {row["attempt_id"]: dict(row) for row in facts.rows("exposure")} for facts in both
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
        *(
            "nothing",
            "a row less",
            "a row more",
            "a row of no attempt",
            "another time",
            "another start",
        ),
        *("another end", "no list", "no number", "less than none", "another name"),
        "one for another",
    ],
)
def test_whatever_is_held_beside_the_lists_is_noticed(what):
    tables = listed_cluster()
    attempts, held = (tables[name].to_pylist() for name in ("attempts", "allocations"))
    listed = sorted((row for row in attempts if row["node_list"]), key=itemgetter("attempt_id"))
    first, second = [row for row in listed if row["n_nodes"] > 1][:2]
    alone = next(row for row in listed if row["n_nodes"] == 1)
    of_first = [row for row in held if row["attempt_id"] == first["attempt_id"]]
    row = min(of_first, key=itemgetter("node"))
    asked = {one["attempt_id"] for one in (first, second, alone)}
    attempts, held = (
        [one for one in rows if one["attempt_id"] in asked] for rows in (attempts, held)
    )
    match what:
        case "a row less":
            held.remove(row)
        case "a row more":
            held.append(row)
        case "a row of no attempt":
            held.append(row | {"attempt_id": "none"})
        case "another time":
            row["elapsed_s"] += 1.0
        case "another start":
            row["start"] += timedelta(days=1)
        case "another end":
            row["end"] += timedelta(days=1)
        case "one for another":
            row["attempt_id"] = second["attempt_id"]
        case "no list":
            first["node_list"] = None
        case "no number":
            first["n_nodes"] = None
        case "less than none":
            first["n_nodes"] = -1
        case "another name":
            alone["node_list"] += ".example.org"
    found = is_listed(
        pa.Table.from_pylist(attempts, schema=ATTEMPTS.arrow_schema),
        pa.Table.from_pylist(held, schema=ALLOCATIONS.arrow_schema),
    )
    assert found == (what == "nothing")
