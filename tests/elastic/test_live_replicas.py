"""What a lost rank held in common with a survivor comes from the survivor, as it is now."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RANK = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from ettr.checkpoint import RunningCheckpoint
from ettr.elastic.buddies.shard_history import ShardStore
from ettr.elastic.buddies.shard_image import copied_parts
from ettr.elastic.membership.control_store import RankMessages
from ettr.elastic.restore.model_shard import ModelShard
from ettr.elastic.restore.rank_inventory import Holdings, RankInventory
from ettr.elastic.restore.running_source import RunningSource
from ettr.recovery import RunTimings

folder, slot, world = sys.argv[1], int(sys.argv[2]), 2
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=slot, world_size=world)
store = dist.FileStore(f"{folder}/messages", world)

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("r", "s"))
    fully_shard(model, mesh=mesh)  # HSDP: both ranks hold everything
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-2)}

def train(parts, steps):
    for step in range(steps):
        parts["model"](torch.ones(2, 4) * step).sum().backward()
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()

parts = build()
train(parts, 2)
with RunningCheckpoint(folder + "/running", parts, slot=slot, policy="full") as checkpoint:
    checkpoint.save_all(2)
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
now = copied_parts(shard.pieces)
assert now.keys() == expected.keys()
different = [
    name
    for name, value in expected.items()
    if name[0] != "objects" and not torch.equal(torch.as_tensor(value), torch.as_tensor(now[name]))
]
assert not different, different
print("alike", len(now))
dist.destroy_process_group()
"""


def test_after_a_partial_recovery_replicas_are_alike(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error::UserWarning:ettr", "-c", RANK, str(tmp_path), str(slot)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for slot in range(2)
    ]
    try:
        said = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert all("alike 17" in out for out, _ in said), said
