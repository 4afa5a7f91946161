"""What the trials need to know of an algorithm, and its clean run.

A state is one array whose first axis is cut into units: rows of a weight matrix, documents,
parameter shards. What must move together (a parameter and its moments) sits in the same row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

State = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Workload(Protocol):
    """An iterative algorithm whose random numbers are keyed by iteration, not by history."""

    name: str
    offsets: Ints  # first row of each unit, and the number of rows; shape (units + 1,)
    random: bool  # whether an iteration draws random numbers that shape the path for good

    def start(self, stream: int) -> State:
        """x(0) of one random stream."""
        ...

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """x(k+1) from x(k) for every state, and the loss seen of each x(k)."""
        ...

    def moved(self, now: State, saved: State) -> Floats:
        """How far each unit has moved since it was saved, shape (units,)."""
        ...


@dataclass(frozen=True, slots=True)
class CleanRun:
    """One run without failure: every state up to the last failure, and the loss of each."""

    stream: int
    states: State  # (iterations + 1, rows, ...)
    losses: Floats  # of x(0), x(1), ... as far as the run went
    smooth: int  # iterations averaged before the loss is compared

    def smoothed(self) -> Floats:
        """The trailing mean of the losses over `smooth` iterations, fewer at the start."""
        return trailing_mean(self.losses, self.smooth)


def trailing_mean(values: Floats, window: int) -> Floats:
    """The mean of the last `window` values at every place, of what there is at the start."""
    # no running sums: their rounding would show where the loss is nearly flat
    return np.array([values[max(0, at + 1 - window) : at + 1].mean() for at in range(values.size)])


def clean_run(workload: Workload, stream: int, iterations: int, smooth: int) -> CleanRun:
    """The run without failure: the states of x(0) to x(iterations), and losses as far again.

    A noisy run may cross a common threshold much later than planned: of the network on MNIST one of
    128 does so after more than half as many iterations again.
    """
    state = workload.start(stream)
    kept = np.empty((iterations + 1, *state.shape), dtype=state.dtype)
    losses = np.empty(2 * iterations)
    for at in range(losses.size):
        if at <= iterations:
            kept[at] = state
        (state,), loss = workload.advance([state], at, stream)
        losses[at] = loss[0]
    return CleanRun(stream, kept, losses, smooth)


def rows_of(offsets: Ints, units: Ints) -> NDArray[np.bool_]:
    """Which rows belong to `units`, shape (rows,)."""
    chosen = np.zeros(offsets.size - 1, dtype=bool)
    chosen[units] = True
    return np.repeat(chosen, np.diff(offsets))


def unit_norms(difference: State, offsets: Ints) -> Floats:
    """The L2 norm of each unit of a difference of states, shape (units,)."""
    flat = difference.reshape(difference.shape[0], -1).astype(np.float64)
    squares = np.einsum("ij,ij->i", flat, flat)
    return np.asarray(np.sqrt(np.add.reduceat(squares, offsets[:-1])))


def keyed(*key: int) -> np.random.Generator:
    """A generator that depends on its key alone, so that an iteration draws the same always."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
