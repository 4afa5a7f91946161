"""The taxonomy as one object: everything that turns raw words into symptoms, with its reasons.

`load_taxonomy` reads it from the package's data. Classification needs only check, code and
severity, so that a stage can classify the distinct triples and join them back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ettr.errors import UsageError
from ettr.taxonomy.rules import (
    REASON_CATALOGUE,
    SEVERITIES,
    XID_CATALOGUE,
    KernelForm,
    ReasonRule,
    ReasonVerdict,
    Rule,
    Symptom,
    lowered,
)
from ettr.taxonomy.slurm import JobState
from ettr.taxonomy.xid import CONFLICT_VENDORS, VENDORS, Role, Xid, XidCode, parse_xid_code

# linear: one word, a device and a few characters of limited length, at most four digits
_XID_IN_REASON = re.compile(
    r"\bxid(?: errors?| code)?[^0-9a-z]{0,3}(?:pci:[0-9a-f:.]{1,20}[^0-9a-z]{1,4})?(\d{1,4})\b"
)
NO_REASONS = frozenset({"", "none", "(null)", "n/a"})
# class of reasons that people write in their own words
_BY_HAND = "manual"
_SEVERITY_RANK = {"critical": 0, "warning": 200, "info": 400}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an observation says about its node.

    `rank` orders observations by how strong a sign each is that the node must go: the lowest is the
    strongest, and every critical one comes before every warning. `sympathetic` follows from another
    fault, `pointer` only points at one (XID 154); neither is a cause. `sticky` stays until somebody
    acts.
    """

    symptom: str
    severity: str
    is_node_fault: bool
    sticky: bool
    sympathetic: bool
    pointer: bool
    rank: int
    why: str


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """Why things fail: symptoms, XID codes, states, rules and reasons, and whom to believe.

    `changed` lists in words what a site's file has changed, `site_kernel` its kernel messages.
    """

    symptoms: Mapping[str, Symptom]
    xids: Mapping[int, Xid]
    subcodes: Mapping[tuple[int, str], str]
    states: Mapping[str, JobState]
    rules: tuple[Rule, ...]
    reasons: tuple[ReasonRule, ...]
    believe: str = "nvidia"
    changed: tuple[str, ...] = ()
    site_kernel: tuple[KernelForm, ...] = ()
    _cache: dict[tuple[str, str | None, str], Verdict | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def classify(self, check: str, code: str | None, severity: str) -> Verdict | None:
        """The verdict on an observation, or None where it is no sign of any cause.

        Args:
            check: what observed it, as in the `events` table.
        """
        key = (check, code, severity)
        if key not in self._cache:
            self._cache[key] = self._classify(check, code, severity)
        return self._cache[key]

    def knows(self, check: str, code: str | None) -> bool:
        """Whether a rule speaks of this check and code, be it to say that it is no cause."""
        rule = self._rule(check, code)
        if rule is None or rule.symptom != XID_CATALOGUE:
            return rule is not None
        parsed = parse_xid_code(code or "")
        return parsed is not None and parsed.xid in self.xids

    def classify_reason(self, text: str) -> ReasonVerdict:
        """The class of a reason for draining or downing a node; `other` where no pattern fits."""
        plain = lowered(text)
        if plain in NO_REASONS:
            return ReasonVerdict("none", None, False, "no reason given")
        rule = next((rule for rule in self.reasons if rule.fits(plain)), None)
        if rule is not None and rule.symptom is not None and not rule.planned:
            return ReasonVerdict(rule.reason_class, rule.symptom, rule.planned, rule.source)
        named = _XID_IN_REASON.search(plain)
        xid = self._classify_xid(named[1], "unknown") if named else None
        if named is not None and xid is not None and xid.is_node_fault:
            reason_class = _BY_HAND if rule is None or rule.planned else rule.reason_class
            return ReasonVerdict(reason_class, xid.symptom, False, f"XID {named[1]} in the text")
        if rule is not None:
            return ReasonVerdict(rule.reason_class, rule.symptom, rule.planned, rule.source)
        return ReasonVerdict("other", None, False, "no pattern of the catalogue fits")

    def knows_reason(self, text: str) -> bool:
        """Whether something speaks of this reason: a pattern or, for an XID in it, the catalogue.

        A pattern that names no fault says nothing of an XID that the catalogue lacks.
        """
        plain = lowered(text)
        if plain in NO_REASONS:
            return True
        rule = next((rule for rule in self.reasons if rule.fits(plain)), None)
        named = xid_of_reason(text)
        if named is None or (rule is not None and rule.symptom is not None and not rule.planned):
            return rule is not None
        return named in self.xids

    def domain(self, symptom: str | None) -> str:
        """The domain string of a symptom's slug; `unknown` for none or one not in the taxonomy."""
        known = self.symptoms.get(symptom or "")
        return known.domain if known else "unknown"

    def _rule(self, check: str, code: str | None) -> Rule | None:
        plain_check = lowered(check)
        plain_code = lowered(code) if code else None
        return next((rule for rule in self.rules if rule.fits(plain_check, plain_code)), None)

    def _classify(self, check: str, code: str | None, severity: str) -> Verdict | None:
        rule = self._rule(check, code)
        if severity == "ok" or rule is None or rule.symptom is None:
            return None
        if rule.symptom == XID_CATALOGUE:
            return self._classify_xid(code or "", severity)
        if rule.symptom == REASON_CATALOGUE:
            return self._classify_reason_code(check, code or "", severity)
        given = severity in SEVERITIES and not rule.fixed
        level = severity if given else rule.severity
        return self._verdict(
            rule.symptom,
            level,
            node_fault=rule.node_fault and level == "critical",
            rank=rule.rank,
            why=f"{rule.source}: check {check}" + (f", code {code}" if code else ""),
        )

    def _classify_xid(self, code: str, severity: str) -> Verdict | None:
        parsed = parse_xid_code(code)
        xid = self.xids.get(parsed.xid) if parsed else None
        if parsed is None or xid is None or xid.symptom is None or xid.role is Role.INFORMATIONAL:
            return None
        believed = xid.believed(self.believe)
        fault = bool(believed.node_fault) if xid.node_fault is None else xid.node_fault
        authority = "the site's file" if xid.node_fault is not None else believed.source
        if parsed.unit or parsed.severity:
            fault = fault and (parsed.severity or severity) not in {"nonfatal", "warning"}
        verdict = "yes" if fault else "no"
        why = f"XID {xid.code} ({xid.description}); node fault: {verdict}, {authority}"
        if xid.node_fault is None and believed.vendor != self.believe:
            why += f" ({self.believe} is silent)"
        if parsed.unit or parsed.severity:
            why += self._subcode_words(parsed)
        if xid.role is not Role.CAUSE:
            return self._verdict(
                xid.symptom,
                "info",
                why=f"{why}; {xid.role.value}, no cause of its own",
                sympathetic=xid.role is Role.SYMPATHETIC,
                pointer=xid.role is Role.POINTER,
                sticky=xid.sticky,
            )
        return self._verdict(
            xid.symptom,
            "critical" if fault else "warning",
            node_fault=fault,
            sticky=xid.sticky,
            why=why,
        )

    def _subcode_words(self, code: XidCode) -> str:
        meaning = self.subcodes.get((code.xid, code.unit or ""), "")
        parts = (code.unit, meaning, code.severity)
        return "; " + ", ".join(part for part in parts if part)

    def _classify_reason_code(self, check: str, code: str, severity: str) -> Verdict | None:
        reason_class, _, symptom = code.partition(":")
        rows = [rule for rule in self.reasons if rule.reason_class == reason_class]
        if rows and symptom in self.symptoms:
            rule = next((rule for rule in rows if rule.symptom == symptom), rows[0])
            verdict = ReasonVerdict(reason_class, symptom, rule.planned, rule.source)
        elif rows and not symptom:
            shared = {rule.symptom for rule in rows}
            only = shared.pop() if len(shared) == 1 else None
            verdict = ReasonVerdict(reason_class, only, rows[0].planned, rows[0].source)
        else:
            verdict = self.classify_reason(code)
        if verdict.symptom is None:
            return None
        level = "info" if verdict.is_planned else severity if severity in SEVERITIES else "critical"
        row = self.symptoms[verdict.symptom]
        fault = level == "critical" and (row.hardware or row.system_software)
        why = f"{check} with reason class {verdict.reason_class}: {verdict.source}"
        return self._verdict(verdict.symptom, level, node_fault=fault, why=why)

    def _verdict(
        self,
        symptom: str,
        severity: str,
        *,
        why: str,
        node_fault: bool = False,
        sticky: bool = False,
        sympathetic: bool = False,
        pointer: bool = False,
        rank: int | None = None,
    ) -> Verdict:
        base = self.symptoms[symptom].rank if rank is None else rank
        return Verdict(
            symptom=symptom,
            severity=severity,
            is_node_fault=node_fault,
            sticky=sticky,
            sympathetic=sympathetic,
            pointer=pointer,
            rank=base + _SEVERITY_RANK[severity],
            why=why,
        )

    def catalog_rows(
        self, *, code: int | None = None, conflicts_only: bool = False
    ) -> list[dict[str, Any]]:
        """One row per XID for `ettr catalog`: symptom, verdict of each party, conflict."""
        rows = []
        for xid in self.xids.values():
            conflict = bool(xid.nvidia) and xid.conflict()
            if (code is not None and xid.code != code) or (conflicts_only and not conflict):
                continue
            rows.append(self._catalog_row(xid, conflict))
        return rows

    def _catalog_row(self, xid: Xid, conflict: bool) -> dict[str, Any]:
        verdict = self.classify("xid", str(xid.code), "unknown")
        row: dict[str, Any] = {
            "xid": xid.code,
            "mnemonic": xid.mnemonic,
            "description": xid.description,
            "symptom": xid.symptom,
            "domain": self.domain(xid.symptom),
            "role": xid.role.value,
            "sticky": xid.sticky,
            "node_fault": verdict.is_node_fault if verdict else False,
            "conflict": conflict,
            "conflict_all_five": bool(xid.nvidia) and xid.conflict(VENDORS),
        }
        for name, vendor in xid.verdicts.items():
            row[f"{name}_says"] = vendor.says or None
            row[f"{name}_node_fault"] = vendor.node_fault
            row[f"{name}_source"] = vendor.source
        return row


def check_vendor(believe: str) -> str:
    """The vendor's name in lower case.

    Raises:
        UsageError: no such vendor; the message lists those there are.
    """
    if believe.lower() not in VENDORS:
        raise UsageError(f"no vendor named {believe!r} to believe; there are: {', '.join(VENDORS)}")
    return believe.lower()


__all__ = ["CONFLICT_VENDORS", "VENDORS", "Taxonomy", "Verdict", "check_vendor"]


def xid_of_reason(text: str) -> int | None:
    """The XID that a reason for draining or downing a node names first, None where it has none."""
    named = _XID_IN_REASON.search(lowered(text))
    return int(named[1]) if named else None
