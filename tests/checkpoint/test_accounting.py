"""Every tensor of a live model is saved and restored, or refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from ettr.checkpoint import RunningCheckpoint, TrainingState, restore  # noqa: E402
from ettr.checkpoint.export import assemble  # noqa: E402


def two_tensor_model(seed: int) -> nn.Sequential:
    """Four layers of one shape, each weight a subclass of two inner tensors without own memory."""
    gen = torch.Generator().manual_seed(seed)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))
    for layer in model:
        pair = (torch.randn(6, 6, generator=gen) for _ in range(2))
        layer.weight = nn.Parameter(TwoTensor(*pair))
        nn.init.normal_(layer.bias, generator=gen)
    return model


def with_step(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 0.5 + number)
    optimizer.step()
    return optimizer


def flat(value: torch.Tensor) -> list[torch.Tensor]:
    return [value.a.detach(), value.b.detach()] if isinstance(value, TwoTensor) else [value]


def values(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    tensors = [*model.state_dict().values()]
    for parameter in model.parameters():
        tensors += optimizer.state[parameter].values()
    return [one.clone() for tensor in tensors for one in flat(tensor)]


@pytest.mark.parametrize("policy", ["full", "round-robin", "priority", "dirty"])
def test_subclasses_of_one_shape_are_saved_through_their_inner_tensors(
    tmp_path: Path, policy: str
) -> None:
    model = two_tensor_model(0)
    optimizer = with_step(model)
    with RunningCheckpoint(
        tmp_path, TrainingState(model, optimizer), policy=policy, block_bytes=128
    ) as checkpoint:
        checkpoint.save_all(1)
    tensors = assemble(tmp_path, moments=True).tensors
    assert torch.equal(tensors["0.weight"], model[0].weight.a)
    assert torch.equal(tensors["0.weight.b"], model[0].weight.b)
    moment = optimizer.state[model[0].weight]["exp_avg"]
    assert torch.equal(tensors["optimizer.0.weight.exp_avg.b"], moment.b)
    other = two_tensor_model(1)
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.1)
    report = restore(tmp_path, TrainingState(other, other_optimizer))
    assert report.restored_fraction == 1.0
    assert str(report).startswith("restored 100 % of the parameters (")
    saved, restored = values(model, optimizer), values(other, other_optimizer)
    # 4 layers: weight and bias, each with two moments; of a weight each is a pair; a step count
    assert len(saved) == len(restored) == 4 * (2 + 1 + 2 * 2 + 2 + 2)
    assert all(torch.equal(one, two) for one, two in zip(saved, restored, strict=True))


def test_codes_and_their_scale_are_of_one_step(tmp_path: Path) -> None:
    """A subclass with an inner tensor of another shape is one block, however small blocks are."""

    class Scaled(TwoTensor):
        """Values as codes and one scale per row; `__tensor_flatten__` is TwoTensor's."""

        @staticmethod
        def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=codes.dtype)

        def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
            self.a, self.b = codes, scale

    def model_of(value: float) -> nn.Module:
        model = nn.Module()
        model.weight = nn.Parameter(Scaled(torch.full((64, 8), value), torch.full((64, 1), value)))
        return model

    model = model_of(1.0)
    with RunningCheckpoint(tmp_path, model, policy="round-robin", block_bytes=64) as checkpoint:
        checkpoint.save_all(1)
        assert [age.sizes for age in checkpoint.ages()] == [(64, 8)]
        with torch.no_grad():
            model.weight.a.fill_(2.0)
            model.weight.b.fill_(2.0)
        checkpoint.step(2)
    other = model_of(0.0)
    restore(tmp_path, other)
    assert other.weight.a.unique().tolist() == other.weight.b.unique().tolist() == [2.0]


class Opaque(torch.Tensor):
    """A subclass without memory that does not say what it is made of."""

    @staticmethod
    def __new__(cls, n: int) -> torch.Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, (n,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return args[0]


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (lambda: Opaque(3), r"odd is a Opaque .* whose bytes cannot be reached"),
        (lambda: torch.eye(3).to_sparse(), r"odd is a Tensor \(torch.sparse_coo\) whose bytes"),
        (lambda: torch.empty(3, device="meta"), r"odd is on the meta device and has no values"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name(tmp_path: Path, tensor, reason: str) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("odd", tensor())
    with pytest.raises(CheckpointError, match=reason):
        TrainingState(model)
    with pytest.raises(CheckpointError, match=reason):
        RunningCheckpoint(tmp_path, {"odd": tensor()})
    with RunningCheckpoint(tmp_path / "rc", {"odd": torch.ones(3)}) as checkpoint:
        checkpoint.save_all(1)
    with pytest.raises(CheckpointError, match=reason):
        restore(tmp_path / "rc", {"odd": tensor()})


def test_a_restore_into_a_model_on_the_meta_device_is_refused(tmp_path: Path) -> None:
    with RunningCheckpoint(tmp_path, nn.Linear(2, 2)) as checkpoint:
        checkpoint.save_all(1)
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"weight is on the meta device.*call to_empty\(\)"):
        restore(tmp_path, model)
    model.to_empty(device="cpu")
    assert restore(tmp_path, model).restored_fraction == 1.0


def test_a_buffer_that_is_replaced_is_saved_as_it_is_now(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mean", torch.zeros(2))
    with RunningCheckpoint(tmp_path, model, policy="full") as checkpoint:
        checkpoint.save_all(0)
        model.mean = torch.ones(2)
        checkpoint.step(1)
        checkpoint.wait()
        assert checkpoint.generation == 1  # the same blocks: no new file
    model.mean = torch.full((2,), 7.0)
    restore(tmp_path, model)
    assert model.mean.tolist() == [1.0, 1.0]


def test_a_tensor_that_a_hook_makes_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)

    def add(module, state, prefix, metadata):
        state[prefix + "weight"] = state[prefix + "weight"] * 2

    model.register_state_dict_post_hook(add)
    with pytest.raises(CheckpointError, match="weight: a hook of the model's state dictionary"):
        TrainingState(model)


class Fused(nn.Linear):
    """One weight that its state dictionary holds as two, as torchtitan's fused projections."""

    def __init__(self, *, extra: bool = False) -> None:
        super().__init__(2, 4, bias=False)
        self.extra = extra
        self._register_state_dict_hook(self.split)
        self.register_load_state_dict_pre_hook(self.join)

    @staticmethod
    def split(module, state, prefix, metadata) -> None:
        both = state.pop(f"{prefix}weight")
        state[f"{prefix}first"], state[f"{prefix}second"] = both[:2].clone(), both[2:].clone()
        if module.extra:
            state[f"{prefix}scale"] = torch.ones(1)

    @staticmethod
    def join(module, state, prefix, *rest) -> None:
        parts = [state.pop(f"{prefix}{name}") for name in ("first", "second")]
        state[f"{prefix}weight"] = torch.cat(parts)


def test_a_weight_that_a_hook_splits_and_one_of_loading_joins_is_saved_as_it_is(
    tmp_path: Path,
) -> None:
    model = nn.Sequential(Fused(), nn.Linear(4, 1))
    with RunningCheckpoint(tmp_path, model) as checkpoint:
        checkpoint.save_all(1)
    saved = model[0].weight.detach().clone()
    nn.init.zeros_(model[0].weight)
    report = restore(tmp_path, model)
    assert torch.equal(model[0].weight, saved)
    assert (report.missing, report.unused_tensors) == ((), ())


def test_a_hook_that_adds_to_what_it_splits_is_refused() -> None:
    with pytest.raises(CheckpointError, match="a hook of the model's state dictionary"):
        TrainingState(nn.Sequential(Fused(extra=True)))


def test_extra_state_of_a_module_comes_back(tmp_path: Path) -> None:
    class Counting(nn.Linear):
        calls = 0

        def get_extra_state(self):
            return {"calls": self.calls}

        def set_extra_state(self, state):
            self.calls = state["calls"]

    model = nn.Sequential(Counting(2, 2))
    model[0].calls = 3
    with RunningCheckpoint(tmp_path, model) as checkpoint:
        checkpoint.save_all(1)
    other = nn.Sequential(Counting(2, 2))
    assert restore(tmp_path, other).objects == ("0._extra_state",)
    assert other[0].calls == 3


def test_optimizers_that_keep_lists_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="LBFGS keeps lists of tensors"):
        TrainingState(model, torch.optim.LBFGS(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight]["history"] = [torch.ones(2, 2)]
    with pytest.raises(CheckpointError, match="weight: the optimizer keeps history as a list"):
        TrainingState(model, optimizer)


def small() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((5, 4), 1.0 + step)).square().sum().backward()
        optimizer.step()


@pytest.fixture
def trained(tmp_path: Path) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(5)
    model, optimizer = small()
    train(model, optimizer, 3)
    with RunningCheckpoint(tmp_path, TrainingState(model, optimizer)) as checkpoint:
        checkpoint.save_all(3)
    return model, optimizer


def test_gradients_at_the_restore_cost_no_moment(tmp_path: Path, trained) -> None:
    """A forward and backward pass before it, as for torch.compile's warm-up."""
    model, optimizer = small()
    model(torch.ones(5, 4)).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    report = restore(tmp_path, TrainingState(model, optimizer))
    assert report.fresh_moments == ()
    expected, found = values(*trained), values(model, optimizer)
    assert len(found) == 4 + 4 * 3
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_an_optimizer_that_has_stepped_on_some_parameters_loses_no_moment(
    tmp_path: Path, trained
) -> None:
    model, optimizer = small()
    model[1](torch.ones(5, 3)).sum().backward()
    optimizer.step()
    assert len(optimizer.state) == 2  # of four parameters
    restore(tmp_path, TrainingState(model, optimizer))
    expected, found = values(*trained), values(model, optimizer)
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))


def test_a_restore_runs_no_hook_of_the_optimizer(tmp_path: Path, trained) -> None:
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    model, optimizer = small()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    calls = []
    handles = [
        optimizer.register_step_pre_hook(lambda *_: calls.append("pre")),
        optimizer.register_step_post_hook(lambda *_: calls.append("post")),
        register_optimizer_step_pre_hook(lambda *_: calls.append("global pre")),
        register_optimizer_step_post_hook(lambda *_: calls.append("global post")),
    ]
    try:
        restore(tmp_path, TrainingState(model, optimizer))
        assert calls == []
        assert optimizer.param_groups[0]["lr"] == 0.1
        train(model, optimizer)
        assert sorted(calls) == ["global post", "global pre", "post", "pre"]
    finally:
        for handle in handles:
            handle.remove()
    scheduler.step()


def test_moments_of_another_optimizer_are_not_left_out_in_silence(tmp_path: Path, trained) -> None:
    model, _ = small()
    state = TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    reason = r"12 saved moments have no place in the optimizer \(exp_avg of 0.bias, exp_avg of"
    with pytest.raises(CheckpointError, match=reason):
        restore(tmp_path, state)
    report = restore(tmp_path, state, allow_missing=True)
    assert len(report.unused_moments) == 12
    assert restore(tmp_path, model).unused_moments == ()  # a model alone asks for no moments


@pytest.mark.parametrize("live", [torch.bfloat16, torch.int64])
def test_values_are_converted_only_where_that_is_asked_for(tmp_path: Path, live) -> None:
    with RunningCheckpoint(tmp_path, {"w": torch.tensor([1.5, 2.5])}) as checkpoint:
        checkpoint.save_all(1)
    target = {"w": torch.zeros(2, dtype=live)}
    name = str(live).removeprefix("torch.")
    with pytest.raises(CheckpointError, match=f"w: param was saved as float32 and is {name} now"):
        restore(tmp_path, target)
    assert target["w"].tolist() == [0, 0]
    restore(tmp_path, target, cast=True)
    assert target["w"].tolist() == ([1.5, 2.5] if live is torch.bfloat16 else [1, 2])


def test_overlapping_blocks_count_once(tmp_path: Path) -> None:
    """Blocks of two rows, then of three, in one slot: every element is restored, some twice."""
    table = torch.arange(24.0).view(12, 2)
    for rows in (2, 3):
        with RunningCheckpoint(
            tmp_path, {"w": table}, rows={"w": rows}, policy="round-robin"
        ) as checkpoint:
            if rows == 2:
                checkpoint.save_all(1)
            else:
                checkpoint.step(2)
    report = restore(tmp_path, {"w": torch.zeros(12, 2)})
    assert report.blocks == 7
    assert report.restored_fraction == 1.0


def changes(model: nn.Module, optimizer: torch.optim.Optimizer, change: str) -> None:
    if change == "layer":
        layer = nn.Linear(2, 2)
        model.append(layer)
        optimizer.add_param_group({"params": layer.parameters()})
    elif change == "dtype":
        model.to(torch.bfloat16)
        for moments in optimizer.state.values():
            moments["exp_avg"] = moments["exp_avg"].to(torch.bfloat16)
            moments["exp_avg_sq"] = moments["exp_avg_sq"].to(torch.bfloat16)
    else:
        optimizer.state.pop(model[0].weight)
        model[0].weight = nn.Parameter(torch.full((3, 4), 9.0))
        optimizer.param_groups[0]["params"] = list(model.parameters())


@pytest.mark.parametrize("policy", ["full", "priority", "dirty", "touched"])
@pytest.mark.parametrize("change", ["layer", "dtype", "another parameter"])
def test_a_model_that_changes_is_saved_as_it_is_now(
    tmp_path: Path, change: str, policy: str
) -> None:
    torch.manual_seed(3)
    model, optimizer = small()
    with RunningCheckpoint(tmp_path, TrainingState(model, optimizer), policy=policy) as checkpoint:
        train(model, optimizer)
        checkpoint.save_all(1)
        changes(model, optimizer, change)
        for number, parameter in enumerate(model.parameters()):
            parameter.grad = torch.full_like(parameter, 1.0 + number)
        optimizer.step()
        report = checkpoint.step(2)
        assert report.error is None
        checkpoint.wait()
        checkpoint.save_all(2)
    torch.manual_seed(4)
    other, other_optimizer = small()
    train(other, other_optimizer)
    changes(other, other_optimizer, change)
    report = restore(tmp_path, TrainingState(other, other_optimizer))
    assert report.fresh_moments == ()
    expected, found = values(model, optimizer), values(other, other_optimizer)
    for one, two in zip(expected, found, strict=True):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)


def test_a_parameter_that_moves_to_another_module_is_saved_from_there(tmp_path: Path) -> None:
    """Without biases the parameters stay the same objects, in the same order."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False))
    with RunningCheckpoint(tmp_path, model, policy="full") as checkpoint:
        checkpoint.save_all(1)
        parametrize.register_parametrization(model[0], "weight", nn.Identity())
        assert checkpoint.step(2).error is None
    other = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False))
    parametrize.register_parametrization(other[0], "weight", nn.Identity())
    restore(tmp_path, other)
    assert torch.equal(other[0].weight, model[0].weight)


def test_a_change_that_cannot_be_saved_is_reported_and_training_goes_on(tmp_path: Path) -> None:
    model, optimizer = small()
    train(model, optimizer)
    weight = model[0].weight
    with RunningCheckpoint(tmp_path, TrainingState(model, optimizer), policy="full") as checkpoint:
        checkpoint.save_all(1)
        model[0].weight = nn.Parameter(torch.eye(3, 4).to_sparse())
        optimizer.param_groups[0]["params"] = list(model.parameters())
        for step in (2, 3):
            report = checkpoint.step(step)
            assert "0.weight is a Tensor (torch.sparse_coo) whose bytes" in report.error
            assert (report.blocks, report.durable_step) == (0, 1)
        with pytest.raises(CheckpointError, match="whose bytes cannot be reached"):
            checkpoint.wait()
        with pytest.raises(CheckpointError, match="whose bytes cannot be reached"):
            checkpoint.save_all(3)
        model[0].weight = weight
        optimizer.param_groups[0]["params"] = list(model.parameters())
        assert checkpoint.step(4).error is None
        checkpoint.wait()
        assert {age.step for age in checkpoint.ages()} == {4}
    assert restore(tmp_path, TrainingState(model, optimizer)).newest_step == 4
