"""Checkpoints of the elastic loop: drawn again, done again, damaged, and no room for one."""

import errno
import os
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from ettr.checkpoint import (  # noqa: E402
    CheckedWriter,
    CheckpointError,
    FencedError,
    TrainingState,
    block_ages,
)
from ettr.checkpoint.slots.writer import SlotWriter  # noqa: E402
from ettr.elastic import Generation, Protection  # noqa: E402
from ettr.elastic.recover import full_steps, load_full, save_full  # noqa: E402
from ettr.elastic.rendezvous import Membership  # noqa: E402
from ettr.elastic.shard_image import ShardStore  # noqa: E402
from ettr.errors import UsageError  # noqa: E402
from ettr.recovery.restore_costs import Measuring  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def alone():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def begun(*, from_step=0, **protection):
    """A generation of one rank that has begun to train, and what makes its next step."""
    group = SimpleNamespace(
        stop_reason=None,
        protection=Protection(**protection),
        fingerprints=False,
        shards=ShardStore(),
        timings=Measuring(),
        recovered=lambda *_: None,
        updated=lambda *_: None,
    )
    generation = Generation(group, Membership(1, ("w0",)), 0, dist.HashStore())
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    assert generation.recover(model, optimizer) == from_step

    def train_to(step):
        model(torch.ones(3)).sum().backward()
        with generation.update(step):
            optimizer.step()

    return generation, train_to


def test_a_run_that_starts_at_0_keeps_what_an_earlier_run_has_saved(alone, tmp_path):
    first, train_to = begun(running=tmp_path, running_options={"policy": "full"})
    for step in (1, 2, 3):
        train_to(step)
        first._running.checkpoint.wait()  # no round is skipped, however slow the disk
    first.end()
    with pytest.warns(
        UserWarning, match=r"starts at step 0 although .* holds blocks of steps 3 to 3, .*COMPOSITE"
    ):
        second, train_to = begun(running=tmp_path, running_options={"policy": "full"})
    train_to(1)
    second.end()
    kept = tmp_path / "kept-from-step-3"
    assert {age.step for age in block_ages(kept)} == {3}
    assert {age.step for age in block_ages(tmp_path)} == {1}


def test_an_earlier_run_that_cannot_be_kept_is_not_overwritten(alone, tmp_path, monkeypatch):
    first, train_to = begun(running=tmp_path, running_options={"policy": "full"})
    train_to(1)
    first.end()

    def refused(self, *_):
        raise PermissionError(errno.EACCES, "permission denied")

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(CheckpointError, match=r"is not moved aside .*permission denied"):
        begun(running=tmp_path, running_options={"policy": "full"})
    assert {age.step for age in block_ages(tmp_path)} == {1}


def test_a_full_disk_at_the_first_round_of_a_running_checkpoint_ends_no_run(
    alone, tmp_path, monkeypatch
):
    with monkeypatch.context() as full_disk:
        full_disk.setattr(SlotWriter, "commit", no_space)
        with pytest.warns(UserWarning, match=r"slot 0: .*no space left; training goes on"):
            generation, train_to = begun(running=tmp_path, running_options={"policy": "full"})
    with pytest.warns(UserWarning, match="a round failed"):  # the one before
        train_to(1)  # there is room again
    generation._running.checkpoint.wait()
    generation.end()
    assert {age.step for age in block_ages(tmp_path)} == {1}


def test_no_room_for_a_running_checkpoint_at_the_start_ends_no_run(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    monkeypatch.setattr(os, "ftruncate", no_space)
    with pytest.warns(UserWarning, match=r"slot 0: .*training goes on without it"):
        _, train_to = begun(running=tmp_path, running_options={"policy": "full"})
    train_to(1)


def test_no_room_for_a_file_with_new_moments_ends_no_run(alone, tmp_path, monkeypatch):
    generation, train_to = begun(running=tmp_path, running_options={"policy": "full"})

    def no_room(step):
        raise CheckpointError(f"no room for the file of step {step}")

    monkeypatch.setattr(generation._running.checkpoint, "step", no_room)
    with pytest.warns(UserWarning, match="slot 0: no room for the file of step 1"):
        train_to(1)

    def fenced(step):
        raise FencedError("another process has taken this slot")

    monkeypatch.setattr(generation._running.checkpoint, "step", fenced)
    with pytest.raises(FencedError):
        train_to(2)


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "no space left")


def test_a_rollback_draws_the_random_numbers_that_the_first_attempt_drew(alone, tmp_path):

    def drawn():
        return torch.rand(3).tolist(), np.random.random(3).tolist(), random.random()

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    save_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    first = drawn()
    assert drawn() != first
    load_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    assert drawn() == first
    (state,) = tmp_path.glob("step-*/random-*")
    damaged = bytearray(state.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    state.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        load_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    state.unlink()  # a checkpoint of the time before, or of fewer ranks
    load_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))


def test_a_damaged_full_checkpoint_is_passed_over_for_the_one_before_it(alone, tmp_path):
    group = SimpleNamespace(
        stop_reason=None,
        protection=Protection(full=tmp_path),
        fingerprints=False,
        shards=ShardStore(),
        timings=Measuring(),
        recovered=lambda *_: None,
    )
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()  # which makes the moments
    for step in (2, 4):
        torch.nn.init.constant_(model.weight, float(step))
        save_full(tmp_path, step, TrainingState(model, optimizer, groups=False))
    (data,) = (tmp_path / "step-000000004").glob("*.data")
    flipped = bytearray(data.read_bytes())
    flipped[3] ^= 16
    data.write_bytes(flipped)
    with pytest.raises(CheckpointError, match=r"step 4: rank 0: .*is damaged"):
        load_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    generation = Generation(group, Membership(1, ("w0",)), 0, dist.HashStore())
    other = torch.nn.Linear(3, 1)
    with pytest.warns(UserWarning, match=r"step 4, slot 0: .*is damaged .*; an earlier state is t"):
        assert generation.recover(other, torch.optim.AdamW(other.parameters())) == 2
    assert other.weight.tolist() == [[2.0, 2.0, 2.0]]


def test_a_full_disk_under_a_full_checkpoint_is_warned_of_and_training_goes_on(
    alone, tmp_path, monkeypatch
):
    _, train_to = begun(full=tmp_path, full_every_steps=1, mttf_s=1000.0)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(CheckedWriter, "write_data", no_space)
        with pytest.warns(UserWarning, match="step 1: .*no space left; .*training goes on"):
            train_to(1)
    assert not list(tmp_path.glob("step-*"))  # nor does what was written of it hold the room
    (tmp_path / "step-000000001").mkdir()  # a killed process has left this
    train_to(2)  # there is room again
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000000002"]


def test_a_step_done_again_leaves_its_checkpoint_until_the_new_one_is_whole(
    alone, tmp_path, monkeypatch
):
    def fill(value):
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, value)

    def loaded():
        fill(0.0)
        load_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
        return {float(p.detach().flatten()[0]) for p in model.parameters()}

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    fill(1.0)
    save_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    (tmp_path / "step-000000004" / "random-000001").write_bytes(b"of a second rank")
    fill(2.0)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(CheckedWriter, "finish", no_space)
        with pytest.raises(CheckpointError, match=r"step 4: rank 0: .*no space left"):
            save_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    assert full_steps(tmp_path) == [4]
    assert loaded() == {1.0}
    fill(2.0)
    save_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    assert loaded() == {2.0}
    (folder,) = tmp_path.glob("step-*")
    assert len(list(folder.glob("*.data"))) == 1  # neither the broken-off one nor the first
    assert [path.name for path in folder.glob("random-*")] == ["random-000000"]


def test_rounds_of_the_running_checkpoint_that_begin_to_fail_are_warned_of_once(
    alone, tmp_path, monkeypatch
):
    generation, train = begun(running=tmp_path, running_options={"policy": "full"})

    def train_to(step):
        train(step)
        generation._running.checkpoint._session.writer.wait()

    with monkeypatch.context() as full_disk:
        full_disk.setattr(SlotWriter, "commit", no_space)
        train_to(1)
        with pytest.warns(UserWarning, match="slot 0: a round failed, .*no space left") as warned:
            train_to(2)
        train_to(3)  # a second warning would fail the test
    assert len(warned) == 1
    assert warned[0].filename == __file__  # where the script leaves its `with`
    train_to(4)
    assert generation._running.checkpoint.step(5).durable_step == 4


def test_a_full_disk_under_the_first_round_after_a_rollback_ends_no_run(
    alone, tmp_path, monkeypatch
):
    """What the slot holds is of steps that were given up: it must not come back later."""
    folders = {"running": tmp_path / "running", "full": tmp_path / "full", "full_every_steps": 2}
    _, train_to = begun(running_options={"policy": "full"}, **folders)
    for step in (1, 2, 3):
        train_to(step)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(SlotWriter, "commit", no_space)
        with pytest.warns(UserWarning, match="no space left; its blocks of steps given up are now"):
            generation, train_to = begun(from_step=2, running_options={"policy": "full"}, **folders)
        assert (generation.report.source, generation.report.step) == ("resume", 2)
    assert {age.step for age in block_ages(tmp_path / "running" / "kept-1")} == {3}
    assert 3 not in {age.step for age in block_ages(tmp_path / "running")}
    with pytest.warns(UserWarning, match="a round failed"):  # the one before
        train_to(3)  # there is room again
    generation._running.checkpoint.wait()
    assert {age.step for age in block_ages(tmp_path / "running")} == {3}


def test_a_start_at_0_keeps_later_steps_or_stops(alone, tmp_path):
    generation, train_to = begun(running=tmp_path, running_options={"policy": "full"})
    for step in (1, 2):
        train_to(step)
        generation._running.checkpoint.wait()
    with pytest.raises(
        CheckpointError, match=r"steps 2 to 2\); give an empty folder, .* resume from"
    ):
        begun(running=tmp_path, earlier_run="stop")
    assert {age.step for age in block_ages(tmp_path)} == {2}
    with pytest.warns(
        UserWarning, match=r"starts at step 0 although .* holds blocks of steps 2 to 2"
    ):
        begun(running=tmp_path)
    assert {age.step for age in block_ages(tmp_path)} == {0}
    assert {age.step for age in block_ages(tmp_path / "kept-from-step-2")} == {2}
    with pytest.raises(UsageError, match="earlier_run: 'ask' was given; give one of keep, stop"):
        Protection(earlier_run="ask")


class Counting(torch.optim.SGD):
    """Counts its steps in Python, in the optimizer of the model's only part."""

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            moments = self.state[parameter]
            moments["step"] = moments.get("step", 0) + 1
            moments.setdefault("sum", torch.zeros_like(parameter)).add_(parameter.grad)


class Container(torch.optim.Optimizer):
    def __init__(self, parameters):
        self.optimizers = [Counting(parameters)]
        super().__init__(self.optimizers[0].param_groups, {})

    def step(self, closure=None):
        self.optimizers[0].step()


def test_moments_within_a_container_and_counts_in_python_are_rolled_back(alone, tmp_path):
    model = torch.nn.Linear(3, 1)
    optimizer = Container(model.parameters())
    moments = optimizer.optimizers[0].state
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    save_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    optimizer.step()
    load_full(tmp_path, 4, TrainingState(model, optimizer, groups=False))
    assert [moments[p]["step"] for p in model.parameters()] == [1, 1]
    assert all(torch.equal(moments[p]["sum"], p.grad) for p in model.parameters())
