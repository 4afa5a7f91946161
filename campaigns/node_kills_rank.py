"""A rank of the campaign `node-kills`: a small FSDP2 model, under `ettr elastic` or torchrun.

    node_kills_rank.py elastic|restart FOLDER

Data follow from (step, slot). Every step is one line of FOLDER/steps-PID.jsonl.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

if TYPE_CHECKING:
    from concurrent.futures import Future

    from torch.distributed.device_mesh import DeviceMesh

    from ettr.elastic import Generation

SAVE_EVERY = 10
PAUSE_S = 0.05  # in place of an accelerator's computing
WIDTH = 64

Note = Callable[..., None]


def notes_of(folder: Path) -> Note:
    """Writes lines, each with the time and in one write, so that a kill tears none."""
    out = (folder / f"steps-{os.getpid()}.jsonl").open("ab", buffering=0)

    def note(event: str, **values: int) -> None:
        line = {"event": event, "time_s": time.time(), **values}
        out.write(json.dumps(line).encode() + b"\n")

    return note


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same model in every generation and attempt."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def gradients(model: nn.Module, step: int, slot: int) -> None:
    """Forward and backward of a step."""
    time.sleep(PAUSE_S)
    data = torch.Generator().manual_seed(1000 * step + slot)
    x = torch.randn(8, 16, generator=data)
    (model(x).squeeze(1) - x.sum(1)).square().mean().backward()


def elastic(folder: Path, note: Note) -> None:
    """Train under `ettr elastic`, shards in a buddy's memory, until there is a file `end`."""
    from ettr.elastic import Protection, group_from_env

    def train(generation: Generation) -> None:
        model, optimizer = build(generation.mesh())
        step = generation.recover(model, optimizer)
        where = {"slot": generation.slot, "number": generation.number}
        note("begin", step=step, **where)
        while not ended(folder):
            gradients(model, step, generation.slot)
            with generation.update(step + 1):
                optimizer.step()
            optimizer.zero_grad()
            step += 1
            note("step", step=step, **where)

    group_from_env(Protection()).run(train)


def restart(folder: Path, note: Note) -> None:
    """Train under torchrun as scripts do: checkpoints of DCP, and all ranks again from the last."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo")
    slot, world = dist.get_rank(), dist.get_world_size()
    saving = dist.new_group(backend="gloo")
    model, optimizer = build(init_device_mesh("cpu", (world,)))
    found = [int(path.parent.name) for path in folder.glob("dcp/*/.metadata")]
    newest = torch.tensor(max(found, default=0))
    dist.broadcast(newest, 0)
    step = int(newest)
    if step:
        parameters, moments = get_state_dict(model, optimizer)
        state: dict[str, Any] = {"model": parameters, "optimizer": moments}
        dcp.load(state, checkpoint_id=folder / "dcp" / str(step))
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
    # an attempt has its number from the moment at which its ranks have met
    number = torch.tensor(time.time_ns())
    dist.broadcast(number, 0)
    where = {"slot": slot, "number": int(number)}
    note("begin", step=step, **where)
    pending: Future[None] | None = None
    while not ended(folder):
        gradients(model, step, slot)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        note("step", step=step, **where)
        if step % SAVE_EVERY == 0:
            if pending is not None:
                pending.result()
            parameters, moments = get_state_dict(model, optimizer)
            saved = dcp.async_save(
                {"model": parameters, "optimizer": moments},
                checkpoint_id=folder / "dcp" / str(step),
                process_group=saving,
            )
            pending = cast("Future[None]", saved)  # without a stager there is one


def ended(folder: Path) -> bool:
    """Whether all ranks are to stop: each sees the file sooner or later, and one is enough."""
    import torch.distributed as dist

    there = torch.tensor([int((folder / "end").exists())])
    dist.all_reduce(there, op=dist.ReduceOp.MAX)
    return bool(there.item())


def main() -> None:
    """Choose the loop."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    way, folder = sys.argv[1], Path(sys.argv[2])
    {"elastic": elastic, "restart": restart}[way](folder, notes_of(folder))


if __name__ == "__main__":
    main()
