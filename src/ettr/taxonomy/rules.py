"""The rules that turn a check and its code into a symptom, and a drain's reason into a class."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from importlib import resources

SEVERITIES = ("critical", "warning", "info")
# a rule's symptom may send the code to another catalogue
XID_CATALOGUE = "@xid"
REASON_CATALOGUE = "@reason"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of rules: the first whose patterns fit decides.

    Patterns are shell-like (`*`, `?`, `[...]`), without regard to case; an empty code pattern fits
    only an event without a code. `symptom` None: known, and no cause of anything. `severity` holds
    where the source states none, or always where `fixed`. A node fault needs a critical verdict.
    """

    check: str
    code: str
    symptom: str | None
    severity: str
    fixed: bool
    node_fault: bool
    rank: int | None
    source: str

    def fits(self, check: str, code: str | None) -> bool:
        """Whether check and code (already in lower case) fit the patterns."""
        if not _matcher(self.check)(check):
            return False
        if not code:
            return self.code in {"", "*"}
        return bool(_matcher(self.code)(code))


@dataclass(frozen=True, slots=True)
class ReasonRule:
    """One row of reasons: a pattern of the text, the class it belongs to, what it hints at."""

    pattern: str
    reason_class: str
    symptom: str | None
    planned: bool
    source: str

    def fits(self, text: str) -> bool:
        """Whether the text (already in lower case) fits the pattern."""
        return bool(_matcher(self.pattern)(text))


@dataclass(frozen=True, slots=True)
class ReasonVerdict:
    """What a reason for draining or downing a node means.

    `code` is the class and, where known, the symptom: what an event of check `drain` carries.
    """

    reason_class: str
    symptom: str | None
    is_planned: bool
    source: str

    @property
    def code(self) -> str:
        """The class, or `class:symptom`; `Taxonomy.classify("drain", code, ...)` reads it back."""
        return f"{self.reason_class}:{self.symptom}" if self.symptom else self.reason_class


# a mark is looked for in words of four bytes, of which each mark holds a whole one
SHORTEST_MARK = 7
KERNEL_CHECK = "kernel"


@dataclass(frozen=True, slots=True)
class KernelForm:
    """One row of kernel messages: lines that hold `mark` and fit `pattern` report `code`.

    The first that fits decides. A row without a symptom says that such a line is no error. The
    pattern's group `entity` names what failed, of the kind `entity_type`.
    """

    code: str
    mark: str
    pattern: str
    entity_type: str
    symptom: str | None
    severity: str
    node_fault: bool
    rank: int | None
    source: str

    def search(self, message: str) -> re.Match[str] | None:
        """Where the message fits; None where it does not."""
        return _compiled(self.pattern).search(message) if self.mark in message else None

    @property
    def rule(self) -> Rule:
        """The rule by which an event of this code is judged."""
        return Rule(
            check=KERNEL_CHECK,
            code=self.code,
            symptom=self.symptom,
            severity=self.severity,
            fixed=False,
            node_fault=self.node_fault,
            rank=self.rank,
            source=self.source,
        )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def read_kernel_forms() -> tuple[KernelForm, ...]:
    """The forms of kernel messages in the order in which they are tried."""
    return tuple(
        KernelForm(
            code=row["code"],
            mark=row["mark"],
            pattern=row["pattern"],
            entity_type=row["entity_type"],
            symptom=row["symptom"] or None,
            severity=row["severity"],
            node_fault=truth(row["node_fault"]),
            rank=int(row["rank"]) if row["rank"] else None,
            source=row["source"],
        )
        for row in read_records("kernel", strip=False)
    )


def rules_of_kernel(forms: tuple[KernelForm, ...]) -> tuple[Rule, ...]:
    """A rule for each code of these forms."""
    return tuple({form.code: form.rule for form in reversed(forms) if form.code}.values())


@cache
def _matcher(text: str) -> Callable[[str], object]:
    # most patterns are a word between stars, for which no expression need be compiled
    glob = text.lower()
    word = glob.strip("*")
    if any(one in word for one in "*?["):
        return _pattern(glob).match
    if glob.startswith("*"):
        return (
            (lambda found: word in found)
            if glob.endswith("*")
            else (lambda found: found.endswith(word))
        )
    return (lambda found: found.startswith(word)) if glob.endswith("*") else word.__eq__


def _pattern(glob: str) -> re.Pattern[str]:
    # a leading bracket is literal: `[HC]` is a prefix that people write, never a set of letters;
    # only around one of the characters that patterns use is it the way to mean just that one
    if glob.startswith("[") and not glob.startswith(("[*]", "[?]", "[[]")):
        glob = "[[]" + glob[1:]
    return re.compile(translate(glob), re.DOTALL)


def lowered(text: str) -> str:
    """The text in lower case with single spaces, as patterns see it."""
    return " ".join(text.lower().split())


def read_rules() -> tuple[Rule, ...]:
    """The rules in the order in which they are tried."""
    return rules_of_kernel(read_kernel_forms()) + tuple(
        Rule(
            check=row["check"],
            code=row["code"],
            symptom=row["symptom"] or None,
            severity=row["severity"] or "warning",
            fixed=truth(row["fixed"]),
            node_fault=truth(row["node_fault"]),
            rank=int(row["rank"]) if row["rank"] else None,
            source=row["source"],
        )
        for row in read_records("rules")
    )


def read_reasons() -> tuple[ReasonRule, ...]:
    """The patterns of reasons in the order in which they are tried."""
    return tuple(
        ReasonRule(
            pattern=row["pattern"],
            reason_class=row["reason_class"],
            symptom=row["symptom"] or None,
            planned=truth(row["planned"]),
            source=row["source"],
        )
        for row in read_records("reasons")
    )


TABLE_I = "Table I"
UNATTRIBUTED = "unattributed"
UNKNOWN_DOMAIN = "unknown"


@dataclass(frozen=True, slots=True)
class Symptom:
    """One symptom: the domains that may hold its cause, and what the cause usually is.

    `rank` orders symptoms by how strong a sign each is that the node must go; 1 is the strongest.
    """

    slug: str
    name: str
    user_program: bool
    system_software: bool
    hardware: bool
    rank: int
    likely_cause: str
    source: str

    @property
    def domain(self) -> str:
        """The domains in one string, such as `hardware` or `system+hardware`."""
        domains = (
            ("user", self.user_program),
            ("system", self.system_software),
            ("hardware", self.hardware),
        )
        return "+".join(name for name, there in domains if there) or UNKNOWN_DOMAIN

    @property
    def in_table_i(self) -> bool:
        """Whether the symptom is a row of the paper's Table I."""
        return self.source == TABLE_I


def read_symptoms() -> dict[str, Symptom]:
    """Every symptom by slug: Table I in its own order, then the others."""
    return {
        row["slug"]: Symptom(
            slug=row["slug"],
            name=row["name"],
            user_program=truth(row["user_program"]),
            system_software=truth(row["system_software"]),
            hardware=truth(row["hardware"]),
            rank=int(row["rank"]),
            likely_cause=row["likely_cause"],
            source=row["source"],
        )
        for row in read_records("symptoms")
    }


def read_records(name: str, *, strip: bool = True) -> list[dict[str, str]]:
    """The rows of `data/<name>.csv` as dictionaries of text, in file order."""
    file = resources.files("ettr.taxonomy").joinpath("data", f"{name}.csv")
    lines = file.read_text(encoding="utf-8").splitlines()
    return [
        {key: (value or "").strip() if strip else value or "" for key, value in row.items()}
        for row in csv.DictReader(lines)
    ]


def truth(text: str) -> bool:
    """Whether a yes/no cell says yes."""
    return text == "yes"
