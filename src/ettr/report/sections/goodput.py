"""What failures cost in GPU-hours: in failed jobs, in preempted ones, in jobs that keep failing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from ettr.analysis import loss_questions
from ettr.analysis.objectives import ObjectivesHeld, ObjectiveState, objectives_held
from ettr.metrics.goodput import SAME_CAUSE, SAME_NODE, CauseLoss, CrashLoop, LostGoodput, SizeLoss
from ettr.metrics.stitching import PreemptionLinks
from ettr.report.charts import BarSeries, row_chart
from ettr.report.numbers import (
    ACCOUNT_GPUS,
    NO_GPUS,
    SAY_GPUS,
    and_confidence,
    between,
    duration,
    left_out,
    moment,
    none_says,
    number,
    percent,
    share_between,
)
from ettr.report.registry import CAUSES, Command, Part
from ettr.report.section import Figure, GpuHours, Section, TextTable, table_of_rows
from ettr.units import SECONDS_PER_HOUR
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis


_HEADERS = ("failures", "in failed jobs", "preemptions", "in preempted jobs", "GPU-hours")


def goodput_section(lost: LostGoodput, gpu_hours: float | None) -> Section:
    """Lost goodput by cause and by size; `gpu_hours` is what ran in all, None if unknown."""
    tables = (
        TextTable(
            "GPU-hours lost by cause",
            ("symptom", *_HEADERS),
            tuple((one.symptom, *_loss_cells(one)) for one in lost.by_cause),
            frozenset(range(1, 6)),
            gpu_hours=_loss_hours(lost.by_cause),
        ),
        TextTable(
            "GPU-hours lost by size of the failed job",
            ("GPUs", *_HEADERS),
            tuple((one.size.label, *_loss_cells(one)) for one in lost.by_size),
            frozenset(range(6)),
            gpu_hours=_loss_hours(lost.by_size),
        ),
        table_of_rows(
            "Jobs with repeated failures",
            lost.crash_loops,
            ("job", lambda loop: f"{loop.cluster} {loop.job_id}"),
            (">GPUs", lambda loop: number(loop.n_gpus)),
            (">ran, hours", lambda loop: number(loop.run_hours, 4)),
            (">failures", lambda loop: number(loop.failures)),
            (">expected", lambda loop: number(loop.expected_failures, 2)),
            (">jobs preempted", lambda loop: number(loop.preemptions)),
            (
                ">their GPUs",
                lambda loop: number(loop.preempted_gpus if gpu_hours is not None else None),
            ),
            (">GPU-hours lost", lambda loop: number(loop.lost_gpu_hours, 4)),
            ("causes", lambda loop: ", ".join(loop.symptoms)),
            ("beyond chance", _beyond_chance),
            gpu_hours=((7, tuple(loop.lost_gpu_hours for loop in lost.crash_loops)),),
        ),
    )
    notes = [
        f"An interruption loses the runtime of its job, at most {number(lost.cap_min)} "
        "minutes of it: half of an assumed checkpoint interval."
    ]
    if lost.preemption_links.preempted_attempts:
        notes.append(_links_note(lost.preemption_links))
    if lost.crash_loops:
        notes.append(
            "A job with repeated failures is a crash loop only beyond chance: if failures followed "
            "each other faster than the rate of the other jobs makes likely, always on one of its "
            "nodes, or always with one cause that is rare elsewhere. “expected” are failures in "
            "its node-days at the rate of the other jobs."
        )
    without = left_out(lost)
    if gpu_hours is not None and without:
        notes.append(without)
    return Section(
        "goodput",
        "What failures cost",
        _lead(lost, gpu_hours) + _sure(lost),
        (_figure(lost),) if gpu_hours is not None and lost.by_cause else (),
        tables,
        tuple(notes),
        gpu_hours=_totals(lost) if gpu_hours else (),
        answer=_lead(lost, gpu_hours).partition(": ")[0] + "."
        if _total_of(lost, gpu_hours)
        else "",
        careful=_assumed(lost),
    )


def _total_of(lost: LostGoodput, gpu_hours: float | None) -> float | None:
    return lost_in_all(lost) if gpu_hours else None


def _assumed(lost: LostGoodput) -> str:
    return (
        f"This assumes a checkpoint every {number(2.0 * lost.cap_min)} min, and the loss grows "
        "with that interval; --interval sets yours."
    )


def lost_in_all(lost: LostGoodput) -> float | None:
    """Lost by failed and by preempted jobs as far as known; None where no cause says how much."""
    known = [one.gpu_hours for one in lost.by_cause if one.gpu_hours is not None]
    return sum(known) if known or not lost.by_cause else None


def _totals(lost: LostGoodput) -> tuple[tuple[str, float | None], ...]:
    first, second = lost.first_order_gpu_hours, lost.second_order_gpu_hours
    return (
        ("lost to failures", lost_in_all(lost)),
        ("of it in the failed jobs", first),
        ("in preempted jobs", second),
    )


def _lead(lost: LostGoodput, gpu_hours: float | None) -> str:
    if gpu_hours is None:
        return (
            f"Not measured: {NO_GPUS}, so the loss in GPU-hours is unknown. {ACCOUNT_GPUS}; for "
            f"the logs at hand {SAY_GPUS}."
        )
    if not gpu_hours:
        return "No job held GPUs, so failures cost no GPU-hours."
    total = lost_in_all(lost)
    if total is None:
        return f"Not measured: {none_says(lost)}. The loss in GPU-hours is unknown."
    if not total:
        return f"Failures cost nothing of the {number(gpu_hours, 6)} GPU-hours that ran."
    return (
        f"Failures cost {number(total)} GPU-hours, {percent(total / gpu_hours)} of the "
        f"{number(gpu_hours, 6)} that ran: {number(lost.first_order_gpu_hours)} in the failed "
        f"jobs and {number(lost.second_order_gpu_hours)} "
        f"({percent(lost.second_order_share)} of the loss) in jobs preempted so that failed ones "
        "could restart."
    )


def _sure(lost: LostGoodput) -> str:
    """How many failures there were, and how sure they are; empty without any."""
    sure = lost.by_confidence
    if sure is None or not sure.total:
        return ""
    were = "was" if sure.total == 1 else "were"
    return f" There {were} {counted(sure.total, 'failure')}{and_confidence(sure)}."


def _figure(lost: LostGoodput) -> Figure:
    def series(name: str, hours: Callable[[CauseLoss], float | None]) -> BarSeries:
        values = [hours(cause) for cause in lost.by_cause]
        return BarSeries(name, values, [f"{number(v, 4)} GPU-hours {name}" for v in values])

    return row_chart(
        "goodput",
        "GPU-hours lost by cause",
        "In the failed jobs and in those preempted so that they could restart.",
        [cause.symptom for cause in lost.by_cause],
        [
            series("in failed jobs", attrgetter("first_order_gpu_hours")),
            series("in preempted jobs", attrgetter("second_order_gpu_hours")),
        ],
        axis_title="GPU-hours lost",
    )


def _loss_hours(losses: Sequence[CauseLoss | SizeLoss]) -> tuple[GpuHours, ...]:
    return (
        (2, tuple(one.first_order_gpu_hours for one in losses)),
        (4, tuple(one.second_order_gpu_hours for one in losses)),
        (5, tuple(one.gpu_hours for one in losses)),
    )


def _loss_cells(loss: CauseLoss | SizeLoss) -> tuple[str, ...]:
    return (
        number(loss.failures),
        number(loss.first_order_gpu_hours, 4),
        number(loss.preemptions),
        number(loss.second_order_gpu_hours, 4),
        number(loss.gpu_hours, 4),
    )


def _beyond_chance(loop: CrashLoop) -> str:
    words = []
    if loop.burst is not None:
        words.append(
            f"{loop.burst.failures:,} failures in "
            f"{duration(SECONDS_PER_HOUR * loop.burst.run_hours)} "
            f"({number(loop.burst.expected_failures, 2)} expected)"
        )
    if SAME_NODE in loop.patterns:
        words.append(f"always on {loop.node}")
    if SAME_CAUSE in loop.patterns:
        words.append("always one cause")
    return ", ".join(words) or "no"


def _links_note(links: PreemptionLinks) -> str:
    found = len(links.links)
    note = (
        f"{found:,} of {links.preempted_attempts:,} preempted attempts made room for a "
        "job that had failed. The controller's log names the job that was given the nodes in "
        f"{counted(links.named_by_log, 'case')}."
    )
    if links.named_by_log < links.preempted_attempts:
        note += (
            " In the others an attempt counts as preempted for a failed job if that job restarted "
            f"within {number(links.rule_window_s)} s on one of the same nodes."
        )
    error = links.rule_error
    if error is not None and error.log_links:
        note += (
            " Compared with the log, the rule of nodes and "
            f"{number(links.rule_window_s)} s has precision {share_between(error.precision)} "
            f"and recall {share_between(error.recall)} over "
            f"{counted(error.log_links, 'preemption')}."
        )
    return note


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    ran = analysis.totals.gpu_hours if analysis.gpus_are_known else None
    return (goodput_section(analysis.goodput, ran),)


GOODPUT = Part(
    "goodput",
    place=80,
    question=loss_questions.goodput,
    sections=_sections,
    main="by_cause",
    title="What failures cost",
    command=Command(
        help="GPU-hours lost to failures, by cause: in failed jobs, and in jobs preempted for "
        "them.",
        options=(
            *CAUSES,
            "confidence",
            "interval",
            "preemption_window",
            "preemption_tolerance",
            "gpus_per_node",
        ),
        place=80,
        examples=("ettr goodput site",),
    ),
)


# -- whether the site's objectives hold: what each budget allowed, what came, and its alerts -------


_TITLE = "Objectives of the site"
_NONE = (
    "Not measured: define budgets in [[slo]] tables of ettr.toml or of the --slo file, "
    "and ingest job accounting."
)
_OBJECTIVES_HEADERS = (
    *("objective", "jobs", "verdict", "allowed", "observed", "observed / allowed"),
    *("alert since", "alerts in all"),
)


def objectives_section(held: ObjectivesHeld) -> Section:
    """One row an objective."""
    silent = "".join(
        f" {log.source} has been silent since {log.last_day}: without it no objective is met."
        for log in held.silent
    )
    if not held.objectives:
        return Section("slo", _TITLE, _NONE + silent)
    burning = [one for one in held.objectives if one.is_burning]
    verdicts = ", ".join(
        f"{n} {name}"
        for name in ("missed", "undecided", "met", "unknown")
        if (n := sum(one.verdict == name for one in held.objectives))
    )
    lead = f"Of {counted(len(held.objectives), 'objective')}: {verdicts}. "
    lead += (
        f"Alert: {', '.join(one.name for one in burning)}." if burning else "No alert is raised."
    )
    lead += silent
    return Section(
        "slo",
        _TITLE,
        lead,
        tables=(
            TextTable(
                f"At {moment(held.at)} UTC",
                _OBJECTIVES_HEADERS,
                tuple(map(_row, held.objectives)),
                frozenset(range(3, 8)),
            ),
        ),
        notes=tuple(_note(one) for one in held.objectives if one.false_alarms_per_year),
        careful="A verdict covers the window; an alert means that the rate exceeds the budget now.",
    )


def _row(one: ObjectiveState) -> tuple[str, ...]:
    since = moment(one.alerts[-1].since) if one.is_burning else "none"
    return (
        f"{one.name}: {one.objective}",
        one.of_jobs or "all",
        one.verdict,
        number(one.allowed, 3),
        number(one.came, 3),
        between(one.burn),
        since,
        number(len(one.alerts)),
    )


def _note(one: ObjectiveState) -> str:
    alarms = number(one.false_alarms_per_year, 2)
    return (
        f"{one.name}: {alarms} false alarms a year where its rate is just that of the budget; "
        f"failures vary {number(one.dispersion, 2)} times as much as independent ones. The last "
        f"{one.window_days:g} days decide the verdict."
    )


def _has_objectives(analysis: Analysis) -> bool:
    return bool(analysis.assumptions.objectives)


SLO = Part(
    "slo",
    place=85,
    question=objectives_held,
    section=objectives_section,
    main="objectives",
    on_page=_has_objectives,
    command=Command(
        help="Check the budgets of a site: which hold, and which burns too fast.",
        options=(*CAUSES, "slo", "confidence", "gpus_per_node"),
        place=82,
        examples=("ettr slo site", "ettr slo site --slo budgets.toml --since 90d"),
        priced=False,
    ),
)
