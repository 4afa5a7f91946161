"""A small convolutional network on MNIST, by layer and by shard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from reproduction.scar.adam import Adam, equal_shards, pieces
from reproduction.scar.data import mnist
from reproduction.scar.workload import keyed

if TYPE_CHECKING:
    from torch import Tensor

SHAPES: dict[str, tuple[int, ...]] = {
    "conv1.weight": (8, 1, 5, 5),
    "conv1.bias": (8,),
    "conv2.weight": (16, 8, 5, 5),
    "conv2.bias": (16,),
    "hidden.weight": (256, 32),
    "hidden.bias": (32,),
    "output.weight": (32, 10),
    "output.bias": (10,),
}
FAN_IN = (25, 25, 200, 200, 256, 256, 32, 32)
SIZES = [int(np.prod(shape)) for shape in SHAPES.values()]
SHARDS = 64


def network(folder: Path, by: str, *, digits: int = 60_000, rate: float = 2e-3) -> Adam:
    """The network on some MNIST digits, 11,978 parameters.

    Args:
        folder: of MNIST.
        by: "layer" (a unit is a weight or a bias of one of four layers) or "shard" (64 equal
            pieces of all parameters in a row).
        digits: training examples, drawn from the 60,000; all of them unless fewer are asked for.
        rate: of Adam.

    Raises:
        UsageError: `by` is neither.
    """
    import torch

    if by not in ("layer", "shard"):
        raise UsageError(f"units by {by!r}; allowed are layer and shard")
    pixels, labels = mnist(folder)
    chosen = keyed(6000).choice(labels.size, size=digits, replace=False)
    x = torch.from_numpy(pixels[chosen].reshape(-1, 1, 28, 28))
    y = torch.from_numpy(labels[chosen])
    layers = np.concatenate([[0], np.cumsum(SIZES)])

    def batch(stream: int, iteration: int) -> tuple[Tensor, Tensor]:
        rows = keyed(stream, iteration).integers(0, digits, size=32)
        return x[rows], y[rows]

    return Adam(
        f"cnn-mnist-{by}",
        initial=initial,
        batch=batch,
        judged=(x[:128], y[:128]),
        loss=loss,
        offsets=layers if by == "layer" else equal_shards(int(layers[-1]), SHARDS),
        rate=rate,
    )


def initial(stream: int) -> NDArray[np.float32]:
    """Uniform in ±1/√fan-in."""
    rng = keyed(stream, 61)
    parts = [rng.uniform(-1, 1, n) / np.sqrt(f) for n, f in zip(SIZES, FAN_IN, strict=True)]
    return np.concatenate(parts).astype(np.float32)


def loss(parameters: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of every arm; the arms are groups of one convolution."""
    import torch
    import torch.nn.functional as f

    arms = parameters.shape[0]
    named = pieces(parameters, SHAPES)
    # one input channel: a product with the patches is faster than a convolution
    patches = f.unfold(images, 5, stride=2).transpose(1, 2).reshape(-1, 25)
    weight, bias = named["conv1.weight"].reshape(-1, 25), named["conv1.bias"].flatten()
    x = f.relu(torch.addmm(bias, patches, weight.T))
    x = x.view(images.shape[0], 12, 12, -1).permute(0, 3, 1, 2)
    weight, bias = named["conv2.weight"].flatten(0, 1), named["conv2.bias"].flatten()
    x = f.relu(f.conv2d(x, weight, bias, stride=2, groups=arms))
    x = x.reshape(x.shape[0], arms, -1).transpose(0, 1)
    x = f.relu(torch.baddbmm(named["hidden.bias"][:, None], x, named["hidden.weight"]))
    x = torch.baddbmm(named["output.bias"][:, None], x, named["output.weight"])
    each = f.cross_entropy(x.flatten(0, 1), labels.repeat(arms), reduction="none")
    return each.view(arms, -1).mean(1)
