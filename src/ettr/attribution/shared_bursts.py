"""Interruptions of many nodes at once: how likely what the nodes share ended them.

An outage begins at some moment in one place (a rack, a switch, a pod, the whole cluster) and ends
attempts of several users there within minutes. For every window of time in every place the
likelihood of an outage is weighed against that of the usual ends: more users than usual, and signs
that an outage leaves. Windows and places compete: what one switch explains is no outage of the
cluster. An interruption has the verdict of the others: it cannot confirm its own outage.

Users are counted, not jobs: a hundred jobs of one user that end together are one program. But where
many users lose many jobs each within minutes, the usual ends seldom do that, and it counts.

Source:
    Kulldorff (1997), Communications in Statistics 26, for windows in place and time; here with
    prior weights in place of a test, as Neill, Moore and Cooper (2005), NIPS 18.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ettr.facts import Facts, made
from ettr.facts.stored import narrow_columns
from ettr.tables import NODE_STATES
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = Mapping[str, Mapping[str, Sequence[int] | Ints]]

SPANS_S = (60.0, 300.0, 900.0, 2700.0)
"""How long an outage may take to end what it ends, equally likely."""
USERS_HIT = (1.5, 4.0, 12.0, 40.0)
"""Users that an outage is expected to hit, equally likely."""
OUTAGES_PER_DAY = (0.003, 0.001)
"""Of a place, before the data: of what nodes share, and of system software (of a whole cluster)."""
OUTAGES_BEFORE = 1.0
"""How many outages of each the statement before the data counts for."""
JOBS_OF_USER = (2, 4, 12)
"""Where classes of the jobs begin that a user loses within a span; one alone is the first class."""
AROUND_S = 6 * SECONDS_PER_HOUR
"""How far around a window the usual rate is taken: bad days are no bursts."""
MAX_ODDS = 1e4
_LEAST_ODDS = 1e-2
_MOST_PER_DAY = 1.0
_MOST_LOG = 500.0
_ROUNDS = 4
_AT_ONCE = 20_000


_SHARED, _SYSTEM = 0, 1


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends in one place, in order of time."""

    times_s: Floats
    users: Ints
    likelier: Floats
    period_s: float


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows in which an outage is conceivable, those of all places one after the other."""

    from_s: Floats
    span_s: Floats
    more: Floats
    log_weight: Floats
    kind: Ints
    place: Ints
    sort: Ints


def burst_odds(
    times_s: Floats, users: Ints, likelier: Floats, places: Places, period_s: float
) -> Floats:
    """How many ends an outage adds to each usual one at the moment and place, by the other ends.

    System software can end jobs of the whole cluster at once; within one rack or switch it is
    taken to be what the nodes share.

    Args:
        likelier: how much likelier than the usual ends an outage is to leave what was seen: of
            what nodes share, and of system software; shape (2, interruptions), as is the result.
    """
    order = np.argsort(times_s, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    times_s, users, likelier = times_s[order], users[order], likelier[:, order]
    members: list[Ints] = []
    found: list[_Windows] = []
    for kind, of_kind in enumerate(places.values()):
        for some in of_kind.values():
            at = np.unique(rank[np.asarray(some, dtype=np.int64)])
            ends = _Ends(times_s[at], users[at], likelier[:, at], period_s)
            found += _windows(ends, _SHARED, kind, len(members))
            if kind == len(places) - 1:
                found += _windows(ends, _SYSTEM, len(places), len(members))
            members.append(at)
    odds = np.zeros(likelier.shape)
    if found:
        windows = _Windows(
            *(np.concatenate([getattr(one, name) for one in found]) for name in _Windows.__slots__)
        )
        number = np.array([max(len(one), 1) for one in places.values()] + [1])
        weight = _weights(windows, number, period_s)
        odds[:, order] = _odds(times_s, likelier, members, windows, weight)
    return np.minimum(odds, MAX_ODDS)


def _windows(ends: _Ends, sort: int, kind: int, place: int) -> list[_Windows]:
    """The windows of one place that begin with an end and have a second user's, if conceivable."""
    made = []
    hit = np.array(USERS_HIT)[:, None]
    for span_s in SPANS_S:
        first = _first_of_user(ends.times_s, ends.users, span_s)
        kept_s, signs = ends.times_s[first], ends.likelier[sort, first]
        end = np.searchsorted(kept_s, kept_s + span_s, side="right")
        begin = np.flatnonzero(end - np.arange(len(kept_s)) >= 2)
        if not len(begin):
            continue
        more = hit / _usual(kept_s, span_s, ends.period_s)
        prior = span_s / SECONDS_PER_DAY / hit / len(SPANS_S) / len(USERS_HIT)
        many = _likelier_by_jobs(ends.times_s, ends.users, span_s)[first]
        # users lose as many jobs as at other times, or any number: equally likely
        inside = [
            _sums_between(np.log1p(more * signs * by_jobs), begin, end[begin])
            for by_jobs in (np.ones(1), many)
        ]
        log_weight = np.logaddexp(*inside) - np.log(2.0) - hit + np.log(prior)
        more = more[:, begin]
        least = np.log(_LEAST_ODDS / _MOST_PER_DAY) - np.log(np.maximum(more, 1.0))
        some = log_weight > least
        n = int(some.sum())
        made.append(
            _Windows(
                np.broadcast_to(kept_s[begin], some.shape)[some],
                np.full(n, span_s),
                more[some],
                log_weight[some],
                *(np.full(n, one, dtype=np.int64) for one in (kind, place, sort)),
            )
        )
    return [one for one in made if len(one.from_s)]


def _weights(windows: _Windows, number: Ints, period_s: float) -> Floats:
    """Logarithms of the weights of the windows against no outage, by how many outages there are."""
    before = np.full(len(number), OUTAGES_PER_DAY[_SHARED])
    before[-1] = OUTAGES_PER_DAY[_SYSTEM]
    hour = (windows.from_s // SECONDS_PER_HOUR).astype(np.int64)
    _, hour = np.unique(hour, return_inverse=True)
    days = number * max(period_s, SECONDS_PER_HOUR) / SECONDS_PER_DAY
    per_day = before
    for _ in range(_ROUNDS):
        weight = np.exp(np.minimum(windows.log_weight + np.log(per_day[windows.kind]), _MOST_LOG))
        # windows of one hour are of one outage, in one place or another
        share = weight / (1 + np.bincount(hour, weight)[hour])
        outages = np.bincount(windows.kind, share, len(number))
        per_day = (outages + OUTAGES_BEFORE) / (days + OUTAGES_BEFORE / before)
        per_day = np.minimum(per_day, _MOST_PER_DAY)
    return np.asarray(windows.log_weight + np.log(per_day[windows.kind]), dtype=np.float64)


def _odds(
    times_s: Floats, likelier: Floats, members: list[Ints], windows: _Windows, log_weight: Floats
) -> Floats:
    kept = np.flatnonzero(log_weight + np.log(np.maximum(windows.more, 1.0)) > np.log(_LEAST_ODDS))
    low = np.searchsorted(times_s, windows.from_s[kept])
    high = np.searchsorted(times_s, windows.from_s[kept] + windows.span_s[kept], side="right")
    added, against = np.zeros(likelier.shape), np.ones(len(times_s))
    inside = np.zeros(len(times_s), dtype=np.bool_)
    # windows are in order of their places
    cuts = np.flatnonzero(np.diff(windows.place[kept])) + 1
    for part in np.split(np.arange(len(kept)), cuts) if len(kept) else ():
        place = members[windows.place[kept[part[0]]]]
        inside[place] = True
        for some in np.split(part, range(_AT_ONCE, len(part), _AT_ONCE)):
            many = high[some] - low[some]
            window = np.repeat(kept[some], many)
            end = np.arange(many.sum()) + np.repeat(low[some] - np.cumsum(many) + many, many)
            sort, more = windows.sort[window], np.where(inside[end], windows.more[window], 0.0)
            # the verdict of the others: without what the own end adds
            weight = np.minimum(log_weight[window], _MOST_LOG) - np.log1p(
                more * likelier[sort, end]
            )
            weight = np.exp(weight)
            np.add.at(against, end, weight)
            np.add.at(added, (sort, end), more * weight)
        inside[place] = False
    return np.asarray(added / against, dtype=np.float64)


def _usual(kept_s: Floats, span_s: float, period_s: float) -> Floats:
    """Users hit within a span by the usual rate: of the whole period, or of the hours around it."""
    whole = len(kept_s) * span_s / max(period_s, span_s)
    before = np.searchsorted(kept_s, kept_s - span_s)
    before -= np.searchsorted(kept_s, kept_s - span_s - AROUND_S)
    after = np.searchsorted(kept_s, kept_s + span_s + AROUND_S, side="right")
    after -= np.searchsorted(kept_s, kept_s + span_s, side="right")
    around = np.maximum(before, after) * span_s / AROUND_S
    return np.asarray(np.maximum(np.maximum(whole, around), 1e-9), dtype=np.float64)


def _sums_between(terms: Floats, begin: Ints, end: Ints) -> Floats:
    """Sums along the last axis from each begin until before each end."""
    sums = np.zeros((len(terms), terms.shape[1] + 1))
    np.cumsum(terms, axis=1, out=sums[:, 1:])
    return np.asarray(sums[:, end] - sums[:, begin], dtype=np.float64)


def _likelier_by_jobs(times_s: Floats, users: Ints, span_s: float) -> Floats:
    """How much likelier a user's jobs that end in the span from an end on are if any number may."""
    order = np.lexsort((times_s, users))
    # one axis of time, in which users lie further apart than any span
    apart_s = np.ptp(times_s) + 2 * span_s if len(times_s) else 0.0
    line_s = times_s[order] - times_s.min(initial=np.inf) + users[order] * apart_s
    jobs = np.empty(len(order), dtype=np.int64)
    jobs[order] = np.searchsorted(line_s, line_s + span_s, side="right") - np.arange(len(order))
    which = np.searchsorted(JOBS_OF_USER, jobs, side="right")
    first = _first_of_user(times_s, users, span_s)
    classes = len(JOBS_OF_USER) + 1
    share = (np.bincount(which[first], minlength=classes) + 0.5) / (first.sum() + 0.5 * classes)
    return np.asarray((1.0 / classes / share)[which], dtype=np.float64)


def _first_of_user(times_s: Floats, users: Ints, span_s: float) -> NDArray[np.bool_]:
    """Whether no interruption of the same user came within the same span before."""
    order = np.lexsort((times_s, users))
    again = np.zeros(len(times_s), dtype=np.bool_)
    same = users[order][1:] == users[order][:-1]
    again[order[1:]] = same & (np.diff(times_s[order]) <= span_s)
    return ~again


# -- states of nodes from the controller's own log, where no other log has them --------------------
# `slurmctld.log` says when a node was drained or went down, why, and when it came back. It is read
# line by line as events; here they become the intervals that `sacctmgr show event` would give. Its
# files are rotated, so that the end of an interval may stand in another file than its beginning.


# what each line begins: the state, its flags, and the reason where no line gives one
_BEGINS = {
    "DRAIN": ("DRAIN", None, None),
    "EPILOG_ERROR": ("DRAIN", None, "Epilog error"),
    "NODE_FAILING": ("FAIL", None, None),
    "NODE_DOWN": ("DOWN", None, None),
    "STATE_MAINT": ("MAINT", None, None),
    # a node that registers with less than configured, where the line says that it is out for it
    "CONFIG_MISMATCH": ("INVALID_REG", None, None),
}
_INVALID = re.compile(r"\bto INVAL")
_ENDS, _REASON, _MISMATCH = "NODE_RESUMED", "REASON", "CONFIG_MISMATCH"
_SILENT = ("NOT_RESPONDING", "Not responding")
_SET_REASON = re.compile(r"reason set to: ?(.*)")
_OWN_REASON = re.compile(r"(?:state set to [A-Z_+*]+: ?|with reason: ?)(.*)")
# of one update Slurm writes reason and state next to each other, in either order
_ONE_UPDATE_US = 2_000_000
_COLUMNS = (("place", "BIGINT"), *narrow_columns(NODE_STATES).items())

_Line = Mapping[str, Any]


@dataclass(slots=True)
class _State:
    """One interval of one node, and the line that begins it."""

    state: str
    flags: str | None
    reason: str | None
    start_us: int
    end_us: int | None
    line: _Line


@made("controller_begun", _COLUMNS, reads=("state_lines",))
def _controller_begun(facts: Facts) -> list[tuple[object, ...]]:
    """One row is a state of a node as the controller's log alone has it, with a number of its own.

    Its end is null where no line gives one.
    """
    of_node: dict[tuple[str, str], list[_Line]] = defaultdict(list)
    for line in facts.rows("state_lines"):
        of_node[line["cluster"], line["node"]].append(line)
    found = [one for _, lines in sorted(of_node.items()) for one in _intervals(lines)]
    return [(place, *_row(one)) for place, one in enumerate(found)]


def _intervals(lines: Sequence[_Line]) -> list[_State]:
    """States of one node from its lines; the last may be open."""
    found: list[_State] = []
    open_states: list[_State] = []
    reason: tuple[int, str] | None = None
    for line in lines:
        time_us, code, message = line["time_us"], line["code"], line["message"] or ""
        if code == _REASON:
            given = _SET_REASON.search(message)
            reason = (time_us, given[1].strip()) if given else None
            for one in open_states:
                if reason and one.reason is None and time_us - one.start_us <= _ONE_UPDATE_US:
                    one.reason = reason[1]
        elif code == _ENDS:
            for one in open_states:
                one.end_us = time_us
            open_states = []
        elif code != _MISMATCH or _INVALID.search(message):
            state, flags, usual = _BEGINS[code]
            if any(one.state == state for one in open_states):
                continue
            own = _OWN_REASON.search(message)
            text = own[1].strip() if own else None
            if text is None and reason and time_us - reason[0] <= _ONE_UPDATE_US:
                text = reason[1]
            if state == "DOWN" and "not responding" in message:
                flags, usual = _SILENT
            if text and code == _MISMATCH:
                # the drain that follows is for the same
                reason = (time_us, text)
            open_states.append(_State(state, flags, text or usual, time_us, None, line))
            found.append(open_states[-1])
    return found


def _row(one: _State) -> tuple[object, ...]:
    values = {
        **{name: one.line[name] for name in ("cluster", "node", "source", "file_id", "line")},
        "state": one.state,
        "flags": one.flags,
        "reason": one.reason or None,
        "start_us": one.start_us,
        "end_us": one.end_us,
    }
    return tuple(values.get(name) for name in narrow_columns(NODE_STATES))


# -- Who cancelled a job, from the controller's log, where the accounting does not say it ---------
#
# After a restart of the controller Slurm sends jobs to the accounting again, and `CANCELLED by
# 0` becomes plain `CANCELLED`. The controller's log keeps the request with the uid of who made
# it.

_UID = re.compile(r"\buid[ =](\d+)", re.ASCII)


@made("cancellers", (("attempt_id", "VARCHAR"), ("uid", "VARCHAR")), reads=("cancel_requests",))
def _cancellers(facts: Facts) -> list[tuple[object, ...]]:
    """One row is an attempt and who cancelled it, which the controller's log alone says.

    The last request near the end of the job counts.
    """
    found = []
    for row in facts.rows("cancel_requests"):
        uid = _UID.search(row["message"] or "")
        if uid:
            found.append((row["time_us"], uid[1], row["attempt_id"]))
    return list({attempt_id: uid for _, uid, attempt_id in sorted(found)}.items())
