"""Job runs and their effective training time ratio."""

from __future__ import annotations

from ettr.metrics.runs import JobRun, JobRuns, Scenario
from ettr.report.numbers import DASH, between, counted, duration, finite, number
from ettr.report.section import Figure, Section, Table
from ettr.units import SECONDS_PER_HOUR

_FIGURE_RUNS = 40


def runs_section(runs: JobRuns) -> Section:
    """ETTR of each run, measured where the training told its progress, else a band."""
    if not runs.runs_found:
        lead = (
            f"No run of {number(runs.min_scheduled_h)} h or more on {runs.min_gpus} or more GPUs."
        )
        return Section("runs", "Effective training time", lead)
    banded = runs.runs_found - runs.measured_runs
    long_enough = f" of {number(runs.min_scheduled_h)} h or more" if runs.min_scheduled_h else ""
    lead = (
        f"{counted(runs.runs_found, 'run')}{long_enough}. ETTR is productive time over wallclock, "
        f"queueing included: measured for {counted(runs.measured_runs, 'run')} with progress told, "
        f"a band over assumptions for the other {banded:,}."
    )
    shown = runs.runs[:_FIGURE_RUNS]
    figures = (_figure(shown),) if shown else ()
    tables = (_by_size(runs), _runs_table(runs.runs), _split_table(runs.runs))
    given = runs.assumptions
    notes = (
        f"Without progress: worst {_case(given.worst)}; middle {_case(given.middle)}; best "
        f"{_case(given.best)}.",
        "A run joins requeues and resubmissions of one task: the id that its comment gives, else "
        f"equal name, user and work folder, at most {number(runs.gap_h)} h apart.",
    )
    return Section("runs", "Effective training time", lead, figures, tables, notes)


def _case(case: Scenario) -> str:
    return (
        f"a checkpoint every {number(case.checkpoint_interval_min)} min that takes "
        f"{number(case.save_min)} min, restarts of {number(case.restart_min)} min, "
        f"{number(case.lost_share)} of an interval lost at each end"
    )


def _label(run: JobRun) -> str:
    name = run.name or "unnamed"
    return f"{name[:24]} ({run.job_ids[0]})" if run.job_ids else name[:24]


def _figure(shown: tuple[JobRun, ...]) -> Figure:
    order = sorted(shown, key=lambda run: run.ettr_ratio.estimate or 0.0)
    traces = []
    for basis, symbol in (("progress", "circle"), ("assumptions", "line-ns-open")):
        chosen = [run for run in order if (run.basis == "progress") == (basis == "progress")]
        ratios = [run.ettr_ratio for run in chosen]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "measured" if basis == "progress" else "band over assumptions",
                "y": [_label(run) for run in chosen],
                "x": [ratio.estimate for ratio in ratios],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(finite(r.high) or 0) - (r.estimate or 0) for r in ratios],
                    "arrayminus": [(r.estimate or 0) - (finite(r.low) or 0) for r in ratios],
                },
                "customdata": [[run.n_gpus, run.interruptions, run.wallclock_h] for run in chosen],
                "hovertemplate": "%{y}: ETTR %{x:.3f}<br>%{customdata[0]} GPUs, %{customdata[1]} "
                "interruptions, %{customdata[2]:.4g} h",
                "marker": {"symbol": symbol, "size": 9},
            }
        )
    return Figure(
        "runs",
        "ETTR of runs",
        f"The {len(shown)} runs with the most GPU-hours.",
        tuple(traces),
        {
            "xaxis": {"range": [0, 1.02], "title": {"text": "ETTR"}},
            "yaxis": {"dtick": 1},
            "height": max(_LEAST_HEIGHT_PX, _ROW_PX * len(shown)),
        },
    )


def _by_size(runs: JobRuns) -> Table:
    return Table(
        "ETTR by run size",
        ("GPUs", "runs", "measured", "GPU-hours", "wallclock, h", "ETTR, mean", "ETTR, pooled"),
        tuple(
            (
                size.size.label,
                number(size.runs),
                number(size.measured_runs),
                number(size.gpu_hours, 5),
                number(size.wallclock_h, 5),
                between(size.mean_ettr_ratio),
                between(size.pooled_ettr_ratio),
            )
            for size in runs.by_size
        ),
        frozenset(range(7)),
    )


def _runs_table(listed: tuple[JobRun, ...]) -> Table:
    return Table(
        "Runs with the most GPU-hours",
        (
            "run",
            "user",
            "GPUs",
            "attempts",
            "interruptions",
            "wallclock, h",
            "queued, h",
            "ETTR",
            "basis",
            "last state",
        ),
        tuple(
            (
                _label(run),
                run.user or DASH,
                number(run.n_gpus),
                number(run.attempts),
                number(run.interruptions),
                number(run.wallclock_h),
                number(run.queue_h),
                between(run.ettr_ratio),
                run.basis,
                run.last_state,
            )
            for run in listed
        ),
        frozenset(range(2, 8)),
    )


def _split_table(listed: tuple[JobRun, ...]) -> Table:
    measured = [(run, run.split) for run in listed if run.split is not None]
    names = [name for name in _SPLIT if measured]
    return Table(
        "Where the scheduled time of measured runs went",
        ("run", *(name.removesuffix("_h").replace("_", " ") for name in names)),
        tuple(
            (
                _label(run),
                *(duration(getattr(split, name) * SECONDS_PER_HOUR) for name in names),
            )
            for run, split in measured
        ),
        frozenset(range(1, 12)),
    )


# a run's name needs a line of its own
_ROW_PX = 22
_LEAST_HEIGHT_PX = 380

_SPLIT = (
    "productive_h",
    "redone_h",
    "unsaved_h",
    "save_h",
    "restore_h",
    "restart_h",
    "stall_h",
    "other_h",
)
