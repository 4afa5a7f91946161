"""Slurm's words: end states of jobs, and states of nodes.

`read_job_states` is the truth table of end states: whether each is an end, what kind of
interruption it is, and why.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ettr.taxonomy.rules import read_records, truth

KINDS = ("none", "hardware-candidate", "user-failure", "preemption", "operator", "time-limit")


@dataclass(frozen=True, slots=True)
class JobState:
    """One state of a job and what it means for reliability.

    `kind` is the kind of interruption; `kind_by_owner` the kind where the job's owner brought it
    about. `needs_evidence`: a hardware-candidate becomes a failure only where a critical check
    fired in the window; without it, the state alone is enough. `symptom` is what the state itself
    says, where no event says more.
    """

    state: str
    short: str
    terminal: bool
    kind: str
    kind_by_owner: str
    needs_evidence: bool
    reason: str
    symptom: str | None = None


class ParsedState(NamedTuple):
    """A job state as printed: its base and, if cancelled, by which user id."""

    base: str
    by_uid: str | None


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node state as printed: base, flags, and whether the node can take no work at all.

    `state` is the word for the `node_states` table: DOWN before DRAIN before any other flag that
    makes the node unavailable, else the base. `unavailable` is None where nobody knows.
    """

    base: str
    flags: tuple[str, ...]
    state: str
    unavailable: bool | None


_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# compact words of sinfo that mean a base and a flag at once; a bare flag of `sacctmgr show
# event` says nothing of the base, and a drained node without jobs is what it then means
_COMPOUND = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("MIXED", "DRAIN"),
    "DRNG": ("MIXED", "DRAIN"),
    "FAILING": ("MIXED", "FAIL"),
    "FAILG": ("MIXED", "FAIL"),
}
_STATE_ORDER = (
    "DRAIN",
    "FAIL",
    "MAINTENANCE",
    "REBOOT_ISSUED",
    "INVALID_REG",
    "POWERED_DOWN",
    "POWERING_DOWN",
)
_TABLE_WORD = {"MAINTENANCE": "MAINT", "INVALID_REG": "INVAL"}


def read_job_states() -> dict[str, JobState]:
    """The truth table by state."""
    return {
        row["state"]: JobState(
            state=row["state"],
            short=row["short"],
            terminal=truth(row["terminal"]),
            kind=row["kind"],
            kind_by_owner=row["kind_by_owner"],
            needs_evidence=truth(row["needs_evidence"]),
            reason=row["reason"],
            symptom=row["symptom"] or None,
        )
        for row in read_records("slurm_states")
    }


@cache
def _job_words() -> dict[str, str]:
    words: dict[str, str] = {}
    for state in read_job_states().values():
        words[state.state] = state.state
        if state.short:
            words[state.short] = state.state
    return words


@cache
def parse_state(text: str) -> ParsedState:
    """Base state and the user id that cancelled, from a state as Slurm prints it.

    Understands long and short words, `CANCELLED by 1000`, and words that sacct cut off with a plus.
    An unknown word comes back in upper case as it is.
    """
    head, _, tail = text.strip().partition(" ")
    word = head.upper()
    by_uid = tail.strip().removeprefix("by").strip() or None
    words = _job_words()
    if word in words:
        return ParsedState(words[word], by_uid)
    stem = word.rstrip("+")
    if stem != word and stem:
        fits = {state for known, state in words.items() if known.startswith(stem)}
        if len(fits) == 1:
            return ParsedState(fits.pop(), by_uid)
    return ParsedState(word, by_uid)


@cache
def _node_words() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    kind_of: dict[str, str] = {}
    word_of: dict[str, str] = {}
    unavailable: dict[str, str] = {}
    for row in read_records("node_states"):
        kind_of[row["state"]] = row["kind"]
        unavailable[row["state"]] = row["unavailable"]
        word_of[row["state"]] = row["state"]
        for alias in row["aliases"].split():
            word_of[alias.upper()] = row["state"]
    return kind_of, word_of, unavailable


@cache
def parse_node_state(text: str) -> NodeState:
    """A node state as sinfo, scontrol, sacctmgr or Slurm's JSON write it.

    Args:
        text: `IDLE+DRAIN`, `down*`, `drained*`, `mix-`, `DOWN`, or JSON words joined by plus.
    """
    kind_of, word_of, _ = _node_words()
    words: list[str] = []
    flags: list[str] = []
    for part in filter(None, re.split(r"[+,\s]+", text.strip().upper())):
        word = part
        while word and word not in word_of and word[-1] in _SUFFIXES:
            flags.append(_SUFFIXES[word[-1]])
            word = word[:-1]
        words.extend(_COMPOUND.get(word, (word_of.get(word, word),)) if word else ())
    base = "UNKNOWN"
    for word in words:
        if kind_of.get(word) == "base":
            base = word if base == "UNKNOWN" else base
        else:
            flags.append(word)
    distinct = tuple(dict.fromkeys(flags))
    return NodeState(base, distinct, _table_word(base, distinct), _unavailable(base, distinct))


def _table_word(base: str, flags: tuple[str, ...]) -> str:
    if base == "DOWN":
        return base
    for flag in _STATE_ORDER:
        if flag in flags:
            return _TABLE_WORD.get(flag, flag)
    return base if base != "UNKNOWN" or not flags else flags[0]


def _unavailable(base: str, flags: tuple[str, ...]) -> bool | None:
    _, _, unavailable = _node_words()
    verdicts = {unavailable.get(word, "no") for word in (base, *flags)}
    if "yes" in verdicts:
        return True
    if "idle-only" in verdicts:
        return base not in {"ALLOCATED", "MIXED"} and "COMPLETING" not in flags
    return None if "unknown" in verdicts and not flags else False
