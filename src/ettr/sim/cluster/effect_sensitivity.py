"""What the effect of a change owes to the assumed values of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.sim.cluster.outcome import ClusterHours
from ettr.sim.cluster.replay import DRAWN, Replay, check_replay
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.sensitivity import (
    ValueEffect,
    VariedValue,
    after_name,
    largest_change,
    no_such_value,
    ranked_effects,
    varied_values,
)
from ettr.sim.cluster.unread import is_simulated_alike, why_alike
from ettr.sim.cluster.whatif import (
    WhatIf,
    changed_scenario,
    check_seeds,
    hours_of,
    interval_of_changes,
)
from ettr.sim.sweeps import results_of


@dataclass(frozen=True, slots=True)
class EffectSensitivity:
    """What the GPU-hours that each change wins back owe to each assumed value.

    Attributes:
        seeds: Of the runs; the same with and without each change, and at each value.
        confidence: Of each interval by itself.
        simulations: How many there were.
        effects: The one that is shown to move a change most first; `headline` is the change, and
            the differences are those of the GPU-hours it wins back to what it wins with the
            scenario as it is.
        not_varied: Assumed values that were not varied, each with why.
    """

    seeds: tuple[int, ...]
    confidence: float
    simulations: int
    effects: tuple[ValueEffect, ...]
    not_varied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariedWhatIf(WhatIf):
    """Changes of a scenario, with what each owes to the assumed values.

    Attributes:
        sensitivity: What the GPU-hours won back owe to them; None where that was not asked for.
    """

    sensitivity: EffectSensitivity | None = None


def with_effects(found: WhatIf, sensitivity: EffectSensitivity | None) -> VariedWhatIf:
    """The same answer, with what it owes to the assumed values if that is known."""
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    return VariedWhatIf(**values, sensitivity=sensitivity)


@dataclass(frozen=True, slots=True)
class EffectPlan:
    """The scenarios that the answer takes.

    Attributes:
        changes: As typed.
        pairs: The scenario as it is and with each change; then the same for each varied side.
        varied: The values, and for less and more the place of theirs in `pairs`, if there is one.
        not_varied: Assumed values that cannot be varied, each with why.
    """

    changes: tuple[str, ...]
    pairs: tuple[tuple[ClusterScenario, ...], ...]
    varied: tuple[tuple[VariedValue, tuple[int | None, int | None]], ...]
    not_varied: tuple[str, ...]

    def simulations(self, seeds: int) -> int:
        """How many simulations that takes."""
        return seeds * sum(len(one) for one in self.pairs)


def effect_plan(
    scenario: ClusterScenario,
    changes: Sequence[str],
    patterns: Sequence[str] = ("*",),
    replay: Replay = DRAWN,
) -> EffectPlan:
    """What has to be simulated.

    Args:
        scenario: As it is.
        changes: As `what_if` has them.
        patterns: Which values, as the shell writes patterns.
        replay: Jobs and faults from logs.

    Raises:
        UsageError: a change cannot be made, or no assumed value of such a name can be varied.
    """
    varied, not_varied = varied_values(scenario, patterns, replay, alone=False)
    pairs = [(scenario, *(changed_scenario(scenario, change) for change in changes))]
    placed: list[tuple[VariedValue, tuple[int | None, int | None]]] = []
    for one in varied:
        places: list[int | None] = []
        reason = ""
        for side in one.sides:
            made = None if side is None else _with_changes(side[1], changes, replay)
            if made and not isinstance(made, str) and _are_alike(pairs[0], made, replay):
                made = _why_unread(scenario, one.name, made[0], replay)
            if made is None or isinstance(made, str):
                reason = reason or made or ""
                places.append(None)
            else:
                places.append(len(pairs))
                pairs.append(made)
        less, more = places
        if less is None and more is None:
            not_varied.append(f"{one.name}: {reason}")
        else:
            kept = tuple(
                None if at is None else side for at, side in zip(places, one.sides, strict=True)
            )
            placed.append((replace(one, sides=kept), (less, more)))  # type: ignore[arg-type]
    if not placed:
        raise no_such_value(scenario, patterns, not_varied)
    return EffectPlan(tuple(changes), tuple(pairs), tuple(placed), tuple(not_varied))


def effect_sensitivity(
    plan: EffectPlan,
    seeds: Sequence[int],
    *,
    workers: int = 1,
    replay: Replay = DRAWN,
    confidence: float = CONFIDENCE,
    progress: Callable[[int], None] | None = None,
) -> EffectSensitivity:
    """Simulate each change under each assumed value halved and made half larger.

    Args:
        plan: What is simulated.
        seeds: Of the runs, 3 or more.
        workers: Simulations at once (`results_of`).
        replay: Jobs and faults from logs, those of the plan.
        confidence: Of the intervals.
        progress: Called now and then with the number of runs so far.

    Raises:
        UsageError: too few seeds.
    """
    check_seeds(seeds)
    tasks = [(one, seed, replay) for pair in plan.pairs for one in pair for seed in seeds]
    flat = results_of(hours_of, tasks, workers, progress)
    n, width = len(seeds), 1 + len(plan.changes)
    won = [_won(flat[at : at + n * width], n) for at in range(0, len(flat), n * width)]
    effects: list[ValueEffect] = []
    for k, change in enumerate(plan.changes):

        def moved(at: int | None, which: int = k) -> Interval | None:
            if at is None:
                return None
            moves = [b - a for a, b in zip(won[0][which], won[at][which], strict=True)]
            return interval_of_changes(moves, confidence)

        found = [(one, (moved(less), moved(more))) for one, (less, more) in plan.varied]
        effects += ranked_effects(change, found)
    effects.sort(key=lambda one: (-one.shown_change, -largest_change(one)))
    return EffectSensitivity(
        tuple(seeds),
        confidence,
        len(tasks),
        tuple(replace(one, rank=at + 1) for at, one in enumerate(effects)),
        plan.not_varied,
    )


def _won(runs: Sequence[ClusterHours], n: int) -> list[list[float]]:
    """GPU-hours that each change wins back, by seed; the first runs are those without any."""
    base, *others = (runs[at : at + n] for at in range(0, len(runs), n))
    return [
        [a.wasted_gpu_hours - b.wasted_gpu_hours for a, b in zip(base, one, strict=True)]
        for one in others
    ]


def _are_alike(
    pair: Sequence[ClusterScenario], other: Sequence[ClusterScenario], replay: Replay
) -> bool:
    return all(is_simulated_alike(a, b, replay) for a, b in zip(pair, other, strict=True))


def _why_unread(
    scenario: ClusterScenario, name: str, other: ClusterScenario, replay: Replay
) -> str:
    """Why a value has no effect, by its name as it is shown: `faults[1].form`."""
    group, value = name.partition(".")[0].partition("[")[0], name.rpartition(".")[2]
    named = f"{group}.{value}"
    return after_name(named, why_alike(scenario, other, named, replay))


def _with_changes(
    scenario: ClusterScenario, changes: Sequence[str], replay: Replay
) -> tuple[ClusterScenario, ...] | str:
    """A scenario as it is and with each change; why not, where one cannot be."""
    try:
        made = tuple(changed_scenario(scenario, change) for change in changes)
        for one in made:
            check_replay(one, replay)
    except UsageError as error:
        return str(error).splitlines()[-1].strip()
    return (scenario, *made)
