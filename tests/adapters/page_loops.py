"""The blocks of the page "Ten lines for your loop", each with what its reader has built before it.

    python page_loops.py LOOP --out OUT [--steps N] [--die-at STEP] [--seed N] [--rank N --world N]

Each runs as printed but for paths and the number of steps. Losses of all steps go to
OUT/losses.txt, in the order in which they were made; with --die-at the process ends by SIGKILL
once it has made so many.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adapters.framework_scripts import Next, Rows, Stream, loader_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-with-trainers.md"
STEPS = 60

parser = argparse.ArgumentParser()
parser.add_argument("loop")
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--steps", type=int, default=STEPS)
parser.add_argument("--die-at", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--world", type=int, default=1)
GIVEN = argparse.Namespace()


def block(heading: str) -> str:
    """The first block of Python below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1].replace("1000", str(GIVEN.steps)) if GIVEN.__dict__ else found[1]


def keep(loss: Tensor) -> None:
    """A loss into the file; the end of the process after the one that was asked for."""
    with (GIVEN.out / "losses.txt").open("a") as file:
        file.write(f"{float(loss).hex()}\n")
    GIVEN.made = getattr(GIVEN, "made", 0) + 1
    if GIVEN.made == GIVEN.die_at:
        os.kill(os.getpid(), signal.SIGKILL)


class Kept(Next):
    """Keeps each loss of training."""

    def forward(self, input_ids: Tensor, labels: Tensor, **others: object) -> dict[str, Tensor]:
        outputs = super().forward(input_ids, labels)
        if self.training:
            keep(outputs["loss"].detach())
        return outputs


def own(
    optimizer_of: Callable[..., Any] = torch.optim.AdamW, model: nn.Module | None = None
) -> dict[str, Any]:
    """A loop like nanoGPT's: warm-up and cosine, clipping."""
    model = model or Kept()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer_of(trained, lr=1e-2)
    if hasattr(optimizer, "train"):
        optimizer.train()
    stepped = getattr(optimizer, "optimizer", optimizer)
    lrs = torch.optim.lr_scheduler.LambdaLR(stepped, lambda n: min(1, (n + 1) / 9) / (1 + n / 40))

    def train_step(batch: dict[str, Tensor]) -> None:
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        lrs.step()

    return {
        "model": model,
        "optimizer": optimizer,
        "lrs": lrs,
        "loader": loader_of(Stream()),
        "train_step": train_step,
    }


def schedule_free() -> dict[str, Any]:
    import schedulefree

    return own(schedulefree.AdamWScheduleFree)


def torchao() -> dict[str, Any]:
    from torchao.optim import AdamW8bit

    class Wide(Kept):  # moments of so many elements are kept in 8 bits
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.output = nn.Embedding(50, 128), nn.Linear(128, 50)

    torch.compiler.set_stance("force_eager")  # it compiles its step
    return own(AdamW8bit, Wide())


def peft() -> dict[str, Any]:
    from peft import LoraConfig, get_peft_model

    return own(model=get_peft_model(Kept(), LoraConfig(r=4, target_modules=["output"])))


class Many(Rows):
    """Rows for all steps."""

    def __len__(self) -> int:
        return 8 * GIVEN.steps


def accelerated() -> dict[str, Any]:
    from accelerate import Accelerator, DataLoaderConfiguration
    from torchdata.stateful_dataloader import StatefulDataLoader

    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True)
    )
    built = own()

    def train_step(batch: dict[str, Tensor]) -> None:
        built["optimizer"].zero_grad()
        accelerator.backward(built["model"](**batch)["loss"])
        built["optimizer"].step()
        built["lrs"].step()

    built["loader"] = StatefulDataLoader(Many(), 8, generator=torch.Generator())
    return {**built, "accelerator": accelerator, "train_step": train_step}


def hugging_face(model: nn.Module | None = None) -> dict[str, Any]:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(GIVEN.out / "hf"),
        max_steps=GIVEN.steps,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1000,
    )
    return {"trainer": Trainer(model=model or Kept(), args=arguments, train_dataset=Rows())}


def lightning() -> dict[str, Any]:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Kept()

        def training_step(self, batch, batch_idx):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

        def train_dataloader(self):
            return loader_of(Stream())

    options = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": GIVEN.out,
    }
    return {"Trainer": pl.Trainer, "module": Module(), "options": options}


def pipeline() -> dict[str, Any]:
    """Four stages on two ranks, each with two that do not follow each other."""
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    store = dist.FileStore(str(GIVEN.out / f"store-{GIVEN.seed}-{GIVEN.die_at}"), GIVEN.world)
    dist.init_process_group("gloo", store=store, rank=GIVEN.rank, world_size=GIVEN.world)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1)) for _ in range(4)]

    def part(number: int) -> nn.Module:
        module = nn.Module()
        module.layers = nn.ModuleDict({str(number): layers[number]})
        module.forward = layers[number].forward
        return module

    mine = [GIVEN.rank, GIVEN.rank + 2]
    stages = [PipelineStage(part(n), n, 4, torch.device("cpu")) for n in mine]
    schedule = ScheduleInterleaved1F1B(stages, 4, loss_fn=nn.functional.mse_loss)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)

    def train_step(schedule: Any, step: int) -> None:
        optimizer.zero_grad()
        batch = torch.randn(8, 8, generator=torch.Generator().manual_seed(step))
        losses: list[Tensor] = []
        if GIVEN.rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=batch.flip(1), losses=losses)
        optimizer.step()
        if losses:
            keep(torch.stack(losses).mean())

    return {
        "stages": stages,
        "schedule": schedule,
        "optimizer": optimizer,
        "train_step": train_step,
    }


LOOPS: dict[str, tuple[str, Callable[[], dict[str, Any]], tuple[str, ...]]] = {
    "own": ("A loop of your own", own, ()),
    "schedule-free": ("A loop of your own", schedule_free, ("schedulefree",)),
    "torchao": ("A loop of your own", torchao, ("torchao",)),
    "peft": ("A loop of your own", peft, ("peft",)),
    "accelerate": ("accelerate", accelerated, ("accelerate",)),
    "hugging-face": ("transformers.Trainer", hugging_face, ("transformers", "accelerate")),
    "lightning": ("Lightning", lightning, ("lightning",)),
    "pipeline": ("Pipeline parallel, several parts on a rank", pipeline, ()),
}
"""Name -> heading of the page, what is built before the block, and the packages that it needs."""


def main(words: list[str]) -> None:
    """Run one loop."""
    parser.parse_args(words, namespace=GIVEN)
    torch.set_num_threads(1)
    torch.manual_seed(GIVEN.seed)
    GIVEN.out.mkdir(parents=True, exist_ok=True)
    os.chdir(GIVEN.out)
    heading, build, _ = LOOPS[GIVEN.loop]
    built = build()
    source = block(heading).replace("/local/ckpt", str(GIVEN.out / "ckpt"))
    namespace = {**built}
    exec(compile(source, str(PAGE), "exec"), namespace)  # noqa: S102
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
