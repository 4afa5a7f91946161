"""Kinds of state, saved, restored and resharded: equal bit for bit, or refused in words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from ettr.checkpoint import RunningCheckpoint, TrainingState, restore  # noqa: E402
from ettr.checkpoint.tensors.typed_values import encode  # noqa: E402
from ettr.errors import EttrError  # noqa: E402
from held_value import HeldValue  # noqa: E402

State = dict[str, object]
DTYPES = ("bfloat16", "float16", "float64", "complex64", "complex128", "int64", "uint16", "bool")
EIGHT_BIT = ("float8_e4m3fn", "float8_e5m2", "int8", "uint8")


def trained(seed: int, optimizer=torch.optim.AdamW, **options) -> State:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    stepping = optimizer(model.parameters(), lr=0.1 / (seed + 1), **options)
    for _ in range(seed + 1):
        model(torch.randn(4, 6)).square().sum().backward()
        stepping.step()
        stepping.zero_grad()
    return {"model": model, "optimizer": stepping}


def of_dtypes(seed: int) -> State:
    torch.manual_seed(seed)
    state: State = {n: (10 * torch.randn(4, 3)).to(getattr(torch, n)) for n in DTYPES}
    for name in EIGHT_BIT:
        state[name] = torch.randint(0, 100, (4, 3), dtype=torch.uint8).view(getattr(torch, name))
    return {**state, "nan": torch.tensor([float("nan"), -0.0, float("inf")]) * (1 - 2 * seed)}


def non_contiguous(seed: int) -> State:
    torch.manual_seed(seed)
    return {
        "transposed": torch.randn(5, 7).t(),
        "strided": torch.randn(10, 6)[::2, 1::2],
        "channels_last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    }


def small(seed: int) -> State:
    return {
        "scalar": torch.tensor(2.5 + seed),
        "one": torch.full((1,), float(seed)),
        "empty": torch.empty(0, 3),
        "loader": HeldValue({"rows": torch.empty(0, dtype=torch.int64), "at": torch.tensor(seed)}),
    }


def tied(seed: int) -> State:
    torch.manual_seed(seed)
    model = nn.ModuleDict({"embedding": nn.Embedding(9, 4), "head": nn.Linear(4, 9, bias=False)})
    model["head"].weight = model["embedding"].weight
    return {"model": model, "shared": nn.ModuleList([model["head"]])}


def subclasses(seed: int) -> State:
    torch.manual_seed(seed)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))
    for layer in model:
        layer.weight = nn.Parameter(TwoTensor(torch.randn(6, 6), torch.randn(6, 6)))
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5 + seed)
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


def averaged(seed: int) -> State:
    state = trained(seed)
    average = torch.optim.swa_utils.AveragedModel(state["model"], use_buffers=True)
    average.update_parameters(state["model"])
    return {**state, "average": average}


def lbfgs(seed: int) -> State:
    torch.manual_seed(seed)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
    data = torch.randn(8, 3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(data) - 1).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return {"model": model, "optimizer": optimizer}


def listed(seed: int) -> State:
    state = trained(seed, torch.optim.SGD)
    state["optimizer"].state[state["model"][0].weight]["history"] = [torch.ones(2)]
    return state


def scaled(seed: int) -> State:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (10 + seed))
    scaler.scale(torch.ones(1))
    return {**trained(seed), "scaler": scaler}


def scheduled(seed: int) -> State:
    state = trained(seed)
    lrs = torch.optim.lr_scheduler
    schedule = lrs.SequentialLR(
        state["optimizer"],
        [lrs.LinearLR(state["optimizer"], 0.1, 1.0, 5), lrs.ExponentialLR(state["optimizer"], 0.9)],
        [5],
    )
    for _ in range(4 * seed + 3):
        state["optimizer"].step()
        schedule.step()
    return {**state, "lrs": schedule}


def loading(seed: int) -> State:
    data = pytest.importorskip("torchdata.stateful_dataloader")
    with warnings.catch_warnings(action="ignore"):  # torchdata's own, of torch's deprecations
        loader = data.StatefulDataLoader(list(range(64)), batch_size=4, shuffle=True)
        batches = iter(loader)
        for _ in range(3 + seed):
            next(batches)
    return {"w": torch.full((3,), float(seed)), "loader": loader}


def eight_bit_weights(seed: int) -> State:
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return {"model": model}


def quantised(seed: int) -> State:
    with warnings.catch_warnings(action="ignore"):
        return {"q": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)}


def of(builder: Callable[..., State], **options) -> Callable[[int], State]:
    return lambda seed: builder(seed, **options)


EQUAL = ""
KINDS: dict[str, tuple[Callable[[int], State], str]] = {
    "parameters, buffers, AdamW": (trained, EQUAL),
    "Adafactor": (of(trained, optimizer=torch.optim.Adafactor), EQUAL),
    "SGD without moments": (of(trained, optimizer=torch.optim.SGD), EQUAL),
    "AdamW, amsgrad": (of(trained, amsgrad=True), EQUAL),
    "dtypes": (of_dtypes, EQUAL),
    "not contiguous": (non_contiguous, EQUAL),
    "0-dim and empty": (small, EQUAL),
    "tied and shared": (tied, EQUAL),
    "tensor subclasses": (subclasses, EQUAL),
    "averaged model": (averaged, EQUAL),
    "LBFGS": (lbfgs, EQUAL),
    "GradScaler": (scaled, EQUAL),
    "scheduler": (scheduled, EQUAL),
    "StatefulDataLoader": (loading, EQUAL),
    "torchao int8 weights": (eight_bit_weights, EQUAL),
    "lists in an optimizer": (listed, "the optimizer keeps history as a list"),
    "quantised": (quantised, "q is a Tensor .* whose bytes cannot be reached"),
    "sparse": (lambda _: {"s": torch.eye(3).to_sparse()}, "s is a Tensor .* whose bytes cannot"),
    "meta": (lambda _: {"m": nn.Linear(2, 2, device="meta")}, "is on the meta device"),
    "conjugate view": (
        lambda seed: {"c": torch.tensor([1 + 2j * seed]).conj()},
        "c is a Tensor .* whose bytes cannot be reached",
    ),
    "a value of no known type": (
        lambda _: {"o": HeldValue(object())},
        "object 'o': state.value is",
    ),
}


def flat(value: object) -> list[Tensor]:
    """Every plain tensor within a value."""
    if isinstance(value, Tensor) and hasattr(value, "__tensor_flatten__"):
        return [t for name in value.__tensor_flatten__()[0] for t in flat(getattr(value, name))]
    return [value.detach()] if isinstance(value, Tensor) else []


def contents(state: State) -> list[bytes]:
    """All that a state holds, as bytes; by state_dict, not by this package's view of it."""
    found: list[bytes] = []
    for one in state.values():
        if isinstance(one, nn.Module):
            values = list(one.state_dict().values())
        elif isinstance(one, torch.optim.Optimizer) and not isinstance(one, torch.optim.LBFGS):
            saved = one.state_dict()
            values = [v for moments in saved["state"].values() for v in moments.values()]
            found.append(encode({"groups": saved["param_groups"]}, 0))
        elif isinstance(one, Tensor):
            values = [one]
        else:
            values = []
            found.append(encode({"state": one.state_dict()}, 0))
        found += [encode({"t": tensor}, 0) for value in values for tensor in flat(value)]
    return found


@pytest.mark.parametrize("way", ["restored", "resharded"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_equal_bit_for_bit_or_refused(tmp_path: Path, kind: str, way: str) -> None:
    build, refusal = KINDS[kind]
    ranks = 1 if way == "restored" else 2
    saved = build(0)
    if refusal:
        with pytest.raises(EttrError, match=refusal):
            RunningCheckpoint(tmp_path, saved)
        with RunningCheckpoint(tmp_path, {name: torch.ones(3) for name in saved}) as checkpoint:
            checkpoint.save_all(1)
        with pytest.raises(EttrError):
            restore(tmp_path, saved)
        return
    expected = contents(saved)
    for rank in range(ranks):
        state = TrainingState.of(saved, replica=(rank, ranks))
        with RunningCheckpoint(tmp_path, state, slot=rank, block_bytes=64) as checkpoint:
            checkpoint.save_all(1)
    live = build(1)
    assert contents(live) != expected, "the test would see nothing"
    report = restore(tmp_path, live)
    assert contents(live) == expected
    assert (report.missing_objects, report.unused_objects, report.missing) == ((), (), ())


class Late(torch.optim.AdamW):
    """Adds a slow copy to what it holds of each parameter at its third step."""

    def step(self, closure=None) -> None:
        super().step()
        for entry in self.state.values():
            if entry["step"] >= 3:
                entry.setdefault("slow", torch.full_like(entry["exp_avg"], 7.0))


def touching(parameters, **options) -> torch.optim.Optimizer:
    """AdamW after somebody has looked at its moments: that makes empty entries."""
    optimizer = torch.optim.AdamW(parameters, **options)
    for parameter in optimizer.param_groups[0]["params"]:
        assert not optimizer.state[parameter]
    return optimizer


@pytest.mark.parametrize("kind", [Late, touching])
def test_moments_that_appear_in_entries_which_exist_are_saved(tmp_path: Path, kind) -> None:
    model = nn.Linear(4, 3)
    optimizer = kind(model.parameters(), lr=0.1)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        model(torch.full((2, 4), float(step))).square().sum().backward()
        optimizer.step()

    with RunningCheckpoint(
        tmp_path, {"model": model, "optimizer": optimizer}, policy="full"
    ) as checkpoint:
        checkpoint.save_all(0)
        for step in range(1, 6):
            train(model, optimizer, step)
            checkpoint.step(step)
            checkpoint.wait()
    other = nn.Linear(4, 3)
    fresh = kind(other.parameters(), lr=0.1)
    for step in range(4):
        train(other, fresh, step)
    report = restore(tmp_path, {"model": other, "optimizer": fresh})
    assert "anew" not in str(report)
    for saved, restored in zip(optimizer.state.values(), fresh.state.values(), strict=True):
        assert saved.keys() == restored.keys()
        assert all(torch.equal(saved[key], restored[key]) for key in saved)
