"""Pre-train a small language model the way large ones are, and keep training while ranks die.

FSDP2, or 2D with tensor parallelism; torch.compile, bf16, gradient accumulation, clipping, warm-up
and cosine, a StatefulDataLoader, a moving average of the weights. Nothing here is simplified for
the sake of recovery except that everything is built in `train`.

    ettr elastic -n 4 --spares 1 -- python recipe.py --out run
    ettr elastic -n 4 --spares 1 -- python recipe.py --out run --tensor-parallel 2
    torchrun --nproc-per-node 4 --max-restarts 10 recipe.py --out run

It leaves the losses in OUT/losses.jsonl and the whole model in OUT/model.safetensors.
Needs torchdata and safetensors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torchdata.stateful_dataloader import StatefulDataLoader

from ettr.elastic import Generation, Protection, group_from_env
from ettr.progress import ProgressRecorder
from ettr.recovery import RecoveryPolicy, RecoverySource

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 64, 32, 32, 4, 2
BATCH, MICRO_BATCHES = 4, 2
WARM_UP_STEPS = 10
EMA_DECAY = 0.98


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wv = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wo = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        # -1: under tensor parallelism this rank has some of the heads
        heads = [
            of(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)
            for of in (self.wq, self.wk, self.wv)
        ]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.w2 = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


class Sequences(torch.utils.data.Dataset):
    """Sequences in which the next token mostly follows from the last two."""

    def __len__(self) -> int:
        return 1 << 12

    def __getitem__(self, index: int) -> Tensor:
        random = torch.Generator().manual_seed(index)
        tokens = torch.randint(VOCABULARY, (LENGTH + 1,), generator=random)
        for at in range(2, LENGTH + 1):
            if at % 8:
                tokens[at] = (3 * tokens[at - 1] + tokens[at - 2]) % VOCABULARY
        return tokens


class Average(nn.Module):
    """A moving average of a model's parameters, sharded as they are."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = [model]  # in a list: no submodule
        for name, parameter in model.named_parameters():
            self.register_buffer(name.replace(".", "/"), parameter.detach().clone())

    @torch.no_grad()
    def update(self) -> None:
        for average, parameter in zip(self.buffers(), self.model[0].parameters(), strict=True):
            average.lerp_(parameter, 1 - EMA_DECAY)


def parallel(model: Transformer, mesh: DeviceMesh, compiler: str) -> nn.Module:
    """Tensor parallelism, then torch.compile, then FSDP2: torchtitan's order."""
    if mesh["tp"].size() > 1:
        whole = {
            "embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
        gathered = PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        )
        of_layer = {
            "attention_norm": SequenceParallel(),
            "attention": gathered,
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": gathered,
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(model, mesh["tp"], whole)
        for layer in model.layers:
            parallelize_module(layer, mesh["tp"], of_layer)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        if compiler != "none":
            layer.compile(backend=compiler, fullgraph=True)
        fully_shard(layer, mesh=mesh["dp"], mp_policy=precision)
    return fully_shard(model, mesh=mesh["dp"], mp_policy=precision)


def learning_rate(step: int, n_steps: int) -> float:
    """Share of the peak: linear warm-up, then cosine to a tenth."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    done = min(1.0, (step - WARM_UP_STEPS) / max(1, n_steps - WARM_UP_STEPS))
    return 0.1 + 0.45 * (1 + math.cos(math.pi * done))


def train(generation: Generation, options: argparse.Namespace, out: Path) -> None:
    """Train from wherever the run is to its end; called again after every loss of a rank."""
    torch.compiler.reset()  # what was compiled for the mesh of an earlier generation
    torch.manual_seed(0)
    shape = (generation.world // options.tensor_parallel, options.tensor_parallel)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    n_readers, reader = mesh["dp"].size(), mesh["dp"].get_local_rank()

    model = parallel(Transformer(), mesh, options.compiler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.1)
    lrs = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, options.steps)
    )
    average = Average(model)
    rows = torch.utils.data.Subset(Sequences(), range(reader, 1 << 12, n_readers))
    # The order is its own: the random state of the process belongs to dropout and the like.
    order = torch.Generator().manual_seed(reader)
    loader = StatefulDataLoader(rows, BATCH, shuffle=True, generator=order, drop_last=True)

    step = generation.recover(
        {
            "model": model,
            "optimizer": optimizer,
            "lrs": lrs,
            "average": average,
            "loader": loader,
        }
    )
    how = generation.report.source
    print(f"slot {generation.slot} pid {os.getpid()} goes on after {step} ({how})", flush=True)
    # One pass, as in pre-training: with its own generator torchdata's loader comes back exactly
    # within an epoch only. For several, derive the order from the epoch (DistributedSampler).
    if options.steps * MICRO_BATCHES > len(loader):
        raise SystemExit(
            f"--steps {options.steps}: the data last for {len(loader) // MICRO_BATCHES}"
        )
    batches = iter(loader)
    while step < options.steps:
        optimizer.zero_grad()
        loss_sum = torch.zeros(())
        for micro in range(MICRO_BATCHES):
            tokens = next(batches)
            model.set_requires_gradient_sync(micro == MICRO_BATCHES - 1)
            logits = model(tokens[:, :-1]).float().flatten(0, 1)
            loss = functional.cross_entropy(logits, tokens[:, 1:].flatten()) / MICRO_BATCHES
            loss.backward()
            loss_sum += loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        dist.all_reduce(loss_sum, group=mesh["dp"].get_group())
        with generation.update(step + 1):
            optimizer.step()
            lrs.step()
            average.update()
        step += 1
        if generation.slot == 0:
            line = {"step": step, "loss": float(loss_sum) / n_readers, "norm": float(norm)}
            with (out / "losses.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
    finish(generation, model, average, out)


def finish(generation: Generation, model: nn.Module, average: Average, out: Path) -> None:
    """The whole model and its average, in one file."""
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    averaged = {f"average.{name}": value.full_tensor() for name, value in average.named_buffers()}
    if generation.slot == 0:
        save_file({**whole, **averaged}, out / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--compiler", default="inductor", help="of torch.compile, or none")
    parser.add_argument("--full-every", type=int, default=20)
    parser.add_argument(
        "--partial", action="store_true", help="the lost shard from disk: not exact"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    protection = Protection(full=options.out / "full", full_every_steps=options.full_every)
    if options.partial:
        allowed = (RecoverySource.PARTIAL, RecoverySource.ROLLBACK)
        protection = Protection(
            buddy=False,
            running=options.out / "running",
            full=options.out / "full",
            full_every_steps=options.full_every,
            recovery=RecoveryPolicy(
                allowed=allowed,
                # Of any age and at any predicted cost: without these a rollback may be predicted
                # to cost less, and is then taken.
                iteration_cost_share=0.0,
                max_relative_perturbation=math.inf,
                max_stale_steps=math.inf,
            ),
        )
    recorder = ProgressRecorder(options.out / f"progress-{os.getpid()}.jsonl", run="recipe")
    group = group_from_env(protection, recorder=recorder)
    group.run(lambda generation: train(generation, options, options.out))


if __name__ == "__main__":
    main()
