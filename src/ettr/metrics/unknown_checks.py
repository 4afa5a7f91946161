"""Events that the taxonomy knows nothing of, and the rows that would make it know them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import ibis

from ettr.metrics.instants import in_utc
from ettr.taxonomy import Taxonomy, parse_xid_code
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
        check: Name of the check.
        code: Its code; `*` where none of the check's codes is known, None for a check without.
        events: How many, those that report no trouble left out.
        critical_events: How many of them the source itself calls critical.
        nodes: On how many nodes.
        first: Time of the first.
        last: Time of the last.
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


def unknown_checks(
    census: ibis.Table, node_kinds: ibis.Table, taxonomy: Taxonomy
) -> tuple[UnknownCheck, ...]:
    """Checks and codes without a rule, those with the most critical events first.

    Such events explain no failure and count as no fault. Events of severity `ok` report no trouble
    and need no rule. Of a check with some known codes each unknown code is listed, at most
    `LISTED_CODES` of them.

    Args:
        census: of the events (`ettr.metrics.event_census`).
        node_kinds: of the events (`ettr.tables.event_summaries.node_kinds`).
        taxonomy: the rules.
    """
    on_nodes, kinds = (table.filter(table["severity"] != "ok") for table in (node_kinds, census))
    pairs = kinds.select("check", "code").distinct().to_pyarrow().to_pylist()
    known: dict[str, bool] = defaultdict(bool)
    strange: dict[str, list[str | None]] = defaultdict(list)
    for pair in pairs:
        if taxonomy.knows(pair["check"], pair["code"]):
            known[pair["check"]] = True
        else:
            strange[pair["check"]].append(pair["code"])
    listed = [
        one
        for check, codes in sorted(strange.items())
        for one in _of_check(
            on_nodes.filter(on_nodes["check"] == check),
            kinds.filter(kinds["check"] == check),
            check,
            codes,
            partly_known=known[check],
        )
    ]
    return tuple(
        sorted(
            listed,
            key=lambda one: (-one.critical_events, -one.events, one.check, one.code or ""),
        )
    )


def _of_check(
    on_nodes: ibis.Table,
    kinds: ibis.Table,
    check: str,
    codes: list[str | None],
    *,
    partly_known: bool,
) -> Iterator[UnknownCheck]:
    named = [code for code in codes if code is not None]

    def keyed(table: ibis.Table) -> ibis.Table:
        """Rows of the unknown codes; as one code where none of the check's is known."""
        if not partly_known and not lowered(check).startswith(_XID):
            return table.mutate(code=ibis.literal(ANY_CODE if any(codes) else ""))
        without = table["code"].isnull() if None in codes else ibis.literal(False)
        unknown = table.filter(table["code"].isin(named).fill_null(False) | without)
        return unknown.mutate(code=unknown["code"].fill_null(""))

    for row in _counted(keyed(on_nodes), keyed(kinds))[:LISTED_CODES]:
        code = row["code"] or None
        yield UnknownCheck(
            check=check,
            code=code,
            events=int(row["events"]),
            critical_events=int(row["critical_events"]),
            nodes=int(row["nodes"]),
            first=in_utc(row["first"]),
            last=in_utc(row["last"]),
            taxonomy_row=taxonomy_row(check, code, critical=bool(row["critical_events"])),
        )


def _counted(on_nodes: ibis.Table, kinds: ibis.Table) -> list[Mapping[str, Any]]:
    """Events and nodes of each code, the most critical first."""
    # distinct rows first: distinct names within groups cost several times as much
    places = on_nodes.select("code", "cluster", "node").distinct()
    nodes = places.group_by("code").aggregate(
        lambda t: (t["cluster"] + "/" + t["node"]).count().name("nodes")
    )
    summed = kinds.group_by("code").aggregate(
        lambda t: t["events"].sum().name("events"),
        lambda t: t["events"].sum(where=t["severity"] == "critical").name("critical_events"),
        lambda t: t["first"].min().name("first"),
        lambda t: t["last"].max().name("last"),
    )
    # none where no event of a code names a node
    counts = {row["code"]: row["nodes"] for row in nodes.to_pyarrow().to_pylist()}
    rows: list[Mapping[str, Any]] = [
        {
            **row,
            "critical_events": row["critical_events"] or 0,
            "nodes": counts.get(row["code"], 0),
        }
        for row in summed.to_pyarrow().to_pylist()
    ]
    return sorted(rows, key=lambda row: (-row["critical_events"], -row["events"], row["code"]))


def taxonomy_row(check: str, code: str | None, *, critical: bool) -> str:
    """TOML that makes the taxonomy know a check and code, to be pasted into a site's file.

    What its source calls critical becomes a fault of the node, of a symptom that the site is asked
    to name; anything else becomes a warning that explains nothing. An XID that the catalogue lacks
    is no fault until the site says so.

    Args:
        check: name of the check.
        code: its code, `*` for any, None for a check without codes.
        critical: whether the source calls some of these events critical.
    """
    parsed = parse_xid_code(code or "") if lowered(check).startswith(_XID) else None
    if parsed is not None:
        return (
            f"[xid.{parsed.xid}]\n"
            'symptom = "gpu-unavailable"  # say which: docs/reference/taxonomy.md has the list\n'
            "node_fault = false  # true if a node with it must be taken out of service"
        )
    lines = [
        "[[rules]]",
        f"check = {toml_text(literal_pattern(lowered(check)))}",
        f"code = {toml_text(code if code == ANY_CODE else literal_pattern(lowered(code or '')))}",
    ]
    if critical:
        lines += [
            f'symptom = "{_FAULT_SYMPTOM}"  # say which: docs/reference/taxonomy.md has the list',
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
