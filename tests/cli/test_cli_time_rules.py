"""Each length of time that attribution rests on can be moved, and moving it moves the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

# job 1 fails on n1; job 2 is requeued; job 3 fails, and jobs 4 and 5 make room for its restart
SACCT = """\
JobID|Cluster|JobName|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
1|c|train|FAILED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T12:00:00|43200|1|n1|gres/gpu=8
2|c|tune|REQUEUED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T10:00:00|36000|1|n2|gres/gpu=8
2|c|tune|COMPLETED|2026-01-01T10:00:00|2026-01-01T20:00:00|2026-01-01T21:00:00|3600|1|n2|gres/gpu=8
3|c|big|NODE_FAIL|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T06:00:00|21600|1|n3|gres/gpu=8
3|c|big|COMPLETED|2026-01-01T06:00:00|2026-01-01T09:00:00|2026-01-01T20:00:00|39600|2|n[4-5]|gres/gpu=16
4|c|small|PREEMPTED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T08:50:00|31800|1|n4|gres/gpu=8
5|c|tiny|PREEMPTED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T08:00:00|28800|1|n6|gres/gpu=8
"""
XID = "2026-01-01T{}+00:00 {} kernel: NVRM: Xid (PCI:0000:18:00): {}, pid=1, GPU error\n"
# two bursts of XID 48 in the window, and a sticky 79 two hours before and again before the end
KERNEL = (
    XID.format("09:59:00.000000", "n1", 79)
    + XID.format("11:52:00.000000", "n1", 48)
    + XID.format("11:58:00.000000", "n1", 48)
    + XID.format("11:59:00.000000", "n1", 79)
)
CONTROLLER = """\
[2026-01-01T08:04:00.000] preempted JobId=5 has been requeued to reclaim resources for JobId=3
[2026-01-01T10:08:00.000] requeue job JobId=2 due to failure of node n2
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("times")
    for name, text in (("sacct.psv", SACCT), ("kern.log", KERNEL), ("slurmctld.log", CONTROLLER)):
        (folder / name).write_text(text)
        words = ("--timezone", "UTC", "--cluster", "c")
        done = ettr("ingest", folder / "store", folder / name, *words)
        assert done.code == 0, done.err
    return folder / "store"


def evidence_times(store: Path, *options: str) -> list[str]:
    """When the episodes began that job 1's failure is attributed to."""
    found = ettr("explain", store, "1", "--window", "3h,5min", "--json", *options)
    assert found.code == 0, found.err
    (attempt,) = found.json["attempts"]
    events = {one["event_id"]: one["time"][11:16] for one in attempt["observed"]}
    return sorted(events[one] for one in attempt["verdict"]["evidence"])


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ((), ["09:59", "11:52", "11:58"]),
        (("--burst-gap", "60min"), ["09:59", "11:52"]),
        (("--sticky-gap", "1h"), ["09:59", "11:52", "11:58", "11:59"]),
    ],
)
def test_the_gaps_decide_where_an_episode_begins(
    store: Path, options: tuple[str, ...], times: list[str]
) -> None:
    assert evidence_times(store, *options) == times


def test_explain_looks_back_as_far_as_asked(store: Path) -> None:
    def evidence(*options: str) -> Any:
        (attempt,) = ettr("explain", store, "1", "--json", *options).json["attempts"]
        return attempt["verdict"]["evidence"], [one["event_id"] for one in attempt["observed"]]

    # the window is ten minutes: the episode began before it, and its first event is its evidence
    usual, shown = evidence()
    assert not set(usual) <= set(shown)
    short, shown = evidence("--look-back", "30min")
    assert set(short) <= set(shown)


def test_a_late_line_of_the_controller(store: Path) -> None:
    counts = [
        ettr("failures", store, "--json", *options).json["all_jobs"]["failures"]
        for options in ((), ("--log-tolerance", "10min"))
    ]
    assert counts == [2, 3]


def test_who_was_preempted_for_whom(store: Path) -> None:
    def attempts(*options: str) -> list[tuple[str, bool]]:
        found = ettr("goodput", store, "--json", *options).json["preemption_links"]["links"]
        return [(one["attempt_id"].split("@")[0], one["from_log"]) for one in found]

    assert attempts() == []
    assert attempts("--preemption-window", "15min") == [("c/4", False)]
    by_log = attempts("--preemption-window", "2h", "--preemption-tolerance", "5min")
    assert ("c/5", True) in by_log
    only_window = attempts("--preemption-window", "2h")
    assert ("c/5", True) not in only_window


def test_the_report_has_them_among_its_assumptions(store: Path) -> None:
    options = ("--burst-gap", "10min", "--log-tolerance", "7min", "--preemption-window", "1h")
    report = ettr("report", store, "--json", *options)
    assert report.code == 0, report.err
    used = report.json["assumptions"]
    assert used["folding"]["burst_gap_s"] == 600
    assert used["matching"] == {"tolerance_s": 420}
    assert used["preemption"] == {"rule_window_s": 3600, "log_tolerance_s": 120}


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("--burst-gap", "60", "give a number with its unit"),
        ("--burst-gap", "4h", "no longer than the sticky gap"),
        ("--sticky-gap", "1000d", "give 366d at most"),
        ("--log-tolerance", "-5min", "is negative"),
        ("--look-back", "1e9d", "give 366d at most"),
    ],
)
def test_lengths_that_mean_nothing(store: Path, option: str, text: str, says: str) -> None:
    done = ettr("explain", store, "1", f"{option}={text}", "--detail")
    assert (done.code, done.out) == (2, "")
    assert says in done.err
