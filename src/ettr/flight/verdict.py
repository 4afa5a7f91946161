"""What flight records say of a hang: frozen results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class VerdictKind(StrEnum):
    """What holds a job up, as far as its flight records show it."""

    MISSING = "missing"
    MISMATCH = "mismatch"
    NO_RECORD = "no record"
    CIRCULAR = "circular wait"
    ALL_INSIDE = "all inside"
    LATE = "late"
    NOTHING_HANGS = "nothing hangs"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that others wait for and that waits for none of them.

    `node` is None where neither the launch nor the files' names place the rank.
    """

    rank: int
    node: str | None
    because: str


@dataclass(frozen=True, slots=True)
class StuckCollective:
    """The first collective of a group that some ranks started and that did not end.

    Rank lists are global ranks. `waiting`: it has not ended there. `missing`: members whose record
    lacks it. `mismatched`: members that called something else in its place. `without_record`:
    members that left no record, or only one older than this call. `overwritten`: members whose
    record no longer reaches back to their calls of this group. `waited_s`: from the first
    rank's call to the last record; None where no record says when it was written. `culprits`: whom
    the waiting ranks wait for in the end, in another group perhaps.
    """

    kind: VerdictKind
    group: str
    description: str
    members: int | None
    seq: int
    name: str
    sizes: str
    started: tuple[int, ...]
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    mismatched: tuple[int, ...]
    without_record: tuple[int, ...]
    overwritten: tuple[int, ...]
    calls: tuple[tuple[str, int], ...]
    waited_s: float | None
    culprits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that was the last to start collectives that all started, by a second or more."""

    rank: int
    node: str | None
    times: int
    longest_s: float
    group: str
    seq: int
    after_timeout: bool


@dataclass(frozen=True, slots=True)
class FlightVerdict:
    """The verdict on a folder of flight records.

    `world_size` is None where neither a record nor the call states it: ranks beyond the highest
    one with a record then go unnoticed. `reasons` says why where the verdict is `cannot tell`, and
    what else limits it.
    """

    verdict: VerdictKind
    culprits: tuple[Culprit, ...]
    stuck: tuple[StuckCollective, ...]
    late: tuple[LateRank, ...]
    world_size: int | None
    records: int
    without_record: tuple[int, ...]
    reasons: tuple[str, ...]
    superseded: int
    refused: int
    unreadable_entries: int
