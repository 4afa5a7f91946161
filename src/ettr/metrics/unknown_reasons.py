"""Reasons of node states that the taxonomy knows nothing of, and the rows that teach it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import ibis

from ettr.metrics.instants import in_utc
from ettr.metrics.unknown_checks import literal_pattern, taxonomy_row, toml_text
from ettr.taxonomy import Taxonomy, xid_of_reason
from ettr.taxonomy.rules import lowered

LISTED_REASONS = 50
_XID = "xid"


@dataclass(frozen=True, slots=True)
class UnknownReason:
    """States of nodes whose reason fits no pattern of the taxonomy, or names an XID it lacks.

    Attributes:
        reason: In lower case with single spaces, as patterns see it.
        node_states: How many states of nodes give it.
        nodes: On how many nodes.
        first: Start of the first.
        last: Start of the last.
        taxonomy_row: TOML for a site's taxonomy file (`--taxonomy FILE`) after which it is known;
            the site says what it is a sign of.
    """

    reason: str
    node_states: int
    nodes: int
    first: datetime
    last: datetime
    taxonomy_row: str


def unknown_reasons(node_states: ibis.Table, taxonomy: Taxonomy) -> tuple[UnknownReason, ...]:
    """Reasons that the taxonomy does not know, those of most states first.

    Such a state is an outage of the class `other`. It names no symptom and is no sign that the node
    failed the jobs on it. At most `LISTED_REASONS` are listed.

    Args:
        node_states: the table `node_states`.
        taxonomy: the patterns and the XID catalogue.
    """
    given = node_states.filter(node_states.reason.notnull())
    texts = given.select("reason").distinct().to_pyarrow().column("reason").to_pylist()
    strange = {text: lowered(text) for text in texts if not taxonomy.knows_reason(text)}
    if not strange:
        return ()
    plain = ibis.memtable({"reason": list(strange), "plain": list(strange.values())})
    met = given.join(plain, "reason")
    rows = (
        met.group_by("plain")
        .aggregate(
            node_states=met.count(),
            nodes=(met.cluster + "/" + met.node).nunique(),
            first=met.start.min(),
            last=met.start.max(),
        )
        .to_pyarrow()
        .to_pylist()
    )
    rows.sort(key=lambda row: (-row["node_states"], row["plain"]))
    return tuple(
        UnknownReason(
            reason=row["plain"],
            node_states=int(row["node_states"]),
            nodes=int(row["nodes"]),
            first=in_utc(row["first"]),
            last=in_utc(row["last"]),
            taxonomy_row=reason_row(row["plain"], taxonomy),
        )
        for row in rows[:LISTED_REASONS]
    )


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
            'symptom = ""  # name one if a fault: docs/reference/taxonomy.md has the list',
            "planned = false  # true if it is planned work, which fails no job",
        )
    )
