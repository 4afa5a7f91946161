"""Kernel logs that begin late: comparisons, trend and MTTF are of the covered time alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from cli.program import ettr
from ettr.metrics.coverage import covered_time
from ettr.metrics.instants import Period
from ettr.tables import LOG_DAYS
from fact_tables import facts_of

START = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, BEGIN = 80, 60
NODES = [f"n{i}" for i in range(6)]


def at(day: float) -> datetime:
    return START + timedelta(days=day)


def heard(*days: int) -> pa.Table:
    said = {"cluster": "c", "source": "kernel-xid", "file_id": "t", "line": 1, "n_lines": 3}
    rows = [
        {name: (said | {"node": node, "day": at(day)}).get(name) for name in LOG_DAYS.names}
        for day in days
        for node in NODES
    ]
    return pa.Table.from_pylist(rows, schema=LOG_DAYS.arrow_schema)


def covered(*days: int):
    return covered_time(facts_of({"log_days": heard(*days)}), Period(START, at(DAYS)), "c")


def test_logs_that_begin_late_cover_the_rest():
    found = covered(*range(BEGIN, DAYS))
    assert (found.since, found.until, found.covered_days) == (at(BEGIN), None, DAYS - BEGIN)
    assert found.bounds == "Kernel logs begin 2026-04-30"


def test_logs_that_end_early_cover_the_beginning():
    found = covered(*range(10))
    assert (found.since, found.until, found.covered_days) == (None, at(10), 10)


@pytest.mark.parametrize(
    "days",
    [
        range(1, DAYS),  # one silent day may be chance
        range(0, DAYS, 7),  # silent when all is well: silence says nothing
        (BEGIN,),  # how regularly it arrives is not known
        (),
    ],
)
def test_nothing_is_said_where_chance_explains_the_silence(days: range):
    assert covered(*days) is None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A failure every other day at a constant rate, of which the kernel logs know the last ten."""
    folder = tmp_path_factory.mktemp("covered")
    head = "JobID|Cluster|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
    jobs, lines = [head], []
    for day in range(DAYS):
        for place, node in enumerate(NODES):
            fails = day % 2 == 0 and place == day // 2 % len(NODES)
            begin, end = at(day + 0.01), at(day + 0.9)
            state = "FAILED|1:0" if fails else "COMPLETED|0:0"
            ran = f"{begin:%FT%T}|{begin:%FT%T}|{end:%FT%T}|{(end - begin).total_seconds():.0f}"
            jobs.append(f"{day * 10 + place}|c|ann|{state}|{ran}|1|{node}|gres/gpu=8")
            if day >= BEGIN:
                lines.append((begin, f"{node} kernel: all is well"))
                if fails:
                    said = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
                    lines.append((end - timedelta(seconds=30), f"{node} kernel: {said}"))
    (folder / "sacct.psv").write_text("\n".join(jobs) + "\n")
    text = "".join(f"{moment:%FT%T}+00:00 {line}\n" for moment, line in sorted(lines))
    (folder / "kern.log").write_text(text)
    done = ettr(
        *("ingest", folder / "store", folder / "sacct.psv", folder / "kern.log"),
        *("--timezone", "UTC"),
    )
    assert done.code == 0, done.err
    return folder / "store"


@pytest.mark.slow
def test_the_mttf_is_of_the_covered_days(store: Path):
    """Ten failures in twenty days: 2 days between them, not 8."""
    found = ettr("mttf", store, "--json").json
    assert found["rate_used"]["failures"] == 10
    assert found["rate_used"]["node_days"] == pytest.approx(20 * 6 * 0.89, rel=1e-3)


@pytest.mark.slow
def test_periods_before_the_logs_are_not_comparable(store: Path):
    trend = ettr("report", store, "--json").json["previous"]
    assert trend["is_comparable"] is False
    assert trend["meaning"] == "Kernel logs begin 2026-04-30: not comparable."
    refused = ettr("compare", store, "--before", "2026-04-15", "--after", "2026-05-10")
    assert refused.code != 0
    assert "Kernel logs begin 2026-04-30" in " ".join(refused.err.split())


@pytest.mark.slow
def test_the_rate_does_not_rise_where_the_logs_begin(store: Path):
    found = ettr("failures", store, "--json").json
    assert found["direction"]["verdict"] == "undecided"
    assert min(point["window_from"] for point in found["trend"]["points"]) >= "2026-04-30"


@pytest.mark.slow
def test_the_reader_is_told(store: Path):
    found = ettr("quality", store, "--json").json["covered"]
    assert (found["since"], found["covered_days"]) == ("2026-04-30T00:00:00Z", pytest.approx(19.9))
    assert "they cover 19.9 of 79.9 days" in " ".join(
        ettr("quality", store, "--detail").out.split()
    )


@pytest.mark.slow
def test_a_period_covered_in_part_says_so(store: Path):
    done = ettr("goodput", store, "--since", "2026-02-01", "--until", "2026-06-01", "--detail")
    assert "The logs cover 79.9 of 120 days asked for" in " ".join(done.out.split())
    done = ettr("goodput", store, "--since", "2026-04-01", "--until", "2026-05-01", "--detail")
    assert "asked for" not in done.out
