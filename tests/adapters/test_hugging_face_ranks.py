"""transformers.Trainer resumed by another number of ranks, with the same global batches."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from pathlib import Path

import pytest

from installed import need

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")
need("transformers", "accelerate")

from adapters.test_adapters import PRELOADED  # noqa: E402
from ettr.checkpoint import CheckpointError  # noqa: E402

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


def run(out: Path, world: int, die_at: int = 0, rows: int = BATCH) -> None:
    out.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ranks = [
        context.Process(target=one_rank, args=(out, rank, world, port, die_at, rows), daemon=True)
        for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    for rank in reversed(ranks):
        rank.join(120)
        if die_at:
            for other in ranks:
                other.kill()  # they wait for the one that died
        else:
            assert rank.exitcode == 0


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
def test_the_weights_are_those_of_the_unbroken_run(tmp_path: Path, before: int, after: int) -> None:
    run(tmp_path / "unbroken", 1)
    expected = torch.load(tmp_path / "unbroken" / "final.pt")
    killed = tmp_path / "killed"
    run(killed, before, die_at=DIES_AT)
    run(killed, after)
    found = torch.load(killed / "final.pt")
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_steps_of_other_sizes_are_refused_by_name(tmp_path: Path) -> None:
    """As by another number of ranks with the same batches: the Trainer would take other rows."""
    run(tmp_path, 1, die_at=DIES_AT)
    run(tmp_path, 1, rows=2 * BATCH)
