"""A run resumes or begins, says which, and overwrites nothing newer unasked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError, block_ages, verify
from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from ettr.checkpoint import Budget, RunningCheckpoint, restore  # noqa: E402
from forked_python import run_together  # noqa: E402
from held_value import HeldValue  # noqa: E402


def state_of(value: float = 0.0, held: object = None) -> dict[str, object]:
    return {"w": torch.full((64,), value), "loader": HeldValue(held)}


def save(root: Path, *steps: int, slot: int = 0, **options) -> None:
    state = state_of()
    with RunningCheckpoint(root, state, slot=slot, policy="full", **options) as checkpoint:
        for step in steps:
            state["w"].fill_(step)
            state["loader"].value = step
            checkpoint.save_all(step)


def steps(root: Path) -> set[int | None]:
    return {age.step for age in block_ages(root)}


def test_it_begins_where_there_is_nothing_and_says_so(tmp_path: Path, caplog) -> None:
    state = state_of(3.0)
    with RunningCheckpoint(tmp_path, state) as checkpoint:
        start = checkpoint.resume_or_begin()
    assert (start.step, start.resumed, start.report) == (0, False, None)
    assert str(start) == f"the run begins at step 0: {tmp_path} holds no checkpoint"
    assert caplog.messages == [str(start)]
    assert steps(tmp_path) == {0}
    with RunningCheckpoint(tmp_path / "other", state) as checkpoint:
        with pytest.raises(CheckpointError, match="must_exist=True allows no beginning"):
            checkpoint.resume_or_begin(must_exist=True)
        with pytest.raises(
            UsageError, match=r"mode: 'best' was given; .*; existing: 'ask' was giv"
        ):
            checkpoint.resume_or_begin(mode="best", existing="ask")


def test_it_resumes_where_there_is_something_and_says_so(tmp_path: Path, caplog) -> None:
    save(tmp_path, 49, 50)
    state = state_of()
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        start = checkpoint.resume_or_begin()
        assert (start.step, start.resumed) == (50, True)
        assert (state["w"].unique().tolist(), state["loader"].value) == ([50.0], 50)
        state["w"] += 1
        checkpoint.step(51)
    assert str(start).startswith(f"the run resumes after step 50: {tmp_path}, slot 0: restored 100")
    assert caplog.messages == [str(start)]
    assert steps(tmp_path) == {51}


def test_an_exact_start_of_a_slot_whose_blocks_are_of_several_steps(tmp_path: Path) -> None:
    """Two rounds after a whole save: only the whole save is exact, the newest is not."""
    for mode, step, held, values in (
        ("newest", 2, "two", [1.0, 2.0]),
        ("consistent", 1, "one", [1.0]),
    ):
        state, root = state_of(1.0, "one"), tmp_path / mode
        with RunningCheckpoint(
            root, state, policy="round-robin", block_bytes=64, budget=Budget(fraction=0.3)
        ) as checkpoint:
            checkpoint.save_all(1)
            state["w"] += 1
            state["loader"].value = "two"
            checkpoint.step(2)
        state = state_of()
        with RunningCheckpoint(root, state) as checkpoint:
            start = checkpoint.resume_or_begin(mode=mode)
            assert (start.step, state["loader"].value) == (step, held)
            assert state["w"].unique().tolist() == values
        given_up = "; blocks of later steps, up to 2, are given up"
        assert start.reason.endswith(given_up) == (mode == "consistent")


def test_the_same_command_again_does_not_erase_the_checkpoint(tmp_path: Path, caplog) -> None:
    """D4: a script that begins with `save_all(0)` whatever lies there."""
    save(tmp_path, 250)
    with RunningCheckpoint(tmp_path, state_of(), policy="full") as checkpoint:
        for call in (checkpoint.save_all, checkpoint.step):
            with pytest.raises(
                CheckpointError, match=r"blocks of steps 250 to 250, and step 0 is "
            ):
                call(0)
    assert steps(tmp_path) == {250}
    into = state_of()
    restore(tmp_path, into)
    assert into["w"].unique().tolist() == [250.0]
    assert not caplog.messages


def test_a_step_before_the_one_resumed_from_is_warned_of(tmp_path: Path, caplog) -> None:
    save(tmp_path, 12)
    for call in ("save_all", "step"):
        with RunningCheckpoint(tmp_path, state_of(), policy="full") as checkpoint:
            assert checkpoint.resume_or_begin().step == 12
            caplog.clear()
            getattr(checkpoint, call)(5)
            getattr(checkpoint, call)(6)
            (said,) = caplog.messages
            assert "step 5 is saved after step 12, as if the run had gone back" in said
            checkpoint.save_all(12)


def test_a_negative_step_is_refused(tmp_path: Path) -> None:
    with RunningCheckpoint(tmp_path, state_of()) as checkpoint:
        for call in (checkpoint.save_all, checkpoint.step):
            with pytest.raises(UsageError, match="step: -1 was given; give 0 or more"):
                call(-1)
    assert steps(tmp_path) == {None}


def test_what_is_newer_is_kept_aside_or_given_up_as_asked(tmp_path: Path, caplog) -> None:
    for number in (1, 2):
        save(tmp_path, 250)
        save(tmp_path, 0, newer="keep")
        assert steps(tmp_path) == {0}
        kept = tmp_path / f"kept-{number}"
        assert steps(kept) == {250}
        assert verify(kept) == []
        assert caplog.messages[-1].endswith(f"step 0 is to be saved; they are now in {kept}")
    save(tmp_path, 250)
    save(tmp_path, 0, newer="overwrite")
    assert caplog.messages[-1].endswith("step 0 is to be saved; they are given up")
    assert steps(tmp_path) == {0}
    assert not (tmp_path / "kept-3").exists()


def test_a_start_that_is_to_keep_or_to_stop(tmp_path: Path, caplog) -> None:
    save(tmp_path, 7)
    checkpoint = RunningCheckpoint(tmp_path, state_of())
    with pytest.raises(CheckpointError, match="holds blocks of step 7; existing='resume' goes"):
        checkpoint.resume_or_begin(existing="stop")
    checkpoint.close()
    with RunningCheckpoint(tmp_path, state_of()) as checkpoint:
        start = checkpoint.resume_or_begin(existing="keep")
    assert (start.step, start.resumed) == (0, False)
    assert start.reason == f"{tmp_path} held blocks of step 7, now in {tmp_path / 'kept-1'}"
    assert steps(tmp_path) == {0}
    assert steps(tmp_path / "kept-1") == {7}


def test_damage_is_no_reason_to_begin(tmp_path: Path) -> None:
    save(tmp_path, 7)
    path = next((tmp_path / "slot-0").glob("blocks-*"))
    whole = path.read_bytes()
    for damaged in (whole[:1000], b"", bytes(len(whole))):
        path.write_bytes(damaged)
        checkpoint = RunningCheckpoint(tmp_path, state_of())
        with pytest.raises(CheckpointError, match=r"cannot be resumed from: .*existing='keep'"):
            checkpoint.resume_or_begin()
        checkpoint.close()
        for left in (tmp_path / "slot-0").glob("blocks-*"):
            if left != path:
                left.unlink()
    torn = bytearray(whole)
    torn[5000:-5000] = b"\xa5" * (len(whole) - 10000)
    path.write_bytes(torn)
    with RunningCheckpoint(tmp_path, state_of()) as checkpoint:
        start = checkpoint.resume_or_begin(existing="keep")
    assert not start.resumed


@pytest.mark.parametrize("torn_from", [4200, 9000, 13000])
def test_a_first_save_that_was_broken_off_is_begun_again(tmp_path: Path, torn_from: int) -> None:
    with RunningCheckpoint(tmp_path, {"w": torch.zeros(9000)}, rows={"w": 1000}) as checkpoint:
        checkpoint.save_all(0)
    path = next((tmp_path / "slot-0").glob("blocks-*"))
    with path.open("r+b") as file:
        file.seek(torn_from)
        file.write(bytes(path.stat().st_size - 4096 - torn_from))
    with RunningCheckpoint(tmp_path, {"w": torch.zeros(9000)}) as checkpoint:
        start = checkpoint.resume_or_begin()
    assert str(start) == (
        f"the run begins at step 0: {tmp_path} holds an unfinished save of step 0"
    )
    assert verify(tmp_path) == []


def test_another_run_is_not_taken_up(tmp_path: Path) -> None:
    save(tmp_path, 7, run="march")
    with RunningCheckpoint(tmp_path, state_of(), run="april") as checkpoint:
        with pytest.raises(
            CheckpointError, match=r"of step 7 of run 'march', and this is run 'apr"
        ):
            checkpoint.resume_or_begin()
        with pytest.raises(
            CheckpointError, match=r"7 of run 'march', and this is run 'april'\. res"
        ):
            checkpoint.save_all(8)
    with RunningCheckpoint(tmp_path, state_of(), run="march") as checkpoint:
        assert checkpoint.resume_or_begin().step == 7


def test_slots_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    save(tmp_path, 7, run="march")
    save(tmp_path, 7, slot=1, run="april")
    with pytest.raises(
        CheckpointError, match=r"slot 0 is of run 'march' and slot 1 of run 'april'"
    ):
        restore(tmp_path, state_of())
    assert restore(tmp_path, state_of(), slot=1).newest_step == 7


def test_a_file_knows_the_number_of_slots(tmp_path: Path) -> None:
    """A slot of a job of another size is not enough: all slots are read."""
    state = {"w": torch.full((64,), 9.0)}
    with RunningCheckpoint(tmp_path, state, world=2) as checkpoint:
        checkpoint.save_all(3)
    with RunningCheckpoint(tmp_path, state, world=4, slot=3) as checkpoint:
        start = checkpoint.resume_or_begin()
        assert start.reason.startswith(f"{tmp_path}, all slots: ")
    with RunningCheckpoint(tmp_path, state, world=1) as checkpoint:
        assert "all slots" in checkpoint.resume_or_begin().reason
    with RunningCheckpoint(tmp_path, state, world=1) as checkpoint:
        assert "slot 0" in checkpoint.resume_or_begin().reason


RANK = """
import json, sys
import torch
import torch.distributed as dist
from ettr.checkpoint import RunningCheckpoint
from held_value import HeldValue
rank, root, rendezvous = int(sys.argv[1]), *sys.argv[2:]
dist.init_process_group("gloo", store=dist.FileStore(rendezvous, 2), rank=rank, world_size=2)
state = {"w": torch.zeros(64), "loader": HeldValue()}
with RunningCheckpoint(root, state, slot=rank, policy="full") as checkpoint:
    start = checkpoint.resume_or_begin()
print(json.dumps([rank, start.step, start.resumed, state["w"].unique().tolist()]))
dist.barrier()
dist.destroy_process_group()
"""


def ranks_start(root: Path, rendezvous: Path) -> list[list]:
    words = [[sys.executable, "-c", RANK, str(rank), str(root), str(rendezvous)] for rank in (0, 1)]
    ranks = run_together(words, rendezvous.parent, limit_s=240)
    assert [rank.status for rank in ranks] == [0, 0], [rank.errors for rank in ranks]
    return [json.loads(rank.output) for rank in ranks]


@pytest.mark.slow
def test_ranks_agree_on_one_step_or_none_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "root"
    found = ranks_start(root, tmp_path / "first")
    assert found == [[0, 0, False, [0.0]], [1, 0, False, [0.0]]]
    save(root, 4, 5)
    save(root, 4, slot=1)
    found = ranks_start(root, tmp_path / "second")
    assert found == [[0, 4, True, [4.0]], [1, 4, True, [4.0]]]
    own, other = tmp_path / "apart" / "slot-0", tmp_path / "apart" / "slot-1"
    save(tmp_path / "apart", 9)
    for path in own.iterdir():
        path.rename(path.with_name(path.name + ".hidden"))
    save(tmp_path / "apart", 8, slot=1)
    found = ranks_start(tmp_path / "apart", tmp_path / "third")
    assert other.is_dir()
    assert [step for _, step, _, _ in found] == [8, 8], "from the other slot: a replica"
