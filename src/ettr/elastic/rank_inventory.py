"""What each rank holds when a generation begins, and the report of what was recovered from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ettr.elastic.ring import RingAddress
from ettr.recovery import Decision, RecoveryPolicy, RecoveryTimes, RunTimings, recovery_times
from ettr.recovery.restore_costs import combined_timings


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a generation began with.

    Attributes:
        source: `start`, `replica`, `partial`, `rollback`; where no process had lived, `composite`
            or `resume` (a full checkpoint).
        reached_step: The furthest step of a survivor before; where none lived, of a block in the
            running checkpoint, if that was read. -1 at a start.
    """

    generation: int
    source: str
    step: int
    reached_step: int = -1
    lost_slots: tuple[int, ...] = ()
    stale_steps: float | None = None
    oldest_step: int | None = None
    relative_perturbation: float | None = None
    decision: Decision | None = None
    restore_s: float = 0.0
    source_s: float = 0.0
    source_bytes: int = 0
    fingerprint_before: str | None = None
    fingerprint_after: str | None = None

    @property
    def lost_steps(self) -> int:
        """Steps that were done and are done again."""
        return max(0, self.reached_step - self.step)


@dataclass(frozen=True, slots=True)
class Holdings:
    """One rank's message: what it holds.

    Attributes:
        live: Step of its live shard; None: it has none.
        region: Names which parts of which tensors it holds; None: it alone has its values.
    """

    live: int | None
    own: list[int]
    neighbour: list[int]
    n_bytes: int
    full: list[int]
    timed: dict[str, Any]
    noted: dict[str, Any] | None
    address: RingAddress | None
    region: str | None = None
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class RankInventory:
    """What all ranks hold, by slot; the same on every rank."""

    live: tuple[int | None, ...]
    own: tuple[frozenset[int], ...]
    neighbour: tuple[frozenset[int], ...]
    sizes: tuple[int, ...]
    full: tuple[int, ...]
    timed: RunTimings
    buddy_stride: int = 1
    parity_groups: tuple[tuple[int, ...], ...] = ()
    regions: tuple[str | None, ...] = ()

    @classmethod
    def of(
        cls,
        ranks: Sequence[Holdings],
        buddy_stride: int = 1,
        parity_groups: tuple[tuple[int, ...], ...] = (),
    ) -> RankInventory:
        """From the messages of all ranks, in the order of the slots."""
        survivors = [rank for rank in ranks if rank.live is not None] or ranks
        timed = combined_timings(RunTimings.from_dict(rank.timed) for rank in survivors)
        if timed.step_s is None:  # none has lived: what the first rank found on the disk
            timed = combined_timings(
                RunTimings.from_dict(rank.noted or rank.timed) for rank in ranks
            )
        differing = {
            a.region
            for a, b in combinations(survivors, 2)
            if (a.region, a.live) == (b.region, b.live) and a.checksum != b.checksum
        }
        seen_by_all = set.intersection(*(set(rank.full) for rank in ranks))
        return cls(
            tuple(rank.live for rank in ranks),
            tuple(frozenset(rank.own) for rank in ranks),
            tuple(frozenset(rank.neighbour) for rank in ranks),
            tuple(rank.n_bytes for rank in ranks),
            tuple(sorted(seen_by_all, reverse=True)),
            timed,
            buddy_stride,
            parity_groups,
            tuple(None if rank.region in differing else rank.region for rank in ranks),
        )

    @property
    def world(self) -> int:
        """Number of slots."""
        return len(self.live)

    @property
    def lost(self) -> tuple[int, ...]:
        """Slots of which no process lives."""
        return tuple(slot for slot in range(self.world) if self.live[slot] is None)

    @property
    def reached(self) -> int:
        """The furthest step of a survivor; -1: there is none."""
        return max((step for step in self.live if step is not None), default=-1)

    @property
    def apart(self) -> int:
        """Steps from the last survivor to the furthest; more than 1: a rollback was broken off."""
        return self.reached - min((step for step in self.live if step is not None), default=-1)

    @property
    def lost_bytes(self) -> int:
        """Bytes of the lost shards."""
        return sum(self.sizes[slot] for slot in self.lost)

    @property
    def total_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(self.sizes)

    @property
    def whole_job(self) -> bool:
        """Whether no process lives and no memory is left."""
        return all(live is None for live in self.live) and self.common_step() is None

    def measured(self, policy: RecoveryPolicy) -> RecoveryTimes:
        """Times for the planner."""
        return recovery_times(
            self.timed, lost_bytes=self.lost_bytes, total_bytes=self.total_bytes, policy=policy
        )

    def has(self, slot: int, step: int) -> bool:
        """Whether the process of a slot holds its own shard of a step."""
        return step in self._of_process(slot)

    def held(self, slot: int) -> frozenset[int]:
        """Steps of a slot that are in some memory."""
        own = self._of_process(slot)
        if replicas := self.replicas_of(slot):
            live = {self.live[other] for other in replicas}
            return own | {step for step in live if step is not None}
        for group in self.parity_groups:
            if slot in group:
                others = [other for other in group if other != slot]
                held = (self._of_process(other) & self.neighbour[other] for other in others)
                return own | frozenset.intersection(*held)
        return own | self.neighbour[(slot + self.buddy_stride) % self.world]

    def replicas_of(self, slot: int) -> tuple[int, ...]:
        """Other slots that hold the same values, where these are live."""
        region = self.regions[slot] if self.regions else None
        others = [other for other in range(self.world) if other != slot]
        return tuple(o for o in others if region is not None and self.regions[o] == region)

    def _of_process(self, slot: int) -> frozenset[int]:
        live = self.live[slot]
        return self.own[slot] if live is None else self.own[slot] | {live}

    def common_step(self) -> int | None:
        """The newest step that is held of every slot; None: there is none."""
        steps = frozenset.intersection(*(self.held(slot) for slot in range(self.world)))
        return max(steps, default=None)
