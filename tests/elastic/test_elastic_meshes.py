"""DTensor in one process over several generations: clipping, gathering, 1D and 2D meshes."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from ettr.elastic import Timeouts, process_group  # noqa: E402
from forked_python import Ended, run_together  # noqa: E402

RANK = """
import logging, sys, time
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ettr.elastic import Timeouts
from ettr.elastic import process_group
from ettr.elastic.rendezvous import connect, prefixed

port, slot, shape = int(sys.argv[1]), int(sys.argv[2]), tuple(map(int, sys.argv[3].split("x")))
world = shape[0] if len(shape) == 1 else shape[0] * shape[1]


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[: len(shape)])
    if len(shape) == 2:
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, mesh["tp"], plan)
        mesh = mesh["dp"]
    return fully_shard(model, mesh=mesh)


for number in (1, 2, 3):
    store = prefixed(f"gen{number}", connect("127.0.0.1", port, 120))
    process_group.form(number, store, slot, world, Timeouts(20, 30, 60), over=lambda: False)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(4, 8)).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    total = sum(parameter.full_tensor().sum() for parameter in model.parameters())
    assert slot or abs(float(total) - sum(float(v.sum()) for v in whole.values())) < 1e-4
    print(f"{float(norm):.4f} {float(total):.4f}", flush=True)
    del model, optimizer, norm
    # who destroys its group closes the sockets: the others must have the end of the last gather
    store.add("gathered", 1)
    while store.add("gathered", 0) < world:
        time.sleep(0.01)
    process_group.destroy()
"""


ATTEMPTS = 4
# gloo 2.13 now and then never ends a send, with nothing of ours in the way (4 of 24 runs of this
# program): such a run says nothing about meshes and is made again. A mesh of a generation that is
# gone fails at once, with another error.
STUCK_SEND = "for send operation to complete"


def run_of(shape: str, world: int, folder: Path) -> list[Ended]:
    """The ranks of one run."""
    served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    words = [[str(served.port), str(slot), shape] for slot in range(world)]
    return run_together([[sys.executable, "-c", RANK, *own] for own in words], folder, limit_s=120)


@pytest.mark.parametrize(("shape", "world"), [("2", 2), ("2x2", 4)])
def test_clipping_and_gathering_work_in_every_generation_of_a_process(shape, world, tmp_path):
    for _ in range(ATTEMPTS):
        ended = run_of(shape, world, tmp_path)
        if not any(STUCK_SEND in rank.errors for rank in ended):
            break
    assert [rank.status for rank in ended] == [0] * world, [rank.errors[-2000:] for rank in ended]
    for rank in ended:
        lines = rank.output.splitlines()
        assert len(lines) == 3
        assert len(set(lines)) == 1  # the same model, the same steps


def test_meshes_that_a_script_makes_are_equal_within_a_generation_only():
    made = []
    for number in (1, 2):
        process_group.form(number, dist.HashStore(), 0, 1, Timeouts(20, 30, 40), over=lambda: False)
        made.append([init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b")) for _ in range(2)])
        made[-1] += [mesh["a"] for mesh in made[-1]]
        process_group.destroy()
    (first, first_again, first_slice, first_slice_again), (second, _, second_slice, _) = made
    assert first == first_again
    assert hash(first) == hash(first_again)
    assert first_slice == first_slice_again
    assert first != second
    assert first_slice != second_slice
