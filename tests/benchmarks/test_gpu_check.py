"""The check of a GPU, on the CPU: the same code, and a page that says where it was not run."""

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import forked_python

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_check")


def test_the_whole_check_runs_without_a_gpu_and_says_so(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(command: list[str], *, timeout: float, **_: object) -> SimpleNamespace:
        """`ettr elastic` and its ranks, as forks of a process that has loaded torch."""
        words = [sys.executable, forked_python.__file__, "ettr", *command[3:]]
        (done,) = forked_python.run_together([words], tmp_path, limit_s=timeout)
        return SimpleNamespace(returncode=done.status, stdout=done.output, stderr=done.errors)

    monkeypatch.setattr(check.subprocess, "run", forked)
    kept = ("undisturbed", "parity of 2")
    monkeypatch.setattr(check, "GUARDS", {name: check.GUARDS[name] for name in kept})
    text = check.page("cpu", 13, 1)
    assert "not run on a GPU" in text
    assert text.count("Not measured: ") == 3
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    cells = {row[0]: row[1:] for row in rows if row}
    for name in check.POLICIES:
        assert cells[name][3].endswith("bit for bit")
        assert cells[name][4].endswith(" 0 bad")
    assert cells["parity of 2"][0] == "bit for bit"
    assert float(cells["parity of 2"][1]) > 0.0


def test_what_takes_too_long_ends_the_page_and_keeps_what_was_measured(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sections(*_: object) -> Iterator[str]:
        yield "a table"
        time.sleep(30.0)
        yield "another"

    monkeypatch.setattr(check, "sections", sections)
    monkeypatch.setattr(check, "LIMIT_S", 0.1)
    begin_s = time.monotonic()
    assert check.page("cpu", 13, 1).split("\n\n")[::2] == ["a table"]
    assert "FAILED: not over after 0 s" in check.page("cpu", 13, 1)
    assert time.monotonic() - begin_s < 10.0
