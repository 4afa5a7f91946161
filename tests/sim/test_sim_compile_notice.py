"""A loop that has to be compiled first is announced; one that was kept is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType

import pytest

from ettr.cli import simulate
from ettr.sim.compiled import compile_noticed, compiled, compiled_entry

pytest.importorskip("numba")

COMPILING = "compiling the loop: about half a minute"


def add(one: int, other: int) -> int:
    return one + other


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept yet, and what is compiled is kept for this test alone."""
    from numba.core import config

    if config.DISABLE_JIT:
        pytest.skip("loops are interpreted")
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))


def test_only_a_real_compile_is_noticed_and_once():
    notices: list[bool] = []
    for entry in (compiled_entry(add), compiled_entry(add)):
        with compile_noticed(notices.append):
            assert entry(1, 2) == 3
            assert entry(1.5, 2) == 3.5
    assert notices == [True], "the second entry reads what the first has kept"


def test_a_loop_that_cannot_be_kept_is_noticed_as_such():
    notices: list[bool] = []
    unkept = FunctionType(add.__code__.replace(co_filename="<string>"), {})
    with compile_noticed(notices.append):
        assert compiled_entry(unkept)(1, 2) == 3
    assert notices == [False]


def test_nothing_is_noticed_after_the_block():
    notices: list[bool] = []
    with compile_noticed(notices.append):
        pass
    assert compiled_entry(add)(1, 2) == 3
    assert notices == []


def test_python_may_call_what_is_compiled_for_others():
    inner = compiled(add)

    def twice(one: float, other: float) -> float:
        return 2 * inner(one, other)

    notices: list[bool] = []
    with compile_noticed(notices.append):
        assert inner(1, 2) == 3
        assert notices == [], "it is interpreted"
        assert compiled_entry(twice)(1, 2) == 6
    assert len(notices) == 1


def test_the_bar_says_that_a_loop_is_compiled_and_keeps_its_count(
    monkeypatch: pytest.MonkeyPatch,
):
    shown: list[tuple[str, int]] = []

    @contextmanager
    def bar(total: int, unit: str) -> Iterator[object]:
        assert (total, unit) == (5, "runs")
        yield lambda what, done: shown.append((what, done))

    monkeypatch.setattr(simulate, "progress_bar", bar)
    first, second = compiled_entry(add), compiled_entry(add)
    with simulate.simulating_bar(5, "runs") as advance:
        advance("mine", 2)
        first(1, 2)
        advance("mine", 3)
    with simulate.simulating_bar(5, "runs") as advance:
        second(1, 2)
        advance("mine", 1)
    assert shown == [
        ("mine", 2), (f"{COMPILING}, kept for later runs", 2), ("mine", 3), ("mine", 1),
    ]  # fmt: skip


def test_nothing_is_shown_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]):
    with simulate.simulating_bar(5, "runs"):
        assert compiled_entry(add)(1, 2) == 3
    assert capsys.readouterr() == ("", "")
