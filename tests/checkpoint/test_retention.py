"""Copies that stay: the last finite ones, and the whole steps that `Keep` names."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError, Keep, kept_steps, verify
from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.checkpoint import RunningCheckpoint, restore  # noqa: E402


def built(dtype=torch.float32) -> dict:
    model = nn.Linear(3, 2).to(dtype)
    model.register_buffer("mask", torch.tensor([0.0, -float("inf")]))  # not trained: its own affair
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}


def train(state: dict, step: int, value: float = 1.0) -> None:
    for parameter in state["model"].parameters():
        parameter.grad = torch.full_like(parameter, value)
    state["optimizer"].step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_leaves_the_copies_before_it(
    tmp_path: Path, caplog, dtype, value: float
) -> None:
    state = built(dtype)
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        checkpoint.resume_or_begin()
        for step in range(1, 8):
            train(state, step, value if step == 5 else 1.0)
            checkpoint.step(step)
            checkpoint.wait()
        report = checkpoint.step(8)
        # step 8 itself may be refused by then
        assert re.search(
            r"step [78] is not saved because it holds NaN or infinity: bias, weight", report.error
        )
        assert report.durable_step == 4
        with pytest.raises(CheckpointError, match="step 8 is not saved because it holds NaN"):
            checkpoint.save_all(8)
    assert [m for m in caplog.messages if "step 5 is not saved" in m]
    other = built(dtype)
    with RunningCheckpoint(tmp_path, other, policy="full") as checkpoint:
        assert checkpoint.resume_or_begin().step == 4
    assert other["model"].weight.isfinite().all()


def test_what_never_was_finite_is_saved_and_large_values_are_finite(tmp_path: Path) -> None:
    state = built()
    with torch.no_grad():
        state["model"].bias[0] = -float("inf")
        state["model"].weight.fill_(3e38)  # their sum is not finite, they are
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        for step in (1, 2, 3):
            train(state, step, 0.0)
            assert checkpoint.step(step).error is None
            checkpoint.wait()
        assert checkpoint.durable_step == 3
    state = built()
    with RunningCheckpoint(
        tmp_path / "asked", state, policy="full", refuse_nonfinite=False
    ) as checkpoint:
        checkpoint.save_all(1)
        train(state, 2, float("nan"))
        checkpoint.save_all(2)


def run(root: Path, keep: Keep, losses: dict[int, float], **options) -> dict:
    state = built()
    with RunningCheckpoint(root, state, policy="full", keep=keep, **options) as checkpoint:
        for step, loss in losses.items():
            with torch.no_grad():
                state["model"].weight.fill_(step)
            checkpoint.step(step, metrics={"loss": loss})
            checkpoint.wait()
    return state


LOSSES = {1: 9.0, 2: 5.0, 3: 6.0, 4: float("nan"), 5: 3.0, 6: 7.0, 7: 8.0}


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Keep(last=2), [7, 6]),
        (Keep(every_steps=3), [6, 3]),
        (Keep(milestones=(1, 4, 99)), [4, 1]),
        (Keep(best="loss"), [5]),
        (Keep(best="loss", n_best=2, highest=True), [7, 1]),
        (Keep(last=1, every_steps=4, best="loss"), [7, 5, 4]),
        (Keep(), []),
    ],
)
def test_the_steps_that_are_kept(tmp_path: Path, keep: Keep, expected: list[int]) -> None:
    run(tmp_path, keep, LOSSES)
    assert kept_steps(tmp_path) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "slot-0",
        *sorted(f"step-{step:09d}" for step in expected),
    ], "nothing is left of what was removed"
    for step in expected:
        root = tmp_path / f"step-{step:09d}"
        state = built()
        assert verify(root) == []
        assert restore(root, state).newest_step == step
        assert state["model"].weight.unique().tolist() == [step]


def test_a_run_goes_back_to_a_kept_step_and_remembers_the_best(tmp_path: Path) -> None:
    run(tmp_path, Keep(best="loss"), LOSSES, run="a")
    state = built()
    with RunningCheckpoint(
        tmp_path, state, policy="full", keep=Keep(best="loss"), run="a"
    ) as checkpoint:
        with pytest.raises(
            CheckpointError, match=r"step 3 is not complete.*has \[7, 6\]; copies a"
        ):
            checkpoint.resume_or_begin(step=3)
        start = checkpoint.resume_or_begin(step=5)
        assert (start.step, state["model"].weight.unique().tolist()) == (5, [5.0])
        for step, loss in ((6, 4.0), (7, 2.0)):
            checkpoint.step(step, metrics={"loss": loss})
            checkpoint.wait()
            assert kept_steps(tmp_path) == [5 if step == 6 else 7]
    with RunningCheckpoint(tmp_path, built(), policy="full", run="a") as checkpoint:
        assert checkpoint.resume_or_begin().step == 7


def test_a_damaged_checkpoint_names_the_kept_copies(tmp_path: Path) -> None:
    run(tmp_path, Keep(last=1), LOSSES)
    path = next((tmp_path / "slot-0").glob("blocks-*"))
    path.write_bytes(bytes(path.stat().st_size))
    checkpoint = RunningCheckpoint(tmp_path, built(), policy="full")
    with checkpoint, pytest.raises(CheckpointError, match=r"copies are kept of steps 7 \(step=\)"):
        checkpoint.resume_or_begin()
    with RunningCheckpoint(tmp_path, built(), policy="full") as checkpoint:
        assert checkpoint.resume_or_begin(step=7).step == 7


def test_a_copy_that_cannot_be_written_ends_no_round(tmp_path: Path, caplog, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    run(tmp_path, Keep(last=1), {1: 1.0})
    assert kept_steps(tmp_path) == []
    assert [m for m in caplog.messages if m.startswith("no copy of step 1 is kept: ")]
    assert restore(tmp_path, built()).newest_step == 1


def test_what_is_kept_is_of_the_policy_full(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keep: with policy 'priority'; whole steps are of policy"):
        RunningCheckpoint(tmp_path, built(), policy="priority", keep=Keep(last=1))
    with pytest.raises(UsageError, match="last=-1"):
        Keep(last=-1)
