"""One replica (one process, a whole copy of a tiny model) under torchft, to be killed by a test.

torchft_worker.py CONFIG.json REPLICA
"""

import json
import os
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn
from torch.distributed import TCPStore

from ettr.checkpoint import TrainingState
from ettr.elastic import ReplicaTier
from ettr.elastic.buddies.shard_image import fingerprint, pieces_of
from ettr.progress.recorder import ProgressRecorder

CONFIG = json.loads(Path(sys.argv[1]).read_text())
FOLDER, REPLICA = Path(sys.argv[1]).parent, int(sys.argv[2])


def main() -> None:
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    torch.manual_seed(REPLICA)  # torchft hands the first replica's values to the others
    model = nn.Sequential(nn.Linear(15, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    recorder = ProgressRecorder(
        FOLDER / f"progress-{REPLICA}-{os.getpid()}.jsonl", run="torchft-test", rank=REPLICA
    )
    tier = ReplicaTier(
        model,
        optimizer,
        replica=REPLICA,
        running=FOLDER / "running",
        every_steps=CONFIG["every_steps"],
        running_options={"block_bytes": 512},
        recorder=recorder,
    )
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    wait = timedelta(seconds=60)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=wait),
        state_dict=tier.state_dict,
        load_state_dict=tier.load_state_dict,
        min_replica_size=1,
        timeout=wait,
        quorum_timeout=timedelta(seconds=120),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=CONFIG["lighthouse"],
        replica_id=f"replica{REPLICA}_",
        hostname="127.0.0.1",
    )
    log = (FOLDER / f"log-{REPLICA}.jsonl").open("a", buffering=1)
    resumed = tier.resume(manager)
    while manager.current_step() < CONFIG["steps"]:
        optimizer.zero_grad()
        manager.start_quorum()
        data = torch.Generator().manual_seed(1000 * manager.current_step() + REPLICA)
        x = torch.randn(8, 15, generator=data)
        (model(x).squeeze(1) - x.sum(1).tanh()).square().mean().backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
        if not manager.should_commit():
            tier.refused()
            continue
        optimizer.step()
        tier.committed()
        if CONFIG.get("settled"):  # however slow the disk: no round is skipped
            tier._checkpoint.wait()
        log.write(
            json.dumps(
                {
                    "step": manager.current_step(),
                    "pid": os.getpid(),
                    "resumed": resumed,
                    "heals": tier.heals,
                    "replicas": manager.num_participants(),
                    "hash": fingerprint(pieces_of(TrainingState(model, optimizer))),
                }
            )
            + "\n"
        )
        time.sleep(CONFIG["step_s"])
    tier.close()
    manager.shutdown(wait=False)
    recorder.end(manager.current_step())
    os._exit(0)  # the store of a peer that has ended first would make the interpreter's end noisy


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
