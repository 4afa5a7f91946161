"""The parts of the elastic group, without a group."""

import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from ettr.checkpoint import (  # noqa: E402
    CheckpointError,
    FencedError,
    RunningCheckpoint,
    TrainingState,
    fence,
)
from ettr.elastic import (  # noqa: E402
    ElasticGroup,
    Generation,
    Protection,
    SupervisorOptions,
    Timeouts,
    process_group,
    supervise,
)
from ettr.elastic.recover import full_steps  # noqa: E402
from ettr.elastic.rendezvous import (  # noqa: E402
    Membership,
    connect,
    open_sockets,
    prefixed,
    shut_down_connections,
)
from ettr.elastic.shard_image import (  # noqa: E402
    ShardHistory,
    ShardStore,
    fingerprint,
    image_bytes,
    live_parts,
    pieces_of,
    put_image,
    put_parts,
    take_image,
)
from ettr.errors import UsageError  # noqa: E402
from ettr.plan.intervals import exact_interval_s  # noqa: E402
from ettr.recovery.restore_costs import Measuring  # noqa: E402
from forked_python import fork_server  # noqa: E402


def name_of(end: socket.socket) -> str:
    return str(Path(f"/proc/self/fd/{end.fileno()}").readlink())


def trained(seed: int, steps: int = 2):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        model(torch.randn(3, 5)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return TrainingState(model, optimizer)


def test_an_image_brings_a_shard_back_with_moments_counts_and_random_state():
    source, target = trained(1, steps=3), trained(2)
    pieces, others = pieces_of(source), pieces_of(target)
    image = torch.empty(image_bytes(pieces), dtype=torch.uint8)
    take_image(pieces, image)
    expected = torch.rand(4)
    put_image(others, image)
    assert fingerprint(others) == fingerprint(pieces)
    assert torch.equal(torch.rand(4), expected)
    assert {float(p.owner.value("step")) for p in others if p.name == "step"} == {3.0}
    with pytest.raises(CheckpointError, match="build the same model"):
        put_image(others, image[16:])


def test_live_parts_go_into_a_rebuilt_model_and_into_no_other():
    source, target = trained(1), trained(2)
    parts = live_parts(pieces_of(source))
    put_parts(pieces_of(target), parts)
    assert fingerprint(pieces_of(target)) == fingerprint(pieces_of(source))
    other = torch.nn.Linear(5, 7)
    with pytest.raises(CheckpointError, match="build the same model in every generation"):
        put_parts(pieces_of(TrainingState(other)), parts)


def test_two_images_are_held_and_a_new_one_replaces_the_older():
    history = ShardHistory()
    for step in (4, 5, 6):
        buffer = history.buffer(8)
        assert step - 2 not in history.steps  # forgotten before it is written over
        buffer.fill_(step)
        history.commit(buffer, step)
    assert history.steps == [6, 5]
    assert history.image_of(5)[0] == 5
    again = history.buffer(8)
    again.fill_(60)
    history.commit(again, 6)  # the same step once more replaces the other copy
    assert history.steps == [6]
    assert history.image_of(6)[0] == 60
    history.drop_after(-1)
    assert history.steps == []


def test_who_goes_on_from_the_older_image_has_it_until_the_next_is_whole():
    history = ShardHistory()
    for step in (4, 5):
        history.commit(history.buffer(8).fill_(step), step)
    history.drop_after(4)  # all ranks went back to step 4
    assert history.steps == [4]
    buffer = history.buffer(8)  # step 5 is done again
    assert history.steps == [4]
    history.commit(buffer.fill_(50), 5)
    assert history.steps == [5, 4]
    assert [int(history.image_of(step)[0]) for step in (5, 4)] == [50, 4]


def test_a_store_without_live_shard_and_images_is_empty():
    shards = ShardStore()
    assert shards.empty
    shards.hold_live(pieces_of(trained(1)), 3)
    assert not shards.empty


def test_only_connections_that_are_not_named_are_shut_down():
    listener = socket.create_server(("127.0.0.1", 0))
    pairs = []
    for _ in range(2):
        client = socket.create_connection(listener.getsockname())
        pairs.append((client, listener.accept()[0]))
    try:
        kept = {name_of(end) for end in pairs[0]}
        others = set(open_sockets()) - {name_of(end) for pair in pairs for end in pair}
        assert shut_down_connections(except_for=kept | others) >= 1
        assert pairs[1][0].recv(1) == b""
        pairs[0][0].send(b"x")
        assert pairs[0][1].recv(1) == b"x"
    finally:
        for end in (listener, *pairs[0], *pairs[1]):
            end.close()


def test_a_membership_survives_the_store():
    held = Membership(3, ("w0", "w4"), lost=(1,), cause="hung", noticed_s=1.5, hung_s=8.0)
    assert Membership.from_json(held.to_json()) == held
    assert held.slot_of("w4") == 1
    assert held.slot_of("w1") is None


def test_wrong_use_says_what_to_do(monkeypatch):
    monkeypatch.delenv("ETTR_ELASTIC_STORE", raising=False)
    with pytest.raises(UsageError, match="ettr elastic -n RANKS"):
        ElasticGroup.from_env()
    with pytest.raises(UsageError, match="give them ascending"):
        Timeouts(collective_s=90, regroup_s=60)
    with pytest.raises(UsageError, match=r"spares: -1.*heartbeat_timeout_s: 0"):
        SupervisorOptions(spares=-1, heartbeat_timeout_s=0)
    with pytest.raises(UsageError, match="full_every_steps: 0"):
        Protection(full_every_steps=0)
    with pytest.raises(UsageError, match="give a command"):
        supervise([], 1)


def test_a_command_that_always_fails_is_given_up():
    events: list[str] = []
    report = supervise(
        [sys.executable, "-c", "raise SystemExit(3)"],
        1,
        options=SupervisorOptions(spares=0, max_idle_failures=2),
        on_event=events.append,
    )
    assert not report.finished
    assert report.reason == "3 failures in a row without a step between them"
    assert [loss.status for loss in report.losses] == [3, 3, 3]
    assert events[0].startswith("slot 0: w0 (pid")


def children() -> set[str]:
    """Processes that this one has started and not yet waited for."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


def test_a_supervisor_that_is_stopped_leaves_no_rank_behind():
    seen: list[int] = []
    # other tests of this process may have left a service running, and a handler of their own
    before, handler = children(), signal.getsignal(signal.SIGINT)

    def stop_at_first_loss(text: str) -> None:
        seen.append(1)
        raise KeyboardInterrupt

    command = (
        "import os, signal, time\n"
        "if os.environ['ETTR_ELASTIC_WORKER'] == 'w0':\n"
        "    time.sleep(600)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with pytest.raises(KeyboardInterrupt):
        supervise(
            [sys.executable, "-c", command],
            2,
            options=SupervisorOptions(spares=0),
            on_event=stop_at_first_loss,
        )
    assert children() <= before
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_zombie_cannot_write_into_the_slot_of_its_replacement(tmp_path):
    zombie = RunningCheckpoint(tmp_path, trained(1), slot=2, policy="full")
    zombie.save_all(5)
    generation = fence(tmp_path, 2)
    with RunningCheckpoint(tmp_path, trained(1), slot=2, generation=generation) as replacement:
        with pytest.raises(FencedError, match="replaced"):
            zombie.save_all(6)
        replacement.save_all(6)
        assert {age.step for age in replacement.ages()} == {6}
    zombie.close()


def test_the_distance_of_full_checkpoints_follows_from_what_was_measured(tmp_path):
    import torch.distributed as dist

    measuring = Measuring()
    for _ in range(3):
        measuring.add("step", 0.5)
    group = SimpleNamespace(
        protection=Protection(full=tmp_path, full_every_steps=2, mttf_s=1000.0),
        fingerprints=False,
        shards=ShardStore(),
        timings=measuring,
        stop_reason=None,
        recovered=lambda *_: None,
        updated=lambda *_: None,
    )
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        generation = Generation(group, Membership(1, ("w0",)), 0, dist.HashStore())
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        assert generation.recover(model, optimizer) == 0
        for step in (1, 2, 3):
            model(torch.ones(3)).sum().backward()
            with generation.update(step):
                optimizer.step()
        assert full_steps(tmp_path) == [2]
        best_s = exact_interval_s(generation._full.stalls_s[0], 1000.0)
        assert generation._full.due_step == 2 + max(1, round(best_s / 0.5))
        # A job of which no process has lived takes up the full checkpoint.
        group.shards = ShardStore()
        again = Generation(group, Membership(2, ("w0",)), 0, dist.HashStore())
        other = torch.nn.Linear(3, 1)
        assert again.recover(other, torch.optim.AdamW(other.parameters())) == 2
        assert again.report.source == "resume"
    finally:
        dist.destroy_process_group()


NEWCOMER = """
import sys
import torch
import torch.distributed as dist
from ettr.elastic import Timeouts
from ettr.elastic import process_group
from ettr.elastic.rendezvous import connect, prefixed
store = prefixed("gen3", connect("127.0.0.1", int(sys.argv[1]), 60))
process_group.form(3, store, 1, 2, Timeouts(120, 180, 240), over=lambda: False)
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def test_who_waited_in_vain_for_a_generation_meets_newcomers_in_the_next():
    import torch.distributed as dist

    served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store = prefixed("gen2", connect("127.0.0.1", served.port, 60))
    with pytest.raises(RuntimeError):
        # the other rank of generation 2 died before it came
        process_group.form(2, store, 0, 2, Timeouts(0.5, 1, 1.5), over=lambda: False)
    process_group.destroy()
    words = [sys.executable, "-c", NEWCOMER, str(served.port)]
    newcomer = fork_server().start(words, os.environ)
    try:
        store = prefixed("gen3", connect("127.0.0.1", served.port, 60))
        process_group.form(3, store, 0, 2, Timeouts(120, 180, 240), over=lambda: False)
        both = torch.ones(1)
        dist.all_reduce(both)
        assert both.item() == 2
        assert newcomer.wait(timeout=240) == 0
    finally:
        newcomer.kill()
        newcomer.wait()
        process_group.destroy()


@pytest.mark.parametrize(
    ("steps", "expected"), [((100, 99), ("partial", 100)), ((100, 30), ("rollback", 0))]
)
def test_shards_that_a_rollback_left_apart_do_not_go_on_together(steps, expected):
    """A rank that has gone back and one that has not: the failure struck between them."""
    import torch.distributed as dist

    store = dist.HashStore()

    def recover(slot):
        shards = ShardStore()
        shards.hold_live(pieces_of(trained(slot)), steps[slot])
        group = SimpleNamespace(
            protection=Protection(buddy=False),
            fingerprints=False,
            shards=shards,
            timings=Measuring(),
            recovered=lambda *_: None,
        )
        generation = Generation(group, Membership(3, ("w0", "w1")), slot, store)
        state = trained(slot)
        generation.recover(state.models[0][1], state.optimizers[0])
        return generation.report.source, generation.report.step

    with ThreadPoolExecutor(2) as pool:
        recovered = list(pool.map(recover, range(2), timeout=240))
    assert recovered == [expected, expected]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with NCCL")
def test_nccl_waits_end_with_its_abort():
    from ettr.elastic.process_group import backend, make_nccl_abort

    assert backend() == "cpu:gloo,cuda:nccl"
    abort = make_nccl_abort()
    assert abort is not None
    abort()  # without a group: harmless
