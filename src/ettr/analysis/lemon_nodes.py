"""Lemons of a store: its failures by node, the nodes' outages, and the model's answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ettr.analysis.node_faults import OfFaults, faults_of
from ettr.facts import Facts
from ettr.lemons.candidates import (
    MIN_NODES,
    Blame,
    LemonReport,
    PlacedFailure,
    blame,
    lemon_report,
    rates_of,
)
from ettr.lemons.fleet import (
    Placement,
    Stratum,
    UnplacedFailures,
    fault_strata,
    node_kinds,
    placement,
    strata,
    unplaced_failures,
    workload_parts,
)
from ettr.lemons.model import (
    EXCLUSIONS,
    OUTAGES,
    TICKETS,
    XID_EPISODES,
    FleetSignals,
    LemonFit,
    NodeCounts,
    NodeName,
    NodeSignals,
)
from ettr.metrics.availability import LogsRead, Service
from ettr.metrics.exposure import NOTHING_RAN, NodeJobs
from ettr.metrics.instants import Period, to_seconds
from ettr.metrics.node_records import ran_node_days
from ettr.metrics.outages import Outage
from ettr.selection import Selection
from ettr.sources.node_lists import NodeLists
from ettr.tables.schemas import BLAME
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

if TYPE_CHECKING:
    import pyarrow as pa


# -- signals of a store's nodes beyond the failures: what users, kernels, tickets and outages say


XID, TICKET, SERIAL = "xid", "ticket", "serial"
"""Checks of events: of GPUs, tickets, and of a node that reports its serial number as the code."""
REPAIRED = ("repaired", "replaced")
"""Codes of tickets after whose end the node counts as another one."""
_TimesOf = dict[NodeName, list[float]]
Exclusions = dict[NodeName, list[tuple[str | None, str, float]]]


class OfExclusions(Protocol):
    """What exclusions of nodes take."""

    facts: Facts
    period: Period


class OfSignals(OfExclusions, Protocol):
    """What the times of signals take."""

    logs_period: Period
    logs_read: LogsRead
    outages: tuple[Outage, ...]
    exclusions: Exclusions | None

    def outages_in(self, period: Period) -> tuple[Outage, ...]:
        """Outages of a period; open ones are cut at its end."""
        ...


class OfNodeSignals(Protocol):
    """What the signals of each node take."""

    lemon_strata: tuple[tuple[Stratum, ...], FleetSignals]
    node_jobs: Mapping[NodeName, NodeJobs]
    exclusions: Exclusions | None


def fleet_signals(stages: OfSignals) -> FleetSignals:
    """When each node had which signal in the selected period, and when nodes were changed."""
    tickets, repairs = _tickets(stages)
    excluded = stages.exclusions
    times: dict[str, _TimesOf | None] = {
        OUTAGES: _outages(stages) if stages.logs_read.node_states else None,
        XID_EPISODES: _xid_episodes(stages),
        TICKETS: tickets,
        EXCLUSIONS: None if excluded is None else _independent(stages, excluded),
    }
    return FleetSignals({name: one for name, one in times.items() if one is not None}, repairs)


def node_signals(stages: OfNodeSignals) -> dict[NodeName, NodeSignals]:
    """The paper's signals of the nodes that have any.

    Apart from `fleet_signals`: only the list of lemons asks for them, and they need all that ran.
    """
    times_s = stages.lemon_strata[1].times_s
    attempts, excluded = stages.node_jobs, stages.exclusions
    jobs = _votes(excluded, 1)
    users = _votes(excluded, 0)
    xids, tickets, down = (times_s.get(name) for name in (XID_EPISODES, TICKETS, OUTAGES))
    counted = (jobs, xids, tickets, down)
    nodes = {*attempts, *(node for one in counted for node in one or ())}
    by_node = {}
    for node in nodes:
        ran = attempts.get(node, NOTHING_RAN)
        by_node[node] = NodeSignals(
            excluded_by_jobs=_count(jobs, node),
            excluded_by_users=_count(users, node),
            xid_episodes=_count(xids, node),
            tickets=_count(tickets, node),
            outages=_count(down, node),
            multi_node_failures=ran.multi_node_failures,
            single_node_failures=ran.single_node_failures,
            single_node_attempts=ran.single_node_attempts,
            single_node_failure_rate=ran.single_node_failure_rate,
        )
    return by_node


def _count(of_nodes: Mapping[NodeName, Sized] | None, node: NodeName) -> int | None:
    return None if of_nodes is None else len(of_nodes.get(node, ()))


def _inside(stages: OfExclusions, time_s: float) -> bool:
    return to_seconds(stages.period.start) <= time_s <= to_seconds(stages.period.end)


def _outages(stages: OfSignals) -> _TimesOf:
    down: _TimesOf = defaultdict(list)
    # only the end of a period changes them: there those are cut that are still open
    whole = stages.period.end == stages.logs_period.end
    for one in stages.outages if whole else stages.outages_in(stages.period):
        if not one.is_planned and _inside(stages, one.start_s):
            down[one.cluster, one.node].append(one.start_s)
    return down


def _xid_episodes(stages: OfExclusions) -> _TimesOf | None:
    """Episodes of XIDs that the taxonomy takes for faults; None where no log holds an XID."""
    if not _has_check(stages, XID):
        return None
    made: _TimesOf = defaultdict(list)
    rows = stages.facts.columns("all_episodes", "cluster", "node", "check", "first_us")
    times_s = rows["first_us"] / MICROSECONDS_PER_SECOND
    begin_s, end_s = to_seconds(stages.period.start), to_seconds(stages.period.end)
    inside = (rows["check"] == XID) & (begin_s <= times_s) & (times_s <= end_s)
    columns = (rows["cluster"], rows["node"], times_s)
    for cluster, node, time_s in zip(*(one[inside].tolist() for one in columns), strict=True):
        if node is not None:
            made[cluster, node].append(time_s)
    return made


def _has_check(stages: OfExclusions, *checks: str) -> bool:
    """Whether any event is of one of these checks."""
    return not set(checks).isdisjoint(stages.facts.columns("event_census")["check"].tolist())


def _tickets(stages: OfExclusions) -> tuple[_TimesOf | None, _TimesOf]:
    """When tickets were opened (None: no log holds any), and when nodes were changed."""
    rows = stages.facts.rows("tickets") if _has_check(stages, TICKET, SERIAL) else []
    opened: _TimesOf = defaultdict(list)
    changed: _TimesOf = defaultdict(list)
    serials: dict[NodeName, list[tuple[float, str]]] = defaultdict(list)
    for row in rows:
        node, time_s = (row["cluster"], row["node"]), row["time_us"] / MICROSECONDS_PER_SECOND
        if row["check"] == SERIAL:
            # a part with another number leaves the node what it was
            if row["entity"] is None and row["code"] is not None:
                serials[node].append((time_s, row["code"]))
            continue
        if _inside(stages, time_s):
            opened[node].append(time_s)
        if (row["code"] or "").lower() in REPAIRED:
            over_us = row["time_us"] if row["time_end_us"] is None else row["time_end_us"]
            changed[node].append(over_us / MICROSECONDS_PER_SECOND)
    for node, reported in serials.items():
        for (_, before), (time_s, after) in pairwise(sorted(reported)):
            if after != before:
                changed[node].append(time_s)
    has_tickets = any(row["check"] == TICKET for row in rows)
    return (opened if has_tickets else None), {n: sorted(t) for n, t in changed.items()}


def exclusions_of(stages: OfExclusions) -> Exclusions | None:
    """For each node who excluded it, in which job, and when; None where no log says it of any."""
    rows = stages.facts.rows("exclusions")
    if not rows:
        return None
    names = NodeLists()
    made: Exclusions = defaultdict(list)
    for row in rows:
        time_s = row["submit_us"] / MICROSECONDS_PER_SECOND
        if _inside(stages, time_s):
            for node in names(row["excluded_nodes"]) or ():
                made[row["cluster"], node].append((row["user"], row["job_id"], time_s))
    return made


def _votes(excluded: Exclusions | None, place: int) -> dict[NodeName, set[object]] | None:
    """Different users (0) or jobs (1) that excluded each node."""
    if excluded is None:
        return None
    return {node: {one[place] for one in some} for node, some in excluded.items()}


def _independent(stages: OfExclusions, excluded: Exclusions) -> _TimesOf:
    """When each user first excluded a node, unless it had failed a job of that user before."""
    failed: dict[tuple[NodeName, str | None], float] = {}
    for row in stages.facts.rows("failures_of_users"):
        key = ((row["cluster"], row["node"]), row["user"])
        end_s = row["end_us"] / MICROSECONDS_PER_SECOND
        failed[key] = min(failed.get(key, end_s), end_s)
    made: _TimesOf = {}
    for node, votes in excluded.items():
        first: dict[str | None, float] = {}
        for user, _, time_s in votes:
            first[user] = min(first.get(user, time_s), time_s)
        made[node] = sorted(
            time_s
            for user, time_s in first.items()
            if failed.get((node, user), time_s + 1.0) > time_s
        )
    return made


# -- lemons of a store: its failures by node, the nodes' outages, and the model's answer -----------


BY_FAULTS = (
    "The logs hold no jobs: failures are faults of nodes, and node-days are those in service."
)


class OfPlacement(Protocol):
    """What the places of failures take."""

    facts: Facts
    node_jobs: Mapping[NodeName, NodeJobs]

    @property
    def selected(self) -> Selection | None:
        """The selection; None where nothing is left out."""
        ...


class OfStrata(OfSignals, Protocol):
    """What groups of comparable nodes take, in addition to the signals."""

    fleet: Service
    placement: Placement
    workload_weights: dict[str, float]


class OfRanking(OfPlacement, OfFaults, Protocol):
    """What the ranking of lemons takes, by failures of jobs or by faults of nodes."""

    logs_read: LogsRead
    placement: Placement
    lemon_strata: tuple[tuple[Stratum, ...], FleetSignals]
    node_signals: Mapping[NodeName, NodeSignals]

    def lemon_fit(self, counts: NodeCounts) -> LemonFit:
        """The model of the lemons of a group."""
        ...


class OfLemons(Protocol):
    """What `lemons` takes."""

    lemon_nodes: LemonReport


def lemons(_: Facts, given: OfLemons) -> LemonReport:
    """Nodes that may be lemons, with a probability each."""
    return given.lemon_nodes


def lemons_of(
    stages: OfRanking, false_discovery: float, asked: NodeName | None = None
) -> LemonReport:
    """Nodes of a store that may be lemons: by failures of jobs, without jobs by faults of nodes."""
    if not stages.logs_read.jobs:
        return _by_faults(stages, false_discovery, asked)
    fleet, _ = stages.lemon_strata
    unplaced = unplaced_failures(stages.facts, stages.placement)
    return lemon_report(
        *(fleet, unplaced, false_discovery),
        asked=asked,
        signals=stages.node_signals,
        fit=stages.lemon_fit,
    )


def _by_faults(analysis: OfRanking, false_discovery: float, asked: NodeName | None) -> LemonReport:
    fleet = fault_fleet_of(analysis.facts, analysis)
    found = lemon_report(fleet, UnplacedFailures(0, 0), false_discovery, asked=asked)
    return replace(found, notes=(*found.notes, BY_FAULTS))


def placement_of(stages: OfPlacement) -> Placement:
    """Node-days of each node of a store, and the nodes of failures that blame none."""
    if stages.selected is None:
        ran = {node: one.elapsed_s / SECONDS_PER_DAY for node, one in stages.node_jobs.items()}
    else:
        # what ran outside of the selected period does not count
        ran = ran_node_days(stages.facts)
    return placement(stages.facts, ran)


def fleet_of(
    stages: OfStrata, edges_s: Sequence[float] = ()
) -> tuple[tuple[Stratum, ...], FleetSignals]:
    """The nodes of a store in groups that are comparable, and their signals."""
    signals = fleet_signals(stages)
    groups = strata(
        stages.facts,
        stages.placement,
        signals,
        edges_s,
        stages.workload_weights,
        stages.fleet.spans_s,
    )
    return groups, signals


def workload_weights(facts: Facts) -> dict[str, float]:
    """Part of each failure without a culprit that is put down to its nodes, not to its workload.

    Of all of the logs: whose jobs fail far more often than those of others no selection can show.
    """
    failed = facts.rows("unblamed_failures")
    if not failed:
        return {}
    days_of: dict[str, dict[str, float]] = defaultdict(dict)
    held = [row for row in facts.rows("hours_of_users") if row["user"] is not None]
    for row in sorted(held, key=lambda row: (row["cluster"], row["user"])):
        days_of[row["cluster"]][row["user"]] = row["held_s"] / SECONDS_PER_DAY
    counts = Counter((row["cluster"], row["user"]) for row in failed)
    part: dict[tuple[str, str | None], float] = {}
    for cluster, of_user in days_of.items():
        parts = workload_parts(
            np.array([counts[cluster, user] for user in of_user], dtype=np.float64),
            np.array(list(of_user.values())),
        )
        part.update(
            {(cluster, user): one for user, one in zip(of_user, parts.tolist(), strict=True)}
        )
    return {row["attempt_id"]: part.get((row["cluster"], row["user"]), 1.0) for row in failed}


def fault_fleet_of(
    facts: Facts, given: OfFaults, edges_s: Sequence[float] = ()
) -> tuple[Stratum, ...]:
    """The nodes of a store without jobs: faults by time in service."""
    fleet = given.fleet
    if not fleet.is_known:
        return ()
    faults, _ = faults_of(facts, given)
    listed = [
        ((cluster, node), start_s, category)
        for (cluster, node), start_s, category in zip(
            (faults.nodes[place] for place in faults.node.tolist()),
            faults.start_s.tolist(),
            faults.category.tolist(),
            strict=True,
        )
        if node is not None
    ]
    return fault_strata(fleet.spans_s, listed, node_kinds(facts), edges_s)


# -- the table `blame` of a store: each failure divided over the nodes of its attempt --------------


class OfBlame(Protocol):
    """What blame takes."""

    facts: Facts
    lemon_strata: tuple[tuple[Stratum, ...], FleetSignals]
    placement: Placement
    workload_weights: dict[str, float]

    def lemon_fit(self, counts: NodeCounts) -> LemonFit:
        """The model of the lemons of a group."""
        ...


def summed(weights: Iterable[Blame]) -> dict[NodeName, float]:
    """The weights of each node; where every culprit is named, its failures."""
    made: dict[NodeName, float] = defaultdict(float)
    for one in weights:
        if one.node is not None:
            made[one.cluster, one.node] += one.weight
    return dict(made)


def placed(weights: Iterable[Blame], attempts: Container[str]) -> dict[NodeName, float]:
    """Failures by the node that they happened on, whoever is to blame for them.

    What a burst or a workload is to blame for happened on nodes too: the weights of a failure on
    its nodes are taken to sum to one.
    """
    kept = [one for one in weights if one.node is not None and one.attempt_id in attempts]
    total: dict[str, float] = defaultdict(float)
    for one in kept:
        total[one.attempt_id] += one.weight
    return summed(replace(one, weight=one.weight / total[one.attempt_id]) for one in kept)


def blame_table(made: Iterable[Blame]) -> pa.Table:
    """The table `blame`."""
    import pyarrow as pa

    made = list(made)
    columns = {name: [getattr(one, name) for one in made] for name in BLAME.names}
    return BLAME.check(pa.table(columns, schema=BLAME.arrow_schema))


def blame_of(stages: OfBlame) -> list[Blame]:
    """Each failure divided over the nodes of its attempt."""
    fleet, _ = stages.lemon_strata
    parts = {
        failure.attempt_id: failure.weight
        for group in fleet
        for named in group.named
        for failure in named
    }
    found = stages.facts.rows("failures")
    rows = sorted(found, key=lambda row: (row["end_us"], row["attempt_id"]))
    nodes = {
        attempt_id: {node for _, node in held if node is not None}
        for attempt_id, held in stages.placement.nodes_of.items()
    }
    failures = (
        PlacedFailure(
            row["cluster"],
            row["attempt_id"],
            row["node"],
            tuple(sorted(nodes.get(row["attempt_id"], ()))),
        )
        for row in rows
    )
    rates = rates_of(fleet, [_fit(group, stages) for group in fleet])
    return blame(failures, rates, parts, stages.workload_weights)


def _fit(group: Stratum, stages: OfBlame) -> LemonFit | None:
    """The model of a group; None where the group is too small, or has no failure to divide."""
    if len(group.nodes) < MIN_NODES or not group.counts.shared:
        return None
    return stages.lemon_fit(group.counts)
