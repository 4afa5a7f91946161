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

import numpy as np
from scipy.special import ndtri

from ettr.attribution.cause_evidence import CAUSES, Floats
from ettr.attribution.hazards import (
    FixedTerms,
    Hazards,
    Interruptions,
    Ints,
    hazards_without_own,
    ratio,
)
from ettr.estimates import Interval

CALIBRATION_POWER = 1.1
CALIBRATION_LOG_ODDS = np.array([0.0, 0.0, -0.4, -0.7, 0.0, 0.0])
"""What brings stated and true shares together on the simulated clusters of the campaign `causes`
that are not held out: the model alone claims too much for programs and system software."""
MODEL_ERROR = np.array([0.1, 0.2, 0.35, 0.015, 0.01, 1.0])
"""Standard deviation of a cause's total over that total, by what the campaign `causes` shows."""
MODEL_ERROR_OF_ALL = np.array([0.005, 0.005, 0.006, 0.01, 0.001, 0.005])
"""The same over all interruptions, on top."""
WITHOUT_LOGS_OF_NODES = np.array([0.02, 0.01, 0.02, 0.02, 0.001, 0.005])
"""The same where no log of nodes was read: faults then look like crashes."""
_ROUNDS = 60
_EARLY_ROUNDS, _EARLY_SHAPE = 15, 0.35
_SETTLED = 1e-3


@dataclass(frozen=True, slots=True)
class LedgerFit:
    """Probabilities, and what they rest on.

    Attributes:
        probability: Shape (interruptions, causes), rows sum to one, columns as in `CAUSES`.
        node: Place of the likeliest culprit among the nodes, -1 without nodes.
        node_probability: Probability that its hardware was the cause.
        evidence: Probability of each kind of evidence under each cause, shape (kinds, causes).
    """

    probability: Floats
    node: Ints
    node_probability: Floats
    evidence: Floats


def fit_ledger(given: Interruptions, prior: Floats) -> LedgerFit:
    """Probabilities of the causes of each interruption.

    Args:
        given: the interruptions.
        prior: of `evidence_table`.
    """
    n = len(given.evidence)
    if not n:
        return LedgerFit(np.zeros((0, len(CAUSES))), np.zeros(0, np.int64), np.zeros(0), prior)
    fixed = FixedTerms.of(given, prior)
    state = Hazards.start(given, prior)
    probability, pairs = state.weigh(given, fixed)
    for number in range(_ROUNDS):
        most_shape = _EARLY_SHAPE if number < _EARLY_ROUNDS else np.inf
        state = hazards_without_own(given, fixed, probability, pairs, most_shape)
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
    """The probabilities as they are stated; rows sum to one.

    Args:
        probability: of the model, shape (interruptions, causes).
    """
    logs = CALIBRATION_POWER * np.log(np.maximum(probability, 1e-300)) + CALIBRATION_LOG_ODDS
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


def expected_totals(
    probability: Floats, has_checks: bool, confidence: float
) -> tuple[Interval, ...]:
    """How many interruptions each cause has, with intervals that allow for the model's own error.

    Args:
        probability: of `LedgerFit`.
        has_checks: as for `ettr.attribution.cause_evidence.evidence_table`.
        confidence: of the intervals.
    """
    n, z = len(probability), float(ndtri(1 - (1 - confidence) / 2))
    expected = probability.sum(axis=0)
    of_all = MODEL_ERROR_OF_ALL if has_checks else WITHOUT_LOGS_OF_NODES
    variance = (probability * (1 - probability)).sum(axis=0)
    variance += (MODEL_ERROR * expected) ** 2 + (of_all * n) ** 2
    half = z * np.sqrt(variance)
    return tuple(
        Interval(one, max(0.0, one - by), min(float(n), one + by))
        for one, by in zip(expected.tolist(), half.tolist(), strict=True)
    )


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
