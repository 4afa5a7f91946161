"""The funnel plot: rates against exposure, with the limits that chance alone would respect."""

from __future__ import annotations

import math

from ettr.models.compare import Funnel, FunnelPoint
from ettr.report.numbers import number
from ettr.report.section import Figure, Trace

PER_NODE_DAYS = 1000.0


def funnel_figure(
    found: Funnel, slug: str, title: str, says: str, *, what: str, named: frozenset[str]
) -> Figure:
    """The points of a funnel and its limits.

    Args:
        found: the funnel.
        slug: of the figure.
        title: of the figure.
        says: what it shows, in a sentence.
        what: the points are, in the plural.
        named: points whose names stand beside them; the others tell theirs to the pointer.
    """
    days = list(found.curve_node_days)
    ticks, highest = _ticks(days[0], days[-1]), _highest(found)
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers+text",
            "name": what,
            "x": [point.rate.node_days for point in found.points],
            "y": [PER_NODE_DAYS * _rate(point) for point in found.points],
            "text": [point.name if point.name in named else "" for point in found.points],
            "hovertext": [
                f"{point.name}: {point.rate.failures:,} failures in "
                f"{number(point.rate.node_days, 4)} node-days\n{point.place}"
                for point in found.points
            ],
            "hoverinfo": "text",
            "textposition": "top center",
            "cliponaxis": False,
            "marker": {"size": 9 if len(found.points) < 100 else 5},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "rate of all",
            "x": [days[0], days[-1]],
            "y": [PER_NODE_DAYS * found.target_per_node_day] * 2,
            "hoverinfo": "skip",
            "line": {"width": 1.5},
        },
    ]
    for name, curve, dash in (("95 %", found.curve_95, "dash"), ("99.8 %", found.curve_998, "dot")):
        for end in (1, 0):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": f"limits of {name}",
                    "legendgroup": name,
                    "showlegend": end == 1,
                    "x": days,
                    "y": [PER_NODE_DAYS * ends[end] for ends in curve],
                    "hoverinfo": "skip",
                    "line": {"dash": dash, "width": 1.5, "color": "#7f8a97"},
                }
            )
    return Figure(
        slug,
        title,
        says,
        tuple(traces),
        {
            "xaxis": {
                "type": "log",
                "tickvals": ticks,
                "ticktext": [number(tick) for tick in ticks],
                "title": {"text": "node-days"},
            },
            "yaxis": {
                "range": [-0.04 * highest, highest],
                "zeroline": False,
                "title": {"text": "failures per 1,000 node-days"},
            },
        },
    )


def _highest(found: Funnel) -> float:
    """Where the axis ends: limits at hardly any exposure are no matter of interest."""
    limits = sorted(point.limits_998[1] for point in found.points)
    rates = [_rate(point) for point in found.points]
    return 1.15 * PER_NODE_DAYS * max(limits[len(limits) // 2], *rates)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten in between; powers alone where there are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0, 2.0, 5.0) if len(powers) <= 4 else (1.0,)
    ticks = [float(f"{step:g}e{power}") for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _rate(point: FunnelPoint) -> float:
    return point.rate.per_node_day or 0.0
