"""Job runs and their effective training time ratio."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ettr.analysis import loss_questions
from ettr.metrics.run_progress import ScheduledSplit
from ettr.metrics.run_rules import Scenario
from ettr.metrics.runs import JobRun, JobRuns
from ettr.metrics.trend import WINDOW_DAYS
from ettr.report.charts import named_rows, points, share_axis, spans
from ettr.report.numbers import (
    DASH,
    RANGES,
    bounds,
    by_confidence,
    duration,
    moment,
    number,
    percent,
)
from ettr.report.registry import CAUSES, NO_JOBS, Command, Part
from ettr.report.section import Figure, Layout, Section, TextTable, Trace, table_of_rows
from ettr.units import SECONDS_PER_HOUR
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_TITLE = "Effective training time"
_FIGURE_RUNS = 30  # with the head of its section on one sheet of A4
_NAME_LENGTH = 24
_NAMED_RUNS = 3
_LARGEST = 5
_MEASURED = "progress"
_BASES = {_MEASURED: "measured", "assumed": "assumed"}
_SYMBOLS = {"measured": "circle", "assumed": "circle-open"}
_DASHES = {"measured": "solid", "assumed": "dot"}
_SPLIT_HEADERS = (
    "productive",
    "steps repeated",
    "steps never saved",
    "saving",
    "restoring",
    "starting",
    "stalled",
    "suspended",
    "other",
)


def runs_section(runs: JobRuns) -> Section:
    """ETTR of each run: measured where progress records exist, else a range of assumptions."""
    if not runs.runs_found:
        return Section("runs", _TITLE, f"No run{_least_size(runs)}.")
    known = [run for run in runs.runs if run.ettr_ratio.estimate is not None]
    tables = (
        *(
            table_of_rows(
                "ETTR by run size",
                runs.by_size,
                (">GPUs", lambda size: size.size.label),
                (">runs", lambda size: number(size.runs)),
                (">measured", lambda size: number(size.measured_runs)),
                (">GPU-hours", lambda size: number(size.gpu_hours, 4)),
                (">wall clock, hours", lambda size: number(size.wallclock_h, 4)),
                (">ETTR, mean of runs", lambda size: bounds(size.mean_ettr_ratio)),
                (">ETTR, all hours together", lambda size: bounds(size.pooled_ettr_ratio)),
                gpu_hours=((3, tuple(size.gpu_hours for size in runs.by_size)),),
            ),
            _runs_table(runs.runs),
            _split_table(runs.runs),
        ),
        *_waits_table(runs.runs),
    )
    return Section(
        "runs",
        _TITLE,
        _lead(runs),
        (_figure(known),) if known else (),
        tables,
        _notes(runs),
        answer=_answer(runs),
        careful=_careful(runs),
    )


def _careful(runs: JobRuns) -> str:
    if runs.unknown_runs == runs.runs_found:
        return ""
    if runs.measured_runs == runs.runs_found:
        return "Work that no checkpoint kept counts as lost."
    return (
        "(a to b): the range from poor to good checkpoints; give yours with --interval and "
        "--restart."
    )


def _answer(runs: JobRuns) -> str:
    """ETTR of the largest runs, the earliest first."""
    largest = sorted(runs.runs, key=lambda run: -(run.n_gpus or 0))[:_LARGEST]
    if not largest:
        return ""
    if runs.unknown_runs == runs.runs_found:
        return "Not measured: no run is longer than the restart that is assumed (--restart)."
    in_time = sorted(largest, key=lambda run: run.first_eligible)
    which = "largest run" if len(in_time) == 1 else f"{len(in_time)} largest runs in order of time"
    return f"ETTR of the {which}: {', '.join(bounds(run.ettr_ratio) for run in in_time)}."


def recorded_runs_section(runs: JobRuns) -> Section:
    """What progress records alone say of their runs: everything but what they waited."""
    if not runs.runs_found:
        return Section("runs", _TITLE, f"No recorded run{_least_size(runs)}.")
    measured = [run for run in runs.runs if run.split is not None]
    lead = (
        f"{counted(runs.runs_found, 'recorded run')}{_least_size(runs)}. Without job accounting "
        "their wait in the queue is unknown: ETTR is productive time over the time from a run's "
        "first event to its last, and with the queue it is at most that."
    )
    table = table_of_rows(
        "Recorded runs",
        measured,
        ("run", _label),
        (">first to last event", lambda run: _lasting(run.scheduled_h)),
        (">ETTR without queue", lambda run: bounds(run.ettr_without_queue_ratio)),
        (">ETTR", lambda run: bounds(run.ettr_ratio)),
        ("last state", lambda run: run.last_state),
        in_brief=True,
    )
    notes = (
        "A run ended where its record says so; for any other (UNKNOWN) the work after "
        "the last checkpoint counts as lost.",
        *_unrecorded(runs),
        RANGES,
    )
    tables = (table, _split_table(runs.runs), *_waits_table(runs.runs))
    return Section("runs", _TITLE, lead, (), tables, notes)


def _lead(runs: JobRuns) -> str:
    """How many runs there are, and what each ETTR rests on."""
    unknown = runs.unknown_runs
    ranged = runs.runs_found - runs.measured_runs - unknown
    words = []
    if runs.measured_runs:
        words.append(
            f"measured from progress records for {counted(runs.measured_runs, 'run')}",
        )
    if ranged:
        words.append(
            f"a range over assumed checkpoint and restart times for {counted(ranged, 'run')} "
            "without such records"
        )
    if unknown:
        words.append(
            f"not known for {counted(unknown, 'run')} shorter than the restart that is assumed"
        )
    return (
        f"{counted(runs.runs_found, 'run')}{_least_size(runs)}. ETTR is productive time over "
        f"wall-clock time, queueing included. It is {', '.join(words)}."
    )


def _least_size(runs: JobRuns) -> str:
    """Which runs count, where short or small ones are left out."""
    limits = []
    if runs.min_scheduled_h:
        limits.append(f"{number(runs.min_scheduled_h)} h")
    if runs.min_gpus > 1:
        limits.append(f"{runs.min_gpus} GPUs")
    return f" of at least {' and '.join(limits)}" if limits else ""


_RECORDS = "In the [record|records] of {n} measured [run|runs] "


def _notes(runs: JobRuns) -> tuple[str, ...]:
    notes = [
        "A run joins the requeues and resubmissions of one task: those with the same run id in "
        "the job's comment, else with the same name, user and work folder, at most "
        f"{number(runs.gap_h)} h apart.",
        "Interruptions are attempts that ended against their owner's wish: not those that reached "
        "their time limit or that their owner cancelled. Failures are those of them that the "
        "infrastructure caused.",
    ]
    if sure := by_confidence(runs.by_confidence):
        notes.append(f"Failures of the listed runs by confidence: {sure}.")
    if runs.attempts_without_gpus:
        notes.append(
            f"Left out, since no log names their GPUs: "
            f"{counted(runs.attempts_without_gpus, 'attempt')} that ran."
        )
    if runs.partly_selected_runs:
        notes.append(
            f"{number(runs.partly_selected_runs)} of these runs also had attempts outside "
            "the selection. A run counts whole if one of its attempts is selected: its "
            "hours exceed those of the selection, and it may be in another one too."
        )
    notes += [*_side_by_side(runs), RANGES, *_unrecorded(runs)]
    if runs.measured_runs == runs.runs_found:
        return tuple(notes)
    given = runs.assumptions
    notes.append(
        "Assumed of runs without progress records: at worst "
        f"{_case(given.worst)}; for the estimate {_case(given.middle)}; at best "
        f"{_case(given.best)}. A run that spends more than "
        f"{percent(given.worst.save_min / given.worst.checkpoint_interval_min, 2)} of its time in "
        "saving lies below that range: give its times (--interval, --write), or record "
        "its progress."
    )
    if runs.unknown_runs:
        notes.append(
            f"ETTR {DASH}: the run was shorter than the restart that is assumed, so that nothing "
            "is known of its ETTR; means leave it out."
        )
    return tuple(notes)


def _side_by_side(runs: JobRuns) -> list[str]:
    at_once = [run for run in runs.runs if run.concurrent_h > 0]
    hours = sum(run.concurrent_h for run in at_once)
    return _of_runs(
        at_once,
        "Attempts of {n} [run|runs] ",
        f"ran at the same time, for {duration(hours * SECONDS_PER_HOUR)}. That time counts once in "
        "the wall clock, and in GPU-hours for each attempt. Where two jobs recorded steps at once, "
        "the run is not measured: its records are not one.",
    )


def _unrecorded(runs: JobRuns) -> list[str]:
    """What records leave out or say twice, and what that does to their ETTR."""
    recorded = [(run, run.split) for run in runs.runs if run.split is not None]
    sparse = [run for run, split in recorded if split.unrecorded_steps]
    twice = [run for run, split in recorded if split.overlap_h > 0]
    overlap_h = sum(split.overlap_h for _, split in recorded if split.overlap_h > 0)
    back = [run for run, split in recorded if split.clock_set_back]
    outside = [run for run, split in recorded if split.outside_steps]
    n_outside = sum(split.outside_steps for _, split in recorded)
    return [
        *_of_runs(
            [run for run, split in recorded if not split.is_measured],
            "{n} measured [run|runs] ",
            "ended otherwise than by completing, and no save is recorded: what was kept lies "
            "between nothing and every step, so that ETTR has ends and no estimate. Record the "
            "saves to measure it.",
        ),
        *_of_runs(
            [
                run
                for run in runs.runs
                if run.input_stall and run.input_stall.low < run.input_stall.high
            ],
            "The waits for data of {n} measured [run|runs] ",
            "are the host's, an upper bound: a device with work queued trains meanwhile, and the "
            "high end of the ETTR counts them as such. A step that ends when its device has "
            "finished, or a probe of its idle time, measures them.",
        ),
        *_of_runs(
            sparse,
            _RECORDS,
            "steps are missing: not every step was logged, or lines were lost. The low end of such "
            "an ETTR counts the recorded durations only, the high end also the time between the "
            "lines as far as missing steps can have filled it; the estimate gives each missing "
            "step the usual duration where there is time for it.",
        ),
        *_of_runs(
            twice,
            _RECORDS,
            f"durations of steps overlap, by {duration(overlap_h * SECONDS_PER_HOUR)}. Time counts "
            "once, and the low end of the ETTR leaves out as much as overlaps: the duration of a "
            "step is the time that it held up the loop, not that since the start.",
        ),
        *_of_runs(back, _RECORDS, _set_back(back)),
        *_of_runs(
            outside,
            _RECORDS,
            f"{counted(n_outside, 'step')} {'is' if n_outside == 1 else 'are'} dated outside the "
            "attempts: the clock of the record was wrong. The low end of such an ETTR leaves their "
            "time out, as the estimate does; the high end counts it.",
        ),
    ]


def _of_runs(some: list[JobRun], whose: str, says: str) -> list[str]:
    """A note on some runs, by number and name; none where there are none."""
    return [f"{by_number(whose, len(some))}({_named(some)}) {says}"] if some else []


def _set_back(back: list[JobRun]) -> str:
    says = (
        "the clock goes back, as a start or the next step shows. How much time passed there the "
        "record does not say."
    )
    if any(run.wallclock_h is not None for run in back):
        says += (
            " The wall clock is that of the attempts; where in them the steps after it lie is "
            "assumed, and the ETTR has a low and a high end where that matters."
        )
    if any(run.wallclock_h is None for run in back):
        says += (
            " No log of a scheduler bounds it: scheduled time is the least that it can be, so that "
            "the ETTR without queue has a high end, a low end of 0 and no estimate."
        )
    return says


def _named(runs: list[JobRun]) -> str:
    names = [_label(run) for run in runs[:_NAMED_RUNS]]
    more = len(runs) - len(names)
    return ", ".join(names) + (f" and {counted(more, 'more run')}" if more else "")


def _case(case: Scenario) -> str:
    return (
        f"a checkpoint every {number(case.checkpoint_interval_min)} min that takes "
        f"{number(case.save_min)} min, restarts of {number(case.restart_min)} min and "
        f"{percent(case.lost_share, 2)} of an interval lost at each interruption"
    )


def _lasting(hours: float | None) -> str:
    return DASH if hours is None else duration(hours * SECONDS_PER_HOUR)


def _label(run: JobRun) -> str:
    name = (run.name or "unnamed")[:_NAME_LENGTH]
    return f"{name} ({run.job_ids[0]})" if run.job_ids else name


def _figure(known: list[JobRun]) -> Figure:
    """ETTR of the largest runs over time; of logs under two windows a strip of the runs."""
    largest = sorted(known, key=lambda run: (-(run.n_gpus or 0), -(run.gpu_hours or 0.0)))
    order = sorted(largest[:_FIGURE_RUNS], key=lambda run: run.first_eligible)
    span = max(run.end for run in order) - order[0].first_eligible
    is_strip = span < timedelta(days=2.0 * WINDOW_DAYS)
    kinds = [
        (name, some)
        for name, some in (
            ("measured", [run for run in order if run.basis == _MEASURED]),
            ("assumed", [run for run in order if run.basis != _MEASURED]),
        )
        if some
    ]
    drawn = _strip if is_strip else _dots
    traces = [trace for name, some in kinds for trace in drawn(name, some)]
    title = f"ETTR of the {counted(len(order), 'largest run')} over time"
    basis = "Measured where progress was recorded, else for usual checkpoints and restarts."
    if is_strip:
        caption = f"Each from its submission to its end, with its ETTR. {basis}"
        layout: Layout = {**named_rows([_label(run) for run in order]), "margin": {"r": 44}}
        return Figure("runs", title, caption, tuple(traces), layout)
    caption = f"By time of submission; thin lines reach from poor checkpoints to good ones. {basis}"
    return Figure("runs", title, caption, tuple(traces), {"yaxis": share_axis("ETTR")})


def _dots(name: str, some: list[JobRun]) -> list[Trace]:
    times = [moment(run.first_eligible) for run in some]
    values = [run.ettr_ratio for run in some]
    hover = [_hover(run) for run in some]
    middle = [one.estimate for one in values]
    return [points(name, times, middle, hover, intervals=values, symbol=_SYMBOLS[name])]


def _strip(name: str, some: list[JobRun]) -> list[Trace]:
    return spans(
        name,
        [_label(run) for run in some],
        [(moment(run.first_eligible), moment(run.end)) for run in some],
        [_hover(run) for run in some],
        [f" {number(run.ettr_ratio.estimate, 2)}" for run in some],
        dash=_DASHES[name],
    )


def _hover(run: JobRun) -> str:
    gpus = "unknown GPUs" if run.n_gpus is None else counted(run.n_gpus, "GPU")
    return (
        f"{_label(run)}: ETTR {bounds(run.ettr_ratio)}\n{gpus}, "
        f"{_interruptions(run)}, {number(run.wallclock_h, 4)} h"
    )


def _interruptions(run: JobRun) -> str:
    if run.interruptions is None:
        return "unknown interruptions"
    return counted(run.interruptions, "interruption")


def _runs_table(listed: tuple[JobRun, ...]) -> TextTable:
    return table_of_rows(
        "Runs with the most GPU-hours",
        listed,
        ("run", _label),
        ("began", lambda run: moment(run.first_eligible)),
        ("user", lambda run: run.user or DASH),
        (">GPUs", lambda run: number(run.n_gpus)),
        (">attempts", lambda run: number(run.attempts)),
        (">interruptions", lambda run: number(run.interruptions)),
        (">failures", lambda run: number(run.failures)),
        (">wall clock", lambda run: _lasting(run.wallclock_h)),
        (">queued", lambda run: _lasting(run.queue_h)),
        (">ETTR", lambda run: bounds(run.ettr_ratio)),
        (">without queue", lambda run: bounds(run.ettr_without_queue_ratio)),
        ("basis", lambda run: _BASES.get(run.basis, run.basis)),
        ("last state", lambda run: run.last_state),
        in_brief=True,
        detail_columns=(
            "user",
            "attempts",
            "interruptions",
            "queued",
            "without queue",
            "last state",
        ),
    )


def _split_table(listed: tuple[JobRun, ...]) -> TextTable:
    return TextTable(
        "Where the scheduled time of measured runs went",
        ("run", *_SPLIT_HEADERS),
        tuple(
            (
                _label(run),
                _productive(run.split),
                *(duration(hours * SECONDS_PER_HOUR) for hours in _split_hours(run.split)[1:]),
            )
            for run in listed
            if run.split is not None
        ),
        frozenset(range(1, 12)),
    )


def _waits_table(listed: tuple[JobRun, ...]) -> tuple[TextTable, ...]:
    """Waits for data of the runs whose steps are recorded; none where no record times them."""
    measured = [run for run in listed if run.split is not None]
    if not any(run.input_waits for run in measured):
        return ()
    hours = tuple(run.input_waits.gpu_hours if run.input_waits else None for run in measured)
    table = TextTable(
        "Waits for data",
        (
            "run",
            "waiting for data",
            "waits",
            "of training time",
            "GPU-hours",
            "of the waits, at epoch starts",
            "evaluation, apart",
            "ranks",
        ),
        tuple(_waits_row(run) for run in measured),
        frozenset(range(1, 8)),
        in_brief=True,
        detail_columns=("waits", "of the waits, at epoch starts", "evaluation, apart", "ranks"),
        gpu_hours=((4, hours),),
    )
    return (table,)


def _waits_row(run: JobRun) -> tuple[str, ...]:
    waits = run.input_waits
    if waits is None:
        return (_label(run), "not measured", *[DASH] * 6)
    return (
        _label(run),
        bounds(waits.stall),
        _lasting(waits.wait_h),
        _lasting(waits.training_h),
        number(waits.gpu_hours, 4),
        _lasting(waits.epoch_start_h),
        _lasting(waits.evaluation_h),
        number(waits.n_ranks),
    )


def _productive(split: ScheduledSplit) -> str:
    """The productive time, with the ends between which it lies where they are apart."""
    shown = [
        duration(hours * SECONDS_PER_HOUR)
        for hours in (split.productive_h, split.productive_low_h, split.productive_high_h)
    ]
    estimate, low, high = shown
    return estimate if low == high else f"{estimate} ({low} to {high})"


def _split_hours(split: ScheduledSplit) -> tuple[float, ...]:
    """In the order of `_SPLIT_HEADERS`."""
    return (
        split.productive_h,
        split.redone_h,
        split.unsaved_h,
        split.save_h,
        split.restore_h,
        split.restart_h,
        split.stall_h,
        split.suspended_h,
        split.other_h,
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    logs = analysis.logs_read
    if not logs.jobs and not logs.progress:
        return (Section("runs", _TITLE, NO_JOBS),)
    return ((runs_section if logs.jobs else recorded_runs_section)(analysis.runs),)


RUNS = Part(
    "runs",
    place=90,
    question=loss_questions.runs,
    sections=_sections,
    main="runs",
    command=Command(
        help="Job runs over requeues and resubmissions, and the ETTR of each.",
        options=(*CAUSES, "run_id", "interval", "restart", "write", "gpus_per_node"),
        place=70,
        examples=("ettr runs site", "ettr runs site --interval 30min"),
    ),
)
