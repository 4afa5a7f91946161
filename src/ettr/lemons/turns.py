"""Claims in turn: what the worst nodes hide is looked for without them.

A few nodes that fail a hundred times as often as the others draw it to themselves, and nodes that
fail ten times as often then look ordinary. So the rest is fitted again without the claimed nodes,
while that adds claims.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ettr.lemons.claims import claimed
from ettr.lemons.model import Floats, LemonFit, NodeCounts, fit_lemons

AGAIN_EXISTS = 0.3
"""Probability before the data that there is a further group of lemons: lower than of a first one,
so that the tail of a spread-out fleet is not claimed in turn."""
MOST_TURNS = 4


def claim_in_turn(
    counts: NodeCounts, false_discovery: float, fit: LemonFit | None = None
) -> tuple[LemonFit, NDArray[np.bool_]]:
    """The model of one stratum, and its claimed nodes.

    Where a further turn claims nodes, the posterior of each node is the larger one of its turns,
    and what is said of ordinary nodes and of the lemons' ratio is the last turn's.
    """
    fit = fit or fit_lemons(counts)
    chosen = claimed(fit.posterior, false_discovery)
    for _ in range(MOST_TURNS):
        (rest,) = np.nonzero(~chosen)
        if not chosen.any() or not len(rest):
            break
        later = fit_lemons(_without(counts, chosen, fit.mean_theta), AGAIN_EXISTS)
        posterior = fit.posterior.copy()
        posterior[rest] = np.maximum(later.posterior, posterior[rest])
        now = chosen | claimed(posterior, false_discovery)
        if now.sum() == chosen.sum():
            break
        fit, chosen = _merged(counts, fit, later, rest, posterior), now
    return fit, chosen


def _without(counts: NodeCounts, left_out: NDArray[np.bool_], mean_theta: Floats) -> NodeCounts:
    """The other nodes; shared failures are theirs where the model blames them for most of each."""
    (kept,) = np.nonzero(~left_out)
    place = np.full(len(left_out), -1)
    place[kept] = np.arange(len(kept))
    shared = []
    for one in counts.shared:
        theirs = ~left_out[one.nodes]
        if mean_theta[one.nodes[theirs]].sum() > 0.5 * mean_theta[one.nodes].sum():
            shared.append(replace(one, nodes=place[one.nodes[theirs]]))
    return counts.of_nodes(kept, shared)


def _merged(
    counts: NodeCounts,
    fit: LemonFit,
    later: LemonFit,
    rest: NDArray[np.int64],
    posterior: Floats,
) -> LemonFit:
    # rates of the first turn's lemons, over the later mean of ordinary nodes
    mean_theta = fit.mean_theta * fit.bulk_per_node_day / later.bulk_per_node_day
    mean_theta[rest] = later.mean_theta
    return replace(
        fit,
        posterior=posterior,
        expected=later.bulk_per_node_day * counts.exposure_node_days,
        bulk_per_node_day=later.bulk_per_node_day,
        ratio=later.ratio,
        spread=later.spread,
        mean_theta=mean_theta,
    )
