"""Commands run one after the other, each with its output in a file of its own.

A file appears under its name only when its command has succeeded. It can be read by its owner
alone, and a link of that name is replaced, not followed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, BinaryIO, cast

from ettr.collect.commands import ENVIRONMENT, CollectCommand
from ettr.errors import EttrError
from ettr.files import written_whole

_OWNER_ONLY_FILE, _OWNER_ONLY_FOLDER = 0o600, 0o700
_CHUNK_BYTES = 1 << 20
_LONGEST_MESSAGE = 400
# slurmdbd may look for minutes before the first record comes
WORD_AFTER_S = 60.0
SILENT_FOR_S = 1800.0
_LISTEN_S = 5.0


class CollectError(EttrError):
    """A command that is needed could not be run, or failed."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The outcome of one command: its file's size, or why there is no file.

    `is_empty` says that the command succeeded, and that the period holds no record.
    """

    command: CollectCommand
    path: Path
    size_bytes: int | None = None
    failure: str = ""
    is_empty: bool = False


def collect(
    commands: Iterable[CollectCommand],
    folder: Path,
    environment: Mapping[str, str],
    complain: Callable[[str], None],
) -> list[Collected]:
    """Run the commands in their order.

    Args:
        complain: takes a sentence about each command without which the logs are complete, what the
            commands say on stderr, and that one is silent.

    Raises:
        CollectError: a command that is needed failed. Those after it were not run, and the files
            of those before it are there.
        OSError: a file cannot be written.
    """
    folder.mkdir(mode=_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    done = []
    for command in commands:
        one = _run(command, folder, {**environment, **ENVIRONMENT}, complain)
        if one.failure and command.is_needed:
            raise CollectError(
                f"{one.failure}; {command.file_name} was not written, and what follows it was not "
                "run. Repair that and run the same command again"
            )
        if one.failure:
            complain(f"{one.failure}; left out")
        elif one.is_empty:
            complain(f"{command.words[0]}: no record from then; {command.file_name} is left out")
        done.append(one)
    return done


def _run(
    command: CollectCommand,
    folder: Path,
    environment: Mapping[str, str],
    complain: Callable[[str], None],
) -> Collected:
    path, program = folder / command.file_name, command.words[0]
    try:
        with written_whole(path, _OWNER_ONLY_FILE) as file:
            size_bytes = write_output(command, environment, file, complain)
    except FileNotFoundError as error:
        if error.filename != program:
            raise
        return Collected(command, path, failure=f"{program}: there is no such command on the PATH")
    except CollectError as error:
        return Collected(command, path, failure=str(error))
    if command.holds and not _holds(path, command.holds.encode()):
        path.unlink()
        return Collected(
            command, path, failure=f"{program}: what it printed has no {command.holds} in it"
        )
    if command.has_header and not _has_second_line(path):
        path.unlink()
        return Collected(command, path, is_empty=True)
    return Collected(command, path, size_bytes)


def write_output(
    command: CollectCommand,
    environment: Mapping[str, str],
    file: BinaryIO,
    complain: Callable[[str], None],
) -> int:
    """Write what the command prints; its size.

    Raises:
        CollectError: it failed, or printed what cannot be whole.
        FileNotFoundError: there is no such command.
    """
    program = command.words[0]
    heard = _Said()
    with subprocess.Popen(
        command.words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    ) as process:
        output, errors = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stderr)
        listener = Thread(target=heard.listen, args=(errors,), daemon=True)
        listener.start()
        try:
            size_bytes, last = 0, b""
            for chunk in _chunks(output, program, complain):
                if b"\0" in chunk:
                    raise CollectError(f"{program}: its output is not text")
                file.write(chunk)
                size_bytes, last = size_bytes + len(chunk), chunk
            file.flush()
            status = process.wait(SILENT_FOR_S)
        except subprocess.TimeoutExpired:
            raise CollectError(
                f"{program}: printed all and did not end within {SILENT_FOR_S:g} s"
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            listener.join(_LISTEN_S)
    message = heard.text
    if status:
        raise CollectError(f"{program}: ended with status {status}{message and f': {message}'}")
    if not size_bytes and not command.may_be_empty:
        raise CollectError(f"{program}: printed nothing{message and f', but: {message}'}")
    if size_bytes and not last.endswith(b"\n"):
        raise CollectError(
            f"{program}: what it printed ends within a line, after {size_bytes:,} bytes, so that "
            f"the rest is missing{message and f'; it said: {message}'}"
        )
    if message:
        complain(f"{program}: {message}")
    return size_bytes


class _Said:
    """What a command says on stderr: the beginning is kept, the rest is read and dropped."""

    def __init__(self) -> None:
        self._kept = b""

    def listen(self, pipe: IO[bytes]) -> None:
        while chunk := os.read(pipe.fileno(), _CHUNK_BYTES):
            self._kept += chunk[: _LONGEST_MESSAGE - len(self._kept)]

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace").strip()


def _chunks(pipe: IO[bytes], program: str, complain: Callable[[str], None]) -> Iterator[bytes]:
    """What comes through the pipe; a command that is silent is spoken of, then given up."""
    silent_s = 0.0
    while True:
        ready, _, _ = select.select([pipe], [], [], min(WORD_AFTER_S, SILENT_FOR_S))
        if not ready:
            silent_s += min(WORD_AFTER_S, SILENT_FOR_S)
            if silent_s >= SILENT_FOR_S:
                raise CollectError(
                    f"{program}: printed nothing for {SILENT_FOR_S:g} s and was ended; ask for a "
                    "shorter period, or see whether slurmdbd answers"
                )
            complain(f"{program}: has printed nothing for {silent_s:g} s; waiting")
            continue
        silent_s = 0.0
        chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


def _has_second_line(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(file.readline() and file.readline().strip())


def _holds(path: Path, words: bytes) -> bool:
    """Whether a file has the words in it."""
    before = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if words in before + chunk:
                return True
            before = chunk[-len(words) :]
    return False
