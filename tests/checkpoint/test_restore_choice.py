"""Which records a restore takes where a run went back, was taken over, or is of another model."""

from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.checkpoint import Budget, RunningCheckpoint, TrainingState, restore  # noqa: E402

ONE_BLOCK = Budget(fraction=0.01)  # one block always may be saved


def filled(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((4,), value), "b": torch.full((4,), value)}


def save(rc: RunningCheckpoint, state: dict[str, torch.Tensor], step: int, value: float) -> None:
    for tensor in state.values():
        tensor.fill_(value)
    rc.step(step)
    rc.wait()


def test_a_step_done_twice_is_not_mixed(tmp_path: Path) -> None:
    """Whole at 100, back to 60, and at 100 again only one of two blocks is saved."""
    state = filled(100.0)
    with RunningCheckpoint(tmp_path, state, policy="round-robin", budget=ONE_BLOCK) as rc:
        rc.save_all(100)
        for step in (60, 61, 100):
            save(rc, state, step, -float(step))
    with pytest.raises(CheckpointError, match="no step has an intact copy of every block"):
        restore(tmp_path, filled(0.0), mode="consistent")


def test_a_step_done_again_by_a_successor_is_not_mixed(tmp_path: Path) -> None:
    """Its file holds one of two blocks of the step; the file before it holds both."""
    state = filled(100.0)
    with RunningCheckpoint(tmp_path, state, policy="full") as rc:
        rc.save_all(100)
    with RunningCheckpoint(tmp_path, state, policy="round-robin", budget=ONE_BLOCK) as rc:
        save(rc, state, 100, -100.0)
    found = filled(0.0)
    report = restore(tmp_path, found, mode="consistent")
    assert (report.newest_step, report.consistent) == (100, True)
    assert {float(value) for tensor in found.values() for value in tensor} == {100.0}


def test_other_blocks_of_a_step_that_was_gone_back_behind_do_not_win(tmp_path: Path) -> None:
    """Blocks of four rows at step 100; the successor began again at 50 with blocks of two."""
    table = torch.full((8, 2), 100.0)
    with RunningCheckpoint(tmp_path, {"w": table}, rows={"w": 4}) as rc:
        rc.save_all(100)
    with RunningCheckpoint(
        tmp_path,
        {"w": table},
        rows={"w": 2},
        policy="round-robin",
        budget=ONE_BLOCK,
        newer="overwrite",
    ) as rc:
        save(rc, {"w": table}, 50, 50.0)
    found = torch.zeros(8, 2)
    restore(tmp_path, {"w": found})
    assert found[:, 0].tolist() == [50.0] * 2 + [100.0] * 6


def test_another_shape_is_refused_not_cropped(tmp_path: Path) -> None:
    with RunningCheckpoint(tmp_path, {"w": torch.ones(8, 4), "v": torch.ones(2)}) as rc:
        rc.save_all(1)
    for shape in ((4, 4), (8, 2), (16, 4)):
        state = {"w": torch.zeros(shape), "v": torch.zeros(2)}
        with pytest.raises(CheckpointError, match=r"w: it was saved with shape \[8, 4\] and has"):
            restore(tmp_path, state)
        assert not state["v"].any()
        report = restore(tmp_path, state, allow_missing=True)
        assert (report.missing, state["w"].any(), state["v"].all()) == (("w",), False, True)
        with pytest.raises(CheckpointError, match=r"w: it was saved with shape \[8, 4\] and has"):
            restore(tmp_path, {"w": torch.zeros(shape)}, allow_missing=True)  # nothing of it


class Cooling(torch.optim.Optimizer):
    """Keeps a Python number for each parameter that falls."""

    def __init__(self, parameters) -> None:
        super().__init__(parameters, {})

    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["heat"] = state.get("heat", 1.0) / 2


def test_of_a_number_the_newest_is_taken_not_the_largest(tmp_path: Path) -> None:
    model = nn.Linear(8, 8, bias=False)
    optimizer = Cooling(model.parameters())
    optimizer.step()
    with RunningCheckpoint(
        tmp_path,
        TrainingState(model, optimizer),
        policy="round-robin",
        rows={"weight": 1},
        budget=ONE_BLOCK,
    ) as rc:
        rc.save_all(1)
        for step in (2, 3, 4):
            optimizer.step()
            rc.step(step)
            rc.wait()
    other = nn.Linear(8, 8, bias=False)
    other_optimizer = Cooling(other.parameters())
    other_optimizer.step()
    restore(tmp_path, TrainingState(other, other_optimizer))
    assert other_optimizer.state[other.weight]["heat"] == 0.5**4
