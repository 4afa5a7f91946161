"""Summaries of large parts of the events say what a pass over all events would."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ettr.analysis import Analysis
from ettr.errors import StoreError
from ettr.store import Store, folder, merging, open_store
from ettr.tables import EVENTS, NODE_STATES
from ettr.tables.rows import DEFAULT_CLUSTER
from ettr.tables.schemas import EVENT_SUMMARIES
from store.test_store import FILE_ROW
from store.test_store_layout import reseal

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
CHECKS = (("xid", "79"), ("xid", "43"), ("check_hw_ib", None), ("slurmctld", "NODE_FAIL"))


def ingest_tables(store: Store, file_id: str, tables: dict[str, pa.Table]) -> None:
    with store.ingestion(file_id) as ingestion:
        for name, rows in tables.items():
            ingestion.write(name, rows)
        ingestion.commit(FILE_ROW)


def events(
    seed: int, file_id: str, n: int = 300, cluster: str = "c1", ids: int = 1_000
) -> pa.Table:
    """Random events of three nodes over a week; ids are of few, so that files share them."""
    draw = random.Random(seed)
    rows = []
    for line in range(n):
        check, code = draw.choice(CHECKS)
        time = MIDNIGHT + timedelta(seconds=draw.randrange(7 * 86_400))
        rows.append(
            dict.fromkeys(EVENTS.names)
            | {
                "event_id": f"e{draw.randrange(ids)}",
                "cluster": cluster,
                "node": draw.choice(("n1", "n2", "n3", None)),
                "time": time,
                "time_end": draw.choice((None, time + timedelta(hours=1))),
                "check": check,
                "code": code,
                "severity": draw.choice(("ok", "warning", "critical", "unknown")),
                "source": draw.choice(("gcm", "kernel-log")),
                "file_id": file_id,
                "line": line + 1,
            }
        )
    return pa.Table.from_pylist(rows, EVENTS.arrow_schema)


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    rows = table.to_pylist()
    return sorted((tuple(row[name] for name in sorted(row)) for row in rows), key=repr)


def agrees(store: Store) -> bool:
    """Whether the analysis has from summaries what a pass over the events gives."""
    facts = Analysis(store).facts
    return all(
        sorted(facts.rows(name), key=repr) == sorted(facts.rows(f"{name}_counted"), key=repr)
        for name in ("event_census", "event_days", "event_node_kinds")
    )


def busy_days(rows: pa.Table) -> set[tuple[str, str, int]]:
    """Nodes on days in more than five hours of which they logged what is not ok."""
    hours: dict[tuple[str, str, int], set[int]] = {}
    for row in rows.to_pylist():
        if row["node"] and row["check"] != "slurmctld" and row["severity"] != "ok":
            day = (row["time"] - datetime(1970, 1, 1, tzinfo=UTC)).days
            hours.setdefault((row["cluster"], row["node"], day), set()).add(row["time"].hour)
    return {key for key, found in hours.items() if len(found) > 5}


def test_busy_days_are_those_with_events_in_more_than_five_hours(place: Path) -> None:
    with open_store(place, create=True) as store:
        ingest_tables(store, "one", {"events": events(1, "one", n=220, ids=10_000)})
        expected = busy_days(store.rows("events"))
        found = {tuple(row.values()) for row in Analysis(store).facts.rows("busy_days")}
        assert found == expected
        assert 0 < len(expected) < 21


def summaries_in(place: Path) -> dict[str, set[str]]:
    """Names of the files of each summary, and of the parts of the events."""
    held = json.loads((place / "store.json").read_text())["parts"]
    return {
        name: {Path(p).name for p in held.get(name, [])} for name in (*EVENT_SUMMARIES, "events")
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder store in which no table is small and 100 events are many."""
    monkeypatch.setattr(folder, "LEAST_ROWS", 100)
    monkeypatch.setattr("ettr.store.folder.SMALL_BYTES", 0)
    return tmp_path / "site"


@pytest.mark.slow
def test_summaries_follow_what_later_files_replace(place: Path) -> None:
    with open_store(place, create=True) as store:
        for turn, name in enumerate(("one", "two", "three", "one")):
            ingest_tables(store, name, {"events": events(turn, name)})
            assert agrees(store)
            held = summaries_in(place)
            large = {
                path.name
                for path in (place / "parts" / "events").glob("*.parquet")
                if pq.read_metadata(path).num_rows >= 100
            }
            assert large
            for summary in EVENT_SUMMARIES:
                assert held[summary] == large
                assert {path.name for path in (place / "parts" / summary).iterdir()} <= (
                    large | held["events"]
                )
        ingest_tables(store, "few", {"events": events(9, "few", n=20)})
        assert len(summaries_in(place)["event_census"]) < len(summaries_in(place)["events"])
        assert agrees(store)


def test_the_store_answers_from_summaries_alone_where_all_parts_have_one(place: Path) -> None:
    with open_store(place, create=True) as store:
        ingest_tables(store, "one", {"events": events(1, "one")})
        for summary in EVENT_SUMMARIES.values():
            kept = store.summary(summary)
            assert kept is not None
            name = kept.split(".")[-1].strip('"')
            (sql,) = store.connection.execute(
                "SELECT sql FROM duckdb_views() WHERE view_name = ?", [name]
            ).fetchone()
            assert "sum(" not in sql.lower()
            assert "count" not in sql.lower()


@pytest.mark.slow
def test_rows_that_name_no_cluster_are_the_only_cluster_s(place: Path) -> None:
    state = dict.fromkeys(NODE_STATES.names) | {
        "cluster": "c1", "node": "n1", "state": "DOWN", "start": MIDNIGHT, "source": "slurm-events",
        "file_id": "states", "line": 1,
    }  # fmt: skip
    with open_store(place, create=True) as store:
        ingest_tables(store, "one", {"events": events(1, "one", cluster=DEFAULT_CLUSTER)})
        ingest_tables(store, "two", {"events": events(2, "two")})
        ingest_tables(
            store,
            "states",
            {"node_states": pa.Table.from_pylist([state], NODE_STATES.arrow_schema)},
        )
        assert agrees(store)
        days = Analysis(store).facts.columns("event_days")
        assert set(days["cluster"]) == {"c1"}


@pytest.mark.slow
def test_an_older_store_is_read_as_it_is_and_gets_summaries_at_its_next_ingestion(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before, open_store(place, create=True) as store:
        before.setattr(folder, "LEAST_ROWS", 1 << 40)
        ingest_tables(store, "one", {"events": events(1, "one")})
    with open_store(place) as store:
        assert store.summary(EVENT_SUMMARIES["event_census"]) is None
        assert agrees(store)
        ingest_tables(store, "two", {"events": events(2, "two", n=150)})
        assert agrees(store)
    held = summaries_in(place)
    assert all(held[name] == held["events"] for name in EVENT_SUMMARIES)


def test_a_corrupt_summary_is_named_and_one_of_no_part_refused(place: Path) -> None:
    with open_store(place, create=True) as store:
        ingest_tables(store, "one", {"events": events(1, "one")})
    (path,) = (place / "parts" / "event_census").iterdir()
    good = path.read_bytes()
    path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
    with open_store(place) as store, pytest.raises(StoreError, match=r"event_census.*corrupt"):
        Analysis(store).facts.rows("event_census")
    path.write_bytes(good)
    held = json.loads((place / "store.json").read_text())
    (named,) = held["parts"]["event_census"]
    stray = named.replace("one-", "other-")
    crc32 = {stray if part == named else part: sum_ for part, sum_ in held["crc32"].items()}
    reseal(place, parts={**held["parts"], "event_census": [stray]}, crc32=crc32)
    with pytest.raises(StoreError, match="a part of event_census sums up no part of the events"):
        open_store(place)


def test_rows_of_one_severity_share_row_groups(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who asks for faults decompresses the ids of all checks that passed."""
    monkeypatch.setattr(merging, "ROWS_TOGETHER", 50)
    rows = events(1, "one", ids=1 << 60)
    with open_store(place, create=True) as store:
        with store.ingestion("one") as ingestion:
            for at in range(0, rows.num_rows, 40):
                ingestion.write("events", rows.slice(at, 40))
            ingestion.commit(FILE_ROW)
        assert rows_of(store.rows("events")) == rows_of(rows)
        mixed, groups = severities_of_row_groups(place)
        assert (mixed, groups > 4) == (0, True)
        # parts that lose rows to a later file are written again, in order
        again = rows.slice(0, 100).set_column(
            EVENTS.names.index("file_id"), "file_id", pa.array(["two"] * 100)
        )
        ingest_tables(store, "two", {"events": again})
        parts = [
            pq.read_table(path) for path in (place / "parts" / "events").glob("*left*.parquet")
        ]
        assert [part.num_rows for part in parts] == [200]
        severities = parts[0]["severity"].to_pylist()
        assert severities == sorted(severities)
        assert store.rows("events").num_rows == rows.num_rows


def severities_of_row_groups(place: Path) -> tuple[int, int]:
    """How many row groups of all parts hold several severities, and how many there are."""
    held = json.loads((place / "store.json").read_text())["parts"]["events"]
    column = EVENTS.names.index("severity")
    groups = [
        footer.row_group(i).column(column).statistics
        for footer in (pq.read_metadata(place / part) for part in held)
        for i in range(footer.num_row_groups)
    ]
    return sum(one.min != one.max for one in groups), len(groups)
