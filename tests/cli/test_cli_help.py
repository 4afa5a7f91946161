"""Help that reads well, and starts at once."""

from __future__ import annotations

import os
import subprocess

import pytest
import typer

from cli.program import PROGRAM, ettr, program
from ettr.cli.main import build_app, commands

NAMES = [name for _, name, _ in commands()]
PHRASES = {
    "ingest": ("FILE...", "Reading the same file again changes nothing", "--timezone"),
    "report": ("STORE | FILE...", "--output", "write no HTML", "--gpus-per-node"),
    "explain": ("JOB", "CLUSTER/17", "verdict"),
    "sources": ("List the log formats",),
    "catalog": ("--conflicts", "verdict of each vendor"),
    "failures": ("1,000 node-days", "--above-gpus"),
    "mttf": ("exact intervals",),
    "quality": ("rejects",),
}


def test_help_lists_every_command_with_a_sentence():
    text = program("--help").out
    for name in NAMES:
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{name} "))
        assert len(line.split()) > 3, line


@pytest.mark.parametrize("name", NAMES)
def test_help_of_each_command(name: str):
    done = ettr(name, "--help-all")
    assert done.code == 0
    assert done.out.startswith(f"Usage: ettr {name}")
    for phrase in PHRASES.get(name, ()):
        assert phrase in " ".join(done.out.split())
    options = [line for line in done.out.splitlines() if line.strip().startswith("--")]
    wordless = [line for line in options if len(line.split()) < 3]
    assert not [line for line in wordless if len(line) < 30], "an option without a help text"


def test_no_words_show_the_help():
    done = program()
    assert "From logs to answers:" in done.out + done.err
    assert "Traceback" not in done.err


def test_commands_stand_under_headings_and_in_whole_sentences():
    lines = [line.strip() for line in ettr("--help").out.splitlines()]
    headings = [line for line in lines if line.endswith(":") and line != "Options:"]
    assert headings == [f"{panel}:" for panel in dict.fromkeys(panel for panel, _, _ in commands())]
    assert not any("..." in line for line in lines if line.split(" ")[0] in NAMES)


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("report", "ettr report [OPTIONS] STORE | FILE..."),
        ("explain", "ettr explain [OPTIONS] [STORE] [JOB]"),
        ("plan", "ettr plan [OPTIONS] [STORE]"),
        ("catalog", "ettr catalog [OPTIONS] [XID]"),
        ("elastic", "ettr elastic [OPTIONS] -- CMD..."),
    ],
)
def test_usage_shows_what_may_be_left_out_and_no_types(name: str, usage: str):
    assert ettr(name, "--help").out.splitlines()[0] == f"Usage: {usage}"


def test_version():
    assert program("--version").out.startswith("ettr ")


def test_every_command_that_prints_json_prints_csv():
    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands.items()
    }
    assert {name for name, known in options.items() if "--json" in known} == {
        name for name, known in options.items() if "--csv" in known
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("ingest --source slurm-sa", "slurm-sacct"),
        ("report --believe nv", "nvidia"),
        ("export --table node_s", "node_states"),
    ],
)
def test_a_shell_completes_values(words: str, first: str):
    typed = f"ettr {words}"
    asked = {"_ETTR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": "3"}
    done = subprocess.run(
        [PROGRAM], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split()[0] == first
