"""Local times in the hour that a zone has twice, or never: placed by what is known, and counted."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ettr.sources.base import ReadOptions
from ettr.sources.origin import HEAD_BYTES, Origin
from ettr.sources.registry import named
from ettr.sources.slurm.attempts import AttemptReader, rows_from_sacct_fields
from ettr.tables.rows import Batch
from ettr.words import by_number

# the moment at which each zone's clocks go back, and by how much
GO_BACK = {
    "Europe/Berlin": (datetime(2026, 10, 25, 1, tzinfo=UTC), timedelta(hours=1)),
    "America/New_York": (datetime(2026, 11, 1, 6, tzinfo=UTC), timedelta(hours=1)),
    "Australia/Lord_Howe": (datetime(2026, 4, 4, 15, tzinfo=UTC), timedelta(minutes=30)),
    "Africa/Casablanca": (datetime(2026, 2, 15, 2, tzinfo=UTC), timedelta(hours=1)),
}
ZONES = sorted(GO_BACK)


def local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%dT%H:%M:%S}"


@pytest.mark.parametrize("zone", ZONES)
def test_the_changes_are_as_the_tests_think(zone: str):
    moment, back = GO_BACK[zone]
    before, after = (
        (moment + timedelta(seconds=s)).astimezone(ZoneInfo(zone)).utcoffset() for s in (-1, 0)
    )
    assert before - after == back


def attempts(zone: str, *records: dict[str, Any]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Rows of sacct's fields, read with a zone, and what was noted."""
    reader = AttemptReader("slurm-sacct", "f", ReadOptions(timezone=zone, cluster="c"), "sacct")
    full = [
        {"JobID": str(n), "State": "NODE_FAIL", "NodeList": "n1", **record}
        for n, record in enumerate(records, 1)
    ]
    made = rows_from_sacct_fields(reader, full, list(range(1, len(full) + 1)))
    assert not made.bad
    return made.attempts.to_pylist(), reader.notes()


def test_the_runtime_says_which_end_is_meant():
    (row,), notes = attempts(
        "Europe/Zurich",
        {"Submit": "2026-10-25T01:00:00", "Start": "2026-10-25T01:30:00"}
        | {"End": "2026-10-25T02:10:00", "ElapsedRaw": "6000"},
    )
    assert row["end"] == datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert any("1 local time lies" in note and "its runtime" in note for note in notes)


def test_an_end_is_never_before_its_start():
    (row,), _ = attempts(
        "Europe/Zurich",
        {"Submit": "2026-10-25T01:00:00", "Start": "2026-10-25T02:50:00"}
        | {"End": "2026-10-25T02:10:00", "ElapsedRaw": "1200"},
    )
    assert row["start"] == datetime(2026, 10, 25, 0, 50, tzinfo=UTC)
    assert row["end"] == datetime(2026, 10, 25, 1, 10, tzinfo=UTC)


def test_suspended_time_is_part_of_the_span():
    (row,), _ = attempts(
        "Europe/Zurich",
        {"Submit": "2026-10-25T01:00:00", "Start": "2026-10-25T01:30:00"}
        | {"End": "2026-10-25T02:10:00", "ElapsedRaw": "2400", "Suspended": "01:00:00"},
    )
    assert row["end"] == datetime(2026, 10, 25, 1, 10, tzinfo=UTC)


def test_a_start_is_never_before_its_submission():
    (row,), _ = attempts(
        "Europe/Zurich",
        {"Submit": "2026-10-25T02:45:00", "Start": "2026-10-25T02:05:00"}
        | {"End": "Unknown", "ElapsedRaw": "60", "State": "RUNNING"},
    )
    assert row["submit"] == datetime(2026, 10, 25, 0, 45, tzinfo=UTC)
    assert row["start"] == datetime(2026, 10, 25, 1, 5, tzinfo=UTC)


@pytest.mark.slow
@settings(max_examples=16, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    # seconds from the change to the submission, that it waits, and that it runs
    jobs=st.lists(
        st.tuples(
            st.integers(-3 * 3600, 3 * 3600), st.integers(0, 3 * 3600), st.integers(0, 4 * 3600)
        ),
        min_size=20,
        max_size=40,
    ),
)
def test_jobs_across_the_change_are_placed_exactly_or_counted(zone, jobs):
    change, back = GO_BACK[zone]
    planted, records = [], []
    for begin_s, waits_s, runs_s in jobs:
        submit = change + timedelta(seconds=begin_s)
        start = submit + timedelta(seconds=waits_s)
        planted.append({"submit": submit, "start": start, "end": start + timedelta(seconds=runs_s)})
        texts = {name.capitalize(): local(moment, zone) for name, moment in planted[-1].items()}
        records.append({**texts, "ElapsedRaw": str(runs_s)})
    rows, notes = attempts(zone, *records)
    n_wrong = 0
    for moments, row, (_, _, runs_s) in zip(planted, rows, jobs, strict=True):
        assert row["submit"] <= row["start"] <= row["end"]
        assert row["end"] - row["start"] == timedelta(seconds=runs_s)
        wrong = [name for name, moment in moments.items() if row[name] != moment]
        assert all(moments[name] - row[name] == back for name in wrong)
        n_wrong += len(wrong)
    # nothing in a record says which was meant, and each is counted
    taken = [note for note in notes if "the first of the two was taken" in note]
    assert n_wrong <= sum(int(note.split()[0]) for note in taken)


def read(name: str, text: str, zone: str, folder: Path) -> tuple[list[datetime], list[str]]:
    """The moments of a log's events, and its notes as ingest prints them."""
    path = folder / "log"
    path.write_text(text)
    origin = Origin(path, "f", path.read_bytes()[:HEAD_BYTES])
    batches: list[Batch] = list(named(name).read(origin, ReadOptions(timezone=zone)))
    times = [
        row["time"]
        for b in batches
        if "events" in b.tables
        for row in b.tables["events"].to_pylist()
    ]
    counted: dict[str, int] = {}
    for batch in batches:
        for note, n in batch.counted_notes.items():
            counted[note] = counted.get(note, 0) + n
    return times, [by_number(note, n) for note, n in counted.items()]


LINES = {
    "slurmctld-log": "[{stamp}.000] Killing JobId={n} on failed node n1\n",
    "kernel-xid": "{stamp} n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid={n}, off the bus\n",
}


@pytest.mark.parametrize("name", sorted(LINES))
@pytest.mark.parametrize("zone", ZONES)
def test_a_log_with_lines_all_along_is_placed_by_their_order(name: str, zone: str, tmp_path: Path):
    change, _ = GO_BACK[zone]
    moments = [change + timedelta(minutes=5 * k) for k in range(-30, 30)]
    text = "".join(
        LINES[name].format(stamp=local(moment, zone), n=n) for n, moment in enumerate(moments)
    )
    times, notes = read(name, text, zone, tmp_path)
    assert times == moments
    assert any("the order of the lines says" in note for note in notes)


@pytest.mark.parametrize("name", sorted(LINES))
def test_lines_of_which_the_order_says_nothing_are_counted(name: str, tmp_path: Path):
    text = LINES[name].format(stamp="2026-10-25T02:30:00", n=1)
    times, notes = read(name, text, "Europe/Berlin", tmp_path)
    assert times == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]
    assert notes == [
        "1 local time lies in the hour that Europe/Berlin has twice when its clocks go back; the "
        "first of the two was taken"
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_seeded_logs_around_the_change_never_run_backwards(zone: str, tmp_path: Path):
    change, back = GO_BACK[zone]
    rng = np.random.default_rng(8)
    for _ in range(20):
        at_s = np.sort(rng.integers(-7200, 7200, 40))
        moments = [change + timedelta(seconds=int(s)) for s in at_s]
        text = "".join(
            LINES["slurmctld-log"].format(stamp=local(moment, zone), n=n)
            for n, moment in enumerate(moments)
        )
        times, notes = read("slurmctld-log", text, zone, tmp_path)
        assert all(m - t in (timedelta(0), back) for t, m in zip(times, moments, strict=True))
        assert all(b >= a - timedelta(minutes=10) for a, b in pairwise(times))
        if times != moments:
            assert any("the first of the two was taken" in note for note in notes)


def test_a_time_that_never_was_is_the_same_moment_in_every_source(tmp_path: Path):
    """02:30 of a clock that had not gone forward is 01:30 UTC."""
    stamp, zone = "2026-03-29T02:30:00", "Europe/Berlin"
    moment = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    for name, line in LINES.items():
        times, notes = read(name, line.format(stamp=stamp, n=1), zone, tmp_path)
        assert times == [moment]
        assert ["leaves out" in note for note in notes] == [True]
    record = {"Submit": stamp, "Start": stamp, "End": "2026-03-29T04:00:00", "ElapsedRaw": "1800"}
    (row,), notes = attempts(zone, record)
    assert (row["submit"], row["start"]) == (moment, moment)
    assert any("2 local times" in note and "leaves out" in note for note in notes)


def test_states_of_nodes_end_after_they_begin(tmp_path: Path):
    text = (
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "c|n1|2026-10-25T02:50:00|2026-10-25T02:10:00|DOWN|off|root(0)\n"
    )
    path = tmp_path / "events"
    path.write_text(text)
    origin = Origin(path, "f", path.read_bytes())
    batches = list(named("slurm-events").read(origin, ReadOptions(timezone="Europe/Berlin")))
    (row,) = batches[0].tables["node_states"].to_pylist()
    assert row["start"] == datetime(2026, 10, 25, 0, 50, tzinfo=UTC)
    assert row["end"] == datetime(2026, 10, 25, 1, 10, tzinfo=UTC)


YEARLESS = {
    "slurmctld-log": ("[{day} 10:00:00.000] Killing JobId={n} on failed node n1\n", "%b %d"),
    "kernel-xid": (
        "{day} 10:00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid={n}, off the bus\n",
        "%b %e",
    ),
    "nhc": (
        "{day} 10:00:00 n1 nhc[{n}]: ERROR: nhc: Health check failed: check_ps_loadavg: high\n",
        "%b %e",
    ),
}


def yearless(
    name: str, days: list[date], folder: Path, *, changed: date, start: date | None = None
) -> list[date]:
    """The days on which the lines of a log without years are placed."""
    line, form = YEARLESS[name]
    path = folder / "log"

    path.write_text("".join(line.format(day=f"{day:{form}}", n=n) for n, day in enumerate(days, 1)))
    moment = datetime.combine(changed, time(12), UTC).timestamp()
    os.utime(path, (moment, moment))
    origin = Origin(path, "f", path.read_bytes()[:HEAD_BYTES])
    begin = datetime.combine(start, time(0), UTC) if start else None
    options = ReadOptions(timezone="UTC", start=begin)
    batches = list(named(name).read(origin, options))
    assert not sum(batch.rows_rejected for batch in batches)
    return [
        row["time"].date()
        for batch in batches
        if "events" in batch.tables
        for row in batch.tables["events"].to_pylist()
    ]


def each(first: date, last: date, step_days: int) -> list[date]:
    n_days = (last - first).days
    return [first + timedelta(days=k) for k in range(0, n_days + 1, step_days)]


@pytest.mark.parametrize("name", sorted(YEARLESS))
@pytest.mark.parametrize("knows_start", [True, False])
@pytest.mark.parametrize(
    ("first", "last"),
    [
        (date(2024, 11, 20), date(2025, 2, 10)),  # over New Year
        (date(2025, 1, 3), date(2025, 9, 1)),
        (date(2023, 3, 5), date(2025, 8, 1)),  # more than two years
        (date(2023, 12, 28), date(2024, 12, 30)),  # a year and two days, with a leap day
    ],
)
def test_logs_without_years(name: str, knows_start: bool, first: date, last: date, tmp_path: Path):
    days = each(first, last, 6)
    start = first if knows_start else None
    assert yearless(name, days, tmp_path, changed=last, start=start) == days


@pytest.mark.parametrize("name", sorted(YEARLESS))
def test_a_leap_day_dates_a_log_that_was_copied_years_later(name: str, tmp_path: Path):
    days = [date(2024, 2, 27), date(2024, 2, 29), date(2024, 3, 2)]
    assert yearless(name, days, tmp_path, changed=date(2026, 5, 1)) == days


@pytest.mark.parametrize("name", sorted(YEARLESS))
def test_lines_out_of_order_around_new_year(name: str, tmp_path: Path):
    days = [date(2024, 12, 30), date(2025, 1, 1), date(2024, 12, 31), date(2025, 1, 1)]
    assert yearless(name, days, tmp_path, changed=date(2025, 1, 2)) == days
    assert yearless(name, days, tmp_path, changed=date(2025, 6, 1), start=days[0]) == days


def test_logs_of_many_nodes_one_behind_the_other_are_of_one_year(tmp_path: Path):
    line = "{node} kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, off the bus\n"
    days = each(date(2025, 1, 5), date(2025, 11, 20), 20)
    path = tmp_path / "log"
    path.write_text(
        "".join(
            f"{day:%b %e} 10:00:00 " + line.format(node=node)
            for node in ("n1", "n2", "n3")
            for day in days
        )
    )
    moment = datetime(2025, 11, 21, tzinfo=UTC).timestamp()
    os.utime(path, (moment, moment))
    origin = Origin(path, "f", path.read_bytes()[:HEAD_BYTES])
    (batch,) = named("kernel-xid").read(origin, ReadOptions(timezone="UTC"))
    found = [row["time"].date() for row in batch.tables["events"].to_pylist()]
    assert found == days * 3


def test_a_node_state_whose_hour_nothing_decides_is_counted(tmp_path: Path):
    """It begins in the hour that occurs twice, and lasts until noon: either hour fits."""
    path = tmp_path / "events"
    path.write_text(
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "c|n1|2026-10-25T02:10:00|2026-10-25T12:00:00|DOWN*|Not responding|slurm(1)\n"
        "c|n2|2026-10-25T02:10:00|Unknown|DOWN*|Not responding|slurm(1)\n"
    )
    origin = Origin(path, "f", path.read_bytes())
    (batch,) = named("slurm-events").read(origin, ReadOptions(timezone="Europe/Berlin"))
    starts = [row["start"] for row in batch.tables["node_states"].to_pylist()]
    assert starts == [datetime(2026, 10, 25, 0, 10, tzinfo=UTC)] * 2
    (note,) = batch.notes
    assert note.startswith("2 local times lie in the hour that Europe/Berlin has twice")
    assert note.endswith("the first of the two was taken")


def test_a_node_state_that_its_other_times_place_is_told_of_without_a_job(tmp_path: Path):
    """It lasted twenty minutes, so that only the second hour fits its end."""
    path = tmp_path / "events"
    path.write_text(
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "c|n1|2026-10-25T02:50:00|2026-10-25T02:10:00|DOWN|off|root(0)\n"
    )
    origin = Origin(path, "f", path.read_bytes())
    (batch,) = named("slurm-events").read(origin, ReadOptions(timezone="Europe/Berlin"))
    (note,) = batch.notes
    assert note.endswith("the other end of the node's state and its duration say which is meant")
    assert "job" not in note


def test_an_incident_in_an_hour_that_occurs_twice_or_never_is_counted(tmp_path: Path):
    path = tmp_path / "incidents.csv"
    path.write_text(
        "date,kind,hours_lost\n"
        "2026-10-25 02:30,switch,1\n"
        "2026-03-29 02:30,switch,1\n"
        "2026-10-25T02:30+01:00,switch,1\n"
        "2026-10-25 05:30,switch,1\n"
        "2026-10-25 02:40,switch,1\n"
    )
    origin = Origin(path, "f", path.read_bytes())
    batches = list(named("incidents").read(origin, ReadOptions(timezone="Europe/Zurich")))
    times = [row["time"] for batch in batches for row in batch.tables["incidents"].to_pylist()]
    assert [f"{time.astimezone(UTC):%d %H:%M}" for time in times] == [
        *("25 00:30", "29 01:30", "25 01:30", "25 04:30", "25 00:40"),
    ]
    counts = {key: n for batch in batches for key, n in batch.counted_notes.items()}
    assert sorted(counts.values()) == [1, 2]
    (never,) = (key for key, n in counts.items() if n == 1)
    (twice,) = (key for key, n in counts.items() if n == 2)
    assert "the hour that Europe/Zurich leaves out" in never
    assert twice.endswith("the first of the two was taken")


def test_a_line_of_nhc_without_a_host_names_no_node(tmp_path: Path):
    path = tmp_path / "n17.log"
    path.write_text(
        "2026-03-02T12:00:00+00:00 nhc nhc[17]: ERROR: nhc: Health check failed: check_x: bad\n"
        "2026-03-02T12:00:00+00:00 n3 nhc[17]: ERROR: nhc: Health check failed: check_x: bad\n"
    )
    origin = Origin(path, "f", path.read_bytes())
    (batch,) = named("nhc").read(origin, ReadOptions())
    assert [row["node"] for row in batch.tables["events"].to_pylist()] == ["n17", "n3"]
