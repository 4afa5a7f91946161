"""The ledger of causes of a store: every interruption with the probabilities of its causes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from ettr.analysis.cause_rows import (
    OPERATOR,
    LedgerRows,
    OfInterruptions,
    fleet_evidence_table,
    has_checks,
    ledger_rows,
)
from ettr.attribution.hazards import CAUSES
from ettr.attribution.ledger import LedgerFit, expected_totals, fit_ledger, true_shares
from ettr.attribution.verdicts import PREEMPTION
from ettr.defaults import MOST_CAUSES_LISTED
from ettr.estimates import Interval
from ettr.facts import Facts
from ettr.facts.facts import at
from ettr.metrics.black_holes import hung_runs
from ettr.selection import Selection
from ettr.tables.schemas import CAUSES_TABLE
from ettr.words import by_number

if TYPE_CHECKING:
    import pyarrow as pa

    from ettr.analysis.assumptions import Assumptions

REPORTED_UP_TO = 100_000
"""Interruptions beyond which a report leaves the ledger to its own command."""
STATED = (0.05, 0.2, 0.5, 0.8, 0.95)
"""Probabilities of which a summary says what they are worth."""
WITHOUT_JOBS = "Interruptions are not measured: the logs hold no job accounting."
_SHOWN = 0.8


@dataclass(frozen=True, slots=True)
class CauseTotal:
    """One cause over all interruptions.

    Attributes:
        share: Of all interruptions; the interval allows for what the model had wrong on simulated
            clusters.
        by_default: Sum of its probabilities with the catalogue as shipped; None where that is the
            one in use.
    """

    cause: str
    expected: float
    share: Interval
    likeliest: int
    by_default: float | None = None


@dataclass(frozen=True, slots=True)
class StatedCause:
    """What a probability is worth."""

    cause: str
    stated: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CausedInterruption:
    """One interruption and the probabilities of its causes, which sum to one.

    Attributes:
        evidence: The leading symptom, or a sign: node-failed, oom, operator, black-hole, hung (a
            run that was ended after it had probably hung), failed (no sign).
        confidence: The word that `ettr failures` has for it; None where it is not a failure there.
        node: The likeliest culprit among its nodes; None where none is known.
    """

    cluster: str
    attempt_id: str
    job_id: str
    user: str | None
    end: datetime
    state: str
    evidence: str
    confidence: str | None
    node_hardware: float
    shared: float
    system_software: float
    user_program: float
    operator: float
    unknown: float
    likeliest: str
    node: str | None
    node_probability: float


@dataclass(frozen=True, slots=True)
class CauseSummary:
    """Totals of the ledger."""

    interruptions: int | None
    preemptions: int | None
    bursts: int | None
    totals: tuple[CauseTotal, ...]
    reliability: tuple[StatedCause, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CauseLedger:
    """The answer of `ettr causes`."""

    summary: CauseSummary
    interruptions: tuple[CausedInterruption, ...]
    not_listed: int


class OfLedger(OfInterruptions, Protocol):
    """What the ledger takes; `of`: the same logs under another selection."""

    assumptions: Assumptions

    @property
    def selected(self) -> Selection | None:
        """The selection; None where nothing is left out."""
        ...

    def of(self, selection: Selection) -> Self:
        """The same logs under another selection."""
        ...


def cause_ledger(
    analysis: OfLedger, default: OfLedger | None = None, most_listed: int = MOST_CAUSES_LISTED
) -> CauseLedger:
    """The causes of every interruption but preemptions."""
    rows, fit = _judged(analysis)
    before = None if default is None else _judged(default)[1].probability.sum(axis=0)
    first = max(0, len(rows.evidence) - most_listed)
    columns = _columns(rows, fit, first)
    listed = tuple(
        CausedInterruption(**dict(zip(columns, one, strict=True)))
        for one in zip(*columns.values(), strict=True)
    )
    return CauseLedger(_summary(analysis, rows, fit, before), listed, first)


class OfCauses(Protocol):
    """What `causes` takes."""

    causes: CauseSummary | None


def causes(_: Facts, given: OfCauses) -> CauseSummary | None:
    """Interruptions by cause, with probabilities; `table("causes")` has each of them."""
    return given.causes


def cause_summary(analysis: OfLedger) -> CauseSummary | None:
    """Totals of the ledger for a report; None where it would hold up the report."""
    kinds = _of_all_logs(analysis).facts.rows("ending_kinds")
    if sum(row["n"] for row in kinds) > REPORTED_UP_TO:
        return None
    return _summary(analysis, *_judged(analysis), None)


def causes_table(analysis: OfLedger) -> pa.Table:
    """The table `causes`, of all interruptions."""
    import pyarrow as pa

    columns = _columns(*_judged(analysis))
    found = {name: columns[name] for name in CAUSES_TABLE.names}
    return CAUSES_TABLE.check(pa.table(found, CAUSES_TABLE.arrow_schema))


def _of_all_logs(analysis: OfLedger) -> OfLedger:
    return analysis if analysis.selected is None else analysis.of(Selection())


def _judged(analysis: OfLedger) -> tuple[LedgerRows, LedgerFit]:
    """The selected interruptions, judged by all of the logs: a selection changes no verdict."""
    whole = _of_all_logs(analysis)
    rows = ledger_rows(whole)
    fit = _fit(whole, rows)
    if whole is analysis:
        return rows, fit
    chosen = {row["attempt_id"] for row in analysis.facts.rows("endings")}
    places = [place for place, row in enumerate(rows.ends) if row["attempt_id"] in chosen]
    kept = np.array(places, dtype=np.int64)
    part = LedgerRows(
        [rows.ends[place] for place in places],
        [rows.evidence[place] for place in places],
        [rows.confidence[place] for place in places],
        rows.nodes,
        rows.n_pairs,
        rows.in_burst[kept],
        rows.given,
        [rows.settled[place] for place in places],
    )
    return part, replace(
        fit,
        probability=fit.probability[kept],
        node=fit.node[kept],
        node_probability=fit.node_probability[kept],
    )


def _fit(analysis: OfLedger, rows: LedgerRows) -> LedgerFit:
    """The causes of all ends: those that the model weighs, and those that are settled."""
    fit = fit_ledger(rows.given, fleet_evidence_table(analysis, rows.given.kinds))
    if len(fit.probability) == len(rows.ends):
        return fit
    weighed = np.array([known is None for known in rows.settled])
    probability = np.zeros((len(rows.ends), len(CAUSES)))
    node, node_probability = np.full(len(rows.ends), -1), np.zeros(len(rows.ends))
    probability[weighed] = fit.probability
    node[weighed], node_probability[weighed] = fit.node, fit.node_probability
    place_of = {name: place for place, name in enumerate(rows.nodes)}
    for place, known in enumerate(rows.settled):
        if known is None:
            continue
        probability[place, CAUSES.index(known.rest)] = 1.0 - known.probability
        probability[place, CAUSES.index(known.cause)] = known.probability
        if known.node is not None:
            node[place], node_probability[place] = place_of[known.node], known.probability
    return replace(fit, probability=probability, node=node, node_probability=node_probability)


def _summary(
    analysis: OfLedger, rows: LedgerRows, fit: LedgerFit, before: np.ndarray | None
) -> CauseSummary:
    worth = _reliability(analysis)
    if not analysis.logs_read.jobs:
        return CauseSummary(None, None, None, (), worth, (WITHOUT_JOBS,))
    n = len(rows.evidence)
    likeliest = fit.probability.argmax(axis=1) if n else np.zeros(0)
    counts = expected_totals(fit.probability, has_checks(analysis), analysis.assumptions.confidence)
    totals = tuple(
        CauseTotal(
            cause.value,
            float(fit.probability[:, column].sum()),
            Interval(count.estimate / n, count.low / n, count.high / n)
            if n and count.estimate is not None
            else Interval(None, 0.0, 1.0),
            int((likeliest == column).sum()),
            None if before is None else float(before[column]),
        )
        for column, (cause, count) in enumerate(zip(CAUSES, counts, strict=True))
    )
    kinds = {row["kind"]: row["n"] for row in analysis.facts.rows("ending_kinds")}
    in_bursts = int(rows.in_burst.sum())
    notes = tuple(_notes(analysis, rows, worth))
    return CauseSummary(n, kinds.get(PREEMPTION, 0), in_bursts, totals, worth, notes)


def _reliability(analysis: OfLedger) -> tuple[StatedCause, ...]:
    stated = np.tile(np.array(STATED)[:, None], (1, len(CAUSES)))
    low, high = true_shares(stated, has_checks(analysis), analysis.assumptions.confidence)
    return tuple(
        StatedCause(cause.value, one, float(low[row, column]), float(high[row, column]))
        for column, cause in enumerate(CAUSES[:-1])
        for row, one in enumerate(STATED)
    )


def _notes(analysis: OfLedger, rows: LedgerRows, worth: tuple[StatedCause, ...]) -> list[str]:
    shown = ", ".join(
        f"{one.low:.2f} to {one.high:.2f} for {one.cause.replace('_', ' ')}"
        for one in worth
        if one.stated == _SHOWN and one.cause != OPERATOR
    )
    notes = [
        "Probabilities of an interruption sum to one. They weigh other runs of the "
        "program and of the nodes, the evidence, and who else was hit at that moment; "
        "`ettr failures` says how directly a log names the cause.",
        "A store holds no records of hanging collectives: `ettr explain --flight` judges "
        "them, and these probabilities leave its verdict out.",
        "Simulated clusters of many kinds show how far stated probabilities can be off "
        f"on one cluster: where {_SHOWN:.2f} is stated, {shown} may be true. The "
        "intervals of the totals allow for it.",
    ]
    if not has_checks(analysis):
        notes.append(
            "No log of nodes was read, so only the ends of jobs show faults, and node "
            "hardware, shared parts and system software look much alike."
        )
    if not rows.n_pairs and rows.evidence:
        notes.append("No log names the nodes of the jobs: no node can be compared with others.")
    if rows.evidence and not any(row["user"] for row in rows.ends):
        notes.append("No log names the users: no program can be compared with others.")
    listed = {end["attempt_id"] for end in rows.ends}
    hung = sum(one.attempt_id not in listed for one in hung_runs(analysis.facts))
    if hung:
        notes.append(
            by_number(
                "{n} [run|runs] that probably hung after a fault [is|are] not among them: "
                "[its owner|their owners] or the time limit ended [it|them].",
                hung,
            )
        )
    return notes


def _columns(rows: LedgerRows, fit: LedgerFit, first: int = 0) -> dict[str, list[Any]]:
    """The fields of `CausedInterruption`, of the interruptions from `first` on."""
    ends, probability = rows.ends[first:], fit.probability[first:]
    likeliest = probability.argmax(axis=1).tolist() if len(probability) else []
    found: dict[str, list[Any]] = {
        name: [row[name] for row in ends]
        for name in ("cluster", "attempt_id", "job_id", "user", "state")
    }
    found["end"] = [at(row["end_us"]) for row in ends]
    found["evidence"], found["confidence"] = rows.evidence[first:], list(rows.confidence[first:])
    for column, cause in enumerate(CAUSES):
        found[cause.value] = probability[:, column].tolist()
    found["likeliest"] = [CAUSES[column].value for column in likeliest]
    nodes = fit.node[first:].tolist()
    found["node"] = [None if node < 0 else rows.nodes[node][1] for node in nodes]
    found["node_probability"] = fit.node_probability[first:].tolist()
    return found
