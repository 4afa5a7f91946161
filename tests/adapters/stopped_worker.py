"""A loop that is asked to end within a step; run as `stopped_worker.py OUT [options]`.

It asks itself by a real SIGTERM within step --term-at, on rank --term-rank; the save that follows
never ends with --hangs. OUT/started-RANK.txt has the step after which it went on, a line for each
start, OUT/final-RANK.pt the trained parameters.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from ettr.adapters import CheckpointedRun
from ettr.checkpoint import RandomStates
from ettr.checkpoint.slots.durable_io import OsDisk

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--term-at", type=int, default=0)
parser.add_argument("--term-rank", type=int, default=0)
parser.add_argument("--hangs", action="store_true")
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--world", type=int, default=1)
GIVEN = parser.parse_args()


class HangingDisk(OsDisk):
    """Writes half of a block once SIGTERM came, says so, and waits for the end."""

    hangs = False

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        if self.hangs and len(data) > 64:
            os.pwrite(fd, data[: len(data) // 2], offset)
            (GIVEN.out / "saving").touch()
            time.sleep(600)
        return super().pwrite(fd, data, offset)


def join() -> None:
    """A group whose store lives in rank 0, as under srun."""
    port = GIVEN.out / "port"
    if GIVEN.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        (GIVEN.out / "port.new").write_text(str(store.port))
        (GIVEN.out / "port.new").rename(port)
    else:
        while not port.exists():
            time.sleep(0.02)
        store = dist.TCPStore("127.0.0.1", int(port.read_text()), is_master=False)
    dist.init_process_group("gloo", store=store, rank=GIVEN.rank, world_size=GIVEN.world)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.Linear(32, 4))
    trained = nn.parallel.DistributedDataParallel(model) if GIVEN.world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = {"model": trained, "optimizer": optimizer, "random": RandomStates()}
    disk = HangingDisk()
    run = CheckpointedRun(GIVEN.out / "ckpt", state, run="stopped", every_steps=5, disk=disk)
    first = True
    for step in run.steps(GIVEN.steps):
        if first:
            with (GIVEN.out / f"started-{GIVEN.rank}.txt").open("a") as file:
                file.write(f"{step - 1}\n")
            first = False
        optimizer.zero_grad()
        trained(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        if step == GIVEN.term_at and GIVEN.rank == GIVEN.term_rank:
            disk.hangs = GIVEN.hangs
            os.kill(os.getpid(), signal.SIGTERM)
    torch.save(model.state_dict(), GIVEN.out / f"final-{GIVEN.rank}.pt")


if GIVEN.world > 1:
    join()
main()
