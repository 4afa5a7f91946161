"""The parts of a report in their order: the key of each in the JSON document, and its sections.

The only list of parts. What shows a part is imported when the part is asked for, so that a command
that prints one of them loads neither the others nor what computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass

from ettr.analysis import Analysis
from ettr.report.document import JsonValue, plain, plain_fields
from ettr.report.false_rates import projecting_rate
from ettr.report.findings import findings, lower_bound, short_logs, without_states
from ettr.report.money import priced, rows_with_costs, with_costs
from ettr.report.rows import FlatRows, rows_of
from ettr.report.section import Section
from ettr.report.withheld import borne, gpu_hours_are_borne, without_gpu_hours


def _no_sections(_: Analysis) -> tuple[Section, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One part of a report.

    Attributes:
        result: What the JSON document holds under the part's key.
        sections: What a reader sees; empty where the part is for programs only.
        main: The list in the part that CSV and data frames have one row an entry of; empty where
            the part itself is one row.
    """

    result: Callable[[Analysis], object]
    sections: Callable[[Analysis], tuple[Section, ...]] = _no_sections
    main: str = ""


NO_JOBS = (
    "Not measured: the logs hold no job accounting. Add it (`ettr sources` lists how to export it "
    "from each scheduler)."
)


def _of_jobs(
    slug: str, title: str, sections: Callable[[Analysis], tuple[Section, ...]]
) -> Callable[[Analysis], tuple[Section, ...]]:
    """Sections that only jobs can fill: without any, one that says so."""

    def made(analysis: Analysis) -> tuple[Section, ...]:
        return sections(analysis) if analysis.logs_read.jobs else (Section(slug, title, NO_JOBS),)

    return made


def _failures(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.failures import failures_section
    from ettr.report.unlogged import classes_say

    return (
        failures_section(
            analysis.rates,
            analysis.trend,
            analysis.clustering.direction,
            lower_bound=lower_bound(analysis),
            caution=short_logs(analysis),
            without_false=analysis.rates_without_false,
            classes=classes_say(analysis.classes, of_gpu_nodes=analysis.is_of_gpu_nodes),
        ),
    )


def _previous(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.previous import previous_section

    return () if analysis.previous is None else (previous_section(analysis.previous),)


def _failure_list(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.failure_list import failure_list_section

    return (failure_list_section(analysis.failure_list),)


def _mttf(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.mttf import mttf_section, mttf_without_jobs_section

    if not analysis.logs_read.jobs:
        return (mttf_without_jobs_section(analysis.mttf),)
    return (mttf_section(analysis.mttf, projecting_rate(analysis)),)


def _goodput(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.goodput import goodput_section

    return (goodput_section(analysis.goodput, _ran_gpu_hours(analysis)),)


def _ran_gpu_hours(analysis: Analysis) -> float | None:
    return analysis.totals.gpu_hours if analysis.gpus_are_known else None


def _runs(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.runs import recorded_runs_section, runs_section

    logs = analysis.logs_read
    if not logs.jobs and not logs.progress:
        return (Section("runs", "Effective training time", NO_JOBS),)
    return ((runs_section if logs.jobs else recorded_runs_section)(analysis.runs),)


def _attribution(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.attribution import attribution_section

    return (
        attribution_section(
            analysis.co_occurrence,
            analysis.false_attribution,
            analysis.logs_read,
            analysis.false_failures,
            analysis.rates_without_false,
            analysis.evidence,
        ),
    )


def _models(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.models import models_section

    return (models_section(analysis.models),)


def _projection(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.projection import projection_section

    if analysis.projection is None and not analysis.logs_read.jobs:
        from ettr.analysis.fleet_evidence import why_nothing_to_plan_with

        words = f"No rate to project: {why_nothing_to_plan_with(analysis)}."
        return (Section("projection", "At larger scales", words),)
    return (projection_section(analysis.projection),)


def _planning(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.planning import planning_section

    return (planning_section(analysis.checkpoint_advice),)


def _nodes(analysis: Analysis) -> tuple[Section, ...]:
    """Nodes, and the faults of a log that records faults: first where it records nothing else."""
    from ettr.report.sections.faults import faults_section
    from ettr.report.sections.nodes import nodes_section

    nodes = (nodes_section(analysis.nodes, without_states(analysis)), *_records(analysis))
    if analysis.faults is None:
        return nodes
    faults = faults_section(analysis.faults, analysis.assumptions.confidence)
    return (*nodes, faults) if analysis.logs_read.jobs else (faults, *nodes)


def _records(analysis: Analysis) -> tuple[Section, ...]:
    return _every_record(analysis) if analysis.fleet.spans_s else ()


def _every_record(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.node_records import records_section

    return (records_section(analysis.node_records, analysis.recovery_times),)


def _totals(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.totals import totals_section

    return (totals_section(analysis.totals),)


def _lemons(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.lemons import lemons_section

    return (lemons_section(analysis.lemon_nodes),)


def _causes(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.causes import causes_section

    return (causes_section(analysis.causes),)


def _incidents(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.incidents import incidents_section

    return () if analysis.incidents is None else (incidents_section(analysis.incidents),)


def _status(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.usage import status_section

    return (status_section(analysis.status),)


def _user_failures(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.user_failures import user_failures_section

    return (user_failures_section(analysis.user_failures, _ran_gpu_hours(analysis)),)


def _sizes(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.usage import sizes_section

    return (sizes_section(analysis.sizes),)


def _quality(analysis: Analysis) -> tuple[Section, ...]:
    from ettr.report.sections.quality import quality_section

    return (quality_section(analysis.quality, findings(analysis)),)


def part_sections(name: str, analysis: Analysis) -> tuple[Section, ...]:
    """What the page shows of a part: a dash for GPU-hours that nobody measured, money if priced."""
    return _measured(name, PARTS[name].sections(analysis), analysis)


def part_alone(name: str, analysis: Analysis) -> tuple[Section, ...]:
    """What a reader sees of a part by itself, also of one that the page shows within another."""
    return _measured(name, _ALONE.get(name, PARTS[name].sections)(analysis), analysis)


def _measured(name: str, made: tuple[Section, ...], analysis: Analysis) -> tuple[Section, ...]:
    if not gpu_hours_are_borne(name, analysis):
        return tuple(map(without_gpu_hours, made))
    return tuple(priced(section, analysis.price) for section in made)


def part_document(name: str, analysis: Analysis) -> JsonValue:
    """What the JSON document holds under a part's key: null where the logs bear no figure."""
    part = borne(name, plain(PARTS[name].result(analysis)), analysis)
    return with_costs(part, analysis.price)


def part_rows(name: str, analysis: Analysis) -> FlatRows:
    """The main list of a part as rows; no rows where there is no result."""
    value = _VALUES.get(name, PARTS[name].result)(analysis)
    if not is_dataclass(value) or isinstance(value, type):
        return FlatRows((), ())
    rows = rows_of(value, part_document(name, analysis), PARTS[name].main)
    return rows_with_costs(rows, analysis.price)


_VALUES: dict[str, Callable[[Analysis], object]] = {
    "failures": lambda a: a.rates,
    "mttf": lambda a: a.mttf,
    "nodes": lambda a: a.nodes,
    "node_records": lambda a: a.node_records,
}
"""The result whose list is the main one, where a part joins several."""

_ALONE: dict[str, Callable[[Analysis], tuple[Section, ...]]] = {
    "totals": _totals,
    "node_records": _every_record,
}
"""Sections of parts that the page shows within others."""

PARTS: dict[str, ReportPart] = {
    "totals": ReportPart(lambda a: a.totals),
    "logs": ReportPart(lambda a: a.logs_read),
    "failures": ReportPart(
        lambda a: {
            **plain_fields(a.rates),
            "without_false": a.rates_without_false,
            "is_lower_bound": lower_bound(a) is not None,
            "black_holes": a.black_holes,
            "hung_runs": a.hung_runs,
            "set_down": a.set_down,
            "by_class": a.classes,
            "of_gpu_nodes": a.is_of_gpu_nodes,
            "direction": a.clustering.direction,
            "trend": a.trend,
            "rows": a.failure_rows,
        },
        _of_jobs("failures", "How often it fails, and why", _failures),
        "by_symptom",
    ),
    "previous": ReportPart(
        lambda a: a.previous,
        _of_jobs("previous", "This period against the one before", _previous),
    ),
    "failure_list": ReportPart(
        lambda a: a.failure_list,
        _of_jobs("failure-list", "Failures one by one", _failure_list),
        "failures",
    ),
    "causes": ReportPart(
        lambda a: a.causes, _of_jobs("causes", "Causes of interruptions", _causes), "totals"
    ),
    "mttf": ReportPart(
        lambda a: {**plain_fields(a.mttf), "rate_without_false": projecting_rate(a)},
        _mttf,
        "classes",
    ),
    "goodput": ReportPart(
        lambda a: a.goodput, _of_jobs("goodput", "What failures cost", _goodput), "by_cause"
    ),
    "runs": ReportPart(lambda a: a.runs, _runs, "runs"),
    "attribution": ReportPart(
        lambda a: {
            "co_occurrence": a.co_occurrence,
            "false_attribution": a.false_attribution,
            "false_failures": a.false_failures,
            "evidence": a.evidence,
        },
        _of_jobs("attribution", "How sure the causes are", _attribution),
    ),
    "models": ReportPart(
        lambda a: a.models, _of_jobs("models", "Do failures cluster", _models), "worst_nodes"
    ),
    "projection": ReportPart(lambda a: a.projection, _projection, "points"),
    "planning": ReportPart(
        lambda a: a.checkpoint_advice,
        _of_jobs("planning", "Checkpoint interval", _planning),
        "sizes",
    ),
    "nodes": ReportPart(
        lambda a: {**plain_fields(a.nodes), "faults": a.faults}, _nodes, "by_reason"
    ),
    "node_records": ReportPart(
        lambda a: {**plain_fields(a.node_records), "recovery_times": a.recovery_times},
        main="nodes",
    ),
    "lemons": ReportPart(
        lambda a: a.lemon_nodes, _of_jobs("lemons", "Lemon nodes", _lemons), "candidates"
    ),
    "incidents": ReportPart(lambda a: a.incidents, _incidents),
    "status": ReportPart(lambda a: a.status, _of_jobs("status", "How jobs end", _status), "states"),
    "user_failures": ReportPart(
        lambda a: a.user_failures,
        _of_jobs("user-failures", "Failures of users' jobs", _user_failures),
        "by_user",
    ),
    "sizes": ReportPart(lambda a: a.sizes, _of_jobs("sizes", "Job sizes", _sizes), "classes"),
    "quality": ReportPart(lambda a: a.quality, _quality, "files"),
    "assumptions": ReportPart(lambda a: a.assumptions),
}
"""The parts by their keys in the JSON document, in the order of the page."""
