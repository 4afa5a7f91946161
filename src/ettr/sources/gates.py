"""Checks of training runs: `ettr gate ... --json`, JSON lines, or CSV of the table's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import head_objects
from ettr.sources.lines import BadRecordError, cells_of, csv_lines, first_texts, json_part
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import time_of
from ettr.tables.rows import TEXT_LIMIT, Batch, clean
from ettr.tables.schemas import REDUNDANT_WORK

NAME = "gates"
_NEEDED = ("run", "gate", "kind")
_NUMBERS = ("value", "low", "high", "gpu_hours")
_GRADE = "ettr-gate-grade"
_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "passed"), True),
    **dict.fromkeys(("false", "0", "no", "failed"), False),
}
_MOST = 1e15
_CELL_LIMIT = 200

Record = Mapping[str, Any]


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """A row of `gates` for each check.

    Raises:
        SourceError: the header of a CSV lacks the run, the gate or the kind.
    """
    rows = LogRows(NAME, origin, options)
    if json_part(origin.head):
        yield from rows.each_object(lambda line, document: _keep(rows, line, _row_of(document)))
    else:
        header, lines = csv_lines(origin)
        names = [name.lower() for name in header]
        if missing := [name for name in _NEEDED if name not in names]:
            raise SourceError(f"{origin}: no checks of runs: no column for {', '.join(missing)}")
        yield from rows.each_row(partial(_keep, rows), names, lines)
    yield rows.batch()


def _row_of(document: Record) -> Record:
    """The row that an answer of `ettr gate` is; a row as it is."""
    if document.get("format") == _GRADE:
        return _of_grade(document)
    mass = document.get("mass")
    if document.get("gate") == "query" and isinstance(mass, dict):
        words = (f"{key} {document[key]}" for key in ("model", "ended") if document.get(key))
        return {
            **document,
            "gate": f"query {document.get('regex')}"[:_CELL_LIMIT],
            "kind": "mass",
            "value": document.get("estimate"),
            "low": mass.get("low"),
            "high": mass.get("high"),
            "evidence": ", ".join(words),
        }
    return document


def _of_grade(document: Record) -> Record:
    """The row of a document of grades: the hazard of the worst published grade decides."""
    hazards = [one for one in document.get("hazards") or [] if isinstance(one, dict)]
    worst = document.get("published")
    deciding = next((one for one in hazards if one.get("published") == worst), {})
    rate = deciding.get("rate")
    ends = rate if isinstance(rate, dict) else {}
    firm = document.get("grade") or f"not decided of {document.get('possible')}"
    wanted = document.get("wanted")
    is_open = document.get("passed") is False and document.get("grade") is None
    return {
        **{key: document.get(key) for key in ("run", "step", "gpu_hours", "time", "cluster")},
        "gate": f"{document.get('rule')}{f', {wanted} or better' if wanted else ''}",
        "kind": "grade",
        "value": ends.get("estimate"),
        "low": ends.get("low"),
        "high": ends.get("high"),
        "passed": None if is_open else document.get("passed"),
        "evidence": f"{deciding.get('hazard')}: published {worst}, firm {firm}",
    }


def _keep(rows: LogRows, line: int, record: Record) -> None:
    """Keep one check."""
    words = {name: clean(record.get(name)) for name in _NEEDED}
    words["run"] = words["run"] or rows.options.run
    if empty := [name for name, word in words.items() if word is None]:
        hint = "; name it with --run-name" if "run" in empty else ""
        raise BadRecordError("missing-field", f"no {' and no '.join(empty)}{hint}")
    numbers = {name: _number(record, name) for name in (*_NUMBERS, "step")}
    shares = ("value", "low", "high") if words["kind"] == REDUNDANT_WORK else ()
    for name, number in numbers.items():
        is_wrong = name in ("step", "gpu_hours") and (number or 0) < 0
        is_wrong |= name == "step" and number is not None and number != int(number)
        if is_wrong or (name in shares and not 0 <= (number or 0) <= 1):
            raise _bad_number(record, name)
    step = numbers.pop("step")
    evidence = clean(record.get("evidence"))
    rows.add(
        NAME,
        line=line,
        **words,
        **numbers,
        step=None if step is None else int(step),
        passed=_passed(record),
        time=_moment(rows, record.get("time")),
        cluster=clean(record.get("cluster")),
        evidence=None if evidence is None else evidence[:TEXT_LIMIT],
    )


def _bad_number(record: Record, name: str) -> BadRecordError:
    return BadRecordError("bad-number", f"{name} is {record.get(name)!r:.100}")


def _number(record: Record, name: str) -> float | None:
    """A number; None where nothing is stated."""
    text = clean(record.get(name))
    try:
        number = None if text is None else float(text)
    except ValueError:
        raise _bad_number(record, name) from None
    if number is not None and not abs(number) <= _MOST:
        raise _bad_number(record, name)
    return number


def _moment(rows: LogRows, value: object) -> datetime | None:
    text = clean(value)
    if text is None:
        return None
    time = time_of(text) if not text.isdigit() else None
    if time is None and rows.options.timezone:
        time = rows.local_time(text)
    if time is None:
        hint = "; give one with its zone, as 2026-03-01T12:00:00Z, or --timezone"
        raise BadRecordError("bad-timestamp", f"time is {value!r:.100}{hint}")
    return time


def _passed(record: Record) -> bool | None:
    value = record.get("passed")
    if isinstance(value, bool):
        return value
    text = clean(value)
    if text is not None and text.lower() not in _WORDS:
        raise _bad_number(record, "passed")
    return None if text is None else _WORDS[text.lower()]


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are checks of runs: a gate, and whether it passed."""
    if json_part(head):
        found = [set(one) for one in head_objects(head)]
        is_own = any({"gate", "passed"} <= keys or {"rule", "possible"} <= keys for keys in found)
    else:
        first = next(iter(first_texts(head)), "")
        head_names = {name.lower() for name in cells_of(first) or []}
        is_own = {*_NEEDED, "passed"} <= head_names
    return 0.95 if is_own else 0.0


SOURCE = Source(
    name=NAME,
    title="checks of training runs: ettr gate --json, JSON lines or CSV",
    tables=(NAME,),
    matches=matches,
    read=read,
    options=("--run-name", "--cluster", "--timezone"),
    how_to_get="ettr gate grade log.eval --reference ref.eval --run r7 --step 4000 --json",
)
