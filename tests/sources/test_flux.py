"""Flux: a listing that is read again, a job a line, and what no listing says."""

import json
from pathlib import Path

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

SUBMIT = 1772359200.0
JOB = {"id": 7, "userid": 1, "t_submit": SUBMIT, "t_depend": SUBMIT, "name": "a", "duration": 0.0}
OPEN = JOB | {"state": "RUN", "t_run": SUBMIT + 60, "nnodes": 2, "nodelist": "n[1-2]"}
DONE = OPEN | {"state": "INACTIVE", "result": "COMPLETED", "t_cleanup": SUBMIT + 3660}


def totals(store: Path) -> dict[str, float]:
    done = ettr("report", store, "--json")
    assert done.code == 0, done.err
    found: dict[str, float] = done.json["totals"]
    return found


@pytest.mark.parametrize("lines", [True, False])
def test_a_job_that_ended_replaces_its_open_row(tmp_path: Path, lines: bool):
    for name, job in (("first.json", OPEN), ("second.json", DONE)):
        text = json.dumps(job) if lines else json.dumps({"jobs": [job]}, indent=1)
        (tmp_path / name).write_text(text + "\n")
        done = ettr("ingest", tmp_path / "store", tmp_path / name)
        assert done.code == 0, done.err
    found = totals(tmp_path / "store")
    # two nodes for an hour; the listing names no GPUs, so there are no GPU-hours
    assert (found["attempts"], found["node_hours"]) == (1, 2.0)
    assert not found["gpu_hours"]


def test_whole_nodes_have_the_gpus_that_the_user_says(tmp_path: Path):
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [DONE]}))
    done = ettr("ingest", tmp_path / "store", tmp_path / "jobs.json", "--gpus-per-node", 4)
    assert done.code == 0, done.err
    assert totals(tmp_path / "store")["gpu_hours"] == 8.0


def test_a_node_failure_is_a_failure_of_the_infrastructure(tmp_path: Path):
    lost = DONE | {"result": "FAILED", "exception_type": "node-failure", "exception_occurred": True}
    own = DONE | {"id": 8, "result": "FAILED", "exception_type": "exec", "exception_occurred": True}
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [lost, own]}))
    assert ettr("ingest", tmp_path / "store", tmp_path / "jobs.json").code == 0
    assert ettr("failures", tmp_path / "store", "--json").json["all_jobs"]["failures"] == 1
