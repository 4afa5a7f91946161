"""Shards that outlive a restart under torchrun: parked, taken up, out of date, damaged."""

import re
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from ettr.elastic import TorchrunGroup  # noqa: E402
from ettr.elastic.shm_handoff import (  # noqa: E402
    Parked,
    agree,
    clear,
    clear_torn,
    park,
    parked,
)
from ettr.elastic.sockets import open_sockets  # noqa: E402


def one_byte_images(*steps: int) -> dict:
    return {("own", step): torch.full((40,), step, dtype=torch.uint8) for step in steps}


def test_what_was_parked_is_taken_up_by_later_attempts_of_the_same_slot(tmp_path):
    images = {
        ("own", 7): torch.arange(40, dtype=torch.uint8),
        ("mirror", 6): torch.ones(9, dtype=torch.uint8),
    }
    park(tmp_path, Parked(2, 1, 4, images))
    for attempt in (3, 4):  # attempt 3 may be killed before it has anything
        found = parked(tmp_path, 1, before=attempt, world=4)
        assert found is not None
        assert found.attempt == 2
        assert found.images.keys() == images.keys()
        assert all(torch.equal(found.images[key], images[key]) for key in images)
    assert parked(tmp_path, 1, before=2, world=4) is None
    assert parked(tmp_path, 1, before=3, world=3) is None
    assert parked(tmp_path, 0, before=3, world=4) is None
    assert [path.name for path in tmp_path.iterdir()] == ["slot-1"]


def test_what_was_parked_and_is_newer_than_where_the_ranks_went_on_is_out_of_date(tmp_path):
    park(tmp_path, Parked(0, 1, 4, one_byte_images(8, 7)))
    agree(tmp_path, 1, attempt=1, step=7)
    agree(tmp_path, 1, attempt=2, step=8)  # step 8 may have been done again, and otherwise
    found = parked(tmp_path, 1, before=3, world=4)
    assert found is not None
    assert [step for _, step in found.images] == [7]
    park(tmp_path, Parked(1, 1, 4, one_byte_images(9, 8)))  # by the attempt that went on from 7
    found = parked(tmp_path, 1, before=3, world=4)
    assert found is not None
    assert [step for _, step in found.images] == [8]
    clear(tmp_path, 1)
    assert parked(tmp_path, 1, before=3, world=4) is None
    agree(tmp_path, 1, attempt=3, step=9)  # nothing lies there to be out of date
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_parked_leaves_what_lay_there(tmp_path, monkeypatch):
    park(tmp_path, Parked(0, 1, 4, one_byte_images(7)))

    def no_room(self, other):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", no_room)
    with pytest.raises(OSError, match="No space left"):
        park(tmp_path, Parked(1, 1, 4, one_byte_images(8)))
    found = parked(tmp_path, 1, before=2, world=4)
    assert found is not None
    assert [step for _, step in found.images] == [7]
    assert [path.name for path in tmp_path.iterdir()] == ["slot-1"]


def test_a_file_that_was_broken_off_by_a_kill_is_taken_away(tmp_path):
    for name in (".slot-1.77", ".agreed-1.77", ".slot-11.78", "slot-1"):
        (tmp_path / name).touch()
    clear_torn(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {".slot-11.78", "slot-1"}


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "name", "no-object"])
def test_what_was_parked_and_damaged_is_not_there(tmp_path, damage):
    park(tmp_path, Parked(0, 1, 4, {("own", 7): torch.zeros(64, dtype=torch.uint8)}))
    raw = bytearray((tmp_path / "slot-1").read_bytes())
    flipped = bytes([*raw[:-3], raw[-3] ^ 4, *raw[-2:]])
    named = re.sub(rb'"checksum": "...', b'"checksum": "zzz', bytes(raw))
    listed = struct.pack("<8sQQ", b"ETTRPARK", 2, 0) + b"[]"
    kept = {"flip": flipped, "cut": raw[:50], "empty": b"", "name": named, "no-object": listed}
    (tmp_path / "slot-1").write_bytes(kept[damage])
    assert parked(tmp_path, 1, before=1, world=4) is None


def test_sigterm_ends_also_a_wait_that_begins_after_it(monkeypatch, tmp_path):
    """A rank that is told to stop while it forms its group opens connections after that."""
    told = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    group = TorchrunGroup(folder=tmp_path)
    group._kept = frozenset(open_sockets())
    cutter = threading.Thread(target=group._cut)
    cutter.start()
    try:
        time.sleep(0.2)
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname(), timeout=120) as waits,
            listener.accept()[0],
        ):
            assert waits.recv(1) == b""
    finally:
        group._left.set()
        cutter.join(timeout=120)
    assert not cutter.is_alive()
