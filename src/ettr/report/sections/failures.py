"""How often nodes fail jobs: rates by symptom and over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ettr.analysis import failure_questions, questions
from ettr.analysis.failure_questions import (
    EvidenceLine,
    FailureList,
    ListedFailure,
    failure_list,
    rates_without_false,
)
from ettr.metrics.black_holes import black_holes, hung_runs
from ettr.metrics.outages import set_down
from ettr.metrics.rates import EstimatedRate, RatesBySymptom, RatesWithoutFalse, SymptomRates
from ettr.metrics.trend import CheckMarker, RateTrend, TrendPoint
from ettr.models.compare import RateDirection
from ettr.report.charts import (
    INK,
    BarSeries,
    band,
    row_chart,
    time_markers,
    value_axis,
)
from ettr.report.findings import (
    classes_say,
    is_lower_bound,
    lower_bound,
    short_logs,
    with_and_without,
)
from ettr.report.numbers import DASH, between, by_confidence, moment, number, percent
from ettr.report.registry import Part
from ettr.report.section import Figure, Section, TextTable, first_sentence, table_of_rows
from ettr.units import SECONDS_PER_DAY
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis


_RATE_TITLE = "failures per 1,000 node-days"
_MARKERS_SHOWN = 12
_LEAST_WINDOW_DAYS = 7.0


def failures_section(
    rates: RatesBySymptom,
    trend: RateTrend,
    direction: RateDirection | None = None,
    *,
    lower_bound: str | None = None,
    caution: str | None = None,
    without_false: RatesWithoutFalse | None = None,
    classes: str = "",
    of_type: str = "",
) -> Section:
    """Failures per 1,000 node-days by symptom and over time.

    Args:
        lower_bound: why failures go uncounted; None where none does.
        caution: why the rates say little, where the logs are short.
        classes: what the rates are of, and those of each class of node.
        of_type: the type of GPU that the rates are of alone; empty for all nodes.
    """
    figures = [_symptom_figure(rates)] if rates.by_symptom else []
    new_checks = [marker for marker in trend.markers if marker.is_new]
    if _is_trend(trend) and rates.all_jobs.failures:
        figures.append(_trend_figure(trend, new_checks[:_MARKERS_SHOWN]))
    notes = [caution] if caution else []
    notes.append(
        "Node-days are those in which jobs ran, not those in which nodes were powered on. "
        + _clustering(rates)
    )
    if direction is not None and direction.since is not None:
        notes.append(_direction_note(direction))
    if new_checks:
        first = "; ".join(f"{one.check} ({moment(one.first_seen)})" for one in new_checks)
        notes.append(
            "Checks that first reported well after the logs began, and may raise the "
            f"apparent rate: {first}."
        )
    of_nodes = f" of {of_type} nodes alone" if of_type else ""
    leads = _leads(rates, direction, lower_bound, without_false, classes, of_nodes)
    return Section(
        "failures",
        "How often it fails, and why",
        " ".join(filter(None, leads)),
        tuple(figures),
        (_symptom_table(rates),),
        tuple(notes),
        answer=_answer(rates, of_nodes),
        careful=caution or first_sentence(lower_bound or ""),
    )


def _answer(rates: RatesBySymptom, of_nodes: str) -> str:
    every = rates.all_jobs
    often = ", ".join(f"{one.symptom} {one.all_jobs.failures:,}" for one in rates.by_symptom[:3])
    return (
        f"{counted(every.failures, 'failure')} in {number(every.node_days)} node-days{of_nodes}, "
        f"{between(every.per_1000_node_days)} per 1,000 node-days"
        + (f"; most often {often}." if often else ".")
    )


def _leads(
    rates: RatesBySymptom,
    direction: RateDirection | None,
    lower_bound: str | None,
    without_false: RatesWithoutFalse | None,
    classes: str,
    of_nodes: str,
) -> Iterator[str]:
    yield _lead(rates, of_nodes)
    yield classes
    yield with_and_without(without_false)
    if direction is not None and rates.all_jobs.failures:
        yield direction.meaning
    if lower_bound:
        yield lower_bound


def _direction_note(direction: RateDirection) -> str:
    ratio = direction.ratio
    level = "" if ratio is None else f" at {percent(ratio.confidence, 2)}"
    return (
        f"Better or worse: the node-days are halved at {moment(direction.since)}, and the rates of "
        f"both halves compared{level}. At a constant rate the verdict is “undecided” at least as "
        "often as that, whether failures come alone or in bursts."
    )


def _lead(rates: RatesBySymptom, of_nodes: str) -> str:
    every, large = rates.all_jobs, rates.large_jobs
    lead = (
        f"{counted(every.failures, 'infrastructure failure')} in "
        f"{number(every.node_days, 5)} node-days of runtime{of_nodes}: "
        f"{between(every.per_1000_node_days)} per 1,000 node-days "
        f"({percent(rates.confidence, 2)} interval). Jobs of more than {rates.above_gpus} GPUs: "
    )
    if large.node_days <= 0:
        return f"{lead}none ran.{_sure(rates)}"
    return (
        f"{lead}{counted(large.failures, 'failure')} in {number(large.node_days, 5)} node-days, "
        f"{between(large.per_1000_node_days)} per 1,000 node-days.{_sure(rates)}"
    )


def _sure(rates: RatesBySymptom) -> str:
    """How sure the failures are, of all jobs and of large ones."""
    words = by_confidence(rates.by_confidence)
    large = by_confidence(rates.large_by_confidence)
    if not words:
        return ""
    return f" By confidence: {words}" + (f" (large jobs: {large})." if large else ".")


def _clustering(rates: RatesBySymptom) -> str:
    """What the intervals assume, and the exact one as well where the two differ."""
    found = rates.clustering_all_jobs
    if found is None:
        return "Intervals are exact for independent failures (Garwood 1936)."
    if not found.believed.is_clustered:
        return found.meaning
    exact = between(rates.all_jobs.exact_per_1000_node_days)
    return f"{found.meaning} The exact interval of independent failures is {exact}."


def _symptom_table(rates: RatesBySymptom) -> TextTable:
    """One row a symptom; large jobs have columns where any ran."""
    headers = ["symptom", "domain", "failures", "per 1,000 node-days"]
    large = rates.large_jobs.node_days > 0
    if large:
        size = f"jobs > {rates.above_gpus} GPUs"
        headers += [f"failures, {size}", f"per 1,000 node-days, {size}"]

    def row(one: SymptomRates) -> tuple[str, ...]:
        cells = (one.symptom, one.domain, *_rate_cells(one.all_jobs))
        return (*cells, *_rate_cells(one.large_jobs)) if large else cells

    return TextTable(
        "Failures by symptom",
        tuple(headers),
        tuple(row(one) for one in rates.by_symptom),
        frozenset(range(2, 6)),
    )


def _rate_cells(rate: EstimatedRate) -> tuple[str, str]:
    return number(rate.failures), between(rate.per_1000_node_days)


def _symptom_figure(rates: RatesBySymptom) -> Figure:
    bounds = [one.all_jobs.per_1000_node_days for one in rates.by_symptom]
    return row_chart(
        "failures-symptom",
        "Failures by symptom",
        "Per 1,000 node-days over all jobs; thin lines are "
        f"{percent(rates.confidence, 2)} intervals.",
        [one.symptom for one in rates.by_symptom],
        [
            BarSeries(
                "failures",
                [one.estimate for one in bounds],
                [
                    f"{between(one.all_jobs.per_1000_node_days)} per 1,000 node-days\n"
                    f"{counted(one.all_jobs.failures, 'failure')}, {one.domain}"
                    for one in rates.by_symptom
                ],
                bounds,
            )
        ],
        axis_title=_RATE_TITLE,
    )


def _settled(point: TrendPoint, trend: RateTrend) -> bool:
    """Whether the window is long enough that its rate does not dwarf those of full windows."""
    least = min(_LEAST_WINDOW_DAYS, trend.window_days)
    return (point.time - point.window_from).total_seconds() >= least * SECONDS_PER_DAY


def _is_trend(trend: RateTrend) -> bool:
    """Whether the points reach over two windows: nearer ones share most of their failures."""
    if len(trend.points) < 2:
        return False
    days = (trend.points[-1].time - trend.points[0].time).total_seconds() / SECONDS_PER_DAY
    return days >= 2.0 * trend.window_days - _LEAST_WINDOW_DAYS


def _trend_figure(trend: RateTrend, new_checks: list[CheckMarker]) -> Figure:
    drawn = [point for point in trend.points if _settled(point, trend)] or list(trend.points)
    times = [moment(point.time) for point in drawn]
    traces = band("total", times, [point.per_1000_node_days for point in drawn], INK)
    caption = (
        f"Per 1,000 node-days in a rolling window of {number(trend.window_days)} days. Dotted "
        f"lines: {percent(trend.confidence, 2)} interval of the total."
    )
    if len(drawn) < len(trend.points):
        caption += f" It begins where the window holds {number(_LEAST_WINDOW_DAYS)} days."
    layout: dict[str, object] = {"yaxis": value_axis(_RATE_TITLE), "hovermode": "x unified"}
    if new_checks:
        caption += " Dashed upright lines: a check reported for the first time."
        layout |= time_markers([(moment(one.first_seen), one.check) for one in new_checks])
    return Figure("failures-trend", "Failures over time", caption, tuple(traces), layout)


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    return (
        failures_section(
            analysis.rates,
            analysis.trend,
            analysis.clustering.direction,
            lower_bound=lower_bound(analysis),
            caution=short_logs(analysis),
            without_false=analysis.rates_without_false,
            classes=classes_say(analysis.spread_classes, analysis.rate_nodes),
            of_type=analysis.rate_type,
        ),
    )


FAILURES = Part(
    "failures",
    place=30,
    question=failure_questions.rates,
    sections=_sections,
    main="by_symptom",
    joined={
        "without_false": rates_without_false,
        "is_lower_bound": is_lower_bound,
        "black_holes": black_holes,
        "hung_runs": hung_runs,
        "set_down": set_down,
        "by_class": failure_questions.by_class,
        "of_gpu_nodes": failure_questions.of_gpu_nodes,
        "of_class": failure_questions.of_class,
        "direction": failure_questions.direction,
        "trend": failure_questions.trend,
        "rows": questions.failure_rows,
    },
    title="How often it fails, and why",
)


# -- failures one by one: when, whose, where, why, how sure, what it cost, and on what lines -------


_LONGEST_NODES = 60
_MOST_LINES = 3


def failure_list_section(found: FailureList) -> Section:
    """The failures, the newest first."""
    total = counted(len(found.failures), "failure")
    return Section(
        "failure-list",
        "Failures one by one",
        f"{total}, each with the lines of the logs behind its cause."
        if found.failures
        else "No failures.",
        tables=(failure_table(found),),
        notes=(
            f"A failure loses the runtime of its job, at most {number(found.cap_min)} "
            "minutes of it, times its GPUs. The node in brackets gets the blame. `ettr "
            "explain STORE JOB` shows all that happened around a job's end.",
            *_not_measured(found),
        )
        if found.failures
        else (),
        gpu_hours=(
            _total("lost in the failed jobs", _lost(found), _unmeasured(found)),
            _total("in preempted jobs", _preempted(found), _unmeasured_preemptions(found)),
        ),
        answer=f"{total}, {number(sum(_lost(found)))} GPU-hours lost in the jobs; the newest first."
        if found.failures
        else "",
    )


def _total(what: str, known: list[float], unmeasured: int) -> tuple[str, float | None]:
    """The sum of what is known; None where that is nothing, since a bound of 0 says nothing."""
    hours = sum(known)
    if not unmeasured:
        return what, hours
    return f"{what}, a lower bound", hours or None


def _lost(found: FailureList) -> list[float]:
    return [one.lost_gpu_hours for one in found.failures if one.lost_gpu_hours is not None]


def _preempted(found: FailureList) -> list[float]:
    hours = (one.preempted_gpu_hours for one in found.failures)
    return [one for one in hours if one is not None]


def _unmeasured(found: FailureList) -> int:
    return sum(one.lost_gpu_hours is None for one in found.failures)


def _unmeasured_preemptions(found: FailureList) -> int:
    return sum(one.preemptions_unmeasured for one in found.failures)


def _not_measured(found: FailureList) -> Iterator[str]:
    """How many losses are not known, which sums leave out."""
    for words, n in (
        ("{n} [failure|failures]", _unmeasured(found)),
        ("{n} [preempted job|preempted jobs]", _unmeasured_preemptions(found)),
    ):
        if n:
            says = "[does not say its|do not say their] GPUs or how long [it|they] ran"
            yield by_number(f"{words} {says}: what [it|they] lost is not measured.", n)


def failure_table(found: FailureList) -> TextTable:
    """One row for each failure, the newest first."""
    newest = found.failures[::-1]
    return table_of_rows(
        "Failures",
        newest,
        ("time, UTC", lambda one: moment(one.time)),
        ("job", lambda one: f"{one.job_id} {one.name}" if one.name else one.job_id),
        ("user", lambda one: one.user or DASH),
        ("nodes", _nodes),
        ("cause", lambda one: one.symptom),
        ("confidence", lambda one: one.confidence),
        (">GPU-hours lost", lambda one: number(one.lost_gpu_hours, 4)),
        (">in preempted jobs", lambda one: number(one.preempted_gpu_hours, 4)),
        ("evidence", _lines),
        shown_rows=len(found.failures),
        gpu_hours=(
            (6, tuple(one.lost_gpu_hours for one in newest)),
            (7, tuple(one.preempted_gpu_hours for one in newest)),
        ),
        detail_columns=("confidence", "in preempted jobs", "evidence"),
        slug="failures",
        lists_all="ettr failures STORE --list",
    )


def _nodes(one: ListedFailure) -> str:
    nodes = one.nodes or DASH
    if len(nodes) > _LONGEST_NODES:
        nodes = f"{nodes[:_LONGEST_NODES]}…"
    return f"{nodes} ({one.node})" if one.node and one.node != nodes else nodes


def _lines(one: ListedFailure) -> str:
    lines = [_line(line) for line in one.evidence[:_MOST_LINES]]
    if len(one.evidence) > _MOST_LINES:
        lines.append(f"{len(one.evidence) - _MOST_LINES:,} more")
    return "; ".join([f"{one.state} {one.file}:{one.line}", *lines])


def _line(line: EvidenceLine) -> str:
    return f"{line.file}:{line.line} {line.text}"


FAILURE_LIST = Part(
    "failure_list",
    place=50,
    question=failure_list,
    section=failure_list_section,
    main="failures",
    title="Failures one by one",
)
