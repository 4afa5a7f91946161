"""What figures hand to the page: labels, values, intervals, and nothing that JSON cannot hold."""

from __future__ import annotations

import json
import math

import pytest

from ettr.estimates.interval import Interval
from ettr.report.charts import (
    BarSeries,
    band,
    interval_bars,
    log_axis,
    named_rows,
    percent_axis,
    point_line,
    points,
    row_chart,
    value_axis,
)
from ettr.report.html import script_json, with_code


def test_bars_show_their_interval_and_their_label_under_the_pointer():
    figure = row_chart(
        "f",
        "F",
        "Caption.",
        ["gpu", "link"],
        [BarSeries("failures", [2.0, 1.0], ["2 of 3", "1 of 3"], [Interval(2.0, 1.5, 4.0)] * 2)],
        axis_title="failures",
    )
    (trace,) = figure.traces
    assert trace["hovertext"] == ["gpu: 2 of 3", "link: 1 of 3"]
    assert (trace["y"], trace["x"]) == (["gpu", "link"], [2.0, 1.0])
    assert trace["error_x"]["array"] == [2.0, 2.0]
    assert trace["error_x"]["arrayminus"] == [0.5, 0.5]
    # the first label is on top, and more rows make a higher figure
    assert figure.layout["yaxis"]["autorange"] == "reversed"
    two = figure.layout["height"]
    series = [BarSeries("failures", [1.0] * 9, [""] * 9)]
    nine = row_chart("f", "F", "Caption.", list("abcdefghi"), series, axis_title="n")
    assert nine.layout["height"] > two


@pytest.mark.parametrize(
    "interval",
    [Interval(1.0, 0.0, math.inf), Interval(None, 0.5, math.inf), Interval.unknown()],
)
def test_ends_that_data_do_not_bound_stay_out_of_the_page(interval: Interval):
    traces = [
        *band("rate", [1.0], [interval]),
        points("p", [1.0], [interval.estimate], ["p"], intervals=[interval]),
        point_line("l", [1.0], [interval]),
        {"error_y": interval_bars([interval])},
    ]
    made = json.loads(script_json(traces))
    assert "Infinity" not in json.dumps(made)


def test_a_line_without_any_estimate_runs_through_the_lower_ends():
    trace = point_line("MTTF", [8.0, 16.0], [Interval(None, h, math.inf) for h in (56.0, 28.0)])
    assert (trace["name"], trace["y"]) == ("MTTF, at least", [56.0, 28.0])
    known = point_line("MTTF", [8.0], [Interval(60.0, 56.0, 70.0)])
    assert (known["name"], known["y"]) == ("MTTF", [60.0])


def test_the_lines_of_a_band_share_colour_and_place_in_the_legend():
    middle, *ends = band("rate", [1, 2], [Interval(2.0, 1.0, 3.0)] * 2)
    assert {trace["line"]["color"] for trace in (middle, *ends)} == {middle["line"]["color"]}
    assert [trace["showlegend"] for trace in ends] == [False, False]
    assert [trace["y"] for trace in ends] == [[3.0, 3.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([3.0, 40.0], ["5", "10", "20"]),
        ([0.02, 300.0], ["0.1", "1", "10", "100"]),
        ([2e-5, 3e-4], ["0.00002", "0.00005", "0.0001", "0.0002"]),
        ([30.0, None, 40.0, 0.0, math.inf], ["10", "20", "50", "100", "200", "500"]),
    ],
)
def test_a_logarithmic_axis_has_ticks_that_can_be_read(values: list[float], labels: list[str]):
    assert log_axis("n", values)["ticktext"] == labels


def test_a_logarithmic_axis_of_nothing_is_left_to_the_library():
    assert "tickvals" not in log_axis("n", [None, 0.0])


def test_rows_keep_the_order_that_they_are_given_in():
    layout = named_rows(["best", "worst"])
    assert layout["yaxis"]["categoryarray"] == ["best", "worst"]
    assert layout["yaxis"]["autorange"] == "reversed"


def test_axes_begin_at_zero():
    assert value_axis("h")["rangemode"] == percent_axis()["rangemode"] == "tozero"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("see `ettr sources` first", "see <code>ettr sources</code> first"),
        ("5 % of `<b>`", "5\u00a0% of <code>&lt;b&gt;</code>"),
        ("one ` alone <i>", "one ` alone &lt;i&gt;"),
        ("plain", "plain"),
    ],
)
def test_commands_are_set_as_code(text: str, html: str):
    assert with_code(text) == html
