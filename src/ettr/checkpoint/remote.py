"""Copies of a checkpoint folder in object storage: whole at first, then the pieces that changed.

    PREFIX/manifest/00…N.json   the files of one copy: their bytes and pieces; the newest stands
    PREFIX/pieces/SHA256        up to 4 MiB of a file, under the hash of its bytes

Any folder that ettr or DCP wrote can be copied: a full checkpoint, or a running one, of which a
partial save changes a few pieces. Pieces go first, and a manifest is created only where there is
none of its number: a process that is killed leaves the copy that was there, and of two writers one
is refused. Nothing is pickled. A piece counts only once its bytes have the hash that is its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from ettr.errors import CheckpointError, FencedError
from ettr.files import DRAFT_ENDING, flush, private_folder
from ettr.object_storage import TRIES, ObjectStorage, at_once, manifest_name

_FORMAT = "ettr-checkpoint-copy"
_PIECE_BYTES = 4 << 20
_KEPT = 2
"""Copies that stay: a reader of the last but one finds all its pieces."""

Files: TypeAlias = dict[str, list[str]]
"""The pieces of each file, by its path in the folder."""


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """A copy in object storage: its number, and of its pieces and their bytes those sent now."""

    number: int
    n_pieces: int
    n_sent: int
    sent_bytes: int


def upload(folder: str | os.PathLike[str], url: str) -> CheckpointCopy:
    """Copy a checkpoint folder, which nothing may write meanwhile, to a URL such as s3://B/run-7.

    Raises:
        CheckpointError: there is no such folder, it changes, or the storage does not take it.
        FencedError: another process has made a copy meanwhile; this one was not made.
    """
    root, storage = Path(folder), ObjectStorage(url, CheckpointError)
    number, there = _newest(storage)
    before = _stamps_of(root)
    files = {name: _pieces_of(root / name) for name in before}
    known = {piece for pieces in there.values() for piece in pieces}
    wanted: dict[str, tuple[Path, int]] = {}
    for name, pieces in files.items():
        for place, piece in enumerate(pieces):
            if piece not in known:
                wanted.setdefault(piece, (root / name, place * _PIECE_BYTES))
    sizes: list[int] = []

    def send(piece: str) -> None:
        path, offset = wanted[piece]
        data = _piece_at(path, offset)
        if _hash_of(data) != piece:
            raise _changes(root)
        storage.put(f"pieces/{piece}", data)
        sizes.append(len(data))

    # a server that ignores the condition is refused before anything depends on it
    if number < 0:
        if not storage.create(manifest_name(0), _sealed({})):
            raise _fenced(url)
        number = 0
    storage.check_condition(manifest_name(number), _sealed(there))
    at_once(send, wanted)
    if _stamps_of(root) != before:
        raise _changes(root)
    if not storage.create(manifest_name(number + 1), _sealed(files)):
        raise _fenced(url)
    _prune(storage, number + 1)
    n_pieces = len({piece for pieces in files.values() for piece in pieces})
    return CheckpointCopy(number + 1, n_pieces, len(sizes), sum(sizes))


def download(url: str, folder: str | os.PathLike[str]) -> int:
    """Bring the newest copy into a new folder, whole or not at all; its number.

    Raises:
        CheckpointError: there is no copy, a piece is missing or changed, or the folder is there.
    """
    target, storage = Path(folder).absolute(), ObjectStorage(url, CheckpointError)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target}: is there already; give a new or an empty folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(
        tempfile.mkdtemp(prefix=f".{target.name}-", suffix=DRAFT_ENDING, dir=target.parent)
    )
    try:
        for left in reversed(range(TRIES)):
            number, files = _newest(storage)
            if not files:
                raise CheckpointError(
                    f"{url}: there is no checkpoint; `upload` makes a copy of one"
                )
            try:
                at_once(partial(_bring, storage, aside), files.items())
                break
            except FileNotFoundError as error:  # newer copies came meanwhile
                if not left or _newest(storage)[0] == number:
                    raise CheckpointError(f"{url}: a piece is missing: {error}") from None
        aside.replace(target)
        flush(target.parent)
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return number


@contextmanager
def at_hand(place: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder of a checkpoint; of one in object storage a copy, as long as the block lasts."""
    if "://" not in str(place):
        yield Path(place)
        return
    with private_folder() as above:
        download(str(place), above / "checkpoint")
        yield above / "checkpoint"


def _newest(storage: ObjectStorage) -> tuple[int, Files]:
    """Number and files of the newest manifest; -1 where there is none."""
    for _ in range(TRIES):
        number = max(storage.numbers(), default=-1)
        if number < 0:
            return -1, {}
        with suppress(FileNotFoundError):
            return number, _parsed(storage, number)
    raise CheckpointError(f"{storage.url}: changes faster than it can be read; try again")


def _parsed(storage: ObjectStorage, number: int) -> Files:
    name = manifest_name(number)
    try:
        held: Any = json.loads(storage.get(name))
        files: Files = held["files"]
        paths = [PurePosixPath(path) for path in files]
        is_whole = held["format"] == _FORMAT and _sealed(files) == _sealed(files, held["sha256"])
        is_whole = is_whole and not any(p.is_absolute() or ".." in p.parts for p in paths)
    except (ValueError, KeyError, TypeError, AttributeError):
        is_whole = False
    if not is_whole:
        raise CheckpointError(f"{storage.url}/{name}: is damaged, or no copy of a checkpoint")
    return files


def _sealed(files: Files, digest: str = "") -> bytes:
    """A manifest, with the hash of its files unless one is given."""
    text = json.dumps(files, sort_keys=True)
    whole = {"format": _FORMAT, "sha256": digest or _hash_of(text.encode()), "files": files}
    return json.dumps(whole, sort_keys=True).encode()


def _stamps_of(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file below a folder."""
    if not root.is_dir():
        raise CheckpointError(f"{root}: is not a folder; give that of a checkpoint")
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            raise CheckpointError(
                f"{path}: is a symbolic link, which a copy cannot hold; remove it, or copy the "
                "folder that it leads to"
            )
        if path.is_file() and not path.name.endswith(DRAFT_ENDING):
            found[str(path.relative_to(root))] = path.stat().st_size, path.stat().st_mtime_ns
    if not found:
        raise CheckpointError(f"{root}: holds no file; give the folder of a checkpoint")
    return found


def _pieces_of(path: Path) -> list[str]:
    """The hashes of the pieces of a file."""
    places = range(0, path.stat().st_size, _PIECE_BYTES)
    return [_hash_of(_piece_at(path, place)) for place in places]


def _piece_at(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_PIECE_BYTES)


def _bring(storage: ObjectStorage, folder: Path, named: tuple[str, Sequence[str]]) -> None:
    path, pieces = folder / named[0], named[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for piece in pieces:
            for _ in range(TRIES):
                data = storage.get(f"pieces/{piece}")
                if _hash_of(data) == piece:
                    break
            else:
                raise CheckpointError(f"{storage.url}/pieces/{piece}: its bytes have changed")
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _prune(storage: ObjectStorage, number: int) -> None:
    """Remove older copies and the pieces of no copy; a failure is no harm: the next tries again."""
    with suppress(CheckpointError, FileNotFoundError):
        numbers = storage.numbers()
        kept = [one for one in numbers if one > number - _KEPT]
        named = {piece for one in kept for p in _parsed(storage, one).values() for piece in p}
        storage.delete([manifest_name(one) for one in numbers if one not in kept])
        there = [one["path"] for one in storage.listed("pieces/")]
        storage.delete([path for path in there if path.rpartition("/")[2] not in named])


def _hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _changes(root: Path) -> CheckpointError:
    return CheckpointError(
        f"{root}: was written while it was copied; copy between saves (after `wait`), nothing of "
        "this copy counts"
    )


def _fenced(url: str) -> FencedError:
    return FencedError(
        f"{url}: another process has made a copy there meanwhile; give each run, and each rank "
        "that copies a folder of its own, another prefix"
    )
