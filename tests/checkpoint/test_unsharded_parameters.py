"""FSDP2 puts whole parameters into the model while it computes; its shards are what is saved."""

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from ettr.checkpoint import RunningCheckpoint  # noqa: E402


@pytest.fixture
def two_ranks():
    """This process is the first of two ranks; the other is imagined, as collectives are."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def sharded(mesh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    low = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in (model[0], model):
        fully_shard(layer, mesh=mesh, mp_policy=low)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-2)}


def train_step(state):
    state["model"](torch.ones(2, 8)).sum().backward()
    state["optimizer"].step()
    state["optimizer"].zero_grad()


def test_rounds_are_written_and_scored_while_the_model_computes(two_ranks, tmp_path):
    state = sharded(two_ranks)
    train_step(state)
    with RunningCheckpoint(tmp_path, state, policy="priority") as checkpoint:
        checkpoint.save_all(0)
        # the writer ends its work in the middle of the next step's forward pass
        state["model"][1].register_forward_hook(lambda *_: checkpoint.wait(60.0))
        for step in range(1, 9):
            assert checkpoint.step(step).error is None
            train_step(state)
        scored = checkpoint._session.writer.saved.distance2
    moved = [name for name, squared in zip(checkpoint.ages(), scored, strict=False) if squared > 0]
    assert moved  # by AdamW, of which the score must know
    # of a step or two at a rate of .01: no element has moved by more than .1 since it was saved
    assert max(scored) < 0.01 * 64


def test_an_evaluation_before_the_round_changes_nothing(two_ranks, tmp_path):
    state = sharded(two_ranks)
    train_step(state)
    with RunningCheckpoint(tmp_path, state, policy="full") as checkpoint:
        checkpoint.save_all(0)
        generation = checkpoint.generation
        for step in range(1, 4):
            train_step(state)
            with torch.no_grad():
                state["model"](torch.ones(2, 8))  # the root keeps its whole parameters afterwards
            held = id(state["model"][2].weight)
            assert checkpoint.step(step).error is None
            # no rank may free them for itself: its next step would gather them and the others' not
            assert id(state["model"][2].weight) == held
            checkpoint.wait()
        assert checkpoint.generation == generation
        assert {age.step for age in checkpoint.ages()} == {3}
