"""The split of a run's wall clock: exact, live as from a file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import SourceError
from ettr.progress.goodput import Goodput, goodput, goodput_of_file
from ettr.progress.recorder import EVENTS, ProgressEvent, ProgressRecorder


def ev(event: str, step: int, time_s: float, duration_s: float | None = None) -> ProgressEvent:
    return ProgressEvent(event, step, time_s, duration_s)


def test_a_run_with_a_rollback_by_hand() -> None:
    split = goodput(
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
    split = goodput([*events, ev("restart", 10, 12.0, 2.0), ev("restore", 10, 13.0, 1.0)])
    assert (split.productive_s, split.redone_s, split.restart_s) == (10.0, 0.0, 2.0)


def test_a_save_inside_a_step_is_told_once() -> None:
    split = goodput(
        [ev("start", 0, 0.0), ev("save", 1, 0.9, 0.2), ev("step", 1, 1.0, 1.0)],
    )
    assert (split.wall_s, split.save_s, split.productive_s) == (1.0, 0.2, 0.8)
    assert split.idle_s == 0.0


def test_one_rank_of_one_run() -> None:
    events = [ProgressEvent("step", 1, 1.0, 1.0, rank=2), ProgressEvent("step", 1, 1.0, 1.0, 5)]
    assert goodput(events).steps == 1
    with pytest.raises(SourceError, match="no events of rank 0; there are events of ranks: 2, 5"):
        goodput(events, rank=0)
    with pytest.raises(SourceError, match=r"events of 2 runs \(, b\); give those of one run"):
        goodput([*events, ProgressEvent("step", 2, 2.0, run="b")])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.integers(0, 6),
            st.floats(-2.0, 50.0),
            st.none() | st.floats(0.0, 30.0),
        ),
        max_size=40,
    )
)
def test_every_microsecond_lies_in_one_bucket(raw: list) -> None:
    tracker = Goodput()
    now = 1e9
    for event, step, gap_s, duration_s in raw:
        now += gap_s  # also backwards: clocks do that
        tracker.add(ev(event, step, now, duration_s))
    s = tracker.split()
    parts = (
        s.productive_s,
        s.redone_s,
        s.save_s,
        s.restore_s,
        s.stall_s,
        s.restart_s,
        s.idle_s,
    )
    assert all(part >= 0 for part in parts)
    assert sum(round(part * 1e6) for part in parts) == round(s.wall_s * 1e6)


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


def test_a_number_without_sense_takes_no_time() -> None:
    """A restore behind a step of 10**30: only what was done is gone through."""
    events = [ev("step", 10**30, 1.0, 1.0), ev("restore", 3, 2.0, 0.5), ev("step", 4, 3.0, 1.0)]
    split = goodput(events)
    assert (split.redone_s, split.productive_s, split.steps) == (1.0, 1.0, 1)
