"""The two training loops: ettr's group, and plain torchrun with DCP.

Each trains until its process is ended from outside.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from kills import task
from kills.notes import Notes

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ettr.elastic import Generation, Protection


def elastic(config: dict, notes: Notes) -> None:
    """The group of ettr, and what guards its shards."""
    from ettr.elastic import Timeouts, group_from_env
    from ettr.progress.recorder import ProgressRecorder

    recorder = ProgressRecorder(notes.folder / f"progress-{os.getpid()}.jsonl", run="kills")
    group = group_from_env(
        _protection(config, notes), timeouts=Timeouts(60.0, 90.0, 180.0), recorder=recorder
    )
    characters = task.text()

    def train(generation: Generation) -> None:
        formed_s = time.time()
        notes.phase("regrouping")
        notes.holds(generation.slot)
        model = task.sharded(task.build(config["pause_s"]), generation.mesh())
        optimizer = task.adamw(model, config["rate"])
        step = generation.recover(model, optimizer)
        report = generation.report
        notes.line(
            "recovered",
            generation=generation.number,
            slot=generation.slot,
            step=step,
            source=report.source,
            formed_s=formed_s,
            failed_s=group.last_failed_s,
            noticed_s=generation.membership.noticed_s,
        )
        while True:
            notes.phase("computing")
            optimizer.zero_grad()
            loss = task.loss_of(model, characters, step, generation.slot)
            loss.backward()
            notes.phase("vote")
            with generation.update(step + 1):
                notes.phase("update")
                optimizer.step()
                notes.phase("save")
            step += 1
            notes.step(generation.slot, step, float(loss.detach()), generation.number)

    try:
        group.run(train)
    except Exception:
        notes.line("failed", failed_s=group.last_failed_s)
        raise


def _protection(config: dict, notes: Notes) -> Protection:
    """What guards the shards of a way."""
    from ettr.elastic import Protection
    from ettr.recovery import RecoveryPolicy, RecoverySource

    return Protection(
        buddy=config["buddy"],
        parity=config["parity"],
        running=notes.folder / "running" if config["running"] else None,
        running_options=config["running"] or {},
        full=notes.folder / "full" if config["full_every"] else None,
        full_every_steps=config["full_every"] or 1,
        recovery=RecoveryPolicy(
            allowed=tuple(RecoverySource(name) for name in config["allowed"]),
            max_relative_perturbation=10.0,
        ),
    )


def plain(config: dict, notes: Notes) -> None:
    """Do as scripts under torchrun do: async DCP at intervals, all ranks restarted after a loss."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh

    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    slot, world = _form_gloo(attempt)
    saving = dist.new_group(backend="gloo")
    formed_s = time.time()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    model = task.sharded(task.build(config["pause_s"]), mesh)
    optimizer = task.adamw(model, config["rate"])
    step = _load_newest(notes.folder / "dcp", model, optimizer)
    notes.line(
        "recovered",
        generation=attempt + 1,
        slot=slot,
        step=step,
        source="rollback",
        formed_s=formed_s,
        failed_s=None,
        noticed_s=None,
    )
    characters = task.text()
    pending: Future[None] | None = None
    try:
        while True:
            notes.phase("computing")
            optimizer.zero_grad()
            loss = task.loss_of(model, characters, step, slot)
            loss.backward()
            notes.phase("update")
            optimizer.step()
            step += 1
            if step % config["full_every"] == 0:
                notes.phase("save")
                if pending is not None:
                    pending.result()
                parameters, moments = get_state_dict(model, optimizer)
                saved = dcp.async_save(
                    {"model": parameters, "optimizer": moments},
                    checkpoint_id=notes.folder / "dcp" / str(step),
                    process_group=saving,
                )
                pending = cast("Future[None]", saved)  # without a stager there is one
            notes.step(slot, step, float(loss.detach()), attempt + 1)
    except Exception:
        notes.line("failed", failed_s=time.time())
        raise


def _form_gloo(attempt: int) -> tuple[int, int]:
    """Initialise the group of an attempt of torchrun; returns this rank and the number of ranks."""
    import torch.distributed as dist
    from torch.distributed import PrefixStore, rendezvous

    store, slot, world = next(iter(rendezvous("env://")))
    # the agent's store lives on over its restarts, with the keys of the attempts before
    store = PrefixStore(f"attempt{attempt}", store)
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=slot, world_size=world, timeout=wait)
    return slot, world


def _load_newest(root: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest complete checkpoint of DCP; returns its step, 0 without one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    step = max((int(path.parent.name) for path in root.glob("*/.metadata")), default=0)
    if step:
        parameters, moments = get_state_dict(model, optimizer)
        state: dict[str, Any] = {"model": parameters, "optimizer": moments}
        dcp.load(state, checkpoint_id=root / str(step))
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
    return step
