"""Two clusters in one store, whose jobs share ids and nodes share names; and one file twice."""

from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store

pytestmark = pytest.mark.slow

HEAD = "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
ALPHA = (
    "17|a|u|alpha|COMPLETED|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T11:00:00|3600|1|n1|"
    "gres/gpu=8\n"
)
BETA = (
    "17|b|v|beta|NODE_FAIL|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T12:00:00|7200|1|n1|"
    "gres/gpu=8\n"
)
EVENTS = (
    "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    "beta|n1|2026-11-01T12:00:00|2026-11-01T13:00:00|DOWN*|Not responding|root(0)\n"
)


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Path]:
    texts = {"alpha": HEAD + ALPHA, "beta": HEAD + BETA, "events": EVENTS}
    for name, text in texts.items():
        (tmp_path / f"{name}.psv").write_text(text)
    return {name: tmp_path / f"{name}.psv" for name in texts}


def report(store: Path) -> dict[str, Any]:
    done = ettr("report", store, "--json")
    assert done.code == 0, done.err
    document: dict[str, Any] = done.json
    return document


def measured(document: dict[str, Any]) -> tuple[Any, ...]:
    """What was measured, without the order in which files came."""
    rows = document["failures"]["rows"]
    return (
        document["clusters"],
        document["totals"],
        document["nodes"]["nodes"],
        [(row["cluster"], row["job_id"], row["node"]) for row in rows],
    )


# each log comes once before the others, once between them and once after them
@pytest.mark.parametrize(
    "order",
    [("alpha", "beta", "events"), ("beta", "events", "alpha"), ("events", "alpha", "beta")],
)
def test_each_log_keeps_the_cluster_that_it_names_in_any_order(tmp_path: Path, logs, order):
    for name in order:
        done = ettr("ingest", tmp_path / "store", logs[name], "--timezone", "UTC")
        assert done.code == 0, done.err
    document = report(tmp_path / "store")
    assert document["clusters"] == ["alpha", "beta"]
    assert document["totals"]["jobs"] == 2
    # three node-hours in all: one of alpha's n1, two of beta's
    assert document["totals"]["node_hours"] == 3.0
    (failure,) = document["failures"]["rows"]
    assert (failure["cluster"], failure["job_id"], failure["node"]) == ("beta", "17", "n1")


def test_one_call_and_three_say_the_same(tmp_path: Path, logs):
    assert ettr("ingest", tmp_path / "one", *logs.values(), "--timezone", "UTC").code == 0
    for log in logs.values():
        assert ettr("ingest", tmp_path / "three", log, "--timezone", "UTC").code == 0
    assert measured(report(tmp_path / "one")) == measured(report(tmp_path / "three"))


BARE = (HEAD + ALPHA.replace("17|", "18|")).replace("Cluster|", "").replace("alpha|", "")


def read_one_by_one(where: Path, *logs: Path) -> None:
    with open_store(where, create=True) as store:
        for log in logs:
            ingest_file(store, log, ReadOptions(timezone="UTC"))


def clusters_of(where: Path) -> tuple[str, ...]:
    with open_store(where) as store:
        return Analysis(store).logs_clusters


def test_a_log_without_names_is_the_only_cluster_s_and_the_user_has_the_last_word(
    tmp_path: Path, logs
):
    (tmp_path / "bare.psv").write_text(BARE)
    store = tmp_path / "store"
    read_one_by_one(store, tmp_path / "bare.psv", logs["alpha"])
    assert clusters_of(store) == ("alpha",)
    words = ("ingest", store, tmp_path / "bare.psv", "--timezone", "UTC", "--cluster", "gamma")
    assert ettr(*words).code == 0
    assert clusters_of(store) == ("alpha", "gamma")


def test_a_log_without_names_is_of_no_cluster_where_two_have_its_nodes(tmp_path: Path, logs):
    (tmp_path / "bare.psv").write_text(BARE)
    store = tmp_path / "store"
    read_one_by_one(store, logs["alpha"], tmp_path / "bare.psv", logs["beta"])
    assert clusters_of(store) == ("alpha", "beta", "cluster")
    begins = " ".join(ettr("report", "--detail", store).out.split())
    assert "rows are kept apart as 'cluster' and explain no failure of another" in begins
    said = " ".join(ettr("quality", store, "--detail").out.split())
    assert "where these are nodes of one cluster only, else as 'cluster' (--cluster names" in said


@pytest.mark.parametrize("first", ["alpha", "beta"])
def test_a_log_without_names_is_of_the_cluster_that_alone_has_its_nodes(
    tmp_path: Path, logs, first: str
):
    (tmp_path / "bare.psv").write_text(BARE.replace("|n1|", "|a1|"))
    logs["alpha"].write_text(HEAD + ALPHA.replace("|n1|", "|a1|"))
    last = "beta" if first == "alpha" else "alpha"
    read_one_by_one(tmp_path / "store", logs[first], tmp_path / "bare.psv", logs[last])
    assert clusters_of(tmp_path / "store") == ("alpha", "beta")


def test_one_file_read_as_two_tables_keeps_both(tmp_path: Path):
    both = tmp_path / "two.csv"
    both.write_text(
        "cluster,attempt_id,job_id,state,submit,start,end,elapsed_s,n_nodes,n_gpus,node\n"
        "c,c/1,1,COMPLETED,2026-11-01T10:00:00Z,2026-11-01T10:00:00Z,2026-11-01T11:00:00Z,3600,1,8,n1\n"
    )
    for table in ("attempts", "allocations"):
        done = ettr("ingest", tmp_path / "store", both, "--source", "table", "--table", table)
        assert done.code == 0, done.err
    document = report(tmp_path / "store")
    assert document["totals"]["attempts"] == 1
    assert document["quality"]["exposure"]["attempts_named"] == 1


@pytest.mark.parametrize("order", [("cluster", "beta"), ("beta", "cluster")])
def test_a_cluster_may_have_the_name_of_the_placeholder(tmp_path: Path, order: tuple[str, str]):
    """Slurm's example configuration names its cluster so."""
    for name in order:
        log = tmp_path / f"{name}.psv"
        log.write_text(HEAD + BETA.replace("|beta|", f"|{name}|"))
        assert ettr("ingest", tmp_path / "store", log, "--timezone", "UTC").code == 0
    found = report(tmp_path / "store")
    assert found["clusters"] == ["beta", "cluster"]
    assert (found["totals"]["jobs"], found["totals"]["gpu_hours"]) == (2, 32.0)


KERNEL = "2026-11-01T11:58:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, off the bus\n"


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("node", "blamed"), [("b1", [("beta", "17", "b1")]), ("n1", []), ("login1", [])]
)
def test_a_kernel_log_is_of_the_cluster_of_its_nodes(
    tmp_path: Path, logs, place: int, node: str, blamed: list[Any]
):
    """Whenever it is read; where both clusters have a node n1, or none has the node, of none."""
    where = "|n1|" if node == "n1" else "|b1|"
    logs["beta"].write_text(HEAD + BETA.replace("NODE_FAIL", "FAILED").replace("|n1|", where))
    (tmp_path / "kernel.log").write_text(KERNEL.replace(" n1 ", f" {node} "))
    order = [logs["alpha"], logs["beta"]]
    order.insert(place, tmp_path / "kernel.log")
    read_one_by_one(tmp_path / "store", *order)
    with open_store(tmp_path / "store") as store:
        rows = Analysis(store).failure_rows
    assert [(row["cluster"], row["job_id"], row["node"]) for row in rows] == blamed


SHOWN = """\
JobId=17 JobName=b
   UserId=v(1001) GroupId=v(1001) MCS_label=N/A
   Priority=1 Nice=0 Account=x QOS=normal
   JobState=NODE_FAIL Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0
   RunTime=02:00:00 TimeLimit=1-00:00:00 TimeMin=N/A
   SubmitTime=2026-11-01T10:00:00 EligibleTime=2026-11-01T10:00:00
   StartTime=2026-11-01T10:00:00 EndTime=2026-11-01T12:00:00 Deadline=N/A
   Partition=p AllocNode:Sid=login:1
   ReqNodeList=(null) ExcNodeList=n[7-8]
   NodeList=n1
   NumNodes=1 NumCPUs=64 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   ReqTRES=cpu=64,node=1,gres/gpu=8
   AllocTRES=cpu=64,node=1,gres/gpu=8
   Command=/runs/b/x.sh
   WorkDir=/runs/b
"""


@pytest.mark.parametrize("order", [("shown", "beta"), ("beta", "shown")])
def test_what_a_log_without_names_knows_of_a_job_is_kept(tmp_path: Path, logs, order):
    (tmp_path / "shown.txt").write_text(SHOWN)
    both = {"shown": tmp_path / "shown.txt", "beta": logs["beta"]}
    store = tmp_path / "store"
    for name in order:
        done = ettr("ingest", store, both[name], "--timezone", "UTC")
        assert done.code == 0, done.err
    with open_store(store) as opened:
        row = Analysis(opened).facts.row("attempts")
    assert (row["cluster"], row["state"], row["n_gpus"]) == ("beta", "NODE_FAIL", 8)
    assert (row["excluded_nodes"], row["work_dir"]) == ("n[7-8]", "/runs/b")
    assert row["time_limit_s"] == 86_400.0


def test_what_was_measured_of_one_cluster_is_not_measured_of_the_other(tmp_path: Path, logs):
    store = tmp_path / "store"
    assert ettr("ingest", store, *logs.values(), "--timezone", "UTC").code == 0
    of = {
        name: ettr("nodes", store, "--cluster", name, "--json").json for name in ("alpha", "beta")
    }
    assert (of["alpha"]["down_share"], of["alpha"]["unplanned_node_hours"]) == (None, None)
    assert of["beta"]["unplanned_node_hours"] == 1.0
    both = ettr("nodes", store, "--json").json
    # nodes of alpha are in service as long as those of beta, and nobody knows how long they were
    assert both["in_service_node_hours"] == 2 * of["beta"]["in_service_node_hours"]
    assert both["measured_node_hours"] == of["beta"]["measured_node_hours"]
    assert both["down_share"] == of["beta"]["down_share"] > 0.0
    shown = " ".join(ettr("nodes", store, "--detail").out.split())
    assert "No node states of alpha were read: outages there are unknown" in shown
    assert ettr("report", "--detail", store, "--output", tmp_path / "page.html").code == 0
    page = " ".join((tmp_path / "page.html").read_text().split())
    assert "No node states of alpha were read: outages there are unknown" in page
