"""Lines that log shippers keep in JSON of their own, taken out again: one table of forms.

A record becomes the line that it holds: a line of slurmctld as it is, with its own stamp, every
other one behind the record's time and host. A line a record, an array of records, and the answers
of the APIs are read alike; line numbers are places of records then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from ettr.sources.json_records import (
    Json,
    JsonObject,
    RecordShape,
    as_list,
    head_objects,
    quick_json,
    records_within,
    salvage,
)
from ettr.sources.lines import LINE_LIMIT_BYTES, blocks, json_part
from ettr.sources.origin import Origin
from ettr.sources.times import time_of
from ettr.tables.rows import clean, text_of


class ShipperForm(NamedTuple):
    """Where records of a shipper have their time, their line and their host; keys by dots."""

    name: str
    times: tuple[str, ...]
    lines: tuple[str, ...]
    hosts: tuple[str, ...]


FORMS = (
    ShipperForm(
        "Loki (logcli -o jsonl)",
        ("timestamp",),
        ("line",),
        ("labels/host", "labels/hostname", "labels/node_name", "labels/node", "labels/instance"),
    ),
    ShipperForm(
        "Elasticsearch, OpenSearch",
        ("_source/@timestamp",),
        ("_source/message", "_source/log", "_source/MESSAGE"),  # the last two by Fluent Bit
        (
            *("_source/host/name", "_source/host/hostname", "_source/hostname", "_source/host"),
            *("_source/kubernetes/host", "_source/kubernetes/node/name", "_source/_HOSTNAME"),
        ),
    ),
    ShipperForm(
        "Cloud Logging",
        ("timestamp",),
        ("textPayload", "jsonPayload/message", "jsonPayload/MESSAGE"),
        (
            "jsonPayload/_HOSTNAME",
            "jsonPayload/hostname",
            "resource/labels/node_name",
            "labels/compute.googleapis.com/resource_name",
            "resource/labels/instance_id",
        ),
    ),
    ShipperForm(
        "Fluent Bit",
        ("date", "@timestamp", "time"),
        ("log", "MESSAGE"),
        ("kubernetes/host", "_HOSTNAME", "hostname", "host"),
    ),
    ShipperForm("Beats", ("@timestamp",), ("message",), ("host/name", "host/hostname", "host")),
    ShipperForm("CloudWatch", ("timestamp",), ("message",), ("logStreamName",)),
    ShipperForm("Vector", ("timestamp",), ("message",), ("host", "hostname")),
)
# what the records of a form have that those of no other source do
_NEEDED = {
    "CloudWatch": ("logStreamName", "ingestionTime", "eventId"),
    "Vector": ("source_type",),
}
_KERNEL_KEYS = (
    *("_TRANSPORT", "SYSLOG_IDENTIFIER", "labels/transport", "jsonPayload/_TRANSPORT"),
    *("_source/_TRANSPORT", "_source/syslog/identifier", "jsonPayload/SYSLOG_IDENTIFIER"),
)
_UNIX_SYSLOG = re.compile(
    r"\A(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>[\w.-]{1,255}) "
)
_OWN_STAMP = re.compile(r"\A\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_UPTIME = re.compile(r"\A\[\s*\d{1,9}\.\d+\]")


def at(value: Json, path: str) -> Json:
    """What lies at keys within keys; None where nothing does."""
    for key in path.split("/"):
        if isinstance(value, dict) and path in value:  # a key that has slashes itself
            return value[path]
        if not isinstance(value, dict):
            return None
        rest = path.partition("/")[2]
        value, path = value.get(key), rest or path
    return value


def _line_of(value: JsonObject) -> bytes | None:
    """The line of a record behind its time and host; None where it is of no shipper."""
    for form in FORMS:
        needed = _NEEDED.get(form.name)
        if needed is not None and not any(key in value for key in needed):
            continue
        texts = (one for path in form.lines if isinstance(one := at(value, path), str))
        text = next(texts, None)
        if text is None:
            continue
        time = next((time for path in form.times if (time := time_of(at(value, path)))), None)
        if time is not None:
            return _plain(value, form, text, time)
    return None


def _is_record(value: JsonObject) -> bool:
    return _lines_of(value) is not None


def _several(value: JsonObject) -> list[JsonObject] | None:
    """The records of one that holds several lines of one origin; None of any other."""
    stream, events, results = (value.get(name) for name in ("stream", "logEvents", "results"))
    found: list[JsonObject] = []
    if isinstance(stream, dict) and isinstance(value.get("values"), list):  # Loki's API
        for pair in as_list(value["values"]):
            if isinstance(pair, list) and len(pair) >= 2:
                stamp = clean(pair[0]) or ""
                seconds = int(stamp) / 1e9 if stamp.isdigit() and len(stamp) < 22 else pair[0]
                found.append({"timestamp": seconds, "line": pair[1], "labels": stream})
        return found
    if isinstance(events, list):  # a subscription of CloudWatch
        host = {"logStreamName": value.get("logStream")}
        return [{**event, **host} for event in events if isinstance(event, dict)]
    if isinstance(results, list) and all(isinstance(row, list) for row in results):
        for row in results:  # a query of CloudWatch Logs Insights, whose times are UTC
            cells = {clean(at(c, "field")): at(c, "value") for c in as_list(row)}
            host = {"logStreamName": cells.get("@logStream") or ""}
            time = f"{cells.get('@timestamp')}Z".replace(" ", "T")
            found.append({"timestamp": time, "message": cells.get("@message"), **host})
        return found if any(isinstance(one["message"], str) for one in found) else None
    return None


_SHAPE = RecordShape(_is_record)


@lru_cache(maxsize=4)
def is_shipped(head: bytes) -> bool:
    """Whether the first bytes of a log are records of a shipper; several readers of a log ask."""
    if not json_part(head):
        return False
    return any(_is_record(value) for value in head_objects(head, shape=_SHAPE))


def shipped_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The lines within, in blocks, each with its newline; an empty one for what is no record."""
    held, is_lines = b"", False
    rest, quick = iter(parts), quick_json()
    for block in rest:
        lines = (held + block).split(b"\n")
        held = lines.pop()
        # a record a line, of which the first or the second may be torn
        is_lines = is_lines or any(_is_whole(line) for line in lines[:2])
        if not is_lines:
            held = b"\n".join([*lines, held]) + b"".join(rest)
            break
        yield b"".join(_line(_values(line, quick)) for line in lines)
    if held.strip():
        values = salvage(text_of(held[: 64 * LINE_LIMIT_BYTES]), _SHAPE)
        yield b"".join(_line([value]) for value in values)


def shipped_head(head: bytes) -> bytes:
    """The first bytes of a log as the lines within, or as they are where no shipper wrote them."""
    return b"".join(shipped_lines([head + b"\n"])) if is_shipped(head) else head


def shipped_texts(origin: Origin) -> Iterator[tuple[int, str]] | None:
    """The lines of a log of a shipper with their numbers; None of any other log."""
    if not is_shipped(origin.head):
        return None
    lines = (line for block in shipped_lines(blocks(origin)) for line in block.split(b"\n")[:-1])
    return ((number, text_of(line)) for number, line in enumerate(lines, 1))


def _is_whole(line: bytes) -> bool:
    text = line.strip()
    return len(text) > 2 and text[:1] == b"{" and text.endswith(b"}")


def _values(line: bytes, quick: Callable[[bytes], Json]) -> list[Json]:
    """The records of a line, those within a damaged one too."""
    value = quick(line)
    is_whole = isinstance(value, dict) and not records_within(value, _SHAPE)
    return [value] if is_whole else salvage(text_of(line), _SHAPE)


def _line(values: list[Json]) -> bytes:
    """The lines of some records; an empty line where they have none."""
    found: list[bytes] = []
    for value in values:
        lines = _lines_of(value) if isinstance(value, dict) else None
        if lines is None:
            within = records_within(value, _SHAPE)
            lines = [b"".join(_lines_of(one) or ()) for one in within if isinstance(one, dict)]
        found += lines
    return b"".join(found) or b"\n"


def _lines_of(record: JsonObject) -> list[bytes] | None:
    """The lines of a record, which may hold several; None where it is of no shipper."""
    several = _several(record)
    if several is not None:
        return [line for one in several if (line := _line_of(one)) is not None]
    own = _line_of(record)
    return None if own is None else [own]


def _plain(record: JsonObject, form: ShipperForm, text: str, time: datetime) -> bytes:
    """The line of a record behind its time and host, unless the line has its own stamp."""
    text = text.strip().replace("\n", "#012")
    if _OWN_STAMP.match(text):
        return text.encode("utf-8", "replace") + b"\n"
    host = next((one for path in form.hosts if (one := clean(at(record, path)))), None)
    if own := _UNIX_SYSLOG.match(text):
        host, text = own["host"], text[own.end() :]
    is_kernel = any(at(record, path) == "kernel" for path in _KERNEL_KEYS)
    if (is_kernel or _UPTIME.match(text)) and not text.startswith("kernel"):
        text = f"kernel: {text}"
    who = re.sub(r"[^\w.-]", "-", host).strip("-.") + " " if host else ""
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}+00:00 {who}{text}\n".encode("utf-8", "replace")
