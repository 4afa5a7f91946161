"""A period and a cluster read the row groups that Parquet's statistics leave, and miss no row."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from shutil import copytree

import pytest

from ettr.analysis import Analysis
from ettr.facts import Facts, chosen
from ettr.selection import Selection
from ettr.store import Store, open_store
from ettr.tables.rows import BatchBuilder
from store.test_store import FILE_ROW

CLUSTERS = ("alpha", "beta")
MARCH, APRIL, MAY, JULY = (datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4, 5, 7))
NEVER = datetime(2030, 1, 1, tzinfo=UTC)


def ingest_month(store: Store, cluster: str, since: datetime, seed: int) -> None:
    """Attempts of one month; some still run, never began, or (beta) were over before they began."""
    draw, name = Random(seed), f"{cluster}{seed}"
    rows = BatchBuilder("slurm-sacct", name, cluster)
    for line in range(1, 120):
        submit = since + timedelta(minutes=draw.randrange(1, 40_000))
        start: datetime | None = submit + timedelta(minutes=5)
        end = submit + timedelta(minutes=5 + draw.randrange(4_000))
        state = draw.choice(("COMPLETED", "NODE_FAIL"))
        if line % 20 == 0:
            start, state = None, "CANCELLED"
        elif cluster == "beta" and line % 30 == 1:
            end = submit - timedelta(days=draw.randrange(1, 40))
        nodes = [f"{cluster}-n{draw.randrange(6)}"]
        rows.add_attempt(
            line=line,
            job_id=f"{seed}-{line}",
            submit=submit,
            state=state,
            nodes=nodes,
            start=start,
            end=end,
            elapsed_s=None if start is None else max((end - start).total_seconds(), 0.0),
            user="eva",
        )
    if cluster == "alpha":  # still running, since each month
        start = since + timedelta(days=2)
        rows.add_attempt(
            line=200,
            job_id=f"{seed}-open",
            submit=start,
            state="RUNNING",
            nodes=["alpha-n0"],
            start=start,
            elapsed_s=(JULY + timedelta(days=30) - start).total_seconds(),
        )
    with store.ingestion(name) as ingestion:
        for table, batch in rows.batch().tables.items():
            ingestion.write(table, batch)
        ingestion.commit(FILE_ROW)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two clusters and three months, each a part and a row group."""
    place = tmp_path_factory.mktemp("periods") / "site"
    with open_store(place, create=True) as store:
        for seed, (cluster, since) in enumerate(product(CLUSTERS, (MARCH, MAY, JULY))):
            ingest_month(store, cluster, since, seed)
    return place


def row_groups(analysis: Analysis, fact: str) -> int:
    """How many row groups a fact reads; all of a table are six."""
    facts = analysis.facts
    plan = facts.engine.rows(f"EXPLAIN ANALYZE SELECT * FROM {facts.table(fact)}", {})
    return sum(map(int, re.findall(r"Row Groups Scanned: (\d+) /", plan[0]["explain_value"])))


@pytest.mark.parametrize(
    ("selection", "chosen_groups", "held_groups"),
    [
        # attempts that end in the period are looked for once more among those that begin later
        (Selection(since=MARCH, until=APRIL), 4, 2),
        (Selection(since=MAY), 5, 5),  # of March one is still running
        (Selection(since=MARCH, until=APRIL, cluster=("beta",)), 3, 5),
        (Selection(since=MARCH, until=APRIL, node=("alpha-n0", "beta-n1")), 5, 3),
    ],
)
def test_a_selection_has_every_row_and_reads_its_own_row_groups(
    stored: Path,
    selection: Selection,
    chosen_groups: int,
    held_groups: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ettr.store.folder.SMALL_BYTES", 0)
    with open_store(stored) as store:
        own = Analysis(store, selection=selection)
        found = {name: sorted(own.facts.rows(name), key=repr) for name in ("chosen", "held")}
        assert row_groups(own, "chosen") <= chosen_groups
        assert row_groups(own, "held") <= held_groups
        monkeypatch.setattr(chosen, "_near", Facts.table)
        whole = Analysis(store, selection=selection)
        for name, rows in found.items():
            assert rows
            assert rows == sorted(whole.facts.rows(name), key=repr)


def test_compaction_keeps_a_cluster_and_a_time_together(stored: Path, tmp_path: Path) -> None:
    with open_store(copytree(stored, tmp_path / "site")) as store:
        assert store.compact()[1] < 6
        for name in ("attempts", "allocations"):
            began = [
                (row["cluster"], row["start"] is None, row["start"])
                for row in store.rows(name).to_pylist()
            ]
            assert began == sorted(began, key=lambda one: (*one[:2], one[2] or NEVER))
