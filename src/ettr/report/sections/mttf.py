"""Mean time to failure by job size, measured and from the failure rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.analysis import failure_questions
from ettr.metrics.mttf import MttfBySize, SizeMttf
from ettr.metrics.rates import RateWithoutFalse
from ettr.metrics.sizes import SIZE_ENDS, SizeUnit
from ettr.report.charts import band, log_axis, points, size_axis
from ettr.report.false_rates import false_note, projecting_rate, rate_without_false
from ettr.report.numbers import DASH, between, by_confidence, finite, number
from ettr.report.registry import CAUSES, Command, Part
from ettr.report.section import Figure, Section, TextTable, Trace
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_TITLE = "Time to failure by job size"


def mttf_section(mttf: MttfBySize, without_false: RateWithoutFalse | None = None) -> Section:
    """MTTF by job size, with the line that the rate projects."""
    unit = "GPUs" if mttf.size_unit == SizeUnit.GPUS else "nodes"
    known = [one for one in mttf.classes if one.size.size_to]
    rate = mttf.rate_used
    notes = [
        f"The MTTF from the rate is 1 / (nodes × rate), for nodes in series at a constant rate of "
        f"{between(rate.per_1000_node_days)} failures per 1,000 node-days "
        f"({rate.failures:,} in {number(rate.node_days, 5)} node-days).",
    ]
    if note := false_note(without_false):
        notes.append(note)
    if any(_only_bounded(one) for one in mttf.classes):
        notes.append("≥: no failure in this size class, so the data give a lower bound only.")
    without = sum(one.attempts_without_nodes for one in mttf.classes)
    if without:
        notes.append(
            by_number(
                "{n} [attempt|attempts] that ran [does not say its|do not say their] nodes, or how "
                "long: the MTTF from the rate is for the mean nodes of the others of a size.",
                without,
            )
        )
    return Section(
        "mttf",
        _TITLE,
        _lead(mttf),
        (_figure(mttf, known, unit),) if known else (),
        (_table(mttf, unit),),
        tuple(notes),
        answer=_answer(mttf, unit),
        careful="The MTTF from the rate assumes that failures grow in proportion to nodes.",
    )


def _answer(mttf: MttfBySize, unit: str) -> str:
    """How often the largest jobs fail by the rate, and how often they did."""
    ran = [one for one in mttf.classes if one.job_hours > 0 and one.size.size_to is not None]
    if not ran or mttf.rate_used.node_days <= 0:
        return ""
    last = ran[-1]
    seen = between(last.scheduler_mttf_h)
    verb = "failed every" if last.failures else "ran without a failure for"
    return (
        f"A job of {last.size.label} {unit} fails every {between(last.projected_mttf_h)} h by the "
        f"rate of all jobs; jobs of that size {verb} {seen.removeprefix('≥ ')} h."
    )


def mttf_without_jobs_section(mttf: MttfBySize) -> Section:
    """What is known of times to failure where the logs hold no jobs."""
    unit = "GPUs" if mttf.size_unit == SizeUnit.GPUS else "nodes"
    lead = "Not measured: the logs hold no job accounting, so how often jobs fail is not known."
    restarts = between(mttf.interruption_mttf_h)
    if restarts != DASH:
        lead += f" Recorded runs went {restarts} h between restarts, whatever their cause."
    if not mttf.line:
        return Section("mttf", _TITLE, lead)
    rate = mttf.rate_used
    lead += (
        f" Faults of nodes ({between(rate.per_1000_node_days)} per 1,000 node-days in service) "
        "give a job the times below, if each fault of one of its nodes ends it."
    )
    table = TextTable(
        f"MTTF by job size in {unit}, hours",
        (unit, "nodes", "MTTF from the rate of faults"),
        tuple(
            (number(point.size), number(point.nodes, 4), between(point.mttf_h))
            for point in mttf.line
        ),
        frozenset(range(3)),
    )
    return Section("mttf", _TITLE, lead, tables=(table,))


def _only_bounded(one: SizeMttf) -> bool:
    bounds = one.scheduler_mttf_h
    return bounds.estimate is None and bool(finite(bounds.low))


def _restarts(mttf: MttfBySize) -> int:
    return sum(one.in_job_restarts or 0 for one in mttf.classes)


def _lead(mttf: MttfBySize) -> str:
    failures = sum(one.failures for one in mttf.classes)
    job_hours = sum(one.job_hours for one in mttf.classes)
    if failures:
        lead = (
            f"Over jobs of all sizes, {between(mttf.scheduler_mttf_h)} job-hours passed for each "
            f"failure ({counted(failures, 'failure')} in "
            f"{number(job_hours, 5)} job-hours; by confidence {by_confidence(mttf.by_confidence)})"
        )
    else:
        lead = (
            f"No failure was found in {number(job_hours, 5)} job-hours of jobs of all sizes: "
            f"MTTF {between(mttf.scheduler_mttf_h)} h"
        )
    restarts = _restarts(mttf)
    if not restarts:
        return f"{lead}. No restarts within jobs are recorded."
    recorded_h = mttf.recorded_job_hours
    of_some = recorded_h is not None and recorded_h < 0.999 * job_hours
    where = f" in the {number(recorded_h, 5)} job-hours that are recorded" if of_some else ""
    return (
        f"{lead}, and {between(mttf.interruption_mttf_h)} for each interruption once "
        f"{counted(restarts, 'restart')} within jobs are counted too{where}."
    )


def _table(mttf: MttfBySize, unit: str) -> TextTable:
    """One row a size class; interruptions have columns where progress records show restarts."""
    restarts = _restarts(mttf) > 0
    headers = [unit, "attempts", "job-hours", "failures", "MTTF"]
    headers += ["restarts within jobs", "MTTF with restarts"] if restarts else []

    def row(one: SizeMttf) -> tuple[str, ...]:
        within = (number(one.in_job_restarts), between(one.interruption_mttf_h))
        return (
            one.size.label,
            number(one.attempts),
            number(one.job_hours, 5),
            number(one.failures),
            between(one.scheduler_mttf_h),
            *(within if restarts else ()),
            between(one.projected_mttf_h),
        )

    return TextTable(
        f"MTTF by job size in {unit}, hours",
        (*headers, "MTTF from the rate"),
        tuple(row(one) for one in mttf.classes),
        frozenset(range(8)),
    )


def _figure(mttf: MttfBySize, known: list[SizeMttf], unit: str) -> Figure:
    failed = [one for one in known if one.scheduler_mttf_h.estimate is not None]
    traces: list[Trace] = [_measured(failed, unit)] if failed else []
    unfailed = [one for one in known if _only_bounded(one)]
    if unfailed:
        traces.append(
            points(
                "no failure yet: at least",
                [one.size.size_to or 0 for one in unfailed],
                [one.scheduler_mttf_h.low for one in unfailed],
                [
                    f"{one.size.label} {unit}: no failure in {number(one.job_hours, 4)} "
                    f"job-hours, at least {number(one.scheduler_mttf_h.low)} h"
                    for one in unfailed
                ],
                symbol="triangle-up-open",
            )
        )
    sizes = [point.size for point in mttf.line]
    traces += band("from the rate", sizes, [point.mttf_h for point in mttf.line])
    return Figure(
        "mttf",
        "MTTF by job size",
        "Mean time to failure of jobs of each size class with exact intervals, at the class's "
        "largest size, and the line MTTF = 1 / (nodes × rate).",
        tuple(traces),
        {"xaxis": size_axis(unit, SIZE_ENDS[::2]), "yaxis": log_axis("MTTF, hours", _drawn(mttf))},
    )


def _drawn(mttf: MttfBySize) -> list[float | None]:
    intervals = [one.scheduler_mttf_h for one in mttf.classes]
    intervals += [point.mttf_h for point in mttf.line]
    return [end for one in intervals for end in (one.estimate, one.low, one.high)]


def _measured(failed: list[SizeMttf], unit: str) -> Trace:
    bounds = [one.scheduler_mttf_h for one in failed]
    return points(
        "measured",
        [one.size.size_to or 0 for one in failed],
        [one.estimate for one in bounds],
        [
            f"{one.size.label} {unit}: {between(one.scheduler_mttf_h)} h\n"
            f"{counted(one.failures, 'failure')} in {number(one.job_hours, 4)} job-hours"
            for one in failed
        ],
        intervals=bounds,
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    if not analysis.logs_read.jobs:
        return (mttf_without_jobs_section(analysis.mttf),)
    return (mttf_section(analysis.mttf, projecting_rate(analysis)),)


MTTF = Part(
    "mttf",
    place=70,
    question=failure_questions.mttf,
    sections=_sections,
    main="classes",
    joined={"rate_without_false": rate_without_false},
    command=Command(
        help="Time to failure by job size with exact intervals, and the projected line.",
        options=(*CAUSES, "above_gpus", "confidence", "gpus_per_node", "fleet_nodes"),
        place=60,
        examples=("ettr mttf site --json",),
        priced=False,
    ),
)
