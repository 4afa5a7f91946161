"""Each row of the page of questions: the command runs, and its output holds the answer."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.program import ettr
from synthetic.site import SitePlan, write_site

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "answer-a-question.md"
ROWS = re.findall(
    r"^\| ([^|]+\?[^|]*) \| `ettr ([^`]+)` \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.M
)
LOGS = ("sacct.psv", "events.psv", "kernel.log", "slurmctld.log", "nodes.txt", "topology.conf")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("questions")
    write_site(place, SitePlan(nodes=160, days=30, lemons=3, maintenance_day=20), seed=0)
    done = ettr("ingest", place / "site", *(place / name for name in LOGS), "--timezone", "UTC")
    assert done.code == 0, done.err
    return place


def test_the_page_has_the_open_questions_of_an_engineer():
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("question", "words", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_a_question_is_answered_by_one_command(
    question: str, words: str, answer: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    done = ettr(*shlex.split(words))
    assert done.code == 0, done.err
    assert answer.lower() in " ".join(done.out.split()).lower(), question
