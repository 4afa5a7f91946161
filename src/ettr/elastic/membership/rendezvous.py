"""Who belongs to a generation, and the keys through which supervisor and ranks exchange it.

Standard library only. All keys live in the supervisor's store; what the ranks of one generation
exchange among themselves lies below `gen<number>/`, so that a process of an earlier generation
cannot meet a later one. docs/explanation/elastic-states.md lists the keys.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from enum import StrEnum

from ettr.errors import UsageError

GENERATION = "ettr/generation"
STOP = "ettr/stop"
STOPPED = "stopped after "
ENV_STORE = "ETTR_ELASTIC_STORE"
ENV_WORKER = "ETTR_ELASTIC_WORKER"
ENV_PROTOCOL = "ETTR_ELASTIC_PROTOCOL"
# Raised whenever keys or what stands under them change their meaning.
PROTOCOL = "5"
_MOST_STEPS = (1 << 63) - 1


class Cause(StrEnum):
    """Why a generation began."""

    START = "start"
    DIED = "died"
    HUNG = "hung"
    NETWORK = "network"  # collectives failed though no process died


@dataclass(frozen=True, slots=True)
class Membership:
    """One generation: which worker holds each slot, and what ended the generation before.

    Attributes:
        nodes: The node of each slot's worker; empty: all are on one machine.
        local_ranks: The place of each slot's worker on its node, which it keeps; empty: the slot.
        buddy_stride: The buddy of a slot is so many slots further on. One number for the whole
            run, because what a buddy holds must stay its predecessor's.
    """

    generation: int
    workers: tuple[str, ...]
    lost: tuple[int, ...] = ()
    cause: Cause = Cause.START
    noticed_s: float = 0.0
    hung_s: float = 0.0
    nodes: tuple[str, ...] = ()
    local_ranks: tuple[int, ...] = ()
    buddy_stride: int = 1

    @property
    def world(self) -> int:
        """Number of slots."""
        return len(self.workers)

    def node_of(self, slot: int) -> str:
        """The node of a slot; on one machine an empty name."""
        return self.nodes[slot] if self.nodes else ""

    def slot_of(self, worker: str) -> int | None:
        """The slot that a worker holds; None: it is a spare, or was replaced."""
        return self.workers.index(worker) if worker in self.workers else None

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Membership:
        """The membership that `to_json` wrote."""
        raw = json.loads(text)
        for name in ("workers", "lost", "nodes", "local_ranks"):
            raw[name] = tuple(raw[name])
        raw["cause"] = Cause(raw["cause"])
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's sign of life."""

    count: int = 0
    step: int = -1
    generation: int = 0
    collective_s: float = 0.0

    def to_text(self) -> str:
        """As it is in the store."""
        return f"{self.count}:{self.step}:{self.generation}:{self.collective_s!r}"

    @classmethod
    def from_text(cls, text: str | bytes) -> Heartbeat | None:
        """The heartbeat that `to_text` wrote; None for anything else, as a stranger may write."""
        try:
            decoded = text.decode() if isinstance(text, bytes) else text
            count, step, generation, collective_s = decoded.split(":")
            found = cls(int(count), int(step), int(generation), float(collective_s))
        except ValueError:
            return None
        is_step = -1 <= found.step <= _MOST_STEPS
        return found if is_step and math.isfinite(found.collective_s) else None


def check_protocol(of_supervisor: str | None) -> None:
    """Refuse a supervisor of another version of ettr."""
    if of_supervisor != PROTOCOL:
        raise UsageError(
            f"the supervisor has version {of_supervisor or '1'} of the elastic protocol and this "
            f"rank has version {PROTOCOL}: run `ettr elastic` and the script with the same ettr"
        )


def membership_key(generation: int) -> str:
    """Where the membership of a generation is."""
    return f"ettr/membership/{generation}"


def heartbeat_key(worker: str) -> str:
    """Where a worker leaves its heartbeats."""
    return f"ettr/heartbeat/{worker}"


def failed_key(generation: int, worker: str) -> str:
    """Set by a worker whose collective of a generation failed."""
    return f"ettr/failed/{generation}/{worker}"


def own_error_key(worker: str) -> str:
    """Where a worker leaves an error of the script's own; empty: a new generation has begun."""
    return f"ettr/own-error/{worker}"


def trained_key(generation: int, slot: int) -> str:
    """Set by a rank that has trained to the end; `STOPPED` and the step where it was asked to."""
    return f"ettr/trained/{generation}/{slot}"


def waiting_key(generation: int) -> str:
    """Set by the supervisor while no node is there for the slots that a generation has lost."""
    return f"ettr/waiting/{generation}"


def done_key(generation: int) -> str:
    """Set by the supervisor once all ranks have, and no generation follows this one."""
    return f"ettr/done/{generation}"
