"""Was evidence arriving? What "no error found" may mean, node by node and day by day.

An event log is silent when all is well. So a node counts as heard on a day with any row from it, a
check that passed included, and on a day of which its kernel log or its log of checks holds any
line at all. A day on which other nodes of its cluster were heard is silent for it: well, or its
log is missing, which no log shows. A log in which no line of a GPU's driver stands, on any node of
the cluster, is deaf: it says nothing of these GPUs. Days without a row from the whole cluster are
uncovered where so long a silence has a chance of under one in ten thousand at the usual number of
rows a day: then nothing could have been found.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ettr.analysis.selecting import last_day
from ettr.attribution.job_history import AttemptHistory, JobHistory
from ettr.facts import Facts, made
from ettr.metrics.coverage import HOLE_CHANCE
from ettr.metrics.instants import to_seconds
from ettr.taxonomy.rules import KERNEL_CHECK
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.metrics.availability import LogsRead, Service
    from ettr.metrics.instants import Period
    from ettr.selection import Selection

ERRORS, STATES = "kernel messages and health checks", "states of nodes"
LISTED_NODES = 20
_AMD_TYPE = re.compile(r"\bmi\d|amd|instinct|radeon|gfx", re.IGNORECASE)
_NVIDIA_TYPE = re.compile(r"nvidia|tesla|rtx|gtx|\b(?:gb?|[abhlptv])\d", re.IGNORECASE)
_DAY_S = int(SECONDS_PER_DAY)
_EPOCH = date(1970, 1, 1)
ALWAYS = -(10**9), 10**9
"""Days before and after all logs."""


@dataclass(frozen=True, slots=True)
class DayHeard:
    """Nodes heard on one UTC day."""

    day: str
    nodes: int


@dataclass(frozen=True, slots=True)
class KindOfEvidence:
    """One kind of logs, over the nodes and the days in service."""

    kind: str
    node_days: int
    heard_node_days: int
    silent_node_days: int
    uncovered_node_days: int
    nodes_never_heard: int
    nodes_never_heard_first: tuple[str, ...]
    by_day: tuple[DayHeard, ...]


@dataclass(frozen=True, slots=True)
class NoErrorFound:
    """Attempts in whose window no error was found, by whether one could have been.

    Attributes:
        deaf: Their nodes were heard, by logs that hold no line of their GPUs' driver at any time.
    """

    heard: int
    deaf: int
    silent: int
    uncovered: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.heard + self.deaf + self.silent + self.uncovered


@dataclass(frozen=True, slots=True)
class EvidenceCoverage:
    """Whether evidence was arriving.

    Attributes:
        failed: Attempts that ended FAILED without an error found; they count as no failure, so
            that those in uncovered time make the count of failures a lower bound.
    """

    kinds: tuple[KindOfEvidence, ...]
    unattributed: NoErrorFound
    failed: NoErrorFound


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """Whether kernel messages or health checks of an attempt's nodes arrived around its end.

    Attributes:
        kinds: Whose lines the kernel logs of its cluster hold, errors or not: aer, amd,
            filesystem, mce, network, nvidia.
    """

    attempt_id: str
    grade: str
    first_day: str
    last_day: str
    nodes: int
    silent_nodes: tuple[str, ...]
    deaf_nodes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


class OfPeriod(Protocol):
    """What the days of a selection take."""

    period: Period
    selection: Selection
    logs_read: LogsRead


def evidence_of_job(
    facts: Facts, given: OfPeriod, history: JobHistory
) -> tuple[AttemptEvidence, ...]:
    """Whether evidence of a job's nodes was arriving, for each attempt that ended."""
    ended = {
        one: int(to_seconds(one.end) // _DAY_S) for one in history.attempts if one.end is not None
    }
    if not ended:
        return ()
    names = frozenset(node for attempt in ended for node in attempt.nodes)
    asked = facts.under(asked_cluster=history.cluster, asked_node_names=names)
    with_rows = {(row["node"], row["day"]) for row in asked.rows("errors_of_nodes")}
    by_day = {
        row["day"]: row["n_rows"]
        for row in asked.rows("cluster_error_days")
        if row["cluster"] == history.cluster
    }
    uncovered = uncovered_days(by_day, *_period_days(given))
    deaf_to = facts.under(understood_checks=given.logs_read.node_checks).rows("deaf_nodes")
    deaf = {row["node"] for row in deaf_to if row["cluster"] == history.cluster}
    kinds = tuple(sorted(_kinds_of_lines(facts)[history.cluster]))
    return tuple(
        replace(_attempt_evidence(attempt, day, with_rows, deaf, day in uncovered), kinds=kinds)
        for attempt, day in ended.items()
    )


def _attempt_evidence(
    attempt: AttemptHistory,
    day: int,
    with_rows: set[tuple[str, int]],
    deaf: set[str],
    is_uncovered: bool,
) -> AttemptEvidence:
    deaf_nodes = tuple(node for node in attempt.nodes if node in deaf)
    silent = tuple(node for node in attempt.nodes if not {(node, day), (node, day - 1)} & with_rows)
    n_nodes = len(attempt.nodes)
    return AttemptEvidence(
        attempt_id=attempt.attempt_id,
        grade=_grade(n_nodes > 0, not silent, bool(deaf_nodes), is_uncovered),
        first_day=(_EPOCH + timedelta(days=day - 1)).isoformat(),
        last_day=(_EPOCH + timedelta(days=day)).isoformat(),
        nodes=n_nodes,
        silent_nodes=silent,
        deaf_nodes=deaf_nodes,
    )


class OfEvidence(Protocol):
    """What `evidence_coverage` takes."""

    selected: object
    selection: Selection
    period: Period
    fleet: Service
    logs_read: LogsRead


def evidence_coverage(facts: Facts, given: OfEvidence) -> EvidenceCoverage:
    """Whether evidence of nodes was arriving, and what was not found for want of it."""
    first, last = ALWAYS if given.selected is None else _period_days(given)
    facts = facts.under(
        fleet_in_service=_fleet_in_service(given),
        first_day=first,
        last_day=last,
        understood_checks=given.logs_read.node_checks,
    )
    days, nodes = facts.rows("heard_days"), facts.rows("heard_nodes")
    seen = {
        kind: _Heard(
            [row for row in days if row["kind"] == kind],
            {(row["cluster"], row["node"]) for row in nodes if row["kind"] == kind},
        )
        for kind in ("errors", "states")
    }
    unattributed, failed = _no_error_found(facts, seen["errors"], _period_days(given))
    return EvidenceCoverage(
        kinds=(_kind(ERRORS, seen["errors"], given), _kind(STATES, seen["states"], given)),
        unattributed=unattributed,
        failed=failed,
    )


@made(
    "fleet_days",
    (
        ("cluster", "VARCHAR"),
        ("node", "VARCHAR"),
        ("first_day", "BIGINT"),
        ("last_day", "BIGINT"),
    ),
    takes=("fleet_in_service",),
)
def _fleet_days(facts: Facts) -> list[tuple[object, ...]]:
    """First and last day in service of each node; far off where that is all of the logs."""
    return [(*node, *days) for node, days in facts.given("fleet_in_service").days.items()]


@made(
    "deaf_nodes",
    (("cluster", "VARCHAR"), ("node", "VARCHAR")),
    reads=("node_classes", "nodes", "allocations", "log_days", "event_node_kinds"),
    takes=("understood_checks",),
)
def _deaf_nodes(facts: Facts) -> list[tuple[object, ...]]:
    """Nodes with GPUs of whose driver no log of their cluster holds a line.

    A health check that reports anything speaks for all GPUs of its cluster.
    """
    drivers = _kinds_of_lines(facts)
    understood = set(facts.given("understood_checks")) - {KERNEL_CHECK}
    for cluster, check, code in facts.distinct("event_node_kinds", "cluster", "check", "code"):
        if check in understood:
            drivers[cluster] |= {"nvidia"} if check in ("xid", "sxid") else {"nvidia", "amd"}
        elif check == KERNEL_CHECK and str(code).startswith("amdgpu"):
            drivers[cluster].add("amd")
    counted = {
        cluster
        for table in ("allocations", "nodes")
        for cluster, n_gpus in facts.distinct(table, "cluster", "n_gpus")
        if n_gpus
    }
    lives = facts.distinct("node_classes", "cluster", "node", "has_gpus", "gpu_type")
    return sorted(
        {
            (cluster, node)
            for cluster, node, has_gpus, kind in lives
            if has_gpus and cluster in counted and not _drivers_of(kind) & drivers[cluster]
        }
    )


def _kinds_of_lines(facts: Facts) -> dict[str, set[str]]:
    """Whose lines the kernel logs of each cluster hold."""
    found: dict[str, set[str]] = defaultdict(set)
    for cluster, kinds in facts.distinct("log_days", "cluster", "kinds"):
        found[cluster].update(filter(None, (kinds or "").split(",")))
    return found


def _drivers_of(gpu_type: str | None) -> set[str]:
    """Whose drivers may run GPUs of a type."""
    if _AMD_TYPE.search(gpu_type or ""):
        return {"amd"}
    return {"nvidia"} if _NVIDIA_TYPE.search(gpu_type or "") else {"nvidia", "amd"}


@dataclass(frozen=True, slots=True, eq=False)
class _FleetDays:
    """Days in service of each node as facts take them: distinguished from others by identity."""

    days: Mapping[tuple[str, str], tuple[int, int]]


def _fleet_in_service(given: OfEvidence) -> _FleetDays:
    """First and last day on which a row of a node counts: in service, in the selected period."""
    period = _period_days(given)
    served = _days_in_service(given)
    if given.selected is None:
        served = {node: ALWAYS if days == period else days for node, days in served.items()}
    return _FleetDays(served)


def _days_in_service(given: OfEvidence) -> dict[tuple[str, str], tuple[int, int]]:
    first, last = _period_days(given)
    return {
        node: (max(first, int(start // _DAY_S)), min(last, int(end // _DAY_S)))
        for node, (start, end) in given.fleet.spans_s.items()
    }


@dataclass(frozen=True, slots=True)
class _Heard:
    """Rows of `heard_days` of one kind of logs, and the nodes of the fleet that were heard."""

    days: Sequence[Mapping[str, Any]]
    nodes: Set[tuple[str, str]]

    @property
    def rows_by_day(self) -> dict[str, dict[int, int]]:
        """How many rows each day of each cluster has."""
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for row in self.days:
            found[row["cluster"]][row["day"]] = row["n_rows"]
        return found


def uncovered_days(rows: Mapping[int, int], first: int, last: int) -> set[int]:
    """Days from `first` to `last` in silences that are longer than chance explains."""
    if not rows:
        return set(range(first, last + 1))
    usual = float(np.median(list(rows.values())))
    order = [first - 1, *sorted(day for day in rows if first <= day <= last), last + 1]
    silent: set[int] = set()
    for before, after in pairwise(order):
        if np.exp(-usual * (after - before - 1)) < HOLE_CHANCE:
            silent.update(range(before + 1, after))
    return silent


def _period_days(given: OfPeriod) -> tuple[int, int]:
    period = given.period
    last = last_day(period, given.selection, SECONDS_PER_DAY)
    return int(to_seconds(period.start) // _DAY_S), last


def _kind(name: str, heard: _Heard, given: OfEvidence) -> KindOfEvidence:
    first, last = _period_days(given)
    by_cluster = heard.rows_by_day
    spans, days = given.fleet.spans_s, _days_in_service(given)
    on_day: dict[int, int] = defaultdict(int)
    for row in heard.days:
        if row["fleet_nodes"]:
            on_day[row["day"]] += int(row["fleet_nodes"])
    uncovered = {
        cluster: uncovered_days(by_cluster.get(cluster, {}), first, last)
        for cluster in {cluster for cluster, _ in spans}
    }
    total = sum(max(0, end - start + 1) for start, end in days.values())
    missing = sum(
        sum(start <= day <= end for day in uncovered[cluster])
        for (cluster, _), (start, end) in days.items()
    )
    heard_node_days = sum(on_day.values())
    never = sorted(node for cluster, node in spans if (cluster, node) not in heard.nodes)
    return KindOfEvidence(
        kind=name,
        node_days=total,
        heard_node_days=heard_node_days,
        silent_node_days=total - heard_node_days - missing,
        uncovered_node_days=missing,
        nodes_never_heard=len(never),
        nodes_never_heard_first=tuple(never[:LISTED_NODES]),
        by_day=tuple(
            DayHeard((_EPOCH + timedelta(days=day)).isoformat(), n)
            for day, n in sorted(on_day.items())
        ),
    )


def _no_error_found(
    facts: Facts, heard: _Heard, period_days: tuple[int, int]
) -> tuple[NoErrorFound, NoErrorFound]:
    """What could have been found for the attempts that the scheduler names, and for the others."""
    days = heard.rows_by_day
    first, last = period_days
    rows = facts.rows("ends_without_errors")
    silent = {
        name: uncovered_days(days.get(name, {}), first, last)
        for name in {row["cluster"] for row in rows}
    }
    grades: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for row in rows:
        is_uncovered = row["day"] in silent[row["cluster"]]
        grade = _grade(bool(row["named"]), not row["silent"], bool(row["deaf"]), is_uncovered)
        grades[0 if row["node_failed"] else 1][grade] += row["n_attempts"]
    unattributed, failed = (
        NoErrorFound(*(count[name] for name in ("heard", "deaf", "silent", "uncovered")))
        for count in grades
    )
    return unattributed, failed


def _grade(is_named: bool, all_heard: bool, any_deaf: bool, is_uncovered: bool) -> str:
    """How much it means that nothing was found, as `NoErrorFound` has it."""
    if is_named and all_heard:
        return "deaf" if any_deaf else "heard"
    return "uncovered" if is_uncovered or not is_named else "silent"
