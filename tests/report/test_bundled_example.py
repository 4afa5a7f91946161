"""The bundled example against its truth: what was submitted and injected, as it was done."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRUTH: dict[str, Any] = json.loads((EXAMPLES / "truth.json").read_text())
PUBLISHED_PER_1000_NODE_DAYS = 6.5
REQUEUE_EXIT = 99  # on which the example's Slurm requeues a job
# faults of the site that ended the jobs of their node; a fault of a user's own program is none
HARMFUL = [
    fault
    for fault in TRUTH["faults"]
    if fault["effect"] != "none" and fault["cause"] != "the user's own program"
]
# what the rule of attribution gets wrong here: a user's own failure a moment before a node was
# drained for an earlier fault
WRONGLY_BLAMED = ("152", "gpu11")
TRAINING = next(one["id"] for one in TRUTH["operations"] if one["what"] == "training submitted")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(example_store: Path) -> dict[str, Any]:
    document: dict[str, Any] = ettr("report", example_store, "--json").json
    return document


def test_injected_failures_are_found_with_their_nodes(report: dict[str, Any]) -> None:
    """Requeues by exit code are an operator's, unless the taxonomy says otherwise: not counted."""
    injected = Counter(
        (job, fault["node"])
        for fault in HARMFUL
        if fault["exit_code"] != REQUEUE_EXIT
        for job in fault["jobs"]
    )
    found = Counter((row["job_id"], row["node"]) for row in report["failures"]["rows"])
    assert injected.total() == 8
    assert injected - found == Counter()
    assert found - injected == Counter([WRONGLY_BLAMED])
    [wrong] = [row for row in report["failures"]["rows"] if row["job_id"] == WRONGLY_BLAMED[0]]
    assert wrong["confidence"] == "low"


def test_no_record_is_lost(report: dict[str, Any]) -> None:
    assert report["quality"]["rows_rejected"] == 0
    tasks = sum(12 if job["array"] else 1 for job in TRUTH["jobs"])
    assert report["totals"]["jobs"] <= tasks + 1  # one that was cancelled before it ran is none
    # and the last one waits for all nodes as the logs end
    assert report["totals"]["jobs"] >= tasks - len(_cancelled())


def _cancelled() -> list[str]:
    return [job["id"] for job in TRUTH["jobs"] if job["ending"] == "CANCELLED"]


def test_the_training_run_is_measured_over_all_its_attempts(report: dict[str, Any]) -> None:
    (run,) = [run for run in report["runs"]["runs"] if run["basis"] == "progress"]
    assert run["job_ids"] == [TRAINING]
    hit = sum(TRAINING in fault["jobs"] for fault in HARMFUL)
    assert hit >= 3
    assert run["attempts"] == hit + 1
    assert run["split"]["redone_h"] > 0


def test_the_note_says_the_rate_of_the_example_and_the_published_one(
    report: dict[str, Any],
) -> None:
    (note,) = report["quality"]["site_notes"]
    assert "injected" in note
    assert "6.5 failures per 1,000 node-days" in note
    times = int(re.findall(r"about (\d+) times", note)[0])
    rate = report["failures"]["all_jobs"]["per_1000_node_days"]["estimate"]
    assert rate / PUBLISHED_PER_1000_NODE_DAYS == pytest.approx(times, rel=0.1)


def test_the_tutorial_says_in_its_first_line_that_failures_are_injected() -> None:
    page = EXAMPLES.parent / "docs" / "tutorials" / "from-sacct-to-a-report.md"
    lines = page.read_text("utf-8").splitlines()
    first = next(line for line in lines if line and not line.startswith("#"))
    assert "injected" in first


def test_the_picture_of_the_readme_has_a_caption_that_says_so() -> None:
    text = (EXAMPLES.parent / "README.md").read_text("utf-8")
    [caption] = re.findall(r"report\.png\)\n\n\*(.+?)\*\n\n", text, re.S)
    assert "injected" in caption
    assert "6.5 failures per 1,000" in caption
