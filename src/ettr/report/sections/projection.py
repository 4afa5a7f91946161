"""The fleet's failures at larger scales, and how often its runs should save."""

from __future__ import annotations

import math
import re
from typing import Any

from ettr.analysis.projecting import CheckpointAdvice, ScaleProjection
from ettr.estimates import Interval
from ettr.plan.run import spell
from ettr.report.numbers import DASH, between, counted, number, percent
from ettr.report.section import Figure, Section, Table
from ettr.report.sections.plan import decimals, hours, share_of


def projection_section(found: ScaleProjection | None) -> Section:
    """MTTF and ETTR at each scale, with bands and warnings."""
    title = "At larger scales"
    if found is None:
        return Section("projection", title, "Nothing ran, so there is no rate to project.")
    lead = " ".join(
        (
            found.points[0].projection.meaning,
            found.points[-1].projection.meaning if len(found.points) > 1 else "",
        )
    ).strip()
    tables = [_table(found)]
    if any(point.projection.spares is not None for point in found.points):
        tables.append(_spares_table(found))
    rate = found.rate
    notes = (
        *_warnings(found),
        f"From {counted(rate.failures, 'failure')} in {number(rate.node_days, 6)} node-days "
        f"({found.jobs}); the band is the envelope of {', '.join(found.models)} at "
        f"{percent(found.confidence, 2)}.",
        f"ETTR by the exact form with writes of {spell(found.write_s)}, restarts of "
        f"{spell(found.restart_s)} and a queue of {spell(found.queue_s)}; the interval is chosen "
        f"at the {'estimated rate' if rate.failures else 'upper end of the rate'} and kept over "
        "the band.",
        *found.notes,
    )
    return Section("projection", title, lead, (_figure(found),), tuple(tables), notes)


def _warnings(found: ScaleProjection) -> list[str]:
    """What holds of several scales once: of sentences that differ in numbers, the largest one's."""
    by_kind: dict[str, str] = {}
    for point in sorted(found.points, key=lambda point: point.size):
        for warning in point.projection.warnings:
            by_kind[re.sub(r"[\d.,]+", "0", warning.text)] = warning.text
    return list(by_kind.values())


def _count(value: Interval | None) -> str:
    return DASH if value is None else between(value)


def _table(found: ScaleProjection) -> Table:
    timed = any(point.projection.failures_in_run is not None for point in found.points)
    headers = (found.unit, "nodes", "MTTF", "checkpoint every", "ETTR", "failures in the run")
    return Table(
        "MTTF and ETTR by scale",
        headers if timed else headers[:-1],
        tuple(
            (
                number(round(point.size), 7),
                number(point.projection.scale.n_nodes, 7),
                hours(point.projection.mttf_h),
                DASH if point.interval_s is None else spell(point.interval_s),
                share_of(point.projection.ettr),
                *((_count(point.projection.failures_in_run),) if timed else ()),
            )
            for point in found.points
        ),
        frozenset(range(6)),
    )


def _spares_table(found: ScaleProjection) -> Table:
    rows = []
    for point in found.points:
        spares = point.projection.spares
        if spares is not None:
            share = spares.full_share
            rows.append(
                (
                    number(round(point.size), 7),
                    number(point.projection.scale.spares),
                    between(spares.in_repair),
                    share_of(share),
                    number(spares.needed_for_99),
                )
            )
    return Table(
        "Spare nodes",
        (found.unit, "spares", "nodes in repair", "share of time covered", "spares for 99 %"),
        tuple(rows),
        frozenset(range(5)),
    )


def _figure(found: ScaleProjection) -> Figure:
    sizes = [point.size for point in found.points]
    traces: list[dict[str, Any]] = []
    for name, axis, intervals in (
        ("MTTF, hours", "y", [point.projection.mttf_h for point in found.points]),
        ("ETTR", "y2", [point.projection.ettr for point in found.points]),
    ):
        known = [interval or Interval(None, math.nan, math.nan) for interval in intervals]
        middle = [interval.estimate for interval in known]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": sizes,
                "y": middle,
                "yaxis": axis,
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [_above(one) for one in known],
                    "arrayminus": [_below(one) for one in known],
                },
            }
        )
    ticks = [round(size) for size in sizes]
    return Figure(
        "projection",
        "MTTF and ETTR by scale",
        "Bars reach from the lowest to the highest end of all models.",
        tuple(traces),
        {
            "xaxis": {
                "type": "log",
                "tickvals": ticks,
                "ticktext": [f"{tick:,}" for tick in ticks],
                "title": {"text": found.unit},
            },
            "yaxis": {
                "type": "log",
                "dtick": 1,
                "exponentformat": "power",
                "title": {"text": "MTTF, hours"},
            },
            "yaxis2": {
                "overlaying": "y",
                "side": "right",
                "range": [0, 1],
                "tickmode": "array",
                "tickvals": [0, 0.2, 0.4, 0.6, 0.8, 1],
                "showgrid": False,
                "title": {"text": "ETTR"},
            },
            "margin": {"r": 60},
        },
    )


def _above(one: Interval) -> float | None:
    if one.estimate is None or not math.isfinite(one.high):
        return None
    return one.high - one.estimate


def _below(one: Interval) -> float | None:
    return None if one.estimate is None else one.estimate - one.low


def advice_section(found: CheckpointAdvice | None) -> Section:
    """How often runs of the sizes seen should save."""
    title = "How often to save"
    if found is None or not found.sizes:
        return Section("planning", title, "No run of known size was seen.")
    largest = max(found.sizes, key=lambda one: one.n_nodes)
    lead = (
        f"At {number(found.per_1000_node_days)} failures per 1,000 node-days, writes of "
        f"{spell(found.write_s)} and restarts of {spell(found.restart_s)}, a run on "
        f"{largest.size} does best with a checkpoint every {spell(largest.best_interval_s)} "
        f"(ETTR {decimals(largest.ettr_at_best)}; hourly {decimals(largest.ettr_at_hourly)})."
    )
    table = Table(
        "Best checkpoint interval by size of run",
        (
            "size",
            "runs",
            "GPU-hours",
            "MTTF",
            "best interval",
            "ETTR at best",
            "ETTR hourly",
            "GPU-hours gained over hourly",
        ),
        tuple(
            (
                one.size,
                number(one.runs),
                number(one.gpu_hours, 5),
                DASH if one.mttf_h is None else spell(3600.0 * one.mttf_h),
                spell(one.best_interval_s),
                decimals(one.ettr_at_best),
                decimals(one.ettr_at_hourly),
                number(one.gpu_hours_gained),
            )
            for one in found.sizes
        ),
        frozenset(range(1, 8)),
    )
    notes = [
        "Writes and restarts are assumed, as Kokolis et al. (HPCA 2025) do; `ettr plan STORE` "
        "takes your own and ranks checkpoint schemes."
    ]
    if found.from_upper_end:
        notes.append("Nothing failed yet: the upper end of the rate is used.")
    return Section("planning", title, lead, (), (table,), tuple(notes))
