"""Commands run one after the other, each with its output in a file of its own.

A file appears under its name only when its command has succeeded. It can be read by its owner
alone, and a link of that name is replaced, not followed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ettr.collect.commands import ENVIRONMENT, CollectCommand
from ettr.errors import EttrError
from ettr.files import written_whole

_OWNER_ONLY_FILE, _OWNER_ONLY_FOLDER = 0o600, 0o700
_CHUNK_BYTES = 1 << 20
_LONGEST_MESSAGE = 400


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
        commands: what to run.
        folder: where the files go; it is made if it is not there.
        environment: variables of the commands; `ENVIRONMENT` is added.
        complain: takes a sentence about each command without which the logs are complete.

    Raises:
        CollectError: a command that is needed failed. Those after it were not run, and the files of
            those before it are there.
        OSError: a file cannot be written.
    """
    folder.mkdir(mode=_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    done = []
    for command in commands:
        one = _run(command, folder, {**environment, **ENVIRONMENT})
        if one.failure and command.is_needed:
            raise CollectError(
                f"{one.failure}; {command.file_name} was not written, and what follows it was not "
                "run. Mend it and run the same command again"
            )
        if one.failure:
            complain(f"{one.failure}; left out")
        elif one.is_empty:
            complain(f"{command.words[0]}: no record from then; {command.file_name} is left out")
        done.append(one)
    return done


def _run(command: CollectCommand, folder: Path, environment: Mapping[str, str]) -> Collected:
    path, program = folder / command.file_name, command.words[0]
    try:
        with written_whole(path, _OWNER_ONLY_FILE) as file:
            process = subprocess.run(
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.PIPE,
                env=dict(environment),
                check=False,
            )
            size_bytes = os.fstat(file.fileno()).st_size
            message = process.stderr.decode("utf-8", "replace").strip()[:_LONGEST_MESSAGE]
            if process.returncode:
                raise CollectError(
                    f"{program}: ended with status {process.returncode}{message and f': {message}'}"
                )
            if not size_bytes:
                raise CollectError(f"{program}: printed nothing{message and f', but: {message}'}")
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
