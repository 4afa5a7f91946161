"""From posterior probabilities to claims, and how long it takes until a node is decided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ettr.lemons.model import Floats, LemonFit

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
