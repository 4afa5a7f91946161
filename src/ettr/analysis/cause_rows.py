"""What the ledger of causes reads from a store: interruptions and what they were exposed to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import ibis
import numpy as np
import pyarrow as pa

from ettr.attribution.cause_evidence import (
    BY_OPERATOR,
    FAILED,
    NODE_FAILED,
    Coincidences,
    coincidences,
    evidence_table,
    outage_signs,
)
from ettr.attribution.cause_evidence import OUT_OF_MEMORY as MEMORY_SIGN
from ettr.attribution.hazards import Interruptions
from ettr.attribution.run_ages import ends_by_age
from ettr.attribution.shared_bursts import burst_odds
from ettr.attribution.verdicts import OUT_OF_MEMORY, PREEMPTION, USER_FAILURE
from ettr.metrics.instants import fetch, floats_of, seconds_of
from ettr.taxonomy import UNATTRIBUTED
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis

OPERATOR = "operator"
_DIGITS = "[0-9]+"


KeyT = TypeVar("KeyT")


class _PlacesOfKeys(Generic[KeyT]):
    """Places of keys in the order in which they are met."""

    def __init__(self) -> None:
        self.of: dict[KeyT, int] = {}

    def __call__(self, key: KeyT) -> int:
        return self.of.setdefault(key, len(self.of))


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """The interruptions as read, and the model's view of them and of all others of the logs."""

    ends: pa.Table
    evidence: list[str]
    confidence: list[str | None]
    nodes: list[tuple[str, str]]
    n_pairs: int
    in_burst: np.ndarray
    given: Interruptions


def fleet_evidence_table(analysis: Analysis, kinds: tuple[str, ...]) -> np.ndarray:
    """`evidence_table` of what occurs on this fleet."""
    return evidence_table(kinds, analysis.taxonomy.symptoms, has_checks(analysis))


def has_checks(analysis: Analysis) -> bool:
    """Whether any log could have shown a symptom of a node."""
    logs = analysis.logs_read
    return logs.errors or logs.node_states


def ledger_rows(analysis: Analysis) -> LedgerRows:
    """Every interruption of the logs but preemptions, and the view that the model has of them."""
    attempts = analysis.tables["attempts"]
    owners = attempts.select("attempt_id", "user", program=_program(attempts))
    ends = analysis.endings.filter(analysis.endings["kind"] != PREEMPTION)
    found = fetch(
        ends.left_join(owners, "attempt_id").order_by("end", "attempt_id"),
        *("cluster", "attempt_id", "job_id", "user", "program", "end", "state", "kind"),
        *("elapsed_s", "node_failed", "named_node"),
    )
    blamed = {
        row["attempt_id"]: row
        for row in fetch(
            analysis.failures, "attempt_id", "symptom", "confidence", "node"
        ).to_pylist()
    }
    ids = found["attempt_id"].to_pylist()
    evidence = [
        _evidence(blamed.get(one), kind, state, failed)
        for one, kind, state, failed in zip(
            ids,
            found["kind"].to_pylist(),
            found["state"].to_pylist(),
            found["node_failed"].to_pylist(),
            strict=True,
        )
    ]
    confidence = [blamed[one]["confidence"] if one in blamed else None for one in ids]
    named = [
        blamed[one]["node"] if one in blamed else node
        for one, node in zip(ids, found["named_node"].to_pylist(), strict=True)
    ]
    given, nodes = _interruptions(analysis, found, evidence, named)
    # others alone make it likelier than not that a burst ended it
    in_burst = given.burst_odds.sum(axis=0) > 1
    return LedgerRows(found, evidence, confidence, nodes, given.pair_of.size, in_burst, given)


def _program(attempts: ibis.Table) -> Any:
    """Names that differ in numbers alone are one program."""
    return attempts["name"].fill_null("").re_replace(_DIGITS, "#")


def _evidence(failure: dict[str, Any] | None, kind: str, state: str, node_failed: bool) -> str:
    if failure is not None and failure["symptom"] != UNATTRIBUTED:
        return str(failure["symptom"])
    if kind == OPERATOR:
        return BY_OPERATOR
    if node_failed:
        return NODE_FAILED
    if state == OUT_OF_MEMORY or (kind == USER_FAILURE and state == "FAILED"):
        # FAILED is the user's alone where a step was killed for memory
        return MEMORY_SIGN
    return FAILED


def _interruptions(
    analysis: Analysis, found: pa.Table, evidence: list[str], named: list[str | None]
) -> tuple[Interruptions, list[tuple[str, str]]]:
    kinds: _PlacesOfKeys[str] = _PlacesOfKeys()
    nodes: _PlacesOfKeys[tuple[str, str]] = _PlacesOfKeys()
    clusters, ids = found["cluster"].to_pylist(), found["attempt_id"].to_pylist()
    programs = _Programs(_runs_by_program(analysis))
    program_at = [
        programs.place(*key)
        for key in zip(
            clusters, found["user"].to_pylist(), found["program"].to_pylist(), strict=True
        )
    ]
    exposed = _node_exposure(analysis)
    for node in exposed:
        nodes(node)
    pairs = _pairs(analysis, {one: at for at, one in enumerate(ids)}, nodes)
    names = list(nodes.of)
    held = np.array([exposed.get(node, (0.0, 0.0)) for node in names]).reshape(-1, 2)
    is_named = [named[of] == names[node][1] for of, node in zip(*pairs[:2], strict=True)]
    end_s = seconds_of(found["end"])
    user = np.array(programs.user, dtype=np.int64)
    program = np.array(program_at, dtype=np.int64)
    seen = np.array([kinds(one) for one in evidence], dtype=np.int64)
    prior = fleet_evidence_table(analysis, tuple(kinds.of))
    places = _by_place(analysis, clusters, pairs, names)
    odds = _burst_odds(end_s, user[program], outage_signs(seen, prior), places, _period_s(analysis))
    day, days = _days(end_s)
    given = Interruptions(
        evidence=seen,
        kinds=tuple(kinds.of),
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
        by_chance=_coincidences(analysis),
        ended=_ended_by_age(analysis),
    )
    return given, names


def _ended_by_age(analysis: Analysis) -> np.ndarray:
    """How many attempts ended at each age."""
    attempts = analysis.jobs.attempts
    ran = attempts.filter(attempts["start"].notnull() & attempts["elapsed_s"].notnull())
    counted = ran.group_by("elapsed_s").agg(n=ran.count()).order_by("elapsed_s").to_pyarrow()
    days = floats_of(counted["elapsed_s"]) / SECONDS_PER_DAY
    return ends_by_age(days, floats_of(counted["n"]))


def _coincidences(analysis: Analysis) -> Coincidences:
    """Symptoms around the ends of attempts that completed: nothing ended those."""
    attempts, seen = analysis.jobs.attempts, analysis.attribution.observed
    done = attempts.filter((attempts["state"] == "COMPLETED") & attempts["end"].notnull())
    done = done.filter((done["n_nodes"] > 0).fill_null(False)).select("attempt_id", "n_nodes")
    faults = seen.filter(seen["fault"]).select("attempt_id", "symptom").distinct()
    touched = done.join(faults, "attempt_id")
    by_size = done.group_by("n_nodes").agg(n=done.count()).order_by("n_nodes").to_pyarrow()
    met = touched.group_by("n_nodes").agg(n=touched["attempt_id"].nunique()).to_pyarrow()
    of_kind = touched.group_by("symptom").agg(n=touched.count()).order_by("symptom").to_pyarrow()
    met_of = {row["n_nodes"]: row["n"] for row in met.to_pylist()}
    sizes = by_size["n_nodes"].to_pylist()
    return coincidences(
        np.array(sizes, dtype=np.float64),
        floats_of(by_size["n"]),
        np.array([met_of.get(size, 0) for size in sizes], dtype=np.float64),
        {row["symptom"]: int(row["n"]) for row in of_kind.to_pylist()},
    )


class _Programs:
    """Programs by cluster, user and name, with their users and how often each ran."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._place: _PlacesOfKeys[tuple[str, str | None, str]] = _PlacesOfKeys()
        self._user: _PlacesOfKeys[tuple[str, str | None]] = _PlacesOfKeys()
        self.user: list[int] = []
        self.runs: list[float] = []
        for row in rows:
            self.runs[self.place(row["cluster"], row["user"], row["program"])] += row["n"]

    def place(self, cluster: str, user: str | None, name: str | None) -> int:
        """The place of a program; one of which no attempt has run is new."""
        at = self._place((cluster, user, name or ""))
        if at == len(self.runs):
            self.runs.append(0.0)
            self.user.append(self._user((cluster, user)))
        return at


def _days(end_s: np.ndarray) -> tuple[np.ndarray, int]:
    """The calendar day of each moment from the first on, and how many there are."""
    if not len(end_s):
        return np.zeros(0, dtype=np.int64), 1
    day = ((end_s - end_s.min()) // SECONDS_PER_DAY).astype(np.int64)
    return day, int(day.max()) + 1


def _runs_by_program(analysis: Analysis) -> Iterable[dict[str, Any]]:
    ran = analysis.jobs.attempts.filter(analysis.jobs.attempts["start"].notnull())
    named = ran.mutate(program=_program(ran))
    counted = named.group_by("cluster", "user", "program").agg(n=named.count())
    # the order of a group is the engine's; hazards must not depend on it
    rows: list[dict[str, Any]] = (
        counted.order_by("cluster", "user", "program").to_pyarrow().to_pylist()
    )
    return rows


def _node_exposure(analysis: Analysis) -> dict[tuple[str, str], tuple[float, float]]:
    exposed = analysis.exposure.by_node
    held = exposed.filter(exposed["node"].notnull())
    summed = held.group_by("cluster", "node").agg(held_s=held["elapsed_s"].sum(), n=held.count())
    rows = summed.order_by("cluster", "node").to_pyarrow().to_pylist()
    return {
        (row["cluster"], row["node"]): ((row["held_s"] or 0.0) / SECONDS_PER_DAY, float(row["n"]))
        for row in rows
    }


_Pairs = tuple[list[int], list[int], list[float]]


def _pairs(
    analysis: Analysis, place: dict[str, int], nodes: _PlacesOfKeys[tuple[str, str]]
) -> _Pairs:
    """Interruption, node and days of each node that an interrupted attempt held."""
    held = analysis.interrupted_allocations.semi_join(analysis.endings, "attempt_id")
    rows = fetch(held.filter(held["node"].notnull()), "attempt_id", "cluster", "node", "elapsed_s")
    days = np.nan_to_num(floats_of(rows["elapsed_s"])) / SECONDS_PER_DAY
    made: list[tuple[int, int, float]] = []
    for attempt, cluster, node, some in zip(
        rows["attempt_id"].to_pylist(),
        rows["cluster"].to_pylist(),
        rows["node"].to_pylist(),
        days.tolist(),
        strict=True,
    ):
        if attempt in place:
            made.append((place[attempt], nodes((cluster, node)), some))
    made.sort()
    return [one[0] for one in made], [one[1] for one in made], [one[2] for one in made]


_Places = dict[str, dict[str, dict[str, list[int]]]]


def _by_place(
    analysis: Analysis, clusters: list[str], pairs: _Pairs, nodes: list[tuple[str, str]]
) -> _Places:
    """The interruptions of each cluster: in each rack, switch and pod, and all."""
    columns = ("rack", "switch", "pod")
    rows = fetch(analysis.tables["nodes"], "cluster", "node", *columns).to_pylist()
    known = {
        (row["cluster"], row["node"]): [(column, row[column]) for column in columns if row[column]]
        for row in rows
    }
    made: _Places = {}
    for at, cluster in enumerate(clusters):
        of_cluster = made.setdefault(cluster, {kind: {} for kind in (*columns, "cluster")})
        of_cluster["cluster"].setdefault(cluster, []).append(at)
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


def _period_s(analysis: Analysis) -> float:
    return analysis.period.days * SECONDS_PER_DAY
