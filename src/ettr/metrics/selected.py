"""The rows that a selection is about: what ran, clipped at the ends of the period, and what ended.

Hours belong to the period in which they ran, to the microsecond. An attempt, with its end and all
that it lost, belongs to the period in which it ended; one that is still open to that of the end of
the logs. So the parts of a partition of the rows add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import ibis
from ibis.expr.types import (
    BooleanValue,
    IntegerScalar,
    NumericValue,
    Table,
    TimestampValue,
)

from ettr.facts.het_jobs import PARTS_HELD_S
from ettr.selection import Selection

LASTING_S = ("elapsed_s", *PARTS_HELD_S.values())
"""Columns of attempts that a period cuts in proportion."""
BELONGS, NODE_SHARE = "belongs", "node_share"
_MOMENT = "timestamp('UTC', 6)"


@dataclass(frozen=True, slots=True)
class SelectedJobs:
    """What ran of a selection.

    Attributes:
        attempts: Those that ran or ended in the period, with `start`, `end`, `elapsed_s` and
            `suspended_s` clipped to it. Added columns, where anything is left out: `belongs`,
            whether it ended in the period, and `node_share`, the part of its nodes that is chosen.
        allocations: The same attempts on the chosen nodes, clipped likewise.
    """

    attempts: Table
    allocations: Table


def counted(rows: Table) -> BooleanValue:
    """Whether an attempt counts as one, rather than adding hours alone."""
    return rows[BELONGS] if BELONGS in rows.columns else ibis.literal(True)


def n_counted(rows: Table) -> IntegerScalar:
    """How many attempts count as one."""
    return rows[BELONGS].sum().fill_null(0) if BELONGS in rows.columns else rows.count()


def node_share(rows: Table) -> NumericValue:
    """The part of an attempt's nodes that is selected; its hours count so far."""
    return rows[NODE_SHARE] if NODE_SHARE in rows.columns else ibis.literal(1.0)


def held_s(rows: Table, count: str) -> NumericValue:
    """Seconds of nodes or GPUs that attempts held, on any node; null where it is not known.

    Args:
        rows: attempts.
        count: `n_nodes` or `n_gpus`.
    """
    known = rows["elapsed_s"] * rows[count]
    of_parts = PARTS_HELD_S[count]
    return rows[of_parts].coalesce(known) if of_parts in rows.columns else known


def of_jobs(attempts: Table, selection: Selection) -> Table:
    """The attempts of the selected partitions, accounts, users, QOS and clusters, at any time."""
    for column, names in selection.of_jobs.items():
        attempts = attempts.filter(attempts[column].isin(names).fill_null(False))
    return attempts


def on_nodes(rows: Table, nodes: Table, selection: Selection) -> Table:
    """Rows with the columns `cluster` and `node`, of the chosen nodes alone."""
    if selection.node:
        rows = rows.filter(rows["node"].isin(selection.node).fill_null(False))
    if selection.gpu_type:
        typed = nodes.filter(nodes["gpu_type"].isin(selection.gpu_type).fill_null(False))
        rows = rows.semi_join(typed.select("cluster", "node").distinct(), ["cluster", "node"])
    return rows


def in_period(time: TimestampValue, selection: Selection) -> BooleanValue:
    """Whether a moment lies in the period: not before its start, and before its end."""
    inside: BooleanValue = ibis.literal(True)
    if selection.since is not None:
        inside &= time >= _literal(selection.since)
    if selection.until is not None:
        inside &= time < _literal(selection.until)
    return inside


def selected_ends(
    ends: Table, attempts: Table, allocations: Table, nodes: Table, selection: Selection
) -> Table:
    """The interruptions or failures of a selection, each whole in the period in which it ended.

    Of chosen nodes it is the failures that blame one of them, or that blame no single node while
    the job held no other; of interruptions, which blame none, those of jobs that ran there.

    Args:
        ends: rows of `interruptions`, `failures`, or of the endings behind them.
        attempts: all attempts.
        allocations: all allocations.
        nodes: the inventory.
        selection: which rows.
    """
    if selection.has_period:
        ends = ends.filter(in_period(ends["end"], selection))
    if selection.of_jobs:
        ends = ends.semi_join(of_jobs(attempts, selection), "attempt_id")
    if not selection.of_nodes:
        return ends
    shares = _shares(allocations, on_nodes(allocations, nodes, selection))
    if "node" not in ends.columns:
        return ends.semi_join(shares, "attempt_id")
    blamed = on_nodes(ends, nodes, selection)
    alone = shares.filter(shares[NODE_SHARE] == 1.0)
    unblamed = ends.filter(ends["node"].isnull()).semi_join(alone, "attempt_id")
    return ibis.union(*(rows.cast(ends.schema()) for rows in (blamed, unblamed)))


def _shares(allocations: Table, held: Table) -> Table:
    """By attempt, the part of its nodes that is held; attempts without any are left out."""
    whole = allocations.group_by("attempt_id").aggregate(lambda t: t.count().name("n_all"))
    some = held.group_by("attempt_id").aggregate(lambda t: t.count().name("n_some"))
    met = some.inner_join(whole, "attempt_id")
    return met.select(
        "attempt_id", **{NODE_SHARE: met["n_some"].cast("float64") / met["n_all"].cast("float64")}
    )


def _literal(moment: datetime) -> TimestampValue:
    return ibis.literal(moment, type=_MOMENT)
