"""Jobs that an administrator ended for planned work: Slurm writes NODE_FAIL for them too."""

from __future__ import annotations

import ibis
import pyarrow as pa
from ibis.expr.types import Table

from ettr.attribution.rules import LogMatching, seconds
from ettr.attribution.verdicts import NO_REASON
from ettr.tables.materialize import materialize
from ettr.taxonomy import Taxonomy

OPERATOR = "operator"
DOWN = "DOWN"
NOT_RESPONDING = "NOT_RESPONDING"


def without_planned_ends(
    ends: Table,
    seen: Table,
    allocations: Table,
    node_states: Table,
    taxonomy: Taxonomy,
    matching: LogMatching | None = None,
) -> Table:
    """The same endings, where those by planned work are an operator's act and no node's failure.

    An end is planned where a node of the attempt was set DOWN at that time, for a planned reason at
    first, none of its nodes stopped responding then, and no critical check fired on one: a node
    that went silent or showed a fault broke, whatever was written about it later.

    Args:
        ends: rows of `ettr.attribution.endings.endings`.
        seen: rows of `ettr.attribution.window.observed`.
        allocations: the table `allocations`.
        node_states: the table `node_states`.
        taxonomy: says which reasons are planned work.
        matching: how far from the end of an attempt a state may begin.
    """
    planned = _planned_reasons(node_states, taxonomy)
    if not planned.num_rows:
        return ends
    tolerance = seconds((matching or LogMatching()).tolerance_s)
    faulty = seen.filter(seen.fault).select("attempt_id").distinct()
    failed = ends.filter(ends.node_failed).anti_join(faulty, "attempt_id")
    failed = failed.select("attempt_id", ended="end")
    held = allocations.select("cluster", "node", "attempt_id")
    down = node_states.filter(node_states.state == DOWN)
    down = down.select(
        "cluster",
        "node",
        began="start",
        silent=down.flags.fill_null("").contains(NOT_RESPONDING),
        reason_key=down.reason.fill_null(NO_REASON),
    )
    met = held.join(failed, "attempt_id").join(down, ["cluster", "node"])
    met = met.filter((met.began >= met.ended - tolerance) & (met.began <= met.ended + tolerance))
    known = ibis.memtable(planned)
    # the first of them ended the job: what an administrator wrote minutes later is another outage
    met = met.group_by("attempt_id", "cluster", "node").mutate(first=met.began.min())
    is_first = met.began == met.first
    met = met.mutate(planned=met.reason_key.isin(known.reason_key) & ~met.silent & is_first)
    by_attempt = met.group_by("attempt_id").agg(planned=met.planned.any(), silent=met.silent.any())
    acted = materialize(
        by_attempt.filter(by_attempt.planned & ~by_attempt.silent).select("attempt_id", acted=True)
    )
    if not acted.count().to_pyarrow().as_py():
        # to mark none would write all ends again
        return ends
    marked = ends.left_join(acted, "attempt_id").drop("attempt_id_right")
    by_operator = marked.acted.notnull()
    return marked.mutate(
        kind=ibis.cases((by_operator, OPERATOR), else_=marked.kind),
        node_failed=marked.node_failed & ~by_operator,
        named_node=ibis.cases((by_operator, ibis.null("string")), else_=marked.named_node),
        named_event=ibis.cases((by_operator, ibis.null("string")), else_=marked.named_event),
    ).select(*ends.columns)


def _planned_reasons(node_states: Table, taxonomy: Taxonomy) -> pa.Table:
    """Distinct reasons of planned work, by which nodes were set down."""
    down = node_states.filter(node_states.state == DOWN)
    reasons = down.select("reason").distinct().to_pyarrow().column("reason").to_pylist()
    planned = sorted(
        reason for reason in reasons if reason and taxonomy.classify_reason(reason).is_planned
    )
    return pa.table({"reason_key": pa.array(planned, pa.string())})
