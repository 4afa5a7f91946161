"""A table of ten thousand rows in a real browser: sorted, filtered, shown page by page, offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from ettr.report.html import Page, render
from ettr.report.section import Section, TextTable
from report.browser import chromium

pytestmark = pytest.mark.browser

N_ROWS = 10_000
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row i: time, job i, user i mod 97, and (i * 7919) mod 10,000 GPU-hours; none in the last."""
    rows = [
        (
            f"2026-01-{1 + i // 400:02d} {i:05d}",
            f"job-{i}",
            HOSTILE if i == 4321 else f"user{i % 97:02d}",
            "–" if i == N_ROWS - 1 else f"{i * 7919 % N_ROWS:,}",
            "< 0.000001" if i == 5000 else f"{0.001 + i / N_ROWS:.2g}",
        )
        for i in range(N_ROWS)
    ]
    table = TextTable(
        "Failures",
        ("time", "job", "user", "GPU-hours", "chance"),
        tuple(rows),
        frozenset({3, 4}),
        slug="failures",
    )
    section = Section("failure-list", "Failures", "Many.", tables=(table,))
    file = tmp_path_factory.mktemp("paged") / "page.html"
    file.write_text(render(Page("t", "s", None, (section,), "f")), "utf-8")
    return file


@pytest.fixture(scope="module")
def page(page_file: Path):
    with chromium() as browser:
        opened = browser.new_page()
        said: list[str] = []
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
        opened.goto(page_file.as_uri())
        opened.wait_for_function("document.documentElement.dataset.tables === '1'")
        yield opened
        assert said == []


def column(page, place: int) -> list[str]:
    found: list[str] = page.locator(
        f"#table-failures tbody tr td:nth-child({place})"
    ).all_inner_texts()
    return found


def test_a_click_on_a_head_sorts_all_rows_and_not_only_those_shown(page):
    page.click("#table-failures th:nth-child(4) button")
    assert column(page, 4)[:3] == ["9,999", "9,998", "9,997"]
    page.click("#table-failures th:nth-child(4) button")
    assert column(page, 4)[:3] == ["0", "1", "2"]
    # what is not known comes last either way
    for _ in range(2):
        page.click("#table-failures th:nth-child(4) button")
        assert "–" not in column(page, 4)


def test_a_bound_sorts_as_the_number_that_it_names(page):
    for _ in range(2):
        page.click("#table-failures th:nth-child(5) button")
    assert column(page, 5)[0] == "< 0.000001"


def test_words_filter_in_any_column_and_pages_follow(page):
    page.fill("#table-failures input", "user07 2026-01-01")
    users = column(page, 3)
    assert set(users) == {"user07"}
    wanted = sum(i % 97 == 7 for i in range(400))
    assert len(users) == wanted
    page.fill("#table-failures input", "user07")
    assert page.inner_text("#table-failures .count[role=status]").startswith("1 to 25 of 104")
    page.click("#table-failures .controls button:last-child")
    assert page.inner_text("#table-failures .count[role=status]").startswith("26 to 50 of 104")
    page.fill("#table-failures input", "no such word")
    assert column(page, 1) == []
    page.fill("#table-failures input", "")


def test_markup_from_a_log_is_text(page):
    page.fill("#table-failures input", "job-4321")
    assert column(page, 3) == [HOSTILE]
    assert page.locator("#table-failures img").count() == 0
    page.fill("#table-failures input", "")


def test_how_long_a_click_takes_is_printed(page):
    """Printed, never judged: a busy machine would fail for nothing."""
    for what, script in (
        ("sort", "document.querySelector('#table-failures th:nth-child(2) button').click()"),
        ("page", "document.querySelector('#table-failures .controls button:last-child').click()"),
    ):
        taken_ms = page.evaluate(
            f"() => {{ const t = performance.now(); {script}; return performance.now() - t; }}"
        )
        print(f"{what}: {taken_ms:.1f} ms with {N_ROWS:,} rows")
        assert taken_ms >= 0
