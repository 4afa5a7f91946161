"""The split of a run's wall clock: every microsecond in exactly one bucket.

There is one definition, for a live run, for a file and for `ettr runs`:

- An event takes the time that its duration covers, as far as no event before it took it; a save
  within a step thus splits the step, and durations that overlap count once.
- Steps that ran without a line (every tenth is logged, or lines were lost) take time that no event
  covers, as `ettr.progress.timeline` says; how much of it, is left open.
- A step without a duration takes the time since the event before it. What the median pace of such
  steps does not bear out goes to `idle`, or to `restart` for the first step after a start.
- Time that no event takes is `restart` before a `start` or `restart`, and from there (or from the
  begin of the record or of an attempt) up to the first step; else it is `idle`.
- A step is `redone` once the run goes back behind it: a restore of a lower step, or a step of the
  same or a lower number.
- A step is `unsaved` if it lies after the last save or restore of a run that ended without
  completing. While the run lasts such steps are productive, and at risk.
- Time in which the scheduler had an attempt suspended is `suspended`: as far as there is any, time
  of that attempt that was idle; then start-up; the rest lies within steps and is taken from them.

With the times of the scheduler's attempts, the wall clock is their time and no other; without, it
runs from the first event, less its duration, to the last. Sums are kept in whole microseconds.
Standard library only.

**Source**: ETTR as productive time over available wall-clock time, Kokolis et al. (2025), HPCA,
section II; the causes of loss are this package's own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import truediv
from typing import NamedTuple

from ettr.progress.events import DATA_STALL, OPEN_DATA_STALL
from ettr.progress.timeline import (
    FOREVER_US,
    AttemptTimeline,
    MissingSteps,
    MissingTimes,
    ScheduledAttempt,
    StepGap,
)

# -- steps of a run that still count, in order, with the time that each took -----------------------
# Numbers rise along the record: where a run goes back, all steps from there on are taken off again.
# 24 bytes a step, so that a run of millions of steps can be followed live.


# the fastest pace is that of the fastest tenth of the steps
_FASTEST_ONE_IN = 10
_NOT_KNOWN = 1 << 62


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of some steps: `claimed_us` up to each line, and what of it their numbers bear out.

    A step with a duration counts with it in all three. A line without one represents the
    steps since the line before it: `typical_us` gives them no more than the median pace of such
    lines, `fastest_us` no more than the fastest. `start_up_us` is the part of `claimed_us` beyond
    `typical_us` that belongs to first steps after a start.
    """

    steps: int = 0
    claimed_us: int = 0
    typical_us: int = 0
    fastest_us: int = 0
    start_up_us: int = 0

    @property
    def idle_us(self) -> int:
        """What of `claimed_us` is neither typical of steps nor start-up."""
        return self.claimed_us - self.typical_us - self.start_up_us


class KeptSteps:
    """Step numbers that rise, and microseconds spent on each."""

    def __init__(self) -> None:
        self._numbers: array[int] = array("q")
        self._spent_us: array[int] = array("q")
        # steps that a line without a duration represents, below 0 after a start; else 0
        self._represents: array[int] = array("q")
        self._without_duration = False
        self._total_us = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, step: int) -> bool:
        place = bisect_left(self._numbers, step)
        return place < len(self._numbers) and self._numbers[place] == step

    @property
    def last(self) -> int | None:
        """The highest number; None where no step counts."""
        return self._numbers[-1] if self._numbers else None

    def append(self, step: int, spent_us: int) -> None:
        """Add a step with a duration that lies above all others."""
        self._numbers.append(step)
        self._spent_us.append(spent_us)
        self._represents.append(0)
        self._total_us += spent_us

    def append_line(self, step: int, spent_us: int, since: int | None, *, starting: bool) -> None:
        """Add a line without a duration; it represents those after `since`, where known."""
        self.append(step, spent_us)
        count = _NOT_KNOWN if since is None else max(step - since, 1)
        self._represents[-1] = -count if starting else count
        self._without_duration = True

    def insert(self, step: int, spent_us: int) -> None:
        """Add a step whose line came late, between the others."""
        place = bisect_left(self._numbers, step)
        self._numbers.insert(place, step)
        self._spent_us.insert(place, spent_us)
        self._represents.insert(place, 0)
        self._total_us += spent_us

    def drop_above(self, step: int) -> tuple[int, int]:
        """Take off all steps above `step`: how many there were, and the microseconds spent."""
        place = bisect_right(self._numbers, step)
        lost, lost_us = len(self._numbers) - place, sum(self._spent_us[place:])
        del self._numbers[place:], self._spent_us[place:], self._represents[place:]
        self._total_us -= lost_us
        return lost, lost_us

    def durations_us(self) -> tuple[int, int]:
        """The median and the longest of the steps with a duration.

        Where no step has one: the median pace of the lines, and longer than any time.
        """
        lines = zip(self._spent_us, self._represents, strict=True)
        timed = sorted(spent_us for spent_us, count in lines if spent_us and not count)
        if timed:
            return timed[len(timed) // 2], timed[-1]
        if not self._without_duration:
            return 0, 0
        pace = _Pace.of(self._lines())
        return pace.typical_us // pace.typical_steps, _NOT_KNOWN

    def times(self, saved: int) -> tuple[StepTime, StepTime]:
        """Time of the steps up to `saved`, and of those above it."""
        place = bisect_right(self._numbers, saved)
        count = len(self._numbers)
        above_us = sum(self._spent_us[place:])
        below_us = self._total_us - above_us
        if not self._without_duration:
            return (
                StepTime(place, below_us, below_us, below_us),
                StepTime(count - place, above_us, above_us, above_us),
            )
        pace = _Pace.of(self._lines())
        below = (line for line in self._lines() if line.place < place)
        above = (line for line in self._lines() if line.place >= place)
        return pace.time(place, below_us, below), pace.time(count - place, above_us, above)

    def _lines(self) -> Iterator[_Line]:
        """Lines without a duration, those of one time as one line."""
        known = sorted(n for n in map(abs, self._represents) if 0 < n < _NOT_KNOWN)
        usual = known[len(known) // 2] if known else 1
        steps = 0
        for place, count in enumerate(self._represents):
            if not count:
                continue
            spent_us = self._spent_us[place]
            if abs(count) < _NOT_KNOWN:
                steps += abs(count)
            elif spent_us:
                steps += min(usual, max(self._numbers[place], 1))
            if spent_us:
                yield _Line(place, spent_us, steps, count < 0)
                steps = 0


class _Line(NamedTuple):
    place: int
    spent_us: int
    steps: int
    starting: bool


class _Pace(NamedTuple):
    """The median and the fastest pace of lines without a duration, as time over steps.

    With m lines, the time of the fastest ones counts m / (m + 1) times: another line like them is
    faster than all of them with a chance of 1 / (m + 1), and how much faster nothing says.
    """

    typical_us: int
    typical_steps: int
    fastest_us: int
    fastest_steps: int

    @staticmethod
    def of(lines: Iterable[_Line]) -> _Pace:
        spent_us, steps = array("q"), array("q")
        for line in lines:
            spent_us.append(line.spent_us)
            steps.append(line.steps)
        paces = array("d", map(truediv, spent_us, steps))
        all_steps = sum(steps)
        typical_us, typical_steps = 0, 1
        fastest_us = fastest_steps = so_far_us = so_far_steps = 0
        for place in sorted(range(len(paces)), key=paces.__getitem__):
            so_far_us += spent_us[place]
            so_far_steps += steps[place]
            if not fastest_steps and _FASTEST_ONE_IN * so_far_steps >= all_steps:
                fastest_us, fastest_steps = so_far_us, so_far_steps
            if 2 * so_far_steps > all_steps:
                typical_us, typical_steps = spent_us[place], steps[place]
                break
        count = len(paces)
        return _Pace(typical_us, typical_steps, fastest_us * count, fastest_steps * (count + 1))

    def time(self, count: int, claimed_us: int, lines: Iterable[_Line]) -> StepTime:
        typical_us = fastest_us = claimed_us
        start_up_us = 0
        for line in lines:
            usual_us = line.steps * self.typical_us // self.typical_steps
            least_us = line.steps * self.fastest_us // self.fastest_steps
            beyond_us = max(line.spent_us - usual_us, 0)
            typical_us -= beyond_us
            fastest_us -= max(line.spent_us - least_us, 0)
            start_up_us += beyond_us if line.starting else 0
        return StepTime(count, claimed_us, typical_us, fastest_us, start_up_us)


# -- the split of a run's wall clock: every microsecond in exactly one bucket ----------------------


_BEGINNINGS = ("start", "restart")
GOING_ON = ("start", "restart", "restore")
_BUCKETS = {"start": "restart", "end": "idle", DATA_STALL: "stall", OPEN_DATA_STALL: "stall"}
_NOTHING_SAVED = -(1 << 63)
_EVERYTHING_SAVED = (1 << 63) - 1


class RunState(StrEnum):
    """How a run stands where its record stops: it decides about the steps that were not saved.

    A record whose last word is an `end` event is of a completed run, whatever is given.
    """

    RUNNING = "running"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class WallClockSplit:
    """Where the wall clock went, in microseconds.

    The parts from `productive_us` to `idle_us` add up to `wall_us`. `productive_low_us` and
    `productive_high_us` bound the productive time where the record does not fix it: steps without
    a line or a duration, durations that overlap, suspended time that may lie within steps, a record
    without any save of a run that was interrupted, steps of which only a least and a most is known,
    steps dated outside the attempts (`outside_steps`). `at_risk_us` is what a failure now would
    lose of `productive_us`, `first_start_us` the part of `restart_us` before the very first step.
    `input_stall_us` is the part of `stall_us` that waited for data, in `input_waits` lines;
    `input_open_us` of it is an upper bound, since a device may have worked meanwhile: it may be
    productive time too.

    `steps`, `redone_steps` and `unsaved_steps` count lines; `unrecorded_steps` ran without one, as
    later numbers show.

    Events: `repeats` were there already, `out_of_order` came late and took only what was left,
    `clock_set_back` were dated before an event that they certainly followed; from there on all
    times are shifted so that the run goes on where it was. How much time passed there is not known:
    without the attempts `wall_us` is then the least that it can be. `open_steps` ran in such time,
    so that nothing bounds them but the wall clock; `assumed_steps` have a least and a most.
    """

    wall_us: int
    productive_us: int
    redone_us: int
    unsaved_us: int
    save_us: int
    restore_us: int
    stall_us: int
    input_stall_us: int
    input_open_us: int
    restart_us: int
    suspended_us: int
    idle_us: int
    productive_low_us: int
    productive_high_us: int
    at_risk_us: int
    overlap_us: int
    first_start_us: int
    steps: int
    redone_steps: int
    unsaved_steps: int
    unrecorded_steps: int
    steps_in_attempts: int
    saves: int
    restores: int
    restarts: int
    repeats: int
    out_of_order: int
    clock_set_back: int
    outside_steps: int
    open_steps: int
    assumed_steps: int
    input_waits: int


class WallClockSplitter:
    """Takes the events of one rank as they happened; `split` may be asked for at any time."""

    def __init__(self, attempts: Iterable[ScheduledAttempt] | None = None) -> None:
        self._timeline = None if attempts is None else AttemptTimeline(attempts)
        self._scheduled = attempts is not None
        self._open = OpenSteps()
        self._in_unknown_time = False
        self._late_us = 0
        self._kept = KeptSteps()
        self._missing = MissingSteps()
        self._idle_before_us = self._restart_before_us = 0
        self._saved = self._reached = _NOTHING_SAVED
        self._saves = self._restores = 0
        self._position: int | None = None
        self._last_us = self._settled_us = -FOREVER_US
        self._last_event: tuple[str, int] | None = None
        self._ties: set[tuple[str, int] | None] = set()
        self._ties_us: int | None = None
        self._shift_us = self._overlap_us = 0
        self._first_start_us: int | None = None
        self._redone_us = self._redone_steps = self._restarts = self._steps_in_attempts = 0
        self._unrecorded_steps = 0
        self._repeats = self._out_of_order = self._clock_set_back = 0
        self._beginning, self._ended = True, False
        self._input_us = self._input_open_us = self._input_waits = 0

    def add(
        self,
        event: str,
        step: int,
        time_us: int,
        duration_us: int | None = None,
        bounds_us: tuple[int, int] | None = None,
    ) -> None:
        """Take one event of `EVENTS`, that was over at `time_us`.

        Args:
            bounds_us: the least and the most that a step can have taken, where its duration is an
                assumption.

        Raises:
            OverflowError: a step or a time does not fit into 64 bits.
        """
        timeline = self._timeline
        if timeline is None:
            timeline = self._timeline = self._record_from(time_us - (duration_us or 0))
        time_us += self._shift_us
        before_us = self._last_us
        if time_us == before_us and self._is_repeat(event, step):
            return
        if time_us < before_us:
            placed_us = self._placed(timeline, event, step, time_us, duration_us or 0)
            if placed_us is None:
                return
            time_us = placed_us
        if time_us > before_us:
            self._last_us, self._last_event = time_us, (event, step)
        if event == "step":
            self._do_step(timeline, step, before_us, time_us, duration_us)
            if bounds_us is not None:
                own_us = duration_us or 0
                self._open.append(step, own_us - bounds_us[0], bounds_us[1] - own_us)
        else:
            self._do_other(timeline, event, step, before_us, time_us, duration_us)
        if event == "step" or event in GOING_ON:
            self._settled_us = max(time_us, self._settled_us)

    def split(self, state: RunState = RunState.RUNNING) -> WallClockSplit:
        """Where the time went, up to the last event or the end of the last attempt."""
        complete = self._ended or state is RunState.COMPLETED
        lost = state is RunState.INTERRUPTED and not complete
        limit = _EVERYTHING_SAVED if complete else self._saved
        saved, exposed = self._kept.times(limit)
        kept = exposed if not lost else StepTime()
        saves_known = self._saves + self._restores > 0
        high_us = saved.claimed_us + (kept if saves_known else exposed).claimed_us
        closed = (
            self._timeline.closed(self._last_us) if self._timeline else AttemptTimeline.nothing()
        )
        spent, within_us = closed.spent_us, closed.suspended_in_steps_us
        missing = self._missing_times(limit, spent)
        high_us += missing.saved.most_us
        high_us += 0 if lost and saves_known else missing.exposed.most_us
        spent["idle"] -= missing.idle_us
        spent["restart"] += saved.start_up_us + exposed.start_up_us - missing.restart_us
        idle_us = saved.idle_us + exposed.idle_us
        at_risk_us = kept.typical_us + (0 if lost else missing.exposed.likely_us)
        productive_us = saved.typical_us + missing.saved.likely_us + at_risk_us
        # Suspended time for which no other time was left lies within steps, of whatever kind.
        from_idle_us = min(within_us, idle_us)
        from_steps_us = min(within_us - from_idle_us, productive_us)
        low_us = saved.fastest_us + kept.fastest_us - self._overlap_us - from_steps_us
        # One that runs may have attempts that no log names yet.
        late = state is not RunState.RUNNING
        opened = self._open.total(limit if lost else _EVERYTHING_SAVED, late=late)
        most = opened if saves_known else self._open.total(_EVERYTHING_SAVED, late=late)
        low_us -= opened.less_us
        free_us = spent["idle"] + idle_us - from_idle_us + spent["restart"]
        unrecorded = self._unrecorded_steps + missing.steps
        high_us += min(self._more_us(most, free_us, unrecorded), free_us) + self._input_open_us
        return WallClockSplit(
            wall_us=closed.wall_us,
            productive_us=productive_us - from_steps_us,
            redone_us=self._redone_us + missing.redone.likely_us,
            unsaved_us=exposed.typical_us + missing.exposed.likely_us - at_risk_us,
            save_us=spent["save"],
            restore_us=spent["restore"],
            stall_us=spent["stall"],
            input_stall_us=self._input_us,
            input_open_us=self._input_open_us,
            restart_us=spent["restart"],
            suspended_us=spent["suspended"] + from_idle_us + from_steps_us,
            idle_us=spent["idle"] + idle_us - from_idle_us,
            productive_low_us=max(low_us, 0),
            productive_high_us=min(high_us, closed.wall_us),
            at_risk_us=at_risk_us,
            overlap_us=self._overlap_us,
            first_start_us=max((self._first_start_us or 0) - missing.first_restart_us, 0),
            steps=saved.steps + kept.steps,
            redone_steps=self._redone_steps,
            unsaved_steps=exposed.steps - kept.steps,
            unrecorded_steps=unrecorded,
            steps_in_attempts=self._steps_in_attempts,
            saves=self._saves,
            restores=self._restores,
            restarts=self._restarts,
            repeats=self._repeats,
            out_of_order=self._out_of_order,
            clock_set_back=self._clock_set_back,
            outside_steps=most.outside,
            open_steps=most.unbounded,
            assumed_steps=most.assumed,
            input_waits=self._input_waits,
        )

    def _more_us(self, opened: OpenTime, free_us: int, unrecorded: int) -> int:
        """By how much steps may have taken more than was counted; `free_us` no event covers."""
        if opened.unbounded:
            return free_us
        if not self._scheduled or not (opened.outside or self._clock_set_back):
            return opened.more_us
        # By a wrong clock lines lie between attempts and within each other: no gap bounds a step.
        outside_us = opened.outside_us + self._overlap_us + self._late_us
        return free_us if unrecorded else opened.more_us + outside_us

    def _missing_times(self, saved: int, spent_us: dict[str, int]) -> MissingTimes:
        """Time of the steps without a line, within what idle and restart time is left."""
        known = [n for n in (self._kept.last, self._missing.last) if n is not None]
        tail = None
        if known and self._reached > max(known):
            # A save or the end names steps after the last line.
            count, (idle_us, _) = self._reached - max(known), self._free_us(spent_us)
            tail = StepGap(self._reached + 1, count, idle_us, 0)
        if tail is None and not self._missing:
            return MissingTimes()
        usual_us, longest_us = self._kept.durations_us()
        times = self._missing.times(saved, len(self._kept), usual_us, longest_us, tail)
        return times.within(spent_us["idle"], spent_us["restart"])

    def _record_from(self, begin_us: int) -> AttemptTimeline:
        self._last_us = begin_us
        timeline = AttemptTimeline([ScheduledAttempt(begin_us, FOREVER_US)])
        timeline.advance(begin_us)
        return timeline

    def _is_repeat(self, event: str, step: int) -> bool:
        """Whether an event at the time of the last one was among those of that time."""
        if self._ties_us != self._last_us:
            self._ties, self._ties_us = {self._last_event}, self._last_us
        repeat = (event, step) in self._ties
        self._repeats += repeat
        self._ties.add((event, step))
        return repeat

    def _placed(
        self, timeline: AttemptTimeline, event: str, step: int, time_us: int, duration_us: int
    ) -> int | None:
        """The time of an event dated before the last one; None where it takes no time at all."""
        # A start follows whatever stands before it, be that settled or not.
        if time_us >= self._settled_us and event not in _BEGINNINGS:
            self._out_of_order += 1
            return time_us
        last = self._kept.last
        next_step = event == "step" and (last is None or step > last or step in self._kept)
        if next_step or event in GOING_ON:
            # It certainly came later: the clock was set back, and the run goes on where it was.
            goes_on_us = self._last_us
            if event == "start":
                goes_on_us = timeline.next_start_us(goes_on_us)
            shift_us = goes_on_us - (time_us - duration_us)
            self._shift_us += shift_us
            self._clock_set_back += 1
            self._in_unknown_time = True
            return time_us + shift_us
        self._out_of_order += 1
        if event == "step":
            self._late_us += duration_us
            self._kept.insert(step, 0)
            self._missing.remove(step)
        elif event == "save":
            self._save(step)
        return None

    def _do_step(
        self,
        timeline: AttemptTimeline,
        step: int,
        before_us: int,
        time_us: int,
        duration_us: int | None,
    ) -> None:
        kept = self._kept
        last = kept.last
        if last is not None and step <= last:
            self._go_back_to(step - 1)
            self._saved = min(self._saved, step - 1)
            last = kept.last
        starting = timeline.starting
        own_us = timeline.take_step(before_us, time_us, duration_us)
        if self._in_unknown_time or (self._scheduled and own_us != duration_us):
            self._leave_open(timeline, step, last, time_us, duration_us, own_us)
        if duration_us is not None:
            kept.append(step, own_us)
            # A step that began before the one before it was over: one of the two is wrong.
            self._overlap_us += max(self._settled_us - time_us + duration_us, 0)
            if last is None or step > last + 1:
                self._miss_before(timeline, step, last)
        else:
            since = self._since(step, last)
            kept.append_line(step, own_us, since, starting=starting)
            if since is not None and not starting:
                self._unrecorded_steps += step - since - 1
        spent_us = timeline.spent_us
        self._idle_before_us, self._restart_before_us = spent_us["idle"], spent_us["restart"]
        if self._first_start_us is None:
            self._first_start_us = spent_us["restart"]
        self._steps_in_attempts += timeline.holds(time_us)
        # A line that came late, or of the moment of the end, is of a step before the end.
        self._ended = self._ended and time_us <= before_us and not self._in_unknown_time
        self._position, self._beginning, self._in_unknown_time = None, False, False

    def _leave_open(
        self,
        timeline: AttemptTimeline,
        step: int,
        last: int | None,
        time_us: int,
        duration_us: int | None,
        own_us: int,
    ) -> None:
        """Keep what the times do not say of a step, and of those before it without a line."""
        if self._in_unknown_time:
            since = self._since(step, last)
            if duration_us is None or (since is not None and step > since + 1):
                self._open.append(step, 0, FOREVER_US)
        if not self._scheduled:
            return
        # Before the first attempt it may be of one that no log names.
        if timeline.has_begun or self._clock_set_back:
            is_late = not self._clock_set_back and time_us > timeline.last_end_us
            begin_us = time_us - (ROUNDED_US if duration_us is None else duration_us)
            outside_us = timeline.outside_us(begin_us, time_us)
            if duration_us is None and outside_us == ROUNDED_US:
                self._open.append(step, 0, FOREVER_US, is_late=is_late)
            elif duration_us is not None and outside_us > 0:
                outside_us = min(outside_us, duration_us - own_us)
                self._open.append(step, 0, 0, outside_us, is_late=is_late)

    def _since(self, step: int, last: int | None) -> int | None:
        """The number that the steps before a line follow; None where it is not known."""
        since = self._position
        if since is None or since >= step:
            return last
        return since if last is None else max(since, last)

    def _miss_before(self, timeline: AttemptTimeline, step: int, last: int | None) -> None:
        """Keep the steps without a line before that of `step`, with the time left for them."""
        missing, since = self._missing, self._since(step, last)
        idle_us, restart_us = self._free_us(timeline.spent_us)
        first = self._first_start_us is None
        if since is None:
            if step > 1:
                missing.append(step, None, idle_us, restart_us, first=first)
            return
        base = max((n for n in (last, missing.last) if n is not None), default=since)
        if since > base:
            # They ran before the run began again, and were saved.
            count = since - base
            before_us = idle_us if restart_us else idle_us * count // (step - 1 - base)
            missing.append(since + 1, count, before_us, 0, first=False)
            idle_us, base = idle_us - before_us, since
        if step - 1 > base:
            missing.append(step, step - 1 - base, idle_us, restart_us, first=first)
        elif step <= base:
            missing.remove(step)

    def _free_us(self, spent_us: dict[str, int]) -> tuple[int, int]:
        """Idle and restart time since the last step that no event covered."""
        return (
            max(spent_us["idle"] - self._idle_before_us, 0),
            max(spent_us["restart"] - self._restart_before_us, 0),
        )

    def _do_other(
        self,
        timeline: AttemptTimeline,
        event: str,
        step: int,
        before_us: int,
        time_us: int,
        duration_us: int | None,
    ) -> None:
        timeline.advance(time_us, begins=event in GOING_ON)
        own_us = 0 if duration_us is None else timeline.take(time_us - duration_us, time_us)
        begins = event in _BEGINNINGS
        if begins:
            timeline.begin(before_us)
            self._restarts += not self._beginning
            self._position = step
        elif event == "save":
            self._save(step)
        elif event == "end":
            self._reached = max(self._reached, step)
        elif event == "restore":
            # What was restored can be restored again, and what was saved later is of another past.
            self._go_back_to(step)
            self._saved = self._position = step
            self._restores += 1
        elif event in (DATA_STALL, OPEN_DATA_STALL):
            self._input_waits += 1
            self._input_us += own_us
            self._input_open_us += own_us if event == OPEN_DATA_STALL else 0
        self._beginning = begins
        bucket = _BUCKETS.get(event, event)
        timeline.spent_us[bucket] += own_us
        if bucket == "restart":
            self._restart_before_us += own_us
        elif bucket == "idle":
            self._idle_before_us += own_us
        self._ended = event == "end" or (self._ended and bucket in ("save", "stall"))

    def _save(self, step: int) -> None:
        self._saved, self._reached = max(self._saved, step), max(self._reached, step)
        self._saves += 1

    def _go_back_to(self, step: int) -> None:
        lost, lost_us = self._kept.drop_above(step)
        self._missing.drop_above(step)
        self._open.drop_above(step)
        self._reached = min(self._reached, step)
        self._redone_steps += lost
        self._redone_us += lost_us


# Schedulers write whole seconds: a step outside an attempt by no more is no sign of a wrong clock.
ROUNDED_US = 1_000_000


class _OpenStep(NamedTuple):
    number: int
    less_us: int
    more_us: int
    outside_us: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class OpenTime:
    """By how much the steps may have taken less, or more, than was counted for them.

    `outside_us` is the time of `outside` of them that lies in no attempt. `unbounded` steps may
    have taken any time; `assumed` are those whose length is an assumption.
    """

    less_us: int = 0
    more_us: int = 0
    outside_us: int = 0
    outside: int = 0
    unbounded: int = 0
    assumed: int = 0


class OpenSteps:
    """Such steps, in rising order of their numbers."""

    def __init__(self) -> None:
        self._steps: list[_OpenStep] = []

    def append(
        self, number: int, less_us: int, more_us: int, outside_us: int = 0, *, is_late: bool = False
    ) -> None:
        """Add a step that lies above all others.

        Args:
            more_us: `FOREVER_US`: nothing bounds it.
        """
        self._steps.append(_OpenStep(number, less_us, more_us, outside_us, is_late))

    def drop_above(self, number: int) -> None:
        """The run went back to this step: those above it count no more."""
        while self._steps and self._steps[-1].number > number:
            self._steps.pop()

    def total(self, saved: int, *, late: bool) -> OpenTime:
        """What is open of the steps up to the one that was saved."""
        some = [one for one in self._steps if one.number <= saved and (late or not one.is_late)]
        if not some:
            return OpenTime()
        bounded = [one for one in some if one.more_us < FOREVER_US // 2]
        return OpenTime(
            less_us=sum(one.less_us for one in some),
            more_us=sum(one.more_us for one in bounded),
            outside_us=sum(one.outside_us for one in some),
            outside=sum(one.outside_us > ROUNDED_US for one in some),
            unbounded=len(some) - len(bounded),
            assumed=sum(one.less_us > 0 or one.more_us > 0 for one in bounded),
        )
