"""What others of the machine may write into the store of a run."""

import socket
import time

import pytest

from ettr.elastic.rendezvous import Heartbeat
from ettr.elastic.ring import NeighbourLostError, _connect, _sends_token


@pytest.mark.parametrize(
    "text",
    [b"\xff garbage", b"", b"1:2:3", b"a:b:c:d", b"1:2:3:nan", b"1:99999999999999999999:3:0"],
)
def test_a_heartbeat_that_cannot_be_read_is_none(text: bytes) -> None:
    assert Heartbeat.from_text(text) is None
    assert Heartbeat.from_text(Heartbeat(3, 17, 2, 0.5).to_text()) == Heartbeat(3, 17, 2, 0.5)


@pytest.mark.parametrize(
    "address",
    [
        None,
        {},
        {"hosts": 7, "port": 1, "token": "t"},
        {"hosts": [None], "port": 99999, "token": "t"},
    ],
)
def test_an_address_that_cannot_be_read_is_a_lost_neighbour(address: object) -> None:
    with pytest.raises(NeighbourLostError):
        _connect(address)  # type: ignore[arg-type]


def test_a_token_has_one_deadline_however_slowly_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ettr.elastic.ring._GREETING_S", 0.3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"ab")
        begun = time.monotonic()
        assert not _sends_token(ours, "abcdef")
        assert time.monotonic() - begun < 30
