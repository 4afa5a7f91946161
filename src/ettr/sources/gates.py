"""Checks of training runs: `ettr gate ... --json`, JSON lines, or CSV of the table's columns."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import head_objects, json_records
from ettr.sources.lines import first_texts, json_part, numbered_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import within_years
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
    for line, record, raw in _json(rows) if json_part(origin.head) else _csv(rows):
        _keep(rows, line, record, raw)
        if rows.is_full:
            yield rows.batch()
    yield rows.batch()


def _json(rows: LogRows) -> Iterator[tuple[int, Record, str]]:
    for record in json_records(rows.origin):
        rows.count_read()
        if isinstance(record.value, dict):
            yield record.line, _row_of(record.value), record.raw
        else:
            rows.reject(record.line, "bad-json", record.error or "no JSON object", record.raw)


def _csv(rows: LogRows) -> Iterator[tuple[int, Record, str]]:
    head: list[str] | None = None
    for number, text in numbered_texts(rows.origin):
        cells = _cells(text.lstrip("\ufeff"))
        if head is None:
            head = [name.strip().lower() for name in cells or []]
            if missing := [name for name in _NEEDED if name not in head]:
                raise SourceError(
                    f"{rows.origin}: no checks of runs: no column for {', '.join(missing)}"
                )
            continue
        rows.count_read()
        if cells is None or len(cells) > len(head):
            rows.reject(number, "bad-csv", "not a line of CSV with these columns", text)
        elif not any(cell.strip() for cell in cells):
            rows.count_skipped()
        elif len(cells) < len(head):
            rows.reject(number, "bad-csv", f"{len(cells)} cells of {len(head)}: cut off", text)
        else:
            yield number, dict(zip(head, cells, strict=True)), text


def _cells(text: str) -> list[str] | None:
    try:
        return next(csv.reader([text.replace("\x00", "")], strict=True), [])
    except csv.Error:
        return None


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


def _keep(rows: LogRows, line: int, record: Record, raw: str) -> None:
    """Keep one check, or reject it."""
    words = {name: clean(record.get(name)) for name in _NEEDED}
    words["run"] = words["run"] or rows.options.run
    empty = [name for name, word in words.items() if word is None]
    if empty:
        hint = "; name it with --run-name" if "run" in empty else ""
        rows.reject(line, "missing-field", f"no {' and no '.join(empty)}{hint}", raw)
        return
    numbers = {name: _number(record.get(name)) for name in _NUMBERS}
    step, passed = _number(record.get("step")), _passed(record.get("passed"))
    wrong = [name for name, value in {**numbers, "step": step}.items() if value is _BAD]
    if step not in (None, _BAD) and (step < 0 or step != int(step)):
        wrong.append("step")
    if numbers["gpu_hours"] not in (None, _BAD) and numbers["gpu_hours"] < 0:
        wrong.append("gpu_hours")
    if words["kind"] == REDUNDANT_WORK and not wrong:
        wrong = [name for name in ("value", "low", "high") if not _is_share(numbers[name])]
    if wrong or passed is _BAD:
        name = wrong[0] if wrong else "passed"
        rows.reject(line, "bad-number", f"{name} is {record.get(name)!r:.100}", raw)
        return
    made = _moment(rows, record.get("time"))
    if made is _BAD:
        hint = "; give one with its zone, as 2026-03-01T12:00:00Z, or --timezone"
        rows.reject(line, "bad-timestamp", f"time is {record.get('time')!r:.100}{hint}", raw)
        return
    evidence = clean(record.get("evidence"))
    rows.add(
        NAME,
        line=line,
        **words,
        **numbers,
        step=None if step is None else int(step),
        passed=passed,
        time=made,
        cluster=clean(record.get("cluster")),
        evidence=None if evidence is None else evidence[:TEXT_LIMIT],
    )


_BAD: Any = object()
"""What is no number, and no yes or no."""


def _number(value: object) -> Any:
    """A number; None where nothing is stated."""
    text = clean(value)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return _BAD
    return number if math.isfinite(number) and abs(number) <= _MOST else _BAD


def _moment(rows: LogRows, value: object) -> Any:
    text = clean(value)
    if text is None:
        return None
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return _BAD
    if stamp.tzinfo is not None:
        return within_years(stamp.astimezone(UTC)) or _BAD
    return (rows.options.timezone and rows.local_time(text)) or _BAD


def _is_share(number: float | None) -> bool:
    return number is None or 0 <= number <= 1


def _passed(value: object) -> Any:
    if isinstance(value, bool):
        return value
    text = clean(value)
    return None if text is None else _WORDS.get(text.lower(), _BAD)


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are checks of runs: a gate, and whether it passed."""
    if json_part(head):
        found = [set(one) for one in head_objects(head)]
        is_own = any({"gate", "passed"} <= keys or {"rule", "possible"} <= keys for keys in found)
    else:
        first = next(iter(first_texts(head)), "")
        head_names = {name.strip().lower() for name in _cells(first.lstrip("\ufeff")) or []}
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
