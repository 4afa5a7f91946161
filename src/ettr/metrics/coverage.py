"""The days that each source covers, holes beyond chance, and the time with errors of nodes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ettr.facts import Facts
from ettr.facts.files import Columns
from ettr.metrics.instants import Period, moment, to_datetime, to_seconds
from ettr.taxonomy import Taxonomy, parse_xid_code, xid_of_reason
from ettr.taxonomy.rules import lowered
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant

HOLE_CHANCE = 1e-4
_EPOCH = date(1970, 1, 1)
_DATED = ("attempts", "node_states", "events", "progress")


@dataclass(frozen=True, slots=True)
class Hole:
    """Days in a row, both ends included, without a row."""

    first_day: str
    last_day: str
    days: int


@dataclass(frozen=True, slots=True)
class DayCount:
    """Rows of one UTC day."""

    day: str
    rows: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one source put into one table, day by day.

    A hole is reported where the chance of so many days without a row, at the source's median rate
    on days with rows, is under one in ten thousand.
    """

    table: str
    source: str
    rows: int
    first_day: str
    last_day: str
    days_with_rows: int
    rows_per_day: tuple[DayCount, ...]
    holes: tuple[Hole, ...]


def coverage(facts: Facts) -> tuple[Coverage, ...]:
    """Days that each source of attempts, states of nodes, events and progress covers, and holes."""
    by_source: dict[tuple[str, str], dict[date, int]] = defaultdict(dict)
    for row in facts.rows("rows_by_day"):
        day = _EPOCH + timedelta(days=row["day"])
        by_source[row["table_name"], row["source"]][day] = row["n_rows"]
    ordered = sorted(by_source, key=lambda key: (_DATED.index(key[0]), key[1]))
    return tuple(_coverage(*key, by_source[key]) for key in ordered)


def _coverage(table: str, source: str, days: dict[date, int]) -> Coverage:
    order = sorted(days)
    usual = float(np.median(list(days.values())))
    holes = []
    for before, after in pairwise(order):
        missing = (after - before).days - 1
        if missing > 0 and np.exp(-usual * missing) < HOLE_CHANCE:
            first, last = before + timedelta(days=1), after - timedelta(days=1)
            holes.append(Hole(first.isoformat(), last.isoformat(), missing))
    return Coverage(
        table=table,
        source=source,
        rows=sum(days.values()),
        first_day=order[0].isoformat(),
        last_day=order[-1].isoformat(),
        days_with_rows=len(order),
        rows_per_day=tuple(DayCount(day.isoformat(), days[day]) for day in order),
        holes=tuple(holes),
    )


# -- The part of the time in which errors of nodes were recorded, where logs of them begin late ---
#
# Of jobs that end FAILED only kernel messages and health checks name a cause. Where these begin
# a hundred days after the accounting, the failure rate seems to rise on that day.

LEAST_DAYS = 3
"""Days with rows, below which it is not known how regularly a log arrives."""
LEAST_SHARE = 0.5
"""Of the days from its first row to its last: a log that is silent when all is well says nothing
by its silence."""
_KERNEL = "kernel-xid"


@dataclass(frozen=True, slots=True)
class CoveredTime:
    """Where kernel messages and health checks cover part of a period.

    Attributes:
        since: Midnight UTC from which they arrive; None where they cover the beginning.
        until: Midnight UTC after their last day; None where they cover the end.
    """

    what: str
    since: datetime | None
    until: datetime | None
    covered_days: float
    days: float

    @property
    def bounds(self) -> str:
        """From when to when: `Kernel logs begin 2026-06-20`."""
        begin = f"begin {self.since:%Y-%m-%d}" if self.since else ""
        end = f"end {self.until:%Y-%m-%d}" if self.until else ""
        return f"{self.what} {' and '.join(filter(None, (begin, end)))}"

    @property
    def sentence(self) -> str:
        """What is wrong, and what counts instead."""
        return (
            f"{self.bounds}: they cover {significant(self.covered_days)} of "
            f"{significant(self.days)} days. MTTF, the rate over time and comparisons use "
            "these days alone; on the others, jobs that ended FAILED by a fault of a "
            "node do not count as failures."
        )

    def within(self, period: Period) -> Period:
        """The covered part of a period; a moment where there is none."""
        start = period.start if self.since is None else max(period.start, self.since)
        end = period.end if self.until is None else min(period.end, self.until)
        return Period(min(start, period.end), max(end, min(start, period.end)))


def covered_time(facts: Facts, period: Period, cluster: str) -> CoveredTime | None:
    """The time that logs of errors cover; None where they cover all, or nothing is known of it.

    They begin, or end, within the period where a silence so long before, or after, has a chance of
    less than one in ten thousand at the share of days on which they arrive otherwise.
    """
    rows = facts.rows("cluster_error_days")
    days = sorted(row["day"] for row in rows if row["cluster"] == cluster)
    first = int(to_seconds(period.start) // SECONDS_PER_DAY)
    last = math.ceil(to_seconds(period.end) / SECONDS_PER_DAY) - 1
    days = [day for day in days if first <= day <= last]
    if len(days) < LEAST_DAYS:
        return None
    span = days[-1] - days[0] + 1
    if len(days) < LEAST_SHARE * span:
        return None
    silent = 1.0 - len(days) / (span + 1)
    since, until = (
        to_datetime(day * SECONDS_PER_DAY) if silent**lead < HOLE_CHANCE else None
        for lead, day in ((days[0] - first, days[0]), (last - days[-1], days[-1] + 1))
    )
    if since is None and until is None:
        return None
    sources = {row["source"] for row in facts.rows("error_sources")}
    what = "Kernel logs" if sources == {_KERNEL} else "Kernel logs and health checks"
    found = CoveredTime(what, since, until, 0.0, period.days)
    return CoveredTime(what, since, until, found.within(period).days, period.days)


# -- Where a dump of the accounting begins: what ended before is missing, which biases every rate
#
# `sacct --starttime T` lists what ran at T or later, a job of last week included if it ran until
# T. The runtime of such jobs from before T had no chance to end in a failure: whatever ended
# then is not in the dump. Counted as exposure it makes rates too low, the more so the longer the
# jobs.
#
# A log of jobs that ended (PBS, LSF, `sacct --state`) lacks in turn what still ran at its end;
# with as many jobs running then as when it began, that makes up for it, and nothing is said.

# of a cluster's runtime; with less the bias lies far within any interval
LEAST_WINDOW_SHARE = 0.01
# not yet begun at the first end: at risk from age 0 on
NOT_YET = -1
NO_DIRECTION = (
    "the dump of the accounting begins in the middle of jobs, and their runtime before "
    "it holds no failures."
)
"""Why a rate that rises in such logs may be constant."""


@dataclass(frozen=True, slots=True)
class DumpWindow:
    """A cluster of whose jobs none ended for longer than chance explains.

    Attributes:
        first_end: When the first attempt ended; None: none has, the logs list only what runs.
    """

    cluster: str
    first_end: datetime | None
    node_days_before: float
    share: float

    @property
    def sentence(self) -> str:
        """What is wrong, by how much, and what to do."""
        if self.first_end is None:
            return (
                f"No attempt of cluster {self.cluster} has ended: these logs list only "
                "running jobs and cannot show a failure. Add the accounting."
            )
        at = f"{self.first_end:%Y-%m-%dT%H:%M:%SZ}"
        return (
            f"No attempt of cluster {self.cluster} ended before {at}, for longer than chance "
            "explains: the dump begins there and lacks the jobs that had ended. "
            f"{self.node_days_before:,.1f} node-days ({significant(100 * self.share, 2)} %) of "
            "runtime before it count without their failures: rates are too low by about that "
            f"share. `--since {at}` leaves them out; an earlier dump has the failures."
        )


def dump_windows(
    facts: Facts, clusters: Collection[str] = (), since: datetime | None = None
) -> tuple[DumpWindow, ...]:
    """Clusters of whose jobs none ended for so long that the dump must begin where the first did.

    The hazard of ending at each age comes from what ran after the first end (Nelson and Aalen,
    jobs from before entering at the age they had). Summed over the ages that jobs had reached by
    then, it is the number of ends to expect before the first one; in a log that has them all that
    is an exponential variable of mean 1, whatever law the lengths follow. A cluster whose log
    begins with its first day, with jobs that all take a day, is therefore not taken for a part of
    one. Logs of ended jobs alone are left out: none runs at their end, and jobs began until then.
    """
    rows = sorted(facts.rows("cluster_starts"), key=lambda row: str(row["cluster"]))
    asked = [row for row in rows if not clusters or row["cluster"] in clusters]
    found = (_window(facts, row, since) for row in asked if row["node_s"] is not None)
    return tuple(one for one in found if one is not None)


def _window(facts: Facts, row: dict[str, Any], since: datetime | None) -> DumpWindow | None:
    cluster, whole_s, early_s = row["cluster"], row["node_s"], float(row["early_node_s"])
    if not row["ended"]:
        return DumpWindow(cluster, None, whole_s / SECONDS_PER_DAY, 1.0)
    # a pass over all ages only for clusters that need it
    if not whole_s or early_s < LEAST_WINDOW_SHARE * whole_s:
        return None
    first_end = to_datetime(row["first_s"])
    if since is not None and since >= first_end:
        return None
    of_all = facts.under(least_share=LEAST_WINDOW_SHARE).columns("ages_at_first_end")
    ages = {name: column[of_all["cluster"] == cluster] for name, column in of_all.items()}
    if not row["running"]:
        mean_s = row["job_s"] / row["ended"]
        if float(ages["late_job_s"].sum()) <= -math.log(HOLE_CHANCE) * mean_s:
            return None
    if chance_of_no_end(ages) >= HOLE_CHANCE:
        return None
    return DumpWindow(cluster, first_end, early_s / SECONDS_PER_DAY, early_s / whole_s)


def _digamma(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """The slope of the logarithm of the gamma function, of values of 1 and more."""
    small = sum(1 / (value + n) for n in range(10))
    large = value + 10
    per = large**-2
    series = per * (1 / 12 - per * (1 / 120 - per * (1 / 252 - per * (1 / 240 - per / 132))))
    return np.asarray(np.log(large) - 1 / (2 * large) - series - small, dtype=np.float64)


def chance_of_no_end(ages: Columns) -> float:
    """Probability that none of the jobs from before the first end ended before it.

    With a hazard known from d ends, x expected ends have the probability (1 + x/d)^-d of being
    none:
    """
    jobs, over = ages["jobs"].astype(np.int64), ages["is_over"].astype(np.bool_)
    entered, left = (ages[name].astype(np.int64) for name in ("entered", "left_at"))
    n_classes = int(max(entered.max(), left.max())) + 1
    early = entered != NOT_YET

    def by_class(places: NDArray[np.int64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.bincount(places[rows], jobs[rows], minlength=n_classes).astype(np.float64)

    enter, end, leave = by_class(entered, early), by_class(left, over), by_class(left, ~over)
    at_risk = jobs[~early].sum() + np.cumsum(enter - end - leave) - (enter - end - leave)
    at_risk = np.maximum(at_risk + (enter - leave) / 2, end)
    hazard = _digamma(at_risk + 1) - _digamma(at_risk - end + 1)
    # up to the class of its age, no further: jobs of one length end in one class
    expected = float(enter @ (np.cumsum(hazard) - hazard))
    n_ends = end.sum()
    return float((1 + expected / n_ends) ** -n_ends) if n_ends else 1.0


# -- events and reasons that the taxonomy does not know, and the rows that would add them ----------


ANY_CODE = "*"
# No check's name is longer; what is longer is damage, or hostile, and is not printed whole.
LONGEST_NAME = 120
LISTED_CODES = 50
_XID = "xid"
_FAULT_SYMPTOM = "node-hardware"


@dataclass(frozen=True, slots=True)
class UnknownCheck:
    """Events of one check and code of which no rule of the taxonomy speaks.

    Attributes:
        code: Its code; `*` where none of the check's codes is known, None for a check without.
        taxonomy_row: TOML for a site's taxonomy file (`--taxonomy FILE`) after which they are
            known; the site says what they are a sign of.
    """

    check: str
    code: str | None
    events: int
    critical_events: int
    nodes: int
    first: datetime
    last: datetime
    taxonomy_row: str


def unknown_checks(facts: Facts, taxonomy: Taxonomy) -> tuple[UnknownCheck, ...]:
    """Checks and codes without a rule, those with the most critical events first.

    Such events explain no failure and count as no fault. Events of severity `ok` report no trouble
    and need no rule. Of a check with some known codes each unknown code is listed, at most
    `LISTED_CODES` of them.
    """
    kinds = [row for row in facts.rows("event_census") if row["severity"] not in (None, "ok")]
    pairs = {(row["check"], row["code"]) for row in kinds}
    strange = {pair for pair in pairs if not taxonomy.knows(*pair)}
    if not strange:
        return ()
    partly_known = {check for check, _ in pairs - strange}
    # of a check of which nothing is known all codes are one
    has_code = {check for check, code in strange if code}
    named: dict[tuple[str, str | None], str | None] = {
        (check, code): code or None
        if check in partly_known or lowered(check).startswith(_XID)
        else (ANY_CODE if check in has_code else None)
        for check, code in strange
    }
    listed: list[UnknownCheck] = []
    for check, some in groupby(_counted(facts, kinds, named), key=lambda row: row[0]):
        listed += [
            UnknownCheck(
                check,
                code,
                events,
                critical,
                nodes,
                moment(first_us),
                moment(last_us),
                taxonomy_row(check, code, critical=bool(critical)),
            )
            for _, code, events, critical, nodes, first_us, last_us in [*some][:LISTED_CODES]
        ]
    listed.sort(key=lambda one: (-one.critical_events, -one.events, one.check, one.code or ""))
    return tuple(listed)


_Counted = tuple[str, str | None, int, int, int, int, int]


def _counted(
    facts: Facts,
    kinds: Sequence[Mapping[str, Any]],
    named: Mapping[tuple[str, str | None], str | None],
) -> list[_Counted]:
    """Check, code, events, critical ones, nodes, first and last; of a check the worst first."""
    on_nodes: dict[tuple[str, str | None], set[tuple[str, str]]] = defaultdict(set)
    seen = facts.columns("event_node_kinds")
    of_kind = (seen[name].tolist() for name in ("check", "code", "severity", "cluster", "node"))
    for check, code, severity, cluster, node in zip(*of_kind, strict=True):
        if (check, code) in named and severity not in (None, "ok"):
            on_nodes[check, named[check, code]].add((cluster, node))
    groups: dict[tuple[str, str | None], list[Mapping[str, Any]]] = defaultdict(list)
    for row in kinds:
        pair = row["check"], row["code"]
        if pair in named:
            groups[row["check"], named[pair]].append(row)
    rows = [
        (
            *key,
            sum(row["events"] for row in some),
            sum(row["events"] for row in some if row["severity"] == "critical"),
            len(on_nodes[key]),
            min(row["first_us"] for row in some),
            max(row["last_us"] for row in some),
        )
        for key, some in groups.items()
    ]
    return sorted(rows, key=lambda row: (row[0], -row[3], -row[2], row[1] or ""))


def taxonomy_row(check: str, code: str | None, *, critical: bool) -> str:
    """TOML that makes the taxonomy know a check and code, to be pasted into a site's file.

    What its source calls critical becomes a fault of the node, of a symptom that the site is asked
    to name; anything else becomes a warning that explains nothing. An XID that the catalogue lacks
    is no fault until the site says so.
    """
    parsed = parse_xid_code(code or "") if lowered(check).startswith(_XID) else None
    if parsed is not None:
        return (
            f"[xid.{parsed.xid}]\n"
            'symptom = "gpu-unavailable"  # say which; `ettr catalog` shows them\n'
            "node_fault = false  # true if a node with it must be taken out of service"
        )
    lines = [
        "[[rules]]",
        f"check = {toml_text(literal_pattern(lowered(check)))}",
        f"code = {toml_text(code if code == ANY_CODE else literal_pattern(lowered(code or '')))}",
    ]
    if critical:
        lines += [
            f'symptom = "{_FAULT_SYMPTOM}"  # say which; `ettr catalog` shows them',
            "node_fault = true  # what the source calls critical; false if jobs survive it",
        ]
    else:
        lines.append('symptom = ""  # a sign of nothing; name a symptom if it is one')
    lines += ['severity = "warning"  # where the source states none', "fixed = false"]
    return "\n".join(lines)


def literal_pattern(text: str) -> str:
    """A pattern that fits this text alone; of a very long one, all texts that begin like it."""
    shown = text[:LONGEST_NAME]
    pattern = "".join(f"[{char}]" if char in "*?[" else char for char in shown)
    return pattern if shown == text else pattern + "*"


def toml_text(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# -- Reasons of node states that the taxonomy knows nothing of, and the rows that teach it --------

LISTED_REASONS = 50


@dataclass(frozen=True, slots=True)
class UnknownReason:
    """States of nodes whose reason fits no pattern of the taxonomy, or names an XID it lacks.

    Attributes:
        taxonomy_row: TOML for a site's taxonomy file (`--taxonomy FILE`) after which it is known;
            the site says what it is a sign of.
    """

    reason: str
    node_states: int
    nodes: int
    first: datetime
    last: datetime
    taxonomy_row: str


def unknown_reasons(facts: Facts, taxonomy: Taxonomy) -> tuple[UnknownReason, ...]:
    """Reasons that the taxonomy does not know, those of most states first.

    Such a state is an outage of the class `other`. It names no symptom and is no sign that the node
    failed the jobs on it. At most `LISTED_REASONS` are listed.
    """
    rows = facts.rows("reasons_by_node")
    texts = {row["reason"] for row in rows}
    strange = {text: lowered(text) for text in texts if not taxonomy.knows_reason(text)}
    met: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["reason"] in strange:
            met[strange[row["reason"]]].append(row)
    found = [
        UnknownReason(
            reason=plain,
            node_states=sum(row["n_states"] for row in some),
            nodes=len({(row["cluster"], row["node"]) for row in some}),
            first=moment(min(row["first_us"] for row in some)),
            last=moment(max(row["last_us"] for row in some)),
            taxonomy_row=reason_row(plain, taxonomy),
        )
        for plain, some in met.items()
    ]
    found.sort(key=lambda one: (-one.node_states, one.reason))
    return tuple(found[:LISTED_REASONS])


def reason_row(reason: str, taxonomy: Taxonomy) -> str:
    """TOML that makes the taxonomy know a reason, to be pasted into a site's file.

    It names no fault until the site says so. For an XID that the catalogue lacks it is the row of
    that XID, which also makes it known where kernel logs show it.
    """
    xid = xid_of_reason(reason)
    if xid is not None and xid not in taxonomy.xids:
        return taxonomy_row(_XID, str(xid), critical=False)
    return "\n".join(
        (
            "[[reasons]]",
            f"pattern = {toml_text(literal_pattern(reason))}  # `*` fits any text",
            'reason_class = "manual"',
            'symptom = ""  # name one if a fault; `ettr catalog` shows them',
            "planned = false  # true if it is planned work, which fails no job",
        )
    )
