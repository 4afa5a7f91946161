"""Rates from next to no exposure are said to be extrapolated, where they stand first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.program import ettr, write_logs
from ettr.report.findings import short_logs

EXAMPLE = Path(__file__).parents[1] / "data" / "bad_morning"


def logs(*, days: float, node_days: float, attempts: int = 1, faults: float | None = None) -> Any:
    """An analysis of logs that long with that much runtime, or that much service."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return SimpleNamespace(
        period=SimpleNamespace(start=start, end=start + timedelta(days=days), days=days),
        logs_read=SimpleNamespace(jobs=attempts > 0),
        rates=SimpleNamespace(all_jobs=SimpleNamespace(node_days=node_days)),
        faults=None
        if faults is None
        else SimpleNamespace(in_service=SimpleNamespace(node_days=faults)),
    )


def test_the_sentence_names_the_span_and_the_exposure():
    assert short_logs(logs(days=90 / 86400, node_days=0.0031597)) == (
        "The logs span 90 s and hold 0.00316 node-days of runtime. That is too little: every rate "
        "is extrapolated from it and says nothing about a cluster."
    )


@pytest.mark.parametrize(
    ("days", "node_days", "short"),
    [
        (30.0, 5.0, False),
        (30.0, 4.9, True),  # a month in which next to nothing ran
        (0.5, 1000.0, False),
        (59 / 1440, 1000.0, True),  # a large cluster for less than an hour
        (30.0, 0.0, False),  # no rate is printed, so there is none to doubt
    ],
)
def test_either_little_runtime_or_a_short_log_is_enough(days: float, node_days: float, short: bool):
    assert bool(short_logs(logs(days=days, node_days=node_days))) is short


def test_logs_of_faults_are_judged_by_time_in_service():
    caution = short_logs(logs(days=30.0, node_days=0.0, attempts=0, faults=2.0))
    assert caution is not None
    assert "2 node-days in service" in caution
    assert short_logs(logs(days=30.0, node_days=0.0, attempts=0, faults=200.0)) is None


@pytest.mark.slow
def test_the_example_says_so_at_the_top_and_at_the_rate(tmp_path: Path):
    page, store = tmp_path / "report.html", tmp_path / "store"
    files = sorted(EXAMPLE.glob("*.*"))
    assert ettr("ingest", store, *files, "--timezone", "UTC").code == 0
    done = ettr("report", "--detail", store, "-o", page)
    assert done.code == 0, done.err
    assert done.out.index("The logs span") < done.out.index("Lost to failures")
    answers = " ".join(done.out.split()).partition("Lost to failures")[2]
    assert "; a lower bound, see the failures" in answers
    html = page.read_text("utf-8")
    assert html.index('class="caution"') < html.index('class="answers"')
    assert "* The logs span" in ettr("failures", store, "--detail").out


@pytest.mark.slow
def test_a_small_site_reads_its_own_figures(tmp_path: Path):
    """73 node-hours over two days and four hours."""
    done = ettr(
        "report", "--detail", *write_logs(tmp_path), "--timezone", "UTC", "-o", tmp_path / "r.html"
    )
    assert "The logs span 2.17 d and hold 3.04 node-days of runtime" in " ".join(done.out.split())
