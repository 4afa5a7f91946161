"""The split of a run's wall clock: exact, live as from a file."""

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import SourceError
from ettr.progress import EVENTS, ProgressEvent, ProgressRecorder, RunState
from ettr.progress.goodput import Goodput, goodput_of_events, goodput_of_file


def ev(event: str, step: int, time_s: float, duration_s: float | None = None) -> ProgressEvent:
    return ProgressEvent(event, step, time_s, duration_s)


def test_a_run_with_a_rollback_by_hand() -> None:
    split = goodput_of_events(
        [
            ev("start", 0, 100.0, 10.0),  # 10 s of start
            ev("step", 1, 102.0, 2.0),
            ev("step", 2, 104.0, 2.0),
            ev("save", 2, 105.0, 1.0),
            ev("step", 3, 107.0, 2.0),  # lost
            ev("step", 4, 110.0, 2.0),  # lost; 1 s idle before it
            ev("start", 0, 140.0, 5.0),  # 30 s from the last sign of life
            ev("restore", 2, 143.0, 3.0),
            ev("step", 3, 145.0, 2.0),
            ev("stall", 3, 149.0, 4.0),
            ev("step", 4, 151.0, 2.0),
            ev("end", 4, 152.0),
        ]
    )
    assert (split.wall_s, split.productive_s, split.redone_s) == (62.0, 8.0, 4.0)
    assert (split.save_s, split.restore_s, split.stall_s) == (1.0, 3.0, 4.0)
    assert (split.restart_s, split.idle_s) == (40.0, 2.0)
    assert (split.steps, split.redone_steps, split.restarts) == (4, 2, 1)
    assert split.goodput == pytest.approx(8 / 62)
    assert split.ettr(queue_s=18.0) == pytest.approx(0.1)


def test_lost_steps_are_known_at_the_restore_not_when_done_again() -> None:
    tracker = Goodput()
    for step in range(1, 11):
        tracker.add(ev("step", step, float(step), 1.0))
    tracker.add(ev("restore", 4, 12.0, 1.0))
    split = tracker.split()
    assert (split.productive_s, split.redone_s, split.redone_steps) == (4.0, 6.0, 6)


def test_a_partial_recovery_loses_no_step() -> None:
    events = [ev("step", s, float(s), 1.0) for s in range(1, 11)]
    split = goodput_of_events([*events, ev("restart", 10, 12.0, 2.0), ev("restore", 10, 13.0, 1.0)])
    assert (split.productive_s, split.redone_s, split.restart_s) == (10.0, 0.0, 2.0)


def test_a_save_inside_a_step_counts_once() -> None:
    split = goodput_of_events(
        [ev("start", 0, 0.0), ev("save", 1, 0.9, 0.2), ev("step", 1, 1.0, 1.0)],
    )
    assert (split.wall_s, split.save_s, split.productive_s) == (1.0, 0.2, 0.8)
    assert split.idle_s == 0.0


def test_one_rank_of_one_run() -> None:
    events = [ProgressEvent("step", 1, 1.0, 1.0, rank=2), ProgressEvent("step", 1, 1.0, 1.0, 5)]
    assert goodput_of_events(events, state=RunState.RUNNING).steps == 1
    with pytest.raises(SourceError, match="no events of rank 0; there are events of ranks: 2, 5"):
        goodput_of_events(events, rank=0)
    with pytest.raises(SourceError, match=r"events of 2 runs \(, b\); give those of one run"):
        goodput_of_events([*events, ProgressEvent("step", 2, 2.0, run="b")])


EVENT_LISTS = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.integers(0, 6),
        st.floats(-2.0, 50.0),
        st.none() | st.floats(0.0, 30.0),
    ),
    max_size=40,
)


@given(EVENT_LISTS, st.sampled_from(RunState))
def test_every_microsecond_lies_in_one_bucket(raw: list, state: RunState) -> None:
    tracker = Goodput()
    now = 1e9
    for event, step, gap_s, duration_s in raw:
        now += gap_s  # also backwards: clocks do that
        tracker.add(ev(event, step, now, duration_s))
    s = tracker.split(state)
    parts = (
        s.productive_s,
        s.redone_s,
        s.unsaved_s,
        s.save_s,
        s.restore_s,
        s.stall_s,
        s.restart_s,
        s.idle_s,
    )
    assert all(part >= 0 for part in parts)
    assert sum(round(part * 1e6) for part in parts) == round(s.wall_s * 1e6)
    assert 0 <= s.at_risk_s <= s.productive_s


TEN_STEPS_SAVED_AT_FIVE = [
    *(ev("step", step, 10.0 * step, 10.0) for step in range(1, 6)),
    ev("save", 5, 50.0, 0.0),
    *(ev("step", step, 10.0 * step, 10.0) for step in range(6, 11)),
]


def test_what_was_never_saved_is_lost_once_the_run_has_ended() -> None:
    split = goodput_of_events(TEN_STEPS_SAVED_AT_FIVE)
    assert (split.productive_s, split.unsaved_s, split.at_risk_s) == (50.0, 50.0, 0.0)
    assert (split.steps, split.unsaved_steps) == (5, 5)
    assert split.goodput == 0.5
    completed = goodput_of_events([*TEN_STEPS_SAVED_AT_FIVE, ev("end", 10, 100.0)])
    assert (completed.productive_s, completed.unsaved_s, completed.at_risk_s) == (100.0, 0.0, 0.0)
    by_word = goodput_of_events(TEN_STEPS_SAVED_AT_FIVE, state=RunState.COMPLETED)
    assert (by_word.productive_s, by_word.unsaved_s, by_word.at_risk_s) == (100.0, 0.0, 0.0)


def test_while_a_run_lasts_its_unsaved_steps_are_at_risk_and_not_lost() -> None:
    live = Goodput()
    for event in TEN_STEPS_SAVED_AT_FIVE:
        live.add(event)
    assert (live.split().productive_s, live.split().at_risk_s) == (100.0, 50.0)
    live.add(ev("save", 10, 101.0, 1.0))
    assert (live.split().productive_s, live.split().at_risk_s) == (100.0, 0.0)
    assert live.split(RunState.INTERRUPTED).unsaved_s == 0.0


def test_a_save_is_of_the_past_that_the_run_goes_on_from() -> None:
    """Saved at 8, restored at 4: what comes after 4 is unsaved, whatever was saved before."""
    events = [ev("step", step, float(step), 1.0) for step in range(1, 9)]
    events += [ev("save", 8, 8.0), ev("restore", 4, 9.0, 1.0)]
    events += [ev("step", step, 5.0 + step, 1.0) for step in range(5, 8)]
    split = goodput_of_events(events)
    assert (split.productive_s, split.redone_s, split.unsaved_s) == (4.0, 4.0, 3.0)


def test_an_end_that_was_not_the_last_word_does_not_complete_a_run() -> None:
    events = [ev("step", 1, 1.0, 1.0), ev("save", 1, 1.0), ev("end", 1, 1.0)]
    events += [ev("start", 1, 2.0), ev("step", 2, 3.0, 1.0)]
    assert goodput_of_events(events).unsaved_s == 1.0


def test_a_run_that_ends_before_it_has_caught_up_has_lost_what_it_went_back_behind() -> None:
    """Steps 0 to 9, begun again at 5 without a word of it, ended at 7: eight steps count."""
    events = [ev("step", step, 1.0 + step, 1.0) for step in range(10)]
    events += [ev("start", 0, 11.0)]
    events += [ev("step", step, 7.0 + step, 1.0) for step in range(5, 8)]
    split = goodput_of_events([*events, ev("end", 7, 14.0)])
    assert (split.steps, split.productive_s) == (8, 8.0)
    assert (split.redone_steps, split.redone_s) == (5, 5.0)


def test_time_up_to_the_first_step_is_restart() -> None:
    events = [ev("start", 0, 0.0), ev("stall", 0, 20.0, 5.0), ev("step", 1, 40.0, 10.0)]
    split = goodput_of_events([*events, ev("end", 1, 41.0)])
    assert (split.restart_s, split.stall_s, split.productive_s, split.idle_s) == (25, 5, 10, 1)


def test_live_and_from_the_file_are_equal(tmp_path: Path) -> None:
    now = [1_700_000_000.0]
    live = Goodput()
    path = tmp_path / "p.jsonl"
    with ProgressRecorder(path, run="r", clock=lambda: now[0], listener=live.add) as rec:
        rec.start(0)
        for step in (1, 2, 3, 2, 3, 4):
            now[0] += 0.431_007
            rec.step(step, 0.400_001)
        rec.end(4)
    assert goodput_of_file(path) == live.split()
    assert live.split().redone_steps == 2


def test_a_number_without_sense_is_refused() -> None:
    for event, message in (
        (ev("step", 10**30, 1.0, 1.0), "step: 10+ was given; give one below 9223372036854775807"),
        (ev("step", 1, math.nan), "a time of nan s was given"),
        (ev("step", 1, 1.0, math.inf), "a time of inf s was given"),
    ):
        with pytest.raises(SourceError, match=message):
            goodput_of_events([event])


def test_a_restore_far_behind_takes_no_time() -> None:
    events = [ev("step", 2**62, 1.0, 1.0), ev("restore", 3, 2.0, 0.5), ev("step", 4, 3.0, 1.0)]
    split = goodput_of_events([*events, ev("end", 4, 3.0)])
    assert (split.redone_s, split.productive_s, split.steps) == (1.0, 1.0, 1)


def with_a_gap_of(gap_s: float, **lines: float | None) -> list[ProgressEvent]:
    """Ten steps, a gap, ten more after a start."""
    first = [ev("start", 0, 5000.0), *(ev("step", n, 5000.0 + n, 1.0) for n in range(1, 11))]
    begin_s = 5010.0 + gap_s
    then = [ev("save", 10, 5010.0), ev("start", 10, begin_s)]
    then += [ev("step", n, begin_s + n - 10, lines.get(f"s{n}", 1.0)) for n in range(11, 21)]
    return [*first, *then, ev("end", 20, begin_s + 10.0)]


def test_a_clock_set_back_at_a_restart_leaves_the_wall_clock_open() -> None:
    truth = goodput_of_events(with_a_gap_of(600.0))
    assert truth.goodput_band == (truth.goodput, truth.goodput)
    assert (truth.wall_high_s, truth.notes) == (truth.wall_s, ())
    found = goodput_of_events(with_a_gap_of(600.0 - 3600.0))
    assert (found.productive_low_s, found.productive_high_s) == (20.0, 20.0)
    assert found.goodput_band == (0.0, found.goodput)
    assert found.goodput_band[0] < truth.goodput < found.goodput_band[1]
    assert found.wall_high_s == math.inf
    assert "clock went back, 1 x" in found.notes[0]


def test_steps_of_unknown_length_where_the_clock_went_back_may_have_taken_any_time() -> None:
    back = with_a_gap_of(-3600.0)
    without = [e for e in back if e.event != "start" and e.step != 11]
    for events in (without, [*back[:12], *with_a_gap_of(-3600.0, s11=None)[13:]]):
        split = goodput_of_events(events)
        assert split.clock_set_back == 1
        assert split.goodput_band == (0.0, 1.0)
        assert any("the high end of the goodput is 1" in note for note in split.notes)


def test_a_start_dated_before_the_stall_that_it_follows_shows_a_clock_that_went_back() -> None:
    events = [ev("step", 1, 10.0, 10.0), ev("save", 1, 10.0), ev("stall", 1, 3600.0, 3590.0)]
    events += [ev("start", 1, 100.0), ev("step", 2, 110.0, 10.0), ev("end", 2, 110.0)]
    split = goodput_of_events(events)
    assert split.clock_set_back == 1
    assert split.goodput_band[0] == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_an_end_at_the_moment_of_the_last_step_follows_it_in_any_order_of_lines(seed: int) -> None:
    events = [e for e in with_a_gap_of(600.0) if e.event != "save"]
    whole = goodput_of_events(events)
    assert whole.productive_s == 20.0
    shuffled = list(events)
    random.Random(seed).shuffle(shuffled)
    assert goodput_of_events(shuffled).goodput_band == whole.goodput_band
    assert goodput_of_events([*events[:-2], events[-1], events[-2]]).productive_s == 20.0
