"""How long it takes from an error to a node that works again, by symptom.

Five spans of time, each of a failure that is blamed on one node:

- detect: from the first error in its evidence to the end of the attempt;
- drain: from the end of the attempt to the beginning of the node's outage;
- requeue: from the end of the attempt to the start of the same job's next attempt;
- repair: from the beginning of that outage to its end;
- return: from the end of the attempt to the start of the next attempt on that node.

What has not happened when the logs end counts as lasting at least until then (Kaplan-Meier).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import ibis
import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.metrics.instants import Floats, Period, fetch, seconds_of, to_seconds
from ettr.metrics.outages import Outage
from ettr.metrics.survival import Durations, durations
from ettr.tables.ibis_time import epoch_day
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SPANS = ("detect", "drain", "requeue", "repair", "return")
DRAIN_WITHIN_S = float(SECONDS_PER_DAY)
"""An outage that begins later after a failure is not taken for its consequence."""


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """One span of time over the failures of one symptom.

    Attributes:
        span: One of `SPANS`.
        times: In hours; `still_open` are those that had not ended.
        not_measured: Failures for which the logs lack what it takes.
    """

    span: str
    times: Durations
    not_measured: int


@dataclass(frozen=True, slots=True)
class SymptomTimes:
    """The five spans over the failures of one symptom; `symptom` None for all together."""

    symptom: str | None
    failures: int
    spans: tuple[SpanTimes, ...]


@dataclass(slots=True)
class _Failure:
    """A failure that is blamed on a node, and how long each span lasted: (seconds, is over)."""

    cluster: str
    node: str
    attempt_id: str
    job_id: str
    symptom: str
    start_s: float
    end_s: float
    evidence: list[str]
    spans: dict[str, tuple[float, bool]] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str]:
        return self.cluster, self.node

    @property
    def job(self) -> tuple[str, str]:
        return self.cluster, self.job_id


def recovery_times(
    failures: ibis.Table,
    attempts: ibis.Table,
    allocations: ibis.Table,
    events: ibis.Table,
    outages: Sequence[Outage] | None,
    period: Period,
    confidence: float = CONFIDENCE,
) -> tuple[SymptomTimes, ...]:
    """Times by symptom, all together first, then the most frequent symptom.

    Args:
        failures: the table `failures`; those that no node is blamed for are left out.
        attempts: all attempts.
        allocations: all allocations.
        events: observations; those that `failures.evidence` names.
        outages: of all nodes in order of node and start; None where no log has states of nodes.
        period: time that the logs cover.
        confidence: of the intervals, between 0 and 1.
    """
    blamed = _blamed(failures)
    if not blamed:
        return ()
    last_s = to_seconds(period.end)
    _detect(blamed, events)
    if outages is not None:
        _drain_and_repair(blamed, outages, last_s)
    _requeue(blamed, _starts_of_jobs(attempts, failures), last_s)
    _return(blamed, _next_on_node(allocations, failures), last_s)
    by_symptom: dict[str, list[_Failure]] = defaultdict(list)
    for one in blamed:
        by_symptom[one.symptom].append(one)
    ranked = sorted(by_symptom.items(), key=lambda item: (-len(item[1]), item[0]))
    return (
        _times(None, blamed, confidence),
        *(_times(symptom, members, confidence) for symptom, members in ranked),
    )


def _blamed(failures: ibis.Table) -> list[_Failure]:
    rows = fetch(
        failures.filter(failures["node"].notnull()),
        *(*_WORDS, "start", "end", "evidence"),
    )
    starts_s, ends_s = (seconds_of(rows[name]).tolist() for name in ("start", "end"))
    evidence = [(text or "").split(",") for text in rows["evidence"].to_pylist()]
    return [
        _Failure(cluster, node, attempt, job, symptom, start_s, end_s, [one for one in ids if one])
        for cluster, node, attempt, job, symptom, start_s, end_s, ids in zip(
            *(rows[name].to_pylist() for name in _WORDS), starts_s, ends_s, evidence, strict=True
        )
    ]


def _detect(blamed: list[_Failure], events: ibis.Table) -> None:
    """Errors that were recorded only after the end say nothing of how long they went unnoticed."""
    wanted = sorted({one for failure in blamed for one in failure.evidence})
    if not wanted:
        return
    keys = ibis.memtable({"event_id": wanted}, schema={"event_id": "string"})
    rows = fetch(events.semi_join(keys, "event_id"), "event_id", "time")
    times_s = dict(
        zip(rows["event_id"].to_pylist(), seconds_of(rows["time"]).tolist(), strict=True)
    )
    for failure in blamed:
        first_s = min((times_s[one] for one in failure.evidence if one in times_s), default=None)
        if first_s is not None and first_s <= failure.end_s:
            failure.spans["detect"] = (failure.end_s - first_s, True)


def _drain_and_repair(blamed: list[_Failure], outages: Sequence[Outage], last_s: float) -> None:
    by_node: dict[tuple[str, str], list[Outage]] = defaultdict(list)
    for one in outages:
        by_node[one.cluster, one.node].append(one)
    for failure in blamed:
        until_s = min(failure.end_s + DRAIN_WITHIN_S, last_s)
        out = next(
            (
                one
                for one in by_node[failure.place]
                if one.end_s >= failure.end_s and one.start_s <= until_s and not one.is_planned
            ),
            None,
        )
        if out is None:
            failure.spans["drain"] = (max(until_s - failure.end_s, 0.0), False)
        else:
            failure.spans["drain"] = (max(out.start_s - failure.end_s, 0.0), True)
            failure.spans["repair"] = (out.end_s - out.start_s, not out.is_open)


_WORDS = ("cluster", "node", "attempt_id", "job_id", "symptom")
_Starts = dict[tuple[str, str], Floats]


def _starts_of_jobs(attempts: ibis.Table, failures: ibis.Table) -> _Starts:
    """When each attempt of a job that failed started; infinite where it has not."""
    of_failed = attempts.semi_join(failures, ["cluster", "job_id"])
    # what was cancelled in the queue never started and waits no longer
    of_failed = of_failed.filter(of_failed["start"].notnull() | of_failed["end"].isnull())
    rows = fetch(of_failed, "cluster", "job_id", "start")
    starts_s = np.nan_to_num(seconds_of(rows["start"]), nan=np.inf)
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cluster, name, start_s in zip(
        rows["cluster"].to_pylist(), rows["job_id"].to_pylist(), starts_s.tolist(), strict=True
    ):
        groups[cluster, name].append(start_s)
    return {name: np.sort(np.array(found)) for name, found in groups.items()}


def _next_on_node(allocations: ibis.Table, failures: ibis.Table) -> dict[str, float]:
    """By failed attempt, when the next one began on the node that is blamed.

    The backend finds it: a large site has millions of allocations on nodes that have failed. Most
    nodes run again within a day, and are met by the day; all that began later is looked at only for
    the others.
    """
    ended = failures.filter(failures["node"].notnull()).select(
        "cluster", "node", "attempt_id", began="start", ended="end"
    )
    held = allocations.select("cluster", "node", next_start="start")
    day = epoch_day(ended["ended"])
    near = ibis.union(ended.mutate(day=day), ended.mutate(day=day + 1), distinct=False)
    by_day = held.mutate(day=epoch_day(held["next_start"]))
    next_s = _first_after(near.inner_join(by_day, ["cluster", "node", "day"]))
    if next_s:
        known = ibis.memtable({"attempt_id": list(next_s)}, schema={"attempt_id": "string"})
        ended = ended.anti_join(known, "attempt_id")
    return next_s | _first_after(ended.inner_join(held, ["cluster", "node"]))


def _first_after(both: ibis.Table) -> dict[str, float]:
    """By failed attempt, the first start after its end."""
    # an attempt of no length is not its own next one
    no_length = (both["began"] == both["ended"]).fill_null(False)
    later = (both["next_start"] > both["ended"]) | (
        (both["next_start"] == both["ended"]) & ~no_length
    )
    after = both.filter(later)
    rows = fetch(
        after.group_by("attempt_id").aggregate(first=after["next_start"].min()),
        *("attempt_id", "first"),
    )
    return dict(
        zip(rows["attempt_id"].to_pylist(), seconds_of(rows["first"]).tolist(), strict=True)
    )


def _requeue(blamed: list[_Failure], starts_s: _Starts, last_s: float) -> None:
    """The first start at or after each failure; a job that never came back was not requeued."""
    for failure in blamed:
        found = starts_s.get(failure.job, np.array([]))
        # an attempt of no length is not its own next one
        side: Literal["left", "right"] = "right" if failure.start_s == failure.end_s else "left"
        place = int(np.searchsorted(found, failure.end_s, side=side))
        if place < len(found):
            is_over = bool(np.isfinite(found[place]))
            until_s = float(found[place]) if is_over else last_s
            failure.spans["requeue"] = (max(until_s - failure.end_s, 0.0), is_over)


def _return(blamed: list[_Failure], next_s: dict[str, float], last_s: float) -> None:
    for failure in blamed:
        until_s = next_s.get(failure.attempt_id)
        failure.spans["return"] = (
            (max(last_s - failure.end_s, 0.0), False)
            if until_s is None
            else (until_s - failure.end_s, True)
        )


def _times(symptom: str | None, members: list[_Failure], confidence: float) -> SymptomTimes:
    return SymptomTimes(
        symptom,
        len(members),
        tuple(_span(span, members, confidence) for span in SPANS),
    )


def _span(span: str, members: Iterable[_Failure], confidence: float) -> SpanTimes:
    known = [one.spans.get(span) for one in members]
    lasted = [one for one in known if one is not None]
    hours = np.array([seconds / SECONDS_PER_HOUR for seconds, _ in lasted])
    over = np.array([is_over for _, is_over in lasted], dtype=bool)
    return SpanTimes(span, durations(hours, over, confidence), len(known) - len(lasted))
