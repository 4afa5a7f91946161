"""Defaults that the docs print are those of `ettr.defaults`, and so is every help text."""

import re
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.defaults import (
    CONFIDENCE,
    LARGE_JOB_GPUS,
    RESTART_S,
    WINDOW_AFTER_S,
    WINDOW_BEFORE_S,
    WRITE_S,
)
from ettr.units import SECONDS_PER_MINUTE

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(p for folder in ("how-to", "explanation") for p in (DOCS / folder).rglob("*.md"))


def test_large_jobs_are_those_of_the_docs() -> None:
    sizes = re.findall(r"more than ([\d,]+) GPUs", " ".join(p.read_text("utf-8") for p in PAGES))
    assert len(sizes) >= 3
    assert {int(size.replace(",", "")) for size in sizes} == {LARGE_JOB_GPUS}


def test_the_window_is_that_of_the_docs() -> None:
    text = (DOCS / "explanation" / "attribution.md").read_text("utf-8")
    (minutes,) = re.findall(r"between (\d+) minutes before the end and (\d+) minutes after", text)
    assert minutes == tuple(
        f"{time_s / SECONDS_PER_MINUTE:g}" for time_s in (WINDOW_BEFORE_S, WINDOW_AFTER_S)
    )


@pytest.mark.parametrize("command", ["report", "failures", "plan", "project", "compare"])
def test_help_prints_the_defaults(command: str) -> None:
    text = " ".join(ettr(command, "--help-all").out.split())
    assert f"with units; default {WINDOW_BEFORE_S:g},{WINDOW_AFTER_S:g}." in text
    assert f"Jobs with more GPUs are large. [default: {LARGE_JOB_GPUS};" in text
    assert f"[default: {CONFIDENCE:g}]" in text
    if command in {"plan", "project"}:
        assert f"stops the training; default {WRITE_S / SECONDS_PER_MINUTE:g}min" in text
        assert f"until it trains; default {RESTART_S / SECONDS_PER_MINUTE:g}min" in text
