"""The planner at failure time: replica, partial recovery or rollback, by what each will cost.

Nothing here knows torch: it takes what the ranks report and returns a choice with its reasons, and
turns measured times into a plan. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ettr.errors import UsageError
from ettr.plan.intervals import exact_interval_s
from ettr.plan.run import PlannedRun
from ettr.units import SECONDS_PER_DAY


class Source(StrEnum):
    """Where a lost shard comes from, in the order of preference between equals."""

    REPLICA = "replica"
    PARTIAL = "partial"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Situation:
    """What is at hand when a rank is lost. Steps are training steps done.

    Attributes:
        reached_step: The furthest step of a survivor.
        replica_step: Newest step of which every shard lives in some memory; None: no such step.
        stale_steps: Mean age of the lost shard's copies in the running checkpoint, in steps; None:
            there is none, or it does not cover the shard.
        relative_perturbation: Predicted ‖δ‖/‖x‖ of a partial recovery over all parameters; None:
            not known.
        full_step: Step of the newest full checkpoint; 0 where only the initial state is left; None
            where not even that may be used.
        lost_fraction: Share of the state that was lost.
    """

    reached_step: int
    replica_step: int | None = None
    stale_steps: float | None = None
    relative_perturbation: float | None = None
    full_step: int | None = 0
    lost_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Times that the run has measured, or the guess for those it has not, in seconds.

    regroup_s: survivors and a warm spare form a new group. restart_s: what a rollback costs beside
    the lost steps; the same regrouping where survivors live, a restart of the job where not.
    """

    step_s: float
    regroup_s: float = 0.0
    replica_restore_s: float = 0.0
    partial_restore_s: float = 0.0
    full_restore_s: float = 0.0
    restart_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """What may be chosen, and what a stale shard is thought to cost.

    Attributes:
        allowed: Sources that may be used.
        iteration_cost_share: Iterations that a partial recovery costs, as a share of the mean age
            of what it restores. 0.3 was seen on one small transformer with AdamW, a tuned learning
            rate and a quarter lost; up to 0.7 with an untuned one. Measure it on your model.
        contraction: Rate c of the run (`theory.estimate_contraction`), 0 < c < 1; with it, and a
            known perturbation, the bound log(1 + ‖δ‖/‖x − x*‖)/log(1/c) takes part: the larger
            of the two predictions counts.
        relative_distance: ‖x − x*‖/‖x‖ for that bound; 1 where nothing better is known.
        max_relative_perturbation: Above it no partial recovery; so too where the perturbation is
            not known and `max_stale_steps` is not set.
        max_stale_steps: Partial recovery only from copies younger than this, on the mean.
    """

    allowed: tuple[Source, ...] = (Source.REPLICA, Source.PARTIAL, Source.ROLLBACK)
    iteration_cost_share: float = 0.3
    contraction: float | None = None
    relative_distance: float = 1.0
    max_relative_perturbation: float = 0.1
    max_stale_steps: float | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: a value is out of range; all problems at once.
        """
        problems = []
        if not self.allowed:
            problems.append("allowed: nothing was given; name one source or more")
        if not self.iteration_cost_share >= 0:
            problems.append(f"iteration_cost_share: {self.iteration_cost_share}; it is 0 or more")
        if self.contraction is not None and not 0 < self.contraction < 1:
            problems.append(f"contraction: {self.contraction}; it lies between 0 and 1")
        if not self.relative_distance > 0:
            problems.append(f"relative_distance: {self.relative_distance}; it lies above 0")
        if not self.max_relative_perturbation >= 0:
            problems.append(
                f"max_relative_perturbation: {self.max_relative_perturbation}; it is 0 or more"
            )
        if problems:
            raise UsageError("recovery policy: " + "; ".join(problems))


@dataclass(frozen=True, slots=True)
class Option:
    """One way out and its predicted cost.

    steps: training steps that it takes to be where the run was: steps done again, or the iteration
    cost of a perturbation. refused: why it may not be taken; None: it may.
    """

    source: Source
    cost_s: float
    steps: float
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice, every option that there was, and the reason in words."""

    choice: Source
    options: tuple[Option, ...]
    reason: str

    @property
    def avoided_s(self) -> float:
        """Predicted seconds saved against the rollback; 0 where that was chosen or not possible."""
        costs = {option.source: option.cost_s for option in self.options}
        return max(0.0, costs.get(Source.ROLLBACK, 0.0) - costs[self.choice])


def decide(situation: Situation, measured: Measured, policy: RecoveryPolicy) -> Decision:
    """The cheapest option that is allowed, with all options beside it.

    Raises:
        UsageError: nothing that the policy allows is possible.
    """
    options = tuple(
        option
        for option in (
            _replica(situation, measured, policy),
            _partial(situation, measured, policy),
            _rollback(situation, measured, policy),
        )
        if option is not None
    )
    open_options = [option for option in options if option.refused is None]
    if not open_options:
        why = "; ".join(f"{o.source}: {o.refused}" for o in options) or "nothing is at hand"
        raise UsageError(
            f"no way to recover: {why}; allow another source, or start the run from a checkpoint "
            "of your own"
        )
    order = list(Source)
    best = min(open_options, key=lambda o: (o.cost_s, order.index(o.source)))
    return Decision(best.source, options, _reason(best, options))


def iteration_cost(
    stale_steps: float, relative_perturbation: float | None, policy: RecoveryPolicy
) -> float:
    """Predicted iterations that a partial recovery costs.

    Never above the age of what is restored by more than the bound says: the larger of a measured
    share of the age and, where c is known, the anchored bound.

    **Source**: the bound is `ettr.training.theory.anchored_cost`, derived in
    docs/explanation/scar-theory.md; the share is measured (see `RecoveryPolicy`).
    """
    predicted = policy.iteration_cost_share * stale_steps
    if policy.contraction is None or relative_perturbation is None:
        return predicted
    relative = relative_perturbation / policy.relative_distance
    return max(predicted, math.log1p(relative) / -math.log(policy.contraction))


def predicted_perturbation(own_relative: Sequence[float], lost_fraction: float) -> float | None:
    """Predicted ‖δ‖/‖x‖ of a partial recovery, from the survivors' own ‖live − saved‖/‖live‖.

    The lost values cannot be known; by symmetry the survivors' distances from *their* copies stand
    for it, and a lost fraction p of equal shards carries √p of the whole. None without survivors.

    **Source**: E‖δ'‖² = p‖δ‖² for a random lost fraction p
    (`theory.expected_squared_perturbation`).
    """
    if not own_relative:
        return None
    mean_square = sum(value * value for value in own_relative) / len(own_relative)
    return math.sqrt(mean_square * lost_fraction)


def _replica(situation: Situation, measured: Measured, policy: RecoveryPolicy) -> Option | None:
    if situation.replica_step is None:
        return None
    steps = max(0, situation.reached_step - situation.replica_step)
    cost_s = measured.regroup_s + measured.replica_restore_s + steps * measured.step_s
    return Option(Source.REPLICA, cost_s, steps, _not_allowed(Source.REPLICA, policy))


def _partial(situation: Situation, measured: Measured, policy: RecoveryPolicy) -> Option | None:
    if situation.stale_steps is None:
        return None
    relative = situation.relative_perturbation
    steps = iteration_cost(situation.stale_steps, relative, policy)
    cost_s = measured.regroup_s + measured.partial_restore_s + steps * measured.step_s
    refused = _not_allowed(Source.PARTIAL, policy) or _over_ceiling(situation, policy)
    return Option(Source.PARTIAL, cost_s, steps, refused)


def _rollback(situation: Situation, measured: Measured, policy: RecoveryPolicy) -> Option | None:
    if situation.full_step is None:
        return None
    steps = max(0, situation.reached_step - situation.full_step)
    cost_s = max(measured.restart_s, measured.regroup_s)
    cost_s += measured.full_restore_s + steps * measured.step_s
    return Option(Source.ROLLBACK, cost_s, steps, _not_allowed(Source.ROLLBACK, policy))


def _not_allowed(source: Source, policy: RecoveryPolicy) -> str | None:
    return None if source in policy.allowed else "the policy does not allow it"


def _over_ceiling(situation: Situation, policy: RecoveryPolicy) -> str | None:
    stale, relative = situation.stale_steps, situation.relative_perturbation
    if policy.max_stale_steps is not None and stale is not None and stale > policy.max_stale_steps:
        return f"copies are {stale:.3g} steps old, over the ceiling of {policy.max_stale_steps:g}"
    if relative is None:
        if policy.max_stale_steps is None:
            return "the perturbation is not known and max_stale_steps is not set"
        return None
    if relative > policy.max_relative_perturbation:
        return (
            f"a perturbation of {relative:.2g} of the parameters' norm, over the ceiling of "
            f"{policy.max_relative_perturbation:g}"
        )
    return None


def _reason(best: Option, options: Sequence[Option]) -> str:
    words = {
        Source.REPLICA: "steps done again",
        Source.PARTIAL: "iterations predicted",
        Source.ROLLBACK: "steps lost",
    }
    parts = [f"{best.source}: {best.cost_s:.3g} s, {best.steps:.3g} {words[best.source]}"]
    for option in options:
        if option is not best:
            tail = f" ({option.refused})" if option.refused else ""
            parts.append(f"{option.source} {option.cost_s:.3g} s{tail}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Means of what a run has measured of itself, in seconds; None: not met yet.

    save_stall_s: what the loop waited for one checkpoint. restore_s, restart_s: of one recovery.
    """

    step_s: float
    save_stall_s: float | None
    restore_s: float | None
    restart_s: float | None
    saves: int
    recoveries: int


class Measuring:
    """Collects the times of a run as they happen; `run()` are their means."""

    def __init__(self) -> None:
        events = ("step", "save", "restore", "restart")
        self._counts = dict.fromkeys(events, 0)
        self._totals = dict.fromkeys(events, 0.0)

    def add(self, event: str, duration_s: float | None) -> None:
        """Take one event of the progress recorder; others than step, save, restore, restart pass.

        Hand it to the recorder: `listener=lambda e: measuring.add(e.event, e.duration_s)`.
        """
        if event in self._counts and duration_s is not None:
            self._counts[event] += 1
            self._totals[event] += duration_s

    def run(self) -> MeasuredRun:
        """The means so far; a step of 0 s where none was timed."""
        mean = {k: self._totals[k] / n if n else None for k, n in self._counts.items()}
        return MeasuredRun(
            mean["step"] or 0.0,
            mean["save"],
            mean["restore"],
            mean["restart"],
            self._counts["save"],
            self._counts["restart"],
        )


def planned_run(
    measured: MeasuredRun, *, mttf_s: float, interval_s: float, restart_s: float = 0.0
) -> PlannedRun:
    """A run for `ettr.plan` with the times that were measured.

    Args:
        mttf_s: mean time to failure of the whole job, from the analysis or from its own failures.
        interval_s: productive time between checkpoints.
        restart_s: used for the restart where none was met yet.

    Raises:
        UsageError: the MTTF is not above 0, or a time cannot be.
    """
    if not mttf_s > 0:
        raise UsageError(f"mttf_s: {mttf_s} was given; it lies above 0")
    known_s = (measured.restart_s or 0.0) + (measured.restore_s or 0.0)
    return PlannedRun(
        failures_per_node_day=SECONDS_PER_DAY / mttf_s,
        n_nodes=1,
        interval_s=interval_s,
        write_s=measured.save_stall_s or 0.0,
        restart_s=known_s if measured.recoveries else restart_s,
    )


def interval_steps(measured: MeasuredRun, *, mttf_s: float, most_steps: int = 1_000_000) -> int:
    """Steps between checkpoints at which the expected ETTR is largest, 1 at least.

    Args:
        mttf_s: mean time to failure of the whole job.
        most_steps: the answer where saves cost nothing to wait for is 1, where nothing fails this.

    Raises:
        UsageError: no step was timed yet, or the MTTF is not above 0.
    """
    if not measured.step_s > 0:
        raise UsageError("no step has been timed; record steps with their duration first")
    if not mttf_s > 0:
        raise UsageError(f"mttf_s: {mttf_s} was given; it lies above 0")
    best_s = exact_interval_s(measured.save_stall_s or 0.0, mttf_s)
    if math.isinf(best_s):
        return most_steps
    return min(max(1, round(best_s / measured.step_s)), most_steps)
