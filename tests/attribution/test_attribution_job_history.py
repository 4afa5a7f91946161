"""`explain`: one job's story, in order, with the way back to the log lines."""

import re

import pytest

from attribution.attribution_tables import Cluster, at
from ettr.attribution import Confidence
from ettr.attribution.job_history import JobHistory, explain
from ettr.errors import UsageError

pytestmark = pytest.mark.slow


def story(cluster: Cluster, job: str) -> JobHistory:
    return explain(cluster.on(), job)


def crashed() -> Cluster:
    """A job that lost a node, was put back into the queue, and completed."""
    cluster = Cluster()
    cluster.attempt("17", "COMPLETED", ("n1", "n3"), start_s=8000, end_s=9000, name="train")
    cluster.attempt("17", "REQUEUED", ("n1", "n2"), start_s=0, end_s=7200, name="train")
    cluster.attempt("16", "FAILED", ("n2",), start_s=0, end_s=7200)
    cluster.event("n2", 7100, "79", entity="0000:18:00", message="GPU has fallen off the bus")
    cluster.event("n2", 7101, "154", entity="0000:18:00")
    cluster.event("n2", 7102, "45", entity="0000:18:00")
    cluster.event("n1", 7050, "31")
    cluster.event("n2", 6000, "48")
    cluster.event("n9", 7100, "79")
    cluster.event("n2", 7090, None, "check ibstat", severity="ok")
    cluster.event("n2", 7200.6, "NODE_FAIL", "slurmctld", job_id="17")
    cluster.state("n2", "DOWN", "Not responding", 7201)
    return cluster


def test_the_story_of_a_node_failure() -> None:
    told = story(crashed(), "17")
    assert (told.cluster, told.job_id, told.name, told.user) == ("c", "17", "train", "ann")
    first, second = told.attempts
    assert (first.state, first.kind, first.nodes) == (
        "REQUEUED",
        "hardware-candidate",
        ("n1", "n2"),
    )
    assert first.verdict is not None
    assert (first.verdict.node, first.verdict.symptom) == ("n2", "gpu-unavailable")
    assert first.verdict.confidence is Confidence.HIGH
    assert first.verdict.evidence == ("e0000", "e0007")
    assert [(o.offset_s, o.node, o.check, o.code, o.role) for o in first.observed] == [
        (-150, "n1", "xid", "31", "context"),
        (-100, "n2", "xid", "79", "cause"),
        (-99, "n2", "xid", "154", "pointer"),
        (-98, "n2", "xid", "45", "sympathetic"),
        (0.6, "n2", "slurmctld", "NODE_FAIL", "named"),
        (1, "n2", "node-state", "DOWN", "named"),
    ]
    assert (second.state, second.kind, second.verdict) == ("COMPLETED", None, None)
    assert second.observed == ()


def test_every_observation_leads_back_to_its_line() -> None:
    cluster = crashed()
    row = {
        "file_id": "file-kern",
        "name": "kern.log",
        "source": "kernel-xid",
        "size_bytes": 1,
        "rows_read": 1,
        "rows_rejected": 0,
        "rows_skipped": 0,
        "options": "{}",
        "ingested": 1,
    }
    cluster.files.append(row)
    (first, _) = story(cluster, "17").attempts
    lines = {e["event_id"]: e["line"] for e in cluster.events}
    bus = first.observed[1]
    assert bus.where == f"kern.log:{lines[bus.event_id]}"
    assert bus.message == "GPU has fallen off the bus"
    assert "XID 79" in bus.why
    assert first.where.startswith("file-sacct:")


def test_a_job_that_runs_has_a_story_without_an_end() -> None:
    cluster = Cluster()
    cluster.attempt("1", "RUNNING", end_s=None)
    (only,) = story(cluster, "1").attempts
    assert (only.start, only.end, only.verdict, only.observed) == (at(0), None, None, ())


def test_a_job_that_is_not_there() -> None:
    cluster = Cluster()
    for job in ("7_1", "7_2", "30+0", "30+1", "1234", "1235"):
        base = job.replace("+", "_").split("_")[0]
        cluster.attempt(
            job,
            "COMPLETED",
            array_job_id=base if "_" in job else None,
            het_job_id=base if "+" in job else None,
        )
    for given, similar in [
        ("7", "similar ids: 7_1, 7_2; "),
        ("7_9", "similar ids: 7_1, 7_2; "),
        ("30+2", "similar ids: 30; "),  # the parts are one job
        ("1239", "similar ids: 1234, 1235; "),
        ("x", "no id looks like it; write an array task as 7_1"),
        ("", "no id looks like it; "),
    ]:
        with pytest.raises(UsageError, match=f"no job {re.escape(repr(given))}; {similar}"):
            story(cluster, given)


def test_a_job_id_of_two_clusters_wants_its_cluster() -> None:
    cluster = Cluster()
    cluster.attempt("5", "COMPLETED")
    cluster.attempt("5", "FAILED", cluster="other", attempt_id="other/5@0")
    with pytest.raises(UsageError, match="job 5 is in 2 clusters; say which: c/5, other/5"):
        story(cluster, "5")
    assert story(cluster, "other/5").attempts[0].state == "FAILED"
