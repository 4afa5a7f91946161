"""One rank of test_sharded_checkpoint: saves its slot, restores it, and compares bit by bit."""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from ettr.checkpoint import RunningCheckpoint, TrainingState, restore
from ettr.checkpoint.tensors.shards import local_tensor


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(15, 33), nn.ReLU(), nn.Linear(33, 1))


def build(kind: str, world: int):
    model = layers()
    if kind == "fsdp2":
        mesh = init_device_mesh("cpu", (world,))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)
    wrapped = DistributedDataParallel(model)
    if kind == "zero1":
        return wrapped, ZeroRedundancyOptimizer(
            wrapped.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-2
        )
    return wrapped, torch.optim.AdamW(wrapped.parameters(), lr=1e-2)


def train(model, optimizer, steps: int) -> None:
    gen = torch.Generator().manual_seed(3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 15, generator=gen)).square().mean().backward()
        optimizer.step()


def everything(state: TrainingState) -> dict[str, torch.Tensor]:
    found = {}
    for shard in state.shards():
        for component in shard.spec.components:
            found[f"{shard.spec.fqn}{shard.offsets}/{component.name}"] = torch.as_tensor(
                shard.value(component.name)
            ).clone()
    return found


def main() -> None:
    kind, rank, world, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    model, optimizer = build(kind, world)
    train(model, optimizer, 2)
    # HSDP and FSDP2 know their replicas; DDP says which of them this rank is.
    replica = (rank, world) if kind == "ddp" else (0, 1)
    state = TrainingState(model, optimizer, replica=replica)
    root = folder / "root"
    with RunningCheckpoint(root, state, slot=rank, policy="full", block_bytes=256) as checkpoint:
        for step in (3, 4):
            train(model, optimizer, 1)
            checkpoint.step(step)
            checkpoint.wait()
    before = everything(state)
    dist.barrier()
    other, other_optimizer = build(kind, world)
    with torch.no_grad():
        for parameter in other.parameters():
            local_tensor(parameter).fill_(7.0)
    again = TrainingState(other, other_optimizer, replica=replica)
    slot = None if kind == "ddp" else rank
    report = restore(root, again, slot=slot)
    after = everything(again)
    assert (report.oldest_step, report.newest_step, report.fresh_moments) == (4, 4, ())
    assert before.keys() == after.keys()
    assert before
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name
    dist.barrier()
    # All slots together are the whole model, for a plain one without any group.
    plain = layers()
    whole = TrainingState(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2))
    restore(root, whole)
    for name, parameter in zip(dict(plain.named_parameters()), model.parameters(), strict=True):
        full = parameter.full_tensor() if kind == "fsdp2" else parameter
        assert torch.equal(dict(plain.named_parameters())[name], full), name
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
