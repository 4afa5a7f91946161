"""Codes of others: Slurm's states of jobs and nodes, and the XIDs of NVIDIA's driver.

`read_job_states` is the truth table of end states: whether each is an end, what kind of
interruption it is, and why. Of an XID five parties say what they make of it; for the question "is
this a fault of the node?" each party's own words become yes, no or unknown:

- NVIDIA: yes where the immediate action resets the GPU, restarts the machine, checks mechanics, or
  is the workflow of XID 48 or of NVLink; unknown where its catalogue gives no action.
- gpud: yes where its event type is Fatal; unknown where it has no type.
- AWS: yes unless its severity is MONITOR; unknown where it lists none.
- GCM: yes unless the code is in its set of warnings; a code that it does not know is critical.
- AzNHC: yes where its check fails the node for the code, else no.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
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


VENDORS = ("nvidia", "gpud", "gcm", "aws", "aznhc")
CONFLICT_VENDORS = ("nvidia", "gpud", "aws")

_SOURCES = {
    "nvidia": "NVIDIA XID catalogue, immediate action",
    "gpud": "gpud's XID table, event type and repair action",
    "gcm": "GCM's check of XID errors, causes and set of warnings",
    "aws": "AWS's list of XID codes, severity",
    "aznhc": "Azure node health checks, list of codes that fail a node",
}
_NVIDIA_FAULT = frozenset(
    {
        "RESET_GPU",
        "RESTART_BM",
        "RESTART_VM",
        "CHECK_MECHANICALS",
        "WORKFLOW_XID_48",
        "WORKFLOW_NVLINK_ERR",
        "WORKFLOW_NVLINK5_ERR",
    }
)
_CODE = re.compile(r"(?:s?xid[ _:-]*)?(\d{1,6})(?:\.([\w/-]+?))?(?:\.(fatal|nonfatal|link-fatal))?")


class Role(StrEnum):
    """The role of a code among others: a cause, or only something about another code."""

    CAUSE = "cause"
    SYMPATHETIC = "sympathetic"
    POINTER = "pointer"
    INFORMATIONAL = "informational"


@dataclass(frozen=True, slots=True)
class VendorVerdict:
    """What one party says about a code, and what that means for the node (None: not known)."""

    vendor: str
    node_fault: bool | None
    says: str
    source: str


@dataclass(frozen=True, slots=True)
class XidCode:
    """An XID as an event carries it: number, NVLink5 unit, and severity in that line."""

    xid: int
    unit: str | None = None
    severity: str | None = None


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID with the verdict of each party.

    `products` says for A100, H100, B100 and GB200 in turn whether the code applies (Y or n);
    `sticky` codes stay until somebody acts, so their repeats over hours are one episode.
    `node_fault` is the site's own verdict; None leaves it to the party that is believed.
    """

    code: int
    mnemonic: str
    description: str
    symptom: str | None
    symptom_by: str
    role: Role
    sticky: bool
    nvidia: str
    nvidia_follow_up: str
    products: str
    announced_by_154: bool
    gpud: str
    gcm: str
    aws: str
    aznhc: bool
    node_fault: bool | None = None

    @property
    def verdicts(self) -> dict[str, VendorVerdict]:
        """Each party's verdict by its name, in the order of VENDORS."""
        faults: dict[str, bool | None] = {
            "nvidia": self.nvidia in _NVIDIA_FAULT if self.nvidia else None,
            "gpud": self.gpud.startswith("Fatal") if self.gpud else None,
            "gcm": "(WARN)" not in self.gcm,
            "aws": not self.aws.startswith("MONITOR") if self.aws else None,
            "aznhc": self.aznhc,
        }
        says = {
            "nvidia": self.nvidia,
            "gpud": self.gpud,
            "gcm": self.gcm,
            "aws": self.aws,
            "aznhc": "fails the node" if self.aznhc else "",
        }
        return {v: VendorVerdict(v, faults[v], says[v], _SOURCES[v]) for v in VENDORS}

    def conflict(self, vendors: tuple[str, ...] = CONFLICT_VENDORS) -> bool:
        """Whether the named parties differ on "a fault of the node?"; unknown is no answer."""
        verdicts = self.verdicts
        answers = {verdicts[v].node_fault for v in vendors} - {None}
        return len(answers) > 1

    def believed(self, vendor: str) -> VendorVerdict:
        """The verdict of the believed party or, where it is silent, of the first that is not.

        The order after the believed party is that of VENDORS without GCM and AzNHC, whose silence
        is a default of their programs and no verdict.
        """
        verdicts = self.verdicts
        for name in (vendor, *CONFLICT_VENDORS):
            if verdicts[name].node_fault is not None:
                return verdicts[name]
        return verdicts[vendor]


def read_xids() -> dict[int, Xid]:
    """The whole catalogue by code."""
    return {
        int(row["xid"]): Xid(
            code=int(row["xid"]),
            mnemonic=row["mnemonic"],
            description=row["description"],
            symptom=row["symptom"] or None,
            symptom_by=row["symptom_by"],
            role=Role(row["role"] or "cause"),
            sticky=truth(row["sticky"]),
            nvidia=row["nvidia"],
            nvidia_follow_up=row["nvidia_follow_up"],
            products=row["products"],
            announced_by_154=truth(row["announced_by_154"]),
            gpud=row["gpud"],
            gcm=row["gcm"],
            aws=row["aws"],
            aznhc=truth(row["aznhc"]),
        )
        for row in read_records("xid")
    }


def read_subcodes() -> dict[tuple[int, str], str]:
    """What each unit of the NVLink5 codes 144 to 150 is, by (code, unit)."""
    return {(int(r["xid"]), r["unit"]): r["meaning"] for r in read_records("xid_subcodes")}


def parse_xid_code(text: str) -> XidCode | None:
    """An XID code in any of the spellings in use, or None.

    Args:
        text: `79`, `XID_79`, `XID-48`, `149.NETIR_LINK_EVT.fatal`, `149.NETIR_LINK_EVT`.
    """
    found = _CODE.fullmatch(text.strip().lower())
    if found is None or not found[1].isascii():
        return None
    unit = found[2]
    if unit in {"fatal", "nonfatal", "link-fatal"} and found[3] is None:
        return XidCode(int(found[1]), None, unit)
    return XidCode(int(found[1]), unit.upper() if unit else None, found[3])
