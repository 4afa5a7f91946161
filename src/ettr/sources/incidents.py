"""An incident ledger that people keep: date, kind, hours lost as stated; CSV or JSON.

There is no standard for such ledgers; the columns are those that published ones share.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from typing import Any

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import head_objects
from ettr.sources.lines import (
    BadRecordError,
    cells_of,
    csv_lines,
    first_texts,
    json_part,
    text_in,
)
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import has_local_times, time_of, within_years
from ettr.tables.rows import TEXT_LIMIT, Batch, clean

NAME = "incidents"

MOST_HOURS = 1e9
"""No ledger states more; a larger number is a slip."""
_NAMES = {
    "time": ("date", "time", "start", "day"),
    "time_end": ("end", "until", "time_end"),
    "kind": ("kind", "cause", "category", "type"),
    "lost_h": ("lost_hours", "hours_lost", "lost_h"),
    "lost_gpu_hours": ("lost_gpu_hours", "gpu_hours_lost"),
    "incident_id": ("id", "incident", "incident_id"),
    "cluster": ("cluster",),
    "run": ("run", "job", "run_id"),
    "node": ("node", "host"),
    "message": ("comment", "note", "notes", "message", "description"),
}
"""Our columns, and the names that ledgers give them, in lower case with underscores."""
_HOURS = ("lost_h", "lost_gpu_hours")

Record = dict[str, Any]


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """A row of `incidents` for each entry.

    Raises:
        SourceError: the header lacks the date, the kind, or the hours.
        UsageError: the ledger has local times, and no zone was given.
    """
    rows = LogRows(NAME, origin, options)
    repeats: Counter[str] = Counter()

    def keep(line: int, record: Record) -> None:
        keys, values = _columns(record, options.column_map), [*record.values()]
        _keep(rows, repeats, line, {name: values[at] for name, at in keys.items()})

    if json_part(origin.head):
        yield from rows.each_object(keep)
    else:
        names, lines = csv_lines(origin)
        if missing := _missing(_columns(names, options.column_map)):
            raise SourceError(
                f"{origin}: no incident ledger: no column for {', '.join(missing)}; name "
                "the columns with --columns, such as time=when,kind=what,lost_h=hours"
            )
        yield from rows.each_row(keep, names, lines, by_hand=True)
    yield rows.batch()


def _columns(header: Iterable[str], column_map: dict[str, str] | None) -> dict[str, int]:
    """Our columns, and the place of each in the header."""
    places: dict[str, int] = {}
    for at, name in enumerate(header):
        places.setdefault(_plain(str(name)), at)
    given = column_map or {}
    found: dict[str, int] = {}
    for ours, theirs in _NAMES.items():
        names = (_plain(given[ours]),) if ours in given else theirs
        known = [places[name] for name in names if name in places]
        if known:
            found[ours] = known[0]
    return found


def _plain(name: str) -> str:
    return "_".join(name.strip().strip('"').lower().replace("-", " ").split())


def _missing(columns: dict[str, int]) -> list[str]:
    missing = [name for name in ("time", "kind") if name not in columns]
    return missing if any(name in columns for name in _HOURS) else [*missing, "lost_h"]


def _keep(rows: LogRows, repeats: Counter[str], line: int, record: Record) -> None:
    """Keep one entry."""
    began, day_only = _moment(rows, record.get("time"))
    if began is None:
        raise BadRecordError("bad-timestamp", f"the date is {record.get('time')!r:.100}")
    kind = text_in(record.get("kind"), "the kind")
    ended, _ = _moment(rows, record.get("time_end"))
    message = clean(record.get("message"))
    rows.add(
        NAME,
        line=line,
        cluster=clean(record.get("cluster")),
        incident_id=clean(record.get("incident_id")) or _own_id(repeats, record),
        time=began,
        time_end=ended if ended is not None and ended >= began else None,
        day_only=day_only,
        kind=kind,
        **{name: _hours(record, name) for name in _HOURS},
        run=clean(record.get("run")),
        node=clean(record.get("node")),
        message=None if message is None else message[:TEXT_LIMIT],
    )


def _moment(rows: LogRows, value: object) -> tuple[datetime | None, bool]:
    """The moment in UTC, and whether only the day is stated."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        pass
    else:
        rows.note("of entries that state only the day, midnight UTC of that day was taken")
        return time_of(datetime.combine(day, time(), UTC).isoformat()), True
    found = time_of(value)
    if found is None and text and time_of(text, "UTC") is not None:
        local = datetime.fromisoformat(text.replace(",", "."))
        found = within_years(rows.utc(local, is_ordered=False))
    return found, False


def _hours(record: Record, name: str) -> float | None:
    """A number of hours; None where nothing is stated."""
    text = clean(record.get(name))
    try:
        number = None if text is None else float(text.replace(",", ""))
    except ValueError:
        number = -1.0
    if number is not None and not 0 <= number <= MOST_HOURS:
        raise BadRecordError("bad-number", f"{name} is {record.get(name)!r:.100}")
    return number


def _own_id(repeats: Counter[str], record: Record) -> str:
    """A hash of the entry's content; the second of two equal entries has another one."""
    text = "\x1f".join(f"{name}={clean(record.get(name)) or ''}" for name in _NAMES)
    repeats[text] += 1
    whole = f"{text}\x1f{repeats[text]}"
    return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is a ledger: it has a date, a kind, and hours lost by name."""
    if json_part(head):
        headers: list[Iterable[str]] = [list(found) for found in head_objects(head)]
    else:
        first = next(iter(first_texts(head)), "")
        headers = [cells_of(first) or []]
    return 0.9 if any(not _missing(_columns(header, None)) for header in headers) else 0.0


SOURCE = Source(
    name=NAME,
    title="incident ledger (CSV or JSON): date, kind, hours lost as stated",
    tables=(NAME,),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=has_local_times,
    options=("--timezone", "--cluster", "--columns"),
    how_to_get="kept by hand, or exported from a ticket system",
)
