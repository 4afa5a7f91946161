"""Was evidence arriving? What "no error found" may mean, node by node and day by day.

An event log is silent when all is well. So a node counts as heard on a day with any row from it, a
check that passed included, and on a day of which its kernel log or its log of checks holds any line
at all. A day on which other nodes of its cluster were heard is silent for it: well, or its log is
missing, which no log shows. Days without a row from the whole cluster are uncovered where so long a
silence has a chance of under one in ten thousand at the usual number of rows a day: then nothing
could have been found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

import ibis
import numpy as np
import pyarrow as pa
from ibis.expr.types import Table

from ettr.analysis.analysis import Analysis
from ettr.analysis.selecting import last_day
from ettr.attribution.job_history import AttemptHistory, JobHistory
from ettr.attribution.verdicts import HARDWARE_CANDIDATE
from ettr.metrics.coverage import HOLE_CHANCE
from ettr.metrics.instants import fetch, to_seconds
from ettr.tables.ibis_time import epoch_day
from ettr.tables.materialize import materialize
from ettr.units import SECONDS_PER_DAY

ERRORS, STATES = "kernel messages and health checks", "states of nodes"
LISTED_NODES = 20
_DAY_S = int(SECONDS_PER_DAY)
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class DayHeard:
    """Nodes heard on one UTC day."""

    day: str
    nodes: int


@dataclass(frozen=True, slots=True)
class KindOfEvidence:
    """One kind of logs, over the nodes and the days in service.

    Attributes:
        kind: Kernel messages and health checks, or states of nodes.
        node_days: Nodes times days; the next three add up to it.
        heard_node_days: With a row from that node.
        silent_node_days: Without one, while others of its cluster were heard.
        uncovered_node_days: Without a row from its whole cluster, for longer than chance explains.
        nodes_never_heard: Nodes without a single row.
        nodes_never_heard_first: The first of them by name.
        by_day: Nodes heard on each day.
    """

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
        heard: Each of its nodes was heard on the day of the end or the day before.
        silent: Not all of them, while others of the cluster were.
        uncovered: Kernel messages and health checks did not arrive, or its nodes are not named.
    """

    heard: int
    silent: int
    uncovered: int


@dataclass(frozen=True, slots=True)
class EvidenceCoverage:
    """Whether evidence was arriving.

    Attributes:
        kinds: Each kind of logs of nodes.
        unattributed: Failures that the scheduler names and no error explains.
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
        attempt_id: Of the attempt.
        grade: heard, silent or uncovered, as `NoErrorFound` has them.
        first_day: The UTC day before the end.
        last_day: The UTC day of the end.
        nodes: Nodes that the attempt is known to have held.
        silent_nodes: Those without a row on either day.
    """

    attempt_id: str
    grade: str
    first_day: str
    last_day: str
    nodes: int
    silent_nodes: tuple[str, ...]


def evidence_of_job(analysis: Analysis, history: JobHistory) -> tuple[AttemptEvidence, ...]:
    """Whether evidence of a job's nodes was arriving, for each attempt that ended."""
    ended = {one: _day_of(one.end) for one in history.attempts if one.end is not None}
    if not ended:
        return ()
    heard = _errors_heard(analysis, history.cluster)
    days = {day - before for day in ended.values() for before in (0, 1)}
    names = {node for attempt in ended for node in attempt.nodes}
    near = heard.filter(heard["day"].isin(sorted(days)) & heard["node"].isin(sorted(names)))
    rows = fetch(near, "node", "day").to_pylist() if names else []
    with_rows = {(row["node"], row["day"]) for row in rows}
    by_day = _rows_by_day(heard).get(history.cluster, {})
    uncovered = uncovered_days(by_day, *_period_days(analysis))
    return tuple(
        _attempt_evidence(attempt, day, with_rows, day in uncovered)
        for attempt, day in ended.items()
    )


def _attempt_evidence(
    attempt: AttemptHistory, day: int, with_rows: set[tuple[str, int]], is_uncovered: bool
) -> AttemptEvidence:
    silent = tuple(node for node in attempt.nodes if not {(node, day), (node, day - 1)} & with_rows)
    n_nodes = len(attempt.nodes)
    return AttemptEvidence(
        attempt_id=attempt.attempt_id,
        grade=_grade(n_nodes > 0, not silent, is_uncovered),
        first_day=(_EPOCH + timedelta(days=day - 1)).isoformat(),
        last_day=(_EPOCH + timedelta(days=day)).isoformat(),
        nodes=n_nodes,
        silent_nodes=silent,
    )


def _day_of(time: datetime) -> int:
    return int(to_seconds(time) // _DAY_S)


def evidence_coverage(analysis: Analysis) -> EvidenceCoverage:
    """Whether evidence of nodes was arriving, and what was not found for want of it."""
    t = analysis.tables
    heard = _errors_heard(analysis)
    if analysis.logs_read.node_logs:
        heard = materialize(heard)
    spans = analysis.fleet.spans_s
    unattributed, failed = _no_error_found(_unexplained(analysis), heard, analysis)
    return EvidenceCoverage(
        kinds=(
            _kind(ERRORS, heard, spans, analysis),
            _kind(STATES, materialize(_heard(t["node_states"], "start")), spans, analysis),
        ),
        unattributed=unattributed,
        failed=failed,
    )


def _heard(rows: Table, time: str) -> Table:
    """Distinct cluster, node and day with a row, and how many rows."""
    named = rows.filter(rows["node"].notnull())
    keyed = named.select("cluster", "node", day=epoch_day(named[time]))
    return keyed.group_by("cluster", "node", "day").aggregate(lambda t: t.count().name("n"))


def _errors_heard(analysis: Analysis, cluster: str | None = None) -> Table:
    """The same of kernel messages and health checks, of one cluster or of all.

    A day of a node's log is one row, whatever the log says: lines come in bursts.
    """
    seen, days = analysis.event_days, analysis.tables["log_days"]
    if cluster is not None:
        seen, days = (table.filter(table["cluster"] == cluster) for table in (seen, days))
    seen = seen.filter(seen["errors"] > 0).rename(n="errors")
    if not analysis.logs_read.node_logs:
        return seen
    logged = days.select("cluster", "node", day=epoch_day(days["day"]))
    logged = logged.distinct().mutate(n=ibis.literal(1, "int64"))
    both = ibis.union(seen, logged, distinct=False)
    return both.group_by("cluster", "node", "day").aggregate(n=both["n"].sum().cast("int64"))


def _rows_by_day(heard: Table) -> dict[str, dict[int, int]]:
    days: dict[str, dict[int, int]] = defaultdict(dict)
    counted = heard.group_by("cluster", "day").aggregate(rows=heard["n"].sum())
    for row in counted.to_pyarrow().to_pylist():
        days[row["cluster"]][row["day"]] = int(row["rows"])
    return days


def uncovered_days(rows: Mapping[int, int], first: int, last: int) -> set[int]:
    """Days from `first` to `last` in silences that are longer than chance explains.

    Args:
        rows: how many rows each day has; days are counted from 1970, those without rows left out.
        first: first day in question.
        last: last day in question.
    """
    if not rows:
        return set(range(first, last + 1))
    usual = float(np.median(list(rows.values())))
    order = [first - 1, *sorted(day for day in rows if first <= day <= last), last + 1]
    silent: set[int] = set()
    for before, after in pairwise(order):
        if np.exp(-usual * (after - before - 1)) < HOLE_CHANCE:
            silent.update(range(before + 1, after))
    return silent


def _period_days(analysis: Analysis) -> tuple[int, int]:
    period = analysis.period
    last = last_day(period, analysis.selection, SECONDS_PER_DAY)
    return int(to_seconds(period.start) // _DAY_S), last


def _kind(
    kind: str,
    heard: Table,
    spans: Mapping[tuple[str, str], tuple[float, float]],
    analysis: Analysis,
) -> KindOfEvidence:
    first, last = _period_days(analysis)
    by_cluster = _rows_by_day(heard)
    if analysis.selected is not None:
        heard = heard.filter((heard["day"] >= first) & (heard["day"] <= last))
    days = {
        node: (max(first, int(start // _DAY_S)), min(last, int(end // _DAY_S)))
        for node, (start, end) in spans.items()
    }
    part = {node: served for node, served in days.items() if served != (first, last)}
    heard_nodes, on_day = _of_fleet(heard, spans.keys(), part)
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
    never = sorted(node for cluster, node in spans if (cluster, node) not in heard_nodes)
    return KindOfEvidence(
        kind=kind,
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


def _of_fleet(
    heard: Table, fleet: Set[tuple[str, str]], part: Mapping[tuple[str, str], tuple[int, int]]
) -> tuple[set[tuple[str, str]], dict[int, int]]:
    """Nodes of the fleet that were heard at all, and how many of them in service on each day.

    Args:
        heard: by node and day.
        fleet: the nodes in question.
        part: first and last day in service of those that were not all of the period.
    """
    nodes = fetch(heard.select("cluster", "node").distinct()).to_pylist()
    named = {(row["cluster"], row["node"]) for row in nodes}
    never = 1, 0  # no day of a node that is not one of the fleet
    limits = dict.fromkeys(named - fleet, never) | {
        node: part[node] for node in named & part.keys()
    }
    if limits:
        keys = [
            {"cluster": cluster, "node": node, "first": first, "last": last}
            for (cluster, node), (first, last) in sorted(limits.items(), key=str)
        ]
        kinds = {
            "cluster": pa.string(),
            "node": pa.string(),
            "first": pa.int64(),
            "last": pa.int64(),
        }
        schema = pa.schema(list(kinds.items()))
        limit = ibis.memtable(pa.Table.from_pylist(keys, schema=schema))
        same = heard["cluster"].identical_to(limit["cluster"]) & (heard["node"] == limit["node"])
        outside = (heard["day"] < limit["first"]) | (heard["day"] > limit["last"])
        heard = heard.anti_join(limit, [same, outside])
    counted = heard.group_by("day").aggregate(lambda t: t.count().name("n"))
    on_day = {int(row["day"]): int(row["n"]) for row in fetch(counted).to_pylist()}
    return named & fleet, on_day


def _unexplained(analysis: Analysis) -> Table:
    """Hardware candidates in whose window no error was found."""
    ends = analysis.endings
    candidates = ends.filter(ends.kind == HARDWARE_CANDIDATE)
    return candidates.anti_join(_with_faults(analysis), "attempt_id")


def _with_faults(analysis: Analysis) -> Table:
    seen = analysis.attribution.observed
    return seen.filter(seen.fault).select("attempt_id").distinct()


def _held_by(attempts: Table, analysis: Analysis) -> Table:
    """The nodes that these of the unexplained attempts held, and the day on which each ended."""
    held = analysis.held_by_candidates
    held = held.filter(held["node"].notnull())
    if analysis.selected is None:
        # all of the unexplained: those with a fault, to be left out, are far fewer
        held = held.anti_join(_with_faults(analysis), "attempt_id")
    else:
        held = held.semi_join(attempts, "attempt_id")
    return held.select("attempt_id", "cluster", "node", day=epoch_day(held["attempt_end"]))


def _no_error_found(
    attempts: Table, heard: Table, analysis: Analysis
) -> tuple[NoErrorFound, NoErrorFound]:
    """What could have been found for the attempts that the scheduler names, and for the others."""
    days = _rows_by_day(heard)
    first, last = _period_days(analysis)
    held = materialize(_held_by(attempts, analysis))
    rows = fetch(_graded(attempts, heard, held, _unlisted(analysis))).to_pylist()
    silent = {
        name: uncovered_days(days.get(name, {}), first, last)
        for name in {row["cluster"] for row in rows}
    }
    grades: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for row in rows:
        is_uncovered = row["day"] in silent[row["cluster"]]
        grade = _grade(row["named"], row["all_heard"], is_uncovered)
        grades[0 if row["node_failed"] else 1][grade] += int(row["n"])
    unattributed, failed = (
        NoErrorFound(count["heard"], count["silent"], count["uncovered"]) for count in grades
    )
    return unattributed, failed


def _unlisted(analysis: Analysis) -> Table | None:
    """Attempts that hold no node; None where only all that was held could show them."""
    if not analysis.logs_list_every_node:
        return None
    attempts = analysis.tables["attempts"]
    is_listed = (attempts["node_list"].notnull() & (attempts["n_nodes"] > 0)).fill_null(False)
    return materialize(attempts.filter(~is_listed).select("attempt_id"))


def _graded(attempts: Table, heard: Table, nodes: Table, unlisted: Table | None) -> Table:
    """How many attempts by cluster, day of the end, and whether their nodes were named and heard.

    A node is heard with a row on the day of the end or the day before.
    """
    ended = attempts.select("attempt_id", "cluster", "node_failed", day=epoch_day(attempts["end"]))
    days, key = heard.select("cluster", "node", "day"), ["cluster", "node", "day"]
    unheard = nodes.anti_join(days, key)
    unheard = unheard.mutate(day=unheard["day"] - 1).anti_join(days, key)
    silent = materialize(unheard.select("attempt_id").distinct())
    # whichever of the two is known to be short: long lists of ids cost most here
    odd = nodes.select("attempt_id").distinct() if unlisted is None else unlisted
    graded = ended
    for ids, flag in ((odd, "odd"), (silent, "silent")):
        flagged = ids.mutate(**{flag: True})
        graded = graded.left_join(flagged, "attempt_id").drop("attempt_id_right")
    named = graded["odd"].notnull() if unlisted is None else graded["odd"].isnull()
    return (
        graded.mutate(named=named, all_heard=graded["silent"].isnull())
        .group_by("cluster", "day", "node_failed", "named", "all_heard")
        .aggregate(lambda t: t.count().name("n"))
    )


def _grade(is_named: bool, all_heard: bool, is_uncovered: bool) -> str:
    """How much it means that nothing was found, as `NoErrorFound` has it.

    `is_named`: whether any of its nodes is known; `all_heard`: whether each of them was heard.
    """
    if is_named and all_heard:
        return "heard"
    return "uncovered" if is_uncovered or not is_named else "silent"
