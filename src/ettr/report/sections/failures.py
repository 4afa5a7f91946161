"""How often nodes fail jobs: rates by symptom, over time, and MTTF by job size."""

from __future__ import annotations

from typing import Any

from ettr.estimates import Interval
from ettr.metrics.mttf import MttfBySize
from ettr.metrics.rates import FailureRates
from ettr.metrics.sizes import SIZE_ENDS
from ettr.metrics.trend import RateTrend
from ettr.report.numbers import between, counted, finite, moment, number, percent
from ettr.report.section import Figure, Section, Table

_RATE_AXIS = {"title": {"text": "failures per 1,000 node-days"}, "rangemode": "tozero"}
_MARKERS_SHOWN = 12


def failures_section(rates: FailureRates, trend: RateTrend) -> Section:
    """Failures per 1,000 node-days by symptom and over time."""
    every, large = rates.all_jobs, rates.large_jobs
    confidence = percent(rates.confidence, 2)
    lead = (
        f"{counted(every.failures, 'infrastructure failure')} in "
        f"{number(every.node_days, 5)} node-days of runtime: "
        f"{between(every.per_1000_node_days)} per 1,000 node-days ({confidence} interval). "
        f"Jobs of more than {rates.above_gpus} GPUs: "
    )
    lead += (
        f"{large.failures:,} in {number(large.node_days, 5)} node-days, "
        f"{between(large.per_1000_node_days)}."
        if large.node_days > 0
        else "none ran."
    )
    figures = [_symptom_figure(rates)] if rates.by_symptom else []
    if len(trend.points) > 1:
        figures.append(_trend_figure(trend))
    table = Table(
        "Failures by symptom",
        (
            "symptom",
            "domain",
            "failures",
            "per 1,000 node-days",
            f"in jobs > {rates.above_gpus} GPUs",
            "per 1,000 node-days",
        ),
        tuple(
            (
                s.symptom,
                s.domain,
                number(s.all_jobs.failures),
                between(s.all_jobs.per_1000_node_days),
                number(s.large_jobs.failures),
                between(s.large_jobs.per_1000_node_days),
            )
            for s in rates.by_symptom
        ),
        frozenset(range(2, 6)),
    )
    notes = [
        "The denominator is node-days of runtime of jobs, not of machines powered on. Intervals "
        "are exact for independent failures (Garwood 1936); failures that come in bursts make "
        "them too narrow, which the models section tests."
    ]
    new = [m for m in trend.markers if m.is_new]
    if new:
        notes.append(
            "Checks first heard of after the logs began, each of which may raise the apparent "
            "rate: " + "; ".join(f"{m.check} ({moment(m.first_seen)})" for m in new) + "."
        )
    return Section(
        "failures", "How often it fails, and why", lead, tuple(figures), (table,), tuple(notes)
    )


def _symptom_figure(rates: FailureRates) -> Figure:
    symptoms = rates.by_symptom
    return Figure(
        "failures-symptom",
        "Failures by symptom",
        "Per 1,000 node-days over all jobs; bars show exact intervals.",
        (
            {
                "type": "bar",
                "orientation": "h",
                "y": [s.symptom for s in symptoms][::-1],
                "x": [s.all_jobs.per_1000_node_days.estimate for s in symptoms][::-1],
                "error_x": _errors([s.all_jobs.per_1000_node_days for s in symptoms][::-1]),
                "customdata": [[s.all_jobs.failures, s.domain.replace("<", "")] for s in symptoms][
                    ::-1
                ],
                "hovertemplate": "%{y}: %{x:.3g}<br>%{customdata[0]} failures"
                "<extra>%{customdata[1]}</extra>",
            },
        ),
        {"xaxis": _RATE_AXIS, "margin": {"l": 140}},
    )


def _trend_figure(trend: RateTrend) -> Figure:
    times = [moment(p.time) for p in trend.points]
    symptoms = sorted({c.symptom for p in trend.points for c in p.by_symptom})
    traces: list[dict[str, Any]] = []
    for symptom in symptoms:
        rates = [
            {c.symptom: c.per_1000_node_days for c in p.by_symptom}.get(symptom, 0.0)
            for p in trend.points
        ]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "stackgroup": "symptoms",
                "name": symptom,
                "x": times,
                "y": rates,
                "hovertemplate": "%{x}: %{y:.3g}",
                "line": {"width": 0.5},
            }
        )
    bounds = [p.per_1000_node_days for p in trend.points]
    traces += [
        _line("total", times, [b.estimate for b in bounds], {"width": 2}),
        _line(
            "interval, upper", times, [finite(b.high) for b in bounds], {"width": 1, "dash": "dot"}
        ),
        _line(
            "interval, lower", times, [finite(b.low) for b in bounds], {"width": 1, "dash": "dot"}
        ),
    ]
    new = [m for m in trend.markers if m.is_new][:_MARKERS_SHOWN]
    shapes = [
        {
            "type": "line",
            "x0": moment(m.first_seen),
            "x1": moment(m.first_seen),
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"dash": "dash", "width": 1, "color": "#888"},
        }
        for m in new
    ]
    labels = [
        {
            "x": moment(m.first_seen),
            "y": 1,
            "yref": "paper",
            "text": m.check,
            "textangle": -90,
            "showarrow": False,
            "yanchor": "top",
            "xanchor": "left",
            "font": {"size": 10},
        }
        for m in new
    ]
    return Figure(
        "failures-trend",
        "Failures over time",
        f"Per 1,000 node-days in a rolling window of {number(trend.window_days)} days; dashed "
        "lines mark the day on which a check was first heard of.",
        tuple(traces),
        {"yaxis": _RATE_AXIS, "shapes": shapes, "annotations": labels, "hovermode": "x unified"},
    )


def _line(name: str, x: list[Any], y: list[float | None], line: dict[str, Any]) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": line}


def _errors(intervals: list[Interval]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [(finite(i.high) or i.estimate or 0) - (i.estimate or 0) for i in intervals],
        "arrayminus": [(i.estimate or 0) - (finite(i.low) or 0) for i in intervals],
        "thickness": 1,
    }


def mttf_section(mttf: MttfBySize) -> Section:
    """MTTF by job size, with the line that the rate projects."""
    unit = "GPUs" if mttf.size_unit == "gpus" else "nodes"
    failed = sum(c.failures for c in mttf.classes)
    hours = sum(c.job_hours for c in mttf.classes)
    restarts = sum(c.in_job_restarts for c in mttf.classes)
    lead = (
        f"A job runs {between(mttf.scheduler_mttf_h)} h between failures that the scheduler sees "
        f"({failed:,} in {number(hours, 5)} job-hours, all sizes together)"
    )
    lead += (
        f", and {between(mttf.interruption_mttf_h)} h between interruptions once {restarts:,} "
        "restarts within jobs are counted too."
        if restarts
        else "; no restarts within jobs were reported."
    )
    known = [c for c in mttf.classes if c.size.size_to]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "measured",
            "x": [c.size.size_to for c in known],
            "y": [c.scheduler_mttf_h.estimate for c in known],
            "error_y": _errors([c.scheduler_mttf_h for c in known]),
            "customdata": [[c.failures, c.job_hours] for c in known],
            "hovertemplate": "%{x} " + unit + ": %{y:.3g} h<br>%{customdata[0]} failures in "
            "%{customdata[1]:.4g} job-hours",
            "marker": {"size": 9},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "no failure yet: at least",
            "x": [c.size.size_to for c in known if not c.failures],
            "y": [finite(c.scheduler_mttf_h.low) for c in known if not c.failures],
            "marker": {"symbol": "triangle-up-open", "size": 10},
            "hovertemplate": "%{x} " + unit + ": at least %{y:.3g} h",
        },
    ]
    line = mttf.line
    for name, values, dash in (
        ("projected from the rate", [p.mttf_h.estimate for p in line], "solid"),
        ("projected, upper", [finite(p.mttf_h.high) for p in line], "dot"),
        ("projected, lower", [finite(p.mttf_h.low) for p in line], "dot"),
    ):
        traces.append(_line(name, [p.size for p in line], values, {"dash": dash, "width": 1.5}))
    figure = Figure(
        "mttf",
        "MTTF by job size",
        "Mean time to failure of jobs of each size class with exact intervals, and the line "
        "MTTF = 1 / (nodes × rate).",
        tuple(traces),
        {
            "xaxis": {
                "type": "log",
                "tickvals": list(SIZE_ENDS[::2]),
                "ticktext": [f"{size:,}" for size in SIZE_ENDS[::2]],
                "title": {"text": unit},
            },
            "yaxis": {
                "type": "log",
                "dtick": 1,
                "exponentformat": "power",
                "title": {"text": "MTTF, hours"},
            },
        },
    )
    table = Table(
        f"MTTF by job size in {unit}, hours",
        (
            unit,
            "attempts",
            "job-hours",
            "failures",
            "MTTF, scheduler",
            "restarts in jobs",
            "MTTF, interruptions",
            "projected",
        ),
        tuple(
            (
                c.size.label,
                number(c.attempts),
                number(c.job_hours, 5),
                number(c.failures),
                between(c.scheduler_mttf_h),
                number(c.in_job_restarts),
                between(c.interruption_mttf_h),
                between(c.projected_mttf_h),
            )
            for c in mttf.classes
        ),
        frozenset(range(8)),
    )
    rate = mttf.rate_used
    notes = (
        f"The projected line uses {between(rate.per_1000_node_days)} failures per 1,000 node-days "
        f"({rate.failures:,} in {number(rate.node_days, 5)} node-days), nodes in series at a "
        "constant rate.",
    )
    return Section(
        "mttf", "Time to failure by job size", lead, (figure,) if known else (), (table,), notes
    )
