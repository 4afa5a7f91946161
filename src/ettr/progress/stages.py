"""Stages of an input pipeline as lines: what a trace measured of each, for a plan to read.

The training side writes them, the analysis reads them. One JSON object a line: a stage, or the
host (`{"v":1,"host":{...}}`). Standard library only.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ettr.errors import SourceError

VERSION = 1
ENGINES = ("chain", "threads", "workers")


@dataclass(frozen=True, slots=True)
class InputStage:
    """What one stage takes for an item, as a trace measured it.

    `visits` is how often it runs for one item that leaves the pipeline (a batch of 32: 32 before
    it). `wall_s` is the time that a slot of the stage is taken, `cpu_s` of it on a core; both are
    means. `gil_share` is the part of the CPU time in which it holds Python's global lock.
    `read_bytes` are read from disk or network for each item, `out_bytes` are the size of what it
    hands on. `sequential`: it takes one item at a time, whatever its concurrency. `random`: what it
    makes of an item differs from epoch to epoch, so that it cannot be cached. `form` names one of
    several forms of the data: lines of one stage with other forms are alternatives of it.
    """

    run: str
    stage: str
    items: int
    cpu_s: float
    wall_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    read_bytes: float = 0.0
    out_bytes: float = 0.0
    concurrency: int = 1
    occupancy: float = 0.0
    sequential: bool = False
    random: bool = False
    gil_share: float = 1.0
    visits: float = 1.0
    form: str = ""


@dataclass(frozen=True, slots=True)
class InputHost:
    """Where a trace ran, and what its engine takes for itself.

    `engine` is `chain` (one thread), `threads` (SPDL) or `workers` (torch's `DataLoader`).
    `engine_s` is what it takes of the lock for each item and stage, or, for workers, what handing a
    batch over takes of the training loop. `cores` are those that the process may use, `cores_got`
    what a busy process got of them while the trace ran. `rate` is what the pipeline itself made.
    """

    engine: str = "chain"
    engine_s: float = 0.0
    cores: float = 1.0
    cores_got: float = 1.0
    memory_bytes: float | None = None
    worker_bytes: float = 0.0
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class StageTable:
    """The stages of one pipeline in their order; `bad_lines` says what was left out, and why."""

    stages: tuple[InputStage, ...]
    host: InputHost
    bad_lines: tuple[str, ...] = ()


def write_stages(
    path: str | os.PathLike[str], stages: Iterable[InputStage], host: InputHost
) -> None:
    """Write a table of stages.

    Raises:
        SourceError: the file cannot be written.
    """
    lines = [{"v": VERSION, "host": asdict(host)}]
    lines += [{"v": VERSION, **asdict(stage)} for stage in stages]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_stages(path: str | os.PathLike[str]) -> StageTable:
    """A table of stages; a torn or foreign line costs itself alone.

    Raises:
        SourceError: the file cannot be read, or no line of it is a stage.
    """
    stages: list[InputStage] = []
    bad: list[str] = []
    host = InputHost()
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    record = _record(line)
                    if "host" in record:
                        host = _made(InputHost, record["host"])
                        _check(host.engine in ENGINES, f"engine: {host.engine!r}")
                    else:
                        stages.append(_stage(record))
                except (ValueError, TypeError, RecursionError) as error:
                    bad.append(f"{path}, line {number}: {error}")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not stages:
        more = f"; {bad[0]}" if bad else ""
        raise SourceError(
            f"{path}: no line is a stage{more}. Write one with `ettr input trace MODULE:FUNCTION "
            f"-o stages.jsonl`"
        )
    return StageTable(tuple(stages), host, tuple(bad))


def _record(line: bytes) -> dict[str, Any]:
    record = json.loads(line)
    _check(isinstance(record, dict), "no JSON object")
    _check(record.get("v") == VERSION, f"v: {record.get('v')!r}, this reads {VERSION}")
    return dict(record)


def _stage(record: dict[str, Any]) -> InputStage:
    stage: InputStage = _made(InputStage, record)
    for name in ("cpu_s", "wall_s", "p50_s", "p90_s", "p99_s", "read_bytes", "out_bytes", "visits"):
        value = getattr(stage, name)
        _check(0 <= value < math.inf, f"{name}: {value!r}, a finite number of 0 or more")
    _check(stage.items > 0 and stage.concurrency > 0, "items and concurrency are above 0")
    _check(0 <= stage.gil_share <= 1, f"gil_share: {stage.gil_share!r}, between 0 and 1")
    _check(bool(stage.stage), "stage: no name")
    return stage


def _made(kind: Any, record: dict[str, Any]) -> Any:
    known = {item.name: item for item in fields(kind)}
    _check(isinstance(record, dict), "no JSON object")
    given = {name: value for name, value in record.items() if name in known}
    made = kind(**given)
    for name, value in given.items():
        wants = str(known[name].type)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if wants.startswith(("float", "int")):
            is_null = value is None and "None" in wants
            _check(is_number or is_null, f"{name}: {value!r} is not a number")
        elif wants == "bool":
            _check(isinstance(value, bool), f"{name}: {value!r} is neither true nor false")
        else:
            _check(isinstance(value, str), f"{name}: {value!r} is not text")
    return made


def _check(holds: bool, says: str) -> None:
    if not holds:
        raise ValueError(says)
