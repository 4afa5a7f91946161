"""`ettr plan --measured`: what a run has timed of itself replaces what a plan would assume."""

from pathlib import Path

import pytest

from cli.program import ettr
from ettr.progress.events import LineWriter
from ettr.recovery.restore_costs import RestoreTimings, RunTimings, write_timings

RUN = ("plan", "--gpus", "2048", "--failures-per-1000-node-days", "6.5")
STATE = ("--state-bytes", "5TB", "--bandwidth", "200GB/s", "--replicas", "8")


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    """What a run of `ettr elastic` leaves next to its checkpoints."""
    restores = {"replica": RestoreTimings(3, 3_000_000, 0.6)}
    write_timings(tmp_path, RunTimings(4.0, 12.5, restores))
    return tmp_path / "measured.json"


def test_measured_costs_replace_assumed_ones(timings: Path) -> None:
    found = ettr(*RUN, *STATE, "--measured", timings, "--json").json
    assert found["job"]["step_s"] == 4.0
    assert found["job"]["replace_s"] == 12.5
    labels = {one["label"] for one in found["standing"]["assumptions"]}
    assert "--replace" not in labels
    assert "--restart" in labels
    text = " ".join(ettr(*RUN, *STATE, "--measured", timings).out.split())
    assert "Measured, not assumed" in text
    assert "--replace 12.5 s" in text


def test_what_is_typed_stays(timings: Path) -> None:
    typed = ("--step", "9s", "--replace", "40s")
    found = ettr(*RUN, *STATE, *typed, "--measured", timings, "--json").json
    assert found["job"]["step_s"] == 9.0
    assert found["job"]["replace_s"] == 40.0


def test_a_progress_record_gives_write_and_restart(tmp_path: Path) -> None:
    record = tmp_path / "progress.jsonl"
    events = [("start", 0, 0.0, None)]
    clock = 0.0
    for step in range(1, 21):
        clock += 2.0
        events.append(("step", step, clock, 2.0))
        if step % 5 == 0:
            clock += 0.5
            events.append(("save", step, clock, 0.5))
    events += [("restart", 20, clock + 30.0, 30.0), ("step", 21, clock + 32.0, 2.0)]
    writer = LineWriter("r", None, None, 0)
    record.write_bytes(
        b"".join(
            writer.line(event, step, 1.7e9 + at, length, {}) for event, step, at, length in events
        )
    )
    done = ettr(*RUN, "--measured", record, "--json")
    assert done.code == 0, done.err
    assert done.json["run"]["write_s"] == pytest.approx(0.5)
    assert done.json["run"]["restart_s"] == pytest.approx(30.0)


@pytest.mark.parametrize("text", ["", "{}", "nonsense\n", '{"restores": 3}'])
def test_a_file_without_times_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text)
    done = ettr(*RUN, "--measured", tmp_path / "other.json")
    assert done.code == 2
    assert "give measured.json" in done.err
    assert ettr(*RUN, "--measured", tmp_path / "absent").code == 2
