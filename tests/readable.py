"""Findings as a manager reads them: short sentences, few brackets, plain words.

Each finding that any test of this process makes is held to it, whatever its store.
"""

from __future__ import annotations

import re
import sys
from typing import Any

MOST_WORDS = 28
MOST_IN_BRACKETS = 2
_CLAUSE_END = re.compile(r"(?<=[.!?:;])\s+")
_COMMAND = re.compile(r"`[^`]*`")
_BRACKETED = re.compile(r"\[[^\]]*\]|\([^)]*\)")
_NUMBER = re.compile(r"(?<![\w.:-])\d[\d.,]*(?![\w:-])")
NOT_SAID = re.compile(
    r"(?<![\w./-])\d[\d.]*[eE][+-]?\d+\b|\b1 times as|"
    r"\(1 (?!of)[a-z]+s\)|(?<![\d.,])1 (?!of |times)[a-z]+s\b"
)
JARGON = {
    "censored": "still running",
    "posterior": "chance",
    "overdispersed": "in bursts",
    "over-dispersed": "in bursts",
    "attributed": "explained",
    "exposure": "running time",
    "hazard": "failure rate",
    "a priori": "before",
}
"""Words that no finding uses, each with what it says instead."""


def unreadable(says: str) -> list[str]:
    """What makes a finding hard to read; nothing where all is well."""
    found = [f"{word}: say {plain}" for word, plain in JARGON.items() if word in says.lower()]
    prose = _COMMAND.sub("it", says)
    if number := NOT_SAID.search(prose):
        found.append(number.group())
    for clause in _CLAUSE_END.split(prose):
        words, inside = clause.split(), " ".join(_BRACKETED.findall(clause))
        if len(words) > MOST_WORDS:
            found.append(f"{len(words)} words: {clause}")
        if len(_NUMBER.findall(inside)) > MOST_IN_BRACKETS:
            found.append(f"numbers in brackets: {clause}")
    return found


def hold_findings() -> None:
    """Refuse unreadable findings from now on, if the program that makes them is loaded."""
    module: Any = sys.modules.get("ettr.report.findings")
    made = getattr(module, "Finding", None)
    if made is None or hasattr(made, "_is_held"):
        return
    given_init = made.__init__

    def checked(self: Any, *given: Any, **named: Any) -> None:
        given_init(self, *given, **named)
        wrong = unreadable(self.says)
        assert not wrong, f"{self.code}: {wrong}"

    # the class stays the same one: the JSON schema is made from it
    made.__init__ = checked
    made._is_held = True
