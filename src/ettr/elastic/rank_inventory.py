"""What the ranks of a generation tell each other before they recover, and what they report then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ettr.recovery.planner import Decision, RecoveryPolicy, RecoveryTimes, recovery_times
from ettr.recovery.restore_costs import RunTimings, combined_timings


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a generation began with.

    Attributes:
        generation: Its number; 1 is the start of the run.
        source: `start`, `replica`, `partial`, `rollback`; where no process had lived, `composite`
            or `resume` (a full checkpoint).
        step: Training steps done; training goes on with the next.
        reached_step: The furthest step of a survivor before; where none lived, of a block in the
            running checkpoint, if that was looked at. -1 at a start.
        lost_slots: Slots whose shard was in no survivor's process.
        stale_steps: Mean age of what was restored from the running checkpoint.
        oldest_step: Oldest step of a block restored from it.
        relative_perturbation: Predicted ‖δ‖/‖x‖ of a partial recovery or a composite.
        decision: The planner's choice and what the others would have cost.
        restore_s: From the formed group to the agreed state.
        source_s: Of that, from the choice on; source_bytes: what it moved on all ranks together.
        fingerprint_before: Hash of this rank's live shard when the failure was met; None: new.
        fingerprint_after: Hash of it when training went on.
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


@dataclass(slots=True)
class Facts:
    """What all ranks said; the same on every rank."""

    live: list[int | None]
    own: list[list[int]]
    mirror: list[list[int]]
    sizes: list[int]
    full: list[int]
    timed: RunTimings
    stale: list[float | None] = field(default_factory=list)
    oldest: list[int | None] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, said: list[dict[str, Any]]) -> Facts:
        """From what each rank said, in the order of the slots."""
        survivors = [one for one in said if one["live"] is not None] or said
        timed = combined_timings(RunTimings.from_dict(one["timed"]) for one in survivors)
        if timed.step_s is None:  # none has lived: what the first rank found on the disk
            timed = combined_timings(
                RunTimings.from_dict(one["noted"] or one["timed"]) for one in said
            )
        seen = set.intersection(*(set(one["full"]) for one in said))
        return cls(
            [one["live"] for one in said],
            [one["own"] for one in said],
            [one["mirror"] for one in said],
            [one["bytes"] for one in said],
            sorted(seen, reverse=True),
            timed,
        )

    @property
    def world(self) -> int:
        """Number of slots."""
        return len(self.live)

    @property
    def lost(self) -> tuple[int, ...]:
        """Slots of which no process lives."""
        return tuple(s for s in range(self.world) if self.live[s] is None)

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
    def whole_job(self) -> bool:
        """Whether no process lives and no memory is left."""
        return all(live is None for live in self.live) and self.common_step() is None

    def measured(self, policy: RecoveryPolicy) -> RecoveryTimes:
        """Times for the planner."""
        return recovery_times(
            self.timed, lost_bytes=self.lost_bytes, total_bytes=sum(self.sizes), policy=policy
        )

    def held(self, slot: int) -> set[int]:
        """Steps of a slot that are in some memory."""
        found = set(self.own[slot]) | set(self.mirror[(slot + 1) % self.world])
        live = self.live[slot]
        return found if live is None else found | {live}

    def common_step(self) -> int | None:
        """The newest step that is held of every slot; None: there is none."""
        steps = set.intersection(*(self.held(slot) for slot in range(self.world)))
        return max(steps, default=None)
