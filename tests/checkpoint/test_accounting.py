"""Every tensor of a live model is saved and restored, or refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
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


def test_extra_state_of_a_module_is_named(tmp_path: Path) -> None:
    class Counting(nn.Linear):
        def get_extra_state(self):
            return {"calls": 3}

        def set_extra_state(self, state):
            pass

    with pytest.warns(UserWarning, match=r"0\._extra_state: extra state of a module is not part"):
        TrainingState(nn.Sequential(Counting(2, 2)))


def test_optimizers_that_keep_lists_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="LBFGS keeps lists of tensors"):
        TrainingState(model, torch.optim.LBFGS(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight]["history"] = [torch.ones(2, 2)]
    with pytest.raises(CheckpointError, match="weight: the optimizer keeps history as a list"):
        TrainingState(model, optimizer)
