"""Pages of simulated answers: what-if bars, tornadoes, waits by size next to the real ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cluster_scenarios import small
from ettr.analysis.calibration.back_test import BackTest, PlacedQuantity, _result
from ettr.estimates import Interval
from ettr.plan.cost import Price
from ettr.report.html import answer_page, render
from ettr.report.rows import priced
from ettr.report.section import Figure, Section
from ettr.report.sections.what_if import back_test_section, sensitivity_section, what_if_section
from ettr.sim.cluster.run import ClusterHours
from ettr.sim.cluster.standing import standing_of
from ettr.sim.cluster.whatif import (
    HEADLINES,
    AssumptionSensitivity,
    Intervention,
    ValueEffect,
    WhatIf,
)
from report.browser import chromium, not_accessible, opened

HOSTILE = "</script><script>alert(1)</script>"
NAME = f"jobs.{HOSTILE}.mean_s=x0.5"


def hours() -> ClusterHours:
    return ClusterHours(**dict.fromkeys(ClusterHours.__dataclass_fields__, 100.0))  # type: ignore[arg-type]


def changes() -> WhatIf:
    won = [Interval(800.0, 500.0, 1100.0), Interval(50.0, -20.0, 120.0)]
    made = tuple(
        Intervention(name, one, one, one, one, 0.0, one, one, one, one)
        for name, one in zip([NAME, "lemons.share=0"], won, strict=True)
    )
    standing = standing_of(small())
    return WhatIf("small", 7.0, (1, 2, 3), 0.9, hours(), made, 3, 4, standing)


def effects() -> AssumptionSensitivity:
    change = Interval(-10.0, -15.0, -5.0)
    made = tuple(
        ValueEffect(headline, 1, NAME, "assumed", 2.0, 1.0, None, change, None, 5.0)
        for headline in HEADLINES
    )
    return AssumptionSensitivity(
        "small", 7.0, (1, 2, 3), 0.9, 6, hours(), made, (), 3, 4, standing_of(small())
    )


def wait(size: str, level: str, values: tuple[float | None, ...]) -> PlacedQuantity:
    """A wait in seconds: real, predicted, and the ends of the interval."""
    name = f"wait of {size}, {level}"
    return PlacedQuantity(name, "s", *values, None, 9, None, None, "passed")


def waits() -> BackTest:
    found = [
        wait("part of a node", "median", (0.0, 0.0, 0.0, 600.0)),
        wait("1 node", "median", (None, 540.0, 0.0, 5940.0)),
        wait("2 to 8 nodes", "median", (5940.0, None, None, None)),
        wait("1 node", "90 %", (59_940.0, 5940.0, 540.0, 59_940.0)),
    ]
    times = datetime(2026, 1, 8, tzinfo=UTC), datetime(2026, 1, 12, tzinfo=UTC)
    return _result(small(), "site", *times, 2, 9, 1, tuple(found))


def figure(section: Section, slug: str) -> Figure:
    (one,) = (one for one in section.figures if one.slug == slug)
    return one


def test_what_ifs_are_bars_with_their_intervals_in_hours_and_in_money():
    section = what_if_section(changes(), Price(2.0, "USD"))
    (bars,) = figure(section, "what-if").traces
    assert bars["x"] == [800.0, 50.0]
    assert bars["error_x"]["array"] == [300.0, 70.0]  # type: ignore[index]
    assert bars["error_x"]["arrayminus"] == [300.0, 70.0]  # type: ignore[index]
    (money,) = figure(section, "what-if-cost").traces
    assert money["x"] == [1600.0, 100.0]
    assert "not validated" in figure(section, "what-if").caption
    assert [one.slug for one in what_if_section(changes()).figures] == ["what-if"]


def test_a_tornado_has_no_bar_where_a_value_cannot_be_larger():
    section = sensitivity_section(effects())
    assert len(section.figures) == len(HEADLINES)
    less, more = figure(section, "lost-gpu-hours").traces
    assert (less["x"], more["x"]) == ([-10.0], [None])
    assert section.figures[0].layout["barmode"] == "group"


def test_waits_have_a_place_for_none_and_name_what_they_lack():
    section = back_test_section(waits())
    median = figure(section, "waits-median")
    simulated, real = median.traces
    # log10 of minutes and one: 0 s, and 540 s = 9 min; the interval ends at 99 min
    assert simulated["y"] == pytest.approx([0.0, 1.0])
    assert simulated["error_y"]["array"] == pytest.approx([math.log10(11.0), 1.0])  # type: ignore[index]
    assert real["y"] == [0.0, None]
    assert "Too few simulated jobs: 2 to 8 nodes." in median.caption
    assert "Not measured in reality: 1 node." in median.caption
    assert figure(section, "waits-p90").traces[1]["y"] == pytest.approx([3.0])  # 999 min
    nothing = replace(waits(), quantities=())
    assert back_test_section(nothing).figures == ()


def test_workers_are_those_of_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from cli.program import ettr

    seen = {}

    def what_if(*_: object, workers: int, **__: object) -> WhatIf:
        seen["workers"] = workers
        return changes()

    monkeypatch.setattr("ettr.sim.cluster.whatif.what_if", what_if)
    page = tmp_path / "page.html"
    words = ("--set", "lemons.share=0", "--workers", "3", "--html", page)
    done = ettr("simulate", "whatif", "small", *words)
    assert done.code == 0, done.err
    assert seen == {"workers": 3}
    text = page.read_text("utf-8")
    assert '<p class="caution" role="note">NOT VALIDATED: no back-test' in text
    assert HOSTILE not in text
    refused = ettr("simulate", "show", "small", "--html", page)
    assert refused.code == 2
    assert "--html: simulate show has no use for it" in refused.err


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_pages_fit_the_screen_and_run_no_text(browser: Any, tmp_path: Path, width: int):
    price = Price(2.0, "USD")
    sections = (
        priced(what_if_section(changes(), price), price),
        sensitivity_section(effects()),
        back_test_section(waits()),
    )
    for section in sections:
        place = tmp_path / f"{section.slug}.html"
        place.write_text(render(answer_page(section, "Simulated", 0.9)), "utf-8")
        with opened(browser, place, width=width) as shown:
            assert shown.ask("Number(document.documentElement.dataset.drawn)") == len(
                section.figures
            )
            assert shown.said == []
            assert shown.asked == [place.as_uri()]
            assert shown.ask("document.documentElement.scrollWidth") <= width
            assert width != 390 or not_accessible(shown.page) == []
            if section.slug == "what-if":
                ticks = shown.page.locator("#figure-what-if .ytick text").all_text_contents()
                assert NAME in ticks
