"""The timeline as a reader sees it: it zooms by keys and wheel, is read aloud, and is safe."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ettr.analysis.selecting import SelectionHead
from ettr.analysis.timeline import (
    FailureMark,
    JobEnd,
    NotDrawn,
    OutageKind,
    OutageSpan,
    Timeline,
    TimelineJob,
    TimelineNode,
)
from ettr.report.html import render
from ettr.report.pages import timeline_page
from report.browser import chromium, not_accessible, opened

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"
BEGIN = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOTHING: tuple[tuple[str, ...], ...] = ((),) * 8
HEAD = SelectionHead(None, None, *NOTHING, True, "", (), "SIMULATED, by a test.")
N_NODES, N_JOBS = 500, 10_000


def job(number: int, node: str, begin: datetime, end: JobEnd) -> TimelineJob:
    failed = end is JobEnd.FAILURE
    return TimelineJob(
        cluster="c",
        job_id=str(number),
        attempt_id=str(number),
        name=HOSTILE,
        user="ann",
        state="NODE_FAIL" if failed else "COMPLETED",
        start=begin,
        end=begin + HOUR,
        n_gpus=8,
        n_nodes=1,
        nodes=(node,),
        ended=end,
        symptom=HOSTILE if failed else None,
        confidence="high" if failed else None,
        blamed=node if failed else None,
    )


def many() -> Timeline:
    """10,000 jobs on 500 nodes, one after the other; the 101st job failed."""
    nodes = [f"n{number:03d}" for number in range(N_NODES)]
    jobs = [
        job(
            number,
            nodes[number % N_NODES],
            BEGIN + number // N_NODES * 1.2 * HOUR,
            JobEnd.FAILURE if number == 100 else JobEnd.COMPLETED,
        )
        for number in range(N_JOBS)
    ]
    until = BEGIN + 24 * HOUR
    return Timeline(
        BEGIN,
        until,
        ("c",),
        "gpus",
        8,
        tuple(
            TimelineNode("c", one, f"rack {n // 20}", BEGIN, until) for n, one in enumerate(nodes)
        ),
        tuple(jobs),
        (OutageSpan("c", "n003", OutageKind.DRAIN, "DRAIN", HOSTILE, BEGIN + 20 * HOUR, None),),
        (FailureMark("c", "n005", BEGIN + 22 * HOUR, "77", "gpu-memory", "low", 1),),
        (NotDrawn("attempts", 12_345, HOSTILE),),
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("timeline") / "timeline.html"
    place.write_text(render(timeline_page(many(), HEAD)), "utf-8")
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def drawn(shown: Any) -> dict[str, float]:
    """What the canvas says of its last drawing, after the next frame."""
    script = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(
      () => done({...document.getElementById('canvas').dataset}))))"""
    return {name: float(value) for name, value in shown.ask(script).items()}


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_fits_the_screen_and_no_text_of_a_log_runs(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    with opened(browser, page, width=width, scheme=scheme) as shown:
        assert drawn(shown)["spans"] > 1000
        assert shown.said == []
        assert shown.asked == [page.as_uri()]
        assert shown.ask("document.documentElement.scrollWidth") <= width
        assert shown.ask("document.querySelectorAll('img, main script').length") == 0
        assert "12,345 attempts" in shown.page.text_content(".caution")
        assert "SIMULATED" in shown.page.text_content(".selection")
        assert not_accessible(shown.page) == []


def test_keys_and_the_wheel_zoom_and_draw_only_what_is_in_view(browser: Any, page: Path) -> None:
    with opened(browser, page) as shown:
        whole = drawn(shown)
        shown.page.focus("#viewport")
        for _ in range(3):
            shown.page.keyboard.press("+")
        near = drawn(shown)
        assert (near["to"] - near["from"]) == pytest.approx(
            (whole["to"] - whole["from"]) / 8, rel=0.01
        )
        assert near["spans"] < whole["spans"] / 3
        shown.page.keyboard.press("ArrowRight")
        assert drawn(shown)["from"] > near["from"]
        shown.page.keyboard.press("0")
        # two per cent of the length are left free at either end
        assert drawn(shown)["from"] == pytest.approx(0.0, abs=0.02 * 86_400)
        shown.page.hover("#canvas", position={"x": 600, "y": 300})
        shown.page.keyboard.down("Control")
        shown.page.mouse.wheel(0, -200)
        shown.page.keyboard.up("Control")
        after = drawn(shown)
        assert after["to"] - after["from"] < 0.5 * (whole["to"] - whole["from"])


def test_trouble_is_found_by_keys_and_read_as_text(browser: Any, page: Path) -> None:
    with opened(browser, page) as shown:
        shown.page.focus("#viewport")
        said = []
        for _ in range(4):
            shown.page.keyboard.press("n")
            said.append(shown.page.text_content("#detail"))
        # the failed job, the drained node, the failure of a job that is not drawn, and again
        assert [text.split(" · ")[0] for text in said[:2]] == ["job 100", "node n003 (rack 0)"]
        assert "blamed on n100" in said[0]
        assert "2026-03-29 08:00:00 to the end of the logs UTC, ≥ 4.00 h" in said[1]
        assert "job 77: gpu-memory" in said[2]
        assert said[3] == said[0]
        shown.page.fill("#find", "n499")
        shown.page.press("#find", "Enter")
        assert "node n499 (rack 24)" in shown.page.text_content("#detail")
        assert drawn(shown)["rows"] < N_NODES
        assert shown.said == []


def test_the_pointer_finds_the_job_under_it(browser: Any, page: Path) -> None:
    with opened(browser, page) as shown:
        # the middle of the first job of the first row
        place = shown.ask("({x: xOf(1800), y: yOf(0) + view.rowHeight / 2})")
        shown.page.hover("#canvas", position=place)
        text = shown.page.text_content("#detail")
        assert text.startswith("job 0 · ")
        assert "8 GPUs on 1 node · 2026-03-28 12:00:00 to 2026-03-28 13:00:00 UTC" in text


def test_on_paper_all_rows_are_drawn_and_nothing_is_wider_than_the_sheet(
    browser: Any, page: Path
) -> None:
    with opened(browser, page, scheme="dark") as shown:
        shown.ask("window.dispatchEvent(new Event('beforeprint'))")
        shown.page.emulate_media(media="print")
        assert drawn(shown)["rows"] == N_NODES
        assert shown.ask("document.getElementById('canvas').getBoundingClientRect().width") == 680
        assert shown.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shown.page.emulate_media(media="screen")
        shown.ask("window.dispatchEvent(new Event('afterprint'))")
        assert drawn(shown)["rows"] < N_NODES
