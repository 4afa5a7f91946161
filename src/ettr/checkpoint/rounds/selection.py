"""The policies that choose the blocks of a round: arrays with one entry per block, NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError

POLICIES = ("full", "round-robin", "random", "priority", "touched", "dirty")


@dataclass(slots=True)
class BlockView:
    """The inputs of a choice, one entry per block.

    saved_round: round of the newest durable record, -1 none. distance2: squared L2 distance of the
    parameter from its saved value. touches: touches since it was saved. changed: whether a version
    counter has moved since it was saved.
    """

    n_bytes: NDArray[np.int64]
    saved_round: NDArray[np.int64]
    distance2: NDArray[np.float64]
    touches: NDArray[np.int64]
    changed: NDArray[np.bool_]


def choose(
    policy: str, view: BlockView, round_bytes: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Indices of the blocks to save, within `round_bytes` (at least one where any is wanted).

    Blocks that were never saved come first under every policy. Priority ranks by squared distance
    per byte: the choice that leaves the smallest L2 distance for the bytes written; for blocks of
    one size it is the paper's rule. Blocks at distance 0 are not saved again.

    **Source**: Qiao, Aragam, Zhang, Xing (2019), "Fault Tolerance in Iterative-Convergent Machine
    Learning", ICML: save the parameters with the largest change.
    """
    if policy not in POLICIES:
        raise UsageError(f"policy: {policy!r} was given; it is one of {', '.join(POLICIES)}")
    n = len(view.n_bytes)
    unsaved = view.saved_round < 0
    if policy == "full":
        return np.arange(n)
    if policy == "random":
        rank = rng.random(n)
        wanted = np.ones(n, bool)
    elif policy == "priority":
        rank = -view.distance2 / np.maximum(view.n_bytes, 1)
        wanted = view.distance2 > 0
    elif policy == "touched":
        rank = -(view.touches / np.maximum(view.n_bytes, 1))
        wanted = view.touches > 0
    else:
        rank = view.saved_round.astype(float)
        wanted = view.changed if policy == "dirty" else np.ones(n, bool)
    rank = np.where(unsaved, -np.inf, rank)
    order = np.lexsort((np.arange(n), rank))
    order = order[(wanted | unsaved)[order]]
    fits = int(np.searchsorted(np.cumsum(view.n_bytes[order]), round_bytes, side="right"))
    return order[: max(fits, 1)]
