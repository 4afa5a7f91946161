"""Waits for data: timed by the recorder, bounded, and what they are a share of."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ettr.progress import (
    ProgressRecorder,
    goodput_of_events,
    goodput_of_file,
    read_google_goodput,
    read_progress,
)


class Clock:
    """Virtual seconds, which only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 1_767_225_600.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def loader(self, waits_s: list[float], closing_s: float = 0.0) -> Iterator[int]:
        for number, wait_s in enumerate(waits_s):
            self.sleep(wait_s)
            yield number
        self.sleep(closing_s)


def recorded(path: Path, *, accumulate: int = 1, **options: bool) -> None:
    """Two epochs of 8 batches: 5 s for the first, .25 s for others; 1 s of work for each."""
    clock = Clock()
    with ProgressRecorder(path, run="r", clock=clock) as recorder:
        recorder.start(0)
        step, begin_s = 0, clock()
        for _ in range(2):
            waits_s = [5.0] + [0.25] * 7
            for n, _batch in enumerate(recorder.batches(clock.loader(waits_s, 0.5), **options), 1):
                clock.sleep(1.0)
                if n % accumulate == 0:
                    step += 1
                    recorder.step(step, clock() - begin_s)
                    begin_s = clock()
            for _ in recorder.batches(clock.loader([2.0] * 3), part="evaluation", **options):
                clock.sleep(0.5)
            recorder.save(step, 0.0)
            begin_s = clock()
        recorder.end(step)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_waits_are_stalls_of_the_data_and_the_rest_of_a_step_is_productive(
    tmp_path: Path, accumulate: int
) -> None:
    recorded(tmp_path / "p.jsonl", accumulate=accumulate, synchronised=True)
    split = goodput_of_file(tmp_path / "p.jsonl")
    training_s = 2 * (5.0 + 7 * 0.25 + 0.5)  # the closing of the workers, too
    assert split.productive_s == 16.0
    assert split.input_stall_s == pytest.approx(training_s)
    assert split.stall_s == pytest.approx(training_s + 2 * 3 * 2.0)  # evaluation is apart
    share = training_s / (training_s + 16.0)
    assert split.input_stall == pytest.approx((share, share, share))
    assert split.productive_high_s == split.productive_low_s == 16.0
    lines = [event for event in read_progress(tmp_path / "p.jsonl") if event.event == "stall"]
    parts = [event.detail["part"] for event in lines]
    assert parts.count("evaluation") == 2
    training = [event for event in lines if event.detail["part"] == "training"]
    assert sum(event.detail["waits"] for event in training) == 14
    starts = [event for event in lines if event.detail["part"] == "epoch-start"]
    assert sum(event.duration_s or 0 for event in starts) == pytest.approx(2 * 5.5)


def test_a_wait_of_the_host_alone_is_an_upper_bound(tmp_path: Path) -> None:
    recorded(tmp_path / "p.jsonl")
    split = goodput_of_file(tmp_path / "p.jsonl")
    assert split.input_stall is not None
    estimate, low, high = split.input_stall
    assert low == 0.0 < estimate == high
    # the device may have trained throughout
    assert split.productive_high_s == pytest.approx(split.productive_s + split.input_stall_s)


def test_waits_that_nobody_timed_are_not_none(tmp_path: Path) -> None:
    with ProgressRecorder(tmp_path / "p.jsonl", run="r") as recorder:
        recorder.step(1, 1.0)
        recorder.stall(1, 0.5, cause="check")
        recorder.stall(1, 0.5, cause="the weather")
    assert goodput_of_file(tmp_path / "p.jsonl").input_stall is None


def test_googles_loading_of_data_keeps_its_cause() -> None:
    entries = [{"job_name": "j", "job_start_time": 0.0}]
    for step in range(10):
        begin_s = 10.0 * step
        entries += [{"job_name": "j", "data_loading_start_time": begin_s}]
        entries += [{"job_name": "j", "data_loading_end_time": begin_s + 2.0}]
        entries += [{"job_name": "j", "step_start_time": begin_s + 2.0, "step_count": step}]
    entries += [{"job_name": "j", "job_end_time": 100.0}]
    split = goodput_of_events(read_google_goodput(entries))
    # the first is before the first step, the others within the step before
    assert split.input_stall_s == pytest.approx(20.0)
    assert split.input_stall == pytest.approx((0.2, 0.2, 0.2))


def test_a_loader_that_raises_keeps_what_was_waited(tmp_path: Path) -> None:
    clock = Clock()

    def breaks() -> Iterator[int]:
        clock.sleep(2.0)
        yield 0
        raise OSError("shard 3")

    with (
        pytest.raises(OSError, match="shard 3"),
        ProgressRecorder(tmp_path / "p.jsonl", run="r", clock=clock) as recorder,
    ):
        for _ in recorder.batches(breaks()):
            pass
    (line,) = read_progress(tmp_path / "p.jsonl")
    assert (line.event, line.duration_s, line.detail["cause"]) == ("stall", 2.0, "data")


class Stream:
    """A device that works off what is queued, in the time of a clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.free_at_s = clock, clock()

    def queue(self, seconds: float) -> None:
        self.free_at_s = max(self.free_at_s, self.clock()) + seconds

    def event(self) -> StreamEvent:
        return StreamEvent(self)


class StreamEvent:
    def __init__(self, stream: Stream) -> None:
        self.stream, self.at_s = stream, 0.0

    def record(self) -> None:
        self.at_s = max(self.stream.free_at_s, self.stream.clock())

    def query(self) -> bool:
        return self.at_s <= self.stream.clock()

    def elapsed_time(self, end: StreamEvent) -> float:
        return (end.at_s - self.at_s) * 1000


@pytest.mark.torch
@pytest.mark.parametrize(
    ("wait_s", "work_s", "idle_s"), [(1.0, 4.0, 0.0), (3.0, 1.0, 2.0), (2.0, 0.0, 2.0)]
)
def test_the_idle_time_of_a_device_is_what_it_did_not_work_while_the_host_waited(
    tmp_path: Path, wait_s: float, work_s: float, idle_s: float
) -> None:
    pytest.importorskip("torch")
    from ettr.adapters.device_idle import DeviceIdle

    clock = Clock()
    stream = Stream(clock)
    steps = 10
    with ProgressRecorder(tmp_path / "p.jsonl", run="r", clock=clock) as recorder:
        probe = DeviceIdle(stream.event)
        stream.queue(work_s)
        for step, _ in enumerate(recorder.batches(clock.loader([wait_s] * steps), idle=probe), 1):
            stream.queue(work_s)
            recorder.step(step, None)
    split = goodput_of_file(tmp_path / "p.jsonl")
    assert split.input_open_s == 0.0
    assert split.input_stall_s == pytest.approx(steps * idle_s)
    (first, *_) = (event for event in read_progress(tmp_path / "p.jsonl") if event.event == "stall")
    assert first.detail["host_s"] == wait_s


def test_timing_a_loader_costs_less_than_a_hundredth_of_a_step_of_ten_milliseconds(
    tmp_path: Path,
) -> None:
    steps = 2_000

    def cpu_s(*, timed: bool) -> float:
        with ProgressRecorder(tmp_path / f"{timed}.jsonl", run="r") as recorder:
            batches = recorder.batches(range(steps)) if timed else range(steps)
            begin_s = time.process_time()
            for step in batches:
                recorder.step(step, 0.01)
            return time.process_time() - begin_s

    extra_s = min(cpu_s(timed=True) for _ in range(3)) - min(cpu_s(timed=False) for _ in range(3))
    assert extra_s / steps < 0.01 * 0.01


def test_the_waits_since_the_last_line_take_no_memory(tmp_path: Path) -> None:
    with ProgressRecorder(tmp_path / "p.jsonl", run="r") as recorder:
        for _ in recorder.batches(range(10_000)):
            assert len(recorder.data_waits._waits) <= 2
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert sum(line["detail"]["waits"] for line in lines) == 10_000
