"""`ettr explain` and `ettr failures` decide alike, whatever the window."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr
from flight.records import calls, record, write

SACCT = """JobID|Cluster|JobName|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList
1|c|train|FAILED|2026-01-01T09:59:00|2026-01-01T10:00:00|2026-01-01T12:01:30|7290|1|n1
"""
# a minute before the end, and a minute after it
KERNEL = """\
2026-01-01T12:00:30.000000+00:00 n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU gone
2026-01-01T12:02:30.000000+00:00 n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU gone
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("window")
    for name, text in (("sacct.psv", SACCT), ("kern.log", KERNEL)):
        (folder / name).write_text(text)
        done = ettr("ingest", folder / "store", folder / name, "--timezone", "UTC")
        assert done.code == 0, done.err
    return folder / "store"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "failures", "offsets_s"),
    [
        ("10,10", 0, []),
        ("70,10", 1, [-60.0]),
        ("10,70s", 1, [60.0]),
        ("10min,5min", 1, [-60.0, 60.0]),
    ],
)
def test_both_commands_test_each_event_against_the_window(
    store: Path, window: str, failures: int, offsets_s: list[float]
):
    rates = ettr("failures", store, "--window", window, "--json")
    assert rates.json["all_jobs"]["failures"] == failures
    (attempt,) = ettr("explain", store, "1", "--window", window, "--json").json["attempts"]
    assert (attempt["verdict"] is not None) == bool(failures)
    assert [one["offset_s"] for one in attempt["observed"]] == offsets_s


def test_flight_records_need_no_store(tmp_path: Path) -> None:
    records = {rank: record(calls(6, True) if rank == 2 else calls(7)) for rank in range(4)}
    folder = write(tmp_path / "records", records)
    done = ettr("explain", "--flight", folder, "--nodes", "n[1-2]", "--detail")
    assert done.code == 0, done.err
    assert "Verdict: missing" in done.out
    assert "rank 2 on n2: did not start it" in done.out
    found = ettr("explain", "--flight", folder, "--json").json
    assert (found["format"], found["version"], found["verdict"]) == ("ettr-flight", 1, "missing")
    assert [one["rank"] for one in found["culprits"]] == [2]
    csv = ettr("explain", "--flight", folder, "--csv").out.splitlines()
    assert csv[0].startswith("rank,node,because")
    assert csv[1].startswith("2,")


def test_a_torn_record_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, {0: record(calls(7)), 1: record(calls(7))})
    (folder / "rank_2").write_text('{"version":"2.10","entries":[')
    assert "not read: rank_2: no whole JSON" in ettr("explain", "--flight", folder, "--detail").out
    refused = ettr("explain", "--flight", folder, "--json").json["refused_files"]
    assert [one["file"] for one in refused] == ["rank_2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a STORE and a JOB, or --flight DIR"),
        (("site",), "give a STORE and a JOB, or --flight DIR"),
        (("site", "17", "--flight", "."), "--flight takes no STORE"),
        (("site", "17", "--ranks", "4"), "--ranks: needs --flight"),
        (("--flight", ".", "--window", "1,1"), "--window: needs a STORE"),
        (("--flight", "absent"), "no such folder"),
        (("--flight", "{records}", "--nodes", "n[1-3]"), "cannot be split evenly over 3 nodes"),
        (("--flight", "{records}", "--nodes", "n[1-"), "no list of nodes"),
    ],
)
def test_wrong_use_of_flight_records(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    folder = write(tmp_path, {0: record(calls(7)), 1: record(calls(7))})
    done = ettr("explain", *(word.format(records=folder) for word in words))
    assert done.code == 2
    assert message in done.err
