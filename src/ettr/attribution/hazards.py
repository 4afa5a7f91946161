"""Hazards that compete for each interruption: as the others have it, by day and by age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ettr.taxonomy import Symptom

# -- causes of interruptions, and what each of them leaves to be seen ------------------------------
# Source:
#     Kokolis et al. (HPCA 2025), Table I.


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
SIGNS = frozenset({NODE_FAILED, FAILED, OUT_OF_MEMORY, BY_OPERATOR})
PUBLISHED_COINCIDENCES = 0.01
"""Of attempts that completed, the share with a failed check in its window (Kokolis et al. 2025),
taken where no completed attempt could show one."""
_SHARED_SIGNS = frozenset({"infiniband", "ethlink", "filesystem", "facility", "nvlink"})
_CANNOT_SHOW = np.array([3e-3, 3e-3, 3e-3, 1e-4, 1e-4, 1.0])
"""What a cause is seen as though it cannot show it; coincidences come on top."""
_NO_ACT = 1e-4
"""The same of an operator's act where no operator acted."""
FAULTS = (CauseDomain.NODE, CauseDomain.SHARED, CauseDomain.SYSTEM)
BURSTS = (CauseDomain.SHARED, CauseDomain.SYSTEM)
"""What can end jobs of many users at one moment."""


@dataclass(frozen=True, slots=True)
class Coincidences:
    """How often the window around the end of an attempt that nothing ended shows a symptom."""

    per_attempt: float = PUBLISHED_COINCIDENCES
    per_node: float = 0.0
    of_kind: Mapping[str, int] = field(default_factory=dict)

    def chance(self, kinds: Sequence[str], nodes: Floats) -> Floats:
        """How likely an attempt shows each kind by coincidence, shape (kinds, attempts).

        Symptoms that no completed attempt showed count as half a coincidence each; signs never do.
        """
        counts = np.array(
            [0.0 if kind in SIGNS else self.of_kind.get(kind, 0) + 0.5 for kind in kinds]
        )
        share = counts / max(sum(self.of_kind.values()) + 0.5, float(counts.sum()))
        met = -np.expm1(-(self.per_attempt + self.per_node * nodes))
        return np.asarray(share[:, None] * met, dtype=np.float64)


def coincidences(
    nodes: Floats, attempts: Floats, met: Floats, of_kind: Mapping[str, int]
) -> Coincidences:
    """What attempts that completed show of coincidences, by their sizes.

    Args:
        met: how many of those had a symptom in their window, by size.
    """
    if not attempts.sum() > 0:
        return Coincidences()
    # none of many is half of one
    expected = -np.log1p(-np.minimum(met / np.maximum(attempts, 1.0), 1 - 1e-6))
    weight = np.sqrt(attempts / (1 + nodes))
    design = np.stack([np.ones(len(nodes)), nodes], axis=1) * weight[:, None]
    per_attempt, per_node = _least_squares_above_zero(design, expected * weight)
    least = 0.5 / float(attempts.sum())
    return Coincidences(max(float(per_attempt), least), float(per_node), dict(of_kind))


def _least_squares_above_zero(design: Floats, target: Floats) -> tuple[float, float]:
    """Least squares of two coefficients, neither negative; SciPy's `nnls` takes .2 s to load."""
    (a, b), _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
    if rank == 2 and a >= 0 and b >= 0:
        return float(a), float(b)
    # one is zero: the better fit of the two alone; of columns that say the same, the larger
    slope = np.maximum(target @ design, 0.0)
    alone = slope / np.maximum((design**2).sum(axis=0), 1e-300)
    gain = slope * alone if rank == 2 else slope
    return (float(alone[0]), 0.0) if gain[0] >= gain[1] else (0.0, float(alone[1]))


def evidence_table(
    kinds: Sequence[str], symptoms: Mapping[str, Symptom], has_checks: bool
) -> Floats:
    """How likely each cause is to leave each kind of evidence, before the data.

    Columns sum to one where all kinds occur that a cause can leave, else to less.

    Table I says which symptoms a domain can show. What it cannot show may still have been seen by
    chance, so that nothing has probability 0.

    Args:
        has_checks: whether any log could have shown a symptom; where none could, a fault leaves
            nothing but the end of the job.
    """
    silent = 0.1 if has_checks else 0.5
    signs = {
        CauseDomain.NODE: {
            NODE_FAILED: 0.3,
            FAILED: silent,
            OUT_OF_MEMORY: 0.002,
            BY_OPERATOR: 0.001,
        },
        CauseDomain.SHARED: {NODE_FAILED: 0.25, FAILED: min(2 * silent, 0.5), BY_OPERATOR: 0.001},
        CauseDomain.SYSTEM: {NODE_FAILED: 0.2, FAILED: min(2 * silent, 0.5), OUT_OF_MEMORY: 0.02},
        CauseDomain.USER: {FAILED: 0.85, OUT_OF_MEMORY: 0.1, NODE_FAILED: 0.003},
        CauseDomain.OPERATOR: {
            BY_OPERATOR: 0.85,
            FAILED: 0.002,
            NODE_FAILED: 0.001,
            "operations": 0.08,
        },
    }
    made = np.tile(_CANNOT_SHOW, (len(kinds), 1))
    made[:, CAUSES.index(CauseDomain.UNKNOWN)] = 1.0
    # only an act of an operator is recorded as one; a few end jobs that a fault has hit
    made[[kind == BY_OPERATOR for kind in kinds], :-1] = _NO_ACT
    for column, cause in enumerate(CAUSES[:-1]):
        shown = [kind for kind in kinds if _may_show(cause, symptoms.get(kind))]
        left = max(0.05, 1.0 - sum(signs[cause].values()))
        for row, kind in enumerate(kinds):
            made[row, column] += signs[cause].get(kind, 0.0)
            if kind in shown:
                made[row, column] += (0.04 if cause is CauseDomain.USER else left) / len(shown)
    # what a cause leaves where none of it occurs is left out: an operator's act is no crash
    return np.asarray(made / np.maximum(made.sum(axis=0), 1.0), dtype=np.float64)


def outage_signs(evidence: Ints, prior: Floats, kinds: Sequence[str] = ()) -> Floats:
    """How much likelier than the usual ends an outage is to leave what was seen of each end.

    A row for what nodes share and one for system software, which can end many jobs at once too.

    Args:
        evidence: the kind of each end, by its row of `prior`.
        prior: `evidence_table`.
        kinds: its rows. A symptom of what nodes share (a filesystem) that many nodes show at one
            moment is not of the software of each: at most half as likely.
    """
    usual = np.bincount(evidence, minlength=len(prior)) + 0.5
    columns = [CAUSES.index(one) for one in BURSTS]
    left = prior[:, columns].T.copy()
    shared = np.array([kind in _SHARED_SIGNS for kind in kinds], dtype=np.bool_)
    if shared.any():
        left[1, shared] = np.minimum(left[1, shared], left[0, shared] / 2.0)
    ratio = left / (usual / usual.sum())
    return np.asarray(ratio[:, evidence], dtype=np.float64)


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


# -- hazards that compete for each interruption: as the others have it, by day and by age ----------


Flags = NDArray[np.bool_]

START_DAYS = 1 / 96
"""Exposure that a start adds on each node: a node that kills jobs at once runs none for long."""
SHAPES = np.array([0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 4.0, 10.0, 50.0])
"""Shapes of the gamma laws of rates among which the data choose; large ones are nearly equal."""
MOST_OF_A_USER = 2.0
"""Failures of one user on one day that count for a bad day of system software, at most."""
GOOD_DAYS = 0.7
"""Share of days without failing system software, at least, where no symptom shows it."""
OTHER_NODE = 0.02
"""Weight of the other nodes where a log names one."""
PRIOR_ENDS = 20.0
"""Weight of the tables before the data, in ends of each cause."""
NAMED_BEFORE = np.array([0.6, 0.4, 0.4, 0.4, 0.4, 0.4])
"""How often a log names one of several nodes under each cause, before the data."""
UNKNOWN_SHARE = 0.005
_TINY = 1e-300
_RULED_OUT = 0.03
_LEAST_DOUBT = 1e-9
_BURSTS = [CAUSES.index(one) for one in BURSTS]


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interrupted attempts and what they were exposed to.

    Attributes:
        user: Place of each program's user, shape (programs,).
        pair_named: Whether a log names that node as the one that failed.
        burst_odds: How many ends what ends many at once adds to each usual one at the moment and
            place, by what happened to others; a row for each of `BURSTS`, shape (2,
            interruptions).
        ended: How many attempts, interrupted or not, ended at each age, of
            `ettr.attribution.hazards.ends_by_age`; None: the ages are left out of account.
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
    by_chance: Coincidences = field(default_factory=Coincidences)
    ended: Floats | None = None


@dataclass(frozen=True, slots=True)
class FixedTerms:
    """What no round changes.

    Attributes:
        can: Kinds that a cause can leave at all, same shape.
        chance: Probability that the logs show the kind by coincidence, shape (interruptions,).
        nodes_named: Whether a log names one of several nodes of the interruption.
        at_most_prior: Kinds of which the data can show that a cause leaves fewer, not more: faults
            without a sign look like crashes of programs. Shape (kinds, causes).
    """

    prior: Floats
    can: Flags
    chance: Floats
    pair_days: Floats
    total_days: Floats
    node_days: Floats
    runs: Floats
    nodes_named: Flags
    can_be_named: Flags
    burst: Floats
    ages: RunAges
    at_most_prior: Flags

    @staticmethod
    def of(given: Interruptions, prior: Floats) -> FixedTerms:
        """What the rounds start from.

        Args:
            prior: of `ettr.attribution.hazards.evidence_table`.
        """
        n = len(given.evidence)
        can = prior > _RULED_OUT * prior.max(axis=0)
        for row, kind in enumerate(given.kinds):
            if kind == NODE_FAILED:
                can[row, CAUSES.index(CauseDomain.USER)] = True
        can[:, CAUSES.index(CauseDomain.UNKNOWN)] = False
        prior = prior.copy()
        prior[:, CAUSES.index(CauseDomain.UNKNOWN)] = (
            np.bincount(given.evidence, minlength=len(prior)) / n
        )
        ran_days, has_nodes = _ran_days(given)
        ages = RunAges.of(ran_days, has_nodes, given.ended)
        # a start that a node kills ends at the ages at which attempts mostly end
        pair_days = given.pair_days + START_DAYS * ages.usual_factors()[given.pair_of]
        several = np.bincount(given.pair_of, minlength=n) > 1
        unnamed = [kind in (FAILED, OUT_OF_MEMORY, BY_OPERATOR) for kind in given.kinds]
        names = np.array(unnamed, dtype=np.bool_)[given.evidence]
        return FixedTerms(
            prior=prior,
            can=can,
            chance=_coincidences(given),
            pair_days=pair_days,
            total_days=_sums(given.pair_of, pair_days, n),
            node_days=np.asarray(given.node_days + START_DAYS * given.node_runs),
            runs=np.maximum(given.program_runs, 1.0),
            nodes_named=np.bincount(given.pair_of, given.pair_named, n) > 0,
            can_be_named=several & ~names,
            burst=_burst(given),
            ages=ages,
            at_most_prior=np.outer(
                [kind == FAILED for kind in given.kinds], [cause in FAULTS for cause in CAUSES]
            ),
        )


def _ran_days(given: Interruptions) -> tuple[Floats, Flags]:
    """How long each attempt ran, and whether that is known: without nodes nothing says it."""
    n = len(given.evidence)
    ran_days = np.zeros(n)
    np.maximum.at(ran_days, given.pair_of, given.pair_days)
    return ran_days, np.bincount(given.pair_of, minlength=n) > 0


def _burst(given: Interruptions) -> Floats:
    """The chance that what ends many at the moment ended each one, shape (interruptions, 2)."""
    n = len(given.evidence)
    ran_days, _ = _ran_days(given)
    mean_days = float(given.node_days.sum()) / max(float(given.node_runs.sum()), 1.0)
    length = ran_days / mean_days if mean_days > 0 else np.ones(n)
    per_run = n / max(float(given.program_runs.sum()), 1.0)
    return np.asarray((given.burst_odds * per_run * length).T, dtype=np.float64)


def _coincidences(given: Interruptions) -> Floats:
    nodes = np.maximum(np.bincount(given.pair_of, minlength=len(given.evidence)), 1)
    sizes, at = np.unique(nodes, return_inverse=True)
    chance = given.by_chance.chance(given.kinds, sizes.astype(np.float64))
    return np.asarray(chance[given.evidence, at], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Hazards:
    """Hazards of one round, each as the other interruptions have it.

    Of nodes and of system software (by calendar day: it has bad days) per node-day, of programs
    per run, of the rest; how likely each cause is to leave what was seen; and by how much the age
    of the attempt makes an end by its program, and by an operator, likelier.
    """

    node: Floats
    program: Floats
    system: Floats
    shared_per_day: Floats
    operator_per_run: Floats
    unknown_per_run: float
    seen: Floats
    named: Floats
    table: Floats
    program_at_age: Floats
    operator_at_age: Floats

    @staticmethod
    def start(given: Interruptions, fixed: FixedTerms, prior: Floats) -> Hazards:
        """Equal nodes and equal programs; the failures without a sign are mostly programs'."""
        n, runs = len(given.evidence), max(float(given.program_runs.sum()), 1.0)
        days = max(float(given.node_days.sum() + START_DAYS * given.node_runs.sum()), START_DAYS)
        return Hazards(
            node=np.full(len(given.pair_of), 0.2 * n / days),
            program=np.full(n, 0.5 * n / runs),
            system=np.full(n, 0.1 * n / days),
            shared_per_day=np.full(n, 0.05 * n / days),
            operator_per_run=np.full(n, 0.05 * n / runs),
            unknown_per_run=UNKNOWN_SHARE * n / runs,
            seen=prior[given.evidence],
            named=np.tile(NAMED_BEFORE, (n, 1)),
            table=prior,
            program_at_age=fixed.ages.usual_factors(),
            operator_at_age=fixed.ages.usual_factors(),
        )

    def weigh(self, given: Interruptions, fixed: FixedTerms) -> tuple[Floats, Floats]:
        """Probabilities by cause, and of each pair that its node's hardware was the cause."""
        n = len(given.evidence)
        of_pair = self.node * fixed.pair_days
        plain = _sums(given.pair_of, of_pair, n)
        named = fixed.nodes_named[given.pair_of]
        of_pair = of_pair * np.where(named & ~given.pair_named, OTHER_NODE, 1.0)
        # a log that names a node names one of several alike: their sum is what was to be expected
        of_pair *= ratio(plain, _sums(given.pair_of, of_pair, n))[given.pair_of]
        own = np.stack(
            [
                plain,
                self.shared_per_day * fixed.total_days,
                self.system * fixed.total_days,
                self.program * self.program_at_age,
                self.operator_per_run * self.operator_at_age,
                self.unknown_per_run * fixed.ages.usual_factors(),
            ],
            axis=1,
        )
        own[:, _BURSTS] += fixed.burst
        by_name = np.where(fixed.nodes_named[:, None], self.named, 1 - self.named)
        weights = own * self.seen * np.where(fixed.can_be_named[:, None], by_name, 1.0)
        probability = weights / np.maximum(weights.sum(axis=1), _TINY)[:, None]
        share = ratio(probability[:, 0], plain)
        return probability, of_pair * share[given.pair_of]


def hazards_without_own(
    given: Interruptions,
    fixed: FixedTerms,
    probability: Floats,
    pairs: Floats,
    before: Hazards,
    most_shape: float = np.inf,
) -> Hazards:
    """The hazards that the probabilities of all other interruptions imply, for each one.

    Args:
        most_shape: of the gamma law of nodes. Early rounds need a small one: all look equal before
            any failure is put down to one of them, and would stay so.

    With its own probability among them a cause would confirm itself: of a program, node or day
    with a single interruption, several times over.

    Source:
        Asuncion, Welling, Smyth and Teh (2009), UAI, on collapsed variational inference (CVB0).
    """
    sums, n = probability.sum(axis=0), len(probability)
    shared, system, user, operator = range(1, len(CAUSES) - 1)
    days, runs = max(float(fixed.node_days.sum()), START_DAYS), float(fixed.runs.sum())
    # what is a burst's says nothing of the hazard at other times
    alone = probability[:, shared] * _not_of_burst(before.shared_per_day, fixed, 0)
    by_itself = probability[:, system] * _not_of_burst(before.system, fixed, 1)
    table, seen = _evidence(given, fixed, probability)
    return Hazards(
        node=_node_hazards(given, fixed, pairs, _mean(sums[0], days), most_shape),
        program=_program_hazards(given, fixed, probability[:, user]),
        system=_system_hazards(given, by_itself, before.system, days),
        shared_per_day=(alone.sum() - alone + 0.5) / days,
        operator_per_run=(sums[operator] - probability[:, operator] + 0.5) / runs,
        unknown_per_run=UNKNOWN_SHARE * n / runs,
        seen=seen,
        named=_naming(fixed, probability),
        table=table,
        program_at_age=fixed.ages.factors(probability[:, user]),
        operator_at_age=fixed.ages.factors(probability[:, operator]),
    )


def _not_of_burst(per_day: Floats, fixed: FixedTerms, which: int) -> Floats:
    own = per_day * fixed.total_days
    return ratio(own, own + fixed.burst[:, which])


def _evidence(
    given: Interruptions, fixed: FixedTerms, probability: Floats
) -> tuple[Floats, Floats]:
    """The table of evidence that the fleet shows, and for each end that of the others."""
    counts = np.zeros_like(fixed.prior)
    for column in range(len(CAUSES)):
        counts[:, column] = np.bincount(given.evidence, probability[:, column], len(counts))
    # of what a cause can leave some may not occur on this fleet: the rest takes its place
    within = 1.0 - np.where(fixed.can, 0.0, fixed.prior).sum(axis=0)
    total = (fixed.can * counts).sum(axis=0)
    at = given.evidence
    own = np.where(fixed.can[at], probability, 0.0)
    pulled = PRIOR_ENDS * fixed.prior / np.maximum(within, _TINY)
    table = np.where(fixed.can, within * (pulled + counts) / (PRIOR_ENDS + total), fixed.prior)
    seen = np.where(
        fixed.can[at],
        within * (pulled[at] + counts[at] - own) / (PRIOR_ENDS + total - own),
        fixed.prior[at],
    )
    table = np.where(fixed.at_most_prior, np.minimum(table, fixed.prior), table)
    seen = np.where(fixed.at_most_prior[at], np.minimum(seen, fixed.prior[at]), seen)
    chance = np.tile(fixed.chance[:, None], (1, len(CAUSES)))
    # what an operator does is recorded as that, whatever else the logs show
    chance[:, CAUSES.index(CauseDomain.OPERATOR)] = 0.0
    return table, np.asarray(seen * (1 - chance) + chance, dtype=np.float64)


def _naming(fixed: FixedTerms, probability: Floats) -> Floats:
    """How likely each cause makes a log name one of several nodes, from the other interruptions."""
    own = probability * fixed.can_be_named[:, None]
    named = own * fixed.nodes_named[:, None]
    counted = named.sum(axis=0) - named + PRIOR_ENDS * NAMED_BEFORE
    return np.asarray(counted / (own.sum(axis=0) - own + PRIOR_ENDS), dtype=np.float64)


def _node_hazards(
    given: Interruptions, fixed: FixedTerms, pairs: Floats, mean: float, most_shape: float
) -> Floats:
    counts = _sums(given.pair_node, pairs, len(fixed.node_days))
    shape = min(likeliest_shape(counts, fixed.node_days), most_shape)
    at = given.pair_node
    return (shape + counts[at] - pairs) / (shape / mean + fixed.node_days[at])


def _program_hazards(given: Interruptions, fixed: FixedTerms, probability: Floats) -> Floats:
    """Programs are drawn towards the mean of their user, users towards that of all."""
    runs, at = fixed.runs, given.program
    mean = _mean(float(probability.sum()), float(runs.sum()))
    counts = _sums(at, probability, len(runs))
    users = int(given.user.max()) + 1
    by_user, user_runs = _sums(given.user, counts, users), _sums(given.user, runs, users)
    shape = likeliest_shape(by_user, user_runs)
    of = given.user[at]
    of_user = (shape + by_user[of] - probability) / (shape / mean + user_runs[of])
    shape = likeliest_shape(counts, runs)
    hazard = (shape + counts[at] - probability) / (shape / of_user + runs[at])
    return np.minimum(hazard, 1.0)


def _system_hazards(
    given: Interruptions, probability: Floats, before: Floats, node_days: float
) -> Floats:
    """Hazard of system software by day; a hundred failures of one user are no bad day of all."""
    users = int(given.user.max()) + 1
    at = given.day * users + given.user[given.program]
    of_user = _sums(at, probability, users * given.days)[at]
    weight = MOST_OF_A_USER / np.maximum(of_user, MOST_OF_A_USER)
    odds = probability / np.maximum(1 - probability, _LEAST_DOUBT)
    # without any symptom software that fails at all times looks like nodes that do
    least_zero = GOOD_DAYS if SIGNS.issuperset(given.kinds) else 0.0
    return rates_without_own(odds / before, weight, given.day, given.days, node_days, least_zero)


def likeliest_shape(counts: Floats, exposure: Floats) -> float:
    """Shape of the gamma law of rates of which the counts are likeliest, of those in `SHAPES`.

    Args:
        exposure: shape (n,), over 0 where there are counts.
    """
    held = exposure > 0
    counts, exposure = counts[held], exposure[held]
    if not len(counts) or not counts.sum() > 0:
        return 1.0
    from ettr.estimates.special import gammaln

    mean = counts.sum() / exposure.sum()
    # groups without any exposure left say nothing; equal counts and exposures are summed once
    scale = SHAPES[:, None] / mean
    gain = gammaln(SHAPES[:, None] + counts) - gammaln(SHAPES[:, None])
    gain += SHAPES[:, None] * np.log(scale / (scale + exposure))
    gain -= counts * np.log(scale + exposure)
    return float(SHAPES[gain.sum(axis=1).argmax()])


def _mean(count: float, exposure: float) -> float:
    return float((count + 0.5) / exposure)


def _sums(places: Ints, weights: Floats, n: int) -> Floats:
    """Sums by place; bincount of nothing would be whole numbers."""
    return np.asarray(np.bincount(places, weights, n), dtype=np.float64)


def ratio(part: Floats, whole: Floats) -> Floats:
    """Part over whole; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)


# -- Rates of system software by day, of which nothing is assumed but that days have them by one
#    law
#
# Most days have none, some are bad, or all are alike: the law is a weight for each rate of a
# grid, found from the days themselves. Each day weighs the rates by how likely they make what
# ended that day and what did not; whether an end was by software stays open in that, so that
# many doubtful ends on ordinary days do not add up to a rate.
#
# Source:
#     Laird (1978), JASA 73, for the law of rates by maximum likelihood; Efron (2014), Statistical
#     Science 29, for its use as a prior.

RATES = np.concatenate([[0.0], np.geomspace(1e-3, 10.0, 24)])
"""The grid, over the rate of all interruptions."""
ZERO_BEFORE = 0.2
"""Share of days without any, before the data; the other rates are equally likely."""
DAYS_BEFORE = 5.0
"""Weight of that, in days."""
_ROUNDS = 30
_LEAST = 1e-9


def rates_without_own(
    per_rate: Floats,
    weight: Floats,
    day: Ints,
    days: int,
    node_days: float,
    least_zero: float = 0.0,
) -> Floats:
    """Expected rate per node-day at each interruption, as the others have it.

    Args:
        least_zero: share of days that are taken to be without any, at least.
    """
    rates = RATES * len(day) / node_days
    # rate by rate: an array of all ends and rates would be slow
    gains = [weight * np.log1p(per_rate * rate) for rate in rates]
    logs = np.stack([np.bincount(day, gain, days) for gain in gains], axis=1)
    logs = np.asarray(logs - rates * node_days / days, dtype=np.float64)
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = likely * _law(likely, least_zero)
    whole, summed = np.zeros(len(day)), np.zeros(len(day))
    whole_weight = weight == 1
    for rate, gain, of_day in zip(rates, gains, weights.T, strict=True):
        without = np.where(whole_weight, 1 / (1 + per_rate * rate), 1.0)
        without[~whole_weight] = np.exp(-gain[~whole_weight])
        without *= of_day[day]
        whole += without
        summed += rate * without
    return np.maximum(summed / whole, _LEAST)


def _law(likely: Floats, least_zero: float) -> Floats:
    """Weight of each rate, from how likely it makes each day; shape (rates,)."""
    days = len(likely)
    before = np.full(len(RATES), (1 - ZERO_BEFORE) / (len(RATES) - 1))
    before[0] = ZERO_BEFORE
    law = before
    for _ in range(_ROUNDS):
        of_day = law * likely
        of_day /= of_day.sum(axis=1, keepdims=True)
        law = (of_day.sum(axis=0) + DAYS_BEFORE * before) / (days + DAYS_BEFORE)
        if law[0] < least_zero:
            law[1:] *= (1 - least_zero) / law[1:].sum()
            law[0] = least_zero
    return law


# -- At what ages attempts end: programs crash early, hardware fails at any age -------------------
#
# Of two causes that end as many attempts the one that ends them at such an age is the likelier.
# A hazard per node-day holds at each age; that of a program is its chance per run, spread over
# the ages as crashes are, over the runs that reach them.

_EDGES_DAYS = 2.0 ** np.arange(14) / (24 * 60)
"""One minute to six days, each twice the one before; a bin below, one above."""
_BINS = len(_EDGES_DAYS) + 1
_WIDTHS_DAYS = np.diff(np.concatenate([[0.0], _EDGES_DAYS, [2 * _EDGES_DAYS[-1]]]))
_REACHED = 0.45
"""Part of its bin that an attempt which ends there passes, on average: more end early in it."""
_ENDS_BEFORE = 20.0
"""Weight of the ages of all interruptions in those of one cause, in ends."""
_LEAST_DAYS = 1e-5


def ends_by_age(ran_days: Floats, attempts: Floats | None = None) -> Floats:
    """How many attempts ended at each age, shape (bins,).

    Args:
        attempts: how many ran that long; None: one each.
    """
    return np.bincount(_bin(ran_days), attempts, _BINS).astype(np.float64)


@dataclass(frozen=True, slots=True)
class RunAges:
    """Ages of interruptions against those that attempts reach.

    Attributes:
        per_run: What turns the share of a cause's ends in the bin into its hazard at that age,
            times the age, over that of a whole run.
    """

    bin: Ints
    known: NDArray[np.bool_]
    all_ends: Floats
    per_run: Floats

    @staticmethod
    def of(ran_days: Floats, known: NDArray[np.bool_], ended: Floats | None) -> RunAges:
        """Ages of the interruptions."""
        at = _bin(ran_days)
        if ended is None:
            known = np.zeros(len(at), dtype=np.bool_)
            ended = np.zeros(_BINS)
        counts = np.bincount(at[known], minlength=_BINS) + 0.5
        later = np.cumsum(ended[::-1])[::-1] - ended
        # an interruption passed part of its bin, counted among all attempts or not
        at_risk_days = _WIDTHS_DAYS * np.maximum(later + _REACHED * ended, _REACHED)
        per_run = max(float(ended.sum()), 1.0) * np.maximum(ran_days, _LEAST_DAYS)
        return RunAges(at, known, counts / counts.sum(), per_run / at_risk_days[at])

    def factors(self, weights: Floats) -> Floats:
        """How much likelier a cause is at the age of each interruption, as its others have it.

        Without an age 1.
        """
        own = np.where(self.known, weights, 0.0)
        counts = np.bincount(self.bin, own, _BINS)[self.bin] - own
        share = (_ENDS_BEFORE * self.all_ends[self.bin] + counts) / (_ENDS_BEFORE + own.sum() - own)
        return np.where(self.known, share * self.per_run, 1.0)

    def usual_factors(self) -> Floats:
        """The same of an interruption of unknown cause."""
        return np.where(self.known, self.all_ends[self.bin] * self.per_run, 1.0)


def _bin(ran_days: Floats) -> Ints:
    return np.searchsorted(_EDGES_DAYS, ran_days).astype(np.int64)
