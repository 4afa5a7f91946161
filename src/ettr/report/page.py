"""An analysis as a report: the sections in order, the key numbers, what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ettr import __version__
from ettr.analysis import Analysis
from ettr.analysis.projecting import checkpoint_advice, project_store
from ettr.report.document import REPORT_FORMAT, REPORT_VERSION, plain
from ettr.report.html import Card, Page
from ettr.report.next_steps import next_steps
from ettr.report.numbers import (
    between,
    counted,
    duration,
    moment,
    number,
    percent,
    share_between,
)
from ettr.report.section import Section
from ettr.report.sections.attribution import attribution_section
from ettr.report.sections.failures import failures_section, mttf_section
from ettr.report.sections.goodput import goodput_section
from ettr.report.sections.models import models_section
from ettr.report.sections.nodes import faults_section, nodes_section
from ettr.report.sections.projection import advice_section, projection_section
from ettr.report.sections.quality import quality_section
from ettr.report.sections.runs import runs_section
from ettr.report.sections.usage import sizes_section, status_section

# told of each part as it begins: its name, and how many are done
Progress = Callable[[str, int], None]

SECTIONS: dict[str, Callable[[Analysis], Section]] = {
    "failures": lambda a: failures_section(a.rates, a.trend),
    "mttf": lambda a: mttf_section(a.mttf),
    "goodput": lambda a: goodput_section(a.goodput, a.totals.gpu_hours),
    "runs": lambda a: runs_section(a.runs),
    "attribution": lambda a: attribution_section(a.co_occurrence, a.false_attribution),
    "models": lambda a: models_section(a.models),
    "projection": lambda a: projection_section(project_store(a, ", ".join(a.clusters))),
    "planning": lambda a: advice_section(checkpoint_advice(a)),
    "nodes": lambda a: nodes_section(a.nodes),
    "status": lambda a: status_section(a.status),
    "sizes": lambda a: sizes_section(a.sizes),
    "quality": lambda a: quality_section(a.quality),
}

_OF_NODES = frozenset({"nodes", "quality"})


def sections(analysis: Analysis, tell: Progress | None = None) -> Iterator[Section]:
    """Every section of the report, in order."""
    without_jobs = not analysis.totals.attempts
    # a fault trace has no jobs: what it does tell comes first
    order = sorted(SECTIONS, key=lambda name: name not in _OF_NODES) if without_jobs else SECTIONS
    for place, name in enumerate(order):
        if tell:
            tell(name, place)
        if name == "nodes" and analysis.faults is not None and without_jobs:
            yield faults_section(analysis.faults)
        yield SECTIONS[name](analysis)
        if name == "nodes" and analysis.faults is not None and not without_jobs:
            yield faults_section(analysis.faults)


def page(analysis: Analysis, tell: Progress | None = None) -> Page:
    """The whole report before it is rendered."""
    parts = tuple(sections(analysis, tell))
    period = analysis.period
    clusters = ", ".join(analysis.clusters)
    return Page(
        title=f"Reliability of {clusters}",
        subtitle=(
            f"{moment(period.start)} to {moment(period.end)} UTC, {duration(86400 * period.days)}; "
            f"{counted(analysis.totals.jobs, 'job')} in "
            f"{counted(analysis.totals.attempts, 'attempt')}, "
            f"{number(analysis.totals.gpu_hours, 7)} GPU-hours"
        ),
        cards=cards(analysis),
        next_steps=next_steps(analysis),
        sections=parts,
        footer=(
            f"ettr {__version__}. Intervals are at {percent(analysis.assumptions.confidence, 2)} "
            "unless they say otherwise. Times are UTC."
        ),
    )


def cards(analysis: Analysis) -> tuple[Card, ...]:
    """The key numbers, each with its denominator; of jobs, of faults, or of both."""
    found = list(_job_cards(analysis)) if analysis.totals.attempts else []
    faults = analysis.faults
    if faults is not None and (faults.faults or not found):
        found.append(
            Card(
                "Faults per 1,000 node-days in service",
                between(faults.in_service.per_1000_node_days),
                f"{faults.faults:,} in {number(faults.in_service.node_days, 5)} node-days",
            )
        )
    nodes = analysis.nodes
    if nodes.in_service_node_hours:
        found.append(
            Card(
                "Node time lost to unplanned outages",
                percent(nodes.down_share),
                f"of {number(nodes.in_service_node_hours, 5)} node-hours in service",
            )
        )
    return tuple(found)


def _job_cards(analysis: Analysis) -> Iterator[Card]:
    rate = analysis.rates.all_jobs
    yield Card(
        "Failures per 1,000 node-days",
        between(rate.per_1000_node_days),
        f"{rate.failures:,} in {number(rate.node_days, 5)} node-days of runtime",
    )
    yield Card(
        "Mean time to failure of a job, hours",
        between(analysis.mttf.scheduler_mttf_h),
        "job-hours per failure that the scheduler saw, all sizes",
    )
    lost = analysis.goodput
    total = lost.first_order_gpu_hours + lost.second_order_gpu_hours
    ran = analysis.totals.gpu_hours
    yield Card(
        "GPU-hours lost to failures",
        number(total),
        f"{percent(total / ran if ran else None)} of {number(ran, 6)} that ran",
    )
    wrong = analysis.false_attribution
    yield Card(
        "False attribution",
        share_between(wrong.share),
        f"{wrong.n_touched:,} of {wrong.n_completed:,} completed attempts would be blamed",
    )


PARTS: dict[str, Callable[[Analysis], object]] = {
    "totals": lambda a: a.totals,
    "status": lambda a: a.status,
    "sizes": lambda a: a.sizes,
    "failures": lambda a: {**plain(a.rates), "trend": a.trend, "rows": a.failure_rows},
    "mttf": lambda a: a.mttf,
    "runs": lambda a: a.runs,
    "goodput": lambda a: a.goodput,
    "nodes": lambda a: {**plain(a.nodes), "faults": a.faults},
    "attribution": lambda a: {
        "co_occurrence": a.co_occurrence,
        "false_attribution": a.false_attribution,
    },
    "models": lambda a: a.models,
    "projection": lambda a: project_store(a, ", ".join(a.clusters)),
    "planning": checkpoint_advice,
    "quality": lambda a: a.quality,
    "assumptions": lambda a: a.assumptions,
}
"""The parts of the JSON document by their keys."""


def document(analysis: Analysis, tell: Progress | None = None) -> dict[str, object]:
    """The same numbers as JSON; docs/reference/report-json.md says what each key holds."""
    made: dict[str, object] = {
        "format": REPORT_FORMAT,
        "version": REPORT_VERSION,
        "ettr": __version__,
        "clusters": list(analysis.clusters),
        "period": plain(analysis.period),
    }
    for place, (name, build) in enumerate(PARTS.items()):
        if tell:
            tell(name, place)
        made[name] = plain(build(analysis))
    made["next_steps"] = list(next_steps(analysis))
    return made
