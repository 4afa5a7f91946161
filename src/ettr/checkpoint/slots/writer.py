"""Writing the file of one generation of one slot. Standard library only.

See `format` for the file and `ownership` for generations and fencing.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ettr.checkpoint.slots.durable_io import (
    Disk,
    OsDisk,
    generations_of_other_slots,
    latest_generation,
    make_folder,
    slot_file_name,
    slot_files,
    slot_of,
)
from ettr.checkpoint.slots.format import (
    FOOTER,
    HEADER_BYTES,
    MAGIC,
    Geometry,
    RecordHeader,
    Superblock,
    default_checksum,
    digest_function,
    geometry,
    pack_header,
    pack_superblock,
)
from ettr.checkpoint.slots.layout import RESERVED, SlotLayout
from ettr.errors import CheckpointError, FencedError
from ettr.files import flush, new_file


class SlotWriter:
    """Writes rounds of blocks into the file of one generation of one slot.

    Use `create`. Not for several threads at once.
    """

    def __init__(
        self, folder: Path, fd: int, superblock: Superblock, places: Geometry, disk: Disk
    ) -> None:
        self.folder, self.superblock, self.geometry = folder, superblock, places
        self.seq = 0
        self.written_bytes = 0
        self._fd, self._disk = fd, disk
        self._newest_place: list[int | None] = [None] * len(superblock.layout.blocks)
        self._digest = digest_function(superblock.checksum)

    @classmethod
    def create(
        cls,
        folder: Path,
        layout: SlotLayout,
        *,
        generation: int | None = None,
        checksum: str | None = None,
        inherits: dict[int, int] | None = None,
        world: int | None = None,
        run: str | None = None,
        disk: Disk | None = None,
        sparse: bool = False,
    ) -> SlotWriter:
        """Make the file of a new generation, both copies of the superblock durable in it."""
        try:
            make_folder(folder)
        except OSError as error:
            raise CheckpointError(
                f"{folder}: cannot make it: {error.strerror}; choose another folder"
            ) from error
        latest = latest_generation(folder)
        chosen = latest + 1 if generation is None else generation
        if chosen < latest or (chosen == latest and latest in slot_files(folder)):
            raise FencedError(
                f"{folder}: generation {chosen} was given and generation {latest} has it; "
                f"this process was replaced and must end"
            )
        superblock = Superblock(
            int.from_bytes(os.urandom(8), "little"),
            chosen,
            checksum or default_checksum(),
            layout,
            inherits or {},
            generations_of_other_slots(folder),
            slot=slot_of(folder),
            world=world,
            run=run,
        )
        raw = pack_superblock(superblock)
        places = geometry(layout, len(raw))
        fd = _publish(folder, folder / slot_file_name(chosen), raw, places, sparse=sparse)
        return cls(folder, fd, superblock, places, disk or OsDisk())

    @property
    def covered(self) -> bool:
        """Whether every block of a tensor has a durable record in this file."""
        layout = self.superblock.layout
        return all(
            place is not None or layout.key(block)[0] in RESERVED
            for block, place in enumerate(self._newest_place)
        )

    def begin_round(self) -> None:
        """Start a round."""
        self.check_owner()
        self.seq += 1

    def check_owner(self) -> None:
        """Pass if no later generation owns or fences the slot."""
        latest = latest_generation(self.folder)
        if latest > self.superblock.generation:
            raise FencedError(
                f"{self.folder}: generation {latest} owns this slot, this process has "
                f"{self.superblock.generation}; it was replaced and must end"
            )

    def write(self, block: int, step: int, record: memoryview) -> None:
        """Write one block: `record` is 64 bytes of room for the header, then the payload."""
        payload = record[HEADER_BYTES:]
        header = RecordHeader(
            block, self.superblock.generation, step, self.seq, len(payload), self._digest(payload)
        )
        packed = pack_header(self.superblock.file_id, self.superblock.checksum, header)
        record[:HEADER_BYTES] = packed
        offset = self.geometry.offset(block, self._free_place(block))
        while record:
            n_bytes = self._disk.pwrite(self._fd, record, offset)
            self.written_bytes += n_bytes
            offset += n_bytes
            record = record[n_bytes:]

    def commit(self, blocks: list[int]) -> None:
        """Make the round durable; only then do its records count as the newest of these blocks."""
        self._disk.fdatasync(self._fd)
        for block in blocks:
            self._newest_place[block] = self._free_place(block)

    def drop_earlier_files(self) -> None:
        """Remove the files of earlier generations; all their blocks are durable in this one."""
        for generation, path in slot_files(self.folder).items():
            if generation < self.superblock.generation:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _free_place(self, block: int) -> int:
        newest = self._newest_place[block]
        return 0 if newest is None else 1 - newest


def _publish(folder: Path, path: Path, superblock: bytes, places: Geometry, *, sparse: bool) -> int:
    # Written aside and linked: a file of that name is complete, and the second of two processes
    # that want the same generation finds the name taken.
    _remove_left_overs(folder)
    aside = folder / f".{path.name}.{os.urandom(8).hex()}"
    try:
        fd = new_file(aside, 0o644)
    except OSError as error:
        raise CheckpointError(_no_file(folder, places, error)) from error
    try:
        with suppress(OSError):  # no locks here: others may take it for a left-over
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _fill(fd, superblock, places, sparse=sparse)
        os.link(aside, path)
    except FileExistsError as error:
        os.close(fd)
        raise FencedError(f"{path}: another process took this generation first") from error
    except OSError as error:
        os.close(fd)
        raise CheckpointError(_no_file(folder, places, error)) from error
    finally:
        aside.unlink(missing_ok=True)
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    flush(folder)
    return fd


def _fill(fd: int, superblock: bytes, places: Geometry, *, sparse: bool) -> None:
    if sparse:
        os.ftruncate(fd, places.file_bytes)
    else:
        os.posix_fallocate(fd, 0, places.file_bytes)
    os.pwrite(fd, superblock, 0)
    os.pwrite(fd, superblock, places.tail_offset)
    footer = FOOTER.pack(places.tail_offset, MAGIC)
    os.pwrite(fd, footer, places.file_bytes - FOOTER.size)
    os.fsync(fd)


def _remove_left_overs(folder: Path) -> None:
    """Remove the files of processes that were killed while they made one; those hold no lock."""
    for left in folder.glob(".blocks-*"):
        try:
            fd = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # gone meanwhile, or of another user
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink(missing_ok=True)
        except OSError:
            pass  # a process that lives is making it
        finally:
            os.close(fd)


def _no_file(folder: Path, places: Geometry, error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
        return (
            f"{folder}: cannot make a slot file: the file system has no hard links "
            f"({error.strerror}); choose another folder"
        )
    return (
        f"{folder}: cannot make a slot file of {places.file_bytes} bytes (two places for each "
        f"block): {error.strerror}; free that much or choose another folder"
    )
