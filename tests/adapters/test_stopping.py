"""A loop that is asked to end: by SIGTERM in real processes, by a deadline on an injected clock."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from ettr.checkpoint.notice import AgreedStop, StopNotice
from ettr.errors import UsageError
from forked_python import ForkedProcess, fork_server

WORKER = Path(__file__).with_name("stopped_worker.py")
STEPS, TERM_AT = 24, 13


class Signals:
    """What a process does on each signal, as the module `signal` keeps it."""

    def __init__(self, **handlers: object) -> None:
        self.handlers: dict[int, object] = {signal.SIGTERM: signal.SIG_DFL, **handlers}

    def install(self, number: int, handler: object) -> object:
        before, self.handlers[number] = self.handlers[number], handler
        return before

    def installed(self, number: int) -> object:
        return self.handlers[number]

    def send(self, number: int) -> None:
        self.handlers[number](number, None)  # type: ignore[operator]


def notice_of(signals: Signals, **options: object) -> StopNotice:
    return StopNotice(install=signals.install, installed=signals.installed, **options)


def test_a_signal_is_noted_and_given_back() -> None:
    signals = Signals()
    with notice_of(signals) as notice:
        notice.listen()
        assert notice.asked() is None
        signals.send(signal.SIGTERM)
        assert notice.asked() == "SIGTERM came"
    assert signals.handlers[signal.SIGTERM] is signal.SIG_DFL


def test_a_handler_of_the_programs_own_stays_and_may_ask() -> None:
    signals = Signals()
    with notice_of(signals) as first:
        signals.handlers[signal.SIGTERM] = lambda *_: first.ask("mine")
    notice = notice_of(signals)
    with notice:
        signals.send(signal.SIGTERM)
        assert (first.asked(), notice.asked()) == ("mine", None)


@pytest.mark.parametrize(("needs_s", "at_s"), [(0.0, 940), (90.0, 910)])
def test_a_deadline_asks_while_a_step_and_a_save_still_fit(needs_s: float, at_s: int) -> None:
    now_s = [50.0]
    notice = StopNotice(signals=(), deadline_s=1000.0, margin_s=60.0, clock=lambda: now_s[0])
    now_s[0] = 50.0 + at_s - 1
    assert notice.asked(needs_s=needs_s) is None
    now_s[0] += 1
    assert notice.asked(needs_s=needs_s) == f"{1000 - at_s} s are left until the deadline"


def test_a_deadline_below_0_is_refused() -> None:
    with pytest.raises(UsageError, match="deadline_s: -1"):
        StopNotice(deadline_s=-1)


class Store:
    """The part of the store of `torch.distributed` that is used, for threads."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._lock = threading.Lock()

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        with self._lock:
            if self.values.get(key, "") == expected:
                self.values[key] = desired
            return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            self.values[key] = str(int(self.values.get(key, "0")) + amount)
            return int(self.values[key])


def test_ranks_end_after_one_step_whoever_was_asked_when() -> None:
    store = Store()
    ranks = [AgreedStop(store, 3) for _ in range(3)]
    # rank 0 was asked before step 4 ended, rank 2 while the others are at 5 already
    assert [rank.ends_after(4, asked=n == 0) for n, rank in enumerate(ranks[:2])] == [False, False]
    assert [rank.ends_after(5, asked=True) for rank in ranks[:2]] == [True, True]
    assert not ranks[2].ends_after(4, asked=True)
    assert ranks[2].ends_after(5, asked=True)


def test_a_rank_waits_for_the_others_and_not_for_ever() -> None:
    store = Store()
    now_s = iter(range(10))
    AgreedStop(store, 2).wait_for_all(3.0, clock=lambda: next(now_s))
    assert next(now_s) == 4  # begun at 0, over at 3
    AgreedStop(store, 2).wait_for_all(1e9)  # the second of two


@pytest.mark.torch
@pytest.mark.slow
class TestRealProcesses:
    """SIGTERM, and SIGKILL after a grace that was too short."""

    @pytest.fixture(autouse=True)
    def _needs_torch(self) -> None:
        pytest.importorskip("torch")

    def start(self, out: Path, *words: object) -> ForkedProcess:
        out.mkdir(exist_ok=True)
        return fork_server().start([sys.executable, str(WORKER), str(out), *map(str, words)], {})

    def test_all_is_saved_at_the_end_of_the_step_and_the_status_requeues(
        self, tmp_path: Path
    ) -> None:
        assert self.start(tmp_path / "unbroken").wait(120) == 0
        out = tmp_path / "stopped"
        assert self.start(out, "--term-at", TERM_AT).wait(120) == 75
        assert not (out / "final-0.pt").exists()
        assert self.start(out).wait(120) == 0
        assert (out / "started-0.txt").read_text().split() == ["0", str(TERM_AT)]
        assert same(out / "final-0.pt", tmp_path / "unbroken" / "final-0.pt")

    def test_where_the_grace_is_too_short_the_copy_before_is_whole(self, tmp_path: Path) -> None:
        assert self.start(tmp_path / "unbroken").wait(120) == 0
        out = tmp_path / "killed"
        process = self.start(out, "--term-at", TERM_AT, "--hangs")
        end_s = time.monotonic() + 120
        while not (out / "saving").exists():
            assert time.monotonic() < end_s
            time.sleep(0.01)
        process.kill()
        assert process.wait(120) == -signal.SIGKILL
        assert self.start(out).wait(120) == 0
        began, resumed = map(int, (out / "started-0.txt").read_text().split())
        assert began == 0
        assert resumed in (5, 10)  # of the two rounds before
        assert same(out / "final-0.pt", tmp_path / "unbroken" / "final-0.pt")

    def test_two_ranks_of_which_one_is_asked_end_after_the_same_step(self, tmp_path: Path) -> None:
        def both(*words: object) -> list[int]:
            (tmp_path / "port").unlink(missing_ok=True)
            ranks = [
                self.start(tmp_path, "--world", 2, "--rank", rank, *words) for rank in range(2)
            ]
            return [rank.wait(120) for rank in ranks]

        assert both("--term-at", TERM_AT, "--term-rank", 1) == [75, 75]
        assert both() == [0, 0]
        for rank in range(2):
            began, resumed = (tmp_path / f"started-{rank}.txt").read_text().split()
            assert (began, resumed) == ("0", str(TERM_AT + 1))
        assert same(tmp_path / "final-0.pt", tmp_path / "final-1.pt")


def same(one: Path, other: Path) -> bool:
    import torch

    first, second = torch.load(one), torch.load(other)
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)
