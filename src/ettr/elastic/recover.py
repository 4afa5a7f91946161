"""From a group that was formed anew to one state on which all ranks agree.

Every rank tells what it holds; from the same facts each computes the same choice, so that none has
to lead. Order: some memory (exact), the running checkpoint for the lost shards alone (partial), a
full checkpoint for all (rollback), the state as the script built it. Where no process lives, a full
checkpoint, or the running checkpoint for all shards (composite) if that was allowed.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.restoring import restore
from ettr.checkpoint.state import TrainingState
from ettr.checkpoint.verification import block_ages
from ettr.elastic import full_checkpoint as full
from ettr.elastic import shard_image as images
from ettr.elastic.rank_inventory import Facts, RecoveryReport
from ettr.elastic.shard_history import Keeper
from ettr.recovery import planner as recovery
from ettr.recovery.planner import RecoverySource, Situation
from ettr.recovery.restore_costs import RunTimingsJson, read_timings

if TYPE_CHECKING:
    from ettr.elastic.generation import Generation


class Recovery:
    """One recovery of one rank; `run` returns the report."""

    def __init__(
        self, generation: Generation, state: TrainingState, model: Any, optimizer: Any
    ) -> None:
        self._generation, self._state = generation, state
        self._model, self._optimizer = model, optimizer
        self._keeper: Keeper = generation.keeper
        self._protection = generation.protection
        self._slot = generation.slot
        state.materialise()
        self._pieces = images.pieces_of(state)
        images.reset_step_counts(self._pieces)
        # A rollback may need the state as it was built, and attempts before it write over it.
        self._built = torch.empty(images.image_bytes(self._pieces), dtype=torch.uint8)
        images.take(self._pieces, self._built)
        self._chosen_s = time.monotonic()

    @property
    def pieces(self) -> list[images.Piece]:
        """The rebuilt model's shard."""
        return self._pieces

    def run(self) -> RecoveryReport:
        """Agree, restore, and mirror; every rank of the generation calls it."""
        begin = time.monotonic()
        before = self._fingerprint_before()
        facts = self._gather()
        made = self._resume(facts) if facts.whole_job else self._recover(facts)
        self._guard_anew(facts, made)
        return RecoveryReport(
            **made,
            generation=self._generation.number,
            restore_s=time.monotonic() - begin,
            source_s=time.monotonic() - self._chosen_s,
            fingerprint_before=before,
            fingerprint_after=self._fingerprint(),
        )

    def _fingerprint(self) -> str | None:
        return images.fingerprint(self._pieces) if self._generation.fingerprints else None

    def _fingerprint_before(self) -> str | None:
        # Hashed before the rebuilt model takes it over: this is the shard as the failure left it.
        if self._keeper.live is None or not self._generation.fingerprints:
            return None
        images.put_parts(self._pieces, self._keeper.live)
        return self._fingerprint()

    def _gather(self) -> Facts:
        keeper, protection = self._keeper, self._protection
        said = self._generation.gather(
            "inventory",
            {
                "live": self._live_step(),
                "own": keeper.own.steps,
                "mirror": keeper.mirror.steps,
                "bytes": images.image_bytes(self._pieces),
                "full": full.full_steps(protection.full) if protection.full else [],
                "timed": self._generation.timed.to_dict(),
                "noted": self._noted(),
                "place": self._generation.open_ring(),
            },
        )
        if self._generation.ring is not None:
            self._generation.ring.join([one["place"] for one in said])
        return Facts.of(said)

    def _noted(self) -> RunTimingsJson | None:
        """What a job of which no process lives has timed."""
        folder = self._protection.note_folder
        noted = None if folder is None or not self._keeper.empty else read_timings(folder)
        return None if noted is None else noted.to_dict()

    def _live_step(self) -> int | None:
        keeper = self._keeper
        if keeper.live is None and keeper.own.steps:
            # Parked by this slot's process before it ended: the shard without the process.
            images.put(self._pieces, keeper.own.image_of(keeper.own.steps[0]))
            copies = {k: copy_of(v) for k, v in images.live_parts(self._pieces).items()}
            keeper.live, keeper.live_step = copies, keeper.own.steps[0]
            images.put(self._pieces, self._built)
        return None if keeper.live is None else keeper.live_step

    def _recover(self, facts: Facts) -> dict[str, Any]:
        common = facts.common_step()
        if common is None and facts.apart <= 1:  # else no survivor's shard may stay as it is
            if not facts.lost:
                return self._accept(facts)
            if self._protection.running is not None:
                self._gather_ages(facts)
        relative = recovery.predicted_perturbation(facts.relative, len(facts.lost) / facts.world)
        lost_stale = [stale for stale in (facts.stale or [None]) if stale is not None]
        covered = bool(facts.stale) and all(facts.stale[s] is not None for s in facts.lost)
        situation = Situation(
            reached_step=facts.reached,
            replica_step=common,
            stale_steps=sum(lost_stale) / len(lost_stale) if covered and lost_stale else None,
            relative_perturbation=relative,
            full_step=facts.full[0] if facts.full else 0,
            lost_fraction=len(facts.lost) / facts.world,
        )
        policy = self._protection.recovery
        decision = recovery.decide(situation, facts.measured(policy), policy)
        self._chosen_s = time.monotonic()
        made: dict[str, Any] = {
            "source": str(decision.choice),
            "reached_step": facts.reached,
            "lost_slots": facts.lost,
            "decision": decision,
        }
        if decision.choice is RecoverySource.REPLICA and common is not None:
            self._from_memory(facts, common)
            return made | {"step": common, "source_bytes": facts.lost_bytes}
        if decision.choice is RecoverySource.PARTIAL:
            oldest = self._from_running(facts)
            if oldest is not None:
                return made | {
                    "step": facts.reached,
                    "stale_steps": situation.stale_steps,
                    "oldest_step": oldest,
                    "relative_perturbation": relative,
                    "source_bytes": facts.lost_bytes,
                }
        step = self._from_full(facts)
        moved = sum(facts.sizes) if step else 0
        return made | {"source": "rollback", "step": step, "source_bytes": moved}

    def _accept(self, facts: Facts) -> dict[str, Any]:
        """Nothing was lost, no image is kept: shards that differ by one update go on together."""
        images.put_parts(self._pieces, self._keeper.live or {})
        return {"source": "partial", "step": facts.reached, "reached_step": facts.reached}

    def _from_memory(self, facts: Facts, step: int) -> None:
        """Every rank to one step: its own memory, or its buddy's."""
        keeper = self._keeper
        self._hand_over(facts, step)
        if step in keeper.own.steps:
            # with the random state as the step left it, which has moved on since
            images.put(self._pieces, keeper.own.image_of(step))
        else:
            images.put_parts(self._pieces, keeper.live or {})

    def _hand_over(self, facts: Facts, step: int) -> None:
        for slot in range(facts.world):
            if step in facts.own[slot] or facts.live[slot] == step:
                continue
            buddy = (slot + 1) % facts.world
            if self._slot == buddy:
                self._generation.ring.send("before", step, self._keeper.mirror.image_of(step))
            elif self._slot == slot:
                into = self._keeper.own.room(facts.sizes[slot])
                self._generation.ring.receive("next", step, into)
                self._keeper.own.filled(into, step)

    def _gather_ages(self, facts: Facts) -> None:
        """How old the lost shards' copies are, and how far the survivors are from theirs."""
        lost = self._slot in facts.lost
        root = self._protection.running
        said: dict[str, Any] = {"stale": None, "oldest": None, "relative": None}
        try:
            if lost:
                steps = [age.step for age in block_ages(root, slot=str(self._slot))]  # type: ignore[arg-type]
                known = [step for step in steps if step is not None]
                if known and len(known) == len(steps):
                    said["stale"] = max(0.0, facts.reached - sum(known) / len(known))
                    said["oldest"] = min(known)
            elif self._keeper.live is not None:
                said["relative"] = self._own_distance()
        except CheckpointError:
            pass  # nothing that could be used: the planner is told so
        told = self._generation.gather("ages", said)
        facts.stale = [one["stale"] for one in told]
        facts.oldest = [one["oldest"] for one in told]
        facts.relative = [one["relative"] for one in told if one["relative"] is not None]

    def _own_distance(self) -> float:
        """‖live − saved‖/‖live‖ of this rank's own parameters."""
        live = self._keeper.live or {}
        restore(self._protection.running, self._state, slot=self._slot)  # type: ignore[arg-type]
        apart = norm = 0.0
        for piece in self._pieces:
            if piece.name == "param":
                value = live[(piece.shard.spec.fqn, "param")]
                saved = piece.shard.parameter
                apart += float((value - saved).double().square().sum())
                norm += float(value.double().square().sum())
        return (apart / norm) ** 0.5 if norm else 0.0

    def _from_running(self, facts: Facts) -> int | None:
        """Lost shards from the running checkpoint, the others as they are; None: not possible."""
        oldest: int | None = facts.reached
        if self._slot in facts.lost:
            try:
                report = restore(self._protection.running, self._state, slot=self._slot)  # type: ignore[arg-type]
                oldest = report.oldest_step
            except CheckpointError:
                oldest = None
        elif self._keeper.live is not None:
            images.put_parts(self._pieces, self._keeper.live)
        said = self._generation.gather("restored", {"oldest": oldest})
        if any(one["oldest"] is None for one in said):
            return None
        self._keeper.forget_images()
        return min(int(one["oldest"]) for one in said)

    def _from_full(self, facts: Facts) -> int:
        """All ranks from the newest full checkpoint that is whole; 0: the state as it was built."""
        self._keeper.forget_images()
        images.put(self._pieces, self._built)
        root = self._protection.full
        for step in facts.full if root is not None else []:
            failed = False
            try:
                full.load_full(root, step, self._model, self._optimizer)  # type: ignore[arg-type]
            except (CheckpointError, OSError):
                failed = True
            said = self._generation.gather(f"full-{step}", {"failed": failed})
            if not any(one["failed"] for one in said):
                return step
        images.put(self._pieces, self._built)
        return 0

    def _resume(self, facts: Facts) -> dict[str, Any]:
        """No process has lived: the composite, a full checkpoint, or the state as it was built."""
        moved = sum(facts.sizes)
        made: dict[str, Any] = {"lost_slots": facts.lost}
        found = self._composite(facts) if self._may_compose() else None
        if found is not None:
            policy = self._protection.recovery
            decision = recovery.decide(found.situation, facts.measured(policy), policy)
            made |= {"reached_step": found.situation.reached_step, "decision": decision}
            if decision.choice is RecoverySource.COMPOSITE:
                self._keeper.forget_images()
                return made | {
                    "source": str(RecoverySource.COMPOSITE),
                    "step": found.situation.reached_step,
                    "stale_steps": found.situation.stale_steps,
                    "oldest_step": found.oldest_step,
                    "relative_perturbation": found.situation.relative_perturbation,
                    "source_bytes": moved,
                }
        self._chosen_s = time.monotonic()
        step = self._from_full(facts)
        source = "resume" if step else "start"
        return made | {"source": source, "step": step, "source_bytes": moved if step else 0}

    def _may_compose(self) -> bool:
        allowed = self._protection.recovery.allowed
        return self._protection.running is not None and RecoverySource.COMPOSITE in allowed

    def _composite(self, facts: Facts) -> Composite | None:
        """Every shard from its own running checkpoint, into the live tensors; None: not possible.

        It has to be read before it can be chosen: how far its blocks moved is in them.
        """
        root = self._protection.running
        known = _ages_of(root, self._slot)  # type: ignore[arg-type]
        told = self._generation.gather("composite-ages", {"ages": known})
        if any(one["ages"] is None for one in told):
            return None
        reached = max([*facts.full[:1], *(max(one["ages"]) for one in told)])
        said: dict[str, Any] = {}
        self._chosen_s = time.monotonic()  # reading is part of it, whatever is chosen then
        try:
            report = restore(root, self._state, slot=self._slot, reached_step=reached)  # type: ignore[arg-type]
            moved = report.perturbation
            if moved is not None and not moved.unmeasured:
                delta = max(moved.delta_norm, moved.walk_norm or 0.0)
                said = {"delta": delta, "norm": moved.parameter_norm}
            said["mean"], said["oldest"] = report.mean_step, report.oldest_step
        except CheckpointError:
            said = {"mean": None}
        told = self._generation.gather("composite", said)
        if any(one["mean"] is None for one in told):
            return None
        mean_step = sum(n * one["mean"] for n, one in zip(facts.sizes, told, strict=True))
        situation = Situation(
            reached_step=reached,
            stale_steps=max(0.0, reached - mean_step / sum(facts.sizes)),
            relative_perturbation=_relative(told),
            full_step=facts.full[0] if facts.full else 0,
            survivors=False,
        )
        oldest = min(int(one["oldest"]) for one in told)
        return Composite(situation, oldest)

    def _guard_anew(self, facts: Facts, made: dict[str, Any]) -> None:
        """Every image that should be held of the agreed step is made, where it is not there."""
        keeper, step = self._keeper, made["step"]
        self._generation.sizes = facts.sizes
        if not self._protection.buddy:
            keeper.own.forget()
            keeper.mirror.forget()
        elif made["source"] != str(RecoverySource.REPLICA):
            self._generation.mirror(self._pieces, step)
        else:
            self._mirror_missing(facts, step)
            keeper.own.forget_after(step)
            keeper.mirror.forget_after(step)
        keeper.keep_live(self._pieces, step)

    def _mirror_missing(self, facts: Facts, step: int) -> None:
        keeper, world = self._keeper, facts.world
        if step not in keeper.own.steps:
            keeper.take_own(self._pieces, step)
        if world == 1:
            return
        for slot in range(world):
            buddy = (slot + 1) % world
            if step in facts.mirror[buddy]:
                continue
            if self._slot == slot:
                self._generation.ring.send("next", step, keeper.own.image_of(step))
            elif self._slot == buddy:
                into = keeper.mirror.room(facts.sizes[slot])
                self._generation.ring.receive("before", step, into)
                keeper.mirror.filled(into, step)


@dataclass(frozen=True, slots=True)
class Composite:
    """A state put together of every slot's running checkpoint."""

    situation: Situation
    oldest_step: int


def _ages_of(root: Path, slot: int) -> list[int] | None:
    """Steps of a slot's newest records, each once; None: the slot is not covered."""
    try:
        steps = [age.step for age in block_ages(root, slot=str(slot))]
    except CheckpointError:
        return None
    known = [step for step in steps if step is not None]
    return sorted(set(known)) if known and len(known) == len(steps) else None


def _relative(told: list[dict[str, Any]]) -> float | None:
    """‖δ‖/‖x‖ of all shards together; None: some block's movement is not known."""
    if any("delta" not in one for one in told):
        return None
    norm = math.hypot(*(one["norm"] for one in told))
    return math.hypot(*(one["delta"] for one in told)) / norm if norm > 0 else None


def copy_of(value: Any) -> Any:
    """A tensor's copy; a number as it is."""
    return value.clone() if isinstance(value, torch.Tensor) else value
