"""What the supervisor makes of what ranks say, and when ranks may leave: without ranks."""

import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from ettr.elastic import ElasticGroup, Protection, SupervisorOptions, SupervisorReport, Timeouts  # noqa: E402
from ettr.elastic import rendezvous as names  # noqa: E402
from ettr.elastic import supervisor as supervising  # noqa: E402
from ettr.elastic.rendezvous import Beat, Membership  # noqa: E402

pytestmark = pytest.mark.torch


class Clock:
    """Seconds that pass when a test says so, however busy the machine is."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The supervisor's clock."""
    made = Clock()
    monkeypatch.setattr(supervising, "time", made)
    return made


class Heard:
    """A supervisor of ranks that are nothing but their signs of life; its time is `now_s`."""

    def __init__(self, clock: Clock, world: int, **options) -> None:
        told = SupervisorOptions(spares=0, **options)
        self.supervisor = supervising._Supervisor(["none"], world, told, {}, lambda _text: None)
        self.clock, self.count = clock, 0
        for slot in range(world):
            alive = SimpleNamespace(ending=lambda: False)
            worker = supervising._Worker(f"w{slot}", None, alive, beat_s=clock.monotonic())
            self.supervisor._group.workers[worker.name] = worker

    def beats(self, worker: str, step: int, generation: int, collective_s: float = 60.0) -> dict:
        """A worker shows itself; who is found hung then."""
        self.count += 1
        beat = Beat(self.count, step, generation, collective_s)
        self.supervisor._store.set(names.beat_key(worker), beat.to_text())
        return self.supervisor._hung()

    def generation(self, number: int, cause: str) -> None:
        group = self.supervisor._group
        self.supervisor._publish(replace(group.membership, generation=number, cause=cause))
        group.regrouped_s = self.clock.monotonic()


def test_steps_that_are_done_again_after_a_rollback_are_steps(clock):
    heard = Heard(clock, 1, max_idle_failures=1)
    heard.beats("w0", 130, 1)
    for step in (117, 108, 112, 103):  # every failure leads back to the checkpoint of step 100
        assert heard.supervisor._failed_again() is None
        heard.beats("w0", step, 1)
    assert heard.supervisor._failed_again() is None
    assert heard.supervisor._failed_again() is None  # without a step: one is allowed
    assert "2 failures in a row without a step" in heard.supervisor._failed_again()


def test_who_has_moved_on_to_the_next_generation_is_judged_anew(clock):
    heard = Heard(clock, 1, leave_s=0.5)
    heard.generation(2, "died")
    assert not heard.beats("w0", 5, 1)
    clock.now_s += 0.3
    heard.generation(3, "died")
    assert not heard.beats("w0", 5, 2)  # it has left the first, while the third was called for
    clock.now_s += 0.3
    assert not heard.beats("w0", 5, 2)
    clock.now_s += 0.3
    assert heard.beats("w0", 5, 2).keys() == {"w0"}


def test_who_waits_for_the_dead_is_given_the_grace_from_the_call_on(clock):
    heard = Heard(clock, 1, leave_s=60.0, failed_grace_s=0.4)
    heard.generation(2, "died")
    assert not heard.beats("w0", 5, 1)
    clock.now_s += 0.5
    heard.generation(3, "network")  # others have failed meanwhile, it may still be waiting
    assert not heard.beats("w0", 5, 1)
    clock.now_s += 0.5
    assert heard.beats("w0", 5, 1).keys() == {"w0"}


def test_without_a_limit_of_its_own_a_rank_is_given_what_its_collectives_are(clock, monkeypatch):
    monkeypatch.setattr(supervising, "_OVER_COLLECTIVE_S", 0.2)
    heard = Heard(clock, 2)
    heard.generation(2, "died")
    for _ in range(2):
        assert not heard.beats("w0", 5, 1, collective_s=0.2)
        assert not heard.beats("w1", 5, 1, collective_s=60.0)
        clock.now_s += 0.3
    assert heard.supervisor._hung().keys() == {"w0"}


def test_a_rank_that_never_showed_itself_is_judged_once_the_others_have_waited_in_vain(clock):
    heard = Heard(clock, 2, failed_grace_s=0.2)
    heard.beats("w0", -1, 1)
    clock.now_s += 0.4
    assert not heard.supervisor._hung()  # it may be importing for long
    heard.generation(2, "network")  # which w0 does not do any more
    assert not heard.beats("w0", -1, 2)
    clock.now_s += 0.4
    assert heard.beats("w0", -1, 2).keys() == {"w1"}


def test_a_spare_that_has_shown_itself_and_was_stopped_is_judged_as_soon_as_it_is_a_rank(clock):
    heard = Heard(clock, 2, heartbeat_timeout_s=0.3)
    group = heard.supervisor._group
    group.membership = replace(group.membership, workers=("w0",))
    group.spares = ["w1"]
    for _ in range(2):
        assert not heard.beats("w1", -1, 0)
    clock.now_s += 0.4
    assert not heard.beats("w0", 3, 1)  # a spare is in nobody's way
    heard.supervisor._regroup({0: "w0"}, "died")
    assert group.membership.workers == ("w1",)
    assert not heard.supervisor._hung()
    clock.now_s += 0.4
    assert heard.supervisor._hung().keys() == {"w1"}


def test_a_sign_of_life_is_read_as_it_was_written():
    beat = Beat(7, 130, 2, 62.5)
    assert Beat.from_text(beat.to_text().encode()) == beat


def test_a_killed_process_that_hangs_in_the_kernel_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(supervising, "_FENCED_S", 0.01)

    def wait(timeout=None):
        assert timeout is not None
        raise subprocess.TimeoutExpired("rank", timeout)

    supervising._reap(SimpleNamespace(wait=wait))


def test_a_rank_leaves_when_the_supervisor_says_so_and_not_while_it_is_called_back():
    from torch.distributed import TCPStore

    served = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    served.set(names.GENERATION, "2")  # slot 1 died after it had trained to the end
    for slot in (0, 1):
        served.set(names.finished_key(1, slot), "1")
    group = ElasticGroup(
        ("127.0.0.1", served.port), "w0", Protection(), timeouts=Timeouts(60.0, 90.0, 180.0)
    )
    try:
        with pytest.raises(RuntimeError, match="a rank was lost"):
            group._wait_for_all(Membership(1, ("w0", "w1")), 0)
        served.set(names.done_key(2), "1")
        group._wait_for_all(Membership(2, ("w0", "w2"), lost=(1,)), 0)
    finally:
        group._watcher.close()


def test_the_command_hands_its_limits_to_the_supervisor(monkeypatch):
    from typer.testing import CliRunner

    from ettr.cli.main import build_app

    given = []

    def supervise(command, world, *, options, on_event):
        given.append((command, world, options))
        return SupervisorReport(world, 1, (), (), 1.0, None)

    monkeypatch.setattr(supervising, "supervise", supervise)
    limits = ["--heartbeat", "40", "--leave", "200", "--max-failures", "9", "--spares", "2"]
    told = CliRunner().invoke(
        build_app(), ["elastic", "-n", "3", *limits, "--", "python", "train.py"]
    )
    assert told.exit_code == 0, told.output
    options = SupervisorOptions(spares=2, heartbeat_timeout_s=40.0, leave_s=200.0, max_failures=9)
    assert given == [(["python", "train.py"], 3, options)]
