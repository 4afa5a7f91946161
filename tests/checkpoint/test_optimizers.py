"""All that an optimizer holds is saved, whatever it is made of, or refused by name."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.checkpoint import Budget, RandomStates, RunningCheckpoint, restore  # noqa: E402

AdamW = torch.optim.AdamW


class Container(torch.optim.Optimizer):
    """One optimizer for each part of the model, as torchtitan has it; its own state is empty."""

    def __init__(self, model: nn.Module) -> None:
        self.optimizers = [AdamW(model[n].parameters(), lr=0.1) for n in (0, 2)]
        super().__init__(model.parameters(), {"lr": 0.1})

    def step(self, closure=None) -> None:
        for one in self.optimizers:
            one.step()

    def state_dict(self):
        return {f"part{n}": one.state_dict() for n, one in enumerate(self.optimizers)}


class Hiding(torch.optim.Optimizer):
    """Steps one that only a closure knows; it is in the state dictionary."""

    def __init__(self, model: nn.Module) -> None:
        inner = AdamW(model.parameters(), lr=0.1)
        self.call = lambda name, *arguments: getattr(inner, name)(*arguments)
        super().__init__(model.parameters(), {"lr": 0.1})

    def step(self, closure=None) -> None:
        self.call("step")

    def state_dict(self):
        return {"inner": self.call("state_dict")}

    def load_state_dict(self, state) -> None:
        self.call("load_state_dict", state["inner"])


class Sam(torch.optim.Optimizer):
    """Shares the groups of its base and keeps moments of its own; a step needs a closure."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"rho": 0.05, "lr": 0.1})
        self.base_optimizer = AdamW(self.param_groups, lr=0.1)
        self.param_groups = self.base_optimizer.param_groups

    def step(self, closure=None) -> None:
        assert closure is not None
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["old"] = parameter.detach().clone()
        self.base_optimizer.step()


class Handing(torch.optim.Optimizer):
    """Hands everything on, as accelerate's; it is not built as an Optimizer."""

    def __init__(self, model: nn.Module) -> None:
        self.optimizer = AdamW(model.parameters(), lr=0.1)

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)

    def step(self, closure=None) -> None:
        self.optimizer.step()

    def state_dict(self):
        return self.optimizer.state_dict()


class Ahead(torch.optim.Optimizer):
    """Slow weights beside the moments of another, whose keys it uses too (Lookahead's way)."""

    def __init__(self, model: nn.Module) -> None:
        self.base = AdamW(model.parameters(), lr=0.1)
        self.state = defaultdict(dict)

    param_groups = property(lambda self: self.base.param_groups)

    def step(self, closure=None) -> None:
        self.base.step()
        for parameter in self.param_groups[0]["params"]:
            slow = self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter))
            slow.lerp_(parameter.detach(), 0.5)


class Counting(AdamW):
    """Its state dictionary has a number that is no option of a group."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.1)
        self.calls = 0

    def step(self, closure=None) -> None:
        self.calls += 1
        super().step()

    def state_dict(self):
        return {**super().state_dict(), "calls": self.calls}

    def load_state_dict(self, state) -> None:
        self.calls = state.pop("calls")
        super().load_state_dict(state)


class Sparse(torch.optim.SparseAdam):
    def __init__(self, model: nn.Module) -> None:
        super().__init__([model[0].weight], lr=0.1)


def build(kind, seed: int) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    first = nn.Embedding(8, 6, sparse=True) if kind is Sparse else nn.Linear(8, 6)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(6, 2))
    return model, kind(model)


def train(
    kind, model: nn.Sequential, optimizer: torch.optim.Optimizer, steps: range
) -> list[float]:
    losses = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        batch = torch.randn(5, 8, generator=generator)
        if kind is Sparse:
            batch = torch.randint(8, (5,), generator=generator)
        for parameter in model.parameters():
            parameter.grad = None
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step(*[lambda: None] if kind is Sam else [])
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", [Container, Sam, Handing, Ahead, Counting, Sparse, Hiding])
def test_losses_go_on_exactly(tmp_path: Path, kind) -> None:
    model, optimizer = build(kind, 0)
    with RunningCheckpoint(
        tmp_path, {"model": model, "optimizer": optimizer}, policy="full"
    ) as checkpoint:
        for step in range(1, 6):
            train(kind, model, optimizer, range(step, step + 1))
            checkpoint.step(step)
            checkpoint.wait()
    expected = train(kind, model, optimizer, range(6, 12))
    model, optimizer = build(kind, 1)
    with RunningCheckpoint(tmp_path, {"model": model, "optimizer": optimizer}) as checkpoint:
        start = checkpoint.resume_or_begin()
    assert (start.step, start.report.fresh_moments) == (5, ())
    assert train(kind, model, optimizer, range(6, 12)) == expected


def test_what_nobody_finds_is_refused_by_name(tmp_path: Path) -> None:
    model, optimizer = build(AdamWOf, 0)
    with RunningCheckpoint(
        tmp_path, {"model": model, "optimizer": optimizer}, policy="full"
    ) as checkpoint:
        checkpoint.save_all(1)
        optimizer.hidden = {"moments": torch.ones(3)}
        train(AdamWOf, model, optimizer, range(1))
        error = checkpoint.step(2).error
        assert "AdamWOf holds more than moments and options of its parameters: hidden.mom" in error
        with pytest.raises(CheckpointError, match="Give it as an object"):
            checkpoint.save_all(2)


class AdamWOf(AdamW):
    """Its state dictionary may come to hold more."""

    hidden = None

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.1)

    def state_dict(self):
        return {**super().state_dict(), "hidden": self.hidden}


def test_moments_of_another_class_are_not_made(tmp_path: Path) -> None:
    """What was saved is made only in an optimizer of the class that had it."""
    model, optimizer = build(Ahead, 0)
    train(Ahead, model, optimizer, range(3))
    with RunningCheckpoint(tmp_path, {"model": model, "optimizer": optimizer}) as checkpoint:
        checkpoint.save_all(3)
    model, _ = build(Ahead, 1)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(CheckpointError, match="saved moments have no place in the optimizer"):
        restore(tmp_path, {"model": model, "optimizer": plain})


class Codes(torch.optim.Optimizer):
    """Moments as 8-bit codes of the parameter's shape (or packed) with scales, as bitsandbytes'."""

    def __init__(self, parameters, *, packed: bool = False) -> None:
        super().__init__(parameters, {})
        self._packed = packed

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for parameter in self.param_groups[0]["params"]:
            moments = self.state[parameter]
            if not moments:
                shape = (parameter.numel() // 2,) if self._packed else parameter.shape
                moments["state1"] = torch.zeros(shape, dtype=torch.uint8)
                moments["absmax1"] = torch.zeros(parameter.numel() // 16)
            moments["state1"].add_(1)
            moments["absmax1"].add_(1)
            parameter.add_(1)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows", [16, 512])
def test_codes_and_scales_of_one_parameter_are_of_one_step(
    tmp_path: Path, rows: int, packed: bool
) -> None:
    """Whatever the size of the scales: above 1024 they had blocks of their own."""
    model = nn.ParameterList([torch.zeros(rows, 64), torch.zeros(rows, 64)])
    state = {"model": model, "optimizer": Codes(model.parameters(), packed=packed)}
    with RunningCheckpoint(
        tmp_path, state, policy="round-robin", budget=Budget(fraction=0.3), block_bytes=1024
    ) as checkpoint:
        for step in range(6):
            state["optimizer"].step()
            checkpoint.step(step)
            checkpoint.wait()
        assert len({age.step for age in checkpoint.ages()}) > 1
    for parameter in model:
        parameter.data.zero_()
    restore(tmp_path, state)
    for parameter in model:
        moments = state["optimizer"].state[parameter]
        assert (
            len({float(v) for t in (*moments.values(), parameter) for v in t.detach().unique()})
            == 1
        )


def test_a_checkpoint_of_format_3_is_taken_up_as_it_was(tmp_path: Path) -> None:
    """Written before optimizers were recorded; the scales of a table have blocks of their own."""
    path = tmp_path / "slot-0" / "blocks-00000001.bin"
    path.parent.mkdir()
    sample = Path(__file__).parent / "samples" / "slot-format-3.bin.gz"
    path.write_bytes(gzip.decompress(sample.read_bytes()))
    model, table = nn.Linear(3, 2), nn.ParameterList([torch.zeros(512, 64)])
    optimizer = AdamW(model.parameters(), lr=9.0)
    state = {
        "model": model,
        "table": table,
        "optimizer": optimizer,
        "coded": Codes(table.parameters()),
        "lrs": torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5),
        "random": RandomStates(),
    }
    with RunningCheckpoint(tmp_path, state, policy="full", run="golden") as checkpoint:
        start = checkpoint.resume_or_begin()
    assert (start.step, start.report.fresh_moments) == (3, ())
    assert (start.report.missing, start.report.unused_moments) == ((), ())
    # steps of AdamW under equal gradients are as long as its rate: .25, .25 and .125
    expected = torch.arange(6.0).view(2, 3) - 0.625
    assert torch.allclose(model.weight.detach(), expected, atol=1e-6)
    moments = optimizer.state[model.bias]
    assert float(moments["step"]) == 3
    assert torch.allclose(moments["exp_avg"], torch.full((2,), 1 - 0.9**3))
    assert (optimizer.param_groups[0]["lr"], state["lrs"].last_epoch) == (0.125, 3)
    coded = state["coded"].state[table[0]]
    assert [t.detach().unique().tolist() for t in (table[0], *coded.values())] == [[3.0]] * 3
    first = torch.rand(1)
    torch.manual_seed(7)
    assert first == torch.rand(1)
