"""The kernel's lines of a journal, taken out of it after the cursor of the last one.

They are kept in files next to the store, which are read as any log that grows: the last whole line
has the cursor, so that a kill or a full disk loses no line and repeats none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ettr.collect.commands import CollectCommand
from ettr.collect.running import CollectError, write_output

_MOST_BYTES = 8 << 20
_TAIL_BYTES = 1 << 20


def take_journal(
    folder: Path,
    options: Sequence[str],
    now: datetime,
    since: datetime | None,
    complain: Callable[[str], None],
) -> None:
    """Add what came since the last look to the newest piece, or to another if that is large.

    Raises:
        CollectError: journalctl failed, or its output is cut: the next look goes on behind what
            is whole.
        OSError: a piece cannot be written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    after: tuple[str, ...] = () if since is None else (f"--since=@{since.timestamp():.0f}",)
    piece = folder / f"{now.astimezone(UTC):%Y%m%dT%H%M%S%f}.json"
    for newest in sorted(folder.glob("*.json"), reverse=True):
        cursor, size_bytes = _end_of(newest)
        if not size_bytes:
            newest.unlink()  # made just before a kill
            continue
        after = (f"--after-cursor={cursor}",)
        # the newest is the last by name, even where the clock was set back
        later = piece if piece >= newest else newest.with_stem(f"{newest.stem}0")
        piece = newest if size_bytes < _MOST_BYTES else later
        break
    words = ("journalctl", "--quiet", "--no-pager", "--output=json", *options, *after)
    command = CollectCommand(words, piece.name, may_be_empty=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(piece, flags, 0o600), "ab") as file:
        try:
            write_output(command, os.environ, file, complain)
        except FileNotFoundError as error:
            raise CollectError("journalctl: there is no such command on the PATH") from error


def drop_read_pieces(folder: Path) -> None:
    """Remove all pieces but the newest that has a line, whose cursor is the next beginning."""
    with_lines = [path for path in sorted(folder.glob("*.json")) if path.stat().st_size]
    for path in with_lines[:-1]:
        path.unlink()


def _end_of(piece: Path) -> tuple[str, int]:
    """The cursor of the last whole line; what is behind it is cut off. The bytes that stay."""
    with piece.open("r+b") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - _TAIL_BYTES))
        tail = file.read()
        whole, end, _ = tail.rpartition(b"\n")
        size_bytes += len(whole + end) - len(tail)
        file.truncate(size_bytes)
    try:
        last = whole.rpartition(b"\n")[2]
        return str(json.loads(last)["__CURSOR"]) if size_bytes else "", size_bytes
    except (ValueError, KeyError, TypeError):
        raise CollectError(
            f"{piece}: its last line has no cursor; remove it, and journalctl is read from "
            "collect-since"
        ) from None
