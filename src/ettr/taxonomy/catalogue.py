"""The taxonomy as one object: everything that turns raw words into symptoms, with its reasons.

`load_taxonomy` reads it from the package's data. Classification needs only check, code and
severity, so that a stage can classify the distinct triples and join them back.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ettr.errors import UsageError
from ettr.taxonomy.codes import (
    KINDS,
    VENDORS,
    JobState,
    Role,
    Xid,
    XidCode,
    parse_xid_code,
    read_job_states,
    read_subcodes,
    read_xids,
)
from ettr.taxonomy.rules import (
    REASON_CATALOGUE,
    SEVERITIES,
    SHORTEST_MARK,
    XID_CATALOGUE,
    KernelForm,
    ReasonRule,
    ReasonVerdict,
    Rule,
    Symptom,
    lowered,
    read_reasons,
    read_rules,
    read_symptoms,
    rules_of_kernel,
)

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


def xid_of_reason(text: str) -> int | None:
    """The XID that a reason for draining or downing a node names first, None where it has none."""
    named = _XID_IN_REASON.search(lowered(text))
    return int(named[1]) if named else None


# -- a site's own rows of the taxonomy, from one TOML or CSV file ----------------------------------


@dataclass(frozen=True, slots=True)
class _SiteTable:
    """A table of a site's file: its fields and types, those it needs, how a change is said."""

    fields: Mapping[str, type]
    change: str
    needed: tuple[str, ...] = ()


# symptoms first: the other tables may name a new one
_TABLES = {
    "symptoms": _SiteTable(
        {
            "name": str,
            "user_program": bool,
            "system_software": bool,
            "hardware": bool,
            "rank": int,
            "likely_cause": str,
        },
        "symptom {key}",
    ),
    "xid": _SiteTable(
        {"symptom": str, "node_fault": bool, "sticky": bool, "role": str, "description": str},
        "xid {key}",
    ),
    "states": _SiteTable(
        {
            "terminal": bool,
            "kind": str,
            "kind_by_owner": str,
            "needs_evidence": bool,
            "reason": str,
        },
        "state {key}",
    ),
    "rules": _SiteTable(
        {
            "check": str,
            "code": str,
            "symptom": str,
            "severity": str,
            "fixed": bool,
            "node_fault": bool,
            "rank": int,
        },
        "rule for check {check}",
        ("check",),
    ),
    "reasons": _SiteTable(
        {"pattern": str, "reason_class": str, "symptom": str, "planned": bool},
        "reason {pattern}",
        ("pattern", "reason_class"),
    ),
    "kernel": _SiteTable(
        {
            "code": str,
            "mark": str,
            "pattern": str,
            "entity_type": str,
            "symptom": str,
            "severity": str,
            "node_fault": bool,
            "rank": int,
        },
        "kernel message {mark}",
        ("mark",),
    ),
}
# tables that are lists, and the field that the key of a CSV line fills
_LISTS = {"rules": "check", "reasons": "pattern", "kernel": "mark"}
_SINGULAR = {
    "xids": "xid",
    "state": "states",
    "symptom": "symptoms",
    "rule": "rules",
    "reason": "reasons",
}
_CSV_COLUMNS = ("table", "key", "code", "field", "value")
_TRUTHS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_TYPE_WORDS = {str: "a text", bool: "true or false", int: "a whole number"}


@dataclass(slots=True)
class _Overlay:
    """The rows laid over the package's, and everything wrong with them."""

    symptoms: dict[str, Symptom]
    xids: dict[int, Xid]
    states: dict[str, JobState]
    rules: list[Rule] = field(default_factory=list)
    reasons: list[ReasonRule] = field(default_factory=list)
    kernel: list[KernelForm] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def load_taxonomy(site_file: Path | None = None, *, believe: str | None = None) -> Taxonomy:
    """The taxonomy of the package, with the rows of a site's file laid over it.

    Args:
        site_file: TOML or CSV file of the site's own rows; docs/how-to/taxonomy.md shows its form.
        believe: whose verdict on XID codes decides: nvidia (default), gpud, gcm, aws or aznhc; it
            wins over the site's file.

    Raises:
        UsageError: the file cannot be read, or holds rows that cannot be; all problems at once.
    """
    taxonomy = Taxonomy(
        symptoms=read_symptoms(),
        xids=read_xids(),
        subcodes=read_subcodes(),
        states=read_job_states(),
        rules=read_rules(),
        reasons=read_reasons(),
        believe=check_vendor(believe or "nvidia"),
    )
    if site_file is None:
        return taxonomy
    return with_site_file(taxonomy, site_file, believe=believe)


def with_site_file(taxonomy: Taxonomy, path: Path, *, believe: str | None = None) -> Taxonomy:
    """The taxonomy with the rows of the site's file laid over it.

    Raises:
        UsageError: the file cannot be read, or holds rows that cannot be; all problems at once.
    """
    data = _read(path)
    over = _Overlay(dict(taxonomy.symptoms), dict(taxonomy.xids), dict(taxonomy.states))
    vendor = _choose_vendor(data.pop("believe", None), believe, taxonomy.believe, over)
    for name in data.keys() - _TABLES.keys():
        over.problems.append(f"{name}: no such table; there are: believe, {', '.join(_TABLES)}")
    for name, table in _TABLES.items():
        for key, row in _rows(data, name, over):
            if problem := _ADD[name](over, key, row, path.name):
                over.problems.append(f"{_place(name, key)}: {problem}")
            else:
                over.changed.append(table.change.format(key=key, **row))
    if over.problems:
        lines = "".join(f"\n  {problem}" for problem in over.problems)
        raise UsageError(f"{path}: not a valid taxonomy file:{lines}")
    return replace(
        taxonomy,
        symptoms=over.symptoms,
        xids=over.xids,
        states=over.states,
        rules=(*over.rules, *rules_of_kernel(tuple(over.kernel)), *taxonomy.rules),
        reasons=(*over.reasons, *taxonomy.reasons),
        site_kernel=tuple(over.kernel),
        believe=vendor,
        changed=tuple(over.changed),
        _cache={},
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: the taxonomy file cannot be read: {reason}") from error
    if path.suffix.lower() == ".csv":
        return _read_csv(path, text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not a TOML file: {error}; or name it .csv") from error


def _read_csv(path: Path, text: str) -> dict[str, Any]:
    reader = csv.DictReader(text.splitlines())
    if tuple(reader.fieldnames or ()) != _CSV_COLUMNS:
        given = ",".join(reader.fieldnames or ())
        expected = ",".join(_CSV_COLUMNS)
        raise UsageError(f"{path}: the columns are {given!r}, expected {expected!r}")
    data: dict[str, Any] = {}
    listed: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in reader:
        name = _SINGULAR.get(row["table"] or "", row["table"] or "")
        key, code = row["key"] or "", row["code"] or ""
        if name == "believe":
            data["believe"] = row["value"]
        elif name in _LISTS:
            fresh = {_LISTS[name]: key} | ({"code": code} if name != "reasons" and code else {})
            if (name, key, code) not in listed:
                listed[name, key, code] = fresh
                data.setdefault(name, []).append(fresh)
            _put(listed[name, key, code], name, row)
        else:
            _put(data.setdefault(name, {}).setdefault(key, {}), name, row)
    return data


def _put(target: dict[str, Any], table: str, row: Mapping[str, str | None]) -> None:
    name, text = row["field"] or "", row["value"] or ""
    kind = _TABLES[table].fields.get(name) if table in _TABLES else None
    if kind is bool and text.lower() in _TRUTHS:
        target[name] = _TRUTHS[text.lower()]
    elif kind is int and text.lstrip("-").isdecimal():
        target[name] = int(text)
    else:
        target[name] = text


def _choose_vendor(
    in_file: object, on_command_line: str | None, default: str, overlay: _Overlay
) -> str:
    """Whose verdict decides. What the command line gives is the default already, and wins."""
    if in_file is not None and str(in_file).lower() not in VENDORS:
        overlay.problems.append(f"believe: {in_file!r} (expected one of {', '.join(VENDORS)})")
    if on_command_line is not None or in_file is None:
        return default
    overlay.changed.append(f"believes {in_file}")
    return str(in_file).lower()


def _place(table: str, key: str) -> str:
    return f"{table} {key}" if table in _LISTS else f"{table}.{key}"


def _rows(data: dict[str, Any], table: str, over: _Overlay) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table without a wrong field, each with its key or its number."""
    kind, form = (list, f"[[{table}]]") if table in _LISTS else (dict, f"[{table}.NAME]")
    given = data.get(table, kind())
    rows = {str(i): row for i, row in enumerate(given, 1)} if isinstance(given, list) else given
    if not isinstance(given, kind) or not all(isinstance(row, dict) for row in rows.values()):
        over.problems.append(f"{table}: expected tables such as {form}")
        return
    for key, row in rows.items():
        problems = [*_wrong_fields(table, row, over)]
        missing = [name for name in _TABLES[table].needed if not row.get(name)]
        if missing and not problems:
            problems = [f"{' and '.join(missing)} missing"]
        over.problems += [f"{_place(table, key)}: {problem}" for problem in problems]
        if not problems:
            yield key, row


def _wrong_fields(table: str, row: dict[str, Any], over: _Overlay) -> Iterator[str]:
    """What is wrong with single fields of a row: their names, types and words."""
    known = _TABLES[table].fields
    catalogues = (XID_CATALOGUE, REASON_CATALOGUE) if table == "rules" else ()
    words: dict[str, tuple[str, ...]] = {
        "symptom": (*over.symptoms, *catalogues),
        "role": tuple(role.value for role in Role),
        "kind": tuple(KINDS),
        "kind_by_owner": tuple(KINDS),
        "severity": tuple(SEVERITIES),
    }
    for name, value in row.items():
        if name not in known:
            yield f"no field {name!r}; there are: {', '.join(known)}"
        elif type(value) is not known[name]:
            yield f"{name} is {value!r} (expected {_TYPE_WORDS[known[name]]})"
        elif name in words and value not in words[name] and (value or name != "symptom"):
            yield f"{name} is {value!r} (expected one of {', '.join(words[name])})"


# -- one row of each table laid over the package's; they return what is wrong with it


def _symptom(over: _Overlay, slug: str, row: dict[str, Any], _: str) -> str | None:
    if not slug or not all(c.isascii() and (c.isalnum() or c == "-") for c in slug):
        return "a slug has letters, digits and hyphens"
    blank = Symptom(slug, slug, False, False, False, 100, "not given", "site")
    over.symptoms[slug] = replace(over.symptoms.get(slug, blank), **row)
    return None


_NEW_XID = Xid(
    code=0,
    mnemonic="",
    description="code of the site",
    symptom=None,
    symptom_by="site",
    role=Role.CAUSE,
    sticky=False,
    nvidia="",
    nvidia_follow_up="",
    products="",
    announced_by_154=False,
    gpud="",
    gcm="n/a",
    aws="",
    aznhc=False,
)


def _xid(over: _Overlay, key: str, row: dict[str, Any], _: str) -> str | None:
    if not (key.isascii() and key.isdigit()):
        return "an XID is a number"
    code = int(key)
    if code not in over.xids and not row.get("symptom"):
        return "a code that the catalogue lacks needs a symptom"
    values = dict(row)
    if "role" in values:
        values["role"] = Role(values["role"])
    if "symptom" in values:
        values["symptom_by"] = "site"
    over.xids[code] = replace(over.xids.get(code, replace(_NEW_XID, code=code)), **values)
    return None


def _state(over: _Overlay, key: str, row: dict[str, Any], _: str) -> str | None:
    if key not in over.states:
        return f"no such end state of Slurm; there are: {', '.join(over.states)}"
    # a site that sets one kind means it, whoever brought the end about
    by_owner = {"kind_by_owner": row["kind"]} if "kind" in row else {}
    over.states[key] = replace(over.states[key], **(by_owner | row))
    return None


def _rule(over: _Overlay, number: str, row: dict[str, Any], file_name: str) -> None:
    over.rules.append(
        Rule(
            check=row["check"],
            code=row.get("code", "*"),
            symptom=row.get("symptom") or None,
            severity=row.get("severity", "critical"),
            fixed=row.get("fixed", "severity" in row),
            node_fault=row.get("node_fault", False),
            rank=row.get("rank"),
            source=f"rule {number} of {file_name}",
        )
    )


def _reason(over: _Overlay, number: str, row: dict[str, Any], file_name: str) -> None:
    over.reasons.append(
        ReasonRule(
            pattern=row["pattern"],
            reason_class=row["reason_class"],
            symptom=row.get("symptom") or None,
            planned=row.get("planned", False),
            source=f"reason {number} of {file_name}",
        )
    )


def _kernel(over: _Overlay, number: str, row: dict[str, Any], file_name: str) -> str | None:
    symptom = row.get("symptom") or None
    if symptom and not row.get("code"):
        return "code missing"
    if len(row["mark"].encode()) < SHORTEST_MARK:
        return (
            f"mark is {row['mark']!r} (expected {SHORTEST_MARK} characters or more, which stand in "
            "each such line as they are)"
        )
    pattern = row.get("pattern") or re.escape(row["mark"])
    try:
        re.compile(pattern)
    except re.error as error:
        return f"pattern is {pattern!r} (no regular expression: {error})"
    over.kernel.append(
        KernelForm(
            code=row.get("code", ""),
            mark=row["mark"],
            pattern=pattern,
            entity_type=row.get("entity_type", ""),
            symptom=symptom,
            severity=row.get("severity", "critical"),
            node_fault=row.get("node_fault", False),
            rank=row.get("rank"),
            source=f"kernel message {number} of {file_name}",
        )
    )
    return None


_ADD: Mapping[str, Callable[[_Overlay, str, dict[str, Any], str], str | None]] = {
    "symptoms": _symptom,
    "xid": _xid,
    "states": _state,
    "rules": _rule,
    "reasons": _reason,
    "kernel": _kernel,
}
