"""The commands of the tutorial run as printed, in order; a shell expands their words."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from cli.program import PROGRAM, ettr

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorials" / "from-sacct-to-a-report.md"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder after the tutorial, and what each command printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    printed = {}
    for command in "".join(blocks).splitlines():
        words, _, output = command.partition(" > ")
        first, *rest = shlex.split(
            subprocess.check_output(["bash", "-c", f"printf '%q ' {words}"], cwd=folder, text=True)
        )
        assert first == PROGRAM.name
        done = ettr(*rest, folder=folder)
        assert done.code == 0, f"{command}\n{done.err}"
        printed[command] = done.out
        if output:
            (folder / output).write_text(done.out)
    return folder, printed


def test_it_is_a_tutorial_of_a_dozen_commands_at_most(followed):
    assert 6 <= len(followed[1]) <= 12


def test_the_report_is_there_as_page_and_as_json(followed):
    folder, _ = followed
    assert (folder / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert json.loads((folder / "report.json").read_text())["totals"]["attempts"] > 0


def test_what_the_text_says_of_the_second_reading_is_so(followed):
    _, printed = followed
    again = printed["ettr ingest site examples/slurm/sacct.psv --timezone UTC"]
    assert "already in the store, unchanged" in again


def test_the_stories_of_the_lemon_and_of_the_training_run_are_as_told(followed):
    [job] = [c for c in followed[1] if re.fullmatch(r"ettr explain site \d+ --detail", c)]
    story = followed[1][job]
    assert "gpu-unavailable" in story
    assert "gpu11 xid 79" in story
    assert "DRAIN" in story
    longer = followed[1]["ettr explain site 2 --window 1200,300 --detail"]
    assert "gpu02 xid 79" in longer.partition("Attempt 2")[0]
    assert "gpu11" in followed[1]["ettr node site gpu11"]
