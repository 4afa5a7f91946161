"""Mutants of the dirty samples of every source, read as a file that a site might send.

Each mutant is a sample made some hundred records long, mutated in one to three of the ways of
`MUTATIONS`, sometimes compressed and mutated again. Half are read by their source's name, half find
their source by content; every twelfth goes into a store as `ettr ingest` does it. `refused`: a
sentence and no rows. `traceback`: any other error. `wrong`: records read are not records kept,
rejected, folded and skipped. `late`: not done in 10 s of processor time. `lost`: most records lost
to one byte that was replaced, beyond the first line.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from campaigns import Table
from ettr.errors import AccountingError, EttrError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.origin import Origin, head_of
from ettr.sources.registry import all_sources, named, recognise
from ettr.store import Ingestion, open_store, write_batches
from ettr.tables import TABLES

TITLE = "Damaged and hostile logs"
SIZE = 280
SEED = 20261122
LATE_S = 10
RECORDS = 200
STORE_EVERY = 12
SAMPLES = Path(__file__).resolve().parents[1] / "tests" / "samples"

Mutation = Callable[[random.Random, bytes], bytes]
_TIMES = [
    b"0001-01-01T00:00:00+23:59",
    b"9999-12-31T23:59:59",
    b"1970-01-01T00:00:00Z",
    b"2026-99-99T00:00:00",
    b"253402300800",
    b"-62135596801",
    b"1e400",
]
_NUMBERS = [b"-1", b"9" * 30, b"9" * 5000, b"1e308", b"NaN", b"-Infinity", b"18446744073709551616"]
_LISTS = [b"x1y[0-199999]", b"n[1-999999999]", b"n[1-", b"n[1-900]x[1-900]", b"@all", b"n[3-1]"]
_TEXTS = [b'"\\ud800"', b'"\\u0000"', b"[]", b"{}", b"null", b"true", b'""', b"'", b'"', b"\x1b[2J"]
# what some pattern of a reader begins with: many of them in a row are its worst line
STARTS = [
    b"Xid (a)", b"nhc", b"1", b"[", b"ERROR: ", b" ", b"\\", b"a.", b"JobId=1 ", b"node n ",
    b"Reason=", b"FaultCode: ", b"2026-01-01T00:00:00 ", b"a|", b"XID 1,", b"key=", b"(", b"a-",
    b"\xff", b"|",
]  # fmt: skip


def _cut(rng: random.Random, data: bytes) -> tuple[int, int]:
    first = rng.randrange(len(data) + 1)
    return first, min(len(data), first + rng.choice((1, 3, 30, 400)))


def _over(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + len(piece) :]


def _at_value(rng: random.Random, data: bytes, values: list[bytes]) -> bytes:
    """A cell or a JSON value replaced, at separators that are there."""
    marks = [at for at, byte in enumerate(data[:20_000]) if byte in b'|,:= "\t']
    if len(marks) < 2:
        return data
    index = rng.randrange(len(marks) - 1)
    return data[: marks[index] + 1] + rng.choice(values) + data[marks[index + 1] :]


def _lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _insert(pieces: list[bytes]) -> Mutation:
    def mutate(rng: random.Random, data: bytes) -> bytes:
        at = rng.randrange(len(data) + 1)
        return data[:at] + rng.choice(pieces) + data[at:]

    return mutate


def _line(pieces: list[bytes]) -> Mutation:
    def mutate(rng: random.Random, data: bytes) -> bytes:
        lines = data.split(b"\n")
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(pieces))
        return b"\n".join(lines)

    return mutate


def _values(values: list[bytes]) -> Mutation:
    return lambda rng, data: _at_value(rng, data, values)


def _recoded(name: str, bom: bool) -> Mutation:
    def mutate(_rng: random.Random, data: bytes) -> bytes:
        text = data.decode("utf-8", "replace")
        return (("\ufeff" if bom else "") + text).encode(name, "replace")

    return mutate


def _long_line(rng: random.Random, data: bytes) -> bytes:
    start = rng.choice(STARTS)
    return _line([start * ((1 << 20) // len(start))])(rng, data)


def _long_tail(rng: random.Random, data: bytes) -> bytes:
    """A megabyte within a line that is good so far."""
    start = rng.choice(STARTS)
    return _insert([start * ((1 << 20) // len(start))])(rng, data)


def _one_byte(rng: random.Random, data: bytes) -> bytes:
    first = data.find(b"\n") + 1 or 1
    at = rng.randrange(min(first, len(data) - 1), len(data))
    return _over(data, at, bytes([rng.choice((0, 9, 34, 44, 123, 125, 91, 92, 128, 255))]))


def _other(rng: random.Random, data: bytes) -> bytes:
    other = rng.choice(sorted(SAMPLES.glob("*/*")))
    return data + b"\n" + other.read_bytes()


MUTATIONS: dict[str, Mutation] = {
    "one byte": _one_byte,
    "noise": lambda rng, data: _over(data, rng.randrange(len(data)), rng.randbytes(8)),
    "cut out": lambda rng, data: data[: (c := _cut(rng, data))[0]] + data[c[1] :],
    "doubled": lambda rng, data: data[: (c := _cut(rng, data))[1]] + data[c[0] :],
    "cut off": lambda rng, data: data[: rng.randrange(len(data))],
    "NUL": _insert([b"\x00", b"\x00" * 50]),
    "bad UTF-8": _insert([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x80" * 9]),
    "deep array": _line([b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000]),
    "deep object": _line([b'{"a":' * 100_000, b'{"v":1,"run":' * 50_000]),
    "quotes": _insert([b'"', b'""', b'"a\nb', b"'"]),
    "brackets": _insert([b"{", b"}", b"[", b"]", b"},{"]),
    "separators": _insert([b"|", b",", b";", b"\t", b"\x1f", b"||||"]),
    "line breaks": _insert([b"\n", b"\r", b"\r\n", b"\x0b", b"\x0c", b"\xe2\x80\xa8"]),
    "times": _values(_TIMES),
    "numbers": _values(_NUMBERS),
    "node lists": _values(_LISTS),
    "texts": _values(_TEXTS),
    "long line": _long_line,
    "long text": _long_tail,
    "shuffled": _lines,
    "one line": lambda _rng, data: data.replace(b"\n", b" "),
    "another log": _other,
    "UTF-16": _recoded("utf-16-le", True),
    "UTF-16 without mark": _recoded("utf-16-be", False),
    "UTF-32": _recoded("utf-32-le", True),
    "Latin-1": _recoded("latin-1", False),
}
COMPRESS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    bz2.compress,
    lzma.compress,
    lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
)


class _Nowhere(Ingestion):
    """Takes rows as a store does, and keeps none."""

    def write(self, name: str, rows: pa.Table) -> None:
        TABLES[name].check(rows).validate(full=True)

    def commit(self, file_row: dict[str, Any], distinct: Collection[str] = ()) -> None:
        """Nothing to keep."""


@dataclass
class Outcome:
    """What became of the mutants of one source."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    lost: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """One dirty sample, made long, with the options of its twin and what reading it keeps."""

    source: str
    path: Path
    data: bytes
    options: ReadOptions
    kept: int


def run(size: int) -> Table:
    """`size` mutants of each source."""
    outcomes = {name: mutants(name, size) for name in all_sources()}
    rows = [_row(name, outcome) for name, outcome in outcomes.items()]
    total = Outcome()
    for outcome in outcomes.values():
        total.counts += outcome.counts
        total.slowest_s = max(total.slowest_s, outcome.slowest_s)
        total.lost = max(total.lost, outcome.lost)
        for text in outcome.failures:
            print(text)
    rows.append(_row("all", total))
    return Table(
        ("source", "mutants", "read", "refused", "traceback", "wrong", "late", "slowest s", "lost"),
        tuple(rows),
        f"random.Random(f'{SEED} SOURCE NUMBER')",
        "0 tracebacks, 0 wrong equations, 0 late",
    )


def _row(name: str, outcome: Outcome) -> tuple[str, ...]:
    kinds = ("mutants", "read", "refused", "traceback", "wrong", "late")
    counts = (str(outcome.counts[kind]) for kind in kinds)
    return (name, *counts, f"{outcome.slowest_s:.1f}", str(outcome.lost))


def mutants(source: str, size: int) -> Outcome:
    """Read `size` mutants of one source's samples."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="ettr-fuzz-") as folder:
        twins = sorted((SAMPLES / source).glob("*.expected.json"))
        loaded = [load_sample(source, twin, Path(folder)) for twin in twins]
        for number in range(size):
            rng = random.Random(f"{SEED} {source} {number}")  # noqa: S311
            _one(rng, number, loaded[number % len(loaded)], Path(folder), outcome)
    return outcome


def load_sample(source: str, twin: Path, folder: Path) -> Sample:
    """A sample made long, with its options and the records that it keeps."""
    path = twin.with_name(twin.name.removesuffix(".expected.json"))
    given = json.loads(twin.read_text())["options"]
    if "start" in given:
        given["start"] = datetime.fromisoformat(given["start"])
    options = ReadOptions(**({"timezone": "UTC"} | given))
    data = path.read_bytes()
    if named(source).tables:  # others, a note of the site, hold no records
        data = _long(data)
    whole = folder / f"whole-{path.name}"
    whole.write_bytes(data)
    kept = read_sample(whole, source, options)
    return Sample(source, path, data, options, kept)


def _long(data: bytes) -> bytes:
    """The sample with its records repeated; JSON on one line, as tools write it."""
    try:
        value = json.loads(data)
    except ValueError:
        return (data.rstrip(b"\n") + b"\n") * max(1, RECORDS // (data.count(b"\n") + 1))
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, list) and inner:
                value[key] = inner * (RECORDS // len(inner) + 1)
    elif isinstance(value, list):
        value = value * (RECORDS // max(len(value), 1) + 1)
    return json.dumps(value).encode()


def _one(rng: random.Random, number: int, sample: Sample, folder: Path, outcome: Outcome) -> None:
    """Make one mutant, read it, and count what became of it."""
    kinds = rng.sample(sorted(MUTATIONS), rng.choice((1, 1, 2, 3)))
    if number % 7 == 0:
        kinds = ["one byte"]
    data = sample.data
    for kind in kinds:
        data = MUTATIONS[kind](rng, data) if data else data
    if rng.random() < 0.15:
        data = rng.choice(COMPRESS)(data)
        if rng.random() < 0.7:
            data = rng.choice((_one_byte, MUTATIONS["cut off"]))(rng, data)
    path = folder / sample.path.name
    path.write_bytes(data)
    name = sample.source if number % 2 else None
    began = time.perf_counter()
    kind, kept, text = _outcome(path, name, sample.options, folder, number % STORE_EVERY == 0)
    outcome.slowest_s = max(outcome.slowest_s, time.perf_counter() - began)
    outcome.counts[kind] += 1
    outcome.counts["mutants"] += 1
    if kinds == ["one byte"] and kind == "read":
        outcome.lost = max(outcome.lost, sample.kept - kept)
    if text:
        outcome.failures.append(f"{sample.source} {number} {kinds}: {text}")


def _outcome(
    path: Path, name: str | None, options: ReadOptions, folder: Path, by_store: bool
) -> tuple[str, int, str]:
    """What became of a mutant, the records kept, and what to print of a failure."""
    try:
        with _alarm(LATE_S):
            if by_store:
                return "read", _ingest(path, name, options, folder), ""
            return "read", read_sample(path, name, options), ""
    except AccountingError as error:
        return "wrong", 0, str(error)
    except EttrError:
        return "refused", 0, ""
    except TimeoutError:
        return "late", 0, traceback.format_exc(limit=-3)
    except BaseException:  # whatever it is: it is what the campaign looks for
        return "traceback", 0, traceback.format_exc(limit=-4)


def read_sample(path: Path, name: str | None, options: ReadOptions) -> int:
    """Read a file as ingest does, without a store; returns the records kept."""
    head = head_of(path)
    source = named(name) if name else recognise(head, path.name)
    source.prints_local(head)
    written = write_batches(_Nowhere(), source.read(Origin(path, "f", head), options))
    return written.rows_kept


def _ingest(path: Path, name: str | None, options: ReadOptions, folder: Path) -> int:
    with (
        tempfile.TemporaryDirectory(dir=folder) as inner,
        open_store(f"{inner}/store", create=True) as store,
    ):
        done = ingest_file(store, path, options, name)
        return done.rows_kept or 0


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def late(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
