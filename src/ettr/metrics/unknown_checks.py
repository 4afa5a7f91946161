"""Events and reasons that the taxonomy does not know, and the rows that would add them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from ettr.facts import Facts
from ettr.metrics.instants import moment
from ettr.taxonomy import Taxonomy, parse_xid_code, xid_of_reason
from ettr.taxonomy.rules import lowered

ANY_CODE = "*"
# No check's name is longer; what is longer is damage, or hostile, and is not printed whole.
LONGEST_NAME = 120
LISTED_CODES = 50
_XID = "xid"
_FAULT_SYMPTOM = "node-hardware"


@dataclass(frozen=True, slots=True)
class UnknownCheck:
    """Events of one check and code of which no rule of the taxonomy speaks.

    Attributes:
        code: Its code; `*` where none of the check's codes is known, None for a check without.
        taxonomy_row: TOML for a site's taxonomy file (`--taxonomy FILE`) after which they are
            known; the site says what they are a sign of.
    """

    check: str
    code: str | None
    events: int
    critical_events: int
    nodes: int
    first: datetime
    last: datetime
    taxonomy_row: str


def unknown_checks(facts: Facts, taxonomy: Taxonomy) -> tuple[UnknownCheck, ...]:
    """Checks and codes without a rule, those with the most critical events first.

    Such events explain no failure and count as no fault. Events of severity `ok` report no trouble
    and need no rule. Of a check with some known codes each unknown code is listed, at most
    `LISTED_CODES` of them.
    """
    kinds = [row for row in facts.rows("event_census") if row["severity"] not in (None, "ok")]
    pairs = {(row["check"], row["code"]) for row in kinds}
    strange = {pair for pair in pairs if not taxonomy.knows(*pair)}
    if not strange:
        return ()
    partly_known = {check for check, _ in pairs - strange}
    # of a check of which nothing is known all codes are one
    has_code = {check for check, code in strange if code}
    named: dict[tuple[str, str | None], str | None] = {
        (check, code): code or None
        if check in partly_known or lowered(check).startswith(_XID)
        else (ANY_CODE if check in has_code else None)
        for check, code in strange
    }
    listed: list[UnknownCheck] = []
    for check, some in groupby(_counted(facts, kinds, named), key=lambda row: row[0]):
        listed += [
            UnknownCheck(
                check,
                code,
                events,
                critical,
                nodes,
                moment(first_us),
                moment(last_us),
                taxonomy_row(check, code, critical=bool(critical)),
            )
            for _, code, events, critical, nodes, first_us, last_us in [*some][:LISTED_CODES]
        ]
    listed.sort(key=lambda one: (-one.critical_events, -one.events, one.check, one.code or ""))
    return tuple(listed)


_Counted = tuple[str, str | None, int, int, int, int, int]


def _counted(
    facts: Facts,
    kinds: Sequence[Mapping[str, Any]],
    named: Mapping[tuple[str, str | None], str | None],
) -> list[_Counted]:
    """Check, code, events, critical ones, nodes, first and last; of a check the worst first."""
    on_nodes: dict[tuple[str, str | None], set[tuple[str, str]]] = defaultdict(set)
    seen = facts.columns("event_node_kinds")
    of_kind = (seen[name].tolist() for name in ("check", "code", "severity", "cluster", "node"))
    for check, code, severity, cluster, node in zip(*of_kind, strict=True):
        if (check, code) in named and severity not in (None, "ok"):
            on_nodes[check, named[check, code]].add((cluster, node))
    groups: dict[tuple[str, str | None], list[Mapping[str, Any]]] = defaultdict(list)
    for row in kinds:
        pair = row["check"], row["code"]
        if pair in named:
            groups[row["check"], named[pair]].append(row)
    rows = [
        (
            *key,
            sum(row["events"] for row in some),
            sum(row["events"] for row in some if row["severity"] == "critical"),
            len(on_nodes[key]),
            min(row["first_us"] for row in some),
            max(row["last_us"] for row in some),
        )
        for key, some in groups.items()
    ]
    return sorted(rows, key=lambda row: (row[0], -row[3], -row[2], row[1] or ""))


def taxonomy_row(check: str, code: str | None, *, critical: bool) -> str:
    """TOML that makes the taxonomy know a check and code, to be pasted into a site's file.

    What its source calls critical becomes a fault of the node, of a symptom that the site is asked
    to name; anything else becomes a warning that explains nothing. An XID that the catalogue lacks
    is no fault until the site says so.
    """
    parsed = parse_xid_code(code or "") if lowered(check).startswith(_XID) else None
    if parsed is not None:
        return (
            f"[xid.{parsed.xid}]\n"
            'symptom = "gpu-unavailable"  # say which; `ettr catalog` shows them\n'
            "node_fault = false  # true if a node with it must be taken out of service"
        )
    lines = [
        "[[rules]]",
        f"check = {toml_text(literal_pattern(lowered(check)))}",
        f"code = {toml_text(code if code == ANY_CODE else literal_pattern(lowered(code or '')))}",
    ]
    if critical:
        lines += [
            f'symptom = "{_FAULT_SYMPTOM}"  # say which; `ettr catalog` shows them',
            "node_fault = true  # what the source calls critical; false if jobs survive it",
        ]
    else:
        lines.append('symptom = ""  # a sign of nothing; name a symptom if it is one')
    lines += ['severity = "warning"  # where the source states none', "fixed = false"]
    return "\n".join(lines)


def literal_pattern(text: str) -> str:
    """A pattern that fits this text alone; of a very long one, all texts that begin like it."""
    shown = text[:LONGEST_NAME]
    pattern = "".join(f"[{char}]" if char in "*?[" else char for char in shown)
    return pattern if shown == text else pattern + "*"


def toml_text(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# -- Reasons of node states that the taxonomy knows nothing of, and the rows that teach it --------

LISTED_REASONS = 50


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
