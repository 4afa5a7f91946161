"""A rank of the kill tests: a tiny FSDP2 model with AdamW that can be made to die anywhere.

    elastic_worker.py CONFIG.json     (started by the supervisor or by torchrun)

Data and dropout-free model follow from the step alone, so that two runs can be compared bit by bit.
"""

import json
import os
import signal
import socket
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from ettr.checkpoint import Budget
from ettr.checkpoint.slots.durable_io import OsDisk
from ettr.elastic import Protection, Timeouts, group_from_env
from ettr.elastic.shard_image import fingerprint, image_bytes, take_image
from ettr.progress.recorder import ProgressRecorder
from ettr.recovery import RESTORE_PRIORS, RecoveryPolicy, RecoverySource, RestorePrior

CONFIG = json.loads(Path(sys.argv[1]).read_text())
FOLDER = Path(sys.argv[1]).parent


HELD_S = 300.0  # longer than any test waits before it lets go
# On a busy machine handing a shard over may take longer than a few tiny steps once more. Which way
# is taken is to follow from what is left, so going back is the last of all.
PRIORS = {
    **RESTORE_PRIORS,
    RecoverySource.ROLLBACK: RestorePrior(latency_s=3600.0, bytes_per_s=5e8),
}
DOOM: dict[str, dict] = {}


def note_of(kill: dict) -> Path:
    return FOLDER / f"died-{kill['slot']}-{kill['step']:04d}"


def die(kill: dict) -> None:
    """Leave a note of when, and die; once for each note."""
    note = note_of(kill)
    try:
        with note.open("x") as out:
            json.dump({"time_s": time.time(), "pid": os.getpid(), **kill}, out)
    except FileExistsError:
        return
    os.kill(os.getpid(), kill.get("signal", signal.SIGKILL))


class Mortal(torch.optim.AdamW):
    """AdamW that dies between two groups of parameters, the first of them updated."""

    def _init_group(self, group, *args):
        if "update" in DOOM and group is self.param_groups[-1]:
            die(DOOM["update"])
        return super()._init_group(group, *args)


class MortalDisk(OsDisk):
    """Dies in the middle of writing a block."""

    def pwrite(self, fd, data, offset):
        if "save" in DOOM and len(data) > 64:
            os.pwrite(fd, data[: len(data) // 2], offset)
            die(DOOM["save"])
        return super().pwrite(fd, data, offset)


def mesh_of(generation):
    from torch.distributed.device_mesh import init_device_mesh

    if not CONFIG.get("hsdp"):
        return generation.mesh()
    return init_device_mesh("cpu", tuple(CONFIG["hsdp"]), mesh_dim_names=("replica", "shard"))


def build(mesh):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    width = CONFIG.get("width", 24)
    deep = [nn.Linear(width, width) for _ in range(CONFIG.get("depth", 0))]
    wide = nn.Linear(15, width), nn.ReLU(), nn.Dropout(0.1)
    model = nn.Sequential(*wide, *deep, nn.Linear(width, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    half = len(list(model.parameters())) // 2
    groups = [
        {"params": list(model.parameters())[:half]},
        {"params": list(model.parameters())[half:]},
    ]
    return model, Mortal(groups, lr=CONFIG.get("lr", 1e-2), foreach=True)


class Reader:
    """Where this rank is in its own data: it runs ahead of the update, as loaders do."""

    def __init__(self, slot: int) -> None:
        self.slot, self.drawn = slot, 0

    def draw(self) -> int:
        self.drawn += 1
        return self.drawn - 1

    def state_dict(self):
        return {"slot": self.slot, "drawn": self.drawn}

    def load_state_dict(self, state):
        assert state["slot"] == self.slot, "the reader of another rank"
        self.drawn = state["drawn"]


def recovered(generation, model, optimizer):
    """The step to go on after; with `objects` a scheduler and a reader, restored too."""
    if not CONFIG.get("objects"):
        return generation.recover(model, optimizer), None, None
    lrs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=1000)
    reader = Reader(generation.slot)
    parts = {"model": model, "optimizer": optimizer, "lrs": lrs, "reader": reader}
    return generation.recover(parts), lrs, reader


def loss_of(model, step, slot):
    gen = torch.Generator().manual_seed(1000 * step + slot)
    x = torch.randn(8, 15, generator=gen)
    return (model(x).squeeze(1) - x.sum(1).tanh()).square().mean()


def settle(generation, model, step: int) -> None:
    """However slow the disk is: no round is skipped because the writer is busy with another."""
    if CONFIG.get("settled"):
        generation._running.checkpoint.wait()
    if CONFIG.get("tamper") == [generation.slot, step, generation.number]:
        next(model.parameters()).to_local().data.add_(1.0)  # not an update


def rest(step: int) -> None:
    """Between two steps; where one is `hold`, until there is a file `go` or a rank is lost."""
    time.sleep(CONFIG.get("step_s", 0.0))
    given_up_s = time.monotonic() + HELD_S
    while CONFIG.get("hold") == step:
        go = (FOLDER / "go").exists() or time.monotonic() > given_up_s
        all_go = torch.tensor([int(go)])
        dist.all_reduce(all_go, op=dist.ReduceOp.MIN)
        if all_go.item():
            return
        time.sleep(0.05)


def die_at_start() -> None:
    """Under torchrun: a rank of a later attempt that has not so much as looked for its shard."""
    mine = os.environ.get("TORCHELASTIC_RESTART_COUNT"), os.environ.get("RANK")
    for kill in CONFIG.get("kills", []):
        if kill["where"] == "start" and mine == (str(kill["from"] - 1), str(kill["slot"])):
            die(kill)


def write_final(generation, model) -> None:
    assert all(parameter.full_tensor().isfinite().all() for parameter in model.parameters())
    final = {"hash": fingerprint(generation.pieces), "pid": os.getpid()}
    if CONFIG.get("measured"):  # what is held besides the shard, and the time of a plain copy
        n_bytes = image_bytes(generation.pieces)
        image, copies_s = torch.zeros(n_bytes, dtype=torch.uint8), []
        for _ in range(9):
            begin_s = time.perf_counter()
            take_image(generation.pieces, image)
            copies_s.append(time.perf_counter() - begin_s)
        held_bytes = generation._group.shards.held_bytes
        final |= {"held": held_bytes, "image": n_bytes, "copy_s": sorted(copies_s)[4]}
    (FOLDER / f"final-{generation.slot}.json").write_text(json.dumps(final))


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    die_at_start()
    disk = MortalDisk()
    running = FOLDER / "running" if CONFIG.get("running") else None
    budget = Budget(fraction=CONFIG.get("running_fraction", 1 / 8))
    options = {"block_bytes": 512, "budget": budget, "disk": disk}
    protection = Protection(
        buddy=CONFIG.get("buddy", True),
        parity=CONFIG.get("parity", 0),
        parity_images=CONFIG.get("parity_images", False),
        replicas="hsdp" in CONFIG,
        running=running,
        running_options=options | CONFIG.get("running_options", {}),
        full=FOLDER / "full" if CONFIG.get("full_every") else None,
        full_every_steps=CONFIG.get("full_every") or 1,
        recovery=RecoveryPolicy(
            allowed=tuple(
                RecoverySource(s) for s in CONFIG.get("allowed", RecoveryPolicy().allowed)
            ),
            max_relative_perturbation=CONFIG.get("max_perturbation", 10.0),
            priors=PRIORS,
        ),
    )
    name = f"{socket.gethostname()}-{os.getpid()}"  # nodes of Slurm count pids for themselves
    log = (FOLDER / f"log-{name}.jsonl").open("a", buffering=1)
    recorder = ProgressRecorder(FOLDER / f"progress-{name}.jsonl", run="kill-test")
    group = group_from_env(
        protection,
        timeouts=Timeouts(CONFIG.get("collective_s", 60.0), 90.0, 180.0),
        recorder=recorder,
        fingerprints=True,
    )
    kills = {(k["slot"], k["step"]): k for k in CONFIG.get("kills", [])}

    def train(generation):
        formed_s = time.time()
        pairs = [dist.new_group([a, a + 1]) for a in (0, 2)] if CONFIG.get("subgroups") else []
        model, optimizer = build(mesh_of(generation))
        step, lrs, reader = recovered(generation, model, optimizer)
        r = generation.report
        log.write(
            json.dumps(
                {
                    "event": "recovered",
                    "generation": generation.number,
                    "slot": generation.slot,
                    "pid": os.getpid(),
                    "source": r.source,
                    "step": r.step,
                    "reached": r.reached_step,
                    "lost_slots": r.lost_slots,
                    "lost_steps": r.lost_steps,
                    "stale": r.stale_steps,
                    "before": r.fingerprint_before,
                    "after": r.fingerprint_after,
                    "formed_s": formed_s,
                    "restored_s": time.time(),
                    "restore_s": r.restore_s,
                    "failed_s": group.last_failed_s,
                    "reason": r.decision.reason if r.decision else None,
                    "relative": r.relative_perturbation,
                    "oldest": r.oldest_step,
                    "source_s": r.source_s,
                    "source_bytes": r.source_bytes,
                }
            )
            + "\n"
        )
        while step < CONFIG["steps"]:
            rest(step)
            kill = kills.get((generation.slot, step + 1), {})
            where = kill.get("where")
            if where and (note_of(kill).exists() or generation.number < kill.get("from", 1)):
                where = None
            if where == "compute":
                die(kill)
            optimizer.zero_grad()
            drawn = reader.draw() if reader else step
            loss = loss_of(model, drawn, generation.slot)
            loss.backward()
            # as every recipe does; DTensor's own collectives run here, not only FSDP's
            nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
            if pairs:
                both = torch.ones(1)
                dist.all_reduce(both, group=pairs[generation.slot // 2])
                assert both.item() == 2
            if where in ("update", "save"):
                DOOM[where] = kill
            with generation.update(step + 1):
                optimizer.step()
                if lrs:
                    lrs.step()
            if where == "save" and running is None:
                die(kill)
            step += 1
            settle(generation, model, step)
            log.write(
                json.dumps(
                    {
                        "event": "step",
                        "step": step,
                        "slot": generation.slot,
                        "time_s": time.time(),
                        "generation": generation.number,
                        "loss": float(loss.detach()),
                        "rates": [group["lr"] for group in optimizer.param_groups],
                        "drawn": drawn,
                    }
                )
                + "\n"
            )
        write_final(generation, model)

    group.run(train)


if __name__ == "__main__":
    main()
