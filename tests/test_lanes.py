"""The two lanes of `make test`: no failure of one is lost beside the other."""

from __future__ import annotations

import io
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cpu_seconds import Figures
from lanes import LANES, Lane, lane_of, last_line, rewrite, rewrite_assertions, status_of

HERE = Path(__file__).parent


def ended(status: int, *lines: str) -> Lane:
    """A lane whose pytest wrote these lines and ended."""
    process: Any = SimpleNamespace(stdout=io.StringIO("\n".join(lines)), returncode=status)
    lane = Lane("computing", process)
    lane.follow(set(), threading.Lock())
    return lane


PASSED = "======= 7 passed, 1 warning in 1.50s ======="
FAILED = "= 2 failed, 5 passed, 3 skipped, 1 error in 3725.10s (1:02:05) ="


@pytest.mark.parametrize(
    ("lanes", "status"),
    [
        ([ended(0, PASSED), ended(0, PASSED)], 0),
        ([ended(1, FAILED), ended(0, PASSED)], 1),
        ([ended(0, PASSED), ended(1, FAILED)], 1),
        ([ended(0, PASSED), ended(5, "no tests ran in 0.01s")], 0),
        ([ended(5), ended(5)], 5),
        ([ended(0, PASSED), ended(2)], 2),
    ],
)
def test_the_status_is_that_of_the_lane_that_went_wrong(lanes: list[Lane], status: int) -> None:
    assert status_of(lanes) == status


def test_a_lane_that_was_killed_or_ended_in_silence_fails_all() -> None:
    assert status_of([ended(0, PASSED), ended(-9)]) != 0
    assert status_of([ended(0, PASSED), ended(0)]) != 0


def test_one_last_line_counts_both_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    lanes = [ended(0, "....", PASSED), ended(1, "FAILED tests/x.py::test_x", FAILED)]
    said = capsys.readouterr().out
    assert "FAILED tests/x.py::test_x" in said
    assert "7 passed" not in said
    assert lanes[1].failures == ["FAILED tests/x.py::test_x"]  # said again after the table
    line = last_line(sum((lane.counts for lane in lanes), Counter()), 12.0)
    words = "2 failed, 12 passed, 3 skipped, 1 warnings, 1 errors in 12.00s"
    assert line.strip("= ") == words


def test_what_waits_for_others_has_a_lane_of_its_own() -> None:
    lanes = {path.relative_to(HERE).as_posix(): lane_of(path) for path in HERE.rglob("test_*.py")}
    assert set(lanes.values()) == set(LANES)
    assert lanes["elastic/test_elastic_kills.py"] == lanes["slurm/test_real_slurm.py"] == "waiting"
    assert lanes["report/test_report_browser.py"] == lanes["store/test_store_postgres.py"]
    assert lanes["report/test_report_evidence.py"] == lanes["test_lanes.py"] == "computing"


def test_figures_of_two_lanes_add_up(tmp_path: Path) -> None:
    first, second = Figures(), Figures()
    first.add("cli", "quick", 1.5)
    first.add("cli", "slow", 2.0)
    second.add("cli", "slow", 0.5)
    second.add("elastic", "torch", 10.0)
    second.largest_mb = 1234.0
    second.write(tmp_path / "figures")
    first.merge(Figures.read(tmp_path / "figures"))
    assert first.lines() == [
        "| room    | tests | CPU s | quick | slow | torch | services |",
        "|---------|------:|------:|------:|-----:|------:|---------:|",
        "| elastic |     1 |  10.0 |       |      |  10.0 |          |",
        "| cli     |     3 |   4.0 |   1.5 |  2.5 |       |          |",
        "| all     |     4 |  14.0 |   1.5 |  2.5 |  10.0 |      0.0 |",
        "The largest worker took 1,234 MB.",
    ]


def test_workers_find_modules_whose_assertions_are_rewritten(tmp_path: Path) -> None:
    module = tmp_path / "test_one.py"
    module.write_text("def test_one():\n    assert 1 == 2\n")
    rewrite_assertions([module])
    [kept] = tmp_path.rglob("*.pyc")
    code = rewrite._read_pyc(module, kept)
    assert code is not None
    assert "@pytest_ar" in code.co_names
    module.write_text("def test_one():\n    assert 1 == 3\n")
    assert rewrite._read_pyc(module, kept) is None
