"""Answers of Prometheus as saved JSON: states of nodes and events, as far as samples show them.

The answers of a file to one query for following times are one series.

A query over a range gives a value each step: what began and ended between two samples is not in
it, and each edge is late by up to a step. A gauge of the last XID keeps its value: its repeats
cannot be seen and are never counted. Attempts are not read: an accounting log or the objects of
Kubernetes have them.

Format: prometheus.io, HTTP API; metrics of kube-state-metrics, dcgm-exporter and node-exporter as
their projects list them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from ettr.sources.base import READERS, ReadOptions, Source
from ettr.sources.json_records import Json, JsonRecord, RecordShape, json_records, short
from ettr.sources.lines import BadRecordError, json_part
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import time_of
from ettr.tables.rows import Batch, clean

NAME = "prometheus"

ValueT = TypeVar("ValueT")
Samples = list[tuple[float, float]]

_NODES = (
    "node",
    "Hostname",
    "hostname",
    "nodename",
    "kubernetes_node",
    "exported_node",
    "instance",
)
_PORT = re.compile(r":\d{1,5}\Z")
_HEAD = re.compile(rb'"resultType"\s*:\s*"(?:matrix|vector)"')
_SHAPE = RecordShape(lambda one: "metric" in one, re.compile('"metric"'), ("result",))
# a gap of so many steps is one in which nobody asked
_GAP_STEPS = 3.0


@dataclass(slots=True)
class _Series:
    """One series: seconds from 1970 with values, where these change, and at both ends."""

    line: int
    name: str
    labels: dict[str, str]
    node: str
    samples: Samples
    step_s: float
    n_records: int = 1


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """States of nodes and events from all series whose metric is known; the others are skipped."""
    rows = LogRows(NAME, origin, options)
    held = dict[tuple[tuple[str, str], ...], _Series]()
    yield from rows.each(_series_in(origin), partial(_take, rows, held), _shown)
    for series in held.values():
        series.samples.sort()
        before = len(rows.events)
        _READERS[series.name](rows, series)
        rows.count_folded(series.n_records - (len(rows.events) > before))
    yield rows.batch()


def _series_in(origin: Origin) -> Iterator[tuple[int, Json | JsonRecord]]:
    """The series of all answers with their places; a record that is no answer as it is."""
    line = 0
    for record in json_records(origin, _SHAPE):
        value = record.value
        data = value.get("data") if isinstance(value, dict) else None
        found = data.get("result") if isinstance(data, dict) else None
        if isinstance(value, dict) and "metric" in value:
            found = [value]  # a series of an answer that is damaged elsewhere
        for one in found if isinstance(found, list) else (record,):
            line = max(line + 1, record.line)
            yield line, one


def _shown(one: Json | JsonRecord) -> str:
    return one.raw if isinstance(one, JsonRecord) else short(one)


def _take(
    rows: LogRows,
    held: dict[tuple[tuple[str, str], ...], _Series],
    line: int,
    one: Json | JsonRecord,
) -> None:
    if isinstance(one, JsonRecord):
        raise BadRecordError("bad-json", one.error or "no answer with data.result")
    metric = one.get("metric") if isinstance(one, dict) else None
    if not isinstance(one, dict) or not isinstance(metric, dict):
        raise BadRecordError("bad-json", "no series: it has no metric")
    labels = {str(name): text for name, value in metric.items() if (text := clean(value))}
    name = labels.get("__name__", "")
    if name.startswith("slurm_nodes_"):
        rows.note("counts of nodes (slurm_nodes_...) name no node: no state can be read from them")
    if name not in _READERS:
        rows.count_skipped()
        return
    node = next((labels[label] for label in _NODES if label in labels), None)
    samples = _samples(one)
    if node is None or not samples:
        detail = "no label names the node" if node is None else "no sample with a time and a value"
        raise BadRecordError("missing-field", detail)
    given = one.get("step")
    gaps = [b[0] - a[0] for a, b in pairwise(samples)]
    step_s = float(given) if isinstance(given, int | float) else median(gaps) if gaps else 0.0
    parts = [samples] if given else reduced(samples, step_s)
    has_gap = len(parts) > 1
    key = tuple(sorted(labels.items()))
    series = held.get(key)
    if series is None:
        series = held[key] = _Series(line, name, labels, _PORT.sub("", node), [], step_s)
    else:
        series.n_records += 1
        has_gap |= samples[0][0] - series.samples[-1][0] > _GAP_STEPS * max(step_s, series.step_s)
        series.step_s = max(step_s, series.step_s)
    series.samples += [sample for part in parts for sample in part]
    if step_s:
        rows.note(
            f"sampled every {step_s:g} s: what lasted less may be missing, and each edge is late "
            "by up to that"
        )
    if has_gap:
        rows.note("series have gaps: nobody sampled, and what happened then is not known")


def reduced(samples: list[tuple[float, ValueT]], step_s: float) -> list[list[tuple[float, ValueT]]]:
    """The stretches of a series without a gap, each with the samples where the value changes."""
    parts: list[list[tuple[float, ValueT]]] = []
    for place, (time, value) in enumerate(samples):
        last = samples[place - 1] if place else None
        following = samples[place + 1] if place + 1 < len(samples) else None
        begins = last is None or time - last[0] > _GAP_STEPS * step_s
        ends = following is None or following[0] - time > _GAP_STEPS * step_s
        if begins:
            parts.append([])
        is_same = not begins and not ends and last is not None and following is not None
        if not (is_same and last[1] == value == following[1]):  # type: ignore[index]
            parts[-1].append((time, value))
    return parts


def _samples(one: dict[str, Any]) -> Samples:
    """Times and values in the order of time, those that are no numbers left out."""
    values = one.get("values")
    listed = values if isinstance(values, list) else [one.get("value")]
    found: Samples = []
    for pair in listed:
        if not isinstance(pair, list) or len(pair) != 2:
            continue
        try:
            value = float(pair[1])
        except (TypeError, ValueError):
            continue
        time = time_of(pair[0])
        if time is not None and math.isfinite(value):
            found.append((time.timestamp(), value))
    return sorted(dict(found).items())


def _moment(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, UTC)


def _spans(
    series: _Series, is_in: Callable[[float], bool]
) -> Iterator[tuple[datetime, datetime | None]]:
    """From when until when a series was so, by its samples; None where it still is at the last."""
    since: float | None = None
    for time, value in series.samples:
        if is_in(value) and since is None:
            since = time
        elif not is_in(value) and since is not None:
            yield _moment(since), _moment(time)
            since = None
    if since is not None:
        yield _moment(since), None


def _states(
    rows: LogRows, series: _Series, state: str, reason: str, is_in: Callable[[float], bool]
) -> None:
    for start, end in _spans(series, is_in):
        rows.derive(
            "node_states",
            line=series.line,
            node=series.node,
            state=state,
            reason=reason,
            start=start,
            end=end,
        )


def _condition(rows: LogRows, series: _Series) -> None:
    """kube-state-metrics: the condition Ready is a state, each other one that is true an event."""
    kind, status = series.labels.get("condition"), series.labels.get("status")
    if kind == "Ready" and status == "true":
        _states(rows, series, "DOWN", "NodeNotReady", lambda value: value == 0)
    elif kind not in {None, "Ready"} and status == "true":
        for start, _ in _spans(series, lambda value: value > 0):
            _event(rows, series, start, "node-condition", kind)


def _cordon(rows: LogRows, series: _Series) -> None:
    _states(rows, series, "DRAIN", "unschedulable", lambda value: value > 0)


def _event(
    rows: LogRows,
    series: _Series,
    time: datetime,
    check: str,
    code: str | None,
) -> None:
    gpu = next(
        (series.labels[one] for one in ("pci_bus_id", "UUID", "gpu") if one in series.labels), None
    )
    rows.events.add(
        line=series.line,
        time=time,
        check=check,
        node=series.node,
        code=code,
        entity_type="GPU" if gpu else None,
        entity=gpu,
        message=f"{series.name}, sampled every {series.step_s:g} s",
    )


def _last_xid(rows: LogRows, series: _Series) -> None:
    """The gauge of the last XID: a change is one event, a value that stays is not."""
    rows.note(
        "dcgm-exporter's gauge keeps the last XID: repeats of it, and what the first sample shows, "
        "are not counted; kernel logs have them"
    )
    for (_, before), (time, value) in pairwise(series.samples):
        if value != before and value > 0:
            _event(rows, series, _moment(time), "xid", str(int(value)))


def _increase(check: str, code: str) -> Callable[[LogRows, _Series], None]:
    """A counter: an event where it has grown; not where it begins again at 0."""

    def read_counter(rows: LogRows, series: _Series) -> None:
        for (_, before), (time, value) in pairwise(series.samples):
            if value > before:
                _event(rows, series, _moment(time), check, code)

    return read_counter


def _boot(rows: LogRows, series: _Series) -> None:
    """The time of the last boot: where it changes, the node booted then."""
    for (_, before), (_, value) in pairwise(series.samples):
        booted = time_of(value)
        # clocks are set by a few seconds
        if value - before > 60 and booted is not None:
            _event(rows, series, booted, "node-exporter", "reboot")


_READERS: dict[str, Callable[[LogRows, _Series], None]] = {
    "kube_node_status_condition": _condition,
    "kube_node_spec_unschedulable": _cordon,
    "DCGM_FI_DEV_XID_ERRORS": _last_xid,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _increase("dcgm-exporter", "ecc-dbe"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _increase("dcgm-exporter", "row-remap-failure"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _increase("dcgm-exporter", "remapped-rows"),
    "node_edac_uncorrectable_errors_total": _increase("node-exporter", "edac-uncorrectable"),
    "node_boot_time_seconds": _boot,
}


QUERIES = tuple(
    f'{name}{{status="true"}}' if name == "kube_node_status_condition" else name
    for name in _READERS
)
"""What to ask a server for all that is read."""


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is an answer of Prometheus's HTTP API."""
    return 0.95 if json_part(head) and _HEAD.search(head[:4096]) else 0.0


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="Prometheus range queries (saved JSON of its HTTP API)",
    tables=("node_states", "events"),
    matches=matches,
    read=read,
    options=("--cluster",),
    guide="sources/kubernetes.md",
    how_to_get="ettr collect prometheus URL FOLDER --since 2026-03-01",
)
