"""A small GPT with AdamW on tiny-shakespeare, characters as tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reproduction.scar.adam import Adam, equal_shards, pieces
from reproduction.scar.data import shakespeare
from reproduction.scar.workload import keyed

if TYPE_CHECKING:
    from torch import Tensor

WIDTH, HEADS, LAYERS, CONTEXT, BATCH, JUDGED, SHARDS = 48, 4, 2, 32, 16, 16, 64


def shapes(letters: int) -> dict[str, tuple[int, ...]]:
    """The tensors of the model by name; the output layer is the embedding of the letters."""
    named: dict[str, tuple[int, ...]] = {
        "letters": (letters, WIDTH),
        "places": (CONTEXT, WIDTH),
        "norm": (WIDTH,),
    }
    for layer in range(LAYERS):
        named |= {
            f"{layer}.norm1": (WIDTH,),
            f"{layer}.qkv": (WIDTH, 3 * WIDTH),
            f"{layer}.out": (WIDTH, WIDTH),
            f"{layer}.norm2": (WIDTH,),
            f"{layer}.up": (WIDTH, 4 * WIDTH),
            f"{layer}.down": (4 * WIDTH, WIDTH),
        }
    return named


def gpt(folder: Path, *, rate: float) -> Adam:
    """The model on tiny-shakespeare: 2 layers, width 48, context 32, about 60,000 parameters.

    Args:
        folder: of tiny-shakespeare.
        rate: of AdamW, after 20 iterations of warm-up.
    """
    import torch

    text, letters = shakespeare(folder)
    named = shapes(letters)
    split = text.size * 9 // 10
    tokens = torch.from_numpy(text)

    def windows(starts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        at = torch.from_numpy(starts[:, None] + np.arange(CONTEXT))
        return tokens[at], tokens[at + 1]

    def batch(stream: int, iteration: int) -> tuple[Tensor, Tensor]:
        rng = keyed(stream, iteration)
        return windows(rng.integers(0, split - CONTEXT - 1, size=BATCH))

    def loss(parameters: Tensor, given: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(pieces(parameters, named), given, target)

    judged = np.linspace(split, text.size - CONTEXT - 2, JUDGED).astype(np.int64)
    return Adam(
        "gpt-shakespeare",
        initial=lambda stream: initial(stream, named),
        batch=batch,
        judged=windows(judged),
        loss=loss,
        offsets=equal_shards(sum(int(np.prod(shape)) for shape in named.values()), SHARDS),
        rate=rate,
        decay=0.1,
        warmup=20,
    )


def initial(stream: int, named: dict[str, tuple[int, ...]]) -> NDArray[np.float32]:
    """Normal weights of standard deviation 0.02 for embeddings and 1/√fan-in else; norms 1."""
    rng = keyed(stream, 71)
    parts = []
    for name, shape in named.items():
        if len(shape) == 1:
            parts.append(np.ones(shape))
        else:
            scale = 0.02 if name in ("letters", "places") else shape[0] ** -0.5
            parts.append(scale * rng.standard_normal(shape).ravel())
    return np.concatenate(parts).astype(np.float32)


def cross_entropy(named: dict[str, Tensor], given: Tensor, target: Tensor) -> Tensor:
    """The mean cross-entropy of every arm, in nats per character."""
    import torch
    import torch.nn.functional as f

    arms = named["letters"].shape[0]
    rows, length = given.shape
    x = named["letters"][:, given] + named["places"][:, None, :length]
    x = x.flatten(1, 2)  # (arms, tokens, width)

    def normed(value: Tensor, gain: Tensor) -> Tensor:
        return f.layer_norm(value, (WIDTH,)) * gain[:, None]

    for layer in range(LAYERS):
        qkv = torch.bmm(normed(x, named[f"{layer}.norm1"]), named[f"{layer}.qkv"])
        heads = qkv.view(arms * rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = f.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(arms, rows * length, WIDTH)
        x = x + torch.bmm(mixed, named[f"{layer}.out"])
        up = f.gelu(torch.bmm(normed(x, named[f"{layer}.norm2"]), named[f"{layer}.up"]))
        x = x + torch.bmm(up, named[f"{layer}.down"])
    scores = torch.bmm(normed(x, named["norm"]), named["letters"].transpose(1, 2))
    each = f.cross_entropy(scores.flatten(0, 1), target.flatten().repeat(arms), reduction="none")
    return each.view(arms, -1).mean(1)
