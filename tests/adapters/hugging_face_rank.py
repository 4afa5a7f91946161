"""One rank of transformers.Trainer over the same global batches, whatever the number of ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from ettr.checkpoint import CheckpointError

STEPS, DIES_AT, BATCH = 16, 12, 12


def one_rank(out: Path, rank: int, world: int, port: int, die_at: int, rows: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from adapters.framework_scripts import Next, Rows
    from ettr.adapters.hugging_face import TrainerCheckpoint

    class Dies(TrainerCallback):
        def on_step_begin(self, args, state, control, **live) -> None:
            if state.global_step == die_at and rank == world - 1:
                os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    torch.manual_seed(5 if (out / "ckpt").exists() else 7)  # what goes on was built otherwise
    arguments = TrainingArguments(
        output_dir=str(out / "hf"),
        max_steps=STEPS,
        per_device_train_batch_size=rows // world,
        learning_rate=1e-2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        seed=3,
    )
    model = Next()
    model.dropout.p = 0.0  # each rank draws its own
    data = torch.utils.data.Subset(Rows(), range(4 * BATCH))
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    if die_at:
        trainer.add_callback(Dies())
    options = {"every_steps": 5, "resume": {"objects_of": 0}}
    saver = TrainerCheckpoint(out / "ckpt", run="hf", **options)
    if rows != BATCH:
        with pytest.raises(CheckpointError, match=f"x ranks = {BATCH}"):
            saver.train(trainer)
        return
    saver.train(trainer)
    if rank == 0:
        torch.save(model.state_dict(), out / "final.pt")
    if world > 1:
        torch.distributed.destroy_process_group()
