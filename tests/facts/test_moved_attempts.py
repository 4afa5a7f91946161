"""A node of an attempt that another replaced: what was held is the same, however it is divided."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ettr.metrics.exposure import exposure_basis
from ettr.selection import Selection
from ettr.sources.registry import named
from ettr.tables import ALLOCATIONS, ATTEMPTS
from ettr.tables.rows import BatchBuilder
from fact_tables import facts_of
from source_samples import read_all, rows_of
from sources.kubernetes_objects import job_and_pods

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SUMS = {
    "totals": ("ran", "node_s", "gpu_s"),
    "status": ("state", "attempts", "gpu_s", "node_s"),
    "chosen_shapes": ("n_gpus", "n_nodes", "attempts", "node_s", "gpu_s"),
    "exposure_shapes": ("n_gpus", "n_nodes", "attempts", "job_s", "node_s", "known_node_s"),
    "size_units": ("all_s", "with_gpus_s"),
    "hours_of_users": ("user", "held_s"),
    "cluster_starts": ("ended", "job_s", "node_s"),
    "held_totals": ("held_s",),
}
Rows = list[dict[str, Any]]


def history(seed: int) -> tuple[Rows, Rows]:
    """Attempts, and what they held, as a source that is no batch scheduler's gives them."""
    draw = Random(seed)
    made = BatchBuilder("kubernetes", "f", "c")
    for job in range(12):
        start = NOON + timedelta(minutes=draw.randrange(4000))
        n_nodes = draw.choice((1, 2, 4))
        made.add_attempt(
            line=job + 1,
            job_id=str(job),
            submit=start - timedelta(minutes=5),
            state=draw.choice(("COMPLETED", "NODE_FAIL", "FAILED")),
            nodes=draw.sample([f"n{number}" for number in range(8)], n_nodes),
            start=start,
            end=start + timedelta(seconds=draw.randrange(600, 200_000)),
            n_gpus=8 * n_nodes,
            user="eva",
        )
    tables = made.batch().tables
    return tables["attempts"].to_pylist(), tables["allocations"].to_pylist()


def sums(attempts: Rows, held: Rows, selection: Selection) -> dict[str, Any]:
    """What the facts and the basis of every rate say of them."""
    facts = facts_of(
        {
            "attempts": pa.Table.from_pylist(attempts, schema=ATTEMPTS.arrow_schema),
            "allocations": pa.Table.from_pylist(held, schema=ALLOCATIONS.arrow_schema),
        },
        selection=selection,
    )
    found: dict[str, Any] = {"basis": exposure_basis(facts).node_hours}
    for name, columns in SUMS.items():
        rows = [[row[column] for column in columns] for row in facts.rows(name)]
        found[name] = sorted(rows, key=repr)
    return found


@pytest.mark.parametrize("period", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_an_allocation_in_two_holds_what_it_held_in_one(seed, period):
    attempts, held = history(seed)
    draw = Random(seed)
    cuts = {place: draw.uniform(0.05, 0.95) for place in draw.sample(range(len(held)), 6)}
    parts: Rows = []
    for place, row in enumerate(held):
        if place not in cuts:
            parts.append(row)
            continue
        before_s = float(round(row["elapsed_s"] * cuts[place]))
        change = row["start"] + timedelta(seconds=before_s)
        spare = {"node": f"spare{place}", "end": change, "elapsed_s": before_s}
        parts += [row | spare, row | {"start": change, "elapsed_s": row["elapsed_s"] - before_s}]
    since = NOON + timedelta(minutes=1000) if period else None
    selection = Selection(since=since, until=since and since + timedelta(days=1))
    whole, divided = (sums(attempts, rows, selection) for rows in (held, parts))
    assert whole["basis"] > 0
    for name in whole:
        flat, other = (_flat(one[name]) for one in (whole, divided))
        assert other == pytest.approx(flat, rel=1e-9), name


@pytest.mark.parametrize("period", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_pods_that_took_over_hold_what_one_would_have_held(tmp_path, elsewhere, period):
    """One attempt, whether its pods were replaced or not, on the same node or on another."""
    attempts, held = history(3)
    draw = Random(3)
    parts: Rows = []
    for place, row in enumerate(held):
        change = row["start"] + timedelta(seconds=draw.randrange(1, int(row["elapsed_s"])))
        first = {"node": f"spare{place}"} if elsewhere else {}
        parts += [row | first | {"end": change}, row | {"start": change}]
    since = NOON + timedelta(minutes=1000) if period else None
    selection = Selection(since=since, until=since and since + timedelta(days=1))
    found = []
    for rows in (held, parts):
        path = tmp_path / "pods.json"
        own = [[row for row in rows if row["attempt_id"] == one["attempt_id"]] for one in attempts]
        objects = [
            written
            for number, pair in enumerate(zip(attempts, own, strict=True))
            for written in job_and_pods(number, *pair, set())
        ]
        path.write_text("".join(f"{json.dumps(one)}\n" for one in objects))
        read = read_all(named("kubernetes"), path)
        found.append(sums(rows_of(read, "attempts"), rows_of(read, "allocations"), selection))
    whole, divided = found
    assert whole["basis"] == pytest.approx(sums(attempts, held, selection)["basis"])
    for name in whole:
        assert _flat(divided[name]) == pytest.approx(_flat(whole[name]), rel=1e-9), name


def _flat(rows: Any) -> dict[int, Any]:
    values = [value for row in rows for value in row] if isinstance(rows, list) else [rows]
    texts = [one for one in values if isinstance(one, str)]
    numbers = [float(one) for one in values if not isinstance(one, str) and one is not None]
    return {"texts": hash(tuple(texts))} | dict(enumerate(numbers))  # type: ignore[dict-item]


def test_an_attempt_holds_what_its_pods_held_and_not_its_time_times_its_nodes():
    """Two hours on two nodes, of which one came an hour late: three node-hours of 8 GPUs."""
    attempts, held = history(1)
    attempts = [row for row in attempts if row["n_nodes"] == 2][:1]
    (own,) = attempts
    own["end"], own["elapsed_s"] = own["start"] + timedelta(hours=2), 7200.0
    held = [row for row in held if row["attempt_id"] == own["attempt_id"]]
    late = own["start"] + timedelta(hours=1)
    for row, start in zip(held, (own["start"], late), strict=True):
        row |= {"start": start, "end": own["end"]}
        row["elapsed_s"] = (own["end"] - start).total_seconds()
    found = sums(attempts, held, Selection())
    assert found["basis"] == 3.0
    assert found["totals"] == [[1, 3 * 3600.0, 24 * 3600.0]]
    assert found["status"][0][2:] == [24 * 3600.0, 3 * 3600.0]
