"""What the taxonomy says about each distinct observation, as tables that the engine can join.

Fifty million events hold a few hundred distinct (check, code, severity): those are classified in
Python, once each, and everything that is no fault falls out in one join before any folding.
"""

from __future__ import annotations

import ibis
import pyarrow as pa
from ibis.expr.types import Table

from ettr.attribution.rules import FoldingRules
from ettr.taxonomy import Taxonomy, Verdict

BLAMELESS = frozenset({"oom", "user-program", "operations"})
_VERDICTS = pa.schema(
    [
        pa.field("check", pa.string()),
        pa.field("code_key", pa.string()),
        pa.field("severity", pa.string()),
        pa.field("symptom", pa.string()),
        pa.field("domain", pa.string()),
        pa.field("rank", pa.int64()),
        pa.field("fault", pa.bool_()),
        pa.field("down", pa.bool_()),
        pa.field("sticky", pa.bool_()),
        pa.field("sympathetic", pa.bool_()),
    ]
)
_REASONS = pa.schema(
    [
        pa.field("reason_key", pa.string()),
        pa.field("reason_class", pa.string()),
        pa.field("symptom", pa.string()),
        pa.field("domain", pa.string()),
        pa.field("rank", pa.int64()),
        pa.field("fault", pa.bool_()),
        pa.field("planned", pa.bool_()),
    ]
)
SLURMCTLD = "slurmctld"
WENT_DOWN = frozenset({"NODE_DOWN", "NODE_REBOOTED"})
NO_REASON = ""
LAST_RANK = 999
NO_CODE = ""  # joins never match null; this is the key of a check without codes


def is_fault(verdict: Verdict | None, rules: FoldingRules) -> bool:
    """Whether an observation with this verdict can explain a failure by itself.

    A pointer (XID 154) never can: it only announces what to do about another code.
    """
    if verdict is None or verdict.pointer:
        return False
    return rules.count_lone_sympathetic if verdict.sympathetic else verdict.is_node_fault


def verdicts(kinds: Table, taxonomy: Taxonomy, rules: FoldingRules | None = None) -> Table:
    """Faults among the distinct observations: check, code_key, severity, symptom, domain, rank, ...

    `fault` is false in rows kept for another end: `down` ones place a failure, and others show that
    a sympathetic code was not alone.

    Args:
        kinds: the table `events`, or any that holds each `check`, `code` and `severity` of it.
        taxonomy: judges them.
        rules: whether a lone sympathetic code counts.
    """
    rules = rules or FoldingRules()
    distinct = kinds.select("check", "code", "severity").distinct().to_pyarrow().to_pylist()
    judged = [
        (key, taxonomy.classify(key["check"], key["code"], key["severity"])) for key in distinct
    ]
    solo = {key["check"] for key, v in judged if v and v.sympathetic and is_fault(v, rules)}
    rows = []
    for key, v in judged:
        down = key["check"] == SLURMCTLD and key["code"] in WENT_DOWN
        fault = is_fault(v, rules)
        beside = v is not None and not v.pointer and key["check"] in solo
        if not (fault or down or beside):
            continue
        rows.append(
            {
                "check": key["check"],
                "code_key": key["code"] or NO_CODE,
                "severity": key["severity"],
                "symptom": v.symptom if v else None,
                "domain": taxonomy.domain(v.symptom if v else None),
                "rank": v.rank if v else LAST_RANK,
                "fault": fault,
                "down": down,
                "sticky": v is not None and v.sticky,
                "sympathetic": v is not None and v.sympathetic,
            }
        )
    return ibis.memtable(pa.Table.from_pylist(rows, schema=_VERDICTS))


def reasons(node_states: Table, taxonomy: Taxonomy) -> Table:
    """Distinct reasons of node states: reason_key, reason_class, symptom, fault, planned, ...

    `symptom` is null where the reason names none: the node was out and nobody says why. One that
    reads as planned work names no fault.
    """
    distinct = node_states.select("reason").distinct().to_pyarrow().column("reason").to_pylist()
    rows = []
    for reason in distinct:
        verdict = taxonomy.classify_reason(reason or NO_REASON)
        named = None if verdict.is_planned else verdict.symptom
        symptom = taxonomy.symptoms.get(named or "")
        rows.append(
            {
                "reason_key": reason or NO_REASON,
                "reason_class": verdict.reason_class,
                "symptom": symptom.slug if symptom else None,
                "domain": taxonomy.domain(named),
                "rank": symptom.rank if symptom else LAST_RANK,
                "fault": symptom is not None and symptom.slug not in BLAMELESS,
                "planned": verdict.is_planned,
            }
        )
    return ibis.memtable(pa.Table.from_pylist(rows, schema=_REASONS))
