"""The page about one node that goes with a ticket to its vendor, and what to call its files."""

from __future__ import annotations

import hashlib
import re

from ettr.analysis.lemon_evidence import LemonEvidence
from ettr.report.document import JsonValue, plain_fields
from ettr.report.html import Card, Page
from ettr.report.numbers import DASH, moment, number
from ettr.report.sections.lemon_evidence import NOT_MEASURED, chance_of, evidence_sections
from ettr.version import __version__

FORMAT = "ettr-lemon-evidence"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80
_DIGEST = 8


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
            DASH if since is None else moment(since.median),
            "no failure names it"
            if since is None
            else f"between {moment(since.low)} and {moment(since.high)}, if it is a lemon",
        ),
    )


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
