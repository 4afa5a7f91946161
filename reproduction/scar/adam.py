"""Adam on any torch loss as a workload: a shard is restored with its moments and its step count.

Several arms are trained at once: their parameters are rows of one matrix, and the loss functions
work on all rows, so that small models are not bound by the overhead of small operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reproduction.scar.workload import Floats, Ints, State, unit_norms

if TYPE_CHECKING:
    from torch import Tensor

PARAMETER, FIRST, SECOND, STEP = range(4)  # columns of the state


class Adam:
    """A model under Adam or AdamW; the state has a row per parameter: value, moments, step."""

    random = True

    def __init__(
        self,
        name: str,
        *,
        initial: Callable[[int], NDArray[np.float32]],
        batch: Callable[[int, int], tuple[Tensor, Tensor]],
        judged: tuple[Tensor, Tensor],
        loss: Callable[[Tensor, Tensor, Tensor], Tensor],
        offsets: Ints,
        rate: float,
        decay: float = 0.0,
        warmup: int = 0,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> None:
        """Describe the model.

        Args:
            name: of the experiment.
            initial: parameters of a stream, shape (parameters,).
            batch: inputs and targets of (stream, iteration).
            judged: inputs and targets on which every loss is taken.
            loss: of parameters (arms, parameters), inputs, targets; shape (arms,).
            offsets: first parameter of each unit, and how many there are.
            rate: learning rate, after `warmup` iterations of linear growth.
            decay: decoupled weight decay.
            warmup: iterations.
            betas: of the moments.
        """
        self.name, self.offsets = name, offsets
        self._initial, self._batch, self._judged, self._loss = initial, batch, judged, loss
        self._rate, self._decay, self._warmup, self._betas = rate, decay, warmup, betas

    def start(self, stream: int) -> State:
        """Random parameters, zero moments, step 0."""
        values = self._initial(stream)
        state = np.zeros((values.size, 4), dtype=np.float32)
        state[:, PARAMETER] = values
        return state

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """One step of Adam for all states at once, on the batch of the iteration."""
        import torch

        table = torch.from_numpy(np.ascontiguousarray(np.stack(states).transpose(2, 0, 1)))
        value, first, second, step = table
        with torch.no_grad():
            losses = self._loss(value, *self._judged).double().numpy()
        leaf = value.clone().requires_grad_()
        (slope,) = torch.autograd.grad(
            self._loss(leaf, *self._batch(stream, iteration)).sum(), leaf
        )
        beta1, beta2 = self._betas
        rate = self._rate * min(1.0, (iteration + 1) / (self._warmup + 1))
        step = step + 1
        first = beta1 * first + (1 - beta1) * slope
        second = beta2 * second + (1 - beta2) * slope.square()
        drift = first / (1 - beta1**step)
        spread = (second / (1 - beta2**step)).sqrt() + 1e-8
        value = value * (1 - rate * self._decay) - rate * drift / spread
        result = torch.stack([value, first, second, step], dim=2).numpy()
        return list(result), losses

    def moved(self, now: State, saved: State) -> Floats:
        """The L2 distance of each unit's parameters; moments go along and are not weighed."""
        return unit_norms(now[:, :1] - saved[:, :1], self.offsets)


def equal_shards(parameters: int, shards: int) -> Ints:
    """Offsets of `shards` pieces that differ by at most one parameter."""
    return np.linspace(0, parameters, shards + 1).round().astype(np.int64)


def pieces(parameters: Tensor, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The named tensors of every arm, each of shape (arms, ...), as views of one matrix."""
    named, at = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        named[name] = parameters[:, at : at + size].view(-1, *shape)
        at += size
    return named
