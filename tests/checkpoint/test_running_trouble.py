"""The running checkpoint where something fails, is late, or is called seldom."""

import errno
import os
import threading
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError, verify

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.adapters import CheckpointedRun  # noqa: E402
from ettr.checkpoint import Budget, RunningCheckpoint, TrainingState, restore  # noqa: E402
from ettr.checkpoint.slots.durable_io import OsDisk  # noqa: E402
from held_value import HeldValue  # noqa: E402


class MovingDisk(OsDisk):
    """A disk that waits, or fails, when it is asked to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.full = False

    def fdatasync(self, fd: int) -> None:
        self.go.wait(300)
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().fdatasync(fd)


def test_save_all_tries_again_after_a_failed_round(tmp_path: Path) -> None:
    disk, table, position = MovingDisk(), torch.zeros(8), HeldValue(0)
    state = {"w": table, "loader": position}
    with RunningCheckpoint(tmp_path, state, policy="full", disk=disk) as rc:
        rc.save_all(0)
        disk.full = True
        position.value = 1
        rc.step(1)
        with pytest.raises(CheckpointError, match="No space"):
            rc.wait()
        with pytest.raises(CheckpointError, match="No space"):
            rc.save_all(2)
        disk.full = False
        table += 1
        position.value = 3
        assert rc.save_all(3).error is None
    position.value = None
    report = restore(tmp_path, {"w": torch.zeros(8), "loader": position})
    assert (report.oldest_step, position.value, report.objects_step) == (3, 3, 3)


def test_a_slot_without_blocks_keeps_its_objects(tmp_path: Path) -> None:
    """Under plain data parallelism there may be more replicas than blocks."""
    model = nn.Linear(2, 2, bias=False)
    for rank in range(2):
        state = TrainingState.of({"model": model, "loader": HeldValue(rank)}, replica=(rank, 2))
        with RunningCheckpoint(tmp_path, state, slot=rank) as rc:
            rc.save_all(5)
    for rank in range(2):
        position = HeldValue()
        restore(tmp_path, {"model": model, "loader": position}, objects_of=rank)
        assert position.value == rank


def test_no_room_when_moments_appear_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch
) -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunningCheckpoint(tmp_path, TrainingState(model, optimizer), policy="full") as rc:
        rc.save_all(0)
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        monkeypatch.setattr(os, "posix_fallocate", full)
        for step in (1, 2):
            error = rc.step(step).error
            assert "No space left on device; free that much" in error
            assert {age.step for age in rc.ages()} == {0}
        monkeypatch.undo()
        assert not rc.step(3).skipped
        rc.wait()
        assert {age.step for age in rc.ages()} == {3}
    restore(tmp_path, TrainingState(model, optimizer))


def test_after_closing_nothing_is_saved_and_that_is_an_error(tmp_path: Path) -> None:
    rc = RunningCheckpoint(tmp_path, {"w": torch.zeros(4)}, every_steps=2)
    rc.close()
    for save in (rc.step, rc.save_all):
        for step in (1, 2):
            with pytest.raises(CheckpointError, match="the checkpoint is closed; open it again"):
                save(step)


def test_priority_follows_a_loop_that_calls_only_when_a_round_is_due(tmp_path: Path) -> None:
    """Nobody was there at the step before, when blocks are scored."""
    table = torch.zeros(64, 8)
    with RunningCheckpoint(
        tmp_path, {"w": table}, rows={"w": 4}, every_steps=10, budget=Budget(fraction=0.5)
    ) as rc:
        rc.save_all(0)
        for step in range(10, 80, 10):
            table += torch.arange(1.0, 65)[:, None]
            report = rc.step(step)
            rc.wait()
        assert report.oldest_age_steps is not None
        assert report.oldest_age_steps < 70
        assert len({age.step for age in rc.ages() if age.step}) > 2


def test_movement_is_of_the_step_at_which_it_was_measured(tmp_path: Path) -> None:
    """The disk takes five steps a round: blocks are scored five steps behind the round's."""
    table, disk = torch.zeros(16, 4000), MovingDisk()
    step = 0
    with RunningCheckpoint(
        tmp_path, {"w": table}, rows={"w": 1}, budget=Budget(fraction=1 / 8), disk=disk
    ) as rc:
        rc.save_all(0)
        for _ in range(12):
            disk.go.clear()
            for _ in range(5):
                step += 1
                table += 1.0
                rc.step(step)
            disk.go.set()
            rc.wait()
    live = table.clone()
    by_hand = restore(tmp_path, {"w": live.clone()}, reached_step=step, drill=True)
    estimated = restore(tmp_path, {"w": live}, reached_step=step)
    assert estimated.perturbation.unmeasured == 0
    assert estimated.delta_norm == pytest.approx(by_hand.delta_norm, rel=1e-5)


def test_objects_are_of_the_step_of_their_round(tmp_path: Path) -> None:
    """Not of one at which the writer was busy, nor of one at which no round was due."""
    position, disk = HeldValue(), MovingDisk()
    state = {"w": torch.zeros(8), "loader": position}
    with RunningCheckpoint(tmp_path, state, policy="full", every_steps=2, disk=disk) as rc:
        disk.go.clear()
        for step in (0, 2):
            position.value = step
            skipped = rc.step(step).skipped
        disk.go.set()
        assert skipped
        rc.wait()
        for step in (4, 5, 6, 7):
            position.value = step
            rc.step(step)
            rc.wait()
            report = restore(tmp_path, state)
            assert (position.value, report.objects_step) == (step - step % 2, report.newest_step)


def test_a_disk_that_stays_full_stops_nothing_after_the_loop(tmp_path: Path, caplog) -> None:
    disk, table = MovingDisk(), torch.zeros(8)
    run = CheckpointedRun(tmp_path, {"w": table}, run="a", every_steps=2, disk=disk)
    for step in run.steps(6):
        table += 1
        disk.full = step > 3
    assert [m for m in caplog.messages if m.startswith("the last step is not saved, older copies")]
    assert table.unique().tolist() == [6]
    assert verify(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        CheckpointError, match="slot-0: cannot make it: Not a directory; choose another folder"
    ):
        RunningCheckpoint(tmp_path / "file", {"w": torch.zeros(2)})
