"""Signals of a store's nodes beyond the failures: what users, kernels, tickets and outages say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sized
from itertools import pairwise
from typing import Protocol

from ettr.facts import Facts
from ettr.lemons.fleet import Stratum
from ettr.lemons.model import (
    EXCLUSIONS,
    OUTAGES,
    TICKETS,
    XID_EPISODES,
    FleetSignals,
    NodeName,
    NodeSignals,
)
from ettr.metrics.exposure import NOTHING_RAN, NodeJobs
from ettr.metrics.instants import Period, to_seconds
from ettr.metrics.logs_read import LogsRead
from ettr.metrics.outages import Outage
from ettr.sources.node_lists import NodeLists
from ettr.units import MICROSECONDS_PER_SECOND

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
    rows = stages.facts.columns("fault_episodes")
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
