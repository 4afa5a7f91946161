"""The nodes that a site should look at, what speaks against each, and what is undecided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ettr.defaults import FALSE_DISCOVERY
from ettr.lemons.claims import claim_in_turn, role_names, time_to_decide
from ettr.lemons.fleet import BlamedFailure, Stratum, UnplacedFailures, without_nodes
from ettr.lemons.model import MIN_RATIO, LemonFit, NodeCounts, SignalRatio, fit_lemons
from ettr.lemons.signals import OUTAGES, NodeName, NodeSignals
from ettr.words import by_number

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
    """

    candidates: tuple[LemonCandidate, ...]
    groups: tuple[ComparedNodes, ...]
    false_discovery: float
    min_ratio: float
    notes: tuple[str, ...]
    unplaced: UnplacedFailures
    distributions: tuple[SignalDistribution, ...]


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
        (*_notes(large, small), *_role_notes(every), *_unplaced_notes(unplaced)),
        unplaced,
        signal_distributions(
            [(group.cluster, node) for group in large for node in group.nodes], signals or {}
        ),
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
        decide = time_to_decide(fit, float(fit.posterior[at]))
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
                decide.claim_days,
                decide.clear_days,
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


def _notes(large: Sequence[Stratum], small: Sequence[Stratum]) -> list[str]:
    notes = [
        f"A lemon belongs to a separate group of nodes that fail at least {MIN_RATIO:.0f} "
        "times as often as the ordinary nodes do on average. A fleet whose nodes are "
        "merely unequal has none.",
        "The days to decide assume a node that runs jobs all day; others take longer.",
    ]
    left_out = sum(len(group.nodes) for group in small)
    if left_out:
        failed = sum(_failures_in(group) for group in small)
        notes.append(
            by_number(
                "{n} [node is|nodes are] not judged: fewer than "
                f"{MIN_NODES} comparable nodes ran jobs. "
                + by_number("{n} [failure is|failures are] theirs.", failed),
                left_out,
            )
        )
    shared = sum(len(group.counts.shared) for group in large)
    if shared:
        notes.append(
            by_number(
                "{n} [failure names|failures name] no culprit: the model shares [it|them] among "
                "the nodes of the job. slurmctld.log and health checks name more culprits.",
                shared,
            )
        )
    workload = sum(one.weight < 1.0 for group in large for one in group.counts.shared)
    if workload:
        notes.append(
            by_number(
                "{n} of them [is|are] of users whose jobs fail so far more often than those of "
                "others, by node-days: what is above the others' rate is put down to the workload.",
                workload,
            )
        )
    repaired = sum(len(group.earlier) for group in large)
    if repaired:
        notes.append(
            by_number(
                "{n} [history ends|histories end] with a repair or a new serial number: "
                "the time before does not count against the node.",
                repaired,
            )
        )
    bursts = sum(group.bursts for group in large)
    if bursts:
        notes.append(
            by_number(
                "{n} [burst|bursts] over several nodes within minutes [counts|count] as "
                "one failure of what those nodes share.",
                bursts,
            )
        )
    return notes


def _failures_in(group: Stratum) -> int:
    return sum(len(named) for named in group.named) + len(group.counts.shared)


def _unplaced_notes(unplaced: UnplacedFailures) -> list[str]:
    """What the probabilities leave out, and how to bring it in."""
    notes = []
    if unplaced.blame_unexposed_node:
        notes.append(
            by_number(
                "{n} [failure blames a node|failures blame nodes] on which no log shows a running "
                "job, and [is|are] not counted here. Ingest accounting with NodeList; `ettr "
                "quality` shows names that differ between logs.",
                unplaced.blame_unexposed_node,
            )
        )
    if unplaced.without_nodes:
        notes.append(
            by_number(
                "{n} [failure blames|failures blame] no node and no log names the nodes of [its "
                "job|their jobs]: not counted here. Ingest accounting with NodeList.",
                unplaced.without_nodes,
            )
        )
    return notes


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
