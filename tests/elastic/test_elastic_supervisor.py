"""What the supervisor concludes from heartbeats, and when ranks may leave: without ranks."""

import socket
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from ettr.elastic import (  # noqa: E402
    ElasticGroup,
    Protection,
    SupervisorOptions,
    SupervisorReport,
    Timeouts,
    nodes,
    rendezvous,
)
from ettr.elastic import supervisor as supervising  # noqa: E402
from ettr.elastic.handshake import this_node  # noqa: E402
from ettr.elastic.nodes import (  # noqa: E402
    SupervisionState,
    Worker,
    WorkerState,
)
from ettr.elastic.rendezvous import Cause, Heartbeat, Membership  # noqa: E402
from ettr.elastic.supervisor import Supervisor  # noqa: E402

pytestmark = pytest.mark.torch


class Heard:
    """A supervisor of ranks that are nothing but their heartbeats; its time is `now_s`."""

    def __init__(self, world: int, **options) -> None:
        self.now_s, self.count = 1000.0, 0
        self.supervisor = Supervisor(
            ["none"],
            world,
            SupervisorOptions(spares=0, **options),
            {},
            monotonic=lambda: self.now_s,
        )
        for slot in range(world):
            self.add(f"w{slot}", WorkerState.RANK)

    def add(self, name: str, state: WorkerState) -> None:
        alive = SimpleNamespace(ending=lambda: False)
        node = this_node({}, None, None).name
        worker = Worker(name, alive, state, self.now_s, node=node)
        self.supervisor.roster.workers[name] = worker

    def beats(self, worker: str, step: int, generation: int, collective_s: float = 60.0) -> dict:
        """A worker sends a heartbeat; who is found hung then."""
        self.count += 1
        heartbeat = Heartbeat(self.count, step, generation, collective_s)
        self.supervisor.store.set(rendezvous.HEARTBEAT.format(worker=worker), heartbeat.to_text())
        return self.supervisor.find_hung()

    def generation(self, number: int, cause: Cause) -> None:
        membership = replace(self.supervisor.roster.membership, generation=number - 1)
        self.supervisor.roster.membership = membership
        self.supervisor.regroup({}, cause)


def test_steps_that_are_done_again_after_a_rollback_are_steps():
    heard = Heard(1, max_idle_failures=1)
    heard.beats("w0", 130, 1)
    for step in (117, 108, 112, 103):  # every failure leads back to the checkpoint of step 100
        assert heard.supervisor.count_failure() is None
        assert heard.supervisor.state is SupervisionState.FORMING
        heard.beats("w0", step, 1)
        assert heard.supervisor.state is SupervisionState.TRAINING
    assert heard.supervisor.count_failure() is None
    assert heard.supervisor.count_failure() is None  # without a step: one is allowed
    assert "2 failures in a row without a step" in heard.supervisor.count_failure()


def test_who_has_moved_on_to_the_next_generation_gets_the_full_time_to_leave_that_one():
    heard = Heard(1, leave_s=0.5)
    heard.generation(2, Cause.DIED)
    assert not heard.beats("w0", 5, 1)
    heard.now_s += 0.3
    heard.generation(3, Cause.DIED)
    assert not heard.beats("w0", 5, 2)  # it has left the first, while the third was called for
    heard.now_s += 0.3
    assert not heard.beats("w0", 5, 2)
    heard.now_s += 0.3
    assert heard.beats("w0", 5, 2).keys() == {"w0"}


def test_who_waits_for_the_dead_is_given_the_grace_from_the_call_on():
    heard = Heard(1, leave_s=60.0, failed_grace_s=0.4)
    heard.generation(2, Cause.DIED)
    assert not heard.beats("w0", 5, 1)
    heard.now_s += 0.5
    heard.generation(3, Cause.NETWORK)  # others have failed meanwhile, it may still be waiting
    assert not heard.beats("w0", 5, 1)
    heard.now_s += 0.5
    assert heard.beats("w0", 5, 1).keys() == {"w0"}


def test_without_a_limit_of_its_own_a_rank_is_given_what_its_collectives_are(monkeypatch):
    monkeypatch.setattr(supervising, "OVER_COLLECTIVE_S", 0.2)
    heard = Heard(2)
    heard.generation(2, Cause.DIED)
    for _ in range(2):
        assert not heard.beats("w0", 5, 1, collective_s=0.2)
        assert not heard.beats("w1", 5, 1, collective_s=60.0)
        heard.now_s += 0.3
    assert heard.supervisor.find_hung().keys() == {"w0"}


def test_a_rank_that_never_sent_a_heartbeat_is_judged_once_the_others_have_waited_in_vain():
    heard = Heard(2, failed_grace_s=0.2)
    heard.beats("w0", -1, 1)
    heard.now_s += 0.4
    assert not heard.supervisor.find_hung()  # it may be importing for long
    heard.generation(2, Cause.NETWORK)  # which w0 does not do any more
    assert not heard.beats("w0", -1, 2)
    heard.now_s += 0.4
    assert heard.beats("w0", -1, 2).keys() == {"w1"}


def test_a_spare_that_was_stopped_is_judged_as_soon_as_it_is_a_rank():
    heard = Heard(1, heartbeat_timeout_s=0.3)
    heard.add("w1", WorkerState.SPARE)
    for _ in range(2):
        assert not heard.beats("w1", -1, 0)
    heard.now_s += 0.4
    assert not heard.beats("w0", 3, 1)  # a spare delays nobody
    heard.supervisor.regroup({0: "w0"}, Cause.DIED)
    assert heard.supervisor.roster.membership.workers == ("w1",)
    assert not heard.supervisor.find_hung()
    heard.now_s += 0.4
    assert heard.supervisor.find_hung().keys() == {"w1"}


@pytest.mark.parametrize("takes_listeners", [True, False])
def test_the_store_listens_where_the_ranks_are_and_nowhere_else(monkeypatch, takes_listeners):
    made = torch.distributed.TCPStore

    def served(*args, use_libuv: bool, **options):
        if use_libuv and not takes_listeners:
            raise RuntimeError("the libuv backend takes no listen fd")
        return made(*args, use_libuv=use_libuv, **options)

    monkeypatch.setattr(torch.distributed, "TCPStore", served)
    heard = Heard(1)  # its store goes with it
    port = heard.supervisor.store.port
    socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
    with pytest.raises(ConnectionRefusedError):  # another address of this machine
        socket.create_connection(("127.0.0.2", port), timeout=5.0)


def test_a_heartbeat_is_read_as_it_was_written():
    heartbeat = Heartbeat(7, 130, 2, 62.5)
    assert Heartbeat.from_text(heartbeat.to_text().encode()) == heartbeat


def test_a_killed_process_that_hangs_in_the_kernel_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(nodes, "_REAP_S", 0.01)

    def wait(timeout=None):
        assert timeout is not None
        raise subprocess.TimeoutExpired("rank", timeout)

    Worker("w0", SimpleNamespace(wait=wait), WorkerState.RANK, 0.0).reap()


def test_a_rank_leaves_when_the_supervisor_says_so_and_not_while_it_is_called_back():
    from torch.distributed import TCPStore

    served = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    served.set(rendezvous.GENERATION, "2")  # slot 1 died after it had trained to the end
    for slot in (0, 1):
        served.set(rendezvous.TRAINED.format(generation=1, slot=slot), "1")
    group = ElasticGroup(
        ("127.0.0.1", served.port), "w0", Protection(), timeouts=Timeouts(60.0, 90.0, 180.0)
    )
    try:
        with pytest.raises(RuntimeError, match="a rank was lost"):
            group._wait_for_all(Membership(1, ("w0", "w1")), 0)
        served.set(rendezvous.DONE.format(generation=2), "1")
        group._wait_for_all(Membership(2, ("w0", "w2"), lost=(1,)), 0)
    finally:
        group._heartbeat.close()


def test_the_command_hands_its_limits_to_the_supervisor(monkeypatch):
    from typer.testing import CliRunner

    from ettr.cli.main import build_app

    calls = []

    def supervise(command, world, *, options, on_event, notice):
        calls.append((command, world, options))
        return SupervisorReport(world, 1, (), (), 1.0, None)

    monkeypatch.setattr(supervising, "supervise", supervise)
    limits = ["--heartbeat", "40", "--leave", "200", "--max-failures", "9", "--spares", "2"]
    result = CliRunner().invoke(
        build_app("elastic"), ["elastic", "-n", "3", *limits, "--", "python", "train.py"]
    )
    assert result.exit_code == 0, result.output
    options = SupervisorOptions(spares=2, heartbeat_timeout_s=40.0, leave_s=200.0, max_failures=9)
    assert calls == [(["python", "train.py"], 3, options)]
