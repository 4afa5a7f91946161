"""The parts of the elastic group, without a group."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from ettr.errors import UsageError  # noqa: E402
from ettr.training.elastic import images  # noqa: E402
from ettr.training.elastic.keeping import Keeper, Versions  # noqa: E402
from ettr.training.elastic.membership import Membership  # noqa: E402
from ettr.training.elastic.protection import Protection  # noqa: E402
from ettr.training.elastic.sockets import open_sockets, sever  # noqa: E402
from ettr.training.elastic.supervisor import SupervisorOptions, supervise  # noqa: E402
from ettr.training.elastic.worker import ElasticGroup, Timeouts  # noqa: E402
from ettr.training.faults import CheckpointError  # noqa: E402
from ettr.training.state import TrainingState  # noqa: E402


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
    pieces, others = images.pieces_of(source), images.pieces_of(target)
    image = torch.empty(images.image_bytes(pieces), dtype=torch.uint8)
    images.take(pieces, image)
    expected = torch.rand(4)
    images.put(others, image)
    assert images.fingerprint(others) == images.fingerprint(pieces)
    assert torch.equal(torch.rand(4), expected)
    assert {float(p.shard.part("step")) for p in others if p.name == "step"} == {3.0}
    with pytest.raises(CheckpointError, match="build the same model"):
        images.put(others, image[16:])


def test_live_parts_go_into_a_rebuilt_model_and_into_no_other():
    source, target = trained(1), trained(2)
    parts = images.live_parts(images.pieces_of(source))
    images.put_parts(images.pieces_of(target), parts)
    assert images.fingerprint(images.pieces_of(target)) == images.fingerprint(
        images.pieces_of(source)
    )
    other = torch.nn.Linear(5, 7)
    with pytest.raises(CheckpointError, match="build the same model in every generation"):
        images.put_parts(images.pieces_of(TrainingState(other)), parts)


def test_two_versions_are_held_and_the_older_gives_way():
    versions = Versions()
    for step in (4, 5, 6):
        room = versions.room(8)
        assert step - 2 not in versions.steps  # forgotten before it is written over
        room.fill_(step)
        versions.filled(room, step)
    assert versions.steps == [6, 5]
    assert versions.image_of(5)[0] == 5
    again = versions.room(8)
    again.fill_(60)
    versions.filled(again, 6)  # the same step once more replaces the other copy
    assert versions.steps == [6]
    assert versions.image_of(6)[0] == 60
    versions.forget()
    assert versions.steps == []


def test_a_keeper_without_live_shard_and_images_is_empty():
    keeper = Keeper()
    assert keeper.empty
    keeper.keep_live(images.pieces_of(trained(1)), 3)
    assert not keeper.empty


def test_only_connections_that_are_not_kept_are_cut():
    listener = socket.create_server(("127.0.0.1", 0))
    pairs = []
    for _ in range(2):
        client = socket.create_connection(listener.getsockname())
        pairs.append((client, listener.accept()[0]))
    try:
        kept = {name_of(end) for end in pairs[0]}
        others = set(open_sockets()) - {name_of(end) for pair in pairs for end in pair}
        assert sever(kept | others) >= 1
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
    told: list[str] = []
    report = supervise(
        [sys.executable, "-c", "raise SystemExit(3)"], 1,
        options=SupervisorOptions(spares=0, max_idle_failures=2), on_event=told.append,
    )  # fmt: skip
    assert not report.finished
    assert report.reason == "3 failures in a row without a step between them"
    assert [loss.status for loss in report.losses] == [3, 3, 3]
    assert told[0].startswith("slot 0: w0 (pid")


def test_a_supervisor_that_is_stopped_leaves_no_rank_behind():
    seen: list[int] = []

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
            [sys.executable, "-c", command], 2,
            options=SupervisorOptions(spares=0), on_event=stop_at_first_loss,
        )  # fmt: skip
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # every child was waited for
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
