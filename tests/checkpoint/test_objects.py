"""A dictionary of everything that a run needs: what was saved comes back, or is named."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from ettr.checkpoint import CheckpointError
from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402

from ettr.checkpoint import (  # noqa: E402
    Budget,
    RandomStates,
    RunningCheckpoint,
    TrainingState,
    restore,
    saved_objects,
    set_rng_state,
    verify,
)
from ettr.checkpoint.slots.durable_io import OsDisk  # noqa: E402
from held_value import HeldValue  # noqa: E402

SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 20),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [10, 30, 55, 55, 70]),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.95),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 100),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, 2),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=100),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=2, cooldown=1),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.01, 1.0, 60), lr_scheduler.CosineAnnealingLR(o, 40)],
        [60],
    ),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: min(1.0, (step + 1) / 60)),
}


class Run:
    """A small model that is trained, with two parameter groups and a scheduler."""

    def __init__(self, scheduler: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        groups = [
            {"params": self.model[0].parameters(), "lr": 0.02, "weight_decay": 0.1},
            {"params": self.model[2].parameters(), "lr": 0.01, "betas": (0.8, 0.9)},
        ]
        self.optimizer = torch.optim.AdamW(groups)
        self.lrs = SCHEDULERS[scheduler](self.optimizer)
        self.state = {"model": self.model, "optimizer": self.optimizer, "lrs": self.lrs}

    def train(self, first: int, last: int, checkpoint=None) -> list[tuple[float, ...]]:
        """Steps first + 1 to last; the learning rates after each, and the loss."""
        records = []
        for step in range(first + 1, last + 1):
            data = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            self.optimizer.zero_grad()
            loss = (self.model(data) - data.sum(1, keepdim=True)).square().mean()
            loss.backward()
            self.optimizer.step()
            plateau = isinstance(self.lrs, lr_scheduler.ReduceLROnPlateau)
            self.lrs.step(*([float(step % 3)] if plateau else []))
            rates = (group["lr"] for group in self.optimizer.param_groups)
            records.append((*rates, loss.item()))
            if checkpoint is not None:
                checkpoint.step(step)
        return records


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_next_30_steps_are_those_of_the_unbroken_run(tmp_path: Path, scheduler: str) -> None:
    """The recipe of the how-to: learning rates and losses, to the last bit."""
    expected = Run(scheduler, 0).train(0, 80)[50:]
    first = Run(scheduler, 0)
    with RunningCheckpoint(tmp_path, first.state, policy="full") as checkpoint:
        checkpoint.resume_or_begin()
        first.train(0, 50, checkpoint)
        checkpoint.save_all(50)
    second = Run(scheduler, 1)
    with RunningCheckpoint(tmp_path, second.state, policy="full") as checkpoint:
        start = checkpoint.resume_or_begin()
        assert (start.resumed, start.step) == (True, 50)
        assert second.train(50, 80, checkpoint) == expected


def test_a_gradient_scaler_goes_on_with_its_scale_and_its_count(tmp_path: Path) -> None:
    """One step of the loss is infinite: it is skipped and halves the scale, before and after."""

    def steps(run: Run, scaler, first: int, last: int) -> list[tuple[float, float]]:
        records = []
        for step in range(first + 1, last + 1):
            data = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            data[0] = float("inf") if step in (6, 13) else data[0]
            run.optimizer.zero_grad()
            scaler.scale(run.model(data).square().mean()).backward()
            scaler.unscale_(run.optimizer)
            nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
            scaler.step(run.optimizer)
            scaler.update()
            records.append((scaler.get_scale(), run.model[0].weight.sum().item()))
        return records

    def built(seed: int) -> tuple[Run, torch.amp.GradScaler]:
        return Run("StepLR", seed), torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4)

    run, scaler = built(1)
    with RunningCheckpoint(tmp_path, {**run.state, "scaler": scaler}, policy="full") as checkpoint:
        scales = {scale for scale, _ in steps(run, scaler, 0, 10)}
        checkpoint.save_all(10)
    assert scales == {64.0, 128.0}
    unbroken = steps(run, scaler, 10, 20)
    assert len({scale for scale, _ in unbroken}) > 1
    run, scaler = built(2)
    restore(tmp_path, {**run.state, "scaler": scaler}, mode="consistent")
    assert steps(run, scaler, 10, 20) == unbroken


def test_parameter_groups_come_back_without_a_dictionary(tmp_path: Path) -> None:
    run = Run("ExponentialLR", 0)
    run.train(0, 5)
    with RunningCheckpoint(tmp_path, TrainingState(run.model, run.optimizer)) as checkpoint:
        checkpoint.save_all(5)
    other = Run("ExponentialLR", 1)
    other.optimizer.param_groups[1]["foreach"] = False
    restore(tmp_path, TrainingState(other.model, other.optimizer))
    for saved, live in zip(run.optimizer.param_groups, other.optimizer.param_groups, strict=True):
        for name in ("lr", "weight_decay", "betas", "eps", "initial_lr"):
            assert live[name] == saved[name]
    assert other.optimizer.param_groups[1]["foreach"] is False, "how it computes stays"


def test_a_learning_rate_in_a_tensor_keeps_its_identity(tmp_path: Path) -> None:
    def build(lr: float):
        model = nn.Linear(2, 2)
        return model, torch.optim.AdamW(model.parameters(), lr=torch.tensor(lr))

    model, optimizer = build(0.25)
    with RunningCheckpoint(tmp_path, {"model": model, "optimizer": optimizer}) as checkpoint:
        checkpoint.save_all(1)
    model, optimizer = build(0.5)
    rate = optimizer.param_groups[0]["lr"]
    restore(tmp_path, {"model": model, "optimizer": optimizer})
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == 0.25


def test_groups_that_do_not_fit_are_named(tmp_path: Path) -> None:
    run = Run("StepLR", 0)
    with RunningCheckpoint(tmp_path, run.state) as checkpoint:
        checkpoint.save_all(1)
    one_group = torch.optim.AdamW(run.model.parameters())
    with pytest.raises(
        CheckpointError, match=r"options .* of 2 parameters do not fit its par.*2\.w"
    ):
        restore(tmp_path, {"model": run.model, "optimizer": one_group, "lrs": run.lrs})
    report = restore(
        tmp_path, {"model": run.model, "optimizer": one_group, "lrs": run.lrs}, allow_missing=True
    )
    assert report.missing_objects == ("parameter groups",)
    assert ", not restored: parameter groups" in str(report)


def test_several_models_and_optimizers(tmp_path: Path) -> None:
    """Two networks against each other, an average of one of them, and a plain tensor."""

    def build(seed: int) -> dict[str, object]:
        torch.manual_seed(seed)
        nets = {name: nn.Linear(3, 3) for name in ("generator", "critic")}
        average = torch.optim.swa_utils.AveragedModel(
            nets["generator"], multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        optimizers = {
            f"{name}_optimizer": torch.optim.AdamW(net.parameters(), lr=0.1 * seed + 0.1)
            for name, net in nets.items()
        }
        return {**nets, **optimizers, "average": average, "table": torch.full((4,), float(seed))}

    def train(state: dict) -> None:
        for name in ("generator", "critic"):
            state[name](torch.randn(2, 3)).square().sum().backward()
            state[f"{name}_optimizer"].step()
        state["average"].update_parameters(state["generator"])

    def flat(state: dict) -> list[torch.Tensor]:
        tensors = [state["table"]]
        for name in ("generator", "critic", "average"):
            tensors += state[name].state_dict().values()
        for name in ("generator_optimizer", "critic_optimizer"):
            for moments in state[name].state_dict()["state"].values():
                tensors += moments.values()
            tensors.append(torch.tensor(state[name].param_groups[0]["lr"]))
        return tensors

    state = build(0)
    for _ in range(3):
        train(state)
    with RunningCheckpoint(tmp_path, state, block_bytes=64) as checkpoint:
        checkpoint.save_all(3)
    other = build(1)
    assert restore(tmp_path, other).restored_fraction == 1.0
    saved, restored = flat(state), flat(other)
    assert len(saved) == len(restored) == 1 + 2 + 2 + 3 + 2 * (2 * 3 + 1)
    assert all(torch.equal(one, two) for one, two in zip(saved, restored, strict=True))


def test_lbfgs_is_saved_as_an_object(tmp_path: Path) -> None:
    def build():
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        return model, torch.optim.LBFGS(model.parameters(), lr=0.1)

    def train(model, optimizer) -> float:
        data = torch.randn(16, 3, generator=torch.Generator().manual_seed(2))

        def closure():
            optimizer.zero_grad()
            loss = (model(data) - data.prod(1, keepdim=True)).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    model, optimizer = build()
    with RunningCheckpoint(tmp_path, {"model": model, "optimizer": optimizer}) as checkpoint:
        checkpoint.save_all(0)
        train(model, optimizer)
        checkpoint.save_all(1)  # its history has outgrown the room of the beginning
    expected = [train(model, optimizer) for _ in range(3)]
    model, optimizer = build()
    assert restore(tmp_path, {"model": model, "optimizer": optimizer}).objects == ("optimizer",)
    assert [train(model, optimizer) for _ in range(3)] == expected


def test_what_is_no_part_of_a_state_is_refused_by_name(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(UsageError, match=r"step: of type int; .* with these two methods"):
        RunningCheckpoint(tmp_path, {"model": model, "step": 3})
    with pytest.raises(UsageError, match=r"o: of type type; a checkpoint takes"):
        RunningCheckpoint(tmp_path, {"model": model, "o": HeldValue})
    with pytest.raises(UsageError, match=r"object 'loader': state.value is a object"):
        RunningCheckpoint(tmp_path, {"model": model, "loader": HeldValue(object())})
    with pytest.raises(
        CheckpointError, match=r"weight: a tensor and a parameter .* have this name"
    ):
        RunningCheckpoint(tmp_path, {"model": model, "weight": torch.ones(1)})
    nested = {"a": nn.ModuleDict({"b": nn.Linear(2, 2)}), "a.b": nn.Linear(2, 2)}
    with pytest.raises(CheckpointError, match=r"a\.b\.weight: two parts of the state have this"):
        RunningCheckpoint(tmp_path, {**nested, "o": HeldValue(1)})
    assert not any(tmp_path.iterdir())


def test_an_object_that_can_no_longer_be_saved_ends_no_training(tmp_path: Path, caplog) -> None:
    state = {"w": torch.zeros(4), "loader": HeldValue(1)}
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        checkpoint.save_all(1)
        state["loader"].value = object()
        for step in (2, 3):
            error = checkpoint.step(step).error
            assert "older copies remain: object 'loader': state.value is a object" in error
        assert len(caplog.records) == 1, "said once, not at every step"
        state["loader"].value = 4
        assert checkpoint.step(4).error is None
    assert restore(tmp_path, state).objects_step == 4


def test_every_object_is_accounted_for(tmp_path: Path) -> None:
    run = Run("StepLR", 0)
    with RunningCheckpoint(tmp_path, {**run.state, "loader": HeldValue(7)}) as checkpoint:
        checkpoint.save_all(1)
    before = run.model[0].weight.clone()
    with torch.no_grad():
        run.model[0].weight += 1
    without = {"model": run.model, "optimizer": run.optimizer, "lrs": run.lrs}
    with pytest.raises(CheckpointError, match="loader: saved, and not given to the restore"):
        restore(tmp_path, without)
    with pytest.raises(CheckpointError, match="object 'scaler' was not saved"):
        restore(tmp_path, {**without, "loader": HeldValue(), "scaler": HeldValue()})
    assert not torch.equal(run.model[0].weight, before), "refused before anything is overwritten"
    report = restore(tmp_path, {**without, "scaler": HeldValue()}, allow_missing=True)
    assert (report.missing_objects, report.unused_objects) == (("scaler",), ("loader",))
    report = restore(tmp_path, run.model)  # to look at it, not to train
    assert report.unused_objects == ("loader", "lrs")
    assert torch.equal(run.model[0].weight, before)
    assert saved_objects(tmp_path, slot=0)["loader"].values == {"value": 7}


def test_an_object_that_does_not_take_its_state_is_named(tmp_path: Path) -> None:
    class Picky(HeldValue):
        def load_state_dict(self, state_dict):
            raise KeyError("epoch")

    with RunningCheckpoint(tmp_path, {"w": torch.ones(1), "loader": HeldValue(1)}) as checkpoint:
        checkpoint.save_all(1)
    with pytest.raises(
        CheckpointError, match=r"'loader' \(Picky\) did not take .* of step 1: KeyEr"
    ):
        restore(tmp_path, {"w": torch.ones(1), "loader": Picky()})


def test_objects_of_any_size(tmp_path: Path) -> None:
    """They grow beyond their room: the slot gets a new file, and nothing is lost meanwhile."""
    held = HeldValue("")
    state = {"w": torch.zeros(1000), "loader": held}
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        checkpoint.save_all(0)
        for step, size in enumerate((10, 10_000, 1_000_000, 3), 1):
            held.value = {"buffer": bytes([step]) * size, "rows": torch.full((size,), step)}
            state["w"].fill_(step)
            assert checkpoint.step(step).error is None
            checkpoint.wait()
            into = {"w": torch.zeros(1000), "loader": HeldValue()}
            assert restore(tmp_path, into).objects_step == step
            assert into["loader"].value["buffer"] == bytes([step]) * size
            assert torch.equal(into["loader"].value["rows"], torch.full((size,), step))
        assert checkpoint.generation == 3
    assert verify(tmp_path) == []


def test_random_states_come_back(tmp_path: Path) -> None:
    own = {"loader": torch.Generator().manual_seed(3), "sampler": np.random.default_rng(4)}

    def draw() -> list[float]:
        numbers = [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn()]
        numbers += [float(torch.rand(1)), float(torch.rand(1, generator=own["loader"]))]
        return [*numbers, own["sampler"].random()]

    state = {"w": torch.zeros(4), "random": RandomStates(own)}
    draw()  # so that Python and NumPy hold half of a pair of normal numbers
    with RunningCheckpoint(tmp_path, state) as checkpoint:
        checkpoint.save_all(5)
    expected = draw()
    draw()
    restore(tmp_path, state)
    assert draw() == expected
    saved = saved_objects(tmp_path, slot=0)["random"].values
    with pytest.raises(UsageError, match=r"\['loader'\] were given and \['loader', 'sampler'\]"):
        set_rng_state(saved, {"loader": own["loader"]})
    with pytest.raises(UsageError, match="of 99 CUDA devices"):
        set_rng_state({**saved, "cuda": [torch.zeros(16, dtype=torch.uint8)] * 99}, own)


def test_slots_that_differ_are_not_chosen_from(tmp_path: Path) -> None:
    model = nn.Linear(8, 8)
    for rank in range(3):
        parts = {"model": model, "lrs": HeldValue("same"), "loader": HeldValue(rank)}
        state = TrainingState.of(parts, replica=(rank, 3))
        with RunningCheckpoint(tmp_path, state, slot=rank, block_bytes=32) as checkpoint:
            checkpoint.save_all(4)
    parts = {"model": model, "lrs": HeldValue(), "loader": HeldValue()}
    with pytest.raises(
        CheckpointError, match=r"slots 0, 1, 2 hold different states of object 'loa"
    ):
        restore(tmp_path, parts)
    restore(tmp_path, parts, objects_of=2)
    assert (parts["lrs"].value, parts["loader"].value) == ("same", 2)
    with pytest.raises(UsageError, match=r"objects_of: slot 5 is not read; .*: 0, 1, 2"):
        restore(tmp_path, parts, objects_of=5)
    report = restore(tmp_path, parts, slot=1, allow_missing=True)
    assert (report.missing_objects, parts["loader"].value) == ((), 1)


def test_an_exact_restore_takes_objects_of_its_step_or_none(tmp_path: Path) -> None:
    """Blocks of step 1 are still complete after two more rounds; the objects of step 1 are not."""
    state = {"w": torch.zeros(64), "loader": HeldValue(1)}
    with RunningCheckpoint(
        tmp_path, state, policy="round-robin", block_bytes=64, budget=Budget(fraction=0.3)
    ) as checkpoint:
        checkpoint.save_all(1)
        for step in (2, 3):
            state["loader"].value = step
            state["w"] += 1
            checkpoint.step(step)
            checkpoint.wait()
            if step == 2:
                assert restore(tmp_path, state, mode="consistent").objects_step == 1
                assert state["loader"].value == 1
    assert restore(tmp_path, {"w": torch.zeros(64)}, mode="consistent").newest_step == 1
    with pytest.raises(CheckpointError, match="no step has an intact copy of every"):
        restore(tmp_path, state, mode="consistent")


def test_torn_objects_fall_back_to_their_older_copy(tmp_path: Path) -> None:
    state = {"w": torch.zeros(8), "loader": HeldValue()}
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        for step in (1, 2):
            state["loader"].value = {"at": step, "raw": bytes([step]) * 50}
            checkpoint.step(step)
            checkpoint.wait()
        begin = checkpoint._session.writer.slot.geometry.offset(1, 1)
        path = next(checkpoint.folder.glob("blocks-*"))
    whole = path.read_bytes()
    for cut in range(0, 64 + 200, 3):
        torn = bytearray(whole)
        torn[begin + cut : begin + 320] = b"\xa5" * (320 - cut)  # written up to here, then killed
        path.write_bytes(torn)
        report = restore(tmp_path, state)
        assert (report.newest_step, report.objects_step) == (2, 1)
        assert state["loader"].value == {"at": 1, "raw": b"\1" * 50}
        assert "objects of step 1" in str(report)
    assert [(bad.fqn, bad.lost) for bad in verify(tmp_path)] == [("__objects__", False)]


class FailingDisk(OsDisk):
    fail = False

    def fdatasync(self, fd: int) -> None:
        if self.fail:
            raise OSError(28, "No space left on device")
        super().fdatasync(fd)


def test_after_a_failed_round_the_next_has_them(tmp_path: Path) -> None:
    disk = FailingDisk()
    state = {"w": torch.zeros(8), "loader": HeldValue(1)}
    with RunningCheckpoint(tmp_path, state, policy="full", disk=disk) as checkpoint:
        checkpoint.save_all(1)
        disk.fail = True
        checkpoint.step(2)
        with pytest.raises(CheckpointError, match="No space"):
            checkpoint.wait()
        disk.fail = False
        state["loader"].value = 3
        checkpoint.step(3)
        checkpoint.wait()
    report = restore(tmp_path, state)
    assert (report.objects_step, state["loader"].value) == (3, 3)


def test_a_model_replaced_in_the_dictionary_is_said(tmp_path: Path) -> None:
    state = {"model": nn.Linear(2, 2), "loader": HeldValue(1)}
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        checkpoint.save_all(1)
        state["loader"] = HeldValue(5)  # looked up in each round
        assert checkpoint.step(2).error is None
        checkpoint.wait()
        assert saved_objects(tmp_path, slot=0)["loader"].values == {"value": 5}
        state["model"] = nn.Linear(2, 2)
        assert "model: replaced in the dictionary" in checkpoint.step(3).error
