"""What is trained: a small GPT on the characters of Python's own standard library.

The text is on every machine that has Python. Data follow from (step, slot) alone, so that every way
sees the same batches. Each block holds a pause, which imitates an accelerator's computing: it
takes time between two collectives and leaves the cores free.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as f

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

LETTERS, WIDTH, HEADS, BLOCKS, CONTEXT, BATCH = 128, 64, 4, 2, 32, 8
SOURCES = ("argparse", "ast", "copy", "dataclasses", "doctest", "inspect", "pickle", "typing")


def text() -> Tensor:
    """The characters as numbers below `LETTERS`."""
    folder = Path(os.__file__).parent
    raw = b"".join((folder / f"{name}.py").read_bytes() for name in SOURCES)
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).long().clamp(max=LETTERS - 1)


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm, and the pause."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s = pause_s
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        time.sleep(self.pause_s)
        parts = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        seen = f.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(-2))
        return x + self.down(f.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    """Characters to the next character's logits."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block(pause_s / BLOCKS) for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of every place."""
        x = self.letters(x) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(pause_s: float) -> Gpt:
    """The model with the same values wherever it is built."""
    torch.manual_seed(0)
    return Gpt(pause_s)


def sharded(model: Gpt, mesh: DeviceMesh) -> Gpt:
    """The same, each block and the rest sharded over the mesh (FSDP2)."""
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def adamw(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """The optimizer of every way."""
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)


def loss_of(model: nn.Module, characters: Tensor, step: int, slot: int) -> Tensor:
    """Mean cross-entropy of a slot's batch of a step, nats per character."""
    generator = torch.Generator().manual_seed(1000 * step + slot)
    starts = torch.randint(characters.numel() - CONTEXT - 1, (BATCH, 1), generator=generator)
    windows = characters[starts + torch.arange(CONTEXT + 1)]
    logits = model(windows[:, :-1])
    return f.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
