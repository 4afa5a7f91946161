"""Lemons of a store: its failures by node, the nodes' outages, and the model's answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.node_faults import faults_of
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
    NodeName,
    NodeSignals,
)
from ettr.metrics.exposure import NOTHING_RAN
from ettr.metrics.instants import to_seconds
from ettr.metrics.node_records import ran_node_days
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


def fleet_signals(analysis: Analysis) -> FleetSignals:
    """When each node had which signal in the selected period, and when nodes were changed."""
    tickets, repairs = _tickets(analysis)
    excluded = analysis.exclusions
    times: dict[str, _TimesOf | None] = {
        OUTAGES: _outages(analysis) if analysis.logs_read.node_states else None,
        XID_EPISODES: _xid_episodes(analysis),
        TICKETS: tickets,
        EXCLUSIONS: None if excluded is None else _independent(analysis, excluded),
    }
    return FleetSignals({name: one for name, one in times.items() if one is not None}, repairs)


def node_signals(analysis: Analysis) -> dict[NodeName, NodeSignals]:
    """The paper's signals of the nodes that have any.

    Apart from `fleet_signals`: only the list of lemons asks for them, and they need all that ran.
    """
    times_s = analysis.lemon_strata[1].times_s
    attempts, excluded = analysis.node_jobs, analysis.exclusions
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


def _inside(analysis: Analysis, time_s: float) -> bool:
    return to_seconds(analysis.period.start) <= time_s <= to_seconds(analysis.period.end)


def _outages(analysis: Analysis) -> _TimesOf:
    down: _TimesOf = defaultdict(list)
    # only the end of a period changes them: there those are cut that are still open
    whole = analysis.period.end == analysis.logs_period.end
    for one in analysis.outages if whole else analysis.outages_in(analysis.period):
        if not one.is_planned and _inside(analysis, one.start_s):
            down[one.cluster, one.node].append(one.start_s)
    return down


def _xid_episodes(analysis: Analysis) -> _TimesOf | None:
    """Episodes of XIDs that the taxonomy takes for faults; None where no log holds an XID."""
    if not _has_check(analysis, XID):
        return None
    made: _TimesOf = defaultdict(list)
    rows = analysis.facts.columns("all_episodes", "cluster", "node", "check", "first_us")
    times_s = rows["first_us"] / MICROSECONDS_PER_SECOND
    begin_s, end_s = to_seconds(analysis.period.start), to_seconds(analysis.period.end)
    inside = (rows["check"] == XID) & (begin_s <= times_s) & (times_s <= end_s)
    columns = (rows["cluster"], rows["node"], times_s)
    for cluster, node, time_s in zip(*(one[inside].tolist() for one in columns), strict=True):
        if node is not None:
            made[cluster, node].append(time_s)
    return made


def _has_check(analysis: Analysis, *checks: str) -> bool:
    """Whether any event is of one of these checks."""
    return not set(checks).isdisjoint(analysis.facts.columns("event_census")["check"].tolist())


def _tickets(analysis: Analysis) -> tuple[_TimesOf | None, _TimesOf]:
    """When tickets were opened (None: no log holds any), and when nodes were changed."""
    rows = analysis.facts.rows("tickets") if _has_check(analysis, TICKET, SERIAL) else []
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
        if _inside(analysis, time_s):
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


def exclusions_of(analysis: Analysis) -> Exclusions | None:
    """For each node who excluded it, in which job, and when; None where no log says it of any."""
    rows = analysis.facts.rows("exclusions")
    if not rows:
        return None
    names = NodeLists()
    made: Exclusions = defaultdict(list)
    for row in rows:
        time_s = row["submit_us"] / MICROSECONDS_PER_SECOND
        if _inside(analysis, time_s):
            for node in names(row["excluded_nodes"]) or ():
                made[row["cluster"], node].append((row["user"], row["job_id"], time_s))
    return made


def _votes(excluded: Exclusions | None, place: int) -> dict[NodeName, set[object]] | None:
    """Different users (0) or jobs (1) that excluded each node."""
    if excluded is None:
        return None
    return {node: {one[place] for one in some} for node, some in excluded.items()}


def _independent(analysis: Analysis, excluded: Exclusions) -> _TimesOf:
    """When each user first excluded a node, unless it had failed a job of that user before."""
    failed: dict[tuple[NodeName, str | None], float] = {}
    for row in analysis.facts.rows("failures_of_users"):
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


def lemons(analysis: Analysis) -> LemonReport:
    """Nodes that may be lemons, with a probability each."""
    return analysis.lemon_nodes


def lemons_of(
    analysis: Analysis, false_discovery: float, asked: NodeName | None = None
) -> LemonReport:
    """Nodes of a store that may be lemons: by failures of jobs, without jobs by faults of nodes."""
    if not analysis.logs_read.jobs:
        return _by_faults(analysis, false_discovery, asked)
    fleet, _ = analysis.lemon_strata
    unplaced = unplaced_failures(analysis.facts, analysis.placement)
    return lemon_report(
        *(fleet, unplaced, false_discovery),
        asked=asked,
        signals=analysis.node_signals,
        fit=analysis.lemon_fit,
    )


def _by_faults(analysis: Analysis, false_discovery: float, asked: NodeName | None) -> LemonReport:
    fleet = fault_fleet_of(analysis)
    found = lemon_report(fleet, UnplacedFailures(0, 0), false_discovery, asked=asked)
    return replace(found, notes=(*found.notes, BY_FAULTS))


def placement_of(analysis: Analysis) -> Placement:
    """Node-days of each node of a store, and the nodes of failures that blame none."""
    if analysis.selected is None:
        ran = {node: one.elapsed_s / SECONDS_PER_DAY for node, one in analysis.node_jobs.items()}
    else:
        # what ran outside of the selected period does not count
        ran = ran_node_days(analysis.facts)
    return placement(analysis.facts, ran)


def fleet_of(
    analysis: Analysis, edges_s: Sequence[float] = ()
) -> tuple[tuple[Stratum, ...], FleetSignals]:
    """The nodes of a store in groups that are comparable, and their signals."""
    signals = fleet_signals(analysis)
    groups = strata(
        analysis.facts,
        analysis.placement,
        signals,
        edges_s,
        analysis.workload_weights,
        analysis.fleet.spans_s,
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


def fault_fleet_of(analysis: Analysis, edges_s: Sequence[float] = ()) -> tuple[Stratum, ...]:
    """The nodes of a store without jobs: faults by time in service."""
    fleet = analysis.fleet
    if not fleet.is_known:
        return ()
    faults, _ = faults_of(analysis)
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
    return fault_strata(fleet.spans_s, listed, node_kinds(analysis.facts), edges_s)


# -- the table `blame` of a store: each failure divided over the nodes of its attempt --------------


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


def blame_of(analysis: Analysis) -> list[Blame]:
    """Each failure divided over the nodes of its attempt."""
    fleet, _ = analysis.lemon_strata
    parts = {
        failure.attempt_id: failure.weight
        for group in fleet
        for named in group.named
        for failure in named
    }
    found = analysis.facts.rows("failures")
    rows = sorted(found, key=lambda row: (row["end_us"], row["attempt_id"]))
    nodes = {
        attempt_id: {node for _, node in held if node is not None}
        for attempt_id, held in analysis.placement.nodes_of.items()
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
    rates = rates_of(fleet, [_fit(group, analysis) for group in fleet])
    return blame(failures, rates, parts, analysis.workload_weights)


def _fit(group: Stratum, analysis: Analysis) -> LemonFit | None:
    """The model of a group; None where the group is too small, or has no failure to divide."""
    if len(group.nodes) < MIN_NODES or not group.counts.shared:
        return None
    return analysis.lemon_fit(group.counts)
