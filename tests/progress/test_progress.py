"""The recorder's lines, and what survives a kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ettr.errors import SourceError, UsageError
from ettr.progress import ProgressRecorder, parse_line, read_progress


def ticking(start: float = 1_700_000_000.0, tick_s: float = 0.25):
    now = [start - tick_s]

    def clock() -> float:
        now[0] += tick_s
        return now[0]

    return clock


def test_a_line_is_the_documented_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "p.jsonl"
    with ProgressRecorder(path, run="r1", cluster="c", job="17", rank=3, clock=ticking()) as rec:
        rec.step(12, 0.43, loss=2.5)
    assert json.loads(path.read_text()) == {
        "v": 1,
        "run": "r1",
        "cluster": "c",
        "job": "17",
        "rank": 3,
        "time": 1_700_000_000.0,
        "event": "step",
        "step": 12,
        "duration_s": 0.43,
        "detail": {"loss": 2.5},
    }


def test_every_event_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    seen = []
    with ProgressRecorder(path, run='a "run"\n', clock=ticking(), listener=seen.append) as rec:
        rec.start(0)
        rec.step(1, 0.1)
        rec.save(1, 0.01, bytes=7)
        rec.stall(1, 0.5, kind="data")
        rec.restart(1, 3.0)
        rec.restore(1, 1.0)
        with rec.timed("step", 2, loss=1.0) as more:
            more["lr"] = 0.1
        rec.end(2, odd={1, 2}.__class__)
    events = list(read_progress(path))
    assert [e.event for e in events] == [
        "start",
        "step",
        "save",
        "stall",
        "restart",
        "restore",
        "step",
        "end",
    ]
    assert events[0].run == 'a "run"\n'
    assert events[6].duration_s == 0.25
    assert events[6].detail == {"loss": 1.0, "lr": 0.1}
    assert [(e.event, e.step, e.time_s) for e in seen] == [
        (e.event, e.step, e.time_s) for e in events
    ]


def test_a_torn_last_line_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with ProgressRecorder(path, run="r", clock=ticking()) as rec:
        rec.step(1)
        rec.step(2)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with ProgressRecorder(path, run="r", clock=ticking()) as rec:
            rec.step(3)
        steps = [event.step for event in read_progress(path)]
        assert steps[-1] == 3
        assert steps[:-1] == [1, 2][: len(steps) - 1]
        complete = whole[:cut].count(b"\n") + whole[:cut].endswith(b"}")
        assert len(steps) == 1 + complete


def test_lines_before_a_kill_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    program = (
        "import os, signal, sys\n"
        "from ettr.progress.recorder import ProgressRecorder\n"
        "rec = ProgressRecorder(sys.argv[1], run='r')\n"
        "for step in range(1, 501): rec.step(step, 0.1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [event.step for event in read_progress(path)] == list(range(1, 501))


def test_a_full_disk_loses_lines_not_the_run() -> None:
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("no /dev/full")
    rec = ProgressRecorder("/dev/full", run="r", clock=ticking())
    rec.step(1)
    rec.step(2)
    assert rec.lost_lines == 2
    rec.close()
    rec.step(3)
    assert rec.lost_lines == 3


def test_wrong_use_says_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run: '' was given; name the training run"):
        ProgressRecorder(tmp_path / "p", run="")
    with (
        ProgressRecorder(tmp_path / "p", run="r") as rec,
        pytest.raises(UsageError, match="'epoch' was given; give one of start, step, save"),
    ):
        rec.record("epoch", 1)
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        list(read_progress(tmp_path / "absent"))


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"3", b'{"v":2}', b'{"v":1,"event":"x"}', b"\xff\xfe"]
)
def test_a_foreign_line_is_none(line: bytes) -> None:
    assert parse_line(line) is None


def test_the_door_needs_the_standard_library_only() -> None:
    program = (
        "import sys; import ettr.progress as p; [getattr(p, name) for name in p.__all__]\n"
        "foreign = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "rooms = {name for name in sys.modules if name.startswith('ettr.')}\n"
        "ground = {'progress', 'errors', 'shapes', 'units', 'version'}\n"
        "rooms = {name.split('.')[1] for name in rooms} - ground\n"
        "foreign = {n for n in foreign if n[0] != '_'} - {'ettr', 'sitecustomize'}\n"
        "sys.exit(str(foreign | rooms) if foreign | rooms else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("field", ["time", "duration_s", "step"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_none_makes_a_line_foreign(field: str, value: str) -> None:
    line = {"v": 1, "run": "r", "time": 1.0, "event": "step", "step": 2, "duration_s": 0.5}
    text = json.dumps(line | {field: "@"}).replace('"@"', value)
    assert parse_line(json.dumps(line).encode()) is not None
    assert parse_line(text.encode()) is None


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
def test_a_duration_that_is_no_length_of_time_is_recorded_as_unknown(
    tmp_path: Path, duration_s: float
) -> None:
    path, live = tmp_path / "p.jsonl", []
    with ProgressRecorder(path, run="r", clock=ticking(), listener=live.append) as rec:
        rec.step(1, duration_s)
    assert list(read_progress(path)) == live
    assert live[0].duration_s is None


def test_a_clock_that_is_set_back_within_a_block_leaves_its_length_unknown(tmp_path: Path) -> None:
    now = iter([100.0, 40.0])
    recorder = ProgressRecorder(tmp_path / "p.jsonl", run="r", clock=lambda: next(now))
    with recorder, recorder.timed("save", 1):
        pass
    (event,) = read_progress(tmp_path / "p.jsonl")
    assert (event.time_s, event.duration_s) == (40.0, None)


def test_a_step_or_a_time_that_no_line_can_hold_is_refused(tmp_path: Path) -> None:
    with ProgressRecorder(tmp_path / "p.jsonl", run="r") as rec:
        with pytest.raises(
            UsageError, match=r"step: 10+ was given; give one from 0 to 9223372036854775"
        ):
            rec.step(10**30)
        with pytest.raises(UsageError, match="step: -1 was given; give one from 0 to 9223"):
            rec.step(-1)
        with pytest.raises(UsageError, match="time_s: nan was given; give Unix seconds"):
            rec.record("step", 1, time_s=float("nan"))
    assert (tmp_path / "p.jsonl").read_bytes() == b""
