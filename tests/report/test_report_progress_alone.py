"""A store of progress records alone: what they bear is a number or a band, never a 0."""

import json
from pathlib import Path

import pytest

from cli.program import ettr

START_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
DAY_S = 86_400.0


def report(folder: Path, steps: list[dict[str, float]]) -> str:
    lines = [
        json.dumps({"v": 1, "run": "r", "job": "1", "rank": 0, "event": "step", **step})
        for step in steps
    ]
    (folder / "progress.jsonl").write_text("\n".join(lines) + "\n")
    done = ettr("ingest", folder / "store", folder / "progress.jsonl")
    assert done.code == 0, done.err
    return " ".join(ettr("report", "--detail", folder / "store").out.split())


@pytest.mark.slow
def test_steps_without_durations_are_a_band_on_the_card(tmp_path: Path):
    steps = [{"time": START_S + 12 * DAY_S * n, "step": 1_000 * n + 1} for n in range(10)]
    assert "Effective training time without queue 0 % to 100 % (of" in report(tmp_path, steps)
