"""What a reader sees before scrolling: few words, few numbers, four answers, on seven sites."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from cli.program import EVENTS, KERNEL, SACCT, ettr
from report.browser import chromium, not_accessible, opened

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST_WORDS, MOST_NUMBERS = 120, 30
EXAMPLE = sorted((Path(__file__).parents[2] / "examples" / "slurm").iterdir())
START = datetime(2026, 3, 1, tzinfo=UTC)
HEAD = "Cluster|JobID|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
# all text in view but the labels of the chart and what a closed fold holds; what a style hides has
# no box, and counts as hidden
IN_VIEW = """() => {
  const texts = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode, range = document.createRange();
    const within = text.parentElement, folded = within.closest('details:not([open])');
    if (!text.data.trim() || within.closest('script, svg, .bars')) { continue; }
    if (folded && !within.closest('summary')) { continue; }
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    if (box.width && box.top < 900 && box.bottom > 0) { texts.push(text.data.trim()); }
  }
  return texts.join(' ');
}"""
HIDDEN = """() => [...document.querySelectorAll('.first *')].filter(one => {
  const style = getComputedStyle(one);
  return style.visibility === 'hidden' || style.display === 'none' || Number(style.opacity) < 1
    || parseFloat(style.fontSize) < 11;
}).filter(one => !one.closest('svg')).length"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


def _row(job: int, state: str, first_h: int, hours: int, nodes: str, n: int, gpus: int) -> str:
    start = START + timedelta(hours=first_h)
    times = [f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start, start + timedelta(hours=hours))]
    tres = f"gres/gpu={gpus}" if gpus else "cpu=64"
    ends = f"{times[0]}|{times[1]}|{times[2]}|{hours * 3600}"
    return f"c|{job}|ann|{state}|0:0|{ends}|{n}|{nodes}|{tres}"


def _large(folder: Path) -> list[Path]:
    """2,000 nodes and 60 days: jobs of 250 nodes for a day each, of which every fifth fails."""
    rows = [HEAD]
    kernel = []
    for day in range(60):
        for part in range(8):
            job, first = 8 * day + part, 250 * part + 1
            failed = job % 5 == 0
            nodes = f"n[{first:04d}-{first + 249:04d}]"
            state = "NODE_FAIL" if failed else "COMPLETED"
            rows.append(_row(job, state, 24 * day, 23, nodes, 250, 2000))
            if failed:
                end = START + timedelta(hours=24 * day + 22, minutes=58)
                kernel.append(
                    f"{end:%Y-%m-%dT%H:%M:%S}+00:00 n{first + job % 7:04d} kernel: NVRM: Xid "
                    "(PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
                    "bus."
                )
    return _written(folder, {"sacct.psv": rows, "kernel.log": kernel})


def _nothing_wrong(folder: Path) -> list[Path]:
    rows = [_row(job, "COMPLETED", 4 * job, 3, "n[1-8]", 8, 64) for job in range(90)]
    events = [f"c|n1|{START:%Y-%m-%dT%H:%M:%S}|{START:%Y-%m-%dT%H:%M:%S}|IDLE||root"]
    head = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
    return _written(folder, {"sacct.psv": [HEAD, *rows], "events.psv": [head, *events]})


def _two_kinds(folder: Path) -> list[Path]:
    rows = [_row(job, "COMPLETED", 4 * job, 3, "g[1-8]", 8, 64) for job in range(60)]
    rows += [_row(100 + job, "NODE_FAIL", 9 * job, 3, "p[1-4]", 4, 0) for job in range(20)]
    rows += [_row(200 + job, "NODE_FAIL", 20 * job, 3, "g[9-12]", 4, 32) for job in range(9)]
    return _written(folder, {"sacct.psv": [HEAD, *rows], "kernel.log": KERNEL.splitlines()})


def _two_clusters(folder: Path) -> list[Path]:
    other = [line.replace("c|", "d|", 1) for line in SACCT.splitlines()[1:]]
    return _written(folder, {"sacct.psv": [*SACCT.splitlines(), *other]})


def _accounting_alone(folder: Path) -> list[Path]:
    return _written(folder, {"sacct.psv": SACCT.splitlines()})


def _no_progress(folder: Path) -> list[Path]:
    texts = {"sacct.psv": SACCT, "kernel.log": KERNEL, "events.psv": EVENTS}
    return _written(folder, {name: text.splitlines() for name, text in texts.items()})


def _written(folder: Path, texts: dict[str, list[str]]) -> list[Path]:
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return [folder / name for name in texts]


SITES = {
    "the example": lambda _: EXAMPLE,
    "2,000 nodes": _large,
    "nothing wrong": _nothing_wrong,
    "accounting alone": _accounting_alone,
    "CPU and GPU nodes": _two_kinds,
    "two clusters": _two_clusters,
    "no progress": _no_progress,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory):
    """The page of a site, made when it is first asked for, and what was printed."""

    @cache
    def made(name: str) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp("site")
        page = folder / "r.html"
        done = ettr("report", *SITES[name](folder), "--timezone", "UTC", "-o", page)
        assert done.code == 0, done.err
        return page, done.out

    return made


@pytest.mark.parametrize("name", SITES)
def test_the_first_screen_is_short(browser, pages, name: str):
    page, out = pages(name)
    assert len([line for line in out.splitlines() if line[:1].strip()]) <= 12
    with opened(browser, page) as report:
        text = report.ask(IN_VIEW)
        assert len(text.split()) <= MOST_WORDS, text
        assert len(re.findall(r"\d[\d.,:]*", text)) <= MOST_NUMBERS, text
        assert report.ask(HIDDEN) == 0
        # in view, so that a reader of few lines sees that there is more
        assert "Intervals and cautions" in text
        assert "Effective training time ratio (ETTR)" in text
        assert report.ask("document.querySelectorAll('.headline').length") == 4
        assert report.ask("document.querySelectorAll('.do li').length") <= 3
        # the intervals are one click away, and in view after it
        assert not report.ask("document.getElementById('behind').open")
        report.page.click("#behind > summary")
        behind = report.page.inner_text("#behind")
        assert "an interval of 90" in behind
        # each thing to do has its command there, or its lines of Python
        n_hows = len(re.findall(r"\bettr[ .]", behind))
        assert n_hows >= report.ask("document.querySelectorAll('.do li').length")
        assert report.said == []
    assert page.stat().st_size < 2_000_000


def test_a_cause_leads_to_its_jobs_and_a_word_finds_its_rows(browser, pages):
    page, _ = pages("the example")
    rows = "[...document.querySelectorAll('#table-failures tbody tr')].map(r => r.textContent)"
    with opened(browser, page) as report:
        assert not_accessible(report.page) == []
        report.page.click("text=file system")
        assert all("filesystem" in row for row in report.ask(rows))
        report.page.fill("#filter", "gpu11")
        assert all("gpu11" in row for row in report.ask(rows))
        shown = "[...document.querySelectorAll('main > section[id]')].filter(s => !s.hidden).length"
        assert 0 < report.ask(shown) < 15


def test_a_month_is_printed_on_eight_sheets(browser, pages, tmp_path: Path):
    page, _ = pages("2,000 nodes")
    with opened(browser, page) as report:
        report.page.pdf(path=str(tmp_path / "r.pdf"), format="A4")
    assert len(re.findall(rb"/Type\s*/Page[^s]", (tmp_path / "r.pdf").read_bytes())) <= 8
