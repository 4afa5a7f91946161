"""How sure the cause of a failure is: rules in order, of which the first that holds decides.

docs/how-to/add-an-attribution-rule.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ibis
from ibis.expr.types import BooleanValue, StringValue, Table

from ettr.attribution.rules import Confidence


@dataclass(frozen=True, slots=True)
class ConfidenceRule:
    """One rule, as data.

    Attributes:
        confidence: Of the failures for which it is the first that holds.
        says: When it holds, in the words of docs/explanation/attribution.md.
        holds: The same of a table of failures with `end`, `node_failed` (the scheduler says that a
            node failed), `named_node` (which one, else null) and, of the leading fault, null where
            none was observed: `lead_symptom`, `lead_node`, `lead_first` (when it was first observed
            in the window) and `n_lead_nodes` (on how many of the attempt's nodes).
    """

    confidence: Confidence
    says: str
    holds: Callable[[Table], BooleanValue]


CONFIDENCE_RULES = (
    ConfidenceRule(
        Confidence.NONE,
        "nothing was seen (`unattributed`)",
        lambda found: found.lead_symptom.isnull(),
    ),
    ConfidenceRule(
        Confidence.HIGH,
        "the scheduler names the node, and the leading fault was seen on it",
        lambda found: (found.lead_node == found.named_node).fill_null(False),
    ),
    ConfidenceRule(
        Confidence.LOW,
        "the scheduler names a node, and faults were seen only on others",
        lambda found: found.named_node.notnull(),
    ),
    ConfidenceRule(
        Confidence.MEDIUM,
        "the scheduler says that some node failed, and a fault was seen on one",
        lambda found: found.node_failed,
    ),
    ConfidenceRule(
        Confidence.MEDIUM,
        "a FAILED job; the leading fault was seen before the job ended",
        lambda found: found.lead_first <= found.end,
    ),
    ConfidenceRule(
        Confidence.LOW,
        "a FAILED job; the leading fault was seen only after the end: a cause precedes its effect, "
        "though checks may be minutes late",
        lambda found: found.lead_first > found.end,
    ),
)


def confidence_of(found: Table, rules: Sequence[ConfidenceRule] = CONFIDENCE_RULES) -> StringValue:
    """The confidence of each failure.

    Args:
        found: failures with the columns that `ConfidenceRule.holds` names.
        rules: in order, at least one; a failure for which none of them holds has none.
    """
    branches = [(rule.holds(found), rule.confidence.value) for rule in rules]
    return ibis.cases(*branches, else_=Confidence.NONE.value)
