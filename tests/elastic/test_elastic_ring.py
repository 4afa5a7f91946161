"""Shards handed from neighbour to neighbour, and what ends a wait that would otherwise not end."""

import itertools
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from ettr.elastic import ring as ring_module  # noqa: E402
from ettr.elastic.rendezvous import open_sockets, shut_down_connections  # noqa: E402
from ettr.elastic.ring import NeighbourLostError, Ring  # noqa: E402

pytestmark = pytest.mark.torch

NEVER_S = 300.0  # a loss that goes unnoticed would be found by a silence of this length
SOON_S = 120.0  # less than that, and time enough for a machine that is busy with other things
MANY_BYTES = 64 << 20  # far more than two sockets hold: a send of it waits for the other side


def alone(slot: int, world: int = 2, idle_s: float = NEVER_S, over=lambda: False) -> Ring:
    return Ring(slot, (slot + 1) % world, token=f"secret-{slot}", idle_s=idle_s, over=over)


def rings(world: int, idle_s: float = NEVER_S, over=lambda: False) -> list[Ring]:
    made = [alone(slot, world, idle_s, over) for slot in range(world)]
    together([lambda ring=ring: ring.join([one.address for one in made]) for ring in made])
    return made


def together(calls: list) -> list:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(timeout=SOON_S) for one in [pool.submit(call) for call in calls]]


def image(slot: int, n_bytes: int):
    return torch.full((n_bytes,), slot + 1, dtype=torch.uint8)


@pytest.fixture
def opened():
    """Rings that are closed at the end, whatever happened to them."""
    held: list[Ring] = []
    yield held
    for ring in held:
        ring.close()


@pytest.mark.parametrize("world", [2, 3, 5])
def test_every_rank_gets_the_image_of_the_one_before(world, opened):
    opened += rings(world)
    sizes = [MANY_BYTES // 8 + 1000 * slot for slot in range(world)]  # shards differ in size
    taken = [torch.empty(sizes[slot - 1], dtype=torch.uint8) for slot in range(world)]

    def exchange(slot):
        for step in (1, 2):
            opened[slot].exchange(step, image(slot, sizes[slot]), taken[slot])

    together([lambda slot=slot: exchange(slot) for slot in range(world)])
    for slot in range(world):
        assert torch.equal(taken[slot], image((slot - 1) % world, sizes[slot - 1]))


def test_an_image_goes_back_to_the_slot_it_came_from(opened):
    opened += rings(2)
    into = torch.empty(5, dtype=torch.uint8)
    together(
        [
            lambda: opened[1].send("previous", 4, image(0, 5)),
            lambda: opened[0].receive("next", 4, into),
        ]
    )
    assert torch.equal(into, image(0, 5))


def ends_soon(match: str, call) -> None:
    begin_s = time.monotonic()
    with pytest.raises(NeighbourLostError, match=match):
        call()
    assert time.monotonic() - begin_s < SOON_S


def test_a_send_under_way_ends_when_the_neighbour_goes(opened):
    opened += rings(3)
    threading.Timer(0.3, opened[1].close).start()
    ends_soon("next slot", lambda: opened[0].send("next", 1, image(0, MANY_BYTES)))


def test_an_image_half_received_is_not_waited_for(opened):
    ring = alone(1)
    opened.append(ring)
    with socket.create_server(("127.0.0.1", 0)) as slot_0:
        place = {"hosts": ["127.0.0.1"], "port": slot_0.getsockname()[1], "token": "secret-0"}
        before = socket.create_connection(("127.0.0.1", ring.address["port"]))
        before.sendall(b"secret-1")
        ring.join([place, ring.address])
        with before:
            before.sendall(struct.pack("<qq", 1, MANY_BYTES) + bytes(1000))
    into = torch.empty(MANY_BYTES, dtype=torch.uint8)
    ends_soon("previous slot has closed", lambda: ring.receive("previous", 1, into))


def test_cutting_the_sockets_of_this_process_ends_a_wait(opened):
    kept = set(open_sockets())
    opened += rings(2)
    threading.Timer(0.3, lambda: shut_down_connections(except_for=kept)).start()
    into = torch.empty(MANY_BYTES, dtype=torch.uint8)
    ends_soon("slot", lambda: opened[0].exchange(1, image(0, MANY_BYTES), into))


def test_a_wait_ends_with_the_generation(opened):
    over = threading.Event()
    opened += rings(2, over=over.is_set)
    threading.Timer(0.3, over.set).start()
    ends_soon("a rank was lost", lambda: opened[0].receive("next", 1, image(0, 8)))


def test_a_neighbour_that_says_nothing_is_not_waited_for_longer_than_was_asked(opened, monkeypatch):
    opened += rings(2)
    opened[0]._idle_s = 0.5  # from here on: its neighbour may have come later than that
    looks = itertools.count()
    passing = SimpleNamespace(monotonic=lambda: 0.05 * next(looks))
    monkeypatch.setattr(ring_module, "time", passing)
    with pytest.raises(NeighbourLostError, match=r"no byte moved for 0.5 s \(previous\)"):
        opened[0].receive("previous", 1, image(0, 8))
    assert next(looks) <= 13  # of 0.05 s each, the first where it began to wait


def test_the_image_of_another_step_is_refused(opened):
    opened += rings(2)
    opened[0].send("next", 6, image(0, 8))
    ends_soon(
        "step 6 in 8 bytes; step 7 in 8 bytes was expected",
        lambda: opened[1].receive("previous", 7, torch.empty(8, dtype=torch.uint8)),
    )


def test_a_stranger_without_the_token_is_turned_away(opened):
    first, second = alone(0), alone(1)
    opened += [first, second]
    with socket.create_connection(("127.0.0.1", second.address["port"])) as stranger:
        stranger.sendall(b"secret-0")  # of another rank
        places = [first.address, second.address]
        together([lambda: first.join(places), lambda: second.join(places)])
        assert stranger.recv(1) == b""
    into = torch.empty(3, dtype=torch.uint8)
    together(
        [lambda: first.send("next", 1, image(0, 3)), lambda: second.receive("previous", 1, into)]
    )
    assert torch.equal(into, image(0, 3))


def test_a_neighbour_that_is_not_there_is_named(opened):
    first = alone(0)
    opened.append(first)
    with socket.socket() as deaf:  # its port is taken, so that nobody else listens there
        deaf.bind(("127.0.0.1", 0))
        place = {"hosts": ["127.0.0.1"], "port": deaf.getsockname()[1], "token": "secret-1"}
        ends_soon(
            r"the next slot, at \['127.0.0.1'\]: .*refused",
            lambda: first.join([first.address, place]),
        )
