"""The page "Ask ettr": each command runs, and its output is what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.progress.recorder import ProgressRecorder
from synthetic.site import ORIGIN, SitePlan, SiteTruth, write_site

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "ask-ettr.md"
FIRST, DETAIL = (
    re.findall(r"^\| ([^|]+\?) \| `ettr ([^`]+)` \| ([^|]+) \|$", part, re.M)
    for part in PAGE.read_text("utf-8").split("## With --detail")
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


def made_site(place: Path) -> SiteTruth:
    """A store of 160 nodes over 30 days, half of them with another type of GPU."""
    truth = write_site(place, SitePlan(nodes=160, days=30, lemons=3, maintenance_day=20), seed=0)
    nodes = (place / "nodes.txt").read_text()
    first, later = (
        nodes[: nodes.index("NodeName=gpu0081")],
        nodes[nodes.index("NodeName=gpu0081") :],
    )
    (place / "nodes.txt").write_text(first + later.replace("h100", "a100"))
    # types that jobs held go before an inventory; here the inventory alone has them
    sacct = (place / "sacct.psv").read_text()
    (place / "sacct.psv").write_text(re.sub(r"gres/gpu:\w+=\d+,", "", sacct))
    logs = [*(place / name for name in LOGS), *write_ranks(place)]
    done = ettr("ingest", place / "site", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    return truth


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ask")


@pytest.fixture(scope="module")
def truth(folder: Path) -> SiteTruth:
    return made_site(folder)


def test_the_page_has_the_questions_of_those_who_run_a_cluster():
    assert len(FIRST) == 20
    assert len(DETAIL) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(("question", "words", "answer"), FIRST, ids=[row[0] for row in FIRST])
@pytest.mark.usefixtures("truth")
def test_the_first_line_answers(question: str, words: str, answer: str, folder: Path):
    done = ettr(*shlex.split(words), folder=folder)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == answer, question


@pytest.mark.slow
@pytest.mark.parametrize(("question", "words", "answer"), DETAIL, ids=[row[0] for row in DETAIL])
@pytest.mark.usefixtures("truth")
def test_the_detail_answers(question: str, words: str, answer: str, folder: Path):
    done = ettr(*shlex.split(words), folder=folder)
    assert done.code == 0, done.err
    assert answer.lower() in " ".join(done.out.split()).lower(), question


@pytest.mark.slow
def test_the_answers_are_the_planted_ones(truth: SiteTruth, folder: Path):
    answers = {question: answer for question, _, answer in FIRST}
    assert {*answers["Which nodes do I pull?"][:-1].split(": ")[1].split(", ")} == truth.lemons
    (died,) = (one for one in truth.failures if one.job == "231")
    assert f"last {died.symptom} on {died.node} at" in answers["Why did a job die?"]
    own = sum(n for (user, _), n in truth.user_failures.items() if user == "user99")
    assert answers["Which failures are the user's own?"].startswith(f"{own} jobs failed")
    for type_, low, high in (("h100", 1, 80), ("a100", 81, 160)):
        planted = sum(low <= int(one.node[3:]) <= high for one in truth.failures)
        words = ("compare", "site", "--gpu-type", "h100", "--gpu-type", "a100", "--all-jobs")
        fleets = ettr(*words, "--json", folder=folder).json["fleets"]
        assert {one["name"]: one["failures"] for one in fleets}[type_] == planted
