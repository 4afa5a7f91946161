"""The report as a reader sees it: opened in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr, write_logs
from report.browser import chromium, not_accessible, opened

pytestmark = pytest.mark.browser

DRAWN = """() => {
  const plots = [...document.querySelectorAll('.plot')];
  return {
    said: Number(document.documentElement.dataset.drawn),
    plots: plots.length,
    svgs: plots.filter(plot => plot.querySelector('svg.main-svg')).length,
    empty: plots.filter(plot => !plot.querySelector('.trace, .bars, .point')).map(plot => plot.id),
  };
}"""
# of each figure, the texts of its axes and legend that lie outside of it, or on one another
CUT = """() => [...document.querySelectorAll('.plot')].flatMap(plot => {
  const frame = plot.getBoundingClientRect();
  return [...plot.querySelectorAll('.xtick text, .ytick text, .g-xtitle text, .g-ytitle text')]
    .filter(text => {
      const box = text.getBoundingClientRect();
      return box.width && (box.left < frame.left - 2 || box.right > frame.right + 2
        || box.bottom > frame.bottom + 2);
    }).map(text => plot.id + ': ' + text.textContent);
})"""
OVER_LEGEND = """() => [...document.querySelectorAll('.plot')].filter(plot => {
  const background = plot.querySelector('.legend .bg');
  if (!background) { return false; }
  const legend = background.getBoundingClientRect();
  return [...plot.querySelectorAll('.xtick text, .ytick text, .g-xtitle text, .g-ytitle text')]
    .map(text => text.getBoundingClientRect())
    .some(box => box.width && box.left < legend.right && box.right > legend.left
      && box.top < legend.bottom - 4 && box.bottom > legend.top + 4);
}).map(plot => plot.id)"""
CONTRAST = """() => {
  const light = (css) => {
    const [r, g, b] = css.match(/[\\d.]+/g).slice(0, 3).map(v => {
      const c = v / 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = (css) => {
    const ink = light(css);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  };
  return {
    body: ratio(getComputedStyle(document.body).color),
    soft: ratio(getComputedStyle(document.querySelector('.subtitle')).color),
    ticks: Math.min(...[...document.querySelectorAll('.xtick text')]
      .map(text => ratio(getComputedStyle(text).fill))),
  };
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
def test_the_report_reads_well(browser, report_page: Path, width: int, scheme: str):
    with opened(browser, report_page, width=width, scheme=scheme) as report:
        drawn = report.ask(DRAWN)
        assert drawn["plots"] == drawn["svgs"] == drawn["said"] >= 6
        assert drawn["empty"] == []
        assert report.said == []
        assert report.asked == [report_page.as_uri()]
        assert report.ask("document.documentElement.scrollWidth") <= width
        assert report.ask(CUT) == []
        assert report.ask(OVER_LEGEND) == []
        contrast = report.ask(CONTRAST)
        assert contrast["body"] >= 7
        assert contrast["soft"] >= 4.5
        assert contrast["ticks"] >= 7
        if (width == 1280) == (scheme == "light"):  # seconds each
            assert not_accessible(report.page) == []


def test_figures_answer_the_pointer_links_lead_somewhere_and_the_theme_can_be_switched(
    browser, report_page: Path
):
    paper = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, report_page) as report:
        assert report.ask(
            "[...document.querySelectorAll('nav a')]"
            ".every(a => document.getElementById(a.getAttribute('href').slice(1)))"
        )
        assert report.ask("document.querySelectorAll('main > section[id]').length") >= 10
        report.page.hover("#figure-status .point path", force=True)
        report.page.wait_for_selector("#figure-status .hovertext")
        assert "%" in report.page.text_content("#figure-status .hovertext")
        # the content policy lets the library set the styles it needs
        assert report.said == []
        before = report.ask(paper)
        report.page.click("#theme")
        assert report.ask(paper) != before
        assert report.ask(CONTRAST)["ticks"] >= 7
        report.page.click("#theme")
        assert report.ask(paper) == before
        assert report.said == []


EVIDENCE = """() => {
  const scroll = document.querySelector('#table-failures .scroll');
  const cell = scroll.querySelector('tbody td:last-child');
  const box = cell.getBoundingClientRect();
  return {beyond: scroll.scrollWidth - scroll.clientWidth, high: box.height, wide: box.width};
}"""


def test_the_evidence_of_failures_is_on_the_screen_next_to_a_long_list_of_nodes(
    browser, tmp_path: Path
):
    logs = write_logs(tmp_path)
    accounting = next(log for log in logs if log.name == "sacct.psv")
    nodes = "n[" + ",".join(str(number) for number in range(1, 80, 2)) + "]"
    rows = [
        row.replace("|1|n1|", f"|40|{nodes}|") if "|NODE_FAIL|" in row else row
        for row in accounting.read_text().splitlines()
    ]
    accounting.write_text("\n".join(rows) + "\n")
    page = tmp_path / "long.html"
    words = ("--timezone", "UTC", "--gpu-hour-price", "2.50USD", "-o", page)
    done = ettr("report", *logs, *words)
    assert done.code == 0, done.err
    with opened(browser, page) as report:
        shown = report.ask(EVIDENCE)
        assert shown["beyond"] <= 1
        assert shown["wide"] > 180
        assert shown["high"] < 250


LETTER_PX = 949  # the lower of the two sheets: 279 mm less two margins of 14 mm
A4_PX = 703  # 210 mm less two margins of 12 mm, at 96 dots an inch
OFF_THE_SHEET = """() => [...document.querySelectorAll('table, .plot svg.main-svg')]
  .filter(part => part.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(part => part.closest('section').id + ': ' + part.tagName)"""
BROKEN_WORDS = """() => [...document.querySelectorAll('th, td')].flatMap(cell => {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/(?<![^\\s])[A-Za-z]{2,12}(?![^\\s])/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
      if (lines.size > 1) { broken.push(cell.closest('section').id + ': ' + word[0]); }
    }
  }
  return broken;
})"""
FONT_PX = """(name) => parseFloat(getComputedStyle(document.querySelector(name)).fontSize)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_in_ink_on_white_and_nothing_is_cut(browser, report_page: Path, scheme: str):
    with opened(browser, report_page, scheme=scheme) as report:
        report.page.set_viewport_size({"width": A4_PX, "height": 1000})
        report.ask("window.dispatchEvent(new Event('beforeprint'))")
        report.page.emulate_media(media="print")
        assert report.ask("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert report.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert report.ask("[...document.querySelectorAll('details')].every(d => d.open)")
        assert report.ask(CONTRAST)["ticks"] >= 7
        assert report.ask(OFF_THE_SHEET) == []
        assert report.ask(BROKEN_WORDS) == []
        assert report.ask("getComputedStyle(document.querySelector('.scroll')).overflowX") == (
            "visible"
        )
        # the answers are no smaller than what stands below them
        sizes = {name: report.page.evaluate(FONT_PX, name) for name in (".lead", "td", ".notes")}
        assert sizes[".lead"] >= max(sizes["td"], sizes[".notes"])
        assert report.ask(OVER_LEGEND) == []
        # no toolbar of a figure lies over its legend, and none is as tall as a sheet
        shown = "[...document.querySelectorAll('.modebar')].filter(bar => bar.checkVisibility())"
        assert report.ask(f"{shown}.length") == 0
        heights_px = report.ask("[...document.querySelectorAll('.plot')].map(p => p.clientHeight)")
        assert max(heights_px) <= LETTER_PX - 150
        report.page.emulate_media(media="screen")
        report.ask("window.dispatchEvent(new Event('afterprint'))")
        assert report.ask("document.documentElement.dataset.theme ?? null") is None
