"""Every rank is killed at once: no shard lives, and the job goes on from what is on the disk."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastic_runs import STEPS, Outcome, train

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

KILL_AFTER = 13
HOLD = 15  # none goes further before it is killed, however late that is noticed
FULL = 8


def steps_by_pid(folder: Path) -> dict[int, int]:
    found = {}
    for path in folder.glob("log-*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        steps = [one["step"] for one in lines if one["event"] == "step"]
        if steps:
            found[int(path.stem.rpartition("-")[2])] = max(steps)
    return found


@contextmanager
def all_killed_once(folder: Path) -> Iterator[dict[int, int]]:
    """SIGKILL every rank as soon as each has done `KILL_AFTER` steps; yields whom, and how far.

    The full checkpoint of an earlier step is durable by then.

    How far is known at the end alone: between the look and the kill a rank may do a step.
    """
    killed: dict[int, int] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            reached = steps_by_pid(folder)
            saved = list(folder.glob(f"full/step-*{FULL}/checkpoint.json"))
            if saved and len(reached) == 4 and min(reached.values()) >= KILL_AFTER:
                # first stopped, so that none sees another die
                for number in (signal.SIGSTOP, signal.SIGKILL):
                    for pid in reached:
                        os.kill(pid, number)
                killed.update(reached)
                (folder / "go").touch()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
        killed.update({pid: step for pid, step in steps_by_pid(folder).items() if pid in killed})


def train_and_kill_all(folder: Path, **config) -> tuple[Outcome, dict[int, int]]:
    folder.mkdir()
    with all_killed_once(folder) as killed:
        outcome = train(folder, step_s=0.05, hold=HOLD, settled=True, **config)
    assert len(killed) == 4
    assert {loss.pid for loss in outcome.report.losses} >= set(killed)
    assert {loss.status for loss in outcome.report.losses} == {-signal.SIGKILL}
    last = outcome.generation(outcome.report.generations)
    assert not {rank["pid"] for rank in last} & set(killed)
    assert all(rank["lost_slots"] == [0, 1, 2, 3] for rank in last)
    return outcome, killed


BOTH = {
    "running": True,
    "running_options": {"policy": "round-robin"},
    "running_fraction": 0.5,
    "full_every": FULL,
}


def test_without_leave_the_job_goes_back_to_the_full_checkpoint(tmp_path: Path) -> None:
    outcome, _ = train_and_kill_all(tmp_path / "full", **BOTH)
    for rank in outcome.generation(outcome.report.generations):
        assert (rank["source"], rank["step"]) == ("resume", FULL)
        assert rank["source_bytes"] > 0
    assert len(outcome.final) == 4


def test_with_leave_the_newer_composite_is_taken_and_reports_its_ages(tmp_path: Path) -> None:
    allowed = ["replica", "partial", "rollback", "composite"]
    outcome, killed = train_and_kill_all(tmp_path / "composite", allowed=allowed, **BOTH)
    last = outcome.generation(outcome.report.generations)
    assert {rank["source"] for rank in last} == {"composite"}
    (step,) = {rank["step"] for rank in last}
    # the newest block is of the last step that was logged, or of the one that was under way
    assert max(killed.values()) <= step <= max(killed.values()) + 1
    for rank in last:
        assert rank["lost_steps"] == 0
        assert FULL < rank["oldest"] <= step
        assert 0 <= rank["stale"] <= step - rank["oldest"]
        assert rank["relative"] is not None
        assert rank["reason"].startswith("composite: ")
        assert "steps lost" not in rank["reason"].split(";")[0]
        assert rank["source_bytes"] > 0
    assert max(one["step"] for one in outcome.steps) == STEPS
    assert (tmp_path / "composite" / "full" / "measured.json").exists()


def test_the_ceiling_on_the_perturbation_holds_for_the_composite(tmp_path: Path) -> None:
    allowed = ["replica", "partial", "rollback", "composite"]
    outcome, killed = train_and_kill_all(
        tmp_path / "ceiling", allowed=allowed, max_perturbation=1e-9, **BOTH
    )
    for rank in outcome.generation(outcome.report.generations):
        assert (rank["source"], rank["step"]) == ("resume", FULL)
        assert "over the ceiling of 1e-09" in rank["reason"]
        assert rank["lost_steps"] >= max(killed.values()) - FULL - 1


def test_a_job_that_is_started_again_finds_the_composite_too(tmp_path: Path) -> None:
    """The supervisor is gone as well: the same command, a second time."""
    allowed = ["replica", "partial", "rollback", "composite"]
    folder = tmp_path / "again"
    began_s = time.time()
    config = {
        "allowed": allowed,
        "running": True,
        "running_options": {"policy": "full"},
        "settled": True,
    }
    train(folder, **config)
    outcome = train(folder, steps=STEPS + 4, **config)
    again = [r for r in outcome.recovered if r["generation"] == 1 and r["failed_s"] is None]
    latest = sorted(again, key=lambda r: r["restored_s"])[-4:]
    assert all(rank["restored_s"] > began_s for rank in latest)
    # every block was saved in every step: a composite without mixed ages
    assert {(rank["source"], rank["step"], rank["stale"]) for rank in latest} == {
        ("composite", STEPS, 0.0)
    }
