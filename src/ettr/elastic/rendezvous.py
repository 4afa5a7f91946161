"""Who belongs to a generation, and the names under which supervisor and workers tell each other.

Standard library only. All keys live in the supervisor's store; what the ranks of one generation
exchange among themselves lies below `gen<number>/`, so that a process of an earlier generation
cannot meet a later one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

GENERATION = "ettr/generation"
ENV_STORE = "ETTR_ELASTIC_STORE"
ENV_WORKER = "ETTR_ELASTIC_WORKER"


@dataclass(frozen=True, slots=True)
class Membership:
    """One generation: which worker holds each slot, and what ended the generation before.

    workers: worker names in the order of the slots. lost: slots whose worker is new. cause: why
    the generation began: `start`, `died`, `hung`, or `network`. noticed_s: Unix seconds at which
    the supervisor noticed; hung_s: seconds without a sign of life before that.
    """

    generation: int
    workers: tuple[str, ...]
    lost: tuple[int, ...] = ()
    cause: str = "start"
    noticed_s: float = 0.0
    hung_s: float = 0.0

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
        raw["workers"], raw["lost"] = tuple(raw["workers"]), tuple(raw["lost"])
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker's sign of life.

    count: of its signs. step: the last that it made; -1: none. generation: the one that its loop is
    in; 0: none. collective_s: for how long its collectives wait without an answer.
    """

    count: int = 0
    step: int = -1
    generation: int = 0
    collective_s: float = 0.0

    def to_text(self) -> str:
        """As it stands in the store."""
        return f"{self.count}:{self.step}:{self.generation}:{self.collective_s!r}"

    @classmethod
    def from_text(cls, text: str | bytes) -> Beat:
        """The sign of life that `to_text` wrote."""
        told = text.decode() if isinstance(text, bytes) else text
        count, step, generation, collective_s = told.split(":")
        return cls(int(count), int(step), int(generation), float(collective_s))


def membership_key(generation: int) -> str:
    """Where the membership of a generation is."""
    return f"ettr/membership/{generation}"


def beat_key(worker: str) -> str:
    """Where a worker leaves its signs of life (`Beat`)."""
    return f"ettr/beat/{worker}"


def failed_key(generation: int, worker: str) -> str:
    """Where a worker says that a collective of a generation failed it."""
    return f"ettr/failed/{generation}/{worker}"


def finished_key(generation: int, slot: int) -> str:
    """Where a rank says that it has trained to the end."""
    return f"ettr/finished/{generation}/{slot}"


def done_key(generation: int) -> str:
    """Where the supervisor says that all ranks have, and that no generation follows this one."""
    return f"ettr/done/{generation}"
