"""The tour of the architecture page: each journey passes the hops that the page names, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.docs_pages import DOCS, ROOT

PAGE = (DOCS / "explanation" / "architecture.md").read_text("utf-8")

# runs a program and prints each function of the package when it is called for the first time
RECORDED = """
import sys, threading
first = {}
def note(frame, event, arg):
    if event == "call":
        module = frame.f_globals.get("__name__", "")
        if module.startswith("ettr."):
            first.setdefault(f"{module}:{frame.f_code.co_qualname}")
IMPORTS
def journey():
BODY
threading.setprofile(note)
sys.setprofile(note)
try:
    journey()
except SystemExit as left:
    assert not left.code, left.code
finally:
    sys.setprofile(None)
    print("\\n".join(["HOPS", *first]))
"""

COMMANDS = """
from ettr.cli.main import main
for words in COMMANDS:
    sys.argv = ["ettr", *words]
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise
"""


def tour(heading: str) -> list[str]:
    """The hops under a heading of the page."""
    [part] = re.findall(rf"^### {heading}\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)
    return re.findall(r"^\d+\. `([\w.]+:[\w.]+)`", part, re.M)


def program_of(body: str, imports: str = "") -> str:
    """A program that notes the calls of `body`."""
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return RECORDED.replace("BODY", indented).replace("IMPORTS", imports)


def hops_of(printed: str) -> list[str]:
    """Functions of the package in the order of their first call, of what such a program prints."""
    return printed.partition("HOPS\n")[2].splitlines()


def called(body: str, folder: Path) -> list[str]:
    """Functions of the package in the order of their first call while `body` runs in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", program_of(body)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return hops_of(done.stdout)


def out_of_order(hops: list[str], calls: list[str]) -> list[str]:
    """Hops that are not called, or are called before the hop that the page names before them."""
    wrong, place = [], -1
    for hop in hops:
        if hop in calls and calls.index(hop) > place:
            place = calls.index(hop)
        else:
            wrong.append(hop)
    return wrong


LOGS = ROOT / "tests" / "data" / "bad_morning"
INGEST = ["ingest", "site", "--timezone", "UTC"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "commands"),
    [
        (
            "A log line to a figure",
            [[*INGEST, str(LOGS / "sacct.psv")], ["report", "site", "-o", "report.html"]],
        ),
        (
            "An XID to a verdict",
            [
                [*INGEST, str(LOGS / "kernel.log"), str(LOGS / "sacct.psv")],
                ["explain", "site", "17"],
            ],
        ),
        (
            "An input to the planner page",
            [
                shlex.split(
                    "plan --gpus 16384 --failures 419 --node-days 110592 --target 0.9 "
                    "--html planner.html"
                )
            ],
        ),
    ],
)
def test_a_journey_of_the_analysis(heading: str, commands: list[list[str]], tmp_path: Path):
    hops = tour(heading)
    assert len(hops) > 5
    calls = called(COMMANDS.replace("COMMANDS", repr(commands)), tmp_path)
    assert out_of_order(hops, calls) == []


def test_every_tour_of_the_page_is_taken():
    # "A tensor to a slot and back": elastic/test_pages_of_training.py
    headings = re.findall(r"^### (.+)$", PAGE.partition("## The tour")[2], re.M)
    assert len(headings) == 4


def test_a_hop_that_is_missing_or_out_of_order_is_found():
    assert out_of_order(["a", "b"], ["a", "x", "b"]) == []
    assert out_of_order(["b", "a"], ["a", "x", "b"]) == ["a"]
    assert out_of_order(["a", "y"], ["a", "x"]) == ["y"]
