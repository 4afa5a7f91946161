"""The planner at failure time: replica, partial, composite or rollback, by their predicted costs.

It takes the reports of the ranks and returns a choice with its reasons. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ettr.errors import UsageError, refuse
from ettr.recovery.restore_costs import RestorePrior, RestoreTimings, RunTimings, predicted_s


class RecoverySource(StrEnum):
    """The source of a lost shard, in the order of preference between equals.

    PARTIAL restores lost shards and keeps those that survive. COMPOSITE restores every shard from
    the running checkpoint, since no shard survives: blocks of mixed ages, a state that no step had.
    """

    REPLICA = "replica"
    PARTIAL = "partial"
    ROLLBACK = "rollback"
    COMPOSITE = "composite"


# Until a restore was timed. The rates are below what two busy cores reached with 0.4 GB (a copy
# between processes, a verified read of the running checkpoint, DCP): a guess is rather too slow.
RESTORE_PRIORS: Mapping[RecoverySource, RestorePrior] = {
    RecoverySource.REPLICA: RestorePrior(latency_s=0.05, bytes_per_s=1e9),
    RecoverySource.PARTIAL: RestorePrior(latency_s=0.1, bytes_per_s=1e9),
    RecoverySource.ROLLBACK: RestorePrior(latency_s=0.2, bytes_per_s=5e8),
    RecoverySource.COMPOSITE: RestorePrior(latency_s=0.1, bytes_per_s=1e9),
}
REGROUP_PRIOR_S = 1.0
STEP_PRIOR_S = 1.0


@dataclass(frozen=True, slots=True)
class Situation:
    """The copies that are left when a rank is lost. Steps are training steps done.

    Attributes:
        replica_step: Newest step of which every shard is in some rank's memory; None: no such
            step.
        stale_steps: Mean age of the lost shard's copies in the running checkpoint, in steps; None:
            no running checkpoint covers the shard.
        full_step: Step of the newest full checkpoint; 0 where only the initial state is left; None
            where not even that may be used.
        survivors: Whether any shard survives; without, `stale_steps` is the age of every shard.
    """

    reached_step: int
    replica_step: int | None = None
    stale_steps: float | None = None
    relative_perturbation: float | None = None
    full_step: int | None = 0
    lost_fraction: float = 1.0
    survivors: bool = True


@dataclass(frozen=True, slots=True)
class RecoveryTimes:
    """Times that the run has measured, or the guess for those it has not, in seconds.

    regroup_s: survivors and a warm spare form a new group. restart_s: the cost of a rollback in
    addition to the lost steps: the same regrouping with survivors, a restart of the job without.
    """

    step_s: float
    regroup_s: float = 0.0
    replica_restore_s: float = 0.0
    partial_restore_s: float = 0.0
    full_restore_s: float = 0.0
    restart_s: float = 0.0
    composite_restore_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """The sources that may be chosen, and the assumed cost of a stale shard.

    Attributes:
        allowed: Sources that may be used; the composite only where it is named.
        iteration_cost_share: Iterations that a partial recovery costs, as a share of the mean age
            of the restored blocks. 0.3 was measured on one small transformer with AdamW, a tuned
            learning rate and a quarter lost; up to 0.7 with an untuned one. `ettr
            measure-recovery` measures both on your model.
        composite_cost_share: The same where every shard is restored; not measured, but twice the
            other: for all shards ‖δ‖ is √4 times what it is for a quarter of them.
        contraction: Factor c, 0 < c < 1, by which one iteration shortens the distance ‖x − x*‖ to
            the optimum; with it, and a known perturbation, the bound of `iteration_cost` counts
            where it is the larger of the two predictions.
        relative_distance: ‖x − x*‖/‖x‖ for that bound; 1 where nothing better is known.
        max_relative_perturbation: Above it no partial recovery; nor where the perturbation is not
            known and `max_stale_steps` is not set.
        max_stale_steps: Partial recovery only from copies younger than this on the mean.
        priors: Assumed time of a restore from each source, until one was timed.
    """

    allowed: tuple[RecoverySource, ...] = (
        RecoverySource.REPLICA,
        RecoverySource.PARTIAL,
        RecoverySource.ROLLBACK,
    )
    iteration_cost_share: float = 0.3
    composite_cost_share: float = 0.6
    contraction: float | None = None
    relative_distance: float = 1.0
    max_relative_perturbation: float = 0.1
    max_stale_steps: float | None = None
    priors: Mapping[RecoverySource, RestorePrior] = field(
        default_factory=lambda: dict(RESTORE_PRIORS)
    )

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: a value is out of range; all problems at once."""
        problems = []
        if not self.allowed:
            problems.append("allowed: nothing was given; name one source or more")
        for name in ("iteration_cost_share", "composite_cost_share", "max_relative_perturbation"):
            if not getattr(self, name) >= 0:
                problems.append(f"{name}: {getattr(self, name)}; it is 0 or more")
        lacking = [source for source in RecoverySource if source not in self.priors]
        if lacking:
            problems.append(f"priors: none for {', '.join(lacking)}; give one for each source")
        if self.contraction is not None and not 0 < self.contraction < 1:
            problems.append(f"contraction: {self.contraction}; it lies between 0 and 1")
        if not self.relative_distance > 0:
            problems.append(f"relative_distance: {self.relative_distance}; it lies above 0")
        refuse("recovery policy", problems)


@dataclass(frozen=True, slots=True)
class RecoveryOption:
    """One way to recover and its predicted cost.

    steps: training steps until the run is where it was: steps done again, or the iteration cost of
    a perturbation. refused: why it may not be taken; None: it may.
    """

    source: RecoverySource
    cost_s: float
    steps: float
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice, every possible option, and the reason in words."""

    choice: RecoverySource
    options: tuple[RecoveryOption, ...]
    reason: str


def decide(situation: Situation, measured: RecoveryTimes, policy: RecoveryPolicy) -> Decision:
    """The cheapest option that is allowed, and all options.

    Raises:
        UsageError: nothing that the policy allows is possible.
    """
    options = tuple(_options(situation, measured, policy))
    open_options = [option for option in options if option.refused is None]
    if not open_options:
        why = "; ".join(f"{o.source}: {o.refused}" for o in options) or "no copy is left"
        raise UsageError(
            f"no way to recover: {why}; allow another source, or start the run from a checkpoint "
            "of your own"
        )
    order = list(RecoverySource)
    best = min(open_options, key=lambda o: (o.cost_s, order.index(o.source)))
    return Decision(best.source, options, _reason(best, options))


def recovery_times(
    timed: RunTimings,
    *,
    lost_bytes: int,
    total_bytes: int,
    policy: RecoveryPolicy,
) -> RecoveryTimes:
    """The planner's times for a failure of this size, from measured times and the priors."""

    def restore_s(source: RecoverySource, n_bytes: int) -> float:
        of_source = timed.restores.get(str(source), RestoreTimings())
        return predicted_s(n_bytes, of_source, policy.priors[source])

    regroup_s = REGROUP_PRIOR_S if timed.regroup_s is None else timed.regroup_s
    return RecoveryTimes(
        step_s=timed.step_s or STEP_PRIOR_S,
        regroup_s=regroup_s,
        replica_restore_s=restore_s(RecoverySource.REPLICA, lost_bytes),
        partial_restore_s=restore_s(RecoverySource.PARTIAL, lost_bytes),
        full_restore_s=restore_s(RecoverySource.ROLLBACK, total_bytes),
        restart_s=regroup_s,
        composite_restore_s=restore_s(RecoverySource.COMPOSITE, total_bytes),
    )


def iteration_cost(
    stale_steps: float, relative_perturbation: float | None, policy: RecoveryPolicy
) -> float:
    """Predicted iterations that a partial recovery costs.

    The larger of a measured share of the age of the restored blocks (see `RecoveryPolicy`) and,
    where the contraction c is known, the bound log(1 + ‖δ‖/‖x − x*‖)/log(1/c).

    **Source**: if every iteration brings x nearer to the optimum x*, ‖f(x) − x*‖ ≤ c ‖x − x*‖, then
    after a perturbation δ it takes at most that many to be as near as before: ‖x + δ − x*‖ c^k ≤
    ‖x − x*‖. Iteration cost is defined by Qiao, Aragam, Zhang, Xing (2019), "Fault Tolerance in
    Iterative-Convergent Machine Learning", ICML; the derivation is in
    reproduction/scar/THEORY.md.
    """
    predicted = policy.iteration_cost_share * stale_steps
    if policy.contraction is None or relative_perturbation is None:
        return predicted
    relative = relative_perturbation / policy.relative_distance
    return max(predicted, math.log1p(relative) / -math.log(policy.contraction))


def predicted_perturbation(own_relative: Sequence[float], lost_fraction: float) -> float | None:
    """Predicted ‖δ‖/‖x‖ of a partial recovery, from the survivors' own ‖live − saved‖/‖live‖.

    The lost values cannot be known; by symmetry the survivors' distances from *their* copies are
    used, and a lost fraction p of equal shards carries √p of the whole. None without survivors.

    **Source**: each element is lost with probability p, so E‖δ'‖² = Σ p δ_i² = p‖δ‖²; see
    reproduction/scar/THEORY.md.
    """
    if not own_relative:
        return None
    mean_square = sum(value * value for value in own_relative) / len(own_relative)
    return math.sqrt(mean_square * lost_fraction)


def _options(
    situation: Situation, measured: RecoveryTimes, policy: RecoveryPolicy
) -> Iterator[RecoveryOption]:
    """What the copies that are left make possible, allowed or not."""
    reached, stale = situation.reached_step, situation.stale_steps
    restart_s = max(measured.restart_s, measured.regroup_s)

    def option(
        source: RecoverySource, stopped_s: float, steps: float, ceiling: str | None = None
    ) -> RecoveryOption:
        refused = None if source in policy.allowed else "the policy does not allow it"
        return RecoveryOption(
            source, stopped_s + steps * measured.step_s, steps, refused or ceiling
        )

    if situation.replica_step is not None:
        stopped_s = measured.regroup_s + measured.replica_restore_s
        yield option(RecoverySource.REPLICA, stopped_s, max(0, reached - situation.replica_step))
    if stale is not None:
        ceiling, relative = _over_ceiling(situation, policy), situation.relative_perturbation
        if situation.survivors:
            stopped_s = measured.regroup_s + measured.partial_restore_s
            steps = iteration_cost(stale, relative, policy)
            yield option(RecoverySource.PARTIAL, stopped_s, steps, ceiling)
        else:
            stopped_s = restart_s + measured.composite_restore_s
            share = replace(policy, iteration_cost_share=policy.composite_cost_share)
            steps = iteration_cost(stale, relative, share)
            yield option(RecoverySource.COMPOSITE, stopped_s, steps, ceiling)
    if situation.full_step is not None:
        stopped_s = restart_s + measured.full_restore_s
        yield option(RecoverySource.ROLLBACK, stopped_s, max(0, reached - situation.full_step))


def _over_ceiling(situation: Situation, policy: RecoveryPolicy) -> str | None:
    stale, relative = situation.stale_steps, situation.relative_perturbation
    if policy.max_stale_steps is not None and stale is not None and stale > policy.max_stale_steps:
        return f"copies are {stale:.3g} steps old, over the ceiling of {policy.max_stale_steps:g}"
    if relative is None:
        if policy.max_stale_steps is None:
            return "the perturbation is not known and max_stale_steps is not set"
        return None
    if not relative <= policy.max_relative_perturbation:  # NaN is over any ceiling
        return (
            f"a perturbation of {relative:.2g} of the parameters' norm, over the ceiling of "
            f"{policy.max_relative_perturbation:g}"
        )
    return None


def _reason(best: RecoveryOption, options: Sequence[RecoveryOption]) -> str:
    units = {RecoverySource.REPLICA: "steps done again", RecoverySource.ROLLBACK: "steps lost"}
    unit = units.get(best.source, "iterations predicted")
    clauses = [f"{best.source}: {best.cost_s:.3g} s, {best.steps:.3g} {unit}"]
    for option in options:
        if option is not best:
            tail = f" ({option.refused})" if option.refused else ""
            clauses.append(f"{option.source} {option.cost_s:.3g} s{tail}")
    return "; ".join(clauses)
