"""Commands run one after the other, each with its output in a file of its own.

A file appears under its name only when its command has succeeded. It can be read by its owner
alone, and a link of that name is replaced, not followed.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, BinaryIO, cast

from ettr.errors import EttrError, UsageError
from ettr.facts.opening import facts_of_store
from ettr.files import written_whole
from ettr.store import Store
from ettr.store.opening import on_duckdb
from ettr.units import MICROSECONDS_PER_SECOND

# -- the commands that write a site's logs, as lists of words, and the period to collect -----------


# times in UTC and in the one form that is read, whatever the site's shells set
ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
# a longer period is asked for in pieces, as one answer of slurmdbd is held in memory
LONGEST_PIECE = timedelta(days=31)

_CLUSTER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
_EVENT_FORMAT = "Format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"


@dataclass(frozen=True, slots=True)
class CollectCommand:
    """A command whose output is a log.

    Attributes:
        holds: words that an answer of use has; empty: any answer.
        has_header: whether the first line names columns, so that an answer of one line is of no
            record.
    """

    words: tuple[str, ...]
    file_name: str
    is_needed: bool = True
    holds: str = ""
    has_header: bool = False
    may_be_empty: bool = False

    def shell_lines(self, folder: Path) -> list[str]:
        """The command as lines of a shell script, each word quoted.

        The file has another name until it is whole, and is left out where it is of no use.
        """
        settings = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        draft, target = (
            shlex.quote(str(folder / name)) for name in (f".{self.file_name}.part", self.file_name)
        )
        failed = "exit 1" if self.is_needed else "true"
        nothing = shlex.quote(f"{self.words[0]}: no record from then; {self.file_name} is left out")
        is_of_use = f"[ -s {draft} ]"
        if self.holds:
            is_of_use = f"grep -q -e {shlex.quote(self.holds)} -- {draft}"
        elif self.has_header:
            is_of_use = f'[ "$(wc -l < {draft})" -gt 1 ]'
        cut = shlex.quote(
            f"{self.words[0]}: its output ends within a line; {self.file_name} is cut"
        )
        return [
            f"{settings} {shlex.join(self.words)} > {draft} || {failed}",
            f'if [ -n "$(tail -c 1 -- {draft})" ]; then : > {draft}; echo {cut} >&2; {failed}; fi',
            f"if {is_of_use}; then mv -- {draft} {target}",
            f"else rm -- {draft}; echo {nothing} >&2; fi",
        ]


def collect_commands(
    since: datetime, until: datetime, cluster: str | None = None
) -> tuple[CollectCommand, ...]:
    """What to run, in this order; accounting last, since its end says where the next time begins.

    Raises:
        UsageError: the period holds no time, or no cluster can have the name.
    """
    if since >= until:
        raise UsageError(
            f"the period from {_time(since)} until {_time(until)} holds no time; give a --since "
            "before --until"
        )
    if cluster is not None and not _CLUSTER.fullmatch(cluster):
        raise UsageError(
            f"--cluster {cluster[:80]!r}: give the name of a cluster as sacctmgr shows it, of "
            "letters, digits, dots, dashes and underscores"
        )
    of_cluster = () if cluster is None else ("-M", cluster)
    of_events = () if cluster is None else (f"Clusters={cluster}",)
    name = "" if cluster is None else f"{cluster}-"
    period = f"{name}{_stamp(since)}-{_stamp(until)}"
    events = ("sacctmgr", "-P", "show", "event", *of_events, f"Start={_time(since)}")
    return (
        CollectCommand(
            (*events, f"End={_time(until)}", _EVENT_FORMAT), f"events-{period}.psv", has_header=True
        ),
        CollectCommand(
            ("scontrol", *of_cluster, "show", "node"), f"nodes-{name}{_stamp(until)}.txt"
        ),
        CollectCommand(
            ("scontrol", *of_cluster, "show", "topology"),
            f"topology-{name}{_stamp(until)}.txt",
            is_needed=False,
            holds="SwitchName=",
        ),
        *(
            CollectCommand(
                ("sacct", *of_cluster, "-a", "-D", "-P", *_span(begin, end), "-o", "ALL"),
                f"sacct-{name}{_stamp(begin)}-{_stamp(end)}.psv",
                has_header=True,
            )
            for begin, end in _pieces(since, until)
        ),
    )


def by_hand(since: datetime) -> tuple[tuple[str, str], ...]:
    """What no command on this machine writes: what it is, and how to get it."""
    return (
        (
            "kernel log of each node",
            f"journalctl -k -o json --no-pager --since '{since:%Y-%m-%d %H:%M:%S} UTC' > NODE.json",
        ),
        (
            "log of slurmctld, whose path this prints; its stamps are in the controller's zone",
            "scontrol show config | grep SlurmctldLogFile",
        ),
    )


def _pieces(since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    begins = [since]
    while begins[-1] + LONGEST_PIECE < until:
        begins.append(begins[-1] + LONGEST_PIECE)
    return list(zip(begins, [*begins[1:], until], strict=True))


def _span(begin: datetime, end: datetime) -> tuple[str, ...]:
    return "-S", _time(begin), "-E", _time(end)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%SZ}"


# -- Where a collection begins: behind what a store knows, less an overlap ------------------------


@dataclass(frozen=True, slots=True)
class CollectPeriod:
    """From when until when, in UTC, and why from then."""

    since: datetime
    until: datetime
    basis: str


def period_after(
    store: Store, name: str, until: datetime, overlap: timedelta, cluster: str | None = None
) -> CollectPeriod:
    """From the last time of the store's accounting, less an overlap.

    sacct shows each job that ran at any time of a period, so that jobs which were running at the
    last time are shown again, with their ends; the overlap is for records that slurmdbd got late.

    Raises:
        UsageError: the store has no attempt (of that cluster), attempts of several clusters, or
            one that lies in the future.
    """
    last = _last_times(store)
    if cluster is None and len(last) > 1:
        raise UsageError(
            f"{name}: has the clusters {', '.join(sorted(last))}, each with a last time of its "
            "own; say which with --cluster"
        )
    chosen = last.get(cluster) if cluster is not None else next(iter(last.values()), None)
    if chosen is None:
        of_cluster = "" if cluster is None else f" of the cluster {cluster}"
        raise UsageError(
            f"{name}: has no accounting{of_cluster} yet; give the start of the period with --since"
        )
    if chosen > until:
        raise UsageError(
            f"{name}: has an attempt at {_utc(chosen)}, which is after the end of the period, "
            f"{_utc(until)}; give the start of the period with --since"
        )
    basis = f"{_utc(chosen)}, the last time of the accounting in {name}, less the overlap"
    return CollectPeriod(chosen - overlap, until, basis)


def _last_times(store: Store) -> dict[str, datetime]:
    """The latest time of an attempt, by cluster."""
    found: dict[str, datetime] = {}
    for row in facts_of_store(on_duckdb(store)).rows("last_times"):
        times_us = [
            row[name] for name in ("submit_us", "start_us", "end_us") if row[name] is not None
        ]
        if times_us:
            seconds = max(times_us) // int(MICROSECONDS_PER_SECOND)
            found[row["cluster"]] = datetime.fromtimestamp(seconds, UTC)
    return found


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


# -- commands run one after the other, each with its output in a file of its own -------------------


_OWNER_ONLY_FILE, _OWNER_ONLY_FOLDER = 0o600, 0o700
_CHUNK_BYTES = 1 << 20
_LONGEST_MESSAGE = 400
# slurmdbd may look for minutes before the first record comes
WORD_AFTER_S = 60.0
SILENT_FOR_S = 1800.0


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
    if command.holds and command.holds.encode() not in path.read_bytes():
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
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(environment),
            start_new_session=True,
        ) as process,
    ):
        output = cast("IO[bytes]", process.stdout)
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
        errors.seek(0)
        message = errors.read(_LONGEST_MESSAGE).decode("utf-8", "replace").strip()
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
