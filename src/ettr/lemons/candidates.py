"""The nodes that a site should look at, what speaks against each, and what is undecided."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ettr.defaults import CONFIDENCE, FALSE_DISCOVERY
from ettr.lemons.fleet import BlamedFailure, Stratum, UnplacedFailures, without_nodes
from ettr.lemons.model import (
    MIN_RATIO,
    OUTAGES,
    Floats,
    LemonFit,
    NodeCounts,
    NodeName,
    NodeSignals,
    SignalRatio,
    fit_lemons,
)
from ettr.words import by_number

# -- claims from posterior probabilities: in turn, without roles; and the time until a decision ----


CLAIM_AT, CLEAR_AT = 0.9, 0.01
"""Probabilities at which a node counts as decided: a lemon, or none."""
LEAST_PROBABLE = 0.3
"""No node below it is claimed, however sure the others are."""


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


def days_to_decide(fit: LemonFit, posterior: float) -> tuple[float, float]:
    """Days until a node, which runs jobs all day, is claimed if it is a lemon, else cleared.

    As expected; 0 where it is decided already.

    Each failure adds log(k) to them and each day takes (k - 1) μ: a drift of μ (k log k - k + 1) a
    day for a lemon and of μ (log k - k + 1) for an ordinary node (Wald's sequential test). Unequal
    ordinary nodes make both longer: these are lower bounds.
    """
    now = _log_odds(min(max(posterior, 1e-12), 1 - 1e-12))
    ratio, rate = fit.ratio, fit.bulk_per_node_day
    as_lemon = rate * (ratio * np.log(ratio) - ratio + 1)
    as_ordinary = rate * (ratio - 1 - np.log(ratio))
    return (
        max(0.0, float((_log_odds(CLAIM_AT) - now) / as_lemon)),
        max(0.0, float((now - _log_odds(CLEAR_AT)) / as_ordinary)),
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


# -- the nodes that a site should look at, what speaks against each, and what is undecided ---------


MIN_NODES = 20
"""Fewer comparable nodes do not show what is ordinary."""


@dataclass(frozen=True, slots=True)
class LemonCandidate:
    """One node and what speaks for its being a lemon.

    Attributes:
        failures: Failures it caused, a burst counted in parts; of failures without a named culprit
            the part that the model gives it.
        idle_outages: Unplanned outages that ended no job; None where no log says.
        claim_days: Further days of exposure until it would be claimed, if it is a lemon.
        has_role: Whether nodes of its name stand out in several clusters: that is what they do,
            and none of them is claimed.
    """

    cluster: str
    node: str
    hardware: str | None
    posterior: float
    claimed: bool
    failures: float
    named: int
    idle_outages: int | None
    expected: float
    exposure_node_days: float
    claim_days: float
    clear_days: float
    first_s: float | None
    last_s: float | None
    jobs: tuple[BlamedFailure, ...]
    signals: NodeSignals | None = None
    has_role: bool = False


@dataclass(frozen=True, slots=True)
class LearnedSignal:
    """What a signal is worth in a group of nodes.

    Attributes:
        per_1000_node_days: Its rate on ordinary nodes, by days in service where those are known
            and else by those of jobs; None where it was not seen.
        ratio: How much more often lemons have it, 1 where that is unknown; None where it was not
            seen.
    """

    name: str
    count: int
    per_1000_node_days: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class ComparedNodes:
    """A group of nodes that are compared with each other, and its model.

    Attributes:
        bulk_per_1000_node_days: Rate of the ordinary nodes; None, as all that follow, where none
            failed.
        spread: Standard deviation of the ordinary nodes' rates over their mean.
        log_evidence: Log of how much likelier the counts are with a separate group of lemons.
    """

    cluster: str
    hardware: str | None
    nodes: int
    node_days: float
    failures: float
    shared: int
    bursts: int
    bulk_per_1000_node_days: float | None
    ratio: float | None
    spread: float | None
    log_evidence: float | None
    signals: tuple[LearnedSignal, ...] = ()


@dataclass(frozen=True, slots=True)
class LemonReport:
    """The answer of `ettr lemons`.

    Attributes:
        min_ratio: What a lemon is: so many times the mean rate of the ordinary nodes.
        not_judged_nodes: Nodes of which too few comparable ones ran jobs.
        not_judged_failures: Failures on those nodes.
    """

    candidates: tuple[LemonCandidate, ...]
    groups: tuple[ComparedNodes, ...]
    false_discovery: float
    min_ratio: float
    notes: tuple[str, ...]
    unplaced: UnplacedFailures
    distributions: tuple[SignalDistribution, ...]
    not_judged_nodes: int
    not_judged_failures: int


def lemon_report(
    fleet: Sequence[Stratum],
    unplaced: UnplacedFailures,
    false_discovery: float = FALSE_DISCOVERY,
    listed: int = 20,
    asked: NodeName | None = None,
    signals: Mapping[NodeName, NodeSignals] | None = None,
    fit: Callable[[NodeCounts], LemonFit] = fit_lemons,
) -> LemonReport:
    """Candidates of a fleet. Claims are made within each group, so that their error holds there."""
    large = [group for group in fleet if len(group.nodes) >= MIN_NODES]
    small = [group for group in fleet if len(group.nodes) < MIN_NODES]
    judged = large
    fits, every = _judged(judged, false_discovery, signals or {}, fit)
    roles = _roles(every, judged)
    if roles:
        # a front end that fails thirty times as often hides those that fail ten times as often
        judged = [without_nodes(group, roles) for group in large]
        with_role = [
            replace(one, claimed=False, has_role=True) for one in every if one.node in roles
        ]
        fits, every = _judged(judged, false_discovery, signals or {}, fit)
        every += with_role
    every.sort(key=lambda one: (-one.posterior, -one.failures, one.cluster, one.node))
    kept = max(listed, sum(one.claimed for one in every))
    return LemonReport(
        tuple(
            one
            for rank, one in enumerate(every)
            if (rank < kept and (one.claimed or one.failures > 0))
            or (one.cluster, one.node) == asked
        ),
        tuple(_compared(group, fit) for group, fit in zip(judged, fits, strict=True)),
        false_discovery,
        MIN_RATIO,
        (*_notes(large, small, unplaced), *_role_notes(every)),
        unplaced,
        signal_distributions(
            [(group.cluster, node) for group in large for node in group.nodes], signals or {}
        ),
        *_not_judged(small),
    )


def _judged(
    groups: Sequence[Stratum],
    false_discovery: float,
    signals: Mapping[NodeName, NodeSignals],
    fit: Callable[[NodeCounts], LemonFit],
) -> tuple[list[LemonFit], list[LemonCandidate]]:
    fits = [claim_in_turn(group.counts, false_discovery, fit(group.counts)) for group in groups]
    every = chain.from_iterable(
        _candidates(group, fit, chosen, signals)
        for group, (fit, chosen) in zip(groups, fits, strict=True)
    )
    return [fit for fit, _ in fits], list(every)


def _roles(candidates: Sequence[LemonCandidate], groups: Sequence[Stratum]) -> frozenset[str]:
    """Names of nodes that stand out in several clusters."""
    nodes = Counter[str]()
    for group in groups:
        nodes[group.cluster] += len(group.nodes)
    return role_names([(one.cluster, one.node) for one in candidates if one.claimed], nodes)


def _role_notes(candidates: Iterable[LemonCandidate]) -> list[str]:
    clusters: dict[str, list[str]] = {}
    for one in candidates:
        if one.has_role:
            clusters.setdefault(one.node, []).append(one.cluster)
    return [
        f"Node {node} stands out in {', '.join(sorted(some))}: it probably has a role "
        "rather than a defect in each, so it is not claimed. Give it a hardware_group of "
        "its own in the inventory."
        for node, some in sorted(clusters.items())
    ]


def _candidates(
    group: Stratum,
    fit: LemonFit,
    chosen: NDArray[np.bool_],
    signals: Mapping[NodeName, NodeSignals],
) -> list[LemonCandidate]:
    made, idle = [], (group.counts.signals or {}).get(OUTAGES)
    for at, name in enumerate(group.nodes):
        if name in group.earlier:
            continue
        times_s = [one.end_s for one in group.named[at]]
        made.append(
            LemonCandidate(
                group.cluster,
                name,
                group.hardware,
                float(fit.posterior[at]),
                bool(chosen[at]),
                float(fit.failures[at]),
                len(times_s),
                None if idle is None else int(idle[at]),
                float(fit.expected[at]),
                float(group.counts.exposure_node_days[at]),
                *days_to_decide(fit, float(fit.posterior[at])),
                min(times_s, default=None),
                max(times_s, default=None),
                tuple(job for job in group.named[at] if job.attempt_id),
                signals.get((group.cluster, name)),
            )
        )
    return made


def _compared(group: Stratum, fit: LemonFit) -> ComparedNodes:
    failed = bool(fit.failures.sum() > 0)
    return ComparedNodes(
        group.cluster,
        group.hardware,
        len(group.nodes),
        float(group.counts.exposure_node_days.sum()),
        float(fit.failures.sum()),
        len(group.counts.shared),
        group.bursts,
        1000 * fit.bulk_per_node_day if failed else None,
        fit.ratio if failed else None,
        fit.spread if failed else None,
        fit.log_evidence if failed else None,
        tuple(
            _learned(name, float((group.counts.signals or {})[name].sum()), one)
            for name, one in fit.signals.items()
        ),
    )


def _learned(name: str, count: float, one: SignalRatio) -> LearnedSignal:
    if not count:
        return LearnedSignal(name, 0, None, None)
    return LearnedSignal(name, int(count), 1000 * one.base_per_node_day, one.ratio)


def not_judged_note(n_nodes: int, n_failures: int) -> str:
    """The sentence on nodes that too few others compare with, and on their failures."""
    return by_number(
        f"{{n}} [node is|nodes are] not judged: fewer than {MIN_NODES} comparable nodes ran jobs. ",
        n_nodes,
    ) + by_number("{n} [failure is|failures are] theirs.", n_failures)


def _not_judged(small: Sequence[Stratum]) -> tuple[int, int]:
    """How many nodes of these groups there are, and how many failures."""
    nodes = sum(len(group.nodes) for group in small)
    return nodes, sum(sum(map(len, group.named)) + len(group.counts.shared) for group in small)


def _notes(
    large: Sequence[Stratum], small: Sequence[Stratum], unplaced: UnplacedFailures
) -> list[str]:
    """What a reader of the list must know, and what the probabilities leave out."""
    n_nodes, n_failures = _not_judged(small)
    shared = [one for group in large for one in group.counts.shared]
    counts = {
        "{n} [failure names|failures name] no culprit: the model shares [it|them] among the nodes "
        "of the job. slurmctld.log and health checks name more culprits.": len(shared),
        "{n} of them [is|are] of users whose jobs fail so far more often than those of others, by "
        "node-days: what is above the others' rate is put down to the workload.": sum(
            one.weight < 1.0 for one in shared
        ),
        "{n} [history ends|histories end] with a repair or a new serial number: the time before "
        "does not count against the node.": sum(len(group.earlier) for group in large),
        "{n} [burst|bursts] over several nodes within minutes [counts|count] as one failure of "
        "what those nodes share.": sum(group.bursts for group in large),
    }
    left_out = {
        "{n} [failure blames a node|failures blame nodes] on which no log shows a running job, and "
        "[is|are] not counted here. Ingest accounting with NodeList; `ettr quality` shows names "
        "that differ between logs.": unplaced.blame_unexposed_node,
        "{n} [failure blames|failures blame] no node and no log names the nodes of [its job|their "
        "jobs]: not counted here. Ingest accounting with NodeList.": unplaced.without_nodes,
    }
    return [
        f"A lemon belongs to a separate group of nodes that fail at least {MIN_RATIO:.0f} "
        "times as often as the ordinary nodes do on average. A fleet whose nodes are "
        "merely unequal has none.",
        "The days to decide assume a node that runs jobs all day; others take longer.",
        *([not_judged_note(n_nodes, n_failures)] if n_nodes else ()),
        *(by_number(sentence, n) for sentence, n in (counts | left_out).items() if n),
    ]


# -- How each signal is distributed over the nodes of a fleet, as the paper's figure has it -------
#
# Source:
#     Kokolis et al. (HPCA 2025): cumulative distributions of the lemon signals over 28 days.

SIGNAL_NAMES: Mapping[str, str] = {
    "excluded_by_jobs": "jobs that exclude it",
    "xid_episodes": "XID episodes",
    "tickets": "tickets",
    "outages": "outages",
    "multi_node_failures": "NODE_FAIL of several nodes",
    "single_node_failures": "NODE_FAIL of it alone",
    "single_node_failure_rate": "share of jobs on it alone",
}
"""The paper's seven, by their names in `NodeSignals`."""


@dataclass(frozen=True, slots=True)
class SignalDistribution:
    """The cumulative distribution of one signal over the nodes that ran jobs.

    Attributes:
        nodes: How many nodes have a value; of a rate, those that had a job alone.
    """

    signal: str
    nodes: int
    values: tuple[float, ...]
    shares: tuple[float, ...]


def signal_distributions(
    nodes: Iterable[NodeName], signals: Mapping[NodeName, NodeSignals]
) -> tuple[SignalDistribution, ...]:
    """Distributions of the signals that some log can show; a node without any has 0 of each."""
    known = [signals.get(node) for node in nodes]
    made = []
    for name in SIGNAL_NAMES:
        seen = [getattr(one, name) for one in known if one is not None]
        values = [float(one) for one in seen if one is not None]
        if not any(values):
            continue
        if not name.endswith("_rate"):
            values += [0.0] * (len(known) - len(seen))
        different, counts = np.unique(values, return_counts=True)
        shares = np.cumsum(counts) / len(values)
        made.append(
            SignalDistribution(name, len(values), tuple(different.tolist()), tuple(shares.tolist()))
        )
    return tuple(made)


# -- who is to blame for each failure: a weight for each node, and one for no node at all ----------
# A node that a log names has all of the weight. Within a burst over n nodes it has 1 / n of it, and
# what the nodes share has the rest. A failure that names no node is divided among the nodes of the
# attempt by the rates that the model of lemons gives them, those of today where a node was repaired
# since; where no log names its nodes, no node is to blame.


NAMED, BURST, SHARED, NOBODY, WORKLOAD = "named", "burst", "shared", "nobody", "workload"
"""Grounds of a weight: a log names the node; what the nodes of a burst share; divided; no node is
known; a user whose jobs fail far more often than those of others."""


@dataclass(frozen=True, slots=True)
class Blame:
    """A node's part of one failure; `node` None is no node of the attempt."""

    cluster: str
    attempt_id: str
    node: str | None
    weight: float
    basis: str


@dataclass(frozen=True, slots=True)
class PlacedFailure:
    """A failure, the node that it names, and the nodes of its attempt."""

    cluster: str
    attempt_id: str
    named: str | None
    nodes: tuple[str, ...]


def rates_of(fleet: Sequence[Stratum], fits: Sequence[LemonFit | None]) -> dict[NodeName, float]:
    """Failures per node-day of each node as the model has it; those of groups without one alike."""
    rates = {}
    for group, fit in zip(fleet, fits, strict=True):
        if fit is None:
            days = group.counts.exposure_node_days.sum()
            count = group.counts.named.sum() + sum(one.weight for one in group.counts.shared)
            rates.update(dict.fromkeys(_names(group), float(max(count, 0.5) / days)))
        else:
            own = fit.bulk_per_node_day * fit.mean_theta
            rates.update(zip(_names(group), own.tolist(), strict=True))
    return rates


def _names(group: Stratum) -> list[NodeName]:
    return [(group.cluster, name) for name in group.nodes]


def blame(
    failures: Iterable[PlacedFailure],
    rates: Mapping[NodeName, float],
    burst_parts: Mapping[str, float],
    workload_parts: Mapping[str, float],
) -> list[Blame]:
    """The weights of each failure, which sum to one.

    Args:
        rates: of the nodes, per node-day; nodes without one get no part where others have one.
        burst_parts: by attempt, the part of the node that a failure within a burst names.
    """
    made: list[Blame] = []
    for one in failures:
        parts = burst_parts if one.named is not None else workload_parts
        made += _blamed(one, rates, parts.get(one.attempt_id, 1.0))
    return made


def _blamed(one: PlacedFailure, rates: Mapping[NodeName, float], part: float) -> list[Blame]:
    head = (one.cluster, one.attempt_id)
    if one.named is not None:
        named = Blame(*head, one.named, part, NAMED)
        return [named] if part == 1.0 else [named, Blame(*head, None, 1.0 - part, BURST)]
    if not one.nodes:
        return [Blame(*head, None, 1.0, NOBODY)]
    own = [rates.get((one.cluster, node), 0.0) for node in one.nodes]
    total = sum(own)
    if not total:
        own, total = [1.0] * len(own), float(len(own))
    made = [
        Blame(*head, node, part * rate / total, SHARED)
        for node, rate in zip(one.nodes, own, strict=True)
    ]
    return made if part == 1.0 else [*made, Blame(*head, None, 1.0 - part, WORKLOAD)]
