"""What ranks hold in common: from a survivor as it is now, or from every slot of the disk."""

import sys

import pytest

from forked_python import run_together

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RANK = """
import sys
import warnings
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from ettr.checkpoint import RunningCheckpoint
from ettr.elastic.shard_image import ShardStore
from ettr.elastic.shard_image import copied_parts
from ettr.elastic.rendezvous import RankMessages
from ettr.elastic.running_source import ModelShard
from ettr.elastic.rank_inventory import Holdings, RankInventory
from ettr.elastic.running_source import RunningSource
from ettr.recovery import RunTimings

warnings.filterwarnings("error", module=r"ettr\\.")
folder, slot, world = sys.argv[1], int(sys.argv[2]), 2
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=slot, world_size=world)
store = dist.FileStore(f"{folder}/messages", world)

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("r", "s"))
    fully_shard(model, mesh=mesh)  # HSDP: both ranks hold everything
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-2)}

def train(parts, steps):
    for step in range(steps):
        parts["model"](torch.randn(2, 4) + slot * step).sum().backward()  # each has its own rows
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()

def differing(shard, expected):
    now = copied_parts(shard.pieces)
    assert now.keys() == expected.keys()
    return {
        name
        for name, value in expected.items()
        if name[0] != "objects"
        and not torch.equal(torch.as_tensor(value), torch.as_tensor(now[name]))
    }

# the only tensors of which each rank has its own
BUFFERS = {(f"1.{name}", "param") for name in ("running_mean", "running_var")}
BUFFERS.add(("1.num_batches_tracked", "param"))

parts = build()
train(parts, 2)
with RunningCheckpoint(folder + "/running", parts, slot=slot, policy="full") as checkpoint:
    checkpoint.save_all(2)
saved = copied_parts(ModelShard.of(parts).pieces)
saved |= {name: 2.0 for name in saved if name[1] == "step"}  # which a built shard begins at 0
train(parts, 3)
expected = copied_parts(ModelShard.of(parts).pieces)
dist.barrier()

shards = ShardStore()
if slot == 0:  # the survivor has its live shard; slot 1 is a new process
    shards.live, shards.live_step = expected, 5
shard = ModelShard.of(build())
timed = RunTimings(None, None, {}).to_dict()
ranks = [Holdings(5 if s == 0 else None, [], [], 1, [], timed, None, None) for s in range(world)]
source = RunningSource(folder + "/running", slot, shards, RankMessages(store, slot, world), shard)
inventory = RankInventory.of(ranks)
assert inventory.lost == (1,), inventory.lost
assert source.gather_ages(inventory)[1].stale_steps == 3
assert source.restore_lost(inventory) == 2
lost = BUFFERS if slot == 1 else set()
assert differing(shard, expected) == lost
assert not differing(shard, saved) & lost, "a lost rank has its own again, as they were saved"

# of a job that lost every rank, all shards come from the running checkpoint
ranks = [Holdings(None, [], [], 1, [], timed, None, None) for _ in range(world)]
messages = RankMessages(dist.PrefixStore("second job", store), slot, world)
shard = ModelShard.of(build())
source = RunningSource(folder + "/running", slot, ShardStore(), messages, shard)
assert source.restore_all(RankInventory.of(ranks)).oldest_step == 2
assert differing(shard, saved) == set()

parts = build()
with RunningCheckpoint(folder + "/running", parts, slot=slot, policy="full") as checkpoint:
    start = checkpoint.resume_or_begin()
assert (start.step, start.resumed) == (2, True)
steps = {name for name in saved if name[1] == "step"}
assert differing(ModelShard.of(parts), saved) == steps, "which a shard begins at 0"
print("alike", len(saved))
dist.destroy_process_group()
"""


def test_replicas_are_alike_after_a_partial_recovery_the_loss_of_all_and_a_resume(tmp_path):
    words = [[sys.executable, "-c", RANK, str(tmp_path), str(slot)] for slot in range(2)]
    ranks = run_together(words, tmp_path, limit_s=300)
    assert [rank.status for rank in ranks] == [0, 0], ranks
    assert all("alike 28" in rank.output for rank in ranks), ranks
