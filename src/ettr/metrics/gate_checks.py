"""What is below ETTR: of what was trained, which part is kept. Runs that their checks stopped.

Effective ratio = ETTR x (1 - input stall) x (1 - redundant work) x P(run kept).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.facts import Facts
from ettr.metrics.run_progress import InputWaits
from ettr.metrics.runs import JobRun, JobRuns
from ettr.selection import Selection
from ettr.tables.schemas import REDUNDANT_WORK
from ettr.units import MICROSECONDS_PER_SECOND

MEASURED = "progress"


@dataclass(frozen=True, slots=True)
class GateChecks:
    """The checks of one gate.

    Attributes:
        checks: In all; `undecided` of them say neither that the run may go on nor that not.
        gpu_hours: What they cost; None where no check says so.
        without_cost: Checks that do not say what they cost.
    """

    gate: str
    checks: int
    passed: int
    failed: int
    undecided: int
    gpu_hours: float | None
    without_cost: int


@dataclass(frozen=True, slots=True)
class StoppedRun:
    """A run whose last word of a gate was no: the first check that said so since it passed."""

    run: str
    step: int | None
    gate: str
    kind: str
    value: float | None
    low: float | None
    high: float | None
    gpu_hours: float | None
    evidence: str | None


@dataclass(frozen=True, slots=True)
class BelowEttr:
    """The factors of the effective ratio; None where nothing measures one.

    Attributes:
        ettr: Productive over wallclock time of the runs with progress records; waits for data count
            as productive here, since they are a factor of their own.
        input_stall: Share of the training time that waited for data, of `timed_runs` runs that time
            it; the low end counts waits in which the device is known to have been idle.
        input_gpu_hours: What the GPUs of these runs waited; None where no log names them.
        measured_runs: Runs with progress records, on which `ettr` rests.
        timed_runs: Runs whose waits for data are timed.
        redundant_work: Share of the work that probes show to change nothing, mean of `probed_runs`.
        redundant_work_range: The same with its interval.
        probed_runs: Runs with such a probe.
        run_kept: Share of decided runs that no gate stopped, with its exact interval.
        checked_runs: Runs with a check.
        undecided_runs: Those of them of which no check is decided.
        effective_at_most: Product of the factors that are measured; None where none is.
        effective_ratio: Product of all four; None where one is not measured.
        gate_gpu_hours: What all checks cost; None where none says so.
        gates: Each gate with its checks.
        stopped: Runs that a gate stopped.
    """

    ettr: float | None
    input_stall: Interval | None
    input_gpu_hours: float | None
    measured_runs: int
    timed_runs: int
    redundant_work: float | None
    redundant_work_range: Interval | None
    probed_runs: int
    run_kept: Interval | None
    checked_runs: int
    undecided_runs: int
    effective_at_most: float | None
    effective_ratio: float | None
    gate_gpu_hours: float | None
    gates: tuple[GateChecks, ...]
    stopped: tuple[StoppedRun, ...]


class OfBelowEttr(Protocol):
    """What `below_ettr` takes."""

    runs: JobRuns
    confidence: float
    selected: Selection | None


def below_ettr(facts: Facts, given: OfBelowEttr) -> BelowEttr:
    """Which part of what was trained is kept, by factors; None for each that nothing measures.

    Checks have no node and no job: of a selection of these nothing is known. Of a period and of
    clusters those count that state theirs.
    """
    rows = list(facts.rows("gates"))
    if (chosen := given.selected) is not None:
        rows = [row for row in rows if _is_of(row, chosen)]
    return _below(rows, given.runs.runs, given.confidence)


def _is_of(row: Mapping[str, Any], chosen: Selection) -> bool:
    time_us = row["time_us"]
    if chosen.may_split_runs or (chosen.cluster and row["cluster"] not in chosen.cluster):
        return False
    if not chosen.has_period:
        return True
    return time_us is not None and chosen.holds(time_us / MICROSECONDS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class FleetChecks:
    """What the checks of a store came to, to be set next to others'."""

    name: str
    run_kept: Interval | None
    checked_runs: int
    gate_gpu_hours: float | None
    stopped: tuple[StoppedRun, ...]


def fleet_checks(facts: Facts, name: str, confidence: float) -> FleetChecks | None:
    """The checks of a whole store; None where it holds none."""
    rows = list(facts.rows("gates"))
    found = _below(rows, (), confidence)
    if not found.checked_runs:
        return None
    return FleetChecks(
        name, found.run_kept, found.checked_runs, found.gate_gpu_hours, found.stopped
    )


def _below(
    rows: Sequence[Mapping[str, Any]], runs: Sequence[JobRun], confidence: float
) -> BelowEttr:
    probes = [row for row in rows if row["kind"] == REDUNDANT_WORK and row["value"] is not None]
    rows = [row for row in rows if row["kind"] != REDUNDANT_WORK]
    stopped, kept, undecided = runs_of(rows)
    known = [row["gpu_hours"] for row in rows if row["gpu_hours"] is not None]
    decided = kept + len(stopped)
    run_kept = share_interval(kept, decided, confidence) if decided else None
    kept_share = None if run_kept is None else run_kept.estimate
    ettr, waits = _measured_ettr(runs), [run.input_waits for run in runs if run.input_waits]
    stall = _pooled_stall(waits)
    left = None if stall is None or stall.estimate is None else 1.0 - stall.estimate
    redundant, probed_runs = _redundant(probes)
    useful = None if redundant is None else 1.0 - (redundant.estimate or 0.0)
    every = (ettr, left, useful, kept_share)
    factors = [one for one in every if one is not None]
    waited = [one.gpu_hours for one in waits if one.gpu_hours is not None]
    return BelowEttr(
        ettr,
        stall,
        sum(waited) if waited else None,
        sum(run.basis == MEASURED for run in runs),
        len(waits),
        None if redundant is None else redundant.estimate,
        redundant,
        probed_runs,
        run_kept,
        decided + undecided,
        undecided,
        math.prod(factors) if factors else None,
        math.prod(factors) if len(factors) == len(every) else None,
        sum(known) if known else None,
        tuple(_gates(rows)),
        stopped,
    )


def runs_of(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[StoppedRun, ...], int, int]:
    """Runs that a gate stopped, how many all gates let go on, and how many have no decision."""
    by_run: dict[str, dict[tuple[str, str], list[Mapping[str, Any]]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda one: (one["step"] is None, one["step"] or 0)):
        by_run[row["run"]].setdefault((row["gate"], row["kind"]), []).append(row)
    stopped, kept, undecided = [], 0, 0
    for gates in by_run.values():
        decided = [
            [one for one in checks if one["passed"] is not None] for checks in gates.values()
        ]
        failing = [_first_no(checks) for checks in decided if checks and not checks[-1]["passed"]]
        if failing:
            first = min(failing, key=lambda one: (one["step"] is None, one["step"] or 0))
            names = StoppedRun.__dataclass_fields__
            stopped.append(StoppedRun(**{name: first[name] for name in names}))
        elif any(decided):
            kept += 1
        else:
            undecided += 1
    return tuple(sorted(stopped, key=lambda one: one.run)), kept, undecided


def _first_no(checks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first of the checks at the end that all say no."""
    passed = [place for place, one in enumerate(checks) if one["passed"]]
    return checks[passed[-1] + 1 if passed else 0]


def _gates(rows: Sequence[Mapping[str, Any]]) -> list[GateChecks]:
    by_gate: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_gate[row["gate"]].append(row)
    return [
        GateChecks(
            gate,
            len(checks),
            sum(one["passed"] is True for one in checks),
            sum(one["passed"] is False for one in checks),
            sum(one["passed"] is None for one in checks),
            _sum(one["gpu_hours"] for one in checks),
            sum(one["gpu_hours"] is None for one in checks),
        )
        for gate, checks in sorted(by_gate.items())
    ]


def _sum(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _measured_ettr(runs: Sequence[JobRun]) -> float | None:
    """ETTR of the listed runs whose progress is recorded, by their wallclock time."""
    measured = [
        (run.ettr_ratio.estimate * run.wallclock_h + run.split.input_stall_h, run.wallclock_h)
        for run in runs
        if run.split is not None and run.ettr_ratio.estimate is not None and run.wallclock_h
    ]
    whole_h = sum(hours for _, hours in measured)
    return sum(productive for productive, _ in measured) / whole_h if whole_h else None


def _redundant(probes: Sequence[Mapping[str, Any]]) -> tuple[Interval | None, int]:
    """The mean over probed runs, each by its latest probe, and how many they are."""
    latest = {row["run"]: row for row in sorted(probes, key=lambda one: one["step"] or 0)}
    if not latest:
        return None, 0
    ends = [
        [row["value"], row["low"], row["high"]]
        if row["low"] is not None and row["high"] is not None
        else [row["value"]] * 3
        for row in latest.values()
    ]
    estimate, low, high = (sum(column) / len(ends) for column in zip(*ends, strict=True))
    return Interval(estimate, low, high), len(latest)


def _pooled_stall(waits: Sequence[InputWaits]) -> Interval | None:
    """Waits for data over the training time of all runs that time them."""
    whole_h = sum(one.training_h for one in waits)
    if whole_h <= 0:
        return None
    high = sum(one.wait_h for one in waits) / whole_h
    return Interval(high, sum(one.stall.low * one.training_h for one in waits) / whole_h, high)
