"""States of nodes that no log ends, though they are over.

A dump that is older than others, an inventory of one day, or an event that slurmdbd never closed
leaves a node DOWN or drained for good: one outage to the end of the logs, into which every later
one falls. That it is over shows where a job began on the node long after, or where the same log
goes on with another state of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import ibis
from ibis.expr.types import Table

from ettr.metrics.instants import fetch
from ettr.metrics.outages import OUT_STATES, PLANNED_STATES
from ettr.tables.ibis_time import epoch_s
from ettr.words import counted

NOT_BEFORE_S = 600
"""A job that was on its way to a node may begin so long after the node went out."""
LONG_AFTER_S = 86_400
"""More than zones lie apart: a node that went out while its jobs began may be another clock's."""
# slurmdbd ends the event of a node with the next
_ONE_AT_A_TIME = ("slurm-events",)
_OUT = (*OUT_STATES, *PLANNED_STATES)
_KEY = ("cluster", "node", "start", "state")

_StateKey = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class UnendedStates:
    """States without an end that are over.

    Attributes:
        node_states: How many there are.
        by_jobs: Those of them that a later job on the node ends; the others a later state.
        node: Node of the one that began first.
        state: What it was in.
        since: From when, in UTC.
    """

    node_states: int
    by_jobs: int
    node: str
    state: str
    since: datetime

    @property
    def sentence(self) -> str:
        """What is wrong, what counts instead, and what to do."""
        several = self.node_states != 1
        return (
            f"{counted(self.node_states, 'state')} of nodes without an end (such as {self.node}, "
            f"{self.state} since {self.since:%Y-%m-%d %H:%M}) {'are' if several else 'is'} over, "
            "since jobs began on the node more than a day later or the log goes on with another "
            f"state of it. {'They count' if several else 'It counts'} until the first of these: "
            "the node may have been back before. Dump the states of all of the time again "
            "(`sacctmgr show event`) to know."
        )


def with_known_ends(
    node_states: Table, allocations: Table, attempts: Table
) -> tuple[Table, UnendedStates | None]:
    """The same states, those that are over with an end, and which these are; None: there is none.

    Args:
        node_states: the table `node_states`.
        allocations: the table `allocations`.
        attempts: the table `attempts`: what ran on one node names it, without allocations too.
    """
    unended = node_states.filter(node_states["end"].isnull() & node_states["state"].isin(_OUT))
    rows = fetch(unended, *_KEY, "source", "file_id").to_pylist()
    if not rows:
        return node_states, None
    by_state = _next_states(node_states, rows)
    by_job = _next_jobs(unended, allocations, attempts)
    ends = {key: min(found[key] for found in (by_state, by_job) if key in found)
            for key in by_state.keys() | by_job.keys()}  # fmt: skip
    if not ends:
        return node_states, None
    first = min(ends, key=lambda key: (key[2], key))
    known = ibis.memtable(
        {
            **{name: [key[place] for key in ends] for place, name in enumerate(_KEY)},
            "over": list(ends.values()),
        }
    )
    known = known.cast({name: node_states.schema()[name] for name in _KEY})
    joined = node_states.left_join(known, _KEY)
    over = joined["over"].cast(node_states.schema()["end"])
    closed = joined.mutate(end=joined["end"].coalesce(over)).select(*node_states.columns)
    ended = UnendedStates(
        node_states=len(ends),
        by_jobs=sum(by_job.get(key) == end for key, end in ends.items()),
        node=first[1],
        state=first[3],
        since=first[2].astimezone(UTC),
    )
    return closed, ended


def _next_states(node_states: Table, rows: list[Mapping[str, Any]]) -> dict[_StateKey, datetime]:
    """When the same log goes on with another state of the node that cannot hold with it."""
    nodes = ibis.memtable(
        {name: [row[name] for row in rows] for name in ("cluster", "node")},
        schema={"cluster": "string", "node": "string"},
    ).distinct()
    others = fetch(
        node_states.semi_join(nodes, ["cluster", "node"]),
        *("cluster", "node", "file_id", "source", "state", "start"),
    ).to_pylist()
    of_node: dict[tuple[str, str, str], list[datetime]] = defaultdict(list)
    for other in others:
        if other["source"] in _ONE_AT_A_TIME or other["state"] not in _OUT:
            of_node[other["cluster"], other["node"], other["file_id"]].append(other["start"])
    found = {}
    for row in rows:
        starts = of_node.get((row["cluster"], row["node"], row["file_id"]), ())
        later = [start for start in starts if start > row["start"]]
        if later:
            found[tuple(row[name] for name in _KEY)] = min(later)
    return found


def _next_jobs(unended: Table, allocations: Table, attempts: Table) -> dict[_StateKey, datetime]:
    """When the first job began on the node after it, where one did long after."""
    states = unended.select("cluster", "node", "state", went_out=unended["start"])
    on_one = attempts.filter(attempts["n_nodes"] == 1).mutate(node=attempts["node_list"])
    columns = ("cluster", "node", "start")
    held = ibis.union(allocations.select(*columns), on_one.select(*columns), distinct=False)
    held = held.filter(held["node"].notnull() & held["start"].notnull())
    met = states.inner_join(held, ["cluster", "node"])
    met = met.mutate(later_s=epoch_s(met["start"]) - epoch_s(met["went_out"]))
    met = met.filter(met["later_s"] > NOT_BEFORE_S)
    key = ("cluster", "node", "went_out", "state")
    spans = met.group_by(*key).aggregate(first=met["start"].min(), longest_s=met["later_s"].max())
    over = fetch(spans.filter(spans["longest_s"] > LONG_AFTER_S), *key, "first").to_pylist()
    return {tuple(row[name] for name in key): row["first"] for row in over}
