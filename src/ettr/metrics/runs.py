"""Job runs and their effective training time ratio, measured where there are progress records.

Wallclock W = Q + R + U: queued, productive, and scheduled but unproductive. Time in which a task
was not even submitted is no wallclock of the run and has its own figure. Time in which several
attempts of a run ran side by side passes once, while each holds its own GPUs. Runs without progress
get a band over stated assumptions instead of a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import ibis
import numpy as np

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.metrics.clock_shifts import of_the_same_clock
from ettr.metrics.confidences import FailuresByConfidence, counted_confidences
from ettr.metrics.instants import fetch, to_datetime
from ettr.metrics.run_progress import (
    JobRecord,
    ScheduledSplit,
    record_of_run,
    records_of_jobs,
    split_scheduled,
    with_cluster,
)
from ettr.metrics.selected import in_period
from ettr.metrics.sizes import SizeClass, size_class, size_end_of
from ettr.metrics.stitching import RunRule, stitched
from ettr.progress.split import RunState
from ettr.progress.timeline import ScheduledAttempt
from ettr.selection import Selection
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

MIN_SCHEDULED_H = 24.0
LISTED_RUNS = 200
MIN_GPUS = 8
STILL_RUNNING = ("RUNNING", "SUSPENDED", "COMPLETING")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a run without progress is assumed to do; `lost_share` of an interval goes at each end.

    An interval here includes the save that ends it.
    """

    checkpoint_interval_min: float
    restart_min: float
    save_min: float
    lost_share: float


@dataclass(frozen=True, slots=True)
class CheckpointAssumptions:
    """A band of scenarios, from the worst to the best, around the one in the middle.

    Source:
        Kokolis et al. (2025), v1: checkpoints every 60 min and restarts of 5 min, half an interval
        lost: the middle one. The others are ours.
    """

    worst: Scenario = Scenario(120.0, 15.0, 5.0, 1.0)
    middle: Scenario = Scenario(60.0, 5.0, 0.0, 0.5)
    best: Scenario = Scenario(10.0, 1.0, 0.0, 0.0)

    def check(self) -> None:
        """Accept the assumptions.

        Raises:
            UsageError: a scenario with an interval that is not above its save, or a negative time.
        """
        for name in ("worst", "middle", "best"):
            case: Scenario = getattr(self, name)
            if (
                case.checkpoint_interval_min <= case.save_min
                or min(case.restart_min, case.save_min) < 0
                or not 0 <= case.lost_share <= 1
            ):
                raise UsageError(
                    f"{name} scenario {case}: give an interval above the save time, times of 0 or "
                    "more, and a lost share between 0 and 1"
                )

    def narrowed(
        self,
        interval_min: float | None = None,
        restart_min: float | None = None,
        save_min: float | None = None,
    ) -> CheckpointAssumptions:
        """The same scenarios with an interval, a restart or a save of known length.

        Where the save is not known, a short interval is not half spent in saving: a save takes no
        larger share of it than in the usual worst case.

        Raises:
            UsageError: as `check` does.
        """
        usual = CheckpointAssumptions().worst
        most = usual.save_min / usual.checkpoint_interval_min

        def known(case: Scenario) -> Scenario:
            interval = case.checkpoint_interval_min if interval_min is None else interval_min
            return replace(
                case,
                checkpoint_interval_min=interval,
                restart_min=case.restart_min if restart_min is None else restart_min,
                save_min=min(case.save_min, most * interval) if save_min is None else save_min,
            )

        made = CheckpointAssumptions(known(self.worst), known(self.middle), known(self.best))
        made.check()
        return made


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
    attempts: ibis.Table,
    progress: ibis.Table,
    *,
    interruptions: ibis.Table | None = None,
    failures: ibis.Table | None = None,
    rule: RunRule | None = None,
    assumptions: CheckpointAssumptions | None = None,
    min_scheduled_h: float = MIN_SCHEDULED_H,
    min_gpus: int = MIN_GPUS,
    listed: int = LISTED_RUNS,
    selection: Selection | None = None,
    chosen: ibis.Table | None = None,
    of_record: bool = False,
) -> JobRuns:
    """Runs and their ETTR.

    Args:
        attempts: all attempts.
        progress: training-side events, empty where there is no record.
        interruptions: attempts that ended against their owner's wish, as attribution found them.
        failures: those of them that the infrastructure caused.
        rule: how attempts become runs.
        assumptions: for runs without progress.
        min_scheduled_h: leave out runs that were scheduled for less.
        min_gpus: leave out attempts of fewer GPUs (0 keeps those without any).
        listed: how many runs to list and to measure by progress, by their GPU-hours.
        selection: a run is taken whole in the period in which it ended; all runs where None.
        chosen: only runs with one of these attempts, and such a run whole: what is left of a run
            without the others would wait, or not be submitted, while they ran.
        of_record: the attempts are made from the progress: where its clock was set back they bound
            nothing, and the split is of the least time that the record allows.

    Raises:
        UsageError: a rule or assumptions that cannot be.

    Source:
        Kokolis et al. (2025): ETTR = R / W, W = Q + R + U, over runs of at least 24 h.
    """
    rule, assumed = rule or RunRule(), assumptions or CheckpointAssumptions()
    assumed.check()
    progress = with_cluster(progress, attempts)
    parts = stitched(
        attempts, progress, rule, min_gpus=min_gpus, min_scheduled_h=min_scheduled_h, near=chosen
    )
    rows = _selected(_sums(parts, assumed, min_scheduled_h), parts, selection, chosen)
    rows.sort(key=lambda row: (-(row["gpu_s"] or 0.0), -row["scheduled_s"], row["first_id"]))
    keys = ibis.memtable(
        {name: [row[name] for row in rows[:listed]] for name in ("cluster", "run_key")},
        schema={"cluster": "string", "run_key": "string"},
    )
    members = stitched(attempts, progress, rule, min_gpus=min_gpus, keys=keys, near=chosen)
    measuring = of_the_same_clock(progress, attempts)
    ends = (interruptions, failures)
    details = _details(measuring, rows[:listed], members, ends, of_record=of_record)
    runs = [_run(row, details.get(place, _RunDetail())) for place, row in enumerate(rows)]
    return JobRuns(
        gap_h=rule.gap_h,
        min_scheduled_h=min_scheduled_h,
        min_gpus=min_gpus,
        assumptions=assumed,
        runs_found=len(runs),
        measured_runs=sum(run.basis == "progress" for run in runs),
        unknown_runs=sum(run.split is None and run.ettr_ratio.estimate is None for run in runs),
        by_size=_by_size(runs),
        by_shape=_by_shape(runs),
        partly_selected_runs=sum(row["chosen"] < row["attempts"] for row in rows),
        attempts_without_gpus=(
            _without_gpus(attempts if chosen is None else chosen, selection) if min_gpus else 0
        ),
        runs=tuple(runs[:listed]),
        by_confidence=None
        if failures is None
        else counted_confidences(
            sure for one in details.values() for sure in one.confidences or ()
        ),
    )


def _sums(
    parts: ibis.Table, assumed: CheckpointAssumptions, min_scheduled_h: float
) -> list[dict[str, Any]]:
    cut = ~parts["state"].isin(("COMPLETED", *STILL_RUNNING))
    parts = parts.mutate(
        cut=cut,
        alone_s=parts["end_s"] - parts["start_s"] - parts["concurrent_s"],
        worst_s=_productive_s(parts, cut, assumed.worst),
        middle_s=_productive_s(parts, cut, assumed.middle),
        best_s=_productive_s(parts, cut, assumed.best),
    )
    sums = parts.group_by("cluster", "run_key", "run_part", "run_job").aggregate(
        lambda t: t.count().name("attempts"),
        lambda t: t["job_id"].nunique().name("jobs"),
        lambda t: t["n_gpus"].max().name("n_gpus"),
        lambda t: t["n_nodes"].max().name("n_nodes"),
        lambda t: (t["start_s"] - t["queue_s"]).min().name("first_s"),
        lambda t: t["end_s"].max().name("last_s"),
        lambda t: t["queue_s"].sum().name("queue_s"),
        lambda t: t["between_s"].sum().name("between_s"),
        lambda t: t["alone_s"].sum().name("scheduled_s"),
        lambda t: t["concurrent_s"].sum().name("concurrent_s"),
        # suspended while another ran, the run went on
        lambda t: ibis.least(t["suspended_s"], t["alone_s"]).sum().name("suspended_s"),
        lambda t: t["gpu_s"].sum().name("gpu_s"),
        lambda t: t["n_gpus"].count().name("with_gpus"),
        lambda t: t["worst_s"].sum().name("worst_s"),
        lambda t: t["middle_s"].sum().name("middle_s"),
        lambda t: t["best_s"].sum().name("best_s"),
        lambda t: t["state"].argmax(t["start_s"]).name("last_state"),
        lambda t: t["name"].min().name("name"),
        lambda t: t["user"].min().name("user"),
        lambda t: t["attempt_id"].min().name("first_id"),
    )
    long = sums.filter(sums["scheduled_s"] >= min_scheduled_h * SECONDS_PER_HOUR)
    rows: list[dict[str, Any]] = long.to_pyarrow().to_pylist()
    for row in rows:
        if row["with_gpus"] < row["attempts"]:
            row["gpu_s"] = None  # those of some attempts alone would be too few, without a sign
    return rows


def _without_gpus(attempts: ibis.Table, selection: Selection | None) -> int:
    ran = attempts.filter(attempts["start"].notnull() & attempts["n_gpus"].isnull())
    if selection is not None:
        # one that still runs has no end, and is of the last period
        ran = ran.filter(in_period(ran["end"], selection).fill_null(selection.until is None))
    return int(ran.count().to_pyarrow().as_py())


def _selected(
    rows: list[dict[str, Any]],
    parts: ibis.Table,
    selection: Selection | None,
    chosen: ibis.Table | None,
) -> list[dict[str, Any]]:
    """Runs that ended in the period, with one of the chosen attempts; `chosen` counts these."""
    if selection is not None:
        rows = [row for row in rows if selection.holds(row["last_s"])]
    if chosen is None:
        return [{**row, "chosen": row["attempts"]} for row in rows]
    names = ("cluster", "run_key", "run_part", "run_job")
    mine = parts.semi_join(chosen, "attempt_id").group_by(*names)
    found = fetch(mine.aggregate(lambda t: t.count().name("chosen"))).to_pylist()
    counts = {tuple(row[name] for name in names): row["chosen"] for row in found}
    keyed = ((tuple(row[name] for name in names), row) for row in rows)
    return [{**row, "chosen": counts[key]} for key, row in keyed if key in counts]


def _productive_s(parts: ibis.Table, cut: Any, case: Scenario) -> Any:
    """Productive seconds of each attempt in one scenario, without those in which another ran too.

    One that starts while another runs has restarted, in part or in whole, when it goes on alone.
    """
    interval_s = case.checkpoint_interval_min * SECONDS_PER_MINUTE
    before_s = ibis.greatest(parts["concurrent_s"], case.restart_min * SECONDS_PER_MINUTE)
    run_s = ibis.greatest(parts["elapsed_s"] - before_s, 0.0)
    lost_s = ibis.cases((cut, ibis.least(run_s, case.lost_share * interval_s)), else_=0.0)
    return (run_s - lost_s) * (1.0 - case.save_min / case.checkpoint_interval_min)


@dataclass(frozen=True, slots=True)
class _RunDetail:
    """What is looked up for a listed run only."""

    split: ScheduledSplit | None = None
    job_ids: tuple[str, ...] = ()
    interruptions: int | None = None
    confidences: tuple[str, ...] | None = None

    @property
    def failures(self) -> int | None:
        """How many of its attempts the infrastructure ended."""
        return None if self.confidences is None else len(self.confidences)


def _details(
    progress: ibis.Table,
    rows: list[dict[str, Any]],
    parts: ibis.Table,
    ends: tuple[ibis.Table | None, ibis.Table | None],
    *,
    of_record: bool,
) -> dict[int, _RunDetail]:
    """For each listed run its split, the ids of its jobs, and how its attempts ended."""
    if not rows:
        return {}
    by_run = _members(rows, parts)
    everyone = [attempt for attempts in by_run.values() for attempt in attempts]
    records = records_of_jobs(progress, {(one["cluster"], one["job_id"]) for one in everyone})
    ids = [one["attempt_id"] for one in everyone]
    interruptions, failures = ends
    interrupted = None if interruptions is None else _among(interruptions, ids)
    failed = None if failures is None else _confidences(failures, ids)
    details: dict[int, _RunDetail] = {}
    for place, attempts in by_run.items():
        jobs = tuple(dict.fromkeys(attempt["job_id"] for attempt in attempts))
        keys = [(rows[place]["cluster"], job) for job in jobs]
        recorded = {key[1]: records[key] for key in keys if key in records}
        split = None
        if not _both_record_steps(recorded, attempts):
            times = [(one["job_id"], _scheduled(one)) for one in attempts]
            jobs_records = (
                one.ending_with(_ends_before_another_job(job, times))
                for job, one in recorded.items()
            )
            record, state = record_of_run(jobs_records), _state_of(rows[place]["last_state"])
            split = split_scheduled(record, [time for _, time in times], state)
            if of_record and split is not None and split.clock_set_back:
                split = split_scheduled(record, None, state)
        mine = {attempt["attempt_id"] for attempt in attempts}
        details[place] = _RunDetail(
            split,
            jobs,
            None if interrupted is None else len(mine & interrupted),
            None if failed is None else tuple(failed[one] for one in sorted(mine & failed.keys())),
        )
    return details


def _both_record_steps(recorded: Mapping[str, JobRecord], attempts: list[dict[str, Any]]) -> bool:
    """Whether two jobs of a run both record steps while both run.

    Read as one record, the steps of one would be those of the other, done again.
    """
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


def _members(rows: list[dict[str, Any]], parts: ibis.Table) -> dict[int, list[dict[str, Any]]]:
    """The attempts of each listed run, in order of their starts."""
    key = ["cluster", "run_key", "run_part", "run_job"]
    wanted = ibis.memtable(
        {name: [row[name] for row in rows] for name in key} | {"place": list(range(len(rows)))},
    )
    found = fetch(
        parts.inner_join(wanted, key),
        *("place", "cluster", "job_id", "attempt_id", "start_s", "end_s", "suspended_s"),
    ).to_pylist()
    by_run: dict[int, list[dict[str, Any]]] = {}
    for member in sorted(found, key=lambda one: (one["start_s"], one["attempt_id"])):
        by_run.setdefault(member["place"], []).append(member)
    return by_run


def _among(table: ibis.Table, attempt_ids: list[str]) -> set[str]:
    """Those of the attempts that the table holds."""
    asked = ibis.memtable({"attempt_id": attempt_ids}, schema={"attempt_id": "string"})
    found = fetch(table.select("attempt_id").semi_join(asked, "attempt_id"), "attempt_id")
    return set(found["attempt_id"].to_pylist())


def _confidences(failures: ibis.Table, attempt_ids: list[str]) -> dict[str, str]:
    """How sure the failures among the attempts are."""
    asked = ibis.memtable({"attempt_id": attempt_ids}, schema={"attempt_id": "string"})
    found = fetch(failures.semi_join(asked, "attempt_id"), "attempt_id", "confidence")
    return dict(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def _ends_before_another_job(job: str, times: list[tuple[str, ScheduledAttempt]]) -> list[int]:
    """Ends of a job's attempts in whose second an attempt of another job of the run goes on."""
    others = [time for other, time in times if other != job]
    return [
        time.end_us
        for mine, time in times
        if mine == job
        and any(
            one.start_us < time.end_us + MICROSECONDS_PER_SECOND and one.end_us > time.end_us
            for one in others
        )
    ]


def _scheduled(attempt: dict[str, Any]) -> ScheduledAttempt:
    names = ("start_s", "end_s", "suspended_s")
    return ScheduledAttempt(*(round(attempt[name] * MICROSECONDS_PER_SECOND) for name in names))


def _state_of(last_state: str) -> RunState:
    if last_state == "COMPLETED":
        return RunState.COMPLETED
    return RunState.RUNNING if last_state in STILL_RUNNING else RunState.INTERRUPTED


def _run(row: dict[str, Any], detail: _RunDetail) -> JobRun:
    split = detail.split
    wall_s = float(row["queue_s"] + row["scheduled_s"])
    productive_h = _productive_h(row, split)
    wall_h = wall_s / SECONDS_PER_HOUR
    return JobRun(
        cluster=row["cluster"],
        name=row["name"],
        user=row["user"],
        job_ids=detail.job_ids,
        jobs=int(row["jobs"]),
        attempts=int(row["attempts"]),
        interruptions=detail.interruptions,
        failures=detail.failures,
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
        split=split,
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


def _by_size(runs: list[JobRun]) -> tuple[SizeEttr, ...]:
    classes: dict[int, list[JobRun]] = {}
    for run in runs:
        if run.wallclock_h:
            classes.setdefault(size_end_of(run.n_gpus), []).append(run)
    return tuple(
        SizeEttr(
            size=size_class(end),
            runs=len(members),
            measured_runs=sum(run.basis == "progress" for run in members),
            gpu_hours=_summed([run.gpu_hours for run in members]),
            wallclock_h=sum(run.wallclock_h or 0.0 for run in members),
            mean_ettr_ratio=_mean([run.ettr_ratio for run in members], [1.0] * len(members)),
            pooled_ettr_ratio=_mean(
                [run.ettr_ratio for run in members], [run.wallclock_h or 0.0 for run in members]
            ),
        )
        for end, members in sorted(classes.items())
    )


def _by_shape(runs: list[JobRun]) -> tuple[ShapeRuns, ...]:
    """In the order of the first run of each, which is that of GPU-hours of one run."""
    shapes: dict[tuple[int | None, int | None], list[float | None]] = {}
    for run in runs:
        shapes.setdefault((run.n_gpus, run.n_nodes), []).append(run.gpu_hours)
    return tuple(
        ShapeRuns(n_gpus, n_nodes, len(hours), _summed(hours))
        for (n_gpus, n_nodes), hours in shapes.items()
    )


def _summed(hours: list[float | None]) -> float | None:
    """The sum of those that are known; None where none is."""
    known = [one for one in hours if one is not None]
    return sum(known) if known else None


def _mean(ratios: list[Interval], weights: list[float]) -> Interval:
    """The mean of those that are known."""
    known = [(r, w) for r, w in zip(ratios, weights, strict=True) if r.estimate is not None]
    if not known:
        return Interval.unknown()
    ends = np.array([[r.estimate, r.low, r.high] for r, _ in known], dtype=np.float64)
    return Interval(*np.average(ends, axis=0, weights=[w for _, w in known]).tolist())
