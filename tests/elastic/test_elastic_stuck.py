"""Ranks that show signs of life and are of no use, and failures that are the script's own."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ettr.elastic import SupervisorOptions, supervise

pytestmark = [pytest.mark.torch, pytest.mark.slow]

RANK = """
import os, sys, time
from pathlib import Path
from ettr.elastic import ElasticGroup, Protection, Timeouts

folder, how = Path(sys.argv[1]), sys.argv[2]

def train(generation):
    (folder / f"seen-{generation.number}-{generation.slot}-{os.getpid()}").touch()
    if how == "broken":
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    first = generation.number == 1
    if first and generation.slot == 1:
        raise RuntimeError("its collective has run into the timeout")
    while first and how == "stuck":
        time.sleep(0.05)
    if first and how == "slow":
        while group._heartbeat.newest == generation.number:
            time.sleep(0.05)
        time.sleep(1)
        raise RuntimeError("the cut has come late")

group = ElasticGroup.from_env(Protection(buddy=False), timeouts=Timeouts(20.0, 120.0, 180.0))
group.run(train)
"""


def run(folder: Path, how: str, **options):
    script = folder / "rank.py"
    script.write_text(RANK)
    return supervise(
        [sys.executable, str(script), str(folder), how],
        2,
        options=SupervisorOptions(spares=1, **options),
        environment={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def pids(folder: Path, generation: int) -> dict[int, int]:
    """Slot -> process of a generation."""
    found = (path.name.split("-") for path in folder.glob(f"seen-{generation}-*"))
    return {int(slot): int(pid) for _, _, slot, pid in found}


def test_who_does_not_leave_a_generation_is_replaced_and_the_others_live(tmp_path):
    report = run(tmp_path, "stuck", failed_grace_s=10.0)
    assert report.finished, report.reason
    (loss,) = report.losses
    assert (loss.slot, loss.cause) == (0, "hung")
    first, last = pids(tmp_path, 1), pids(tmp_path, report.generations)
    assert last[1] == first[1]
    assert last[0] != first[0]


def test_who_leaves_a_generation_late_is_not_replaced(tmp_path):
    # a second after the others were called to the next one; fifteen are allowed
    report = run(tmp_path, "slow", failed_grace_s=15.0)
    assert report.finished, report.reason
    assert report.losses == ()
    assert pids(tmp_path, report.generations) == pids(tmp_path, 1)


def test_a_script_that_fails_on_every_rank_ends_the_run_and_is_heard(tmp_path, capfd):
    report = run(tmp_path, "broken", max_idle_failures=2)
    assert not report.finished
    assert "3 failures in a row without a step" in report.reason
    assert report.losses == ()
    assert "mat1 and mat2 shapes" in capfd.readouterr().err
