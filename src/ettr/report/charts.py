"""Charts of the report as Plotly data: bars, points with intervals, lines, areas, heat maps.

Sections state data and labels; what a mark looks like stands here. What depends on the reader's
theme and screen (ink, grid lines, fonts, legends) is set in the page itself, by report.js.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ettr.estimates.interval import Interval
from ettr.report.numbers import between, duration, duration_between, finite, number
from ettr.report.section import Figure, Layout, Trace

Axis = dict[str, object]

INK = "ink"
"""The colour of the text, which depends on the theme: report.js puts it in."""
_LIMIT_COLOUR = "#7f8a97"
_RATE_COLOUR = "#2fa37c"
_MARKER_COLOUR = "#888"
_FEW_POINTS = 100
_FEW_DECADES = 4
# a name on the axis needs a line of its own, a bar some more; the axis and the legend their place
_NAME_PX = 22
_BAR_PX = 32
_FRAME_PX = 140


@dataclass(frozen=True, slots=True)
class BarSeries:
    """One series of bars over the labels of a chart."""

    name: str
    values: Sequence[float | None]
    hover: Sequence[str]
    intervals: Sequence[Interval] = ()


def value_axis(title: str) -> Axis:
    """A linear axis from zero."""
    return {"title": {"text": title}, "rangemode": "tozero"}


def percent_axis() -> Axis:
    """A linear axis of percentages from zero."""
    return {"ticksuffix": " %", "rangemode": "tozero"}


def share_axis(title: str) -> Axis:
    """An axis of shares from 0 to 1."""
    return {"range": [0, 1.02], "title": {"text": title}}


def log_axis(title: str, values: Iterable[float | None]) -> Axis:
    """A logarithmic axis with ticks for the values on it.

    At 1, 2 and 5 of each power of ten; at the powers alone where there are many.
    """
    drawn = [value for value in values if finite(value) and value and value > 0]
    if not drawn:
        return {"type": "log", "title": {"text": title}}
    powers = range(math.floor(math.log10(min(drawn))), math.ceil(math.log10(max(drawn))) + 1)
    steps = (1, 2, 5) if len(powers) <= _FEW_DECADES else (1,)
    possible = [float(f"{step}e{power}") for power in powers for step in steps]
    ticks = [tick for tick in possible if min(drawn) <= tick <= max(drawn)] or possible
    return ticked_log_axis(title, ticks, [number(tick, 1) for tick in ticks])


def ticked_log_axis(title: str, ticks: Sequence[float], labels: Sequence[str]) -> Axis:
    """A logarithmic axis with ticks at the values given."""
    return {
        "type": "log",
        "tickvals": list(ticks),
        "ticktext": list(labels),
        "title": {"text": title},
    }


def size_axis(title: str, sizes: Sequence[int]) -> Axis:
    """A logarithmic axis of job sizes, each written in full."""
    return ticked_log_axis(title, sizes, [f"{size:,}" for size in sizes])


def column_chart(
    slug: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    series: Sequence[BarSeries],
    *,
    axis: Axis,
    label_title: str = "",
) -> Figure:
    """Upright bars, those of several series next to each other."""
    traces = [
        _bars(one, labels) | {"x": list(labels), "y": list(one.values)} | _errors_of(one, "y")
        for one in series
    ]
    names: Axis = {"type": "category"}
    if label_title:
        names["title"] = {"text": label_title}
    return Figure(slug, title, caption, tuple(traces), {"yaxis": axis, "xaxis": names})


def row_chart(
    slug: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    series: Sequence[BarSeries],
    *,
    axis_title: str,
    barmode: str = "stack",
) -> Figure:
    """Lying bars, the first label on top; those of several series end to end, or by `barmode`."""
    traces = [
        _bars(one, labels)
        | {"orientation": "h", "y": list(labels), "x": list(one.values)}
        | _errors_of(one, "x")
        for one in series
    ]
    layout: Layout = {
        "barmode": barmode,
        "xaxis": value_axis(axis_title),
        "yaxis": {"autorange": "reversed"},
        "legend": {"traceorder": "normal"},
        "height": _FRAME_PX + _BAR_PX * len(labels),
    }
    return Figure(slug, title, caption, tuple(traces), layout)


_WAIT_TICKS = {
    **{"0": 0.0, "1 min": 60.0, "10 min": 600.0, "1 h": 3600.0, "10 h": 36_000.0},
    **{"100 h": 360_000.0, "1,000 h": 3_600_000.0},
}


def waits_chart(
    slug: str,
    title: str,
    caption: str,
    sizes: Sequence[str],
    simulated: Sequence[Interval],
    real: Sequence[float | None],
    theirs: str = "real",
) -> Figure:
    """Waits by size of the job: simulated ones with their intervals, real ones as diamonds.

    The axis is of the logarithm of the wait and a minute, so that it has a place for no wait.
    """

    def drawn(wait_s: float | None) -> float | None:
        return None if wait_s is None else math.log10(1.0 + max(wait_s, 0.0) / 60.0)

    values = [
        Interval(drawn(one.estimate), drawn(one.low) or 0.0, drawn(one.high) or 0.0)
        for one in simulated
    ]
    words = [duration_between(one) for one in simulated]
    traces = []
    for name, symbol, shift, heights, hover, bars in (
        ("simulated", "circle", -0.08, [one.estimate for one in values], words, values),
        (theirs, "diamond", 0.08, [drawn(one) for one in real], list(map(duration, real)), []),
    ):
        trace = points(
            name,
            [place + shift for place in range(len(sizes))],
            heights,
            [f"{size}, {name}: {text}" for size, text in zip(sizes, hover, strict=True)],
            intervals=bars,
            symbol=symbol,
        )
        # a wait of 0 lies on the axis, which would cut its mark
        traces.append(trace | {"cliponaxis": False})
    layout: Layout = {
        "xaxis": {
            "tickvals": list(range(len(sizes))),
            "ticktext": [size.replace(" nodes", "\nnodes") for size in sizes],
            "range": [-0.5, len(sizes) - 0.5],
        },
        "yaxis": {
            "title": {"text": "wait"},
            "rangemode": "tozero",
            "tickvals": [drawn(wait_s) for wait_s in _WAIT_TICKS.values()],
            "ticktext": list(_WAIT_TICKS),
        },
    }
    return Figure(slug, title, caption, tuple(traces), layout)


def _bars(one: BarSeries, labels: Sequence[str]) -> Trace:
    hover = [f"{label}: {text}" for label, text in zip(labels, one.hover, strict=True)]
    return {"type": "bar", "name": one.name, "hovertext": hover, "hoverinfo": "text"}


def _errors_of(one: BarSeries, along: str) -> Trace:
    return {f"error_{along}": interval_bars(one.intervals)} if one.intervals else {}


def interval_bars(intervals: Sequence[Interval]) -> Trace:
    """Bars from the low end of each interval to its high one, on both sides of the estimate."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [_reach(one.estimate, one.high) for one in intervals],
        "arrayminus": [_reach(one.low, one.estimate) for one in intervals],
        "thickness": 1,
    }


def _reach(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else finite(high - low)


def points(
    name: str,
    x: Sequence[object],
    y: Sequence[float | None],
    hover: Sequence[str],
    *,
    labels: Sequence[str] = (),
    intervals: Sequence[Interval] = (),
    symbol: str = "circle",
) -> Trace:
    """Points with their intervals along y; a label that is not empty stands above its point."""
    trace: Trace = {
        "type": "scatter",
        "mode": "markers+text" if any(labels) else "markers",
        "name": name,
        "x": list(x),
        "y": [finite(value) for value in y],
        "hovertext": list(hover),
        "hoverinfo": "text",
        "marker": {"size": 9 if len(x) < _FEW_POINTS else 5, "symbol": symbol},
    }
    if any(labels):
        trace |= {"text": list(labels), "textposition": "top center", "cliponaxis": False}
    return trace | ({"error_y": interval_bars(intervals)} if intervals else {})


def named_points(
    name: str, labels: Sequence[str], values: Sequence[Interval], hover: Sequence[str], symbol: str
) -> Trace:
    """One point a row with its interval along x; the rows carry names."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": True,
        "y": list(labels),
        "x": [value.estimate for value in values],
        "error_x": interval_bars(values),
        "hovertext": list(hover),
        "hoverinfo": "text",
        "marker": {"symbol": symbol, "size": 9},
    }


def spans(
    name: str,
    labels: Sequence[str],
    ends: Sequence[tuple[str, str]],
    hover: Sequence[str],
    after: Sequence[str],
    *,
    dash: str,
) -> list[Trace]:
    """A lying line a row from one time to another, and words after it; the rows carry names."""
    lines: Trace = {
        "mode": "lines",
        "name": name,
        "showlegend": True,
        "x": [time for start, end in ends for time in (start, end, None)],
        "y": [label for label in labels for _ in range(3)],
        "hovertext": [words for words in hover for _ in range(3)],
        "hoverinfo": "text",
        "line": {"width": 6, "dash": dash},
    }
    words: Trace = {
        "mode": "text",
        "showlegend": False,
        "x": [end for _, end in ends],
        "y": list(labels),
        "text": list(after),
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    return [{"type": "scatter", **lines}, {"type": "scatter", **words}]


def named_rows(labels: Sequence[str]) -> Layout:
    """Layout of a chart with a row for each label, the first on top, as high as they need."""
    rows: Axis = {
        "dtick": 1,
        "categoryorder": "array",
        "categoryarray": list(labels),
        "autorange": "reversed",
    }
    return {"yaxis": rows, "height": _FRAME_PX + _NAME_PX * len(labels)}


def rates_chart(slug: str, title: str, caption: str, rates: Mapping[str, Interval]) -> Figure:
    """Failure rates per 1,000 node-days by name, each with its interval; the first on top.

    A rate without an estimate has no point.
    """
    hover = [f"{name}: {between(rate)}" for name, rate in rates.items()]
    trace = named_points("rate", list(rates), list(rates.values()), hover, "circle")
    layout: Layout = {
        **named_rows(list(rates)),
        "xaxis": value_axis("failures per 1,000 node-days"),
        "showlegend": False,
    }
    return Figure(slug, title, caption, (trace,), layout)


def line(
    name: str,
    x: Sequence[object],
    y: Sequence[float | None],
    *,
    dash: str = "solid",
    width: float = 1.5,
    colour: str | None = None,
) -> Trace:
    """A line through values, with their value under the pointer; its colour is free if None."""
    style: Trace = {"dash": dash, "width": width}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": [finite(value) for value in y],
        "line": style | {"color": colour} if colour else style,
    }


def band(
    name: str, x: Sequence[object], values: Sequence[Interval], colour: str = _RATE_COLOUR
) -> list[Trace]:
    """A line through estimates, and dotted ones of its colour through the ends of the intervals."""
    estimates = line(name, x, [one.estimate for one in values], width=2, colour=colour)
    ends = [
        line(end, x, found, width=1, dash="dot", colour=colour) | {"showlegend": False}
        for end, found in (
            ("upper end", [one.high for one in values]),
            ("lower end", [one.low for one in values]),
        )
    ]
    return [trace | {"legendgroup": name} for trace in (estimates, *ends)]


def dotted_line(name: str, x: Sequence[object], y: Sequence[float | None]) -> Trace:
    """A thin line through small points, for counts by day."""
    return line(name, x, y, width=1) | {"mode": "lines+markers", "marker": {"size": 4}}


def point_line(name: str, x: Sequence[float], intervals: Sequence[Interval]) -> Trace:
    """A line through points with their intervals.

    Where no value has an estimate, the line runs through the lower ends, and its name says so.
    """
    if any(one.estimate is not None for one in intervals):
        values, ends = [one.estimate for one in intervals], interval_bars(intervals)
    else:
        name, values, ends = f"{name}, at least", [one.low for one in intervals], {}
    trace = line(name, x, values) | {"mode": "lines+markers"}
    return trace | ({"error_y": ends} if ends else {})


def limit_line(
    name: str, x: Sequence[float], y: Sequence[float], dash: str, *, in_legend: bool
) -> Trace:
    """A grey line that data are held against; lines of one name share a place in the legend."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": name,
        "showlegend": in_legend,
        "x": list(x),
        "y": list(y),
        "hoverinfo": "skip",
        "line": {"dash": dash, "width": 1.5, "color": _LIMIT_COLOUR},
    }


def time_markers(markers: Sequence[tuple[str, str]]) -> Layout:
    """Upright dashed lines across the chart, each a time and its label."""
    lines = [
        {
            "type": "line",
            "x0": time,
            "x1": time,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"dash": "dash", "width": 1, "color": _MARKER_COLOUR},
        }
        for time, _ in markers
    ]
    labels = [
        {
            "x": time,
            "y": 1,
            "yref": "paper",
            "text": label,
            "textangle": -90,
            "showarrow": False,
            "yanchor": "top",
            "xanchor": "left",
            "font": {"size": 10},
        }
        for time, label in markers
    ]
    return {"shapes": lines, "annotations": labels}


def heat_map(
    slug: str,
    title: str,
    caption: str,
    names: Sequence[str],
    shares: Sequence[Sequence[float | None]],
    hover: Sequence[Sequence[str]],
) -> Figure:
    """Shares between 0 and 1 for each pair of names; `shares[row][column]`."""
    trace: Trace = {
        "type": "heatmap",
        "x": list(names),
        "y": list(names),
        "z": [list(row) for row in shares],
        "zmin": 0,
        "zmax": 1,
        "colorscale": "Blues",
        "colorbar": {"tickformat": ".0%"},
        "hovertext": [list(row) for row in hover],
        "hoverinfo": "text",
    }
    return Figure(slug, title, caption, (trace,))
