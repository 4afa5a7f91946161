"""The page about one node that goes with a ticket to its vendor, and what to call its files."""

from __future__ import annotations

import hashlib
import re

from ettr.analysis.lemon_evidence import LemonEvidence, NodeOnset
from ettr.analysis.lemon_nodes import SERIAL
from ettr.report.answers import Answer
from ettr.report.html import Card, Page
from ettr.report.numbers import DASH, moment, number
from ettr.report.rows import JsonValue, plain_fields
from ettr.report.sections.lemons import LIKELY, NOT_MEASURED, chance_of, evidence_sections
from ettr.version import __version__
from ettr.words import counted

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
        cards=_cards(evidence),
        answers=(Answer("Request", request(evidence)),),
        next_steps=(),
        sections=evidence_sections(evidence),
        footer=f"ettr {__version__}. Times are UTC. Files and lines are those of the logs read.",
        selection=selection,
    )


def _cards(evidence: LemonEvidence) -> tuple[Card, ...]:
    one, since = evidence.candidate, evidence.onset
    if one is None:
        return (Card("Probability of being a lemon", NOT_MEASURED, evidence.why_not_judged or ""),)
    return (
        Card(
            "Probability of being a lemon",
            chance_of(one.posterior),
            "claimed" if one.claimed else "not claimed",
        ),
        Card(
            "Failures",
            number(one.failures, 3),
            f"an ordinary node would have had {number(one.expected, 2)}",
        ),
        Card("Node-days of jobs", number(one.exposure_node_days, 4), "its exposure"),
        Card(
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
    worst = max(named, key=lambda one: (one.events, one.last))
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
