"""Attribution of what real controllers wrote, read by the package's own sources."""

from collections import Counter
from pathlib import Path

import pytest

from attribution.attribution_tables import by_job
from ettr.attribution.job_history import explain, failure_rows
from ettr.facts import Facts
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store.opening import open_store
from fact_tables import attributed
from shared_data import shared

CAPTURED = ("sacct_all_D.psv", "slurmctld.log", "sacctmgr_event_all.psv")
TABLES = ("attempts", "allocations", "events", "node_states", "files")


def read(folder: Path, files: list[Path], options: ReadOptions) -> Facts:
    store = open_store(folder / "store", create=True)
    for file in files:
        ingest_file(store, file, options)
    return attributed({name: store.rows(name) for name in TABLES})


@pytest.mark.slow
def test_a_captured_slurm_is_told_as_it_was(tmp_path: Path) -> None:
    # node2, node4 and node6 were killed under jobs 17 (requeued) and 18; 14 was preempted for 15;
    # 9 asked for its requeue by exit code 99, 13 was requeued by an operator; 2, 3 and 7_2 failed
    folder = shared("data/slurm_capture")
    files = [folder / name for name in CAPTURED]
    facts = read(tmp_path, files, ReadOptions(timezone="UTC"))
    ends = by_job(facts.rows("all_endings"))
    kinds = {job: (row["state"], row["kind"]) for job, row in ends.items()}
    assert kinds == {
        "2": ("FAILED", "hardware-candidate"),
        "3": ("FAILED", "hardware-candidate"),
        "5": ("OUT_OF_MEMORY", "user-failure"),
        "6": ("CANCELLED", "operator"),
        "7_2": ("FAILED", "hardware-candidate"),
        "13": ("REQUEUED", "operator"),
        "14": ("PREEMPTED", "preemption"),
        "17": ("NODE_FAIL", "hardware-candidate"),
        "18": ("NODE_FAIL", "hardware-candidate"),
        "20": ("OUT_OF_MEMORY", "user-failure"),
        "21": ("FAILED", "user-failure"),
    }
    failed = {
        job: (row["node"], row["symptom"]) for job, row in by_job(failure_rows(facts)).items()
    }
    assert failed == {"17": ("node2", "unattributed"), "18": ("node4", "unattributed")}

    told = explain(facts, "17")
    assert [run.state for run in told.attempts] == ["NODE_FAIL", "COMPLETED"]
    (said,) = [one for one in told.attempts[0].observed if one.code == "NODE_FAIL"]
    assert (said.where, said.node) == ("slurmctld.log:132", "node2")


@pytest.mark.slow
def test_accounting_alone_knows_the_failures_and_not_the_nodes(tmp_path: Path) -> None:
    folder = shared("data/slurm_capture")
    facts = read(tmp_path, [folder / "sacct_jobs_X_D.psv"], ReadOptions(timezone="UTC"))
    found = by_job(failure_rows(facts))
    assert {job: (row["node"], row["symptom"]) for job, row in found.items()} == {
        "17": (None, "unattributed"),
        "18": (None, "unattributed"),
    }


@pytest.mark.slow
def test_a_real_log_without_events_blames_no_hardware_for_what_users_did(tmp_path: Path) -> None:
    file = shared("data/traces/xdmod_slurm/phillips.log.zst")
    facts = read(tmp_path, [file], ReadOptions(timezone="UTC"))
    interrupted = [row["state"] for row in facts.rows("all_endings")]
    assert Counter(interrupted)["FAILED"] == 1717
    assert {row["state"] for row in failure_rows(facts)} <= {"NODE_FAIL"}
