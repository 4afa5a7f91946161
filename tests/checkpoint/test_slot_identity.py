"""A slot file knows its slot; slots that contradict each other are refused."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError, verify
from ettr.checkpoint.slots.durable_io import slot_folder
from ettr.checkpoint.slots.layout import BlockSpec, Component, SlotLayout, TensorSpec
from ettr.checkpoint.slots.writer import SlotWriter

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from ettr.checkpoint import RunningCheckpoint, restore  # noqa: E402
from ettr.errors import UsageError  # noqa: E402
from held_value import HeldValue  # noqa: E402


def save(root: Path, slot: int, value: float, *, step: int = 1, name: str = "w") -> None:
    with RunningCheckpoint(root, {name: torch.full((4,), value)}, slot=slot) as checkpoint:
        checkpoint.save_all(step)


def swap(root: Path) -> None:
    one, two = (next((root / f"slot-{slot}").glob("blocks-*")) for slot in (0, 1))
    aside = root / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def test_files_that_changed_places_are_refused(tmp_path: Path) -> None:
    """Ranks of tensor parallelism hold plain tensors of the same names and shapes."""
    for slot in (0, 1):
        save(tmp_path, slot, float(slot))
    swap(tmp_path)
    assert [(bad.slot, bad.reason, bad.lost) for bad in verify(tmp_path)] == [
        ("0", "file: it was written for slot 1 and lies in slot 0", True),
        ("1", "file: it was written for slot 0 and lies in slot 1", True),
    ]
    with pytest.raises(CheckpointError, match="it was written for slot 1; move it to the folder"):
        save(tmp_path, 0, 5.0)
    target = {"w": torch.full((4,), 7.0)}
    with pytest.raises(CheckpointError, match=r"1 tensors are not covered .*; 1 damaged places"):
        restore(tmp_path, target, slot=0)
    assert target["w"].tolist() == [7.0] * 4


def test_a_file_of_before_slots_had_names_is_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("ettr.checkpoint.slots.writer.slot_of", lambda folder: None)
    save(tmp_path, 0, 3.0)
    monkeypatch.undo()
    target = {"w": torch.zeros(4)}
    restore(tmp_path, target, slot=0)
    assert target["w"].tolist() == [3.0] * 4


def test_slots_that_hold_other_values_of_one_step_are_refused(tmp_path: Path) -> None:
    for slot in (0, 1):
        save(tmp_path, slot, float(slot))
    target = {"w": torch.zeros(4)}
    reason = "slots 0 and 1 hold different values of w of step 1.*give slot="
    for mode in ("newest", "consistent"):
        with pytest.raises(CheckpointError, match=reason):
            restore(tmp_path, target, mode=mode)
    for slot in (0, 1):
        restore(tmp_path, target, slot=slot)
        assert target["w"].tolist() == [float(slot)] * 4


@pytest.mark.parametrize("mode", ["newest", "consistent"])
def test_buffers_of_one_name_that_ranks_hold_next_to_shards_are_refused(
    tmp_path: Path, mode: str
) -> None:
    """As BatchNorm's under FSDP2: what a rank has of the sharded weights differs, too."""
    for slot in (0, 1):
        state = {"mean": torch.full((4,), float(slot)), f"shard{slot}": torch.ones(2)}
        with RunningCheckpoint(tmp_path, state, slot=slot, world=2, policy="full") as checkpoint:
            checkpoint.save_all(1)
            checkpoint.wait()
    whole = {"mean": torch.zeros(4), "shard0": torch.zeros(2), "shard1": torch.zeros(2)}
    with pytest.raises(CheckpointError, match="different values of mean of step 1"):
        restore(tmp_path, whole, mode=mode)
    own = {"mean": torch.zeros(4), "shard1": torch.zeros(2)}
    restore(tmp_path, own, slot=1, mode=mode)
    assert own["mean"].tolist() == [1.0] * 4
    for slot in (0, 1):
        restore(tmp_path, whole, mode=mode, objects_of=slot)
        assert whole["mean"].tolist() == [float(slot)] * 4
        assert whole["shard0"].tolist() == whole["shard1"].tolist() == [1.0] * 2
    with pytest.raises(UsageError, match="objects_of: slot 2 is not read; those that are: 0, 1"):
        restore(tmp_path, whole, mode=mode, objects_of=2)


def test_buffers_that_ranks_hold_differently_are_refused_at_an_older_common_step(
    tmp_path: Path,
) -> None:
    """One rank was killed later than the other: their newest steps are not the same."""
    for slot, steps in ((0, (8, 10)), (1, (10, 12))):
        state = {"mean": torch.full((4,), float(slot)), f"shard{slot}": torch.ones(2)}
        with RunningCheckpoint(tmp_path, state, slot=slot, world=2, policy="full") as checkpoint:
            for step in steps:
                checkpoint.save_all(step)
                checkpoint.wait()
    whole = {"mean": torch.zeros(4), "shard0": torch.zeros(2), "shard1": torch.zeros(2)}
    with pytest.raises(CheckpointError, match="different values of mean of step 10"):
        restore(tmp_path, whole, mode="consistent")
    for slot in (0, 1):
        report = restore(tmp_path, whole, mode="consistent", objects_of=slot)
        assert (report.newest_step, whole["mean"].tolist()) == (10, [float(slot)] * 4)


def test_a_job_of_another_size_resumes_with_the_buffers_of_the_slot_it_names(
    tmp_path: Path,
) -> None:
    for slot in (0, 1):
        state = {"mean": torch.full((4,), float(slot)), f"shard{slot}": torch.ones(2)}
        with RunningCheckpoint(tmp_path, state, slot=slot, world=2, policy="full") as checkpoint:
            checkpoint.save_all(3)
    whole = {"mean": torch.zeros(4), "shard0": torch.zeros(2), "shard1": torch.zeros(2)}
    with RunningCheckpoint(tmp_path, whole, slot=0, world=1, policy="full") as checkpoint:
        with pytest.raises(CheckpointError, match=r"different values of mean.* objects_of="):
            checkpoint.resume_or_begin()
        assert checkpoint.resume_or_begin(objects_of=1).step == 3
    assert whole["mean"].tolist() == [1.0] * 4


def test_replicas_agree(tmp_path: Path) -> None:
    for slot, step in ((0, 1), (1, 1), (2, 4)):
        save(tmp_path, slot, float(step), step=step)
    target = {"w": torch.zeros(4)}
    assert restore(tmp_path, target).newest_step == 4
    assert target["w"].tolist() == [4.0] * 4


LAYOUT = SlotLayout(
    (TensorSpec("w", (4,), (Component("param", "float32"),)),), (BlockSpec(0, (0,), (4,)),)
)


def test_only_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Another process makes its file at the same time: it holds a lock on it."""
    folder = slot_folder(tmp_path, 0)
    folder.mkdir()
    left, in_use = folder / ".blocks-00000001.bin.1", folder / ".blocks-00000001.bin.2"
    left.touch()
    fd = os.open(in_use, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    SlotWriter.create(folder, LAYOUT).close()
    assert in_use.exists()
    assert not left.exists()
    os.close(fd)


def test_a_file_system_without_hard_links_is_named(tmp_path: Path, monkeypatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(
        CheckpointError, match=r"the file system has no hard links .*another folder"
    ):
        SlotWriter.create(slot_folder(tmp_path, 0), LAYOUT)


def test_a_round_of_objects_alone_makes_no_step_durable(tmp_path: Path) -> None:
    """Priority: nothing was scored yet at the first step after `save_all`, so no block is saved."""
    table = {"w": torch.zeros(8), "position": HeldValue(1)}
    with RunningCheckpoint(tmp_path, table, policy="priority") as checkpoint:
        checkpoint.save_all(0)
        table["w"] += 1
        assert checkpoint.step(1).blocks == 0
        checkpoint.wait()
        assert checkpoint.durable_step == 0
        table["w"] += 1
        checkpoint.step(2)
        checkpoint.wait()
        assert checkpoint.durable_step == 2
    assert restore(tmp_path, table).objects_step == 2
