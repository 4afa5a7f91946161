"""What belongs to a job stays with it, and with no other: who cancelled it, its next submission."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.store import open_store

pytestmark = pytest.mark.slow

HEAD = (
    "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES|"
    "WorkDir|SubmitLine\n"
)
DAY = "2026-11-01T"


def job(
    job_id: str,
    state: str,
    ran: tuple[str, str],
    nodes: str = "n1",
    *,
    user: str = "ann",
    name: str = "job",
    cluster: str = "alpha",
    line: str = "sbatch train.sh",
) -> str:
    """One record; 8 GPUs a node."""
    begins, ends = ran
    hours, minutes = (
        int(e) - int(b) for b, e in zip(begins.split(":"), ends.split(":"), strict=True)
    )
    n_nodes = 2 if "[" in nodes else 1
    cells = (job_id, name, user, cluster, state, DAY + begins + ":00", DAY + begins + ":00")
    more = (DAY + ends + ":00", hours * 3600 + minutes * 60, n_nodes, nodes)
    return "|".join(map(str, (*cells, *more, f"gres/gpu={8 * n_nodes}", "/w", line))) + "\n"


@contextmanager
def site(folder: Path, **texts: str) -> Iterator[Analysis]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    files = [folder / name for name in texts]
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    with open_store(folder / "store") as store:
        yield Analysis(store)


def kinds(made: Analysis) -> dict[str, str]:
    return {row["job_id"]: row["kind"] for row in made.facts.rows("all_endings")}


def test_who_cancelled_is_read_from_the_controllers_log(tmp_path: Path):
    """Accounting forgot `by 0` when the controller was restarted."""
    ended = ("10:00", "11:00")
    sacct = (
        job("14", "CANCELLED", ended)
        + job("15", "CANCELLED", ended, user="bob")
        + job("16", "CANCELLED", ended)
        + job("17", "CANCELLED by 1001", ended)
        + job("18", "COMPLETED", ended)
        + job("5_1", "CANCELLED", ended)
        + job("19", "CANCELLED", ("10:00", "15:00"))
    )
    log = "".join(
        f"[{DAY}10:59:50.000] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={job_id} uid {uid}\n"
        # 19: a signal hours before its end is not why it ended
        for job_id, uid in (("14", 0), ("15", 34), ("16", 1000), ("17", 0), ("18", 0), ("5_*", 0))
    )
    log += f"[{DAY}10:59:50.000] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=19 uid 0\n"
    with site(tmp_path, sacct=HEAD + sacct, controller=log) as made:
        rows = made.facts.rows("attempts")
        cancelled_by = {row["job_id"]: row["cancelled_by"] for row in rows}
        assert cancelled_by == {
            "14": "0",
            "15": "34",
            "16": "1000",
            "17": "1001",  # what the accounting says stands
            "18": None,
            "5_1": "0",
            "19": None,
        }
        # by root: an operator's act; by one user of whom nothing else is known: the owner's wish
        assert kinds(made) == {"14": "operator", "5_1": "operator"}


def test_without_the_log_a_cancel_is_the_owners_wish(tmp_path: Path):
    with site(tmp_path, sacct=HEAD + job("14", "CANCELLED", ("10:00", "11:00"))) as made:
        assert kinds(made) == {}


FOR_61 = "preempted JobId=50 has been killed to reclaim resources for JobId=61\n"
VICTIM = job("50", "PREEMPTED", ("10:00", "12:04"), "n7", user="eve", name="low")
LOST = job("60", "NODE_FAIL", ("08:00", "12:00"), "n[6-7]", name="big")
AGAIN = job("61", "COMPLETED", ("12:05", "13:05"), "n[7-8]", name="big")


def test_second_order_loss_is_found_where_the_user_resubmits(tmp_path: Path):
    """4 GPU-hours: half an hour of 8 GPUs; and the job that failed loses half an hour of 16."""
    with site(tmp_path, sacct=HEAD + VICTIM + LOST + AGAIN) as made:
        (link,) = made.goodput.preemption_links.links
        assert (link.failed_job_id, link.from_log) == ("60", False)
        assert made.goodput.first_order_gpu_hours == pytest.approx(8.0)
        assert made.goodput.second_order_gpu_hours == pytest.approx(4.0)


def test_the_log_names_the_new_job(tmp_path: Path):
    log = f"[{DAY}12:04:00.000] {FOR_61}"
    with site(tmp_path, sacct=HEAD + VICTIM + LOST + AGAIN, controller=log) as made:
        (link,) = made.goodput.preemption_links.links
        assert (link.failed_job_id, link.from_log) == ("60", True)


def test_another_users_job_is_no_restart(tmp_path: Path):
    other = job("61", "COMPLETED", ("12:05", "13:05"), "n[7-8]", name="big", user="bob")
    with site(tmp_path, sacct=HEAD + VICTIM + LOST + other) as made:
        assert made.goodput.preemption_links.links == ()


def test_a_preemption_of_another_cluster_is_not_linked(tmp_path: Path):
    """The ids are the same, the cluster is not."""
    beta = "".join(
        job(job_id, state, ran, "n1", user="zoe", cluster="beta")
        for job_id, state, ran in (
            ("50", "PREEMPTED", ("10:00", "12:04")),
            ("61", "COMPLETED", ("12:05", "13:05")),
        )
    )
    log = (
        f"[{DAY}09:00:00.000] slurmctld version 22.05.8 started on cluster beta\n"
        f"[{DAY}12:04:00.000] {FOR_61}"
    )
    quiet = VICTIM.replace("n7", "n9")
    with site(tmp_path, sacct=HEAD + quiet + LOST + AGAIN + beta, controller=log) as made:
        assert made.goodput.preemption_links.links == ()
        assert made.goodput.preemption_links.named_by_log == 1


def test_failures_of_one_task_under_new_ids_are_one_crash_loop(tmp_path: Path):
    """Three jobs of a chain, each lost on the same node: one loop of three failures."""
    others = [f"--dependency=afternotok:{n}" for n in (70, 71)]
    spans = (("08:00", "09:00"), ("09:10", "10:00"), ("10:10", "11:00"))
    chain = "".join(
        job(str(70 + n), "NODE_FAIL", ran, "n[6-7]", name="big", line=f"sbatch {option} big.sh")
        for n, (ran, option) in enumerate(zip(spans, ("", *others), strict=True))
    )
    calm = job("90", "COMPLETED", ("00:00", "23:00"), "n9", user="bob")
    log = "".join(
        f"[{DAY}{ran[1]}:01.000] Killing JobId={70 + n} on failed node n6\n"
        for n, ran in enumerate(spans)
    )
    with site(tmp_path, sacct=HEAD + chain + calm, controller=log) as made:
        (loop,) = made.goodput.crash_loops
    assert (loop.failures, loop.job_id, loop.job_ids) == (3, "72", ("70", "71", "72"))
    assert loop.node == "n6"
    assert loop.run_hours == pytest.approx(1 + 50 / 60 + 50 / 60)


def test_explain_shows_each_attempt_its_own_lines(tmp_path: Path):
    """The second attempt failed on the node of the first; another job was lost there too."""
    sacct = (
        job("80", "NODE_FAIL", ("08:00", "09:00"), "n[6-7]")
        + job("80", "NODE_FAIL", ("09:03", "09:04"), "n[6-7]")
        + job("81", "NODE_FAIL", ("08:30", "09:00"), "n6", user="bob")
    )
    times = {"80": ("09:00:01", "09:04:01"), "81": ("09:00:02",)}
    log = "".join(
        f"[{DAY}{at}.000] Killing JobId={job_id} on failed node n6\n"
        for job_id, stamps in times.items()
        for at in stamps
    )
    with site(tmp_path, sacct=HEAD + sacct, controller=log) as made:
        told = {
            job_id: [
                [(one.role, f"{one.time:%H:%M:%S}") for one in attempt.observed]
                for attempt in made.explain(job_id).attempts
            ]
            for job_id in ("80", "81")
        }
    assert told["80"] == [[("named", "09:00:01")], [("named", "09:04:01")]]
    assert told["81"] == [[("named", "09:00:02")]]
