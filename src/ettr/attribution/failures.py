"""Failures: interruptions that the infrastructure caused, each with its ranked causes."""

from __future__ import annotations

from collections.abc import Sequence

import ibis
from ibis.expr.types import Column, StringValue, Table

from ettr.attribution.confidence import CONFIDENCE_RULES, ConfidenceRule, confidence_of
from ettr.attribution.endings import HARDWARE_CANDIDATE
from ettr.attribution.rules import UNKNOWN_DOMAIN
from ettr.tables import FAILURES
from ettr.taxonomy import UNATTRIBUTED

_ORDER_DIGITS = 7
_KEY = r",\d{7}\|"


def failures(ends: Table, seen: Table, rules: Sequence[ConfidenceRule] = CONFIDENCE_RULES) -> Table:
    """The table `failures`: at most one row for each interruption.

    A hardware-candidate is a failure where the scheduler says that a node failed, or where a
    critical check fired on one of its nodes within the window.

    Args:
        ends: rows of `ettr.attribution.endings.endings`.
        seen: rows of `ettr.attribution.window.observed`.
        rules: of confidence, the first that holds decides.
    """
    candidates = ends.filter(ends.kind == HARDWARE_CANDIDATE)
    placed = candidates.left_join(_down(seen), "attempt_id").drop("attempt_id_right")
    placed = placed.mutate(
        named_node=ibis.coalesce(
            placed.named_node,
            ibis.cases((placed.node_failed, placed.down_node), else_=ibis.null("string")),
        )
    )
    ranked = _ranked(placed, seen)
    joined = placed.left_join(_explained(ranked), "attempt_id").drop("attempt_id_right")
    found = joined.filter(joined.node_failed | joined.lead_symptom.notnull())
    return found.mutate(
        node=ibis.coalesce(
            found.named_node,
            ibis.cases((found.n_lead_nodes == 1, found.lead_node), else_=ibis.null("string")),
        ),
        symptom=found.lead_symptom.fill_null(UNATTRIBUTED),
        domain=found.lead_domain.fill_null(UNKNOWN_DOMAIN),
        confidence=confidence_of(found, rules),
        evidence=ibis.cases(
            (
                found.evidence.notnull() & found.named_event.notnull(),
                found.evidence + "," + found.named_event,
            ),
            else_=found.evidence,
        ),
    ).select(*FAILURES.names)


def _down(seen: Table) -> Table:
    """For attempts of which just one node went down in the window: that node."""
    down = seen.filter(seen.down)
    nodes = down.group_by("attempt_id").agg(n_down=down.node.nunique(), down_node=down.node.max())
    return nodes.filter(nodes.n_down == 1).select("attempt_id", "down_node")


def _ranked(placed: Table, seen: Table) -> Table:
    """What was seen of each candidate, in order: the named node first, then rank, then time."""
    faults = seen.filter(seen.fault).drop("end")
    met = faults.join(placed.select("attempt_id", "named_node"), "attempt_id")
    met = met.mutate(elsewhere=(met.node != met.named_node).fill_null(False).ifelse(1, 0))
    order = ibis.row_number().over(
        ibis.window(
            group_by="attempt_id",
            order_by=["elsewhere", "rank", "first", "node", "episode_id"],
        )
    )
    return met.mutate(order=order.cast("int64"))


def _explained(ranked: Table) -> Table:
    """One row for each attempt: its leading episode, all symptoms and all evidence in order."""
    leads = ranked.filter(ranked.order == 0).select(
        "attempt_id",
        lead_symptom="symptom",
        lead_domain="domain",
        lead_node="node",
        lead_first="first",
    )
    symptoms = ranked.group_by("attempt_id", "symptom").agg(
        order=ranked.order.min(), n_lead_nodes=ranked.node.nunique()
    )
    causes = symptoms.group_by("attempt_id").agg(
        causes=_in_order(symptoms.order, symptoms.symptom),
        n_lead_nodes=symptoms.n_lead_nodes.max(where=symptoms.order == 0),
    )
    evidence = ranked.group_by("attempt_id").agg(
        evidence=_in_order(ranked.order, ranked.episode_id)
    )
    return leads.join(causes, "attempt_id").join(evidence, "attempt_id")


def _in_order(order: Column, text: Column) -> StringValue:
    """Texts of a group in order, comma-separated.

    Not every engine sorts inside an aggregate: the order goes in front of each text as a key, the
    array is sorted, and the keys are taken off again.
    """
    key = order.cast("string").lpad(_ORDER_DIGITS, "0")
    keyed = ibis.literal(",") + key + "|" + text.replace(",", ";")
    joined = keyed.collect().sort().join("")
    return joined.re_replace(_KEY, ",").substr(1)
