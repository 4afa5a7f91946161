"""Claims from posterior probabilities: in turn, without roles; and the time until a decision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ettr.defaults import CONFIDENCE
from ettr.lemons.model import MIN_RATIO, Floats, LemonFit, NodeCounts, fit_lemons
from ettr.lemons.signals import NodeName

CLAIM_AT, CLEAR_AT = 0.9, 0.01
"""Probabilities at which a node counts as decided: a lemon, or none."""
LEAST_PROBABLE = 0.3
"""No node below it is claimed, however sure the others are."""


@dataclass(frozen=True, slots=True)
class TimeToDecide:
    """Days of further exposure until a node is decided, as expected; 0 where it is already."""

    claim_days: float
    clear_days: float


def claimed(
    posterior: Floats, false_discovery: float
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which nodes to claim: the most probable ones, while the expected share of good nodes fits.

    The share of ordinary nodes among the claimed is the mean of 1 - posterior over them (Müller et
    al., JASA 99, 2004).
    """
    order = np.argsort(-posterior, kind="stable")
    expected = np.cumsum(1 - posterior[order]) / np.arange(1, len(order) + 1)
    fitting = np.flatnonzero(expected <= false_discovery)
    chosen = np.zeros(len(posterior), dtype=np.bool_)
    if len(fitting):
        chosen[order[: fitting[-1] + 1]] = True
    return chosen & (posterior >= LEAST_PROBABLE)


def time_to_decide(fit: LemonFit, posterior: float) -> TimeToDecide:
    """How long until the log-odds of a node, which runs jobs all day, reach a decision.

    Each failure adds log(k) to them and each day takes (k - 1) μ: a drift of μ (k log k - k + 1) a
    day for a lemon and of μ (log k - k + 1) for an ordinary node (Wald's sequential test). Unequal
    ordinary nodes make both longer: these are lower bounds.
    """
    now = _log_odds(min(max(posterior, 1e-12), 1 - 1e-12))
    ratio, rate = fit.ratio, fit.bulk_per_node_day
    as_lemon = rate * (ratio * np.log(ratio) - ratio + 1)
    as_ordinary = rate * (ratio - 1 - np.log(ratio))
    return TimeToDecide(
        claim_days=max(0.0, float((_log_odds(CLAIM_AT) - now) / as_lemon)),
        clear_days=max(0.0, float((now - _log_odds(CLEAR_AT)) / as_ordinary)),
    )


def _log_odds(probability: float) -> float:
    return float(np.log(probability / (1 - probability)))


# -- Nodes that stand out under one name in several clusters: a role is likelier than a defect ----
#
# Front ends, login nodes and the first node of every system fail more often by what they do.
# Where no inventory says what a node is for, the name does: that nodes of one name are claimed
# in each of several clusters hardly happens by chance.

ROLE_CHANCE = 0.05
"""Names expected to be claimed in the same clusters by chance, below which a role is taken for
certain."""


def role_names(claims: Iterable[NodeName], nodes: Mapping[str, int]) -> frozenset[str]:
    """Names that stand out in more clusters than chance explains."""
    clusters: defaultdict[str, set[str]] = defaultdict(set)
    per_cluster: defaultdict[str, int] = defaultdict(int)
    for cluster, node in set(claims):
        clusters[node].add(cluster)
        per_cluster[cluster] += 1
    found = set()
    for node, some in clusters.items():
        if len(some) < 2:
            continue
        # names in common are at most those of the smallest cluster
        expected = float(min(nodes[one] for one in some))
        for one in some:
            expected *= per_cluster[one] / nodes[one]
        if expected < ROLE_CHANCE:
            found.add(node)
    return frozenset(found)


# -- Claims in turn: what the worst nodes hide is looked for without them -------------------------
#
# A few nodes that fail a hundred times as often as the others draw it to themselves, and nodes
# that fail ten times as often then look ordinary. So the rest is fitted again without the
# claimed nodes, while that adds claims.

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
    counts: NodeCounts, fit: LemonFit, later: LemonFit, rest: NDArray[np.int64], posterior: Floats
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


# -- Since when a node has been failing: the posterior of the moment at which its rate rose -------

ALWAYS = 0.5
"""Probability before the data that the node failed so from the first day of the logs on."""
_MOMENTS = 400
_RATIOS = np.exp(np.linspace(np.log(MIN_RATIO), np.log(5000.0), 60))
"""Wider than those of the fleet's lemons: where few other nodes fail, one may stand out by more."""


@dataclass(frozen=True, slots=True)
class Onset:
    """When the rate of a node rose, in days of its exposure, if it is a lemon at all."""

    from_start: float
    low_days: float
    median_days: float
    high_days: float


def onset(
    failure_days: Floats,
    weights: Floats,
    exposure_days: float,
    bulk_per_node_day: float,
    confidence: float = CONFIDENCE,
) -> Onset:
    """The moment from which on a node fails k times as often as ordinary nodes; before, as they do.

    k is averaged, its logarithm evenly spread from `MIN_RATIO` on. Half of the probability before
    the data is on the beginning of the logs, the rest is spread evenly over the exposure.

    Args:
        failure_days: exposure of the node until each of its failures, in days.
        weights: what each failure counts for, of the same shape.

    Raises:
        ValueError: there is no failure or no exposure.
    """
    if not len(failure_days) or not exposure_days > 0:
        raise ValueError("an onset needs a failure and an exposure over 0")
    moments = np.linspace(0.0, exposure_days, _MOMENTS, endpoint=False)
    later = (failure_days[None, :] >= moments[:, None]) @ weights
    gain = later[:, None] * np.log(_RATIOS)
    gain -= (_RATIOS - 1) * bulk_per_node_day * (exposure_days - moments)[:, None]
    log_weight = np.logaddexp.reduce(gain, axis=1)
    log_weight += np.log(np.where(moments > 0, (1 - ALWAYS) / (_MOMENTS - 1), ALWAYS))
    weight = np.exp(log_weight - np.logaddexp.reduce(log_weight))
    tail = (1 - confidence) / 2
    low, middle, high = moments[
        np.minimum(np.searchsorted(np.cumsum(weight), (tail, 0.5, 1 - tail)), _MOMENTS - 1)
    ]
    return Onset(float(weight[0]), float(low), float(middle), float(high))
