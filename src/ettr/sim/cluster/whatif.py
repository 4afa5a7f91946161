"""What a change of a scenario is worth: both simulated with the same seeds, and the difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, get_type_hints

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval, special
from ettr.sim.cluster.log import batches
from ettr.sim.cluster.run import ClusterHours, first_waits, hours_of_truth, simulated_cluster
from ettr.sim.cluster.scenario import ABOUT, ASKED, ENTRY_KEYS, ClusterScenario, parts_of
from ettr.sim.cluster.scenario_parts import Part
from ettr.sim.cluster.standing import SUMS_TO_ONE, ScenarioStanding, standing_of
from ettr.sim.cluster.unread import is_simulated_alike, refuse_no_effect, why_alike
from ettr.sim.cluster.workload import (
    DRAWN,
    NOT_SIMULATED,
    OF_REPAIRS,
    Replay,
    check_replay,
    free_writes,
    not_simulated,
    overfull_series,
    repairs_note,
    replaced_by,
)
from ettr.sim.compiled import results_of
from ettr.units import HOURS_PER_DAY

LEAST_SEEDS = 3
MOST_SEEDS = 1000
LABELS = ("machines.gpu_type", "priorities.name", "faults.symptom")
"""Values that name something: a change of them changes nothing, or all that is drawn."""
_SAME = 1e-9
"""Differences of hours that differ by less than that share of them are equal but for rounding."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """One change, and its difference to the scenario as it is; means over the seeds.

    Attributes:
        won_gpu_hours: GPU-hours less lost, out of service, or held up by writes of checkpoints.
        useful_gpu_hours: More useful GPU-hours; bounded by the jobs that are submitted.
        bought_gpu_hours: Of the machines that it adds, in the simulated time; below 0 for fewer.
        net_gpu_hours: More useful ones, less those bought: what changes are ranked by.
        first_wait_s: Longer mean wait of the jobs until they first start.
    """

    change: str
    won_gpu_hours: Interval
    useful_gpu_hours: Interval
    failed_attempts: Interval
    preemptions: Interval
    bought_gpu_hours: float
    net_gpu_hours: Interval
    first_wait_s: Interval
    highest_first_wait_s: Interval
    largest_first_wait_s: Interval


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes of a scenario, the one with most useful GPU-hours for what it buys first."""

    scenario: str
    days: float
    seeds: tuple[int, ...]
    confidence: float
    base: ClusterHours
    interventions: tuple[Intervention, ...]
    assumed: int
    values: int
    standing: ScenarioStanding
    replayed: tuple[str, ...] = ()
    not_simulated: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def what_if(
    scenario: ClusterScenario,
    changes: Sequence[str],
    seeds: Sequence[int],
    progress: Callable[[int], None] | None = None,
    confidence: float = CONFIDENCE,
    replay: Replay = DRAWN,
    workers: int = 1,
) -> WhatIf:
    """Simulate a scenario as it is and with each change, on common random numbers.

    Args:
        changes: Each such as `lemons.share=0` or `faults.infiniband.repair_mean_s=x0.5`; several
            of one change are separated by commas.
        seeds: Of the runs, 3 or more.

    Raises:
        UsageError: a change cannot be understood, changes what a replay decides or nothing at all,
            or too few seeds.
    """
    check_seeds(seeds)
    for change in changes:
        _refuse_labels(change)
    changed = [(change, changed_scenario(scenario, change)) for change in changes]
    notes = [
        note for change, other in changed for note in _replayed(scenario, change, other, replay)
    ]
    for change, other in changed:
        refuse_no_effect(scenario, change, other, replay)
    scenarios = [scenario, *(other for _, other in changed)]
    tasks = [(one, seed, replay) for one in scenarios for seed in seeds]
    flat = results_of(hours_of, tasks, workers, progress)
    n = len(seeds)
    base, *others = (flat[at : at + n] for at in range(0, len(flat), n))
    made = [
        _compared(change, base, runs, confidence, _all_hours(other) - _all_hours(scenario))
        for (change, other), runs in zip(changed, others, strict=True)
    ]
    made.sort(
        key=lambda one: (-(one.net_gpu_hours.estimate or 0.0), -(one.won_gpu_hours.estimate or 0.0))
    )
    return WhatIf(
        scenario.name,
        scenario.period.days,
        tuple(seeds),
        confidence,
        mean_hours(base),
        tuple(made),
        scenario.n_assumed,
        len(scenario.sources),
        standing_of(scenario, replay.what),
        (*replay.notes, *notes),
        tuple(one for one in NOT_SIMULATED if all(one in not_simulated(s) for s in scenarios)),
        (
            *free_writes(scenario, changed),
            *overfull_series(scenarios, replay),
            *_idle(changes, base, others),
        ),
    )


def _idle(
    changes: Sequence[str], base: Sequence[ClusterHours], others: Sequence[Sequence[ClusterHours]]
) -> tuple[str, ...]:
    """A warning that changes moved nothing in these runs, if there are any."""
    idle = [change for change, runs in zip(changes, others, strict=True) if runs == base]
    if not idle:
        return ()
    return (
        f"NOTHING DIFFERS in any of {len(base)} seeds with {'; '.join(idle)}: what such a change "
        "is about may be rare and may not have happened in them. That is no effect of 0; give more "
        "seeds with --runs, or a longer period in the scenario's file.",
    )


def _refuse_labels(change: str) -> None:
    """Refuse a change that is no intervention."""
    for one in change.split(","):
        path = one.partition("=")[0].strip().split(".")
        if path[0] in ASKED:
            raise UsageError(
                f"--set {change!r}: {path[0]} says what is simulated, and its hours are no gain or "
                "loss; set it in the scenario's file"
            )
        if f"{path[0]}.{path[-1]}" in LABELS:
            raise UsageError(
                f"--set {change!r}: {path[-1]} is a name, and no change of the cluster; set it in "
                "the scenario's file"
            )


def _replayed(
    scenario: ClusterScenario, change: str, changed: ClusterScenario, replay: Replay
) -> list[str]:
    """What a replay leaves of a change that leaves something, a sentence each."""
    try:
        check_replay(changed, replay)
    except UsageError as error:
        raise UsageError(f"--set {change!r}: {error}") from None
    notes, idle = [], []
    for one in change.split(","):
        group, *which, name = one.partition("=")[0].strip().split(".")
        symptoms = _symptoms(scenario, which[0]) if group == "faults" else ("",)
        reasons = [replaced_by(replay, group, name, symptom) for symptom in symptoms]
        if all(reasons):
            idle.append(f"{one.strip()} changes nothing, since {reasons[0]}")
        elif group == "faults" and name in OF_REPAIRS:
            notes.append(repairs_note(one.strip(), replay, symptoms))
    if idle:
        raise UsageError(
            f"--set {change!r}: {'; '.join(idle)}. Leave it out, or draw what it is about "
            "(without --jobs-from or --faults-from)"
        )
    return [note for note in notes if note]


def _symptoms(scenario: ClusterScenario, which: str) -> tuple[str, ...]:
    return tuple(one.symptom for one in scenario.faults if which in ("*", one.symptom))


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse too few seeds for an interval, and too many."""
    if not LEAST_SEEDS <= len(seeds) <= MOST_SEEDS:
        raise UsageError(f"{len(seeds)} seeds; give {LEAST_SEEDS} to {MOST_SEEDS:,}")


def hours_of(scenario: ClusterScenario, seed: int, replay: Replay = DRAWN) -> ClusterHours:
    """Simulate once, and add up."""
    run = simulated_cluster(scenario, seed, "what-if", replay)
    levels = scenario.priorities
    highest = max(levels, key=lambda one: one.level).name if len(levels) > 1 else ""
    rows = batches(run.log, run.play())
    waits = first_waits(_largest_gpus(scenario, replay), rows, highest)
    return hours_of_truth(run.truth(), waits)


def _all_hours(scenario: ClusterScenario) -> float:
    """GPU-hours of all machines in the simulated time."""
    machines = scenario.machines
    return machines.nodes * machines.gpus_per_node * scenario.period.days * HOURS_PER_DAY


def _largest_gpus(scenario: ClusterScenario, replay: Replay) -> int:
    """GPUs of the largest jobs, drawn or replayed."""
    sizes = replay.jobs if replay.jobs is not None else scenario.jobs
    return max((one.gpus for one in sizes), default=0)


def mean_hours(runs: Sequence[ClusterHours]) -> ClusterHours:
    """The mean of runs; counts are whole numbers. What one run has not, the mean has not."""
    means: dict[str, Any] = {}
    for one in fields(ClusterHours):
        values = [getattr(run, one.name) for run in runs]
        means[one.name] = None if None in values else sum(values) / len(runs)
    counts = {name: round(means[name]) for name in ("failed_attempts", "preemptions")}
    return ClusterHours(**{**means, **counts})


def _compared(
    change: str,
    base: Sequence[ClusterHours],
    other: Sequence[ClusterHours],
    confidence: float,
    bought_gpu_hours: float,
) -> Intervention:
    def difference(headline: str) -> Interval:
        return difference_interval(base, other, headline, confidence)

    lost = difference("wasted_gpu_hours")
    won = Interval(None if lost.estimate is None else 0.0 - lost.estimate, -lost.high, -lost.low)
    useful, paid = difference("useful_gpu_hours"), bought_gpu_hours
    at = useful.estimate
    net = Interval(None if at is None else at - paid, useful.low - paid, useful.high - paid)
    return Intervention(
        change=change,
        won_gpu_hours=won,
        useful_gpu_hours=useful,
        failed_attempts=difference("failed_attempts"),
        preemptions=difference("preemptions"),
        bought_gpu_hours=bought_gpu_hours,
        net_gpu_hours=net,
        first_wait_s=difference("first_wait_s"),
        highest_first_wait_s=difference("highest_first_wait_s"),
        largest_first_wait_s=difference("largest_first_wait_s"),
    )


def difference_interval(
    base: Sequence[ClusterHours], other: Sequence[ClusterHours], headline: str, confidence: float
) -> Interval:
    """The mean paired difference of one headline; without ends where none can be estimated.

    Where all seeds differ by the same number, their spread of 0 says nothing, and a difference of
    0 no more than any other: what the change is about may not have happened in them. It is unknown
    where a seed has no such headline: no job of the largest size started.
    """
    pairs = [(getattr(a, headline), getattr(b, headline)) for a, b in zip(base, other, strict=True)]
    if any(None in pair for pair in pairs):
        return Interval.unknown()
    return interval_of_changes([float(b - a) for a, b in pairs], confidence)


def interval_of_changes(changes: Sequence[float], confidence: float) -> Interval:
    """The mean of paired differences; without ends where all are the same, whose spread is 0."""
    if max(changes) - min(changes) <= _SAME * max(map(abs, changes)):
        return Interval(changes[0], -math.inf, math.inf)
    return mean_interval(changes, confidence)


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """The mean of values of independent runs, with Student's interval.

    Source:
        Student (1908), Biometrika 6; for paired differences on common random numbers: Law (2015),
        Simulation Modeling and Analysis, section 11.2.
    """
    at = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(special.stdtrit(len(values) - 1, (1.0 + confidence) / 2.0)) * error
    return Interval(at, at - half, at + half)


def changed_scenario(scenario: ClusterScenario, change: str) -> ClusterScenario:
    """The scenario with one change.

    Args:
        change: `NAME=VALUE`, comma-separated; the name is that of the file (`lemons.share`), in a
            list with what names the entry (`faults.infiniband.repair_mean_s`, `jobs.256.mean_s`)
            or a star for all of them; `xN` for so many times the value.

    Raises:
        UsageError: there is no such value, or it cannot be.
    """
    groups: dict[str, Any] = {}
    names: set[str] = set()
    for one in change.split(","):
        name, equals, text = one.strip().partition("=")
        path = name.strip().split(".")
        if name.strip() in names:
            raise UsageError(f"--set {change!r}: it sets {name.strip()} twice; give one value")
        names.add(name.strip())
        if not equals or not 2 <= len(path) <= 3:
            raise UsageError(
                f"--set {change!r}: write NAME=VALUE, such as lemons.share=0, "
                "faults.infiniband.repair_mean_s=x0.5 or faults.*.seen_chance=1"
            )
        group = path[0]
        if group in ABOUT or group not in scenario.__dataclass_fields__:
            known = [one for one in scenario.__dataclass_fields__ if one not in ABOUT]
            raise UsageError(
                f"--set {change!r}: a scenario has no {group!r}; it has {', '.join(known)}"
            )
        value = groups.get(group, getattr(scenario, group))
        if value is None:
            raise UsageError(f"--set {change!r}: the scenario has no [{group}] to change")
        groups[group] = _with(value, path, text.strip(), change)
    return replace(scenario, **groups)  # checked once: shares of jobs change together


def _with(
    value: Part | tuple[Part, ...], path: list[str], text: str, change: str
) -> Part | tuple[Part, ...]:
    """A group of values with one of them changed."""
    group = path[0]
    if not isinstance(value, tuple):
        if len(path) != 2:
            raise UsageError(f"--set {change!r}: {group} is not a list; write {group}.NAME=VALUE")
        return _part_with(value, path[1], text, change)
    if len(path) != 3:
        raise UsageError(f"--set {change!r}: {group} is a list; write {group}.WHICH.NAME=VALUE")
    key = ENTRY_KEYS[group]
    hit = [path[1] in ("*", str(getattr(one, key))) for one in value]
    if not any(hit):
        known = ", ".join(dict.fromkeys(str(getattr(one, key)) for one in value))
        raise UsageError(
            f"--set {change!r}: {group} has no {path[1]!r}; "
            + (f"it has {known}" if known else "the scenario has none of them")
        )
    return tuple(
        _part_with(part, path[2], text, change) if is_hit else part
        for part, is_hit in zip(value, hit, strict=True)
    )


def _part_with(part: Part, name: str, text: str, change: str) -> Part:
    kinds = get_type_hints(type(part))
    if name not in kinds:
        raise UsageError(f"--set {change!r}: no value {name!r}; there are {', '.join(kinds)}")
    value = text if kinds[name] is str else _number(getattr(part, name), text, change)
    if kinds[name] is int:
        if math.isinf(float(value)) or (not text.startswith("x") and float(value) % 1.0):
            raise UsageError(f"--set {change!r}: {name} is a whole number, unlike {text!r}")
        value = round(float(value))
    return replace(part, **{name: value})  # type: ignore[arg-type]


def _number(now: float, text: str, change: str) -> float:
    """What a text makes of a number: another one, or so many times the present one."""
    try:
        number = now * float(text[1:]) if text.startswith("x") else float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise UsageError(
            f"--set {change!r}: {text!r} is not a number; give one, or xN for so many times"
        )
    return number


# -- the sensitivity of answers, and of effects of changes, to a scenario's assumed values -------

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
