"""Shards that outlive a restart under torchrun: saved, loaded, out of date, damaged."""

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
from ettr.elastic.rendezvous import open_sockets  # noqa: E402
from ettr.elastic.torchrun import (  # noqa: E402
    Handoff,
    load_from_shm,
    record_agreed_step,
    remove_handoff,
    remove_partial_files,
    save_to_shm,
)


def one_byte_images(*steps: int) -> dict:
    return {("own", step): torch.full((40,), step, dtype=torch.uint8) for step in steps}


def test_what_was_saved_is_loaded_by_later_attempts_of_the_same_slot(tmp_path):
    images = {
        ("own", 7): torch.arange(40, dtype=torch.uint8),
        ("neighbour", 6): torch.ones(9, dtype=torch.uint8),
    }
    save_to_shm(tmp_path, Handoff(2, 1, 4, images))
    for attempt in (3, 4):  # attempt 3 may be killed before it has anything
        found = load_from_shm(tmp_path, 1, before=attempt, world=4)
        assert found is not None
        assert found.attempt == 2
        assert found.images.keys() == images.keys()
        assert all(torch.equal(found.images[key], images[key]) for key in images)
    assert load_from_shm(tmp_path, 1, before=2, world=4) is None
    assert load_from_shm(tmp_path, 1, before=3, world=3) is None
    assert load_from_shm(tmp_path, 0, before=3, world=4) is None
    assert [path.name for path in tmp_path.iterdir()] == ["slot-1"]


def test_what_is_newer_than_where_the_ranks_went_on_is_out_of_date(tmp_path):
    save_to_shm(tmp_path, Handoff(0, 1, 4, one_byte_images(8, 7)))
    record_agreed_step(tmp_path, 1, attempt=1, step=7)
    record_agreed_step(
        tmp_path, 1, attempt=2, step=8
    )  # step 8 may have been done again, and otherwise
    found = load_from_shm(tmp_path, 1, before=3, world=4)
    assert found is not None
    assert [step for _, step in found.images] == [7]
    save_to_shm(
        tmp_path, Handoff(1, 1, 4, one_byte_images(9, 8))
    )  # by the attempt that went on from 7
    found = load_from_shm(tmp_path, 1, before=3, world=4)
    assert found is not None
    assert [step for _, step in found.images] == [8]
    remove_handoff(tmp_path, 1)
    assert load_from_shm(tmp_path, 1, before=3, world=4) is None
    record_agreed_step(tmp_path, 1, attempt=3, step=9)  # nothing lies there to be out of date
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_fails_leaves_the_earlier_file(tmp_path, monkeypatch):
    save_to_shm(tmp_path, Handoff(0, 1, 4, one_byte_images(7)))

    def no_room(self, other):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", no_room)
    with pytest.raises(OSError, match="No space left"):
        save_to_shm(tmp_path, Handoff(1, 1, 4, one_byte_images(8)))
    found = load_from_shm(tmp_path, 1, before=2, world=4)
    assert found is not None
    assert [step for _, step in found.images] == [7]
    assert [path.name for path in tmp_path.iterdir()] == ["slot-1"]


def test_a_file_that_was_broken_off_by_a_kill_is_taken_away(tmp_path):
    for name in (".slot-1.77", ".agreed-1.77", ".slot-11.78", "slot-1"):
        (tmp_path / name).touch()
    remove_partial_files(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {".slot-11.78", "slot-1"}


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "name", "no-object", "version"])
def test_a_damaged_file_counts_as_missing(tmp_path, damage):
    save_to_shm(tmp_path, Handoff(0, 1, 4, {("own", 7): torch.zeros(64, dtype=torch.uint8)}))
    raw = bytearray((tmp_path / "slot-1").read_bytes())
    flipped = bytes([*raw[:-3], raw[-3] ^ 4, *raw[-2:]])
    named = re.sub(rb'"checksum": "...', b'"checksum": "zzz', bytes(raw))
    listed = struct.pack("<8sQQ", b"ETTRSHM2", 2, 0) + b"[]"
    kept = {"flip": flipped, "cut": raw[:50], "empty": b"", "name": named, "no-object": listed}
    kept["version"] = b"ETTRPARK" + raw[8:]
    (tmp_path / "slot-1").write_bytes(kept[damage])
    assert load_from_shm(tmp_path, 1, before=1, world=4) is None


def test_sigterm_ends_also_a_wait_that_begins_after_it(monkeypatch, tmp_path):
    """A rank that is stopped while it forms its group opens connections after that."""
    environment = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    group = TorchrunGroup(folder=tmp_path)
    group._sockets_before = frozenset(open_sockets())
    thread = threading.Thread(target=group._end_waits)
    thread.start()
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
        thread.join(timeout=120)
    assert not thread.is_alive()
