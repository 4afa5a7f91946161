"""What ckpt-chaos finds: what counts as lost work, and one crash point of the plain script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.ckpt_chaos import LOST_WORK, PASS, CrashPoint, cells, run_tool, step_due


def record(*events: tuple[str, int]) -> list[str]:
    return [json.dumps({"event": event, "step": step}) for event, step in events]


def test_the_step_to_resume_from_is_the_last_that_is_known_to_be_durable() -> None:
    before = [("start", 0), ("save", 3), ("step", 4), ("save", 6), ("step", 7)]
    after = [("start", 3), ("save", 6), ("save", 9), ("end", 9)]
    assert step_due(record(*before, *after)) == 3, "the round of step 6 may have been under way"
    assert step_due([*record(*before), '{"event": "sa', *record(*after)]) == 3
    assert step_due(record(("start", 0), ("save", 3), ("start", 0))) == 0
    assert step_due(record(*after)) == 0, "killed before it had a record"


def test_lost_work_is_a_failure() -> None:
    points = [
        CrashPoint("#1 open:a [before]", PASS, 6, 6),
        CrashPoint("#2 open:b [torn]", PASS, 3, 6),
        CrashPoint("#3 open:c [torn]", PASS, None, 0),
        CrashPoint("#4 open:d [before]", "HARD_FAIL", None, 3),
        CrashPoint("no crash (control)", PASS, 0, 0),
    ]
    assert [point.ends_as for point in points] == [PASS, LOST_WORK, LOST_WORK, "HARD_FAIL", PASS]
    assert cells("plain", points) == ("plain", "1 of 4", "2", "HARD_FAIL 1", PASS)


@pytest.mark.torch
@pytest.mark.slow
def test_a_crash_point_of_the_plain_script(tmp_path: Path) -> None:
    for module in ("torch", "torchdata", "ckpt_chaos"):
        pytest.importorskip(module)
    points = run_tool("plain", 1, tmp_path / "work")
    assert cells("plain", points) == ("plain", "1 of 1", "0", "none", PASS)
