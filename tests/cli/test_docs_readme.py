"""The output that the README shows is what the commands print today."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.docs_pages import ROOT, blocks
from cli.program import ettr


def shown() -> list[tuple[str, list[str]]]:
    """Each command of the README's console block with the lines shown under it."""
    [screen] = blocks(ROOT / "README.md", "console")
    parts = re.split(r"^\$ (.+)\n", screen, flags=re.M)[1:]
    return [
        (command, lines.splitlines())
        for command, lines in zip(parts[::2], parts[1::2], strict=True)
    ]


def runs(command: str, folder: Path) -> list[str]:
    """What a command prints in a folder, line by line."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def missing(expected: list[str], printed: list[str]) -> str | None:
    """The first expected line that is not printed in its place; `...` skips any lines."""
    place, may_skip = 0, False
    for line in expected:
        if line == "...":
            may_skip = True
            continue
        if may_skip and line in printed[place:]:
            place += printed[place:].index(line)
        if place == len(printed) or printed[place] != line:
            return line
        place, may_skip = place + 1, False
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of the bundled example, as the README's commands expect it."""
    there = tmp_path_factory.mktemp("readme")
    logs = sorted((ROOT / "examples/slurm").iterdir())
    done = ettr("ingest", "site", *logs, "--timezone", "UTC", folder=there)
    assert done.code == 0, done.err
    return there


@pytest.mark.slow
@pytest.mark.parametrize(("command", "lines"), shown(), ids=[command for command, _ in shown()])
def test_the_readme_shows_what_is_printed(command: str, lines: list[str], folder: Path):
    assert len(lines) > 5
    assert missing(lines, runs(command, folder)) is None


def listed() -> list[str]:
    """The commands of the README's table; `also` names further metrics."""
    text = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| [^|]+ \| `(ettr [^`]+)`(.*) \|$", text, re.M)
    also = [f"ettr {name} STORE" for _, rest in rows for name in re.findall(r"`(\w+)`", rest)]
    return [*(command for command, _ in rows), *also]


@pytest.mark.slow
@pytest.mark.parametrize("command", listed())
def test_a_command_of_the_table_answers_on_the_bundled_day(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    logs = sorted(map(str, (ROOT / "examples/slurm").iterdir()))
    words = shlex.split(command.replace("STORE FILE...", "again FILES").replace("STORE", "site"))
    at = words.index("FILES") if "FILES" in words else len(words)
    words[at : at + 1] = [*logs, "--timezone", "UTC"] if at < len(words) else []
    done = ettr(*words[1:])
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) >= 3


def test_the_table_has_its_commands():
    assert len(listed()) > 15


def test_a_line_that_is_not_printed_is_found():
    printed = ["a", "b", "c", "d"]
    assert missing(["a", "...", "d"], printed) is None
    assert missing(["a", "c"], printed) == "c"
    assert missing(["...", "x"], printed) == "x"
    assert missing(["...", "c", "d", "e"], printed) == "e"
