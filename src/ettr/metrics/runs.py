"""Job runs and their effective training time ratio, measured where there are progress records.

Wallclock W = Q + R + U: queued, productive, and scheduled but unproductive. Time in which a task
was not even submitted is no wallclock of the run and has its own figure. Time in which several
attempts of a run ran side by side passes once, while each holds its own GPUs. Runs without
progress get a band over stated assumptions instead of a number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import numpy as np

import ettr.metrics.clock_shifts  # noqa: F401  # makes the fact `shifted_jobs`
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.facts import Facts, made
from ettr.facts.files import Columns, Rows
from ettr.metrics.instants import Floats, to_datetime
from ettr.metrics.rates import FailuresByConfidence, counted_confidences
from ettr.metrics.run_progress import (
    InputWaits,
    JobRecord,
    ScheduledSplit,
    input_waits,
    record_of_run,
    records_of,
    split_scheduled,
)
from ettr.metrics.run_rules import CheckpointAssumptions, RunRule, Scenario
from ettr.metrics.sizes import SizeClass, known_sum, size_class, size_ends_of
from ettr.metrics.stitching import under_rule
from ettr.progress.split import RunState
from ettr.progress.timeline import ScheduledAttempt
from ettr.selection import Selection
from ettr.tables.schemas import REDUNDANT_WORK
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

MIN_SCHEDULED_H = 24.0
LISTED_RUNS = 200
MIN_GPUS = 8
STILL_RUNNING = ("RUNNING", "SUSPENDED", "COMPLETING")


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run.

    `ettr_ratio` is R / W, `ettr_without_queue_ratio` R / (R + U). Where `basis` is progress, both
    are measured: low and high differ from the estimate only where the record leaves something open.
    Without any save in the record of a run that was cut there are two ends and no estimate. Else
    they are a band over assumptions, and unknown where the run was shorter than the restart that is
    assumed. `suspended_h` is a part of `scheduled_h`. `concurrent_h` is time in which an attempt
    ran while an earlier one of the run still did: `scheduled_h` counts it once, `gpu_hours` for
    each. So `wallclock_h` and `between_h` reach from `first_eligible` to `end`. `n_gpus` and
    `n_nodes` are of the largest attempt.

    `interruptions` are the attempts that attribution holds to be ended against their owner's wish,
    `failures` those of them that the infrastructure caused; None where nobody asked attribution.
    `input_stall` is the share of the training time that waited for data (`input_waits`); None where
    the record does not time it.
    Of a run known from progress records alone its queue is not known, and None like all that
    includes it.
    """

    cluster: str
    name: str | None
    user: str | None
    job_ids: tuple[str, ...]
    jobs: int
    attempts: int
    interruptions: int | None
    failures: int | None
    n_gpus: int | None
    n_nodes: int | None
    first_eligible: datetime
    end: datetime
    last_state: str
    wallclock_h: float | None
    queue_h: float | None
    scheduled_h: float
    suspended_h: float
    concurrent_h: float
    between_h: float | None
    gpu_hours: float | None
    basis: str
    ettr_ratio: Interval
    ettr_without_queue_ratio: Interval
    productive_h: Interval
    split: ScheduledSplit | None
    input_stall: Interval | None = None
    input_waits: InputWaits | None = None


@dataclass(frozen=True, slots=True)
class SizeEttr:
    """Runs of one size: mean ETTR, weighted by wallclock (`pooled`) and not (`mean`).

    `gpu_hours` are those of the runs whose GPUs a log names; null where it names none.
    """

    size: SizeClass
    runs: int
    measured_runs: int
    gpu_hours: float | None
    wallclock_h: float
    mean_ettr_ratio: Interval
    pooled_ettr_ratio: Interval


@dataclass(frozen=True, slots=True)
class ShapeRuns:
    """All runs of one number of GPUs and of nodes; `gpu_hours` is null where no log names GPUs."""

    n_gpus: int | None
    n_nodes: int | None
    runs: int
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class JobRuns:
    """All runs of at least `min_scheduled_h`; those with the most GPU-hours are listed.

    `unknown_runs` were shorter than the restart that is assumed, so that nothing is known of their
    ETTR. `by_size` and `by_shape` count all runs, listed or not. `partly_selected_runs` have
    attempts that are not selected too (of another partition, user, node), and count whole.
    `attempts_without_gpus` ran, and are in no run, since no log names their GPUs. `by_confidence`
    says how sure the failures of the listed runs are; None where nobody asked attribution.
    """

    gap_h: float
    min_scheduled_h: float
    min_gpus: int
    assumptions: CheckpointAssumptions
    runs_found: int
    measured_runs: int
    unknown_runs: int
    by_size: tuple[SizeEttr, ...]
    by_shape: tuple[ShapeRuns, ...]
    partly_selected_runs: int
    attempts_without_gpus: int
    runs: tuple[JobRun, ...]
    by_confidence: FailuresByConfidence | None = None


def job_runs(
    facts: Facts,
    *,
    rule: RunRule | None = None,
    assumptions: CheckpointAssumptions | None = None,
    min_scheduled_h: float = MIN_SCHEDULED_H,
    min_gpus: int = MIN_GPUS,
    listed: int = LISTED_RUNS,
    with_ends: bool = False,
    of_record: bool = False,
) -> JobRuns:
    """Runs and their ETTR, of a selection those that ended in its period.

    A run is taken whole where one of its attempts is selected: what is left of a run without the
    others would wait, or not be submitted, while they ran.

    Args:
        of_record: attempts are made from the progress: where its clock was set back they bound
            nothing, and the split is of the least time that the record allows.

    Source:
        Kokolis et al. (2025): ETTR = R / W, W = Q + R + U, over runs of at least 24 h.
    """
    rule, assumed = rule or RunRule(), assumptions or CheckpointAssumptions()
    assumed.check()
    asked = under_rule(
        facts, rule, min_gpus=min_gpus, min_scheduled_h=min_scheduled_h, of_record=of_record
    ).under(
        runs_listed=listed,
        **_bound("worst", assumed.worst),
        **_bound("middle", assumed.middle),
        **_bound("best", assumed.best),
    )
    numbers = _Numbers(asked.columns("run_numbers"))
    rows = asked.rows("run_listed")
    details = _details(asked, rows, with_ends=with_ends, of_record=of_record)
    sure = [one for detail in details.values() for one in detail.pop("confidences")]
    runs = tuple(_run(row, details[row["place"]]) for row in rows)
    numbers.measure(runs)
    return JobRuns(
        gap_h=rule.gap_h,
        min_scheduled_h=min_scheduled_h,
        min_gpus=min_gpus,
        assumptions=assumed,
        runs_found=numbers.count,
        measured_runs=sum(run.basis == "progress" for run in runs),
        unknown_runs=numbers.unknown,
        by_size=numbers.by_size(),
        by_shape=numbers.by_shape(),
        partly_selected_runs=numbers.partly_selected if facts.given("runs_may_split") else 0,
        attempts_without_gpus=asked.row("attempts_without_gpus")["n"] if min_gpus else 0,
        runs=runs,
        by_confidence=counted_confidences(sure) if with_ends else None,
    )


def _bound(name: str, case: Scenario) -> dict[str, float]:
    """A scenario as the fact `run_sums` takes it."""
    interval_s = case.checkpoint_interval_min * SECONDS_PER_MINUTE
    return {
        f"{name}_restart_s": case.restart_min * SECONDS_PER_MINUTE,
        f"{name}_lost_s": case.lost_share * interval_s,
        f"{name}_share": 1.0 - case.save_min / case.checkpoint_interval_min,
    }


_SPLITS = ("selection", "runs_may_split", "logs_end_us", "small", "het_jobs", "all_listed")


@made(
    "run_chosen",
    (("attempt_id", "VARCHAR"),),
    reads=("attempts", "allocations", "nodes", "het_attempts", "moved_attempts"),
    takes=_SPLITS,
)
def _run_chosen(facts: Facts) -> Rows | str:
    """The attempts of the selection at any time; none where it splits no run."""
    if not facts.given("runs_may_split"):
        return []
    whole: Selection = facts.given("selection").at_any_time
    return facts.under(selection=whole, since_us=None, until_us=None).table("chosen")


@made("run_asked", (), reads=("run_attempts", "run_chosen"), takes=("runs_may_split",))
def _run_asked(facts: Facts) -> str:
    """The attempts of the selection at any time, or all."""
    return facts.table("run_chosen" if facts.given("runs_may_split") else "run_attempts")


def _details(
    facts: Facts, rows: list[dict[str, Any]], *, with_ends: bool, of_record: bool
) -> dict[int, dict[str, Any]]:
    """For each listed run the fields of `JobRun` that are looked up, and `confidences`."""
    if not rows:
        return {}
    by_run: dict[int, list[dict[str, Any]]] = {}
    for member in sorted(
        facts.rows("run_members"), key=lambda one: (one["start_s"], one["attempt_id"])
    ):
        by_run.setdefault(member["place"], []).append(member)
    records, waits = {}, {}
    if facts.rows("progress_runs"):
        records = records_of(facts.columns("run_records"))
        waits = {(row["cluster"], row["job_id"]): row for row in facts.rows("input_waits")}
    ends: dict[int, list[str | None]] = {place: [] for place in by_run}
    for row in facts.rows("run_ends") if with_ends else ():
        ends[row["place"]].append(row["confidence"])
    details: dict[int, dict[str, Any]] = {}
    for run in rows:
        attempts = by_run[run["place"]]
        jobs = tuple(dict.fromkeys(attempt["job_id"] for attempt in attempts))
        keys = [(run["cluster"], job) for job in jobs]
        recorded = {key[1]: records[key] for key in keys if key in records}
        split = None
        if not _both_record_steps(recorded, attempts):
            times = [(one["job_id"], _scheduled(one)) for one in attempts]
            jobs_records = (
                one.ending_with([time for mine, time in times if mine == job])
                for job, one in recorded.items()
            )
            record, state = record_of_run(jobs_records), _state_of(run["last_state"])
            split = split_scheduled(record, [time for _, time in times], state)
            if of_record and split is not None and split.clock_set_back:
                split = split_scheduled(record, None, state)
        mine = ends[run["place"]]
        waited = None
        if split is not None:
            gpus = None if run["gpu_s"] is None else run["gpu_s"] / max(run["scheduled_s"], 1e-9)
            waited = input_waits(split, (waits[key] for key in keys if key in waits), gpus)
        failed = [sure for sure in mine if sure is not None]
        details[run["place"]] = {
            "split": split,
            "input_stall": None if waited is None else waited.stall,
            "input_waits": waited,
            "job_ids": jobs,
            "interruptions": len(mine) if with_ends else None,
            "failures": len(failed) if with_ends else None,
            "confidences": failed,
        }
    return details


def _both_record_steps(recorded: Mapping[str, JobRecord], attempts: list[dict[str, Any]]) -> bool:
    """Whether two jobs of a run both record steps while both run."""
    reached: dict[str, float] = {}
    for attempt in attempts:
        job, start_s = attempt["job_id"], attempt["start_s"]
        for other, end_s in reached.items():
            if other != job and start_s < end_s and {job, other} <= recorded.keys():
                spans = recorded[job].step_span_s, recorded[other].step_span_s
                if max(first for first, _ in spans) < min(last for _, last in spans):
                    return True
        reached[job] = max(attempt["end_s"], reached.get(job, -math.inf))
    return False


def _scheduled(attempt: dict[str, Any]) -> ScheduledAttempt:
    names = ("start_s", "end_s", "suspended_s")
    return ScheduledAttempt(*(round(attempt[name] * MICROSECONDS_PER_SECOND) for name in names))


def _state_of(last_state: str) -> RunState:
    if last_state == "COMPLETED":
        return RunState.COMPLETED
    return RunState.RUNNING if last_state in STILL_RUNNING else RunState.INTERRUPTED


def _run(row: dict[str, Any], detail: dict[str, Any]) -> JobRun:
    split = detail["split"]
    wall_s = float(row["queue_s"] + row["scheduled_s"])
    productive_h = _productive_h(row, split)
    wall_h = wall_s / SECONDS_PER_HOUR
    return JobRun(
        cluster=row["cluster"],
        name=row["name"],
        user=row["user"],
        jobs=int(row["jobs"]),
        attempts=int(row["attempts"]),
        n_gpus=row["n_gpus"],
        n_nodes=row["n_nodes"],
        first_eligible=to_datetime(row["first_s"]),
        end=to_datetime(row["last_s"]),
        last_state=row["last_state"],
        wallclock_h=wall_h,
        queue_h=row["queue_s"] / SECONDS_PER_HOUR,
        scheduled_h=row["scheduled_s"] / SECONDS_PER_HOUR,
        suspended_h=row["suspended_s"] / SECONDS_PER_HOUR,
        concurrent_h=row["concurrent_s"] / SECONDS_PER_HOUR,
        between_h=row["between_s"] / SECONDS_PER_HOUR,
        gpu_hours=None if row["gpu_s"] is None else row["gpu_s"] / SECONDS_PER_HOUR,
        basis="progress" if split is not None else "assumed",
        ettr_ratio=_share(productive_h, wall_s),
        ettr_without_queue_ratio=_share(productive_h, float(row["scheduled_s"])),
        productive_h=productive_h,
        **detail,
    )


def _productive_h(row: dict[str, Any], split: ScheduledSplit | None) -> Interval:
    if split is not None:
        kept_h = split.productive_h if split.is_measured else None
        return Interval(kept_h, split.productive_low_h, split.productive_high_h)
    if row["middle_s"] <= 0:
        return Interval.unknown()
    ends = sorted(float(row[name]) / SECONDS_PER_HOUR for name in ("worst_s", "best_s"))
    return Interval(float(row["middle_s"]) / SECONDS_PER_HOUR, *ends)


def _share(productive_h: Interval, of_s: float) -> Interval:
    if of_s <= 0:
        return Interval.unknown()
    return productive_h.scaled(SECONDS_PER_HOUR / of_s)


class _Numbers:
    """What is known of all runs in the order of their places, whether they are listed or not."""

    def __init__(self, runs: Columns) -> None:
        self.runs = runs
        self.count = len(runs["attempts"])
        middle_s = runs["middle_s"].astype(np.float64)
        ends_s = np.stack([runs["worst_s"], runs["best_s"]]).astype(np.float64)
        known = np.stack([middle_s, ends_s.min(axis=0), ends_s.max(axis=0)], axis=1)
        known[middle_s <= 0] = np.nan
        self.productive_h = known / SECONDS_PER_HOUR
        self.measured = np.zeros(self.count, dtype=np.bool_)
        self.wall_s = runs["queue_s"] + runs["scheduled_s"]
        self.wall_h = self.wall_s / SECONDS_PER_HOUR
        self.gpu_h = runs["gpu_s"].astype(np.float64) / SECONDS_PER_HOUR

    def measure(self, listed: Sequence[JobRun]) -> None:
        """Take over what the progress of the listed runs says."""
        for place, run in enumerate(listed):
            if run.basis == "progress":
                one = run.productive_h
                estimate = math.nan if one.estimate is None else one.estimate
                self.productive_h[place] = estimate, one.low, one.high
                self.measured[place] = True

    @property
    def unknown(self) -> int:
        """Runs of whose ETTR nothing is known."""
        nothing = np.isnan(self.productive_h[:, 0]) | (self.wall_s <= 0)
        return int((nothing & ~self.measured).sum())

    @property
    def partly_selected(self) -> int:
        """Runs with attempts that are not selected too."""
        return int((self.runs["chosen"] < self.runs["attempts"]).sum())

    def by_size(self) -> tuple[SizeEttr, ...]:
        """Sums of the runs that took any time, by size."""
        ran = self.wall_h > 0
        ends = size_ends_of(self.runs["n_gpus"])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = self.productive_h * (SECONDS_PER_HOUR / self.wall_s)[:, None]
        return tuple(
            SizeEttr(
                size=size_class(int(end)),
                runs=int(some.sum()),
                measured_runs=int(self.measured[some].sum()),
                gpu_hours=known_sum(self.gpu_h[some]),
                wallclock_h=float(self.wall_h[some].sum()),
                mean_ettr_ratio=_mean(ratios[some], np.ones(int(some.sum()))),
                pooled_ettr_ratio=_mean(ratios[some], self.wall_h[some]),
            )
            for end in np.unique(ends[ran])
            for some in [ran & (ends == end)]
        )

    def by_shape(self) -> tuple[ShapeRuns, ...]:
        """In the order of the first run of each, which is that of GPU-hours of one run."""
        sizes = np.stack([self.runs["n_gpus"], self.runs["n_nodes"]], axis=1).astype(np.float64)
        shapes, first, which = np.unique(
            np.nan_to_num(sizes, nan=-1.0), axis=0, return_index=True, return_inverse=True
        )
        return tuple(
            ShapeRuns(
                n_gpus=_counted(shapes[shape][0]),
                n_nodes=_counted(shapes[shape][1]),
                runs=int(some.sum()),
                gpu_hours=known_sum(self.gpu_h[some]),
            )
            for shape in np.argsort(first)
            for some in [which.reshape(-1) == shape]
        )


def _counted(size: float) -> int | None:
    """A number of GPUs or nodes; None where it is not known (-1)."""
    return None if size < 0 else int(size)


def _mean(ratios: Floats, weights: Floats) -> Interval:
    """The mean of those that are known."""
    known = ~np.isnan(ratios[:, 0])
    if not known.any():
        return Interval.unknown()
    return Interval(*np.average(ratios[known], axis=0, weights=weights[known]).tolist())


# -- what is below ETTR: of what was trained, which part is kept. Runs that their checks stopped
# Effective ratio = ETTR x (1 - input stall) x (1 - redundant work) x P(run kept).


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
