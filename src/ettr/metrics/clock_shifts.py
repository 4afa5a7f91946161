"""Constant shifts between the clocks of logs, found where two logs name the same thing.

What one log says of an end must lie near that end in the other. Where it lies hours away, and
equally far for several jobs, one of the logs was read with a wrong time zone, or a clock was
wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from ettr.facts import Facts, made
from ettr.metrics.instants import Floats, to_datetime
from ettr.units import (
    MICROSECONDS_PER_SECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)
from ettr.words import counted, significant

NEAR_S = 2 * SECONDS_PER_MINUTE
"""Two logs that are at most so far apart agree: ends are noticed late, clocks drift."""
_SPREAD_S = SECONDS_PER_MINUTE
_LEAST_SHARE = 0.05
# the zones that exist, as the hours by which their local times lie ahead of UTC
_WEST_H, _EAST_H = -12.0, 14.0
_NODE_REACH_S = (_EAST_H - _WEST_H) * SECONDS_PER_HOUR
_MOST_SHIFTS = 4
# events of nodes: how long after one a node may go out of service, and what shows a shift
_OUT_LAG_S = 5 * SECONDS_PER_MINUTE
_AGREEING, _AGREEING_NODES, _AGREEING_SHARE, _NEAR_SHARE = 5, 3, 0.6, 0.2
# when clocks change, in the largest groups of zones that do
_CALENDARS = ("Europe/Paris", "America/New_York", "Australia/Sydney")
# a single job says something only where the shift is that of a zone
_ZONE_STEP_S, _ZONE_SLACK_S = 30 * SECONDS_PER_MINUTE, 10.0
_PROGRESS_SLACK_S = 5 * SECONDS_PER_MINUTE

# what a line of the controller says of an end, and the states of attempts that ended so
_ENDS = {
    "NODE_FAIL": ("NODE_FAIL",),
    "JOB_LOST": ("NODE_FAIL",),
    "PREEMPTED": ("PREEMPTED",),
    "REQUEUED": ("REQUEUED", "REQUEUE_HOLD"),
    "TIMEOUT": ("TIMEOUT",),
    "CANCELLED": ("CANCELLED",),
    "OUT_OF_MEMORY": ("OUT_OF_MEMORY",),
}
# zones that a reader knows, to name one for an offset
_KNOWN_ZONES = (
    *("UTC", "Europe/London", "Europe/Paris", "Europe/Helsinki", "America/New_York"),
    *("America/Chicago", "America/Denver", "America/Los_Angeles", "America/Sao_Paulo"),
    *("Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Asia/Dubai", "Australia/Sydney"),
)

JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ZoneRemedy:
    """A log that may have been read with a wrong zone, and zones with which both would agree.

    Attributes:
        zones: Well-known zones with that offset then; empty where there is none.
    """

    source: str
    timezone: str
    utc_offset_h: float
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClockShift:
    """Two logs whose times differ by a constant.

    Attributes:
        shift_s: Seconds, negative where `source` is early; None where the logs leave a range.
        shift_low_s, shift_high_s: The least and the greatest shift that the logs allow: those of
            zones, where several explain it. Low is None where an end is missing, as for a job that
            still runs. Both are `shift_s` where that is known.
    """

    cluster: str
    source: str
    against: str
    shift_s: float | None
    shift_low_s: float | None
    shift_high_s: float
    compared: int
    agreeing: int
    files: tuple[str, ...]
    remedies: tuple[ZoneRemedy, ...]

    @property
    def sentence(self) -> str:
        """What is wrong, what it spoils, and what to do."""
        fixes = " or ".join(
            f"{fix.source} (read as {fix.timezone}) as "
            + (fix.zones[0] if fix.zones else f"a zone at {_offset_text(fix.utc_offset_h)}")
            for fix in self.remedies
        )
        action = (
            f"Was a log read with a wrong --timezone? Read again {fixes}, they agree."
            if fixes
            else self._without_remedy()
        )
        return (
            f"CLOCKS DISAGREE: on {self.cluster}, {self.source} is {self._size()} {self.against} "
            f"({self.agreeing:,} of {self.compared:,} that both name; files "
            f"{', '.join(self.files[:4])}{' and more' if len(self.files) > 4 else ''}). Causes, "
            f"lost time and ETTR that combine the two are wrong or missing. {action}"
        )

    def _size(self) -> str:
        """How far, and which way: `5.00 h after`, `4 to 6 h before`, `at least 5 h before`."""
        way = "after" if self.shift_high_s > 0 else "before"
        if self.shift_s is not None:
            return f"{_amount(abs(self.shift_s))} {way}"
        far_s = self.shift_high_s
        if self.shift_low_s is None:
            return f"at least {_amount(abs(far_s))} {way}"
        low_s, high_s = sorted((abs(self.shift_low_s), abs(far_s)))
        unit_s, unit = SECONDS_PER_HOUR, "h"
        if high_s < SECONDS_PER_HOUR:
            unit_s, unit = SECONDS_PER_MINUTE, "min"
        return f"{significant(low_s / unit_s)} to {significant(high_s / unit_s)} {unit} {way}"

    def _without_remedy(self) -> str:
        low_s, high_s = self.shift_low_s, self.shift_high_s
        if low_s is None or (low_s < high_s and _zone_steps(low_s, high_s)):
            return (
                "Several time zones explain that, and these logs cannot tell which: read "
                "the controller's log of these jobs too, or find out in which zone "
                f"{self.against} was written, and read it again with that --timezone."
            )
        return _without_zone(low_s, high_s)


def _amount(size_s: float) -> str:
    if size_s < SECONDS_PER_HOUR:
        return f"{size_s / SECONDS_PER_MINUTE:.1f} min"
    return f"{size_s / SECONDS_PER_HOUR:.2f} h"


def _without_zone(low_s: float, high_s: float) -> str:
    """What is left where no time zone explains a shift."""
    days = round((low_s + high_s) / 2 / SECONDS_PER_DAY)
    if days and low_s - NEAR_S <= days * SECONDS_PER_DAY <= high_s + NEAR_S:
        return f"No time zone explains that: a date is wrong by {counted(abs(days), 'day')}."
    return "No time zone explains that, so a clock was wrong."


def _offset_text(hours: float) -> str:
    minutes = round(abs(hours) * 60)
    return f"UTC{'-' if hours < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A shift of one moment, and the files of accounting that show it."""

    shift: ClockShift
    attempt_file_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A moment of one log and one of the other that may be the same."""

    line: str
    thing: str
    shift_s: float
    time_s: float
    files: tuple[str, str]


def clock_shifts(facts: Facts) -> tuple[ClockShift, ...]:
    """Shifts between job accounting and the logs that name its jobs and nodes."""
    files = {
        row["file_id"]: (row["name"], row["source"], row["timezone"]) for row in facts.rows("files")
    }
    found: list[_Shown] = []
    # lines of the controller that end a job, and nodes that went down under one
    for ends in ("controller_ends", "node_ends"):
        for cluster, some in _pairs(facts.rows(ends)).items():
            found += _shifts(cluster, some, files)
    for cluster, some in _pairs(facts.rows("event_ends")).items():
        found += _shifts_of_events(cluster, some, files)
    shown_once = _without_repeats([one.shift for one in found])
    return (*shown_once, *_progress_shifts(progress_spans(facts), files, found))


def _without_repeats(shifts: Iterable[ClockShift]) -> list[ClockShift]:
    """Shifts without those that the same files show twice: by their jobs, and by their nodes."""
    shown_once: list[ClockShift] = []
    for one in shifts:
        if not any(_is_the_same(one, other) for other in shown_once):
            shown_once.append(one)
    return shown_once


def _is_the_same(one: ClockShift, other: ClockShift) -> bool:
    names = (one.cluster, one.source, one.against, one.files)
    apart_s = abs(one.shift_high_s - other.shift_high_s)
    return (other.cluster, other.source, other.against, other.files) == names and (
        apart_s <= _SPREAD_S
    )


def _pairs(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[_Pair]]:
    found: dict[str, list[_Pair]] = defaultdict(list)
    for row in rows:
        if row["state"] in _ENDS[row["code"]]:
            time_s, end_s = (row[name] / MICROSECONDS_PER_SECOND for name in ("time_us", "end_us"))
            files = (row["line_file"], row["end_file"])
            found[row["cluster"]].append(
                _Pair(row["line"], row["thing"], time_s - end_s, time_s, files)
            )
    return found


def _shifts(
    cluster: str, pairs: Sequence[_Pair], files: dict[str, tuple[str, str, str | None]]
) -> list[_Shown]:
    """The shifts that several of the things have in common, those in agreement left out."""
    agree = {pair.line for pair in pairs if abs(pair.shift_s) <= NEAR_S}
    pairs = [pair for pair in pairs if pair.line in agree or not _is_twice(pair, files)]
    compared = len({pair.line for pair in pairs})
    left = [pair for pair in pairs if pair.line not in agree]
    found: list[_Shown] = []
    for _ in range(_MOST_SHIFTS):
        same = _most_common(left)
        things = {pair.thing for pair in same}
        shift_s = float(np.median([pair.shift_s for pair in same])) if same else 0.0
        enough = len(things) >= 2 and len(same) >= _LEAST_SHARE * compared
        if not enough and not (len(things) == 1 and not agree and _is_zone_step(shift_s)):
            break
        taken = {pair.line for pair in same}
        left = [pair for pair in left if pair.line not in taken]
        middle_s = float(np.median([pair.time_s for pair in same]))
        ids = [{pair.files[side] for pair in same} for side in (0, 1)]
        counts = (compared, len(taken))
        bounds_s = (shift_s, shift_s)
        shift = _shift(cluster, bounds_s, middle_s, counts, (ids[0], ids[1]), files)
        found.append(_Shown(shift, frozenset(ids[1])))
    return found


def _shifts_of_events(
    cluster: str, pairs: Sequence[_Pair], files: dict[str, tuple[str, str, str | None]]
) -> list[_Shown]:
    """The one shift at which events of nodes lie from the moments at which these went out.

    Two, an hour apart, where a log in local time was read as if its clocks never changed.
    """
    pairs = [pair for pair in pairs if not _is_twice(pair, files)]
    lines = {pair.line for pair in pairs}
    near = {pair.line for pair in pairs if abs(pair.shift_s) <= 2 * _OUT_LAG_S}
    same = _most_common([pair for pair in pairs if pair.line not in near], _OUT_LAG_S)
    agreeing = [same] if _agree(same, near, lines) else _seasons(pairs, near, lines)
    found = []
    for some in agreeing:
        shift_s = float(np.median([pair.shift_s for pair in some]))
        step_s = _ZONE_STEP_S / 2
        steps = round(shift_s / step_s)
        if steps == 0 or abs(shift_s - steps * step_s) > _OUT_LAG_S:
            continue
        middle_s = float(np.median([pair.time_s for pair in some]))
        ids = [{pair.files[side] for pair in some} for side in (0, 1)]
        counts = (len(lines), len(some))
        shift = _shift(cluster, (shift_s, shift_s), middle_s, counts, (ids[0], ids[1]), files)
        found.append(_Shown(shift, frozenset()))
    return found


def _agree(same: Sequence[_Pair], near: Set[str], lines: Set[str]) -> bool:
    """Whether enough of all lines lie at one shift, and few where they should."""
    enough = len(same) >= max(_AGREEING, _AGREEING_SHARE * len(lines))
    several = len({pair.thing for pair in same}) >= _AGREEING_NODES
    return enough and several and len(near) <= _NEAR_SHARE * len(lines)


def _seasons(pairs: Sequence[_Pair], near: Set[str], lines: Set[str]) -> list[list[_Pair]]:
    """Pairs at one shift in winter, and an hour from it in summer; either may be none."""
    best: list[list[_Pair]] = []
    for zone, sign in product(_CALENDARS, (1, -1)):
        summer_s = {pair.time_s: sign * _summer_s(pair.time_s, zone) for pair in pairs}
        steady = [replace(one, shift_s=one.shift_s - summer_s[one.time_s]) for one in pairs]
        same = _most_common(steady, _OUT_LAG_S)
        back = [replace(one, shift_s=one.shift_s + summer_s[one.time_s]) for one in same]
        seasons = [[one for one in back if bool(summer_s[one.time_s]) == is_] for is_ in (0, 1)]
        strange = near - {one.line for one in same}
        if min(map(len, seasons)) < _AGREEING_NODES or not _agree(same, strange, lines):
            continue
        if len(back) > sum(map(len, best)):
            best = seasons
    return best


def _summer_s(time_s: float, zone: str) -> float:
    """Seconds by which the clocks of a zone are ahead at a moment because it is summer."""
    return (to_datetime(time_s).astimezone(ZoneInfo(zone)).dst() or timedelta()).total_seconds()


def _is_twice(pair: _Pair, files: dict[str, tuple[str, str, str | None]]) -> bool:
    """Whether either moment was read from a local time that its zone has twice."""
    moments_s = (pair.time_s, pair.time_s - pair.shift_s)
    for file_id, moment_s in zip(pair.files, moments_s, strict=True):
        zone = files[file_id][2] if file_id in files else None
        if zone is not None:
            local = to_datetime(moment_s).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
            if _utc_offset_s(local, zone, 0) != _utc_offset_s(local, zone, 1):
                return True
    return False


def _utc_offset_s(local: datetime, zone: str, fold: int) -> float:
    """Seconds by which a local time lies ahead of UTC, at its first or second occurrence."""
    offset = local.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset()
    return (offset or timedelta()).total_seconds()


def _most_common(pairs: Sequence[_Pair], spread_s: float = _SPREAD_S) -> list[_Pair]:
    """Of each line the pair nearest to the shift that most pairs share."""
    if not pairs:
        return []
    shifts_s: Floats = np.sort([pair.shift_s for pair in pairs])
    last = np.searchsorted(shifts_s, shifts_s + spread_s, side="right")
    counts = last - np.searchsorted(shifts_s, shifts_s - spread_s, side="left")
    most = shifts_s[counts == counts.max()]
    middle_s = float(most[np.argmin(np.abs(most))])
    best: dict[str, _Pair] = {}
    for pair in pairs:
        off_s = abs(pair.shift_s - middle_s)
        if off_s <= spread_s and (
            pair.line not in best or off_s < abs(best[pair.line].shift_s - middle_s)
        ):
            best[pair.line] = pair
    return list(best.values())


def _is_zone_step(shift_s: float) -> bool:
    steps = round(shift_s / _ZONE_STEP_S)
    if abs(shift_s) > _NODE_REACH_S + _ZONE_SLACK_S:
        return False
    return steps != 0 and abs(shift_s - steps * _ZONE_STEP_S) <= _ZONE_SLACK_S


def _shift(
    cluster: str,
    bounds_s: tuple[float, float],
    time_s: float,
    counts: tuple[int, int],
    ids: tuple[Iterable[str], Iterable[str]],
    files: dict[str, tuple[str, str, str | None]],
) -> ClockShift:
    """One shift with the names of its logs, and the zones that would explain it."""
    low_s, high_s = bounds_s
    unknown = ("?", "?", None)
    sides = [sorted({files.get(each, unknown) for each in side}, key=str) for side in ids]
    source, against = (", ".join(sorted({file[1] for file in side})) for side in sides)
    moment = to_datetime(time_s)
    zones = [
        _remedy(file[1], file[2], moment + timedelta(seconds=at_s), change_s)
        for side, at_s, change_s in zip(sides, (0.0, -high_s), (high_s, -high_s), strict=True)
        for file in side
        if file[2] is not None and low_s == high_s
    ]
    return ClockShift(
        cluster=cluster,
        source=source,
        against=against,
        shift_s=high_s if low_s == high_s else None,
        shift_low_s=low_s if np.isfinite(low_s) else None,
        shift_high_s=high_s,
        compared=counts[0],
        agreeing=counts[1],
        files=tuple(dict.fromkeys(file[0] for side in sides for file in side)),
        remedies=tuple(dict.fromkeys(zone for zone in zones if zone is not None)),
    )


def _remedy(source: str, timezone: str, moment: datetime, change_s: float) -> ZoneRemedy | None:
    """With which zone a log would lie `change_s` earlier; None where no zone is so far off."""
    read = moment.astimezone(ZoneInfo(timezone)).utcoffset() or timedelta()
    quarter_s = 15 * SECONDS_PER_MINUTE
    change_s = round(change_s / quarter_s) * quarter_s
    right = read + timedelta(seconds=change_s)
    right_h = right.total_seconds() / SECONDS_PER_HOUR
    if not _WEST_H <= right_h <= _EAST_H:
        return None
    known = tuple(
        name
        for name in _KNOWN_ZONES
        if (moment - timedelta(seconds=change_s)).astimezone(ZoneInfo(name)).utcoffset() == right
    )
    return ZoneRemedy(source, timezone, right_h, known)


@dataclass(frozen=True, slots=True)
class ProgressSpan:
    """The time that the progress of one job covers, and that in which the job ran.

    Attributes:
        shift_from_s, shift_to_s: By how much the record may lie after the job, at least and at
            most, if all of it was written while the job ran. From is above to where no constant
            shift puts the record inside the job.
    """

    job: JobKey
    first_s: float
    last_s: float
    shift_from_s: float
    shift_to_s: float
    file_id: str
    attempt_file_id: str

    @property
    def is_shifted(self) -> bool:
        """Whether a constant shift explains why the record lies outside its job."""
        fits = self.shift_from_s <= self.shift_to_s
        return fits and not self.shift_from_s <= 0.0 <= self.shift_to_s


def progress_spans(facts: Facts) -> tuple[ProgressSpan, ...]:
    """The spans of all jobs that ran and have progress."""
    return tuple(_span(row) for row in facts.rows("progress_spans"))


def _span(row: Mapping[str, Any]) -> ProgressSpan:
    first_s, last_s, start_s, end_s = (
        np.nan if row[name] is None else row[name] / MICROSECONDS_PER_SECOND
        for name in ("first_us", "last_us", "start_us", "end_us")
    )
    return ProgressSpan(
        job=(row["cluster"], row["job_id"]),
        first_s=first_s,
        last_s=last_s,
        shift_from_s=-np.inf if row["is_open"] else last_s - end_s - _PROGRESS_SLACK_S,
        shift_to_s=first_s - start_s + _PROGRESS_SLACK_S,
        file_id=row["file_id"],
        attempt_file_id=row["attempt_file_id"],
    )


@made("shifted_jobs", (("cluster", "VARCHAR"), ("job_id", "VARCHAR")), reads=("progress_spans",))
def _shifted_jobs(facts: Facts) -> list[tuple[object, ...]]:
    """Jobs that ran by another clock than their progress was recorded by."""
    groups = _shifted_spans(progress_spans(facts))
    return sorted({span.job for _, spans in groups for span in spans})


def _shifted_spans(spans: Iterable[ProgressSpan]) -> Iterator[tuple[float, list[ProgressSpan]]]:
    """Shifts, each with the records that it explains, of one file and of jobs of one dump."""
    by_files: dict[tuple[str, str, str], list[ProgressSpan]] = defaultdict(list)
    for span in spans:
        by_files[span.job[0], span.file_id, span.attempt_file_id].append(span)
    for some in by_files.values():
        left = some
        while any(span.is_shifted for span in left):
            shift_s = _common_shift([span for span in left if span.is_shifted])
            same = [s for s in left if s.shift_from_s <= shift_s <= s.shift_to_s]
            if len(same) <= sum(s.shift_from_s <= 0.0 <= s.shift_to_s for s in left):
                break
            yield shift_s, same
            left = [span for span in left if span not in same]


def _progress_shifts(
    spans: Sequence[ProgressSpan],
    files: dict[str, tuple[str, str, str | None]],
    shown: Sequence[_Shown],
) -> list[ClockShift]:
    """Shifts of progress, those that several files have in common as one."""
    compared = Counter(span.job[0] for span in spans)
    together: list[list[ProgressSpan]] = []
    for _, same in _shifted_spans(spans):
        for others in together:
            low_s, high_s = _bounds([*others, *same])
            if others[0].job[0] == same[0].job[0] and low_s <= high_s:
                others.extend(same)
                break
        else:
            together.append(list(same))
    found: list[ClockShift] = []
    for some in together:
        cluster = some[0].job[0]
        middle_s = float(np.median([span.first_s for span in some]))
        ids = ({span.file_id for span in some}, {span.attempt_file_id for span in some})
        known_s = [
            one.shift.shift_high_s
            for one in shown
            if one.shift.cluster == cluster and one.attempt_file_ids & ids[1]
        ]
        bounds_s = _known_bounds(_bounds(some), known_s)
        found.append(
            _shift(cluster, bounds_s, middle_s, (compared[cluster], len(some)), ids, files)
        )
    return sorted(found, key=lambda shift: -shift.agreeing)[:_MOST_SHIFTS]


def _bounds(spans: Sequence[ProgressSpan]) -> tuple[float, float]:
    """The least and the greatest shift that puts each record inside its job."""
    return max(s.shift_from_s for s in spans), min(s.shift_to_s for s in spans)


def _known_bounds(bounds_s: tuple[float, float], known_s: Iterable[float]) -> tuple[float, float]:
    """What can be said of a shift between two bounds, as bounds that are equal if it is known."""
    low_s, high_s = bounds_s
    fitting = sorted({shift_s for shift_s in known_s if low_s <= shift_s <= high_s})
    if fitting and fitting[-1] - fitting[0] <= _SPREAD_S:
        return fitting[0], fitting[0]
    steps = _zone_steps(low_s, high_s) if np.isfinite(low_s) else []
    return (steps[0], steps[-1]) if steps else bounds_s


def _zone_steps(low_s: float, high_s: float) -> list[float]:
    """Shifts between two bounds that a wrong zone explains, the least first."""
    first, last = np.ceil(low_s / _ZONE_STEP_S), np.floor(high_s / _ZONE_STEP_S)
    steps = [float(step * _ZONE_STEP_S) for step in np.arange(first, last + 1) if step]
    whole = [step for step in steps if step % SECONDS_PER_HOUR == 0]
    return whole or steps


def _common_shift(spans: Sequence[ProgressSpan]) -> float:
    """A shift that puts most records inside their jobs; that of a zone where one does."""
    ends = sorted({end for s in spans for end in (s.shift_from_s, s.shift_to_s)})
    places = [place for place in ends if np.isfinite(place)]
    depth = [sum(s.shift_from_s <= place <= s.shift_to_s for s in spans) for place in places]
    best = places[int(np.argmax(depth))]
    low_s, high_s = _bounds([s for s in spans if s.shift_from_s <= best <= s.shift_to_s])
    if not np.isfinite(low_s):
        return high_s
    return min(_zone_steps(low_s, high_s), key=abs, default=(low_s + high_s) / 2)
