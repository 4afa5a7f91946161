"""gpud's events and health states, as its HTTP interface and command line return them in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    Broken,
    Json,
    JsonObject,
    JsonRecord,
    RecordShape,
    head_objects,
    json_record,
    json_records,
)
from ettr.sources.lines import BadRecordError, text_in
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import time_in
from ettr.tables.rows import Batch, clean

NAME = "gpud"

_EVENT_TYPES = {
    "unknown": "unknown",
    "info": "ok",
    "warning": "warning",
    "critical": "critical",
    "fatal": "critical",
}
_HEALTH = {
    "healthy": "ok",
    "degraded": "warning",
    "unhealthy": "critical",
    "initializing": "unknown",
}
_XID = re.compile(r"xid[^0-9(]{0,12}(\d{1,6})|\): (\d{1,6})\b", re.IGNORECASE)
_PCI = re.compile(r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.\d)?\b", re.IGNORECASE)
_UUID = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_LISTS = ("events", "states")
_OF_AN_EVENT = {"component", "message", "health"}
_DEEPEST = 4
_NODE_KEYS = ("node", "hostname", "machine", "machineID", "machine_id")


def _is_record(value: JsonObject) -> bool:
    """Whether it is an event, a health state, or a component's record that wraps some."""
    timed = "time" in value or "timestamp" in value
    return (timed and bool(_OF_AN_EVENT & value.keys())) or _inner(value) is not None


_SHAPE = RecordShape(_is_record, re.compile('"time(?:stamp)?"'), _LISTS)


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One event for each event and each health state."""
    rows = LogRows(NAME, origin, options)
    # the place of the event itself, since a component's record wraps many
    items = enumerate(
        (
            item
            for record in json_records(origin, _SHAPE)
            for item in _items(record, record.value, {})
        ),
        1,
    )
    yield from rows.each(items, partial(_keep, rows), lambda item: item[0].raw)
    yield rows.batch()


def _items(
    record: JsonRecord, value: Json, outer: JsonObject, depth: int = 0
) -> Iterator[tuple[JsonRecord, JsonObject]]:
    """Events and states, each with the component's record that wraps it."""
    inner = _inner(value) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not inner or depth >= _DEEPEST:
        yield record if value is record.value else json_record(0, value), outer
        return
    for item in inner:
        yield from _items(record, item, value, depth + 1)


def _inner(value: JsonObject) -> list[Json] | None:
    """The events or states that a component's record wraps; None where it wraps nothing."""
    for key in _LISTS:
        inner = value.get(key)
        some = inner if isinstance(inner, list) else []
        # where the component's own keys are damaged, what the list holds shows what it is
        shows = any(
            isinstance(each, Broken) or (isinstance(each, dict) and "time" in each) for each in some
        )
        if key in value and (shows or "component" in value or "startTime" in value):
            return some
    return None


def _keep(rows: LogRows, place: int, found: tuple[JsonRecord, JsonObject]) -> None:
    record, outer = found
    item = record.value
    if not isinstance(item, dict):
        raise BadRecordError("bad-json", record.error or "no JSON object")
    if _inner(item) == []:
        rows.count_skipped()  # a component without events
        return
    check = text_in(item.get("component") or outer.get("component"), "component")
    time = time_in(item.get("time") or item.get("timestamp"), "time")
    message = clean(item.get("message")) or clean(item.get("reason")) or clean(item.get("error"))
    extra = _extra(item)
    node = next(
        (clean(d.get(k)) for d in (item, outer, extra) for k in _NODE_KEYS if d.get(k)), None
    )
    entity_type, entity = _entity(message, extra)
    rows.events.add(
        line=place,
        time=time,
        node=node or rows.node_of_file(),
        check=check,
        code=_code(check, clean(item.get("name")), message, extra),
        severity=_severity(item),
        entity_type=entity_type,
        entity=entity,
        action=_action(item),
        message=message,
    )


def _severity(item: JsonObject) -> str:
    if "health" in item:
        return _HEALTH.get(str(item["health"]).lower(), "unknown")
    return _EVENT_TYPES.get(str(item.get("type")).lower(), "unknown")


def _extra(item: JsonObject) -> JsonObject:
    extra = item.get("extra_info") or item.get("extraInfo")
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except (ValueError, RecursionError):
            extra = None
    return extra if isinstance(extra, dict) else {}


def _code(check: str, name: str | None, message: str | None, extra: JsonObject) -> str | None:
    """The XID number for the component of XIDs, else the event's name."""
    if "xid" not in check.lower():
        return name
    for given in (extra.get("xid"), extra.get("sxid")):
        if text := clean(given):
            return text if not text.isdigit() else str(int(text))
    found = _XID.search(message or "") or _XID.search(name or "")
    return str(int(found[1] or found[2])) if found else name


def _entity(message: str | None, extra: JsonObject) -> tuple[str | None, str | None]:
    text = " ".join([message or "", *(str(v) for v in extra.values())])
    if found := _UUID.search(text):
        return "GPU_UUID", found[0]
    if found := _PCI.search(text):
        return "PCI", found[1].lower()
    return None, None


def _action(item: JsonObject) -> str | None:
    suggested = item.get("suggested_actions") or item.get("suggestedActions")
    actions = suggested.get("repair_actions") if isinstance(suggested, dict) else None
    names = [text for a in actions if (text := clean(a))] if isinstance(actions, list) else []
    return ",".join(names) or None


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are gpud's records."""
    found = [value for value in head_objects(head, shape=_SHAPE) if "component" in value]
    if any(_inner(value) is not None for value in found):
        return 0.95
    if any({"time", "type", "message"} <= value.keys() or "health" in value for value in found):
        return 0.9
    shows = b'"component"' in head and re.search(rb'"(events|states)"\s*:\s*\[', head)
    return 0.85 if shows else 0.0


SOURCE = Source(
    name=NAME,
    title="gpud events and health states (JSON)",
    tables=("events",),
    matches=matches,
    read=read,
    options=("--cluster",),
    how_to_get="curl -k https://localhost:15132/v1/events > NODE.json on each node",
)
