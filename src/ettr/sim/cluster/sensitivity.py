"""The sensitivity of answers, and of effects of changes, to a scenario's assumed values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.sim.cluster.run import ClusterHours
from ettr.sim.cluster.scenario import ASKED, ENTRY_KEYS, ClusterScenario, parts_of
from ettr.sim.cluster.standing import SUMS_TO_ONE, ScenarioStanding, standing_of
from ettr.sim.cluster.unread import is_simulated_alike, why_alike
from ettr.sim.cluster.whatif import (
    WhatIf,
    changed_scenario,
    check_seeds,
    difference_interval,
    hours_of,
    interval_of_changes,
    mean_hours,
)
from ettr.sim.cluster.workload import (
    DRAWN,
    Replay,
    check_replay,
    free_writes,
    not_simulated,
    overfull_series,
    replaced_by,
)
from ettr.sim.compiled import results_of

LESS, MORE = 0.5, 1.5
HEADLINES = (
    *("useful_gpu_hours", "lost_gpu_hours", "out_gpu_hours", "failed_attempts", "preemptions"),
    *("held_share", "first_wait_s", "largest_first_wait_s"),
)
"""What is asked for, as `ClusterHours` has it."""


@dataclass(frozen=True, slots=True)
class ValueEffect:
    """What one assumed value does to one headline; differences to the scenario as it is.

    Attributes:
        less: Half of it, or as little as can be; None where that is no scenario.
        shown_change: Size of the larger difference by the end of its interval that is nearer to 0;
            0 where both intervals hold 0 or cannot be estimated.
    """

    headline: str
    rank: int
    value: str
    source: str
    now: float
    less: float | None
    more: float | None
    at_less: Interval | None
    at_more: Interval | None
    shown_change: float


@dataclass(frozen=True, slots=True)
class AssumptionSensitivity:
    """What each headline owes to each assumed value, one value at a time."""

    scenario: str
    days: float
    seeds: tuple[int, ...]
    confidence: float
    simulations: int
    base: ClusterHours
    effects: tuple[ValueEffect, ...]
    not_varied: tuple[str, ...]
    assumed: int
    values: int
    standing: ScenarioStanding
    replayed: tuple[str, ...] = ()
    not_simulated: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VariedValue:
    """An assumed value and the scenarios in which it is smaller and larger."""

    name: str
    source: str
    now: float
    sides: tuple[tuple[float, ClusterScenario] | None, tuple[float, ClusterScenario] | None]


def sensitivity(
    scenario: ClusterScenario,
    seeds: Sequence[int],
    *,
    patterns: Sequence[str] = ("*",),
    workers: int = 1,
    replay: Replay = DRAWN,
    confidence: float = CONFIDENCE,
    progress: Callable[[int], None] | None = None,
) -> AssumptionSensitivity:
    """Simulate a scenario with each assumed value changed by half, on common random numbers.

    Args:
        patterns: Which values, as the shell writes patterns: `faults.*`.

    Raises:
        UsageError: too few seeds, or no assumed value of such a name can be varied.
    """
    check_seeds(seeds)
    varied, not_varied = varied_values(scenario, patterns, replay)
    if not varied:
        raise no_such_value(scenario, patterns, not_varied)
    scenarios = [scenario, *(side[1] for one in varied for side in one.sides if side)]
    tasks = [(one, seed, replay) for one in scenarios for seed in seeds]
    flat = results_of(hours_of, tasks, workers, progress)
    n = len(seeds)
    runs = iter([flat[at : at + n] for at in range(0, len(flat), n)])
    base = next(runs)
    found = [(one, [next(runs) if side else None for side in one.sides]) for one in varied]
    effects: list[ValueEffect] = []
    for headline in HEADLINES:
        effects += _ranked(headline, base, found, confidence)
    return AssumptionSensitivity(
        scenario.name,
        scenario.period.days,
        tuple(seeds),
        confidence,
        len(tasks),
        mean_hours(base),
        tuple(effects),
        tuple(not_varied),
        scenario.n_assumed,
        len(scenario.sources),
        standing_of(scenario, replay.what),
        replay.notes,
        not_simulated(scenario),
        (
            *free_writes(
                scenario, [(one.name, side[1]) for one in varied for side in one.sides[:1] if side]
            ),
            *overfull_series([scenario], replay),
        ),
    )


def no_such_value(
    scenario: ClusterScenario, patterns: Sequence[str], not_varied: Sequence[str]
) -> UsageError:
    """That no assumed value of such a name can be varied."""
    return UsageError(
        f"scenario {scenario.name!r}: no assumed value is called {', '.join(patterns)}"
        + (" and can be varied" if not_varied else "")
        + "; `ettr simulate show` prints the values with their sources"
        + "".join(f"\n  {one}" for one in not_varied)
    )


def n_simulations(
    scenario: ClusterScenario, patterns: Sequence[str], seeds: int, replay: Replay = DRAWN
) -> int:
    """How many simulations that takes."""
    varied, _ = varied_values(scenario, patterns, replay)
    return seeds * (1 + sum(side is not None for one in varied for side in one.sides))


def _ranked(
    headline: str,
    base: Sequence[ClusterHours],
    found: Sequence[tuple[VariedValue, list[list[ClusterHours] | None]]],
    confidence: float,
) -> list[ValueEffect]:
    """The effects of all values on one headline, the one that is shown to be largest first."""

    def difference(runs: Sequence[ClusterHours] | None) -> Interval | None:
        if runs is None:
            return None
        return difference_interval(base, runs, headline, confidence)

    return ranked_effects(
        headline, [(one, (difference(less), difference(more))) for one, (less, more) in found]
    )


def ranked_effects(
    headline: str, changes: Sequence[tuple[VariedValue, tuple[Interval | None, Interval | None]]]
) -> list[ValueEffect]:
    """The effects of values with their differences, the one that is shown to be largest first."""
    made = []
    for one, ends in changes:
        shown = max(max(end.low, -end.high, 0.0) for end in ends if end is not None)
        less, more = (side[0] if side else None for side in one.sides)
        made.append(
            ValueEffect(headline, 0, one.name, one.source, one.now, less, more, *ends, shown)
        )
    made.sort(key=lambda effect: (-effect.shown_change, -largest_change(effect)))
    return [replace(effect, rank=rank + 1) for rank, effect in enumerate(made)]


def largest_change(effect: ValueEffect) -> float:
    """Size of the larger difference, whether or not it is shown."""
    known = [end for end in (effect.at_less, effect.at_more) if end is not None]
    return max(abs(end.estimate or 0.0) for end in known)


def varied_values(
    scenario: ClusterScenario,
    patterns: Sequence[str] = ("*",),
    replay: Replay = DRAWN,
    *,
    alone: bool = True,
) -> tuple[list[VariedValue], list[str]]:
    """The assumed values with their smaller and larger scenarios, and those that have neither.

    Args:
        alone: Nothing else is changed, so that a value that is not read has no effect.
    """
    varied: list[VariedValue] = []
    not_varied: list[str] = []
    for group, at, name, shown in _assumed(scenario):
        if not any(fnmatchcase(shown, pattern) for pattern in patterns):
            continue
        part = _part(scenario, group, at)
        now = getattr(part, name)
        key = f"{group}.{name}" if at is None else f"{group}[{at + 1}].{name}"
        is_fixed = isinstance(now, str) or now == 0 or math.isinf(now)
        if is_fixed and (key not in scenario.sources or ENTRY_KEYS.get(group) == name):
            continue  # what names an entry, or the file leaves out, is no assumption
        if reason := replaced_by(replay, group, name, getattr(part, "symptom", "")):
            not_varied.append(f"{shown}: {reason}")
        elif isinstance(now, str):
            not_varied.append(f"{shown}: is a text")
        elif now == 0 or math.isinf(now):
            not_varied.append(f"{shown}: {now:g} has no half")
        else:
            where = group, at, name
            sides = [_side(scenario, replay, where, factor, alone) for factor in (LESS, MORE)]
            made = tuple(None if isinstance(one, str) else one for one in sides)
            if made == (None, None):
                not_varied.append(f"{shown}: {sides[0]}")
            else:
                source = scenario.sources.get(key, "assumed")
                varied.append(VariedValue(shown, source, float(now), made))  # type: ignore[arg-type]
    return varied, not_varied


def _assumed(scenario: ClusterScenario) -> Iterator[tuple[str, int | None, str, str]]:
    """Each assumed value: its group, its place in a list, its name, and how it is shown."""
    seen: Counter[str] = Counter()
    for group, part in parts_of(scenario):
        at = None
        where = group
        if isinstance(getattr(scenario, group), tuple):
            at = seen[group]
            seen[group] += 1
            key = ENTRY_KEYS[group]
            entry = getattr(part, key)
            alike = sum(getattr(one, key) == entry for one in getattr(scenario, group))
            where = f"{group}.{entry}" if alike == 1 else f"{group}[{at + 1}]"
        if group in ASKED:
            continue
        for one in fields(part):
            named = group if at is None else f"{group}[{at + 1}]"
            # a value that the file leaves out is assumed, too
            if scenario.sources.get(f"{named}.{one.name}", "assumed").startswith("assumed"):
                yield group, at, one.name, f"{where}.{one.name}"


def _part(scenario: ClusterScenario, group: str, at: int | None) -> Any:
    value = getattr(scenario, group)
    return value if at is None else value[at]


def _side(
    scenario: ClusterScenario,
    replay: Replay,
    where: tuple[str, int | None, str],
    factor: float,
    alone: bool,
) -> tuple[float, ClusterScenario] | str:
    """The value times a factor, and the scenario with it; why not, where there is none."""
    group, at, name = where
    part = _part(scenario, group, at)
    now = getattr(part, name)
    made: float = now * factor
    if isinstance(now, int):
        made = round(made)
    is_share = name.endswith(("share", "_chance")) or name.startswith("share_of")
    if is_share:
        made = min(made, 1.0)
    if made == now:
        return f"{now:g} can be no other"
    changed = replace(part, **{name: made})
    value: Any = changed
    if at is not None:
        entries = list(getattr(scenario, group))
        entries[at] = changed
        value = tuple(_sum_to_one(entries, at, group, name))
    named = f"{group}.{name}"
    try:
        other = replace(scenario, **{group: value}, validation=None)
        check_replay(other, replay)
    except UsageError as error:
        return after_name(named, str(error).splitlines()[-1].strip())
    if alone and is_simulated_alike(scenario, other, replay):
        # its difference would be a certain 0
        return after_name(named, why_alike(scenario, other, named, replay))
    return float(made), other


def after_name(name: str, reason: str) -> str:
    """A reason as it follows the name of its value in a list: without that name once more."""
    return reason.removeprefix(f"{name}: ").removeprefix(f"{name} ")


def _sum_to_one(entries: list[Any], at: int, group: str, name: str) -> list[Any]:
    """Where shares sum to 1, the others fill what the changed one leaves."""
    if name not in SUMS_TO_ONE.get(group, ()):
        return entries
    rest = sum(getattr(one, name) for i, one in enumerate(entries) if i != at)
    left = 1.0 - getattr(entries[at], name)
    if rest <= 0.0:
        return entries
    return [
        one if i == at else replace(one, **{name: getattr(one, name) * left / rest})
        for i, one in enumerate(entries)
    ]


@dataclass(frozen=True, slots=True)
class EffectSensitivity:
    """What the GPU-hours that each change wins back owe to each assumed value.

    Attributes:
        effects: The one that is shown to move a change most first; `headline` is the change, and
            the differences are those of the GPU-hours it wins back to what it wins with the
            scenario as it is.
    """

    seeds: tuple[int, ...]
    confidence: float
    simulations: int
    effects: tuple[ValueEffect, ...]
    not_varied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariedWhatIf(WhatIf):
    """Changes of a scenario, with what each owes to the assumed values."""

    sensitivity: EffectSensitivity | None = None


def with_effects(found: WhatIf, sensitivity: EffectSensitivity | None) -> VariedWhatIf:
    """The same answer, with what it owes to the assumed values if that is known."""
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    return VariedWhatIf(**values, sensitivity=sensitivity)


@dataclass(frozen=True, slots=True)
class EffectPlan:
    """The scenarios that the answer takes."""

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
    """Plan the scenarios to simulate.

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
