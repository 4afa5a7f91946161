"""Which checks to run before a job, and on which nodes, from what a store says of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ettr.checks.selector import (
    CheckChoice,
    Floats,
    Offer,
    OfferedCheck,
    Prospect,
    after_idle,
    after_pass,
    after_survival,
    choose,
    slurm_list,
    survival,
)
from ettr.errors import UsageError
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis
    from ettr.analysis.node_checks import CheckLogs, CheckRecord, NodeName

STRIKE_H = 12.0
"""Hours of jobs after which a hidden defect strikes, on average, where no lead time is known."""
FALSE_ALARM_H = 4.0
"""For which a false alarm takes a node out of service."""
_PASSIVE = frozenset({"xid", "sxid"})
"""What reads a log by itself and cannot be run."""


@dataclass(frozen=True, slots=True)
class AdvisedCheck:
    """A check to run now.

    Attributes:
        minutes: On each node.
        node_list: In Slurm's form.
        needs_idle: Whether no job may run on the node meanwhile; null where nobody says.
    """

    name: str
    command: str | None
    minutes: float
    needs_idle: bool | None
    nodes: int
    node_list: str


@dataclass(frozen=True, slots=True)
class UnusedCheck:
    """A check that is not to be run, and why."""

    name: str
    minutes: float | None
    why: str


@dataclass(frozen=True, slots=True)
class CheckAdvice:
    """Which checks to run before a job.

    Attributes:
        node_list: Nodes that the job is taken to get: of all in service those that are least
            likely to be struck.
        incident_h: What an incident costs the job.
        struck_before: Probability that the job is struck if nothing is checked.
        struck_after: The same after the checks of `run`.
        checks_node_hours: What these cost, with false alarms.
        saved_node_hours: Expected saving beyond that; 0 where nothing pays.
        waits: Whether the whole job waits for the checks.
    """

    nodes: int
    hours: float
    node_list: str
    incident_h: float
    struck_before: float
    struck_after: float
    checks_node_hours: float
    saved_node_hours: float
    waits: bool
    run: tuple[AdvisedCheck, ...]
    not_run: tuple[UnusedCheck, ...]
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobToCome:
    """The job before which is asked."""

    nodes: int
    hours: float
    incident_h: float
    waits: bool = True


def check_advice(
    analysis: Analysis,
    logs: CheckLogs,
    records: Sequence[CheckRecord],
    catalogue: Sequence[OfferedCheck] | None,
    job: JobToCome,
    asked: frozenset[tuple[str, str]],
) -> CheckAdvice:
    """The checks that are worth their minutes.

    Args:
        catalogue: None for the checks whose runs the store holds.
        asked: Nodes that the job may get, by cluster and name.

    Raises:
        UsageError: the store names fewer nodes in service, or nothing that can be run.
    """
    known = {one.name: one for one in records}
    offered = _offered(known, catalogue)
    places = [node for node in _in_service(analysis, logs) if node in asked]
    if len(places) < job.nodes:
        raise UsageError(
            f"--before {job.nodes} nodes: of those asked about, the logs name {len(places)} that "
            "are in service and had jobs; "
            "give that many or fewer"
        )
    covers = {one.name: _covers(one, known.get(one.name)) for one in offered}
    kinds = sorted({kind for own in covers.values() for kind, share in own.items() if share > 0})
    assumed: list[str] = []
    rates = _rates(analysis, logs, places, kinds)
    strike = _strikes(kinds, records, assumed)
    coverage = np.array([[covers[one.name].get(kind, 0.0) for kind in kinds] for one in offered])
    coverage = coverage.reshape(len(offered), len(kinds))
    belief = _beliefs(logs, places, kinds, rates, strike, offered, coverage)
    clean, bad = survival(rates, strike, job.hours)
    chance = -np.log(np.maximum(clean - belief * (clean - bad), 1e-300)).sum(axis=1)
    order = np.argsort(chance, kind="stable")[: job.nodes]
    usable = [at for at, one in enumerate(offered) if _minutes(one, known) is not None]
    false_share = np.array([_false_share(offered[at], known, assumed) for at in usable])
    choice = choose(
        Prospect(
            belief[order], clean[order], bad[order], job.incident_h * job.nodes, restarts=True
        ),
        Offer(
            coverage[usable].reshape(len(usable), len(kinds)),
            np.array([_minutes(offered[at], known) or 0.0 for at in usable])
            * SECONDS_PER_MINUTE
            / SECONDS_PER_HOUR,
            false_share * FALSE_ALARM_H,
            job.waits,
        ),
    )
    names = [places[at] for at in order]
    several = len({cluster for cluster, _ in places}) > 1
    return _advice(
        job, choice, [offered[at] for at in usable], offered, known, names, several, covers, assumed
    )


def _offered(
    known: Mapping[str, CheckRecord], catalogue: Sequence[OfferedCheck] | None
) -> list[OfferedCheck]:
    if catalogue is not None:
        return list(catalogue)
    found = [OfferedCheck(name) for name, one in known.items() if name not in _PASSIVE]
    if not found:
        raise UsageError(
            "--before: the logs hold no check that could be run; name the site's own by "
            "--catalogue FILE (`ettr checks --help`)"
        )
    return found


def _minutes(one: OfferedCheck, known: Mapping[str, CheckRecord]) -> float | None:
    if one.minutes is not None:
        return one.minutes
    record = known.get(one.name)
    return None if record is None else record.minutes_a_run


def _covers(one: OfferedCheck, record: CheckRecord | None) -> Mapping[str, float]:
    if one.covers is not None:
        return one.covers
    if record is None:
        return {}
    return {
        own.symptom: own.coverage_share.estimate or 0.0
        for own in record.coverage
        if own.symptom != "any" and own.failures
    }


def _false_share(one: OfferedCheck, known: Mapping[str, CheckRecord], assumed: list[str]) -> float:
    if one.false_alarm_share is not None:
        return one.false_alarm_share
    record = known.get(one.name)
    if record is not None and record.runs:
        return record.alarms.false_alarms / record.runs
    assumed.append(f"{one.name}: its false alarms are unknown and count as none.")
    return 0.0


def _in_service(analysis: Analysis, logs: CheckLogs) -> list[NodeName]:
    """Nodes with jobs in the logs that are not out of service as these end."""
    out = {
        (row["cluster"], row["node"])
        for row in analysis.facts.rows("out_states")
        if row["end_us"] is None
    }
    return sorted(node for node in logs.runs if node not in out)


def _rates(
    analysis: Analysis, logs: CheckLogs, places: Sequence[NodeName], kinds: Sequence[str]
) -> Floats:
    """Defects an hour of each node and kind: the fleet's rate times what a lemon is worse."""
    hours = (logs.period_s[1] - logs.period_s[0]) / SECONDS_PER_HOUR
    node_h = max(hours * len(logs.runs), 1e-9)
    counts = np.array([sum(one.symptom == kind for one in logs.failures) for kind in kinds])
    times = np.ones(len(places))
    found = analysis.lemon_nodes
    ratio = {(one.cluster, one.hardware): one.ratio for one in found.groups}
    at = {place: row for row, place in enumerate(places)}
    for one in found.candidates:
        row = at.get((one.cluster, one.node))
        if row is not None:
            worse = ratio.get((one.cluster, one.hardware)) or found.min_ratio
            times[row] = 1 + one.posterior * (worse - 1)
    return np.asarray(times[:, None] * counts / node_h, dtype=np.float64)


def _strikes(kinds: Sequence[str], records: Sequence[CheckRecord], assumed: list[str]) -> Floats:
    """At which rate a hidden defect strikes a job, from the longest lead time of any check."""
    found, guessed = [], []
    for kind in kinds:
        leads = [
            one.lead_h.estimate
            for record in records
            for one in record.coverage
            if one.symptom == kind and one.fired_before >= 3 and one.lead_h.estimate
        ]
        found.append(np.log(2) / max(leads) if leads else 1 / STRIKE_H)
        if not leads:
            guessed.append(kind)
    if guessed:
        assumed.append(
            f"A hidden defect strikes after {STRIKE_H:g} h of jobs on average, where "
            f"fewer than 3 lead times are known: {', '.join(guessed)}."
        )
    return np.asarray(found, dtype=np.float64)


def _beliefs(
    logs: CheckLogs,
    places: Sequence[NodeName],
    kinds: Sequence[str],
    rates: Floats,
    strike: Floats,
    offered: Sequence[OfferedCheck],
    coverage: Floats,
) -> Floats:
    """As the logs end: since the last failure of the kind on the node, by the passes since."""
    begin, now = logs.period_s
    since = np.full((len(places), len(kinds)), begin)
    at = {place: row for row, place in enumerate(places)}
    column = {kind: place for place, kind in enumerate(kinds)}
    for one in logs.failures:
        row = at.get(one.place)
        if row is not None and one.symptom in column:
            cell = row, column[one.symptom]
            since[cell] = max(since[cell], one.end_s)
    passed = np.full((len(offered), len(places)), begin)
    for number, own in enumerate(offered):
        for place, result in logs.results.get(own.name, {}).items():
            if place in at and result["last_pass_us"] is not None:
                passed[number, at[place]] = min(
                    float(result["last_pass_us"]) / MICROSECONDS_PER_SECOND, now
                )
    belief = np.zeros_like(rates)
    order = np.argsort(passed, axis=0, kind="stable")
    nodes = np.arange(len(places))
    ran_s = [_ran_until(logs.runs.get(place, ())) for place in places]
    for step in range(len(offered) + 1):
        check = order[step] if step < len(offered) else None
        upto = np.full(len(places), now) if check is None else passed[check, nodes]
        until = np.maximum(since, upto[:, None])
        ran = np.array(
            [own(until[row]) - own(since[row]) for row, own in enumerate(ran_s)]
        ).reshape(since.shape)
        ran_h = np.maximum(ran, 0.0) / SECONDS_PER_HOUR
        idle_h = np.maximum((until - since) / SECONDS_PER_HOUR - ran_h, 0.0)
        belief = after_idle(after_survival(belief, rates, strike, ran_h), rates, idle_h)
        if check is not None:
            # a pass before the last failure says nothing any more
            fresh = upto[:, None] > since
            belief = np.where(fresh, after_pass(belief, coverage[check]), belief)
        since = until
    return belief


def _ran_until(runs: Sequence[tuple[float, float]]) -> Callable[[Floats], Floats]:
    """A function of times: how long jobs had run on a node by then."""
    if not runs:
        return np.zeros_like
    bounds = np.array(runs, dtype=np.float64)
    total = np.repeat(np.concatenate([[0.0], np.cumsum(bounds[:, 1] - bounds[:, 0])]), 2)[1:-1]
    return lambda times: np.asarray(np.interp(times, bounds.ravel(), total))


def _advice(
    job: JobToCome,
    choice: CheckChoice,
    usable: Sequence[OfferedCheck],
    offered: Sequence[OfferedCheck],
    known: Mapping[str, CheckRecord],
    names: Sequence[NodeName],
    several: bool,
    covers: Mapping[str, Mapping[str, float]],
    assumed: Sequence[str],
) -> CheckAdvice:
    def listed(chosen: Sequence[int]) -> str:
        by_cluster: defaultdict[str, list[str]] = defaultdict(list)
        for at in chosen:
            by_cluster[names[at][0]].append(names[at][1])
        if not several:
            return slurm_list(name for own in by_cluster.values() for name in own)
        return " ".join(f"{cluster}: {slurm_list(own)}" for cluster, own in by_cluster.items())

    run, unused = [], []
    for row, one in enumerate(usable):
        nodes = np.flatnonzero(choice.runs[row]).tolist()
        minutes = _minutes(one, known) or 0.0
        if nodes:
            run.append(
                AdvisedCheck(
                    one.name, one.command, minutes, one.needs_idle, len(nodes), listed(nodes)
                )
            )
        else:
            covered = any(share > 0 for share in covers[one.name].values())
            why = "costs more than it prevents" if covered else "covers no known failure"
            unused.append(UnusedCheck(one.name, minutes, why))
    for one in offered:
        if _minutes(one, known) is None:
            unused.append(UnusedCheck(one.name, None, "its minutes are not known"))
    return CheckAdvice(
        job.nodes,
        job.hours,
        listed(range(len(names))),
        job.incident_h,
        choice.struck_before,
        choice.struck_after,
        choice.checks_node_h,
        choice.saved_node_h,
        job.waits,
        tuple(run),
        tuple(unused),
        tuple(assumed),
    )
