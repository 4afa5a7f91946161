"""NVRx's cycle_info files: restarts within a job, which the scheduler never sees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial

from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    Json,
    JsonObject,
    RecordShape,
    head_objects,
)
from ettr.sources.lines import BadRecordError, integer_of, json_part
from ettr.sources.log_rows import LogRows
from ettr.sources.node_lists import expand_nodes, listed_nodes
from ettr.sources.origin import Origin
from ettr.sources.times import time_in, time_of
from ettr.tables.rows import Batch, clean

NAME = "nvrx"

# nodes of one cycle whose names are written out
_MOST_NAMED = 20_000
_NEEDED = ("job_id", "cycle_number", "cycle_start_time")
_SHAPE = RecordShape(lambda one: one.keys() >= {*_NEEDED[1:]}, re.compile('"cycle_start_time"'))


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """A `start` for the first cycle of each attempt of a job, a `restart` for each later one."""
    rows = LogRows(NAME, origin, options)
    ended: dict[tuple[str, int], datetime] = {}
    yield from rows.each_object(partial(_keep, rows, ended), _SHAPE)
    yield rows.batch()


def _keep(
    rows: LogRows, ended: dict[tuple[str, int], datetime], line: int, value: JsonObject
) -> None:
    """Keep the cycle's beginning; `ended` holds the ends of cycles so far."""
    if missing := [name for name in _NEEDED if value.get(name) in (None, "")]:
        raise BadRecordError("missing-field", f"{', '.join(missing)} missing")
    job, cycle = clean(value["job_id"]), integer_of(value["cycle_number"])
    if job is None or cycle is None:
        numbers = f"job_id {value['job_id']!r:.100}, cycle_number {value['cycle_number']!r:.100}"
        raise BadRecordError("bad-number", numbers)
    begin = time_in(value["cycle_start_time"], "cycle_start_time", "UTC")
    end = time_of(value.get("cycle_end_time"), "UTC")
    if end is not None:
        ended[job, cycle] = end
    before = ended.get((job, cycle - 1))
    gap_s = (begin - before).total_seconds() if before and begin >= before else None
    rows.add(
        "progress",
        line=line,
        run_id=job,
        job_id=job,
        rank=0,
        time=begin,
        event="start" if cycle == 0 else "restart",
        # cycle files hold no training step: the column stays null
        duration_s=gap_s if cycle else None,
        detail=_detail(rows, value, cycle, end),
    )


def _detail(rows: LogRows, value: JsonObject, cycle: int, end: datetime | None) -> str:
    """The other facts of a cycle as JSON; node lists expanded."""
    detail: dict[str, object] = {"cycle": cycle, "attempt": integer_of(value.get("attempt_index"))}
    detail["cycle_end"] = end.isoformat() if end else None
    for name in ("active_nodes", "standby_nodes"):
        detail[name] = _nodes(rows, value.get(name))
    for name in ("active_ranks", "generation"):
        given = value.get(name)
        detail[name] = len(given) if isinstance(given, list) else integer_of(given)
    return json.dumps({k: v for k, v in detail.items() if v is not None}, sort_keys=True)


def _nodes(rows: LogRows, given: Json) -> list[str] | None:
    texts = given if isinstance(given, list) else [given]
    names: list[str] = []
    for text in (clean(item) for item in texts):
        if text is None:
            continue
        try:
            if listed_nodes(text) + len(names) > _MOST_NAMED:
                raise ValueError
            names.extend(expand_nodes(text))
        except ValueError:
            rows.note("a node list could not be read and was kept as written")
            names.append(text)
    return names or None


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is a cycle_info file."""
    for value in head_objects(head, most=3, shape=_SHAPE):
        if "cycle_number" in value and "cycle_start_time" in value:
            return 0.95
    return 0.9 if json_part(head) and b'"cycle_start_time"' in head else 0.0


SOURCE = Source(
    name=NAME,
    title="NVRx cycle_info files: restarts within a job",
    tables=("progress",),
    matches=matches,
    read=read,
    options=("--cluster",),
    how_to_get="the folder given to ft_launcher as --ft-cycle-info-dir",
)
