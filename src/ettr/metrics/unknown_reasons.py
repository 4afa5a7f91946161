"""Reasons of node states that the taxonomy knows nothing of, and the rows that teach it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ettr.facts import Facts
from ettr.metrics.instants import moment
from ettr.metrics.unknown_checks import literal_pattern, taxonomy_row, toml_text
from ettr.taxonomy import Taxonomy, xid_of_reason
from ettr.taxonomy.rules import lowered

LISTED_REASONS = 50
_XID = "xid"


@dataclass(frozen=True, slots=True)
class UnknownReason:
    """States of nodes whose reason fits no pattern of the taxonomy, or names an XID it lacks.

    Attributes:
        taxonomy_row: TOML for a site's taxonomy file (`--taxonomy FILE`) after which it is known;
            the site says what it is a sign of.
    """

    reason: str
    node_states: int
    nodes: int
    first: datetime
    last: datetime
    taxonomy_row: str


def unknown_reasons(facts: Facts, taxonomy: Taxonomy) -> tuple[UnknownReason, ...]:
    """Reasons that the taxonomy does not know, those of most states first.

    Such a state is an outage of the class `other`. It names no symptom and is no sign that the node
    failed the jobs on it. At most `LISTED_REASONS` are listed.
    """
    rows = facts.rows("reasons_by_node")
    texts = {row["reason"] for row in rows}
    strange = {text: lowered(text) for text in texts if not taxonomy.knows_reason(text)}
    met: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["reason"] in strange:
            met[strange[row["reason"]]].append(row)
    found = [
        UnknownReason(
            reason=plain,
            node_states=sum(row["n_states"] for row in some),
            nodes=len({(row["cluster"], row["node"]) for row in some}),
            first=moment(min(row["first_us"] for row in some)),
            last=moment(max(row["last_us"] for row in some)),
            taxonomy_row=reason_row(plain, taxonomy),
        )
        for plain, some in met.items()
    ]
    found.sort(key=lambda one: (-one.node_states, one.reason))
    return tuple(found[:LISTED_REASONS])


def reason_row(reason: str, taxonomy: Taxonomy) -> str:
    """TOML that makes the taxonomy know a reason, to be pasted into a site's file.

    It names no fault until the site says so. For an XID that the catalogue lacks it is the row of
    that XID, which also makes it known where kernel logs show it.
    """
    xid = xid_of_reason(reason)
    if xid is not None and xid not in taxonomy.xids:
        return taxonomy_row(_XID, str(xid), critical=False)
    return "\n".join(
        (
            "[[reasons]]",
            f"pattern = {toml_text(literal_pattern(reason))}  # `*` fits any text",
            'reason_class = "manual"',
            'symptom = ""  # name one if a fault; `ettr catalog` shows them',
            "planned = false  # true if it is planned work, which fails no job",
        )
    )
