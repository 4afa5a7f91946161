"""What a selection leaves of a store: its period, its fleet, and what its reader must know."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from ettr.errors import UsageError
from ettr.facts import Facts
from ettr.facts.stored import NO_GPUS, nodes_of_types
from ettr.metrics.availability import Service, clipped
from ettr.metrics.instants import Period, to_seconds
from ettr.selection import Selection
from ettr.sources.node_lists import expand_nodes
from ettr.tables.rows import SIMULATION, SITE_NOTE
from ettr.units import SECONDS_PER_DAY
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.metrics.availability import LogsRead


MOST_NAMED = 10
_PLACES = ("rack", "pod", "switch")
LEAST_MISSING = 0.01
"""Share of a period that was asked for, from which it is said that the logs lack it."""
NodeKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SelectionHead:
    """The selection as the head of a report states it; null is no restriction.

    Attributes:
        back_test: Verdict of the back-test of what was simulated: passed, failed or not validated;
            empty where nothing was simulated, or by a version that did not keep it.
    """

    since: datetime | None
    until: datetime | None
    partition: tuple[str, ...]
    account: tuple[str, ...]
    user: tuple[str, ...]
    qos: tuple[str, ...]
    cluster: tuple[str, ...]
    node: tuple[str, ...]
    gpu_type: tuple[str, ...]
    place: tuple[str, ...]
    is_everything: bool
    words: str
    notes: tuple[str, ...]
    simulated: str = ""
    back_test: str = ""
    not_validated: tuple[str, ...] = ()
    not_simulated: tuple[str, ...] = ()
    is_empty: bool = False

    @property
    def sentence(self) -> str:
        """The selection in a sentence; empty where nothing is left out."""
        return "" if self.is_everything else f"Selected: {self.words}."


class OfNames(Protocol):
    """What the moments and the names of a selection take."""

    facts: Facts
    logs_period: Period


class OfSelection(OfNames, Protocol):
    """What the head of a selection takes."""

    selection: Selection
    logs_read: LogsRead
    logs_clusters: tuple[str, ...]
    logs_fleet: Service


def selection_head(stages: OfSelection) -> SelectionHead:
    """The selection of an analysis, with what its reader must know."""
    chosen = stages.selection
    runs = _simulations(stages.facts)
    return SelectionHead(
        chosen.since,
        chosen.until,
        chosen.partition,
        chosen.account,
        chosen.user,
        chosen.qos,
        chosen.cluster,
        chosen.node,
        chosen.gpu_type,
        chosen.placed,
        chosen.is_everything,
        chosen.words,
        tuple(_notes(stages)),
        _simulated_words(stages.facts),
        ", ".join(dict.fromkeys(one["back_test"] for one in runs if one.get("back_test"))),
        _listed(runs, "not_validated"),
        _listed(runs, "not_simulated"),
        _is_empty(stages),
    )


def _simulations(facts: Facts) -> list[dict[str, Any]]:
    """The options of each simulation of a store; those of older versions have the seed only."""
    rows = facts.rows("files")
    return [json.loads(row["options"]) for row in rows if row["source"] == SIMULATION]


def _listed(runs: Sequence[dict[str, Any]], key: str) -> tuple[str, ...]:
    """What any of the simulations lists, each once."""
    return tuple(dict.fromkeys(entry for one in runs for entry in one.get(key, ())))


def head_of(heads: Sequence[SelectionHead]) -> SelectionHead | None:
    """One head for several stores under one selection; None where there is no store."""
    if not heads:
        return None
    words = " ".join(dict.fromkeys(head.simulated for head in heads if head.simulated))
    return replace(heads[0], simulated=words)


def _simulated_words(facts: Facts) -> str:
    """That a store holds simulated rows, in a sentence; empty where it holds none."""
    rows = facts.rows("files")
    names = sorted(
        f"{row['name']}, seed {json.loads(row['options']).get('seed')}"
        for row in rows
        if row["source"] == SIMULATION
    )
    if not names:
        return ""
    others = sum(row["source"] not in (SIMULATION, SITE_NOTE) for row in rows)
    mixed = " It also holds rows of other logs." if others else ""
    return f"SIMULATED, no cluster logged this: {'; '.join(names)}.{mixed}"


def is_pattern(name: str) -> bool:
    """Whether a name of a node means several: `gpu[1-8]`, `gpu0*`."""
    return any(mark in name for mark in "*?[")


def resolved(selection: Selection, logs: OfNames) -> Selection:
    """A selection with the moments and the nodes that it means in some logs.

    Raises:
        UsageError: a list of nodes cannot be understood.
    """
    if selection.counts_back:
        zones = Counter(row["timezone"] for row in logs.facts.rows("files") if row["timezone"])
        zone = ZoneInfo(zones.most_common(1)[0][0]) if zones else UTC
        selection = selection.counted_from(logs.logs_period.end, zone)
    if selection.place:
        return _in_places(selection, logs)
    if not any(map(is_pattern, selection.node)):
        return selection
    known = {
        node
        for fact in ("nodes", "node_mentions", "event_nodes")
        for (node,) in logs.facts.distinct(fact, "node")
        if node is not None
    }
    nodes: dict[str, None] = {}
    for name in selection.node:
        found = [name] if name in known or not is_pattern(name) else _matching(name, known)
        nodes.update(dict.fromkeys(found or [name]))
    return replace(selection, node=tuple(nodes))


def _in_places(selection: Selection, logs: OfNames) -> Selection:
    """The selection with the nodes of its places, of those that are named where any are."""
    rows = logs.facts.rows("nodes")
    known = {row[kind] for row in rows for kind in _PLACES} - {None}
    unknown = [name for name in selection.place if name not in known]
    if unknown:
        some = ", ".join(sorted(known)[:MOST_NAMED]) or "none (ingest Slurm's topology.conf)"
        raise UsageError(
            f"--place {unknown[0]}: no rack, pod or switch of the inventory; it knows {some}"
        )
    inside = {row["node"] for row in rows if {row[kind] for kind in _PLACES} & {*selection.place}}
    named = [name for name in selection.node if not is_pattern(name)]
    for pattern in filter(is_pattern, selection.node):
        named += _matching(pattern, inside)
    nodes = sorted(inside & {*named} if selection.node else inside)
    if not nodes:
        raise UsageError(
            f"--place {' and '.join(selection.place)}: holds no node that --node names"
        )
    return replace(selection, node=tuple(nodes), place=(), placed=selection.place)


def _matching(pattern: str, known: Set[str]) -> list[str]:
    """The nodes that a list or a pattern names: `gpu[1-8]` is a list, `gpu[1-8]*` a pattern."""
    if "*" not in pattern and "?" not in pattern:
        try:
            return [name for name in expand_nodes(pattern) if name in known]
        except ValueError as why:
            raise UsageError(f"--node {pattern!r}: is not a list of nodes: {why}") from None
    return sorted(name for name in known if fnmatchcase(name, pattern))


def selected_period(logs: Period, selection: Selection) -> Period:
    """The selected part of the time that the logs cover; a moment where they do not meet."""

    def within(moment: datetime | None, otherwise: datetime) -> datetime:
        return otherwise if moment is None else min(max(moment, logs.start), logs.end)

    start = within(selection.since, logs.start)
    return Period(start, max(start, within(selection.until, logs.end)))


def selected_fleet(logs: Service, period: Period, selection: Selection, facts: Facts) -> Service:
    """The selected nodes in their time in service within the period.

    Nodes are chosen by name, GPU type, cluster, and partition: those that the inventory gives to
    the partition, and of nodes of which it gives none those that ran a job there. A node has no
    user, account or QOS.
    """
    chosen = set(logs.spans_s)
    if selection.cluster:
        chosen = {key for key in chosen if key[0] in selection.cluster}
    if selection.node:
        chosen = {key for key in chosen if key[1] in selection.node}
    if selection.gpu_type:
        chosen &= nodes_of_types(facts, selection.gpu_type)
    if selection.partition:
        chosen &= _of_partitions(selection.partition, facts)
    first_s, last_s = to_seconds(period.start), to_seconds(period.end)
    spans = {}
    for key, (begin_s, end_s) in logs.spans_s.items():
        low_s, high_s = max(begin_s, first_s), min(end_s, last_s)
        if key in chosen and high_s > low_s:
            spans[key] = (low_s, high_s)
    gpus = {key: logs.gpus[key] for key in spans}
    away = {
        key: inside for key in spans if (inside := clipped(logs.away_s.get(key, ()), [spans[key]]))
    }
    return Service(spans, gpus, logs.is_known, logs.gpus_of_jobs & spans.keys(), away)


def _of_partitions(names: tuple[str, ...], facts: Facts) -> set[NodeKey]:
    listed = _column(facts, "partitions")
    found = {
        key
        for key, partitions in listed.items()
        if partitions and set(names) & {one.strip() for one in partitions.split(",")}
    }
    theirs = facts.under(selection=Selection(partition=names))
    worked = {(cluster, node) for cluster, node in theirs.distinct("held", "cluster", "node")}
    return found | {key for key in worked if not listed.get(key)}


def _column(facts: Facts, name: str) -> dict[NodeKey, str | None]:
    return {
        (cluster, node): value
        for cluster, node, value in facts.distinct("nodes", "cluster", "node", name)
    }


def _notes(stages: OfSelection) -> Iterator[str]:
    chosen = stages.selection
    if chosen.is_everything:
        return
    yield from _unknown_names(stages)
    logs = stages.logs_period
    if _is_outside(logs, chosen):
        yield "The logs hold nothing from that time."
    if missing := _not_covered(logs, chosen):
        yield missing
    if chosen.has_period:
        yield (
            "Hours are cut at the ends of the period. A job, a failure with all that it "
            "lost, and a run belong to the period in which they ended. All of the logs "
            "are used to judge causes."
        )
    if chosen.may_split_runs:
        yield (
            "A run counts whole if one of its attempts is selected, including its "
            "attempts of other partitions, accounts, users, QOS or nodes."
        )
    if chosen.of_nodes:
        yield (
            "Node-days are those of the selected nodes, and failures those that blame "
            "one of them; such a failure costs what its whole job lost. Hours of jobs "
            "that also held other nodes count by their share of nodes."
        )
        without = _jobs_without_nodes(stages)
        if without:
            yield by_number(
                "{n} [attempt that ran names|attempts that ran name] no nodes and [is|are] left "
                "out.",
                without,
            )
    if not stages.selection.of_jobs.keys() <= {"partition", "cluster"}:
        yield (
            "A node belongs to no user, account or QOS: figures on nodes, their outages "
            "and faults cover all jobs."
        )


def _is_outside(logs: Period, chosen: Selection) -> bool:
    return (chosen.since is not None and chosen.since > logs.end) or (
        chosen.until is not None and chosen.until <= logs.start
    )


def _is_empty(stages: OfSelection) -> bool:
    """Whether nothing is of the selection: no time, no node, or no job where jobs are named."""
    chosen = stages.selection
    if chosen.is_everything:
        return False
    if _is_outside(stages.logs_period, chosen):
        return True
    if any(not set(names) & known for _, names, known in _names_and_known(stages)):
        return True
    by_jobs = bool(chosen.of_jobs.keys() - {"cluster"})
    if not by_jobs or not stages.logs_read.jobs or stages.facts.rows("chosen_some"):
        return False
    # a run may reach into a period in which its own attempts of the selection do not
    always = replace(chosen, since=None, until=None)
    all_time = stages.facts.under(selection=always, since_us=None, until_us=None)
    return not all_time.rows("chosen_some")


def _not_covered(logs: Period, chosen: Selection) -> str:
    """That the logs cover a part of the period that was asked for; empty where they cover it."""
    asked = Period(chosen.since or logs.start, chosen.until or logs.end)
    missing_s = max(to_seconds(logs.start) - to_seconds(asked.start), 0.0)
    missing_s += max(to_seconds(asked.end) - to_seconds(logs.end), 0.0)
    missing_days = missing_s / SECONDS_PER_DAY
    if not (chosen.has_period and LEAST_MISSING * asked.days < missing_days < asked.days):
        return ""
    covered = f"{asked.days - missing_days:.3g} of {asked.days:.3g} days"
    ends = f"{logs.start:%Y-%m-%d %H:%M} to {logs.end:%Y-%m-%d %H:%M} UTC"
    return f"The logs cover {covered} asked for: {ends}."


def _jobs_without_nodes(stages: OfSelection) -> int:
    anywhere = stages.selection.without_nodes.at_any_time
    return int(stages.facts.under(selection=anywhere).row("ran_unplaced")["attempts"])


def _names_and_known(
    stages: OfSelection,
) -> Iterator[tuple[str, tuple[str, ...], set[str]]]:
    """Each filter by name that is given: its names, and those that the store has."""
    given = {**stages.selection.of_jobs}
    tables = dict.fromkeys(given, "attempts")
    if stages.selection.node:
        given["node"], tables["node"] = stages.selection.node, ""
    if stages.selection.gpu_type:
        given["gpu_type"], tables["gpu_type"] = stages.selection.gpu_type, "node_classes"
    for column, names in given.items():
        if column == "cluster":
            known = set(stages.logs_clusters)
        elif column == "node":
            known = {node for _, node in stages.logs_fleet.spans_s}
        else:
            names_of = stages.facts.distinct(tables[column], column)
            known = {name for (name,) in names_of if name is not None}
            if column == "gpu_type" and nodes_of_types(stages.facts, (NO_GPUS,)):
                known.add(NO_GPUS)
        yield column, names, known


def _unknown_names(stages: OfSelection) -> Iterator[str]:
    """Names that the store does not know: nearly always a misspelling."""
    for column, names, known in _names_and_known(stages):
        unknown = [name for name in names if name not in known]
        if unknown:
            what = column.replace("gpu_type", "GPU type").replace("qos", "QOS")
            some = ", ".join(sorted(known)[:MOST_NAMED]) or "none"
            more = f" and {len(known) - MOST_NAMED:,} more" if len(known) > MOST_NAMED else ""
            yield f"The logs name no {what} {' and no '.join(unknown)}; they name {some}{more}."


def last_day(period: Period, selection: Selection, day_s: float) -> int:
    """The last day of the period, counted from 1970; an end at midnight takes no further day."""
    end_s = to_seconds(period.end)
    if selection.until is not None and end_s == to_seconds(selection.until):
        return max(math.ceil(end_s / day_s) - 1, int(to_seconds(period.start) // day_s))
    return int(end_s // day_s)


# -- nodes of logs under other names than the scheduler's: joined, or of several perhaps -----------


@dataclass(frozen=True, slots=True)
class OtherName:
    """One node under two names."""

    in_events: str
    in_jobs: str


def other_names(facts: Facts) -> tuple[OtherName, ...]:
    """Names that could not be joined (`ettr.facts.naming`), each with the first candidate."""
    first: dict[str, str] = {}
    for row in sorted(facts.rows("unsure_aliases"), key=lambda row: tuple(row.values())):
        first.setdefault(row["node"], row["scheduler_node"])
    return tuple(OtherName(node, of) for node, of in sorted(first.items()))


def joined_names(facts: Facts) -> str | None:
    """A sentence on names taken as those of the scheduler; None where none was."""
    rows = facts.rows("node_aliases")
    if not rows:
        return None
    one = min(rows, key=lambda row: (row["cluster"], row["node"]))
    nodes = len({(row["cluster"], row["scheduler_node"]) for row in rows})
    return (
        f"Logs call {counted(nodes, 'node')} by another name than the scheduler, such as "
        f"{one['node']} for {one['scheduler_node']}: an inventory links the names, or no "
        "other node has that host name. Their rows count for the scheduler's nodes."
    )
