"""Nodes that end the jobs of many users at once are named; ordinary fleets have none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ettr.metrics.black_holes import at_least, black_holes
from ettr.selection import Selection
from ettr.tables import ALLOCATIONS, TABLES
from fact_tables import attributed

NODES, DAYS, USERS = 16, 12, 14
DAY_S = 86400
FIRST_S = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
Jobs = dict[str, np.ndarray[Any, Any]]


def ordinary(cluster: str, rng: np.random.Generator) -> Jobs:
    """Jobs of a fleet with all that looks like a black hole without being one.

    Users whose programs end early now and then or always, on some days for everything that they
    submit, as arrays that fall onto one node; a partition of two nodes for tests; an hour in which
    the storage is away.
    """
    n = NODES * DAYS * 6
    user, node = rng.integers(USERS, size=n), rng.integers(NODES, size=n)
    # a node that is free takes what one user submits at once
    array = rng.random(n) < 0.3
    user[1:] = np.where(array[1:], user[:-1], user[1:])
    node[1:] = np.where(array[1:], node[:-1], node[1:])
    day = rng.integers(DAYS, size=n)
    day[1:] = np.where(array[1:], day[:-1], day[1:])
    share = rng.beta(0.3, 3.0, USERS)
    bad_day = rng.random((USERS, DAYS)) < 0.05
    chance = np.where(bad_day[user, day], 0.95, share[user])
    chance = np.where(node < 2, np.maximum(chance, 0.35), chance)
    second = rng.integers(DAY_S - 700, size=n)
    away = (day == rng.integers(DAYS)) & (second < 3600 * 4)
    early = rng.random(n) < np.where(away, 0.9, chance)
    late = rng.random(n) < 0.1
    return {
        "cluster": np.full(n, cluster),
        "partition": np.where(node < 2, "debug", "gpu"),
        "node": np.char.add("n", node.astype(str)),
        "user": np.char.add("u", user.astype(str)),
        "start_s": FIRST_S + day * DAY_S + second,
        "elapsed_s": np.where(early, rng.integers(3, 500, size=n), rng.integers(700, 9000, size=n)),
        "failed": early | late,
    }


def with_hole(jobs: Jobs, rng: np.random.Generator, ended: int, users: int, node: str) -> Jobs:
    """The same where a node ends jobs within half a minute, over a few hours of the sixth day."""
    start_s = FIRST_S + 5 * DAY_S + np.sort(rng.integers(3600 * 5, size=ended))
    added = {
        "cluster": np.full(ended, jobs["cluster"][0]),
        "partition": np.full(ended, "gpu"),
        "node": np.full(ended, node),
        "user": np.char.add("u", (np.arange(ended) % users).astype(str)),
        "start_s": start_s,
        "elapsed_s": rng.integers(8, 29, size=ended),
        "failed": np.ones(ended, dtype=bool),
    }
    return {name: np.concatenate([jobs[name], added[name]]) for name in jobs}


def tables_of(fleets: list[Jobs]) -> dict[str, pa.Table]:
    jobs = {name: np.concatenate([one[name] for one in fleets]) for name in fleets[0]}
    n = len(jobs["node"])
    start = pa.array(jobs["start_s"] * 1_000_000, pa.timestamp("us", "UTC"))
    end = pa.array((jobs["start_s"] + jobs["elapsed_s"]) * 1_000_000, pa.timestamp("us", "UTC"))
    ids = [f"a{place}" for place in range(n)]
    known: dict[str, Any] = {
        "attempt_id": ids,
        "cluster": jobs["cluster"],
        "job_id": ids,
        "job_id_raw": ids,
        "partition": jobs["partition"],
        "user": jobs["user"],
        "state": np.where(jobs["failed"], "FAILED", "COMPLETED"),
        "submit": start,
        "start": start,
        "end": end,
        "elapsed_s": jobs["elapsed_s"].astype(float),
        "n_nodes": np.ones(n, dtype=int),
        "n_gpus": np.full(n, 8),
        "node_list": jobs["node"],
        "node": jobs["node"],
        "source": np.full(n, "t"),
        "file_id": np.full(n, "t"),
        "line": np.arange(n),
    }

    def table(schema: Any) -> pa.Table:
        return pa.table(
            [
                pa.array(known[field.name]).cast(field.type)
                if field.name in known
                else pa.nulls(n, field.type)
                for field in schema
            ],
            schema=schema,
        )

    return {
        "attempts": table(TABLES["attempts"].arrow_schema),
        "allocations": table(ALLOCATIONS.arrow_schema),
    }


def test_ordinary_fleets_have_no_black_hole() -> None:
    rng = np.random.default_rng(1)
    facts = attributed(tables_of([ordinary(f"c{draw}", rng) for draw in range(200)]))
    assert len(facts.rows("early_days")) > 200, "the fleets have days that must be looked at"
    found = facts.rows("black_hole_days")
    assert len(found) <= 2, found


def test_black_holes_are_named_with_what_they_ended() -> None:
    rng = np.random.default_rng(2)
    fleets = [with_hole(ordinary(f"c{n}", rng), rng, 60, 10, "n7") for n in range(10)]
    found = black_holes(attributed(tables_of(fleets)))
    assert {(one.cluster, one.node) for one in found} == {(f"c{n}", "n7") for n in range(10)}
    for one in found:
        assert one.within_s == 30
        assert one.users >= 10
        assert 60 <= one.ended == one.early == one.uncounted <= one.starts <= 70
        assert one.elsewhere is not None
        assert one.elsewhere < 0.05
        assert one.failed_elsewhere is not None
        assert 0.1 < one.failed_elsewhere < 0.6


def test_a_user_alone_convicts_no_node() -> None:
    rng = np.random.default_rng(3)
    facts = attributed(tables_of([with_hole(ordinary("c", rng), rng, 80, 2, "n7")]))
    assert black_holes(facts) == ()


def test_a_selection_counts_the_ends_that_it_holds() -> None:
    rng = np.random.default_rng(2)
    tables = tables_of([with_hole(ordinary("c", rng), rng, 60, 10, "n7")])
    (whole,) = black_holes(attributed(tables))
    facts = attributed(tables, selection=Selection(user=("u1",)))
    (one,) = black_holes(facts)
    assert 6 <= one.ended < 15
    assert (one.early, one.users) == (whole.early, whole.users)
    earlier = Selection(until=datetime(2026, 3, 4, tzinfo=UTC))
    assert black_holes(attributed(tables, selection=earlier)) == ()


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_chance_of_hits_is_the_binomial_one(share: float) -> None:
    from scipy.stats import binom

    shares = np.full(12, share)
    assert at_least(4, shares) == pytest.approx(float(binom.sf(3, 12, share)))


def on_several(
    cluster: str, rng: np.random.Generator, partner: str | None, ended: int
) -> dict[str, pa.Table]:
    """Jobs of two to four nodes of 24 over twelve days; `ended` of them on n7 end at once.

    Users fail early now and then, or for a day; n7 is a black hole on the sixth, always together
    with `partner` where one is given.
    """
    n, names = 1200, np.array([f"n{place}" for place in range(24)])
    day, user = rng.integers(DAYS, size=n), rng.integers(USERS, size=n)
    share, bad_day = rng.beta(0.3, 3.0, USERS), rng.random((USERS, DAYS)) < 0.05
    early = rng.random(n) < np.where(bad_day[user, day], 0.95, share[user])
    nodes = [rng.choice(names, rng.integers(2, 5), replace=False) for _ in range(n)]
    for place in range(ended):
        others = rng.choice(np.setdiff1d(names, ["n7", partner or ""]), 2, replace=False)
        nodes[place] = np.array(["n7", partner or others[0], others[1]])
        day[place], user[place], early[place] = 5, place % 9, True
    # on that day they ran nothing else
    for place in range(ended, n):
        if day[place] == 5 and {"n7", partner} & {*nodes[place]}:
            day[place] = 6
    elapsed = np.where(early, rng.integers(8, 29, size=n), rng.integers(700, 9000, size=n))
    start = (FIRST_S + day * DAY_S + rng.integers(DAY_S - 9000, size=n)) * 1_000_000
    sizes = np.array([len(some) for some in nodes])
    known: dict[str, Any] = {
        "attempt_id": np.char.add(f"{cluster}-", np.arange(n).astype(str)),
        "job_id": np.arange(n).astype(str),
        "cluster": np.full(n, cluster),
        "user": np.char.add("u", user.astype(str)),
        "state": np.where(early, "FAILED", "COMPLETED"),
        "submit": start,
        "start": start,
        "end": start + elapsed * 1_000_000,
        "elapsed_s": elapsed.astype(float),
        "n_nodes": sizes,
        "node_list": np.array([",".join(some) for some in nodes]),
        "source": np.full(n, "t"),
        "file_id": np.full(n, "t"),
        "line": np.arange(n),
    }
    held = {name: np.repeat(values, sizes) for name, values in known.items()}
    held["node"] = np.concatenate(nodes)
    made = {}
    for schema, values in ((TABLES["attempts"], known), (ALLOCATIONS, held)):
        rows = len(values["line"])
        columns = [
            pa.array(values[field.name]).cast(field.type)
            if field.name in values
            else pa.nulls(rows, field.type)
            for field in schema.arrow_schema
        ]
        made[schema.name] = pa.table(columns, schema=schema.arrow_schema)
    return made


def together(fleets: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([one[name] for one in fleets]) for name in fleets[0]}


def test_jobs_on_several_nodes_name_the_one_that_stands_out() -> None:
    rng = np.random.default_rng(4)
    planted = [on_several(f"c{draw}", rng, None, 30) for draw in range(10)]
    ordinary_ones = [on_several(f"o{draw}", rng, None, 0) for draw in range(40)]
    shared = [on_several(f"s{draw}", rng, "n8", 30) for draw in range(5)]
    found = black_holes(attributed(together([*planted, *ordinary_ones, *shared])))
    assert {(one.cluster, one.node) for one in found} == {(f"c{draw}", "n7") for draw in range(10)}
    for one in found:
        assert (one.ended, one.early, one.users, one.within_s) == (30, 30, 9, 30)
        assert one.elsewhere is not None
        assert one.elsewhere < 0.2
