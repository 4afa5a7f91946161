"""Each row of the page of questions: the command, or its --detail, holds the answer."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.progress.recorder import ProgressRecorder
from synthetic.site import ORIGIN, SitePlan, write_site

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "answer-a-question.md"
ROWS = re.findall(
    r"^\| ([^|]+\?[^|]*) \| `ettr ([^`]+)` \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.M
)
LOGS = ("sacct.psv", "events.psv", "kernel.log", "slurmctld.log", "nodes.txt", "topology.conf")

RANKS_PER_NODE, SLOW_NODE = 2, "gpu0003"


def write_ranks(place: Path) -> list[Path]:
    """Records of a synchronous run of sixteen ranks, of which those of one node work 20 % more."""
    nodes = [f"gpu{number:04d}" for number in range(1, 9)]
    step_s = 1.2
    files = []
    for rank in range(len(nodes) * RANKS_PER_NODE):
        node = nodes[rank // RANKS_PER_NODE]
        files.append(place / f"progress-{rank}.jsonl")
        with ProgressRecorder(files[-1], run="run", cluster="helios", rank=rank) as recorder:
            for step in range(80):
                noise_s = 0.005 * ((7 * step + 3 * rank) % 5 - 2)
                work_s = step_s if node == SLOW_NODE else step_s / 1.2 + noise_s
                time_s = ORIGIN.timestamp() + (step + 1) * step_s
                recorder.record(
                    "step", step, step_s, time_s=time_s, node=node, wait_s=step_s - work_s
                )
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("questions")
    write_site(place, SitePlan(nodes=160, days=30, lemons=3, maintenance_day=20), seed=0)
    logs = [*(place / name for name in LOGS), *write_ranks(place)]
    done = ettr("ingest", place / "site", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    return place


def test_the_page_has_the_open_questions_of_an_engineer():
    assert len(ROWS) >= 10


@pytest.mark.slow
@pytest.mark.parametrize(("question", "words", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_a_question_is_answered_by_one_command(
    question: str, words: str, answer: str, folder: Path
):
    brief = ettr(*shlex.split(words), folder=folder)
    assert brief.code == 0, brief.err
    shown = brief.out
    if answer.lower() not in " ".join(shown.split()).lower():
        shown = ettr(*shlex.split(words), "--detail", folder=folder).out
    assert answer.lower() in " ".join(shown.split()).lower(), question
