"""What a change of a scenario is worth: both simulated with the same seeds, and the difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval, special
from ettr.sim.cluster.log import batches
from ettr.sim.cluster.run import ClusterHours, first_waits, hours_of_truth, simulated_cluster
from ettr.sim.cluster.scenario import ABOUT, ASKED, ENTRY_KEYS, ClusterScenario
from ettr.sim.cluster.scenario_parts import Part
from ettr.sim.cluster.standing import ScenarioStanding, standing_of
from ettr.sim.cluster.unread import refuse_no_effect
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
