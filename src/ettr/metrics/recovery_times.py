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

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.facts import Facts
from ettr.metrics.instants import Floats, Period, to_seconds
from ettr.metrics.outages import Outage
from ettr.metrics.stitching import with_run_jobs
from ettr.metrics.survival import Durations, durations
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

SPANS = ("detect", "drain", "requeue", "repair", "return")
DRAIN_WITHIN_S = float(SECONDS_PER_DAY)
"""An outage that begins later after a failure is not taken for its consequence."""


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """One span of time over the failures of one symptom.

    Attributes:
        times: In hours; `still_open` are those that had not ended.
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
    facts: Facts, outages: Sequence[Outage] | None, period: Period, confidence: float = CONFIDENCE
) -> tuple[SymptomTimes, ...]:
    """Times by symptom, all together first, then the most frequent symptom.

    Args:
        facts: of a store; of the failures of its selection, those that no node is blamed for are
            left out. What followed them is read beyond the ends of a period.
        outages: of all nodes in order of node and start; None where no log has states of nodes.
    """
    blamed = _blamed(facts)
    if not blamed:
        return ()
    last_s = to_seconds(period.end)
    _detect(facts, blamed)
    if outages is not None:
        _drain_and_repair(blamed, outages, last_s)
    _requeue(blamed, _starts_of_jobs(facts), last_s)
    next_us = {row["attempt_id"]: row["next_us"] for row in facts.rows("next_on_nodes")}
    _return(blamed, next_us, last_s)
    by_symptom: dict[str, list[_Failure]] = defaultdict(list)
    for one in blamed:
        by_symptom[one.symptom].append(one)
    ranked = sorted(by_symptom.items(), key=lambda item: (-len(item[1]), item[0]))
    return (
        _times(None, blamed, confidence),
        *(_times(symptom, members, confidence) for symptom, members in ranked),
    )


def _blamed(facts: Facts) -> list[_Failure]:
    rows = [row for row in facts.rows("failures") if row["node"] is not None]
    episodes: dict[str, list[str]] = defaultdict(list)
    for cause in facts.rows("causes"):
        episodes[cause["attempt_id"]].append(cause["episode_id"])
    found = []
    for row in rows:
        evidence = episodes[row["attempt_id"]]
        if evidence and row["named_event"] is not None:
            evidence.append(row["named_event"])
        start_us = row["start_us"]
        found.append(
            _Failure(
                cluster=row["cluster"],
                node=row["node"],
                attempt_id=row["attempt_id"],
                job_id=row["job_id"],
                symptom=row["symptom"],
                start_s=np.nan if start_us is None else start_us / MICROSECONDS_PER_SECOND,
                end_s=row["end_us"] / MICROSECONDS_PER_SECOND,
                evidence=evidence,
            )
        )
    return found


def _detect(facts: Facts, blamed: list[_Failure]) -> None:
    """Errors that were recorded only after the end say nothing of how long they went unnoticed."""
    if not any(failure.evidence for failure in blamed):
        return
    times_s = {
        row["event_id"]: row["time_us"] / MICROSECONDS_PER_SECOND
        for row in facts.rows("evidence_events")
    }
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


_Starts = dict[tuple[str, str], Floats]


def _starts_of_jobs(facts: Facts) -> _Starts:
    """When each attempt of a job that failed started; infinite where it has not."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in with_run_jobs(facts, {}).rows("failed_jobs_attempts"):
        start_us = row["start_us"]
        # what was cancelled in the queue never started and waits no longer
        if start_us is not None or row["end_us"] is None:
            start_s = np.inf if start_us is None else start_us / MICROSECONDS_PER_SECOND
            groups[row["cluster"], row["job_id"]].append(start_s)
    return {name: np.sort(np.array(found)) for name, found in groups.items()}


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


def _return(blamed: list[_Failure], next_us: dict[str, int], last_s: float) -> None:
    for failure in blamed:
        until_us = next_us.get(failure.attempt_id)
        failure.spans["return"] = (
            (max(last_s - failure.end_s, 0.0), False)
            if until_us is None
            else (until_us / MICROSECONDS_PER_SECOND - failure.end_s, True)
        )


def _times(symptom: str | None, members: list[_Failure], confidence: float) -> SymptomTimes:
    return SymptomTimes(
        symptom, len(members), tuple(_span(span, members, confidence) for span in SPANS)
    )


def _span(span: str, members: Iterable[_Failure], confidence: float) -> SpanTimes:
    known = [one.spans.get(span) for one in members]
    lasted = [one for one in known if one is not None]
    hours = np.array([seconds / SECONDS_PER_HOUR for seconds, _ in lasted])
    over = np.array([is_over for _, is_over in lasted], dtype=bool)
    return SpanTimes(span, durations(hours, over, confidence), len(known) - len(lasted))
