"""A heterogeneous job is one job: counted once, blamed on the node that failed, none of it lost."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.errors import UsageError
from ettr.metrics.runs import JobRun
from ettr.selection import Selection
from ettr.store import open_store

pytestmark = pytest.mark.slow

HEAD = (
    "JobID|JobIDRaw|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|"
    "AllocTRES\n"
)
DAY = "2026-11-01T"


def part(
    offset: int,
    state: str,
    begins: str,
    ends: str,
    elapsed_s: int,
    nodes: str,
    gpus: int,
    job: int = 32,
    submit: str | None = None,
) -> str:
    cells = (f"{job}+{offset}", job + offset, "het", "ann", "alpha", state)
    times = (DAY + (submit or begins), DAY + begins, DAY + ends, elapsed_s)
    n_nodes = 2 if "[" in nodes else 1
    return "|".join(map(str, (*cells, *times, n_nodes, nodes, f"gres/gpu={gpus}"))) + "\n"


LOST = part(0, "NODE_FAIL", "10:00:00", "22:00:00", 43200, "n1", 1) + part(
    1, "NODE_FAIL", "10:00:00", "22:00:00", 43200, "n6", 4
)
AGAIN = part(0, "COMPLETED", "22:10:00", "23:10:00", 3600, "n1", 1, submit="22:00:01") + part(
    1, "COMPLETED", "22:10:00", "23:10:00", 3600, "n7", 4, submit="22:00:02"
)
OTHER = (
    "40|40|other|bob|alpha|COMPLETED|2026-11-01T00:00:00|2026-11-01T00:00:00|"
    "2026-11-02T00:00:00|86400|1|n2|gres/gpu=8\n"
)
EVENTS = (
    "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    "alpha|n6|2026-11-01T22:00:00|2026-11-01T23:00:00|DOWN*|Not responding|root(0)\n"
)


def ingested(folder: Path, *, store: str = "store", **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name).write_text(text)
    files = [folder / name for name in texts]
    done = ettr("ingest", folder / store, *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / store


@contextmanager
def analysed(store: Path) -> Iterator[Analysis]:
    with open_store(store) as opened:
        yield Analysis(opened)


@pytest.fixture(scope="module", params=["store", "store.duckdb"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("het")
    texts = {"sacct": HEAD + LOST + AGAIN + OTHER, "events": EVENTS}
    return ingested(folder, store=request.param, **texts)


@pytest.fixture(scope="module")
def analysis(store: Path) -> Iterator[Analysis]:
    with analysed(store) as made:
        yield made


def failed(made: Analysis) -> list[tuple[str, str | None, int]]:
    return [(row["job_id"], row["node"], row["n_gpus"]) for row in made.failure_rows]


def het_run(made: Analysis) -> JobRun:
    (run,) = [run for run in made.runs.runs if run.name == "het"]
    return run


def test_one_failure_is_counted_once_and_only_the_dead_node_is_blamed(analysis):
    assert failed(analysis) == [("32", "n6", 5)]
    (row,) = analysis.failure_rows
    assert row["n_nodes"] == 2
    assert analysis.rates.all_jobs.failures == 1


def test_it_is_one_job_in_two_attempts_and_one_run(analysis):
    assert (analysis.totals.jobs, analysis.totals.attempts) == (2, 3)
    run = het_run(analysis)
    assert (run.job_ids, run.attempts, run.n_gpus) == (("32",), 2, 5)
    assert {c.size.label for c in analysis.sizes.classes} == {"5-8"}


def test_hours_are_those_of_the_parts(analysis):
    node_hours = 2 * 12 + 2 * 1 + 24
    assert analysis.totals.gpu_hours == pytest.approx(12 * 5 + 1 * 5 + 24 * 8)
    assert analysis.totals.node_hours == pytest.approx(node_hours)
    assert analysis.exposure.node_hours == pytest.approx(node_hours)


def test_parts_that_ran_for_different_times_lose_no_hours(tmp_path: Path):
    early = part(0, "COMPLETED", "10:00:00", "11:00:00", 3600, "n1", 1)
    late = part(1, "COMPLETED", "10:00:00", "12:00:00", 7200, "n[6-7]", 16)
    with analysed(ingested(tmp_path, sacct=HEAD + early + late)) as made:
        assert made.totals.gpu_hours == pytest.approx(1 + 32)
        assert made.totals.node_hours == pytest.approx(1 + 4)
        assert made.exposure.node_hours == pytest.approx(1 + 4)
        (state,) = made.status.states
        assert (state.attempts, state.gpu_hours) == (1, pytest.approx(33))
        assert (het_run(made).suspended_h, het_run(made).scheduled_h) == (0, 2)


def test_a_head_that_outlives_its_workers_holds_one_node(tmp_path: Path):
    """A head without GPUs for 12 h, and two nodes of eight for the first hour: 14 node-hours."""
    head = part(0, "COMPLETED", "10:00:00", "22:00:00", 43200, "n1", 0)
    workers = part(1, "COMPLETED", "10:00:00", "11:00:00", 3600, "n[6-7]", 16)
    with analysed(ingested(tmp_path, sacct=HEAD + head + workers)) as made:
        (state,), (size,), (mttf,) = made.status.states, made.sizes.classes, made.mttf.classes
        assert (state.node_hours, state.gpu_hours) == (14.0, 16.0)
        assert (size.node_hours, size.gpu_hours, size.job_hours) == (14.0, 16.0, 12.0)
        # it is one job that ran for 12 h, on 14/12 nodes in the mean
        assert (mttf.job_hours, mttf.node_days) == (12.0, pytest.approx(14 / 24))
        assert mttf.mean_nodes == pytest.approx(14 / 12)
        assert (made.totals.node_hours, made.totals.gpu_hours) == (14.0, 16.0)
        run = het_run(made)
        assert (run.scheduled_h, run.gpu_hours) == (12.0, 16.0)
        assert made.quality.attempt_node_hours == made.quality.allocation_node_hours == 14.0
        assert made.quality.clocks.attempts_elapsed_mismatch == 0


def test_a_failure_of_several_parts_belongs_whole_to_the_period_of_its_end(tmp_path: Path):
    """Failed by its owner at 22:00; the GPUs ran before the period."""
    head = part(0, "FAILED", "10:00:00", "22:00:00", 43200, "n1", 0)
    workers = part(1, "FAILED", "10:00:00", "11:00:00", 3600, "n[6-7]", 16)
    with open_store(ingested(tmp_path, sacct=HEAD + head + workers)) as opened:
        half = Selection(since=datetime(2026, 11, 1, 16, tzinfo=UTC))
        made = Analysis(opened, selection=half)
        assert (made.totals.node_hours, made.totals.gpu_hours) == (6.0, 0.0)
        assert made.user_failures.gpu_hours == 16.0


HEAD_OF_WORKERS = part(0, "COMPLETED", "10:00:00", "22:00:00", 43200, "n1", 0) + part(
    1, "COMPLETED", "10:00:00", "11:00:00", 3600, "n[6-7]", 16
)
"""A head without GPUs for 12 h, and two nodes of eight for the first hour of them."""


def hours_by_state_and_size(made: Analysis) -> list[tuple[float | None, float | None]]:
    """Node-hours and GPU-hours, by the end states and by the sizes, each summed, and in all."""
    kinds = (made.status.states, made.sizes.classes, [made.totals])
    return [
        (sum(one.node_hours or 0 for one in kind), sum(one.gpu_hours or 0 for one in kind))
        for kind in kinds
    ]


@pytest.fixture(scope="module")
def head_and_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("parts"), sacct=HEAD + HEAD_OF_WORKERS + OTHER)


@pytest.mark.parametrize(
    ("selection", "node_hours", "gpu_hours"),
    [
        (Selection(until=datetime(2026, 11, 1, 10, 30, tzinfo=UTC)), 1.5, 8.0),
        (Selection(since=datetime(2026, 11, 1, 10, 30, tzinfo=UTC)), 12.5, 8.0),
        (Selection(since=datetime(2026, 11, 1, 16, tzinfo=UTC)), 6.0, 0.0),
        (Selection(node=("n1",)), 12.0, 0.0),
        (Selection(node=("n6",)), 1.0, 8.0),
        (Selection(node=("n1", "n6"), until=datetime(2026, 11, 1, 10, 30, tzinfo=UTC)), 1.0, 4.0),
        (Selection(), 14.0, 16.0),
    ],
)
def test_what_is_selected_of_a_job_is_what_its_parts_held(
    head_and_workers: Path, selection: Selection, node_hours: float, gpu_hours: float
):
    """A period, and some nodes, cut each part by itself, and not the whole in proportion."""
    with open_store(head_and_workers) as opened:
        if not selection.node:
            # without the other job's
            selection = replace(selection, user=("ann",))
        made = Analysis(opened, selection=selection)
        found = hours_by_state_and_size(made)
    assert found == [pytest.approx((node_hours, gpu_hours))] * 3


def test_unequal_parts_without_a_count_of_gpus_hold_an_unknown_number(tmp_path: Path):
    """The workers do not say theirs; after they are gone the head alone holds none."""
    workers = part(1, "COMPLETED", "10:00:00", "11:00:00", 3600, "n[6-7]", 16)
    texts = HEAD + HEAD_OF_WORKERS.splitlines(keepends=True)[0]
    texts += workers.replace("gres/gpu=16", "") + OTHER
    with open_store(ingested(tmp_path, sacct=texts)) as opened:
        for hour, gpu_hours in ((10, None), (16, 0.0)):
            since = datetime(2026, 11, 1, hour, tzinfo=UTC)
            made = Analysis(opened, selection=Selection(since=since, user=("ann",)))
            (state,) = made.status.states
            assert state.gpu_hours == gpu_hours


@pytest.mark.parametrize("asked", ["32", "32+0", "32+1", "33", "alpha/32+1"])
def test_explain_tells_the_whole_job_by_any_of_its_ids(analysis, asked: str):
    history = analysis.explain(asked)
    assert history.job_id == "32"
    assert [attempt.nodes for attempt in history.attempts] == [("n1", "n6"), ("n1", "n7")]
    assert [attempt.state for attempt in history.attempts] == ["NODE_FAIL", "COMPLETED"]


def test_an_id_of_another_cluster_is_no_part(analysis):
    with pytest.raises(UsageError, match="no job 'beta/33'"):
        analysis.explain("beta/33")


def test_lines_of_the_controller_that_name_a_part_speak_of_the_job(tmp_path: Path):
    log = (
        f"[{DAY}21:59:59.500] error: Nodes n6 not responding, setting DOWN\n"
        f"[{DAY}22:00:00.100] Killing JobId=32+0(32) on failed node n6\n"
        f"[{DAY}22:00:00.100] Killing JobId=32+1(33) on failed node n6\n"
    )
    with analysed(ingested(tmp_path, sacct=HEAD + LOST, controller=log)) as made:
        assert failed(made) == [("32", "n6", 5)]


@pytest.mark.parametrize(("job", "cluster"), [("32", "alpha"), ("32+0", "alpha"), ("33", None)])
def test_progress_of_any_part_is_the_jobs(tmp_path: Path, job: str, cluster: str | None):
    begin = 1793527200.0  # 2026-11-01T10:00:00Z
    lines = [
        {"v": 1, "run": "r", "cluster": cluster, "job": job, "rank": 0}
        | {"time": begin + 600 * n, "event": "step", "step": n, "duration_s": 600}
        for n in range(1, 73)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with analysed(ingested(tmp_path, sacct=HEAD + LOST + OTHER, progress=text)) as made:
        assert het_run(made).basis == "progress"
        assert made.runs.measured_runs == 1


def test_a_preemption_for_a_het_job_is_linked_whatever_part_the_log_names(tmp_path: Path):
    victim = (
        "50|50|low|eve|alpha|PREEMPTED|2026-11-01T12:00:00|2026-11-01T12:00:00|"
        "2026-11-01T22:09:58|36598|1|n7|gres/gpu=8\n"
    )
    log = (
        f"[{DAY}22:00:00.100] Killing JobId=32+1(33) on failed node n6\n"
        f"[{DAY}22:09:58.000] preempted JobId=50 has been killed to reclaim resources for "
        "JobId=32+1(33)\n"
    )
    text = HEAD + LOST + AGAIN + victim
    with analysed(ingested(tmp_path, sacct=text, controller=log)) as made:
        (link,) = made.goodput.preemption_links.links
    assert (link.failed_job_id, link.from_log) == ("32", True)


def test_columns_of_het_ids_say_what_job_ids_do_not(tmp_path: Path):
    """Dumps by other tools keep Slurm's own numbers and name the whole in columns."""
    head = HEAD.replace("JobID|JobIDRaw|", "JobID|HetJobID|HetJobOffset|")
    rows = LOST.replace("32+0|32|", "32|32|0|").replace("32+1|33|", "33|32|1|")
    other = OTHER.replace("40|40|", "40|0||")
    with analysed(ingested(tmp_path, sacct=head + rows + other, events=EVENTS)) as made:
        assert failed(made) == [("32", "n6", 5)]
        assert made.explain("33").job_id == "32"
        assert made.explain("40").job_id == "40"


def scontrol() -> str:
    """Both parts as `scontrol show job` has them."""
    parts = ((32, 0, "n1", 1), (33, 1, "n6", 4))
    return "\n".join(
        f"JobId={job} HetJobId=32 HetJobOffset={offset} JobName=het\n"
        "   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A\n"
        "   JobState=NODE_FAIL Reason=NodeDown Dependency=(null)\n"
        "   Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n"
        "   RunTime=12:00:00 TimeLimit=1-00:00:00 TimeMin=N/A\n"
        f"   SubmitTime={DAY}10:00:00 EligibleTime={DAY}10:00:00\n"
        f"   StartTime={DAY}10:00:00 EndTime={DAY}22:00:00 Deadline=N/A\n"
        f"   ReqNodeList=(null) ExcNodeList=(null)\n   NodeList={node}\n"
        "   NumNodes=1 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n"
        f"   TRES=cpu=2,node=1,gres/gpu={gpus}\n   Command=(null)\n   WorkDir=/home/ann\n"
        for job, offset, node, gpus in parts
    )


def sacct_json() -> str:
    """Both parts as `sacct --json` has them."""
    begin = 1793527200
    jobs = [
        {
            "job_id": job,
            "het": {"job_id": 32, "job_offset": {"set": True, "infinite": False, "number": offset}},
            "array": {"job_id": 0, "task_id": {"set": False, "number": 0}},
            "association": {"user": "ann"},
            "cluster": "alpha",
            "name": "het",
            "nodes": node,
            "allocation_nodes": 1,
            "state": {"current": ["NODE_FAIL"], "reason": "None"},
            "time": {"submission": begin, "start": begin, "end": begin + 43200, "elapsed": 43200},
            "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": gpus}]},
            "derived_exit_code": {"return_code": 0},
            "steps": [],
        }
        for job, offset, node, gpus in ((32, 0, "n1", 1), (33, 1, "n6", 4))
    ]
    return json.dumps({"meta": {}, "jobs": jobs})


def gcm() -> str:
    """Both parts as GCM's copy of sacct has them."""
    rows = [
        {"JobID": f"32+{offset}", "JobIDRaw": str(32 + offset), "JobName": "het", "User": "ann"}
        | {"State": "NODE_FAIL", "Submit": f"{DAY}10:00:00", "Start": f"{DAY}10:00:00"}
        | {"End": f"{DAY}22:00:00", "ElapsedRaw": "43200", "NNodes": "1", "NodeList": node}
        | {"AllocTRES": f"gres/gpu={gpus}"}
        for offset, node, gpus in ((0, "n1", 1), (1, "n6", 4))
    ]
    return "".join(json.dumps({"sacct": row, "cluster": "alpha"}) + "\n" for row in rows)


@pytest.mark.parametrize("make", [scontrol, sacct_json, gcm])
def test_every_format_that_names_parts_gives_one_job(make: Callable[[], str], tmp_path: Path):
    with analysed(ingested(tmp_path, jobs=make(), events=EVENTS)) as made:
        assert failed(made) == [("32", "n6", 5)]
        assert (made.totals.jobs, made.totals.gpu_hours) == (1, 60)
