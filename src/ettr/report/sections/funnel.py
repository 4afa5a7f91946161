"""The funnel plot: rates against exposure, with the limits that chance alone would respect."""

from __future__ import annotations

from ettr.models.compare import Funnel, FunnelPoint
from ettr.report.charts import limit_line, line, log_axis, points
from ettr.report.numbers import PER_NODE_DAYS, number
from ettr.report.section import Figure
from ettr.words import counted


def funnel_figure(
    funnel: Funnel, slug: str, title: str, caption: str, *, what: str, named: frozenset[str]
) -> Figure:
    """The points of a funnel and its limits.

    Args:
        funnel: rates, exposures and limits.
        slug: of the figure.
        title: of the figure.
        caption: what it shows, in a sentence.
        what: the points are, in the plural.
        named: points whose names are written at them; of the others the pointer shows it.
    """
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
