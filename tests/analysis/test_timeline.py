"""Spans of a timeline: overlaps, open ends, two clusters, unknown racks, summer time, limits."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.analysis.timeline import (
    JobEnd,
    OutageKind,
    Timeline,
    TimelineJob,
    TimelineLimits,
    natural,
    timeline,
)
from ettr.errors import UsageError
from ettr.report.pages import RowRun, picture_data, row_runs
from ettr.report.sections.timeline import timeline_section
from ettr.selection import Selection
from ettr.store import open_store

pytestmark = pytest.mark.slow

# local times of Zurich; on 2026-03-29 the clocks there went from 2 to 3
SACCT = """\
Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
alpha|1|wide|ann|COMPLETED|0:0|2026-03-28T12:00:00|2026-03-28T12:00:00|2026-03-28T12:00:00|2026-03-29T12:00:00|82800|3|n[1-2,10]|gres/gpu=24
alpha|2|half|bob|NODE_FAIL|0:0|2026-03-29T13:00:00|2026-03-29T13:00:00|2026-03-29T13:00:00|2026-03-29T18:00:00|18000|1|n1|gres/gpu=4
alpha|3|half|bob|COMPLETED|0:0|2026-03-29T14:00:00|2026-03-29T14:00:00|2026-03-29T14:00:00|2026-03-29T16:00:00|7200|1|n1|gres/gpu=4
alpha|4|open|ann|RUNNING|0:0|2026-03-29T20:00:00|2026-03-29T20:00:00|2026-03-29T20:00:00|Unknown|36000|2|n[2,10]|gres/gpu=16
alpha|5|driven|eve|PREEMPTED|0:0|2026-03-29T13:00:00|2026-03-29T13:00:00|2026-03-29T13:00:00|2026-03-29T15:00:00|7200|1|n2|gres/gpu=8
alpha|6|cpu|eve|FAILED|1:0|2026-03-29T13:00:00|2026-03-29T13:00:00|2026-03-29T13:00:00|2026-03-29T15:00:00|7200|1|n10|
beta|1|other|ann|CANCELLED|0:0|2026-03-29T08:00:00|2026-03-29T08:00:00|2026-03-29T08:00:00|2026-03-29T09:00:00|3600|1|n1|gres/gpu=8
"""
EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
alpha|n1|2026-03-29T18:00:00|2026-03-29T19:00:00|DOWN*|Not responding|slurm(64030)
alpha|n10|2026-03-30T04:00:00|Unknown|DRAIN|NHC: check_fs_mount|root(0)
alpha|n2|2026-03-29T16:00:00|2026-03-29T17:00:00|MAINT|maintenance|root(0)
"""
TOPOLOGY = "SwitchName=s1 Nodes=n[1-2]\n"


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00").astimezone(UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timeline")
    texts = {"sacct.psv": SACCT, "events.psv": EVENTS}
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "topology.conf").write_text(TOPOLOGY)
    files = [folder / name for name in texts]
    done = ettr("ingest", folder / "store", *files, "--timezone", "Europe/Zurich")
    assert done.code == 0, done.err
    done = ettr("ingest", folder / "store", folder / "topology.conf", "--cluster", "alpha")
    assert done.code == 0, done.err
    return folder / "store"


def made(store: Path, limits: TimelineLimits | None = None, **chosen: object) -> Timeline:
    with open_store(str(store)) as opened:
        return timeline(Analysis(opened, selection=Selection(**chosen)), limits)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(store: Path) -> Timeline:
    return made(store)


def job(found: Timeline, cluster: str, job_id: str) -> TimelineJob:
    (one,) = (one for one in found.jobs if (one.cluster, one.job_id) == (cluster, job_id))
    return one


def test_rows_go_by_cluster_place_and_number_with_unknown_places_last(found: Timeline):
    rows = [(one.cluster, one.node, one.place) for one in found.nodes]
    assert rows == [
        ("alpha", "n1", "switch s1"),
        ("alpha", "n2", "switch s1"),
        ("alpha", "n10", None),
        ("beta", "n1", None),
    ]
    assert picture_data(found)["groups"] == [  # type: ignore[call-overload,index]
        "alpha, switch s1",
        "alpha, rack not known",
        "beta, rack not known",
    ]


def test_within_a_place_the_node_with_the_most_failures_stands_first(tmp_path: Path):
    failed = SACCT.replace("|1|n1|gres/gpu=4", "|1|n2|gres/gpu=4")
    (tmp_path / "sacct.psv").write_text(failed)
    (tmp_path / "events.psv").write_text(EVENTS.replace("alpha|n1|", "alpha|n2|"))
    (tmp_path / "topology.conf").write_text(TOPOLOGY)
    files = [tmp_path / "sacct.psv", tmp_path / "events.psv"]
    assert ettr("ingest", tmp_path / "s", *files, "--timezone", "Europe/Zurich").code == 0
    assert (
        ettr("ingest", tmp_path / "s", tmp_path / "topology.conf", "--cluster", "alpha").code == 0
    )
    rows = [one.node for one in made(tmp_path / "s").nodes if one.cluster == "alpha"]
    assert rows == ["n2", "n1", "n10"]


def test_a_span_over_the_change_to_summer_time_has_23_hours(found: Timeline):
    wide = job(found, "alpha", "1")
    assert (wide.start, wide.end) == (at("2026-03-28T11:00:00"), at("2026-03-29T10:00:00"))
    assert wide.nodes == ("n1", "n2", "n10")


def test_nodes_of_one_name_in_two_clusters_are_two_rows(found: Timeline):
    rows = {(one.cluster, one.node): row for row, one in enumerate(found.nodes)}
    runs = dict(
        zip([(j.cluster, j.job_id) for j in found.jobs], row_runs(found, rows), strict=True)
    )
    assert runs["beta", "1"] == [RowRun(3, 3, 0, 1)]
    assert runs["alpha", "1"] == [RowRun(0, 2, 0, 1)]


def test_jobs_that_share_a_node_share_its_row(found: Timeline):
    rows = {(one.cluster, one.node): row for row, one in enumerate(found.nodes)}
    runs = dict(
        zip([(j.cluster, j.job_id) for j in found.jobs], row_runs(found, rows), strict=True)
    )
    assert runs["alpha", "2"] == [RowRun(0, 0, 0, 2)]
    assert runs["alpha", "3"] == [RowRun(0, 0, 1, 2)]


def test_how_jobs_ended_and_what_is_still_open(found: Timeline):
    failed = job(found, "alpha", "2")
    assert (failed.ended, failed.blamed) == (JobEnd.FAILURE, "n1")
    assert job(found, "alpha", "5").ended is JobEnd.PREEMPTION
    assert job(found, "beta", "1").ended is JobEnd.OTHER
    running = job(found, "alpha", "4")
    assert (running.ended, running.end) == (JobEnd.RUNNING, None)


def test_outages_by_kind_with_open_ends(found: Timeline):
    assert found.outages is not None
    spans = [(one.node, one.kind, one.start, one.end) for one in found.outages]
    assert spans == [
        ("n1", OutageKind.DOWN, at("2026-03-29T16:00:00"), at("2026-03-29T17:00:00")),
        ("n2", OutageKind.PLANNED, at("2026-03-29T14:00:00"), at("2026-03-29T15:00:00")),
        ("n10", OutageKind.DRAIN, at("2026-03-30T02:00:00"), None),
    ]


def test_what_is_not_shown_is_counted(store: Path, found: Timeline):
    # no log says how many GPUs job 6 had
    assert [(one.what, one.count) for one in found.left_out] == [("attempts", 1)]
    few = made(store, TimelineLimits(min_gpus=8, most_jobs=2, most_nodes=1))
    assert [(one.cluster, one.job_id) for one in few.jobs] == [("alpha", "1"), ("alpha", "4")]
    counts = {(one.what, one.why.partition(":")[0]): one.count for one in few.left_out}
    assert counts["attempts", "no log says how many GPUs"] == 1
    assert counts["attempts", "fewer than 8 GPUs"] == 2
    assert sum(n for (what, _), n in counts.items() if what == "attempts") == 7 - 2
    # n1 of alpha has an outage and a failure, more than any other
    assert [(one.cluster, one.node) for one in few.nodes] == [("alpha", "n1")]
    assert sum(n for (what, _), n in counts.items() if what == "nodes") == 3
    assert sum(n for (what, _), n in counts.items() if what == "states of nodes") == 2
    # the failure of the job that is not shown is a mark on the node it is blamed on
    assert [(one.node, one.job_id) for one in few.marks] == [("n1", "2")]
    assert few.jobs[1].nodes == ()


def test_a_selection_keeps_whole_spans_that_reach_into_its_period(store: Path):
    part = made(store, since=at("2026-03-29T00:00:00"), until=at("2026-03-29T09:00:00"))
    assert [(one.cluster, one.job_id) for one in part.jobs] == [("alpha", "1"), ("beta", "1")]
    assert part.jobs[0].start == at("2026-03-28T11:00:00")
    assert part.outages == ()


def test_a_job_keeps_its_verdict_where_the_selection_leaves_its_failure_out(store: Path):
    early = made(store, until=at("2026-03-29T15:00:00"))
    assert job(early, "alpha", "2").ended is JobEnd.FAILURE  # at 16:00
    assert job(early, "alpha", "2").blamed == "n1"
    assert job(early, "alpha", "5").ended is JobEnd.PREEMPTION


def test_what_was_cancelled_in_the_queue_ran_nowhere(tmp_path: Path):
    """Slurm's accounting gives such a job a start, which is its end."""
    cancelled = (
        "alpha|7|waits|eve|CANCELLED|0:0|2026-03-29T13:00:00|2026-03-29T13:00:00"
        "|2026-03-29T15:00:00|2026-03-29T15:00:00|0|2|None assigned|\n"
    )
    (tmp_path / "sacct.psv").write_text(SACCT + cancelled)
    logs = (tmp_path / "sacct.psv", "--timezone", "Europe/Zurich")
    assert ettr("ingest", tmp_path / "store", *logs).code == 0
    found = made(tmp_path / "store")
    assert "7" not in {one.job_id for one in found.jobs}
    # next to job 6, whose GPUs no log names
    assert {one.why: one.count for one in found.left_out} == {
        "ended before they had a node": 1,
        "no log says how many GPUs": 1,
    }


def test_a_store_without_jobs_says_so(tmp_path: Path):
    (tmp_path / "events.psv").write_text(EVENTS)
    done = ettr("ingest", tmp_path / "s", tmp_path / "events.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    found = made(tmp_path / "s")
    assert (found.jobs, found.has_jobs, len(found.outages or ())) == ((), False, 3)
    assert "Jobs are not measured: no job accounting." in timeline_section(found).lead


def test_a_least_number_of_gpus_needs_jobs_that_name_them(tmp_path: Path):
    dump = tmp_path / "sacct.psv"
    dump.write_text(SACCT.replace("gres/gpu", "cpu"))
    assert ettr("ingest", tmp_path / "s", dump, "--timezone", "UTC").code == 0
    with pytest.raises(UsageError, match="no job names its GPUs; leave it out, or say"):
        made(tmp_path / "s", TimelineLimits(min_gpus=8))
    assert made(tmp_path / "s").least_size == 1  # nodes


def test_numbers_in_names_sort_as_numbers():
    assert sorted(["n10", "n9", "m2", "n9a", ""], key=natural) == ["", "m2", "n9", "n9a", "n10"]
