"""`dcgmi diag -j`: one event for each test of a node and entity.

Format: NVIDIA's DCGM 3 and 4, "dcgmi diag". Neither names the node or the time: these are taken
from the file's name and from when it was last changed.
"""

from __future__ import annotations

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
from ettr.sources.lines import BadRecordError
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch, clean

NAME = "dcgm-diag"
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_SEVERITY = {"pass": "ok", "fail": "critical", "warn": "warning", "warning": "warning"}
_MOST_RESULTS = 100_000


def _root(value: JsonObject) -> JsonObject | None:
    for name in _ROOTS:
        found = value.get(name)
        if isinstance(found, dict):
            return found
    return None


_SHAPE = RecordShape(lambda one: _root(one) is not None, re.compile('"DCGM (?:GPU )?Diagnostic"'))


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Passes, failures and warnings; tests that were skipped are no runs."""
    rows = LogRows(NAME, origin, options)
    node = rows.node_of_file()
    rows.note_time_of_file("results")
    yield from rows.each_object(partial(_keep, rows, node), _SHAPE)
    yield rows.batch()


def _keep(rows: LogRows, node: str | None, line: int, document: JsonObject) -> None:
    root = _root(document)
    if root is None:
        raise BadRecordError("bad-json", "no dcgmi diag")
    kept = 0
    for category in _objects(root.get("test_categories")):
        for test in _objects(category.get("tests")):
            for result in _objects(test.get("results")):
                severity = _SEVERITY.get((clean(result.get("status")) or "").lower())
                if severity is None or kept >= _MOST_RESULTS:
                    continue
                kept += 1
                entity = clean(result.get("entity_id")) or clean(result.get("gpu_id"))
                rows.events.add(
                    line=line,
                    time=rows.origin.changed,
                    node=node,
                    check="dcgmi diag",
                    code=clean(test.get("name")),
                    severity=severity,
                    entity_type=(clean(result.get("entity_group")) or "GPU") if entity else None,
                    entity=entity,
                    message=_warnings(result),
                )
    if not kept:
        raise BadRecordError("missing-field", "no test has a result")


def _objects(given: Json) -> list[JsonObject]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _warnings(result: JsonObject) -> str | None:
    """What DCGM says of it, as 4 and as 3 write it."""
    texts = [clean(one.get("warning")) for one in _objects(result.get("warnings"))]
    given = result.get("warnings")
    if isinstance(given, str):
        texts.append(clean(given))
    return "; ".join(text for text in texts if text) or None


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is a diagnostic of DCGM."""
    if any(_root(one) is not None for one in head_objects(head, most=3, shape=_SHAPE)):
        return 0.95
    # a document may be longer than what is looked at
    starts = head.lstrip().startswith(b"{")
    return 0.9 if starts and re.search(rb'"DCGM (?:GPU )?Diagnostic"\s*:', head) else 0.0


SOURCE = Source(
    name=NAME,
    title="dcgmi diag -j, a file for each node",
    tables=("events",),
    matches=matches,
    read=read,
    options=("--cluster",),
    guide="sources/validation.md",
    how_to_get="dcgmi diag -r 3 -j > NODE.json on each node",
)
