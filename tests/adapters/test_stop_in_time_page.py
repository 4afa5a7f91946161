"""The page about stopping in time: its job script run with Slurm's commands stood in for."""

import os
import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "stop-in-time.md"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


@pytest.mark.parametrize(("status", "requeued"), [(75, True), (0, False), (1, False)])
def test_the_job_is_requeued_on_the_status_of_a_run_that_was_asked_to_end(
    status: int, requeued: bool, tmp_path: Path
) -> None:
    for name, body in (("srun", f"exit {status}"), ("scontrol", f'echo "$@" > {tmp_path}/said')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
    ended = subprocess.run(["sh", "-c", block("sh")], env=environment, check=False)
    assert ended.returncode == status
    assert (tmp_path / "said").exists() == requeued
    if requeued:
        assert (tmp_path / "said").read_text() == "requeue 17\n"


def test_the_grace_of_the_pod_and_the_status_are_where_kubernetes_reads_them() -> None:
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load(block("yaml"))["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    ignored = spec["podFailurePolicy"]["rules"][0]
    assert ignored["action"] == "Ignore"
    assert ignored["onExitCodes"] == {
        "containerName": container["name"],
        "operator": "In",
        "values": [75],
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # what a failure policy needs
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 120
