"""Causes of interruptions as probabilities: hazards that compete, weighed by what was seen.

An attempt is exposed to several hazards at once: to each of its nodes by the time it runs there, to
its own program once a run, to system software by node time, to what nodes share, to operators. The
probability of a cause is its hazard times how likely the cause is to leave what was seen, over the
sum of all causes. Hazards are not given: those of nodes and of programs are found from the
probabilities in turn (expectation maximization), each drawn towards its fleet's mean by a gamma
prior, so that one failure convicts nobody. A user whose program fails on many nodes gets a high
hazard of the program; a node on which many users fail gets one of the node; what many nodes have at
once is no hazard of any of them (`ettr.attribution.shared_bursts`).

Sources:
    Kokolis et al. (HPCA 2025), Table I and the differential diagnosis over its domains.
    Dempster, Laird and Rubin (1977), JRSS B 39, for mixtures of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ettr.taxonomy import Symptom

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CauseDomain(StrEnum):
    """The failure domains, and what is in none of them."""

    NODE = "node_hardware"
    SHARED = "shared"
    SYSTEM = "system_software"
    USER = "user_program"
    OPERATOR = "operator"
    UNKNOWN = "unknown"


CAUSES = tuple(CauseDomain)
NODE_FAILED, FAILED, OUT_OF_MEMORY, BY_OPERATOR = "node-failed", "failed", "oom", "operator"
"""What is seen where no symptom is: the scheduler says that a node failed; an end without a sign;
memory used up; an operator's act."""
START_DAYS = 1 / 24
"""Exposure that a start adds on each node: a node that kills jobs at once runs none for long."""
NODE_SHAPE, PROGRAM_SHAPE, DAY_SHAPE = 1.0, 0.5, 0.2
"""Shapes of the gamma priors: programs and days of system software differ by more than nodes."""
MOST_OF_A_USER = 2.0
"""Failures of one user on one day that count for a bad day of system software, at most."""
LONE_SHARED = 0.2
"""Part of what nodes share that hits one job alone."""
OTHER_NODE = 0.02
"""Weight of the other nodes where a log names one."""
ANCHOR = 0.25
"""Weight of the table of evidence before the data; the rest is what the fleet's logs show."""
UNKNOWN_SHARE = 0.005
_SHARED_SIGNS = frozenset({"infiniband", "ethlink", "filesystem", "facility", "nvlink"})
_ROUNDS = 60
_SETTLED = 1e-3
_TINY = 1e-300
_RULED_OUT = 0.03


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interrupted attempts and what they were exposed to.

    Attributes:
        evidence: Place in `kinds` of what was seen, shape (interruptions,).
        kinds: Symptoms and signs that occur.
        program: Place of the program, shape (interruptions,).
        user: Place of each program's user, shape (programs,).
        program_runs: Attempts of each program, interrupted or not, shape (programs,).
        pair_of: Interruption of each pair of interruption and node.
        pair_node: Its node.
        pair_days: Days that the attempt ran on it.
        pair_named: Whether a log names that node as the one that failed.
        node_days: Days that attempts ran on each node, shape (nodes,).
        node_runs: Attempts that ran on each node.
        burst_odds: How much likelier than by chance so many others were hit at the same moment in
            the same place, less 1; 0 outside bursts. Shape (interruptions,).
        day: Calendar day of each interruption, from 0.
        days: How many days there are.
    """

    evidence: Ints
    kinds: tuple[str, ...]
    program: Ints
    user: Ints
    program_runs: Floats
    pair_of: Ints
    pair_node: Ints
    pair_days: Floats
    pair_named: NDArray[np.bool_]
    node_days: Floats
    node_runs: Floats
    burst_odds: Floats
    day: Ints
    days: int


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


def evidence_table(
    kinds: Sequence[str], symptoms: Mapping[str, Symptom], has_checks: bool
) -> Floats:
    """How likely each cause is to leave each kind of evidence, before the data; columns sum to one.

    Table I says which symptoms a domain can show. What it cannot show may still have been seen by
    chance, so that nothing has probability 0.

    Args:
        kinds: symptoms by slug, and signs.
        symptoms: of the taxonomy.
        has_checks: whether any log could have shown a symptom; where none could, a fault leaves
            nothing but the end of the job.
    """
    silent = 0.1 if has_checks else 0.5
    signs = {
        CauseDomain.NODE: {
            NODE_FAILED: 0.3,
            FAILED: silent,
            OUT_OF_MEMORY: 0.002,
            BY_OPERATOR: 0.01,
        },
        CauseDomain.SHARED: {NODE_FAILED: 0.25, FAILED: 2 * silent, BY_OPERATOR: 0.01},
        CauseDomain.SYSTEM: {NODE_FAILED: 0.2, FAILED: 2 * silent, OUT_OF_MEMORY: 0.02},
        CauseDomain.USER: {FAILED: 0.85, OUT_OF_MEMORY: 0.1, NODE_FAILED: 0.003},
        CauseDomain.OPERATOR: {
            BY_OPERATOR: 0.85,
            FAILED: 0.05,
            NODE_FAILED: 0.02,
            "operations": 0.08,
        },
    }
    made = np.full((len(kinds), len(CAUSES)), 1e-3)
    made[:, CAUSES.index(CauseDomain.UNKNOWN)] = 1.0
    for column, cause in enumerate(CAUSES[:-1]):
        shown = [kind for kind in kinds if _may_show(cause, symptoms.get(kind))]
        left = max(0.05, 1.0 - sum(signs[cause].values()))
        for row, kind in enumerate(kinds):
            made[row, column] += signs[cause].get(kind, 0.0)
            if kind in shown:
                made[row, column] += (0.04 if cause is CauseDomain.USER else left) / len(shown)
    return np.asarray(made / made.sum(axis=0), dtype=np.float64)


def _may_show(cause: CauseDomain, symptom: Symptom | None) -> bool:
    if symptom is None:
        return False
    if cause is CauseDomain.SHARED:
        return symptom.slug in _SHARED_SIGNS or symptom.domain.count("+") == 2
    if cause is CauseDomain.NODE:
        return symptom.hardware
    if cause is CauseDomain.SYSTEM:
        return symptom.system_software
    return cause is CauseDomain.USER and symptom.user_program


def fit_ledger(given: Interruptions, prior: Floats) -> LedgerFit:
    """Probabilities of the causes of each interruption.

    Args:
        given: the interruptions.
        prior: of `evidence_table`.
    """
    n = len(given.evidence)
    if not n:
        return LedgerFit(np.zeros((0, len(CAUSES))), np.zeros(0, np.int64), np.zeros(0), prior)
    state = _Hazards.start(given, prior)
    probability, pairs = state.weigh(given)
    for _ in range(_ROUNDS):
        state = state.after(given, probability, pairs, prior)
        before = probability
        probability, pairs = state.weigh(given)
        if np.abs(probability - before).max() < _SETTLED:
            break
    node, node_probability = _likeliest_nodes(given, pairs)
    return LedgerFit(probability, node, node_probability, state.evidence)


@dataclass(frozen=True, slots=True)
class _Hazards:
    """Hazards of one round: of nodes and of system software (by calendar day: it has bad days) per
    node-day, of programs per run, of the rest."""

    node: Floats
    program: Floats
    system: Floats
    shared_per_day: float
    operator_per_run: float
    unknown_per_run: float
    evidence: Floats

    @staticmethod
    def start(given: Interruptions, prior: Floats) -> _Hazards:
        """Equal nodes and equal programs; the failures without a sign are mostly programs'."""
        n, runs = len(given.evidence), max(float(given.program_runs.sum()), 1.0)
        days = max(_exposure(given).sum(), START_DAYS)
        return _Hazards(
            node=np.full(len(given.node_days), 0.2 * n / days),
            program=np.full(len(given.program_runs), 0.5 * n / runs),
            system=np.full(given.days, 0.1 * n / days),
            shared_per_day=0.05 * n / days,
            operator_per_run=0.05 * n / runs,
            unknown_per_run=UNKNOWN_SHARE * n / runs,
            evidence=prior,
        )

    def weigh(self, given: Interruptions) -> tuple[Floats, Floats]:
        """Probabilities by cause, and of each pair that its node's hardware was the cause."""
        n = len(given.evidence)
        days = given.pair_days + START_DAYS
        of_pair = self.node[given.pair_node] * days
        plain = _sums(given.pair_of, of_pair, n)
        named = np.bincount(given.pair_of, given.pair_named, n) > 0
        of_pair = of_pair * np.where(named[given.pair_of] & ~given.pair_named, OTHER_NODE, 1.0)
        # a log that names a node names one of several alike: their sum is what was to be expected
        of_pair *= _ratio(plain, _sums(given.pair_of, of_pair, n))[given.pair_of]
        total_days = np.bincount(given.pair_of, days, n)
        own = np.stack(
            [
                plain,
                self.shared_per_day * total_days,
                self.system[given.day] * total_days,
                self.program[given.program],
                np.full(n, self.operator_per_run),
                np.full(n, self.unknown_per_run),
            ],
            axis=1,
        )
        own[:, CAUSES.index(CauseDomain.SHARED)] += given.burst_odds * own.sum(axis=1)
        weights = own * self.evidence[given.evidence]
        probability = weights / np.maximum(weights.sum(axis=1), _TINY)[:, None]
        share = _ratio(probability[:, 0], plain)
        return probability, of_pair * share[given.pair_of]

    def after(
        self, given: Interruptions, probability: Floats, pairs: Floats, prior: Floats
    ) -> _Hazards:
        """The hazards that the probabilities imply."""
        sums = probability.sum(axis=0)
        exposure, runs = _exposure(given), np.maximum(given.program_runs, 1.0)
        days, all_runs = max(exposure.sum(), START_DAYS), runs.sum()
        by_node = _sums(given.pair_node, pairs, len(exposure))
        user, system = CAUSES.index(CauseDomain.USER), CAUSES.index(CauseDomain.SYSTEM)
        by_program = _sums(given.program, probability[:, user], len(runs))
        counts = np.zeros_like(prior)
        for column in range(len(CAUSES)):
            counts[:, column] = np.bincount(given.evidence, probability[:, column], len(prior))
        evidence = _learned(counts, prior)
        return _Hazards(
            node=_shrunk(by_node, exposure, NODE_SHAPE, _mean(sums[0], days)),
            program=_programs(by_program, runs, given.user, _mean(sums[user], all_runs)),
            system=_system(given, probability[:, system], days),
            shared_per_day=LONE_SHARED * _mean(sums[CAUSES.index(CauseDomain.SHARED)], days),
            operator_per_run=_mean(sums[CAUSES.index(CauseDomain.OPERATOR)], all_runs),
            unknown_per_run=self.unknown_per_run,
            evidence=evidence,
        )


def _learned(counts: Floats, prior: Floats) -> Floats:
    """The table of evidence, moved towards what the fleet shows where a cause can show it at all.

    What Table I rules out stays ruled out: else the most frequent cause takes all symptoms.
    """
    sums = counts.sum(axis=0)
    seen = counts / np.maximum(sums, 1e-9)
    can = prior > _RULED_OUT * prior.max(axis=0)
    can[:, CAUSES.index(CauseDomain.UNKNOWN)] = False
    # over the kinds that a cause can show, their share together stays as before
    within = can * seen
    within *= _ratio((can * prior).sum(axis=0), within.sum(axis=0))
    trust = (1 - ANCHOR) * sums / (sums + 10.0)
    trust = np.where(within.sum(axis=0) > 0, trust, 0.0)
    return np.where(can, (1 - trust) * prior + trust * within, prior)


def _exposure(given: Interruptions) -> Floats:
    return np.asarray(given.node_days + START_DAYS * given.node_runs, dtype=np.float64)


def _mean(count: float, exposure: float) -> float:
    return float((count + 0.5) / exposure)


def _shrunk(counts: Floats, exposure: Floats, shape: float, mean: float | Floats) -> Floats:
    return np.asarray((shape + counts) / (shape / mean + exposure), dtype=np.float64)


def _programs(counts: Floats, runs: Floats, user: Ints, mean: float) -> Floats:
    """Programs are drawn towards the mean of their user, users towards that of all."""
    n = int(user.max()) + 1
    users = _shrunk(_sums(user, counts, n), _sums(user, runs, n), PROGRAM_SHAPE, mean)
    return np.minimum(_shrunk(counts, runs, PROGRAM_SHAPE, users[user]), 1.0)


def _system(given: Interruptions, probability: Floats, node_days: float) -> Floats:
    """Hazard of system software by day; a hundred failures of one user are no bad day of all."""
    users = int(given.user.max()) + 1
    of_user_and_day = np.bincount(
        given.day * users + given.user[given.program], probability, users * given.days
    )
    by_day = np.minimum(of_user_and_day, MOST_OF_A_USER).reshape(given.days, users).sum(axis=1)
    exposure = np.full(given.days, node_days / given.days)
    return _shrunk(by_day, exposure, DAY_SHAPE, _mean(float(by_day.sum()), node_days))


def _sums(places: Ints, weights: Floats, n: int) -> Floats:
    """Sums by place; bincount of nothing would be whole numbers."""
    return np.asarray(np.bincount(places, weights, n), dtype=np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)


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
