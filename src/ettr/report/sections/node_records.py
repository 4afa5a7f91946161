"""Every node; from an error to a node that works again; racks, pods and switches; one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ettr.analysis.node_history import NodeHistory, records_of, recovery_of
from ettr.estimates.interval import Interval
from ettr.metrics.node_records import NodeRecord, NodeRecords, PlaceRate
from ettr.metrics.outages import SPANS, SpanTimes, SymptomTimes
from ettr.metrics.survival import Durations
from ettr.report.charts import named_points, named_rows, value_axis
from ettr.report.findings import not_counted
from ettr.report.numbers import (
    DASH,
    between,
    by_confidence,
    hours_between,
    moment,
    number,
    p_value,
)
from ettr.report.registry import Part
from ettr.report.section import Figure, Section, TextTable, Trace, table_of_rows
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

UNLIKELY = 0.01
_PERCENTILES = (0.5, 0.9)
_CODES_SHOWN = 4
_SHOWN = 20
_DRAWN = 20
_LEAST_PART = 0.01
"""Parts of a failure that are not worth a word."""
_PLURAL = {"rack": "racks", "pod": "pods", "switch": "switches"}
_DEFINITIONS = (
    "Of failures that are blamed on one node. Detect: from the first error in the evidence to the "
    "end of the attempt. Drain: from that end to the node's next unplanned outage, within a day. "
    "Requeue: from that end to the start of the job's next attempt, queue included. Repair: how "
    "long that outage lasted. Return: from that end to the start of the next attempt on the node. "
    "What had not happened when the logs ended counts as lasting at least so long (Kaplan-Meier); "
    "a node that was not drained within a day counts as one that takes at least a day. Intervals "
    "hold for failures that are independent of each other."
)


def records_section(records: NodeRecords, times: Iterable[SymptomTimes]) -> Section:
    """The table of all nodes, rates by place, and times from error to return."""
    tables = (_nodes_table(records), *_place_tables(records.places), *_time_tables(times))
    notes = [*_notes(records)]
    if any(table.title.startswith("Time to") for table in tables):
        notes.append(_DEFINITIONS)
    failed = [one for one in records.nodes if one.failures and one.expected_failures is not None]
    figures = (_figure(failed[:_DRAWN]),) if failed else ()
    return Section(
        "node-records",
        "Each node",
        _lead(records),
        figures,
        tables,
        tuple(notes),
        answer=_lead(records).rpartition("blamed on a node. ")[2].partition(" `ettr node")[0],
        careful=(
            "By chance alone a few of many nodes have bad luck: check the chance before you "
            "pull one."
        ),
    )


def _figure(failed: Sequence[NodeRecord]) -> Figure:
    several = len({one.cluster for one in failed}) > 1
    names = [f"{one.cluster}/{one.node}" if several else one.node for one in failed]

    def marks(what: str, counts: Sequence[float], symbol: str) -> Trace:
        ends = [Interval(count, count, count) for count in counts]
        hover = [
            f"{name}: {number(count)} {what}" for name, count in zip(names, counts, strict=True)
        ]
        return named_points(what, names, ends, hover, symbol)

    return Figure(
        "node-records",
        "Failures of nodes",
        "Those blamed on the nodes that have more than the others for their exposure, and how "
        "many such a node has on average.",
        (
            marks("failures", [one.failures or 0 for one in failed], "circle"),
            marks("expected", [one.expected_failures or 0.0 for one in failed], "line-ns-open"),
        ),
        {**named_rows(names), "xaxis": value_axis("failures")},
    )


def _lead(records: NodeRecords) -> str:
    unlikely = [one for one in records.nodes if one.chance is not None and one.chance < UNLIKELY]
    if records.blamed_failures is None or records.failures is None:
        return "Failures of nodes are not measured: the logs hold no job accounting."
    if all(one.chance is None for one in records.nodes):
        return "No failure is blamed on a node, so no node can be compared with the others."
    verb = "is" if records.blamed_failures == 1 else "are"
    words = by_confidence(records.by_confidence)
    sure = f" (by confidence: {words})" if words else ""
    blamed = (
        f"{counted(records.blamed_failures, 'failure')} of {records.failures:,}{sure} {verb} "
        "blamed on a node."
    )
    if not unlikely:
        return f"{blamed} No node has more than chance explains."
    names = ", ".join(f"{one.node} ({one.failures})" for one in unlikely[:3])
    more = f" and {len(unlikely) - 3:,} more" if len(unlikely) > 3 else ""
    return (
        f"{blamed} {counted(len(unlikely), 'node')} "
        f"{'has' if len(unlikely) == 1 else 'have'} more than chance explains: {names}{more}. "
        "`ettr node STORE NAME` shows one."
    )


def _notes(records: NodeRecords) -> Iterator[str]:
    yield (
        "Expected: the failures that a node of its class (without GPUs, or of its type of GPU) "
        "with as many node-days has on average. Chance: the "
        "probability that chance alone gives some node of the fleet so many (binomial, times the "
        "number of nodes that ran jobs)."
    )
    if records.places:
        yield (
            "Blame per 1,000: node-days likewise, with the parts of failures that blame no single "
            "node (`ettr export --table blame`); these say little of one place."
        )
    if not records.with_node_states:
        yield "Outages are not measured: the logs hold no states of nodes."
    if not records.with_codes:
        yield "XIDs are not measured, or there were none: the logs hold no XID or SXID."
    if not records.places:
        yield "Racks, pods and switches are not known: ingest Slurm's topology.conf."


def _nodes_table(records: NodeRecords, title: str = "All nodes") -> TextTable:
    headers = (
        *("cluster", "node", "node-days", "failures"),
        *("GPU-hours lost in failed jobs", "expected", "chance"),
        "failed attempts",
        *("outages", "hours out", "reasons", "XIDs", "last repair", "now"),
    )
    rows = tuple(_node_row(one) for one in records.nodes)
    numeric = frozenset({2, 3, 4, 5, 6, 7, 8, 9})
    return TextTable(
        title,
        headers,
        rows,
        numeric,
        _SHOWN,
        slug="nodes",
        lists_all="ettr node STORE --csv",
        detail_columns=("node-days", "failed attempts", "reasons", "last repair"),
    )


def _node_row(one: NodeRecord) -> tuple[str, ...]:
    reasons = ", ".join(f"{r.reason_class} {r.outages}" for r in one.outages_by_reason)
    codes = ", ".join(f"{c.check} {c.code}: {c.events}" for c in one.codes[:_CODES_SHOWN])
    return (
        one.cluster,
        one.node,
        number(one.node_days),
        number(one.failures),
        number(one.lost_gpu_hours, 4),
        number(one.expected_failures),
        DASH if one.chance is None else p_value(one.chance),
        number(one.failed_attempts),
        number(one.unplanned_outages),
        number(one.unplanned_h),
        reasons,
        codes + (", ..." if len(one.codes) > _CODES_SHOWN else ""),
        moment(one.last_repair),
        {True: "out", False: "in service", None: DASH}[one.is_out],
    )


def _place_tables(places: tuple[PlaceRate, ...]) -> Iterator[TextTable]:
    for kind, plural in _PLURAL.items():
        of_kind = [one for one in places if one.kind == kind]
        if of_kind:
            yield _place_table(
                f"Failures by {kind} ({counted(len(of_kind), kind, plural)})", of_kind
            )


def _place_table(title: str, places: Iterable[PlaceRate]) -> TextTable:
    headers = (
        "cluster",
        "place",
        "nodes",
        "failures",
        "node-days",
        "per 1,000 node-days",
        "chance",
        "blame per 1,000",
    )
    rows = tuple(
        (
            one.cluster,
            f"{one.kind} {one.name}",
            number(one.nodes),
            number(one.failures),
            number(one.node_days, 4),
            between(one.per_1000_node_days),
            DASH if one.chance is None else p_value(one.chance),
            number(one.blame_per_1000_node_days),
        )
        for one in places
    )
    return TextTable(title, headers, rows, frozenset({2, 3, 4, 5, 6, 7}), _SHOWN)


def _time_tables(times: Iterable[SymptomTimes]) -> Iterator[TextTable]:
    by_symptom = list(times)
    for place, span in enumerate(SPANS):
        rows = tuple(_time_row(one, one.spans[place]) for one in by_symptom)
        if rows:
            yield TextTable(
                f"Time to {span}, by symptom",
                ("symptom", "measured", "not ended", "unknown", "median", "90th percentile"),
                rows,
                frozenset(range(1, 6)),
            )


def _time_row(one: SymptomTimes, span: SpanTimes) -> tuple[str, ...]:
    return (
        one.symptom or "all",
        number(span.times.count),
        number(span.times.still_open),
        number(span.not_measured),
        *(_percentile(span.times, level) for level in _PERCENTILES),
    )


def _percentile(times: Durations, level: float) -> str:
    hours = next((one.hours for one in times.quantiles if one.level == level), None)
    return "not measured" if hours is None else hours_between(hours)


def node_section(history: NodeHistory) -> Section:
    """One node."""
    one = history.record
    known = (one.gpu_type, one.partitions and f"partitions {one.partitions}", *_places(one))
    where = ", ".join(words for words in known if words)
    title = f"Node {one.node} of {one.cluster}{': ' if where else ''}{where}"
    tables = (
        table_of_rows(
            "Attempts that ended as a failure while they held it",
            history.failures[::-1],
            ("ended", lambda one: moment(one.end)),
            ("job", lambda one: one.job_id),
            ("user", lambda one: one.user or DASH),
            ("state", lambda one: one.state),
            (">nodes", lambda one: number(one.n_nodes)),
            ("cause", lambda one: one.symptom),
            ("confidence", lambda one: one.confidence),
            (
                "blamed on",
                lambda one: (
                    "it" if one.blamed == history.record.node else one.blamed or "no single node"
                ),
            ),
        ),
        table_of_rows(
            "Outages",
            (history.outages or ())[::-1],
            ("began", lambda one: moment(one.start)),
            ("ended", lambda one: "not ended" if one.end is None else moment(one.end)),
            (">hours", lambda one: number(one.hours)),
            ("planned", lambda one: "yes" if one.is_planned else "no"),
            ("class", lambda one: one.reason_class),
            ("reason", lambda one: one.reason or DASH),
        ),
        table_of_rows(
            "XIDs and SXIDs",
            history.devices,
            ("check", lambda one: one.check),
            ("code", lambda one: one.code),
            ("device", lambda one: one.device or DASH),
            (">lines", lambda one: number(one.events)),
            ("first", lambda one: moment(one.first)),
            ("last", lambda one: moment(one.last)),
        ),
        _place_table("The places it is in", history.places),
    )
    lead = _node_lead(history)
    return Section(
        "node", title, lead, (), tables, tuple(_node_notes(history)), answer=_of(history)
    )


def _of(history: NodeHistory) -> str:
    """The node in a sentence."""
    one = history.record
    words = []
    if one.failures is not None:
        words.append(
            f"{counted(one.failures, 'failure')} where {number(one.expected_failures)} are expected"
        )
    if one.unplanned_outages is not None:
        words.append(f"{number(one.unplanned_h)} h out of service unplanned")
        words.append("out of service now" if one.is_out else "in service now")
    more = not_counted(history.black_holes, history.hung_runs)
    more = f" Not counted as failures: {more}." if more else ""
    return f"{one.node}: {', '.join(words)}.{more}" if words else ""


def _places(one: NodeRecord) -> tuple[str | None, ...]:
    named = (("rack", one.rack), ("pod", one.pod), ("switch", one.switch))
    return tuple(f"{kind} {name}" for kind, name in named if name)


def _node_lead(history: NodeHistory) -> str:
    one = history.record
    words = []
    if one.failures is None:
        words.append("Failures are not measured: the logs hold no job accounting.")
    else:
        words.append(
            f"{counted(one.failures, 'failure')} {'is' if one.failures == 1 else 'are'} blamed on "
            f"it in {number(one.node_days)} node-days, where {number(one.expected_failures)} are "
            f"expected; {counted(one.failed_attempts or 0, 'attempt')} ended as a failure while "
            f"holding it.{_sure(history)}{_shared_words(one)}"
        )
    if one.chance is not None and one.failures:
        verdict = "More than chance explains" if one.chance < UNLIKELY else "Chance may explain it"
        words.append(
            f"{verdict}: among {counted(history.nodes_compared, 'node')} one has so many with "
            f"probability {p_value(one.chance)}."
        )
    if one.unplanned_outages is not None:
        repaired = f"; last repaired {moment(one.last_repair)}" if one.last_repair else ""
        words.append(
            f"Out of service unplanned {counted(one.unplanned_outages, 'time')}, "
            f"{number(one.unplanned_h)} h of {number(one.in_service_h)} h in service{repaired}. "
            f"When the logs end it is {'out of service' if one.is_out else 'in service'}."
        )
    if more := not_counted(history.black_holes, history.hung_runs):
        words.append(f"Not counted as failures: {more}.")
    return " ".join(words)


def _sure(history: NodeHistory) -> str:
    """How sure the failures are that are blamed on it."""
    words = by_confidence(history.by_confidence)
    return f" Of those blamed on it, by confidence: {words}." if words else ""


def _shared_words(one: NodeRecord) -> str:
    """What of the failures that blame no single node is put down to it; empty for nothing."""
    if one.blame is None or one.blame < (one.failures or 0) + _LEAST_PART:
        return ""
    return f" With its part of those that blame no single node it has {number(one.blame)} failures."


def _node_notes(history: NodeHistory) -> Iterator[str]:
    if history.outages is None:
        yield "Outages are not measured: the logs hold no states of nodes."
    if not history.record.codes:
        yield "No XID or SXID of it is in the logs."
    if history.failures:
        yield "`ettr explain STORE JOB` shows the evidence behind a failure."


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    return (records_section(analysis.node_records, analysis.recovery_times),)


NODE_RECORDS = Part(
    "node_records",
    place=150,
    question=records_of,
    sections=_sections,
    main="nodes",
    joined={"recovery_times": recovery_of},
    on_page=False,
)
