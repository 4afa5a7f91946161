"""The ledger of causes of a store: every interruption with the probabilities of its causes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from ettr.attribution.hazards import (
    BY_OPERATOR,
    CAUSES,
    FAILED,
    NODE_FAILED,
    CauseDomain,
    Coincidences,
    Interruptions,
    coincidences,
    ends_by_age,
    evidence_table,
    outage_signs,
)
from ettr.attribution.hazards import OUT_OF_MEMORY as MEMORY_SIGN
from ettr.attribution.ledger import LedgerFit, expected_totals, fit_ledger, true_shares
from ettr.attribution.rules import OPERATOR, OUT_OF_MEMORY, PREEMPTION, USER_FAILURE
from ettr.attribution.shared_bursts import burst_odds
from ettr.defaults import MOST_CAUSES_LISTED
from ettr.estimates import Interval
from ettr.facts import Facts
from ettr.facts.facts import at
from ettr.metrics.availability import LogsRead
from ettr.metrics.black_holes import hung_runs, owed_to_holes
from ettr.metrics.instants import Period
from ettr.metrics.outages import ended_by_person
from ettr.selection import Selection
from ettr.tables.schemas import CAUSES_TABLE
from ettr.taxonomy import UNATTRIBUTED, Taxonomy
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY
from ettr.words import by_number

if TYPE_CHECKING:
    import pyarrow as pa

    from ettr.analysis.assumptions import Assumptions


# -- what the ledger of causes reads from a store: interruptions and what they were exposed to -----


BLACK_HOLE, HUNG = "black-hole", "hung"
_BY_PERSON = 0.9
"""Probability that who sets a node DOWN and names no fault acts of her own accord."""
_HUNG = {False: 0.9, True: 0.98}
"""Probability that a run hung on its fault, without progress and where that had stopped."""
_DIGITS = re.compile("[0-9]+")
"""Names of jobs that differ in numbers alone are one program."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settled:
    """An interruption of which what the logs say of others leaves no choice but one cause."""

    cause: CauseDomain
    probability: float
    rest: CauseDomain
    evidence: str
    node: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """The interruptions as read, and the model's view of those that are left to weigh.

    `settled` has an entry for each of `ends`, None where the model weighs it: `given` has those.
    """

    ends: list[Row]
    evidence: list[str]
    confidence: list[str | None]
    nodes: list[tuple[str, str]]
    n_pairs: int
    in_burst: np.ndarray
    given: Interruptions
    settled: list[Settled | None]


class OfInterruptions(Protocol):
    """What the rows of the ledger take."""

    facts: Facts
    period: Period
    taxonomy: Taxonomy
    logs_read: LogsRead


def fleet_evidence_table(analysis: OfInterruptions, kinds: tuple[str, ...]) -> np.ndarray:
    """`evidence_table` of what occurs on this fleet."""
    return evidence_table(kinds, analysis.taxonomy.symptoms, has_checks(analysis))


def has_checks(analysis: OfInterruptions) -> bool:
    """Whether any log could have shown a symptom of a node."""
    logs = analysis.logs_read
    return logs.errors or logs.node_states


def ledger_rows(analysis: OfInterruptions) -> LedgerRows:
    """Every interruption of the logs but preemptions, and the view that the model has of them."""
    facts = analysis.facts
    ends = sorted(
        (row for row in facts.rows("endings") if row["kind"] != PREEMPTION),
        key=lambda row: (row["end_us"], row["attempt_id"]),
    )
    settled_of = _settled(analysis)
    settled = [settled_of.get(row["attempt_id"]) for row in ends]
    failures = {row["attempt_id"]: row for row in facts.rows("failures")}
    blamed = [failures.get(row["attempt_id"]) for row in ends]
    evidence = [
        _evidence(one, row) if known is None else known.evidence
        for one, row, known in zip(blamed, ends, settled, strict=True)
    ]
    confidence = [None if one is None else str(one["confidence"]) for one in blamed]
    open_ends = [at for at, known in enumerate(settled) if known is None]
    named = [
        ends[at]["named_node"] if (one := blamed[at]) is None else one["node"] for at in open_ends
    ]
    given, nodes = _interruptions(
        analysis, [ends[at] for at in open_ends], [evidence[at] for at in open_ends], named
    )
    # others alone make it likelier than not that a burst ended it
    in_burst = np.zeros(len(ends), dtype=np.bool_)
    in_burst[open_ends] = given.burst_odds.sum(axis=0) > 1
    places = {node: place for place, node in enumerate(nodes)}
    for known in settled:
        if known is not None and known.node is not None and known.node not in places:
            places[known.node] = len(places)
    n_pairs = given.pair_of.size + len(ends) - len(open_ends)
    return LedgerRows(ends, evidence, confidence, list(places), n_pairs, in_burst, given, settled)


def _settled(analysis: OfInterruptions) -> dict[str, Settled]:
    """By attempt, what is no longer weighed."""
    facts, symptoms = analysis.facts, analysis.taxonomy.symptoms
    found = {
        attempt: Settled(CauseDomain.NODE, share, CauseDomain.USER, BLACK_HOLE, node)
        for attempt, (node, share) in owed_to_holes(facts).items()
    }
    for run in hung_runs(facts):
        of_node = run.symptom in symptoms and symptoms[run.symptom].hardware
        found[run.attempt_id] = Settled(
            CauseDomain.NODE if of_node else CauseDomain.SYSTEM,
            _HUNG[run.is_sure],
            CauseDomain.USER,
            HUNG,
            (run.cluster, run.node) if of_node else None,
        )
    for row in facts.rows("planned_ends"):
        found[row["attempt_id"]] = Settled(CauseDomain.OPERATOR, 1.0, CauseDomain.NODE, BY_OPERATOR)
    for attempt in ended_by_person(facts):
        found[attempt] = Settled(CauseDomain.OPERATOR, _BY_PERSON, CauseDomain.NODE, BY_OPERATOR)
    return found


def _evidence(failure: Row | None, end: Row) -> str:
    if failure is not None and failure["symptom"] != UNATTRIBUTED:
        return str(failure["symptom"])
    if end["kind"] == OPERATOR:
        return BY_OPERATOR
    if end["node_failed"]:
        return NODE_FAILED
    if end["state"] == OUT_OF_MEMORY or (end["kind"] == USER_FAILURE and end["state"] == "FAILED"):
        # FAILED is the user's alone where a step was killed for memory
        return MEMORY_SIGN
    return FAILED


def _interruptions(
    analysis: OfInterruptions, ends: list[Row], evidence: list[str], named: list[str | None]
) -> tuple[Interruptions, list[tuple[str, str]]]:
    facts = analysis.facts
    # places of keys in the order in which they are met
    kinds: defaultdict[str, int] = defaultdict(count().__next__)
    nodes: defaultdict[tuple[str, str], int] = defaultdict(count().__next__)
    clusters = [row["cluster"] for row in ends]
    programs = _Programs(facts)
    program_at = [
        programs.place(row["cluster"], row["user"], _DIGITS.sub("#", row["name"] or ""))
        for row in ends
    ]
    exposed = _node_exposure(facts)
    for node in exposed:
        _ = nodes[node]
    pairs = _pairs(facts, {row["attempt_id"]: at for at, row in enumerate(ends)}, nodes)
    names = list(nodes)
    held = np.array([exposed.get(node, (0.0, 0.0)) for node in names]).reshape(-1, 2)
    is_named = [named[of] == names[node][1] for of, node in zip(*pairs[:2], strict=True)]
    end_s = np.array([row["end_us"] for row in ends], np.float64) / MICROSECONDS_PER_SECOND
    user = np.array(programs.user, dtype=np.int64)
    program = np.array(program_at, dtype=np.int64)
    seen = np.array([kinds[one] for one in evidence], dtype=np.int64)
    prior = fleet_evidence_table(analysis, tuple(kinds))
    places = _by_place(facts, clusters, pairs, names)
    signs = outage_signs(seen, prior, tuple(kinds))
    odds = _burst_odds(end_s, user[program], signs, places, analysis.period.days * SECONDS_PER_DAY)
    day, days = _days(end_s)
    given = Interruptions(
        evidence=seen,
        kinds=tuple(kinds),
        program=program,
        user=user,
        program_runs=np.array(programs.runs, dtype=np.float64),
        pair_of=np.array(pairs[0], dtype=np.int64),
        pair_node=np.array(pairs[1], dtype=np.int64),
        pair_days=np.array(pairs[2], dtype=np.float64),
        pair_named=np.array(is_named, dtype=np.bool_),
        node_days=held[:, 0],
        node_runs=held[:, 1],
        burst_odds=odds,
        day=day,
        days=days,
        by_chance=_coincidences(facts),
        ended=_ended_by_age(facts),
    )
    return given, names


def _ended_by_age(facts: Facts) -> np.ndarray:
    """How many attempts ended at each age."""
    ran = facts.columns("runtimes")
    return ends_by_age(ran["elapsed_s"] / SECONDS_PER_DAY, ran["n"].astype(np.float64))


def _coincidences(facts: Facts) -> Coincidences:
    """Symptoms around the ends of attempts that completed: nothing ended those."""
    done: Counter[int] = Counter()
    for row in facts.rows("completed_sizes"):
        if row["n_nodes"]:
            done[row["n_nodes"]] += row["n"]
    touched = [row for row in facts.rows("completed_faults") if row["n_nodes"]]
    met = Counter({row["attempt_id"]: row["n_nodes"] for row in touched}.values())
    sizes = sorted(done)
    symptoms = Counter(row["symptom"] for row in touched)
    return coincidences(
        np.array(sizes, dtype=np.float64),
        np.array([done[size] for size in sizes], dtype=np.float64),
        np.array([met[size] for size in sizes], dtype=np.float64),
        {symptom: symptoms[symptom] for symptom in sorted(symptoms)},
    )


class _Programs:
    """Programs by cluster, user and name, with their users and how often each ran."""

    def __init__(self, facts: Facts) -> None:
        self._place: dict[tuple[str, str | None, str], int] = defaultdict(count().__next__)
        self._user: dict[tuple[str, str | None], int] = defaultdict(count().__next__)
        self.user: list[int] = []
        self.runs: list[float] = []
        # the order of a group is the engine's; hazards must not depend on it
        rows = sorted(
            facts.rows("programs"),
            key=lambda row: (
                row["cluster"],
                row["user"] is None,
                row["user"] or "",
                row["program"],
            ),
        )
        for row in rows:
            self.runs[self.place(row["cluster"], row["user"], row["program"])] += row["n"]

    def place(self, cluster: str, user: str | None, name: str) -> int:
        """The place of a program; one of which no attempt has run is new."""
        at = self._place[cluster, user, name]
        if at == len(self.runs):
            self.runs.append(0.0)
            self.user.append(self._user[cluster, user])
        return at


def _days(end_s: np.ndarray) -> tuple[np.ndarray, int]:
    """The calendar day of each moment from the first on, and how many there are."""
    if not len(end_s):
        return np.zeros(0, dtype=np.int64), 1
    day = ((end_s - end_s.min()) // SECONDS_PER_DAY).astype(np.int64)
    return day, int(day.max()) + 1


def _node_exposure(facts: Facts) -> dict[tuple[str, str], tuple[float, float]]:
    return {
        (row["cluster"], row["node"]): (
            (row["exposure_s"] or 0.0) / SECONDS_PER_DAY,
            float(row["n"]),
        )
        for row in facts.rows("node_seconds")
        if row["node"] is not None
    }


_Pairs = tuple[list[int], list[int], list[float]]


def _pairs(facts: Facts, place: dict[str, int], nodes: dict[tuple[str, str], int]) -> _Pairs:
    """Interruption, node and days of each node that an interrupted attempt held."""
    held = facts.columns("interrupted_held")
    days = np.nan_to_num(held["elapsed_s"].astype(np.float64)) / SECONDS_PER_DAY
    columns = (*(held[name].tolist() for name in ("attempt_id", "cluster", "node")), days.tolist())
    made = sorted(
        (place[attempt], nodes[cluster, node], some)
        for attempt, cluster, node, some in zip(*columns, strict=True)
        if node is not None and attempt in place
    )
    return [one[0] for one in made], [one[1] for one in made], [one[2] for one in made]


_Places = dict[str, dict[str, dict[str, list[int]]]]


def _by_place(
    facts: Facts, clusters: list[str], pairs: _Pairs, nodes: list[tuple[str, str]]
) -> _Places:
    """The interruptions of each cluster: in each rack, switch and pod, and all."""
    columns = ("rack", "switch", "pod")
    known = {
        (row["cluster"], row["node"]): [(column, row[column]) for column in columns if row[column]]
        for row in facts.rows("nodes")
    }
    made: _Places = {}
    for number, cluster in enumerate(clusters):
        of_cluster = made.setdefault(cluster, {kind: {} for kind in (*columns, "cluster")})
        of_cluster["cluster"].setdefault(cluster, []).append(number)
    for of, node in zip(*pairs[:2], strict=True):
        for column, place in known.get(nodes[node], ()):
            made[clusters[of]][column].setdefault(place, []).append(of)
    return made


def _burst_odds(
    end_s: np.ndarray, users: np.ndarray, signs: np.ndarray, places: _Places, period_s: float
) -> np.ndarray:
    """Of every cluster by itself."""
    odds = np.zeros(signs.shape)
    for cluster, of_cluster in places.items():
        at = np.array(of_cluster["cluster"][cluster], dtype=np.int64)
        place_of = np.full(len(end_s), -1, dtype=np.int64)
        place_of[at] = np.arange(len(at))
        inside = {
            kind: {name: place_of[some] for name, some in of_kind.items()}
            for kind, of_kind in of_cluster.items()
        }
        odds[:, at] = burst_odds(end_s[at], users[at], signs[:, at], inside, period_s)
    return odds


# -- the ledger of causes of a store: every interruption with the probabilities of its causes ------


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
