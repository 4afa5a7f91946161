"""Training scripts on each adapter, as their users write them; run as `python THIS NAME OUT`.

Each has at most five lines of ettr's own, resumes or begins by itself, prints from which step, and
leaves the trained parameters in OUT/final.safetensors. `--die-at STEP` ends the process by SIGKILL
after that step, once. `--steps` and `--out` may be given to all.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import Tensor, nn  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--every", type=int, default=5)
parser.add_argument("--die-at", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
CHOSEN = argparse.Namespace()


def die_after(step: int) -> None:
    if CHOSEN.die_at and step == CHOSEN.die_at:
        # rounds are written in the background, and these steps take less time than a write may
        while step > CHOSEN.every and not a_round_is_saved():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


def a_round_is_saved() -> bool:
    from ettr.checkpoint import block_ages

    return all(age.step for age in block_ages(CHOSEN.out / "ckpt"))


def started(step: int) -> None:
    print(f"goes on after step {step}", flush=True)
    with (CHOSEN.out / "started.txt").open("a") as file:
        file.write(f"{step}\n")


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row = torch.randint(0, 50, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": row, "labels": row}


class Next(nn.Module):
    """The next token from this one; dropout, so that random states count."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(50, 16), nn.Dropout(0.2)
        self.output = nn.Linear(16, 50)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.output(self.dropout(self.embedding(input_ids)))[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


class Stream(torch.utils.data.IterableDataset):
    """Rows without end, in an order of their own, that knows where it is: torchtitan's form."""

    def __init__(self) -> None:
        self.rows, self.at = Rows(), 0

    def __iter__(self):
        while True:
            self.at += 1
            yield self.rows[(37 * self.at) % len(self.rows)]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def loader_of(dataset: torch.utils.data.IterableDataset):
    """A loader with a generator of its own, so that it draws nothing from the random states."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(dataset, 8, generator=torch.Generator())


def finish(model: nn.Module) -> None:
    save_file(
        {n: p.detach().clone() for n, p in model.named_parameters()},
        CHOSEN.out / "final.safetensors",
    )


def plain() -> None:
    """A loop of one's own."""
    from ettr.adapters import CheckpointedRun  # 1
    from ettr.checkpoint import RandomStates

    model = Next()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    lrs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=CHOSEN.steps + 1)
    loader = loader_of(Stream())
    state = {"model": model, "optimizer": optimizer, "lrs": lrs, "loader": loader}  # 2
    state["random"] = RandomStates()  # 3
    run = CheckpointedRun(  # 4
        CHOSEN.out / "ckpt",
        state,
        run="plain",
        progress=CHOSEN.out / "progress.jsonl",
        every_steps=CHOSEN.every,
    )
    batches = None
    for step in run.steps(CHOSEN.steps):  # 5
        if batches is None:
            started(step - 1)
            batches = iter(loader)
        else:
            die_after(step - 1)  # here it is recorded too
        optimizer.zero_grad()
        model(**next(batches))["loss"].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lrs.step()
    if batches is None:
        started(CHOSEN.steps)
    finish(model)


class TitanTrainer:
    """A trainer object in torchtitan's form: it owns the parts and is one of them itself."""

    def __init__(self) -> None:
        from ettr.checkpoint import RandomStates

        self.step, self.tokens_seen = 0, 0
        self.model = Next()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.lrs = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 1 / (1 + n / 9))
        self.loader = loader_of(Stream())
        self.states = {
            "model": self.model,
            "optimizer": self.optimizer,
            "lr_scheduler": self.lrs,
            "dataloader": self.loader,
            "train_state": self,
            "random": RandomStates(),
        }

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step, "tokens_seen": self.tokens_seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step, self.tokens_seen = state["step"], state["tokens_seen"]

    def train(self) -> None:
        from ettr.adapters import CheckpointedRun  # 1

        progress = CHOSEN.out / "progress.jsonl"
        run = CheckpointedRun(  # 2
            CHOSEN.out / "ckpt",
            self.states,
            run="titan",
            progress=progress,
            every_steps=CHOSEN.every,
        )
        run.begin()  # 3
        started(self.step)
        batches = iter(self.loader)
        while self.step < CHOSEN.steps:
            batch = next(batches)
            self.tokens_seen += batch["labels"].numel()
            self.optimizer.zero_grad()
            self.model(**batch)["loss"].backward()
            self.optimizer.step()
            self.lrs.step()
            self.step += 1
            run.done(self.step)  # 4
            die_after(self.step)
        run.end(self.step)  # 5
        run.close()
        assert self.tokens_seen == CHOSEN.steps * 64
        finish(self.model)


def titan() -> None:
    TitanTrainer().train()


def hugging_face() -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_callback import ExportableState

    from ettr.adapters.hugging_face import TrainerCheckpoint  # 1

    class Shrinks(TrainerCallback, ExportableState):
        """Changes the weights by what it has counted, and keeps the count as callbacks do."""

        seen = 0

        def state(self):
            return {"args": {}, "attributes": {"seen": self.seen}}

        def on_step_end(self, args, state, control, model, **live):
            self.seen += 1
            with torch.no_grad():
                model.output.bias.mul_(1 - 0.001 * self.seen)

    class Dies(TrainerCallback):
        def on_train_begin(self, args, state, control, **live):
            started(state.global_step)

        def on_step_begin(self, args, state, control, **live):
            die_after(state.global_step)

    arguments = TrainingArguments(
        output_dir=str(CHOSEN.out / "hf"),
        max_steps=CHOSEN.steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        warmup_steps=4,
        lr_scheduler_type="cosine",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1000,
    )
    model = Next()
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows())
    saver = TrainerCheckpoint(  # 2
        CHOSEN.out / "ckpt",
        run="hf",
        progress=CHOSEN.out / "progress.jsonl",
        every_steps=CHOSEN.every,
    )
    trainer.add_callback(saver)
    trainer.add_callback(Shrinks())
    trainer.add_callback(Dies())
    saver.train(trainer)  # 3
    finish(model)


def lightning(stateful: bool = True) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import EMAWeightAveraging
    from torch.utils.data import DataLoader, DistributedSampler
    from torchdata.stateful_dataloader import StatefulDataLoader

    from ettr.adapters.lightning import LightningCheckpoint  # 1

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.scale = Next(), 1.0

        def training_step(self, batch, batch_idx):
            self.scale *= 0.99
            return self.scale * self.net(**batch)["loss"]

        def on_save_checkpoint(self, checkpoint):
            checkpoint["scale"] = self.scale

        def on_load_checkpoint(self, checkpoint):
            self.scale = checkpoint["scale"]

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            lrs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CHOSEN.steps)
            return [optimizer], [{"scheduler": lrs, "interval": "step"}]

        def train_dataloader(self):
            if stateful:
                return StatefulDataLoader(Rows(), 8, shuffle=True)
            order = DistributedSampler(Rows(), 1, 0)  # of each epoch by its number
            return DataLoader(Rows(), 8, sampler=order, generator=torch.Generator())

    class Shrinks(pl.Callback):
        """Changes the weights by what it has counted."""

        seen = 0

        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state):
            self.seen = state["seen"]

        def on_train_batch_end(self, trainer, module, *batch):
            self.seen += 1
            with torch.no_grad():
                module.net.output.bias.mul_(1 - 0.001 * self.seen)

    class Dies(pl.Callback):
        began = False

        def on_train_start(self, trainer, module):
            self.began = True
            started(trainer.global_step)

        def on_train_batch_start(self, trainer, module, *batch):
            die_after(trainer.global_step)

    saver = LightningCheckpoint(  # 2
        CHOSEN.out / "ckpt",
        run="pl",
        progress=CHOSEN.out / "progress.jsonl",
        every_steps=CHOSEN.every,
    )
    trainer = pl.Trainer(
        max_steps=CHOSEN.steps,
        accelerator="cpu",
        callbacks=[saver, Shrinks(), EMAWeightAveraging(decay=0.9), dies := Dies()],  # 3
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=CHOSEN.out,
    )
    module = Module()
    trainer.fit(module)
    if not dies.began:  # a run that was over
        started(trainer.global_step)
    finish(module.net)


def lightning_plain_loader() -> None:
    lightning(stateful=False)


SCRIPTS = {
    "plain": plain,
    "torchtitan": titan,
    "hugging-face": hugging_face,
    "lightning": lightning,
    "lightning-plain-loader": lightning_plain_loader,
}


def main(words: list[str]) -> None:
    parser.parse_args(words, namespace=CHOSEN)
    torch.set_num_threads(1)
    torch.manual_seed(CHOSEN.seed)
    CHOSEN.out.mkdir(parents=True, exist_ok=True)
    SCRIPTS[CHOSEN.name]()


if __name__ == "__main__":
    main(sys.argv[1:])
