"""The page about one node that goes with a ticket to its vendor, and what to call its files."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ettr.analysis.lemon_evidence import LemonEvidence, NodeOnset
from ettr.analysis.lemon_nodes import SERIAL
from ettr.analysis.selecting import SelectionHead
from ettr.analysis.timeline import JobEnd, Timeline, TimelineJob
from ettr.metrics.instants import to_seconds
from ettr.metrics.run_rules import LOST_CAP_MIN
from ettr.report.answers import Answer
from ettr.report.html import Page, Picture
from ettr.report.numbers import DASH, NOT_MEASURED, duration, moment, number
from ettr.report.rows import JsonValue, plain_fields, selection_line
from ettr.report.section import Section
from ettr.report.sections.lemons import LIKELY, chance_of, evidence_sections
from ettr.report.sections.timeline import (
    ENDS,
    end_words,
    left_out_lines,
    timeline_section,
    unit_words,
)
from ettr.units import SECONDS_PER_MINUTE
from ettr.version import __version__
from ettr.words import counted, cut, harmless

FORMAT = "ettr-lemon-evidence"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80
_DIGEST = 8
_PARTS = {
    "gpu-unavailable": "GPU",
    "gpu-memory": "GPU",
    "nvlink": "GPU",
    "pcie": "device",
    "infiniband": "InfiniBand adapter",
    "ethlink": "network adapter",
    "main-memory": "memory module",
}
"""What to replace for a symptom; anything else is a part."""


def evidence_page(evidence: LemonEvidence, selection: str = "") -> Page:
    """The page before it is rendered."""
    place = (
        ("rack", evidence.rack),
        ("switch", evidence.switch),
        ("GPUs", evidence.gpu_type),
    )
    known = "".join(f"; {what} {value}" for what, value in place if value)
    period = evidence.period
    return Page(
        title=f"Node {evidence.node} of {evidence.cluster}: evidence",
        subtitle=f"{moment(period.start)} to {moment(period.end)} UTC{known}",
        caution=None,
        answers=(Answer("Request", request(evidence)), *_answers(evidence)),
        sections=evidence_sections(evidence),
        footer=f"ettr {__version__}. Times are UTC. Files and lines are those of the logs read.",
        selection=selection,
    )


def _answers(evidence: LemonEvidence) -> tuple[Answer, ...]:
    one, since = evidence.candidate, evidence.onset
    if one is None:
        return (
            Answer("Probability of being a lemon", NOT_MEASURED, evidence.why_not_judged or ""),
        )
    return (
        Answer(
            "Probability of being a lemon",
            chance_of(one.posterior),
            "claimed" if one.claimed else "not claimed",
        ),
        Answer(
            "Failures",
            number(one.failures, 3),
            f"an ordinary node would have had {number(one.expected, 2)}",
        ),
        Answer("Node-days of jobs", number(one.exposure_node_days, 4), "its exposure"),
        Answer(
            "Failing since",
            DASH if since is None else _since(since),
            "no failure names it"
            if since is None
            else "if it is a lemon"
            if since.low == since.high
            else f"between {moment(since.low)} and {moment(since.high)}, if it is a lemon",
        ),
    )


def _since(since: NodeOnset) -> str:
    return "before the logs begin" if since.from_start > LIKELY else moment(since.median)


def request(evidence: LemonEvidence) -> str:
    """What a vendor is asked for: the part that its errors name, else a test of the node."""
    named = [
        one
        for one in evidence.checks or ()
        if one.severity == "critical" and one.symptom and one.entity
    ]
    node, failures = f"node {evidence.node}", ""
    if evidence.candidate is not None:
        failures = f" It failed {counted(evidence.candidate.named, 'job')}."
    if not named:
        whole = f"{node}{_serial(evidence, None)}"
        return f"Please test {whole}: no error names one part of it.{failures}"
    # a reset follows from a fault, and a program can cause some errors: no vendor takes those
    worst = max(named, key=lambda one: (one.is_node_fault, one.events, one.last))
    part = _PARTS.get(worst.symptom or "", "part")
    code = f"{worst.check} {worst.code}" if worst.code else worst.check
    return (
        f"Please replace the {part} at {worst.entity}{_serial(evidence, worst.entity)} in "
        f"{node}{_serial(evidence, None)}: {code}, "
        f"{counted(worst.events, 'time')} until {moment(worst.last)} UTC.{failures}"
    )


def _serial(evidence: LemonEvidence, entity: str | None) -> str:
    """The latest serial number that a part, or the node, reported; empty where no log has one."""
    known = [
        one
        for one in evidence.checks or ()
        if one.check == SERIAL and one.entity == entity and one.code
    ]
    return f" (serial {max(known, key=lambda one: one.last).code})" if known else ""


def evidence_document(evidence: LemonEvidence) -> dict[str, JsonValue]:
    """The same as JSON."""
    return {"format": FORMAT, "version": 1, "ettr": __version__, **plain_fields(evidence)}


def evidence_file(cluster: str, node: str) -> str:
    """A file name for a node's page that no name from a log can turn into another place."""
    name = f"{cluster}-{node}"
    safe = _UNSAFE.sub("_", name)[:_LONGEST_NAME]
    if safe != name:
        safe = f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]}"
    return f"lemon-{safe}.html"


# -- the timeline as a page: a canvas that zooms, the same spans as tables, and what is left out
# The spans go into the page as columns. Where several jobs held one node at the same time, the row
# of the node is divided into lanes; which lane is whose is worked out here.


_SCRIPTS = ("timeline_rows", "timeline_draw", "timeline")
_LONGEST_TEXT = 200
_ENDS = tuple(JobEnd)


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows next to each other on which a job has the same lane: `lane` of `lanes`, from 0."""

    first: int
    last: int
    lane: int
    lanes: int


def timeline_page(found: Timeline, head: SelectionHead) -> Page:
    """The page before it is rendered."""
    section = timeline_section(found)
    names = ", ".join(found.clusters) or "a fleet"
    length_s = (found.until - found.since).total_seconds()
    left_out = " ".join(left_out_lines(found)) if found.left_out else None
    return Page(
        title=f"{'Simulated: timeline' if head.simulated else 'Timeline'} of {names}",
        subtitle=(f"{moment(found.since)} to {moment(found.until)} UTC, {duration(length_s)}"),
        selection=selection_line(head),
        caution=left_out,
        sections=(Section("spans", "The same as tables", section.lead, (), section.tables),),
        footer=f"ettr {__version__}. Times are UTC. Nothing is loaded from anywhere.",
        picture=Picture("timeline", _SCRIPTS, picture_data(found)),
    )


def picture_data(found: Timeline) -> JsonValue:
    """What the script of the page draws; times are seconds from the beginning."""
    rows = {(one.cluster, one.node): row for row, one in enumerate(found.nodes)}
    since = found.since
    groups, group_of = _groups(found)
    runs = row_runs(found, rows)
    last_s = _seconds(found.until, since)
    return {
        "since_s": to_seconds(since),
        "length_s": last_s,
        "lost_s": SECONDS_PER_MINUTE * LOST_CAP_MIN,
        "unit": unit_words(found),
        "groups": list(groups),
        "nodes": [
            [
                _text(one.node),
                group,
                _seconds(one.in_service_from, since),
                _seconds(one.in_service_to, since),
            ]
            for one, group in zip(found.nodes, group_of, strict=True)
        ],
        "ends": [ENDS[one] for one in _ENDS],
        "jobs": [
            [
                *(_text(text) for text in (one.job_id, one.name or "", one.user or "")),
                one.n_gpus,
                one.n_nodes,
                _seconds(one.start, since),
                None if one.end is None else _seconds(one.end, since),
                _ENDS.index(one.ended),
                _text(end_words(one)),
                rows.get((one.cluster, one.blamed)) if one.blamed else None,
                [[run.first, run.last, run.lane, run.lanes] for run in run_list],
            ]
            for one, run_list in zip(found.jobs, runs, strict=True)
        ],
        "outages": [
            [
                rows[one.cluster, one.node],
                one.kind.value,
                _text(one.state),
                _text(one.reason or ""),
                _seconds(one.start, since),
                None if one.end is None else _seconds(one.end, since),
            ]
            for one in found.outages or ()
        ],
        "marks": [
            [
                rows[one.cluster, one.node],
                _seconds(one.time, since),
                _text(f"job {one.job_id}: {one.symptom} (confidence {one.confidence})"),
            ]
            for one in found.marks
        ],
    }


def _seconds(moment_: datetime, since: datetime) -> float:
    return round((moment_ - since).total_seconds(), 1)


def _text(text: str) -> str:
    return harmless(cut(text, _LONGEST_TEXT))


def _groups(found: Timeline) -> tuple[tuple[str, ...], list[int]]:
    """Headings of rows, and the place of each row's; one empty heading where all are alike."""
    several = len({one.cluster for one in found.nodes}) > 1
    placed = any(one.place for one in found.nodes)
    names: dict[str, int] = {}
    places = []
    for one in found.nodes:
        parts = [one.cluster] if several else []
        if placed:
            parts.append(one.place or "rack not known")
        name = _text(", ".join(parts))
        places.append(names.setdefault(name, len(names)))
    return tuple(names), places


# -- lanes ----------------------------------------------------------------------------------------


def row_runs(found: Timeline, rows: dict[tuple[str, str], int]) -> list[list[RowRun]]:
    """For each job the rows that it is drawn on, with its lane in each."""
    on_row: dict[int, list[int]] = defaultdict(list)
    for index, job in enumerate(found.jobs):
        for node in job.nodes:
            on_row[rows[job.cluster, node]].append(index)
    lanes: list[list[tuple[int, int, int]]] = [[] for _ in found.jobs]
    for row in sorted(on_row):
        for index, lane, of in _lanes(found.jobs, on_row[row], found.until):
            lanes[index].append((row, lane, of))
    return [list(_runs(one)) for one in lanes]


def _lanes(
    jobs: Sequence[TimelineJob], numbers: Sequence[int], last: datetime
) -> Iterator[tuple[int, int, int]]:
    """Job, lane and number of lanes, for the jobs of one node in the order of their starts."""
    together: list[tuple[int, int]] = []
    free: list[datetime] = []
    for index in numbers:
        job = jobs[index]
        if free and all(end <= job.start for end in free):
            yield from ((one, lane, len(free)) for one, lane in together)
            together, free = [], []
        lane = next((at for at, end in enumerate(free) if end <= job.start), len(free))
        end = max(job.end or last, job.start)
        if lane == len(free):
            free.append(end)
        else:
            free[lane] = end
        together.append((index, lane))
    yield from ((one, lane, len(free)) for one, lane in together)


def _runs(lanes: Sequence[tuple[int, int, int]]) -> Iterator[RowRun]:
    """Rows that follow each other with the same lane, as one."""
    begin = 0
    for at in range(1, len(lanes) + 1):
        row, *lane = lanes[at - 1]
        if at == len(lanes) or lanes[at] != (row + 1, *lane):
            yield RowRun(lanes[begin][0], row, lane[0], lane[1])
            begin = at
