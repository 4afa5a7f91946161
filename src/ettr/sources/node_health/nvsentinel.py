"""NVSentinel's health events: CloudEvents, bare JSON, or rows of its Postgres table as NDJSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    Json,
    JsonObject,
    RecordShape,
    head_objects,
)
from ettr.sources.lines import text_in
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import time_in, time_of
from ettr.tables.rows import Batch, clean

NAME = "nvsentinel"

ACTIONS = {
    0: "NONE",
    2: "COMPONENT_RESET",
    5: "CONTACT_SUPPORT",
    6: "RUN_FIELDDIAG",
    15: "RESTART_VM",
    24: "RESTART_BM",
    25: "REPLACE_VM",
    26: "RUN_DCGMEUD",
    27: "CUSTOM",
    99: "UNKNOWN",
}
_ENTITY_ORDER = ("PCI", "GPU_UUID", "GPU", "NVSWITCH", "NVLINK", "NIC", "NICPORT")
_XID = re.compile(r"(?:S?XID[ _:-]*)?(\d{1,6})", re.IGNORECASE)
_CLUSTER = re.compile(r"nvsentinel://([^/]+)/")


def _is_event(value: JsonObject) -> bool:
    return "checkname" in _unwrapped(value)[0]


_SHAPE = RecordShape(_is_event, re.compile('"check_?name"', re.IGNORECASE))


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One event for each error code of each health event."""
    file = LogRows(NAME, origin, options)
    yield from file.each_object(partial(_event, file), _SHAPE)
    yield file.batch()


def _plain_keys(value: Json) -> JsonObject:
    """The object with its keys in lower case without underscores: protobuf and Go differ there."""
    if not isinstance(value, dict):
        return {}
    return {str(key).replace("_", "").lower(): inner for key, inner in value.items()}


def _unwrapped(value: Json) -> tuple[JsonObject, JsonObject, str | None]:
    """The health event, the record around it, and the cluster that the record names."""
    outer = _plain_keys(value)
    document = outer.get("document")
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError):
            document = None
    data = _plain_keys(outer.get("data") or document)
    cluster = clean(_plain_keys(data.get("metadata")).get("cluster"))
    source = clean(outer.get("source")) or ""
    if cluster is None and (found := _CLUSTER.match(source)):
        cluster = found[1]
    for place in (data, outer):
        inner = _plain_keys(place.get("healthevent"))
        if inner:
            return inner, _plain_keys(place.get("healtheventstatus")) | outer, cluster
    return (data if "checkname" in data else outer), outer, cluster


def _event(file: LogRows, line: int, record: JsonObject) -> None:
    event, outer, cluster = _unwrapped(record)
    check = text_in(event.get("checkname"), "checkName")
    stamp = event.get("generatedtimestamp") or outer.get("time") or outer.get("createdat")
    time = time_in(stamp, "generatedTimestamp", "UTC")
    metadata = _plain_keys(event.get("metadata"))
    end = time_of(outer.get("lastremediationtimestamp"), "UTC")
    entity_type, entity, job = _entities(event.get("entitiesimpacted"))
    for code in _codes(check, event.get("errorcode")):
        file.events.add(
            line=line,
            time=time,
            time_end=end if end and end >= time else None,
            node=clean(event.get("nodename")) or clean(outer.get("nodename")),
            cluster=cluster or clean(metadata.get("cluster")),
            check=check,
            code=code,
            severity=_severity(event),
            entity_type=entity_type,
            entity=entity,
            action=_action(event),
            job_id=job,
            message=clean(event.get("message")),
        )


def _severity(event: JsonObject) -> str:
    if event.get("ishealthy") is True:
        return "ok"
    # protobuf's JSON leaves out what is false
    return "critical" if event.get("isfatal") is True else "warning"


def _action(event: JsonObject) -> str | None:
    custom = clean(event.get("customrecommendedaction"))
    given = event.get("recommendedaction")
    if isinstance(given, int) and not isinstance(given, bool):
        name: str | None = ACTIONS.get(given, f"ACTION_{given}")
    else:
        name = clean(given)
    return custom if name == "CUSTOM" and custom else name


def _codes(check: str, given: Json) -> list[str | None]:
    """The error codes; `XID_79`, `XID-48` and `79` all name the number."""
    codes: list[str | None] = []
    for item in given if isinstance(given, list) else [given]:
        text = clean(item)
        if text is None:
            continue
        number = _XID.fullmatch(text)
        is_xid = number is not None and ("xid" in text.lower() or "xid" in check.lower())
        codes.append(str(int(number[1])) if is_xid and number else text)
    return list(dict.fromkeys(codes)) or [None]


def _entities(given: Json) -> tuple[str | None, str | None, str | None]:
    """The narrowest kind of entity named, its values, and the pod, which is taken as the job."""
    by_type: dict[str, list[str]] = {}
    for item in given if isinstance(given, list) else ():
        plain = _plain_keys(item)
        kind, value = clean(plain.get("entitytype")), clean(plain.get("entityvalue"))
        if kind and value:
            by_type.setdefault(kind.upper(), []).append(value)
    pods = by_type.pop("POD", None)
    by_type.pop("NODE", None)
    kinds = [kind for kind in _ENTITY_ORDER if kind in by_type] or list(by_type)
    job = pods[0] if pods and len(pods) == 1 else None
    if not kinds:
        return None, None, job
    return kinds[0], ",".join(by_type[kinds[0]]), job


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are NVSentinel's health events."""
    found = [_unwrapped(value)[:2] for value in head_objects(head, shape=_SHAPE)]
    found = [(event, outer) for event, outer in found if "checkname" in event]
    if any(not event.keys().isdisjoint(("isfatal", "ishealthy")) for event, _ in found):
        return 0.95
    return 0.9 if any("nodename" in {*event, *outer} for event, outer in found) else 0.0


SOURCE = Source(
    name=NAME,
    title="NVSentinel health events (CloudEvents, JSON, Postgres rows)",
    tables=("events",),
    matches=matches,
    read=read,
    options=("--cluster",),
    how_to_get="psql -At -c 'select row_to_json(h) from health_events h' > health_events.ndjson",
)
