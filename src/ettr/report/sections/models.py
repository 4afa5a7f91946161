"""Whether failures are independent, and which model describes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ettr.analysis import failure_questions
from ettr.analysis.fleet import FleetModels, fleet_models
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import FleetSpread, Spread, clustered_interval
from ettr.metrics.mttf import MttfBySize, SizeMttf
from ettr.metrics.rates import RateWithoutFalse
from ettr.metrics.sizes import SIZE_ENDS, SizeUnit
from ettr.models.base import Parameter
from ettr.models.compare import Funnel, FunnelPoint
from ettr.report.charts import band, limit_line, line, log_axis, points, size_axis
from ettr.report.findings import false_note, projecting_rate, rate_without_false
from ettr.report.numbers import DASH, PER_NODE_DAYS, between, by_confidence, finite, number, p_value
from ettr.report.registry import CAUSES, Command, Part
from ettr.report.section import Figure, Section, TextTable, Trace, table_of_rows
from ettr.words import by_number, counted, significant

if TYPE_CHECKING:
    from ettr.analysis import Analysis


_TITLE = "Do failures cluster"
_ABOVE_OUTER_LIMIT = "above 99.8 %"
NAMED_NODES = 5


def models_section(models: FleetModels) -> Section:
    """The dispersion test, the models and what each means."""
    spread = models.dispersion
    if spread is None:
        return Section("models", _TITLE, "No exposure, so no model can be fitted.")
    found = models.clustering
    lead = spread.meaning if found is None else found.meaning
    if models.bursts is not None:
        lead += f" {models.bursts.meaning}"
    notes = [
        f"{counted(spread.rate.failures, 'failure')} over {number(spread.rate.node_days, 5)} "
        "node-days.",
        *models.notes,
    ]
    if models.worst_nodes:
        notes.append(
            "A high count alone does not make a node a lemon: compare it with the count expected "
            "at the fleet's rate."
        )
    return Section(
        "models",
        _TITLE,
        lead,
        () if models.funnel is None else (node_funnel(models.funnel),),
        (
            intervals_table(spread.rate, found, spread.confidence),
            table_of_rows(
                "Models of failures by node",
                models.fits,
                ("model", lambda fit: fit.model),
                (">AIC", lambda fit: number(fit.aic, 6)),
                (
                    ">p of fit",
                    lambda fit: DASH if fit.goodness is None else p_value(fit.goodness.p_value),
                ),
                (
                    "parameters",
                    lambda fit: "; ".join(map(_parameter, fit.parameters)),
                ),
                ("meaning", lambda fit: fit.meaning),
            ),
            table_of_rows(
                "Nodes with the most failures",
                models.worst_nodes,
                ("node", lambda node: node.node),
                (">failures", lambda node: number(node.failures)),
                (">node-days", lambda node: number(node.node_days)),
                (">expected at the fleet's rate", lambda node: number(node.expected)),
            ),
        ),
        tuple(notes),
    )


def _parameter(one: Parameter) -> str:
    return f"{one.name} {number(one.estimate)} [{number(one.low)}, {number(one.high)}] {one.unit}"


def node_funnel(funnel: Funnel) -> Figure:
    """The nodes against chance; those furthest above it by name."""
    high = [point for point in funnel.points if point.place.startswith("above")]
    far = sum(point.place == _ABOVE_OUTER_LIMIT for point in high)
    high.sort(key=lambda point: -_excess(point, funnel.target_per_node_day))
    n_nodes = len(funnel.points)
    caption = (
        f"Each node's rate against its exposure. {far:,} of {counted(n_nodes, 'node')} lie above "
        "the 99.8 % control limit; if all nodes failed alike and independently, "
        f"{number(0.001 * n_nodes, 2)} or fewer would be expected there."
    )
    return funnel_figure(
        funnel,
        "node-funnel",
        "Funnel of nodes",
        caption,
        what="nodes",
        named=frozenset(point.name for point in high[:NAMED_NODES]),
    )


def _excess(point: FunnelPoint, per_node_day: float) -> float:
    """Standard deviations above the fleet's rate."""
    expected = per_node_day * point.rate.node_days
    return (point.rate.failures - expected) / math.sqrt(expected)


def intervals_table(
    rate: FailureRate,
    found: FleetSpread | None,
    confidence: float,
    what: str = "failure",
    *,
    at_most: bool = False,
) -> TextTable:
    """The exact interval, and those of the spread over nodes and over time where it is known.

    `at_most`: only nodes with trouble are known, so that the upper end is all that is.
    """
    rows: list[tuple[str, Interval, Spread | None]] = [
        ("independent (Poisson)", rate.interval(confidence), None)
    ]
    if found is not None:
        for one in (found.over_nodes, found.over_time):
            if one is not None and one.is_known:
                units = (
                    "nodes"
                    if one.window_days is None
                    else f"windows of {significant(one.window_days)} d"
                )
                label = f"clustered, as between {units}"
                rows.append((label, clustered_interval(rate, one, confidence), one))
    believed = None if found is None or not found.believed.is_clustered else found.believed
    return TextTable(
        f"The {what} rate under each assumption, per 1,000 node-days",
        (f"if {what}s are", "rate", "recommended"),
        tuple(
            (label, between(_known(interval, at_most)), "yes" if one == believed else "")
            for label, interval, one in rows
        ),
        frozenset({1}),
    )


def _known(interval: Interval, at_most: bool) -> Interval:
    shown = interval.scaled(PER_NODE_DAYS)
    return Interval(None, 0.0, shown.high) if at_most else shown


def funnel_figure(
    funnel: Funnel, slug: str, title: str, caption: str, *, what: str, named: frozenset[str]
) -> Figure:
    """The points of a funnel and its limits."""
    days = list(funnel.curve_node_days)
    highest = _highest(funnel)
    fleet_rate = PER_NODE_DAYS * funnel.target_per_node_day
    traces = [
        points(
            what,
            [point.rate.node_days for point in funnel.points],
            [PER_NODE_DAYS * _rate(point) for point in funnel.points],
            [_hover(point) for point in funnel.points],
            labels=[point.name if point.name in named else "" for point in funnel.points],
        ),
        line("rate of all", [days[0], days[-1]], [fleet_rate, fleet_rate]) | {"hoverinfo": "skip"},
    ]
    for share, curve, dash in (
        ("95 %", funnel.curve_95, "dash"),
        ("99.8 %", funnel.curve_998, "dot"),
    ):
        for end in (1, 0):
            limits = [PER_NODE_DAYS * ends[end] for ends in curve]
            traces.append(limit_line(f"limits of {share}", days, limits, dash, in_legend=end == 1))
    layout: dict[str, object] = {
        "xaxis": log_axis("node-days", days),
        "yaxis": {
            "range": [-0.04 * highest, highest],
            "zeroline": False,
            "title": {"text": "failures per 1,000 node-days"},
        },
    }
    return Figure(slug, title, caption, tuple(traces), layout)


def _hover(point: FunnelPoint) -> str:
    return (
        f"{point.name}: {counted(point.rate.failures, 'failure')} in "
        f"{number(point.rate.node_days, 4)} node-days\n{point.place}"
    )


def _highest(funnel: Funnel) -> float:
    """Where the axis ends: limits at hardly any exposure are no matter of interest."""
    limits = sorted(point.limits_998[1] for point in funnel.points)
    rates = [_rate(point) for point in funnel.points]
    return 1.15 * PER_NODE_DAYS * max(limits[len(limits) // 2], *rates)


def _rate(point: FunnelPoint) -> float:
    return point.rate.per_node_day or 0.0


MODELS = Part(
    "models",
    place=110,
    question=fleet_models,
    section=models_section,
    main="worst_nodes",
    title=_TITLE,
)


# -- mean time to failure by job size, measured and from the failure rate --------------------------


_MTTF_TITLE = "Time to failure by job size"


def mttf_section(
    mttf: MttfBySize, without_false: RateWithoutFalse | None = None, of_type: str = ""
) -> Section:
    """MTTF by job size, with the line that the rate projects.

    Args:
        of_type: the type of GPU that the rates are of alone; empty for all nodes.
    """
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
        _MTTF_TITLE,
        _lead(mttf),
        (_figure(mttf, known, unit),) if known else (),
        (_table(mttf, unit),),
        tuple(notes),
        answer=_answer(mttf, f"{of_type} {unit}".strip()),
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
        return Section("mttf", _MTTF_TITLE, lead)
    rate = mttf.rate_used
    lead += (
        f" Faults of nodes ({between(rate.per_1000_node_days)} per 1,000 node-days in service) "
        "give a job the times below, if each fault of one of its nodes ends it."
    )
    table = table_of_rows(
        f"MTTF by job size in {unit}, hours",
        mttf.line,
        (">" + unit, lambda point: number(point.size)),
        (">nodes", lambda point: number(point.nodes, 4)),
        (">MTTF from the rate of faults", lambda point: between(point.mttf_h)),
    )
    return Section("mttf", _MTTF_TITLE, lead, tables=(table,))


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
    return (mttf_section(analysis.mttf, projecting_rate(analysis), analysis.rate_type),)


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
