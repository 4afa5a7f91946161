"""Causes of interruptions as probabilities: hazards that compete, weighed by what was seen.

An attempt is exposed to several hazards at once: to each of its nodes by the time it runs there, to
its own program once a run, to system software by node time, to what nodes share, to operators. The
probability of a cause is its hazard times how likely the cause is to leave what was seen, over the
sum of all causes. Hazards are not given: those of nodes and of programs are found from the
probabilities in turn, each drawn towards its fleet's mean by a gamma law whose shape the data
choose, so that one failure convicts nobody. A user whose program fails on many nodes gets a high
hazard of the program; a node on which many users fail gets one of the node; what many nodes have at
once is no hazard of any of them (`ettr.attribution.shared_bursts`).

Sources:
    Kokolis et al. (HPCA 2025), Table I and the differential diagnosis over its domains.
    Dempster, Laird and Rubin (1977), JRSS B 39, for mixtures of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ettr.attribution.hazards import (
    CAUSES,
    FixedTerms,
    Floats,
    Hazards,
    Interruptions,
    Ints,
    hazards_without_own,
    ratio,
)
from ettr.estimates import Interval

CALIBRATION_POWER = np.array([1.05, 1.02, 0.92, 1.01, 1.6])
CALIBRATION_LOG_ODDS = np.array([0.0, -0.16, -0.25, 0.34, 1.5])
"""What brings stated and true shares together, by likelihood, on the simulated clusters of the
campaign `causes` that it was chosen by, each kind with the same weight."""
ODDS_ERROR = np.array([0.4, 0.9, 0.6, 0.4, 1.5, 1.0])
"""Standard deviation, from cluster to cluster, of the logarithm of true over stated odds. Chosen so
that on those kinds true shares and totals lay within intervals of 90 %, each kind judged by a
calibration on the other kinds; of `unknown`, of which nothing is simulated, assumed."""
UNSEEN = np.array([0.005, 0.003, 0.006, 0.005, 0.001, 0.005])
"""Standard deviation of the share of interruptions whose cause left nothing that speaks for it."""
ODDS_ERROR_WITHOUT_LOGS = np.array([1.1, 3.0, 1.1, 0.55, 1.5, 1.0])
UNSEEN_WITHOUT_LOGS = np.array([0.02, 0.03, 0.03, 0.02, 0.001, 0.005])
"""The same where no log of nodes was read: system software that fails nodes at all times then looks
like their hardware, and daemons that end jobs everywhere like an outage of what all share."""
_ROUNDS = 60
_EARLY_ROUNDS, _EARLY_SHAPE = 15, 0.35
_SETTLED = 1e-3


@dataclass(frozen=True, slots=True)
class LedgerFit:
    """Probabilities, and what they rest on."""

    probability: Floats
    node: Ints
    node_probability: Floats
    evidence: Floats


def fit_ledger(given: Interruptions, prior: Floats) -> LedgerFit:
    """Probabilities of the causes of each interruption."""
    n = len(given.evidence)
    if not n:
        return LedgerFit(np.zeros((0, len(CAUSES))), np.zeros(0, np.int64), np.zeros(0), prior)
    fixed = FixedTerms.of(given, prior)
    state = Hazards.start(given, fixed, prior)
    probability, pairs = state.weigh(given, fixed)
    for number in range(_ROUNDS):
        most_shape = _EARLY_SHAPE if number < _EARLY_ROUNDS else np.inf
        state = hazards_without_own(given, fixed, probability, pairs, state, most_shape)
        before = probability
        probability, pairs = state.weigh(given, fixed)
        if number > _EARLY_ROUNDS and np.abs(probability - before).max() < _SETTLED:
            break
    stated = calibrated(probability)
    node, node_probability = _likeliest_nodes(
        given, pairs * ratio(stated[:, 0], probability[:, 0])[given.pair_of]
    )
    return LedgerFit(stated, node, node_probability, state.table)


def calibrated(probability: Floats) -> Floats:
    """The probabilities as they are stated; rows sum to one."""
    known = probability[:, :-1]
    logs = CALIBRATION_POWER * np.log(np.maximum(known, 1e-300)) + CALIBRATION_LOG_ODDS
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    # nothing simulated says how often causes are unknown: that probability stays as it was
    unknown = probability[:, -1:]
    shares = (1 - unknown) * weights / weights.sum(axis=1, keepdims=True)
    return np.asarray(np.append(shares, unknown, axis=1), dtype=np.float64)


def expected_totals(
    probability: Floats, has_checks: bool, confidence: float
) -> tuple[Interval, ...]:
    """The interruptions of each cause, with intervals that allow for the model's own error."""
    n, z = len(probability), _quantile(confidence)
    expected = probability.sum(axis=0)
    off, unseen = _errors(has_checks)
    below, above = (one.sum(axis=0) for one in _shifted(probability, z * off))
    variance = (probability * (1 - probability)).sum(axis=0) + (unseen * n) ** 2
    low = expected - np.hypot(expected - below, z * np.sqrt(variance))
    high = expected + np.hypot(above - expected, z * np.sqrt(variance))
    return tuple(
        Interval(*ends)
        for ends in zip(
            expected.tolist(), np.maximum(low, 0.0), np.minimum(high, float(n)), strict=True
        )
    )


def true_shares(stated: Floats, has_checks: bool, confidence: float) -> tuple[Floats, Floats]:
    """Between which the true share may lie where a probability is stated, on one cluster.

    Returns:
        Lower and upper ends, shape (n, causes).
    """
    z = _quantile(confidence)
    off, unseen = _errors(has_checks)
    below, above = _shifted(stated, z * off)
    low = np.maximum(stated - np.hypot(stated - below, z * unseen), 0.0)
    return low, np.minimum(stated + np.hypot(above - stated, z * unseen), 1.0)


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(1 - (1 - confidence) / 2)


def _errors(has_checks: bool) -> tuple[Floats, Floats]:
    if has_checks:
        return ODDS_ERROR, UNSEEN
    return ODDS_ERROR_WITHOUT_LOGS, UNSEEN_WITHOUT_LOGS


def _shifted(probability: Floats, by: Floats) -> tuple[Floats, Floats]:
    """The probabilities with the logarithms of their odds that much lower, and higher."""
    clipped = np.clip(probability, 1e-12, 1 - 1e-12)
    against = (1 - clipped) / clipped
    return 1 / (1 + against * np.exp(by)), 1 / (1 + against * np.exp(-by))


def _likeliest_nodes(given: Interruptions, pairs: Floats) -> tuple[Ints, Floats]:
    n = len(given.evidence)
    order = np.lexsort((-pairs, given.pair_of))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = given.pair_of[order][1:] != given.pair_of[order][:-1]
    best = order[first]
    node, probability = np.full(n, -1, dtype=np.int64), np.zeros(n)
    node[given.pair_of[best]] = given.pair_node[best]
    probability[given.pair_of[best]] = pairs[best]
    return node, probability
