"""Restarts of all recorded runs are held against the hours of all recorded runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.store import open_store

BEGIN_S = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


def recorded(folder: Path, hours: list[float]) -> Path:
    """A run after the other, an hour apart, each with a start, a restart half-way, and an end."""
    lines, at_s = [], BEGIN_S
    for number, length_h in enumerate(hours):
        run = {"v": 1, "run": f"r{number}", "job": str(number), "cluster": "c", "rank": 0}
        parts = (("start", 0.0), ("step", 0.25), ("restart", 0.5), ("step", 0.75), ("end", 1.0))
        for step, (event, part) in enumerate(parts):
            time = at_s + 3600.0 * length_h * part
            lines.append({**run, "time": time, "event": event, "step": step})
        at_s += 3600.0 * (length_h + 1.0)
    (folder / "progress.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    done = ettr("ingest", folder / "site", folder / "progress.jsonl")
    assert done.code == 0, done.err
    return folder / "site"


@pytest.mark.parametrize(
    ("hours", "between_h"),
    [
        ([0.25] * 150 + [0.125] * 100, 0.2),  # 200 of 250 runs are listed
        ([0.25] * 2 + [25.5] * 7, 179.0 / 9),  # more than a week: runs of a day are listed
    ],
)
def test_hours_between_restarts_are_of_all_runs(
    hours: list[float], between_h: float, tmp_path: Path
) -> None:
    with open_store(recorded(tmp_path, hours)) as store:
        found = Analysis(store).mttf
    assert found.interruption_mttf_h.estimate == pytest.approx(between_h)
