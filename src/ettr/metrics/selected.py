"""The rows that a selection is about: what ran, clipped at the ends of the period, and what ended.

Hours belong to the period in which they ran, to the microsecond. An attempt, with its end and all
that it lost, belongs to the period in which it ended; one that is still open to that of the end of
the logs. So the parts of a partition of the rows add up to the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import ibis
from ibis.expr.types import (
    BooleanValue,
    FloatingValue,
    IntegerScalar,
    IntegerValue,
    NumericValue,
    Table,
    TimestampValue,
)

from ettr.selection import Selection
from ettr.tables.het_jobs import PARTS_HELD_S
from ettr.tables.ibis_time import epoch_us
from ettr.tables.materialize import materialize
from ettr.units import MICROSECONDS_PER_SECOND

BELONGS, NODE_SHARE = "belongs", "node_share"
LASTING_S = ("elapsed_s", *PARTS_HELD_S.values())
"""Columns of attempts that a period cuts in proportion; of parts `with_parts_held` is exact."""
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


def selected_jobs(
    attempts: Table, allocations: Table, nodes: Table, selection: Selection, logs_end: datetime
) -> SelectedJobs:
    """The attempts of a selection and the nodes that they held.

    Args:
        attempts: all attempts.
        allocations: all allocations.
        nodes: the inventory, which knows GPU types.
        selection: which rows.
        logs_end: when an attempt that is still open is taken to end.
    """
    if selection.is_everything:
        return SelectedJobs(attempts, allocations)
    chosen, held = of_jobs(attempts, selection), allocations
    if selection.of_jobs:
        held = held.semi_join(chosen, "attempt_id")
    if selection.of_nodes:
        held = on_nodes(held, nodes, selection)
        chosen = chosen.inner_join(_shares(allocations, held), "attempt_id")
    else:
        chosen = chosen.mutate(**{NODE_SHARE: ibis.literal(1.0)})
    if not selection.has_period:
        return SelectedJobs(chosen.mutate(**{BELONGS: ibis.literal(True)}), held)
    return SelectedJobs(
        _clipped(chosen, selection, logs_end), _clipped(held, selection, logs_end).drop(BELONGS)
    )


def with_parts_held(wholes: Table, parts: Table, whole_of: Mapping[str, str]) -> Table:
    """Attempts of whole heterogeneous jobs with what their parts held of a selection.

    Parts run at times of their own and have other counts of GPUs on each node: a part of the whole
    in proportion to its time, or to its nodes, is not what they held.

    Args:
        wholes: the attempts of the selection, with whole jobs.
        parts: the same with the parts apart; attempts that are no part of a job do not count.
        whole_of: attempt of a part to that of the whole.
    """
    ran_s = parts["elapsed_s"] * node_share(parts)
    known = ibis.memtable(
        {"attempt_id": list(whole_of), "whole_id": list(whole_of.values())},
        schema={"attempt_id": "string", "whole_id": "string"},
    )
    timed = parts.mutate(ran_s=ran_s).inner_join(known, "attempt_id")
    sums = {}
    for count, name in PARTS_HELD_S.items():
        is_unknown = (timed["ran_s"] > 0) & timed[count].isnull()
        total = (timed["ran_s"] * timed[count]).sum().fill_null(0.0)
        sums[name] = ibis.cases((is_unknown.sum() > 0, ibis.null("float64")), else_=total)
    held = materialize(timed.group_by("whole_id").aggregate(**sums))
    held = held.rename({f"{name}_selected": name for name in sums})
    joined = wholes.left_join(held, wholes["attempt_id"] == held["whole_id"])
    is_whole = joined["het_job_id"].notnull()
    exact = {
        name: ibis.cases(
            # what has no part in the selection held nothing in it
            (is_whole & joined["whole_id"].isnull(), 0.0),
            # hours of attempts are those times the selected part of their nodes
            (is_whole, joined[f"{name}_selected"] / node_share(joined)),
            else_=joined[name],
        )
        for name in sums
    }
    return joined.mutate(**exact).select(*wholes.columns)


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


def _clipped(rows: Table, selection: Selection, logs_end: datetime) -> Table:
    """Attempts or allocations with the time that they ran within the period."""
    suspended = "suspended_s" in rows.columns
    rows = rows.filter(_may_touch(rows, selection))
    begin_us = epoch_us(rows["start"])
    ran_s = rows["elapsed_s"]
    if suspended:
        ran_s = ran_s + rows["suspended_s"].fill_null(0.0)
    open_us = begin_us + (ran_s * MICROSECONDS_PER_SECOND).round().cast("int64")
    timed = rows.mutate(
        begin_us=begin_us,
        finish_us=epoch_us(rows["end"]).fill_null(open_us),
        **{BELONGS: in_period(rows["end"].fill_null(_literal(logs_end)), selection)},
    )
    timed = timed.mutate(
        inside_us=ibis.greatest(
            _least_us(timed["finish_us"], selection.until)
            - _greatest_us(timed["begin_us"], selection.since),
            0,
        ).fill_null(0)
    )
    some = timed.filter(timed[BELONGS] | (timed["inside_us"] > 0))
    share = _inside_share(some)
    parts = {name: some[name] * share for name in LASTING_S if name in some.columns}
    if suspended:
        parts["suspended_s"] = some["suspended_s"] * share
    if selection.since is not None:
        # least: one that ended at the very start of the period
        parts["start"] = ibis.greatest(some["start"], _literal(selection.since))
        parts["start"] = ibis.cases(
            (some["start"].isnull(), ibis.null(_MOMENT)), else_=parts["start"]
        )
    if selection.until is not None:
        until = _literal(selection.until)
        over = some["finish_us"] > _us_of(selection.until)
        parts["end"] = ibis.cases((over.fill_null(False), until), else_=some["end"])
    return some.mutate(**parts).drop("begin_us", "finish_us", "inside_us")


def _may_touch(rows: Table, selection: Selection) -> BooleanValue:
    """Whether a row can lie in the period: what an engine tests while it reads, before all else."""
    touches: BooleanValue = ibis.literal(True)
    if selection.since is not None:
        touches &= rows["end"].isnull() | (rows["end"] >= _literal(selection.since))
    if selection.until is not None:
        until = _literal(selection.until)
        touches &= (rows["start"] < until).fill_null(True) | (rows["end"] < until).fill_null(True)
    return touches


def _inside_share(rows: Table) -> FloatingValue:
    """The part of an attempt's time that lies in the period; of a moment, all or nothing."""
    span_us = (rows["finish_us"] - rows["begin_us"]).cast("float64")
    return ibis.cases(
        ((span_us > 0).fill_null(False), rows["inside_us"].cast("float64") / span_us),
        (rows[BELONGS], 1.0),
        else_=0.0,
    )


def _us_of(moment: datetime) -> int:
    """Microseconds from 1970 to a moment with a zone."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _least_us(value: IntegerValue, until: datetime | None) -> IntegerValue:
    return value if until is None else ibis.least(value, _us_of(until))


def _greatest_us(value: IntegerValue, since: datetime | None) -> IntegerValue:
    return value if since is None else ibis.greatest(value, _us_of(since))


def _literal(moment: datetime) -> TimestampValue:
    return ibis.literal(moment, type=_MOMENT)
