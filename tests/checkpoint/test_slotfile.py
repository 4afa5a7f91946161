"""The slot file without torch: geometry, rounds, tears, fencing, damage."""

import errno
import itertools
import os
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError, FencedError, block_ages, fence, verify
from ettr.checkpoint.slots.durable_io import OsDisk, slot_folder
from ettr.checkpoint.slots.format import HEADER_BYTES, digest_function
from ettr.checkpoint.slots.layout import BlockSpec, Component, SlotLayout, TensorSpec
from ettr.checkpoint.slots.reader import PayloadReader, last_rounds, open_slot
from ettr.checkpoint.slots.writer import SlotWriter
from synced import synced_paths

N_BLOCKS, ROWS = 5, 24


def small_layout() -> SlotLayout:
    spec = TensorSpec("w", (N_BLOCKS * ROWS,), (Component("param", "float32"),))
    return SlotLayout((spec,), tuple(BlockSpec(0, (i * ROWS,), (ROWS,)) for i in range(N_BLOCKS)))


def payload_of(block: int, step: int) -> bytes:
    return bytes([(block * 31 + step * 7 + i) % 256 for i in range(ROWS * 4)])


def write_round(writer: SlotWriter, step: int, blocks=range(N_BLOCKS)) -> None:
    writer.begin_round()
    for block in blocks:
        writer.write(block, step, memoryview(bytearray(HEADER_BYTES) + payload_of(block, step)))
    writer.commit(list(blocks))


def newest(root: Path, name: str = "0") -> dict[int, int | None]:
    """Block -> step of its newest good record; asserts that its bytes are of that step."""
    found: dict[int, int | None] = dict.fromkeys(range(N_BLOCKS))
    reader = PayloadReader()
    with open_slot(root, name) as slot:
        for key, records in slot.records.items():
            block = key[1][0] // ROWS
            for record in records:
                payload = reader.read(record)
                if payload is not None:
                    assert bytes(payload) == payload_of(block, record.header.step)
                    found[block] = record.header.step
                    break
    return found


class TornDisk(OsDisk):
    """Lets `limit` bytes through, then fails every call: what a kill leaves behind."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        if self.left <= 0:
            raise OSError(28, "No space left on device")
        n = os.pwrite(fd, data[: self.left], offset)
        self.left -= n
        return n

    def fdatasync(self, fd: int) -> None:
        if self.left <= 0:
            raise OSError(5, "Input/output error")


@pytest.mark.parametrize("checksum", ["xxh3", "crc32"])
def test_what_is_committed_is_read_back(tmp_path: Path, checksum: str) -> None:
    writer = SlotWriter.create(slot_folder(tmp_path, 0), small_layout(), checksum=checksum)
    write_round(writer, 1)
    write_round(writer, 2, [0, 3])
    write_round(writer, 3, [3])
    writer.close()
    assert newest(tmp_path) == {0: 2, 1: 1, 2: 1, 3: 3, 4: 1}
    assert verify(tmp_path) == []
    assert [age.step for age in block_ages(tmp_path)] == [2, 1, 1, 3, 1]


def test_a_kill_at_every_byte_of_a_round(tmp_path: Path) -> None:
    record = HEADER_BYTES + ROWS * 4
    for limit in range(0, N_BLOCKS * record + 1, 8):
        root = tmp_path / str(limit)
        disk = TornDisk(10**9)
        writer = SlotWriter.create(slot_folder(root, 0), small_layout(), disk=disk)
        write_round(writer, 1)
        write_round(writer, 2, [1, 2])
        disk.left = limit
        # At the last limit the whole round fits and only the flush fails.
        with pytest.raises(OSError, match=r"No space|Input/output"):
            write_round(writer, 3)
        writer.close()
        whole = limit // record
        old = {0: 1, 1: 2, 2: 2, 3: 1, 4: 1}
        assert newest(root) == {b: 3 if b < whole else old[b] for b in range(N_BLOCKS)}
        assert not any(bad.lost for bad in verify(root))


def test_after_a_failed_round_the_good_copy_is_still_spared(tmp_path: Path) -> None:
    disk = TornDisk(10**9)
    writer = SlotWriter.create(slot_folder(tmp_path, 0), small_layout(), disk=disk)
    write_round(writer, 1)
    for step in (2, 3, 4):
        disk.left = 100
        with pytest.raises(OSError, match="No space"):
            write_round(writer, step)
        assert newest(tmp_path) == dict.fromkeys(range(N_BLOCKS), 1)
    disk.left = 10**9
    write_round(writer, 5)
    writer.close()
    assert newest(tmp_path) == dict.fromkeys(range(N_BLOCKS), 5)


@pytest.mark.slow
def test_every_flipped_bit_of_the_file_is_noticed_or_harmless(tmp_path: Path) -> None:
    writer = SlotWriter.create(slot_folder(tmp_path, 0), small_layout())
    write_round(writer, 1)
    write_round(writer, 2)
    writer.close()
    path = next(slot_folder(tmp_path, 0).glob("blocks-*"))
    whole = path.read_bytes()
    for at, bit in itertools.product(range(0, len(whole), 61), (0, 5)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << bit
        path.write_bytes(flipped)
        found = newest(tmp_path)
        assert all(step in {1, 2} for step in found.values())
        assert list(found.values()).count(1) <= 1
        assert bool(list(found.values()).count(1)) <= bool(verify(tmp_path))


def test_truncation_costs_the_tail_only(tmp_path: Path) -> None:
    writer = SlotWriter.create(slot_folder(tmp_path, 0), small_layout())
    write_round(writer, 1)
    write_round(writer, 2)
    writer.close()
    path = next(slot_folder(tmp_path, 0).glob("blocks-*"))
    end_of_b = writer.geometry.offset(N_BLOCKS - 1, 1) + HEADER_BYTES + ROWS * 4
    os.truncate(path, end_of_b - 1)
    assert newest(tmp_path) == {0: 2, 1: 2, 2: 2, 3: 2, 4: 1}
    os.truncate(path, writer.geometry.offset(0, 1))
    assert newest(tmp_path) == dict.fromkeys(range(N_BLOCKS), 1)
    os.truncate(path, 10)
    assert newest(tmp_path) == dict.fromkeys(range(N_BLOCKS), None)
    assert [bad.reason for bad in verify(tmp_path)] == [
        "superblock: both copies are damaged, nothing of this generation can be read"
    ]


def test_a_damaged_head_is_read_from_the_tail(tmp_path: Path) -> None:
    writer = SlotWriter.create(slot_folder(tmp_path, 0), small_layout())
    write_round(writer, 1)
    writer.close()
    path = next(slot_folder(tmp_path, 0).glob("blocks-*"))
    with path.open("r+b") as file:
        file.write(b"\0" * 300)
    assert newest(tmp_path) == dict.fromkeys(range(N_BLOCKS), 1)


def test_a_medium_that_cannot_give_a_header_is_a_bad_record(tmp_path: Path, monkeypatch) -> None:
    writer = SlotWriter.create(slot_folder(tmp_path, 0), small_layout())
    for step in (1, 2):
        write_round(writer, step)
    unreadable = {0, writer.geometry.offset(3, 1)}  # the superblock's head, and a newest header
    writer.close()
    real = os.pread

    def pread(fd: int, n_bytes: int, offset: int) -> bytes:
        if offset in unreadable:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, n_bytes, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert newest(tmp_path) == {0: 2, 1: 2, 2: 2, 3: 1, 4: 2}
    assert [(bad.offsets, bad.place, bad.lost) for bad in verify(tmp_path)] == [
        ((3 * ROWS,), "B", False)
    ]


def test_a_reader_whom_a_takeover_overtakes_starts_over(tmp_path: Path, monkeypatch) -> None:
    """The files are listed; then a successor has every block, and the file before it goes."""
    folder = slot_folder(tmp_path, 0)
    writer = SlotWriter.create(folder, small_layout())
    write_round(writer, 1)
    successor = SlotWriter.create(folder, small_layout())
    real = os.open

    def overtaken(path, *args):
        if str(path).endswith("blocks-00000001.bin"):
            monkeypatch.undo()
            write_round(successor, 2)
            Path(path).unlink()
        return real(path, *args)

    monkeypatch.setattr(os, "open", overtaken)
    assert newest(tmp_path) == dict.fromkeys(range(N_BLOCKS), 2)
    writer.close()
    successor.close()


def test_the_names_of_new_folders_are_durable(tmp_path: Path, monkeypatch) -> None:
    synced = synced_paths(monkeypatch)
    root = tmp_path / "run" / "checkpoints"
    SlotWriter.create(slot_folder(root, 0), small_layout()).close()
    assert {tmp_path, tmp_path / "run", root, root / "slot-0"} <= set(synced)


def test_a_later_generation_shuts_the_earlier_one_out(tmp_path: Path) -> None:
    folder = slot_folder(tmp_path, (0, 1))
    assert folder.name == "slot-0-1"
    zombie = SlotWriter.create(folder, small_layout())
    write_round(zombie, 10)
    zombie.begin_round()  # past the check: stopped here, taken for dead
    with open_slot(tmp_path, "0-1") as slot:
        trusted = last_rounds(slot)
    successor = SlotWriter.create(folder, small_layout(), inherits=trusted)
    write_round(successor, 8, [0])  # went back, and has saved one block since
    for block in range(N_BLOCKS):  # the zombie wakes up
        record = bytearray(HEADER_BYTES) + payload_of(block, 11)
        zombie.write(block, 11, memoryview(record))
    zombie.commit(list(range(N_BLOCKS)))
    assert newest(tmp_path, "0-1") == {0: 8, 1: 10, 2: 10, 3: 10, 4: 10}
    with pytest.raises(FencedError, match="generation 2 owns this slot, this process has 1"):
        zombie.begin_round()


def test_a_fence_needs_no_successor(tmp_path: Path) -> None:
    writer = SlotWriter.create(slot_folder(tmp_path, 3), small_layout(), generation=5)
    write_round(writer, 1)
    assert fence(tmp_path, 3) == 6
    with pytest.raises(FencedError, match="it was replaced and must end"):
        write_round(writer, 2)
    with pytest.raises(FencedError, match="generation 5 was given and generation 6 has it"):
        SlotWriter.create(slot_folder(tmp_path, 3), small_layout(), generation=5)
    successor = SlotWriter.create(slot_folder(tmp_path, 3), small_layout(), generation=6)
    with pytest.raises(FencedError, match="generation 6 was given and generation 6 has it"):
        SlotWriter.create(slot_folder(tmp_path, 3), small_layout(), generation=6)
    write_round(successor, 2)


def test_no_room_is_said_before_training_starts(tmp_path: Path) -> None:
    huge = SlotLayout(
        (TensorSpec("w", (1 << 50,), (Component("param", "float32"),)),),
        (BlockSpec(0, (0,), (1 << 50,)),),
    )
    with pytest.raises(CheckpointError, match=r"cannot make a slot file of 9007199254.* bytes"):
        SlotWriter.create(slot_folder(tmp_path, 0), huge)
    assert list(slot_folder(tmp_path, 0).iterdir()) == []


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"slot: '\.\./x' was given"):
        slot_folder(tmp_path, "../x")
    with pytest.raises(CheckpointError, match="checksum: 'md5' was given; give one of xxh3"):
        digest_function("md5")
    with pytest.raises(CheckpointError, match="no running checkpoint here"):
        verify(tmp_path)


def test_checksums_are_the_published_ones() -> None:
    # CRC-32 check value of "123456789"; XXH3-64 of the empty input from its specification.
    assert digest_function("crc32")(b"123456789") == 0xCBF43926
    assert digest_function("xxh3")(b"") == 0x2D06800538D394C2
