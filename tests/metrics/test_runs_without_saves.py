"""A record that shows no save of a run that was cut: what was kept is not known, and not 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

DAY_S = 1793491200  # 2026-11-01
SACCT = (
    "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    "17|a|u|c|FAILED|2026-11-01T00:00:00|2026-11-01T00:00:00|2026-11-02T06:00:00|108000|1|n1|gres/gpu=8\n"
)


def _record(folder: Path, *, saved: bool) -> Path:
    events = [
        {"time": DAY_S + 3600.0 * hour, "event": "step", "step": hour, "duration_s": 3600}
        for hour in range(1, 28)
    ]
    if saved:
        events.append({"time": DAY_S + 27 * 3600.0, "event": "save", "step": 27, "duration_s": 0})
    path = folder / "progress.jsonl"
    head = {"v": 1, "run": "r", "cluster": "c", "job": "17", "rank": 0}
    path.write_text("".join(json.dumps(head | event) + "\n" for event in events))
    return path


def _run(folder: Path, *files: Path) -> Any:
    done = ettr("ingest", folder / "s", *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    (run,) = ettr("runs", folder / "s", "--json").json["runs"]
    return run


@pytest.mark.slow
@pytest.mark.parametrize("has_jobs", [True, False])
def test_without_a_save_ettr_has_ends_and_no_estimate(tmp_path: Path, has_jobs: bool):
    files = [_record(tmp_path, saved=False)]
    if has_jobs:
        files.append(tmp_path / "sacct.psv")
        files[-1].write_text(SACCT)
    run = _run(tmp_path, *files)
    assert run["productive_h"] == {"estimate": None, "low": 0.0, "high": 27.0}
    assert run["ettr_without_queue_ratio"]["estimate"] is None
    assert run["ettr_without_queue_ratio"]["low"] == 0.0
    assert run["ettr_without_queue_ratio"]["high"] == pytest.approx(27 / (30 if has_jobs else 27))
    text = " ".join(ettr("runs", tmp_path / "s", "--detail").out.split())
    assert "no save is recorded" in text
    assert " 0 [0" not in text


@pytest.mark.slow
def test_with_a_save_it_is_measured(tmp_path: Path):
    (tmp_path / "sacct.psv").write_text(SACCT)
    run = _run(tmp_path, _record(tmp_path, saved=True), tmp_path / "sacct.psv")
    assert run["ettr_ratio"]["estimate"] == pytest.approx(0.9)
    assert run["split"]["checkpoints"] == 1


@pytest.mark.slow
def test_a_run_that_completed_is_assumed_to_lose_its_restart_and_saves_alone(tmp_path: Path):
    """Of 30 h: 5 min; at worst 15 min and 5 of each 120 min; at best 1 min."""
    (tmp_path / "sacct.psv").write_text(SACCT.replace("FAILED", "COMPLETED"))
    productive = _run(tmp_path, tmp_path / "sacct.psv")["productive_h"]
    assert productive["estimate"] == pytest.approx(30 - 5 / 60)
    assert productive["low"] == pytest.approx((30 - 15 / 60) * 115 / 120)
    assert productive["high"] == pytest.approx(30 - 1 / 60)
