"""The benchmark of real kills: its schedule, what it makes of the ranks' lines, its prediction."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("driver", "measure", "notes", "summary")
    yield SimpleNamespace(**{name: importlib.import_module(f"kills.{name}") for name in names})
    for name in [name for name in sys.modules if name.split(".")[0] == "kills"]:
        del sys.modules[name]


def steps(slot: int, pid: int, numbers: range, *, begin_s: float, generation: int = 1, **more):
    return [
        {
            "event": "step",
            "slot": slot,
            "pid": pid,
            "step": step,
            "time_s": begin_s + (at + 1) * 0.5,
            "generation": generation,
            "loss": 4.0 - 0.1 * step,
            **more,
        }
        for at, step in enumerate(numbers)
    ]


def formed(slot: int, pid: int, number: int, step: int, formed_s: float, agreed_s: float, **more):
    return {
        "event": "recovered",
        "slot": slot,
        "pid": pid,
        "generation": number,
        "step": step,
        "formed_s": formed_s,
        "time_s": agreed_s,
        "failed_s": None,
        "noticed_s": 0.0,
        "source": "rollback",
        **more,
    }


def test_a_schedule_follows_its_seed_and_its_rate(kills) -> None:
    drawn = [kills.driver.schedule(seed, horizon_s=50.0, mttf_s=5.0) for seed in range(200)]
    assert drawn[3] == kills.driver.schedule(3, horizon_s=50.0, mttf_s=5.0)
    assert all(0 < kill.at_s < 50 for one in drawn for kill in one)
    count = sum(len(one) for one in drawn)
    assert abs(count - 2000) < 4 * 2000**0.5  # Poisson with mean 10 each
    assert {kill.slot for one in drawn for kill in one} == {0, 1, 2, 3}


def test_a_rollback_with_live_survivors_is_taken_apart(kills) -> None:
    # Four ranks do steps 1 to 8 from second 0 on; slot 2 dies at 4.2; the others go back to 5.
    lines = []
    for slot in range(4):
        lines.append(formed(slot, 10 + slot, 1, 0, -0.2, -0.1))
        lines += steps(slot, 10 + slot, range(1, 9), begin_s=0.0)
        pid = 20 if slot == 2 else 10 + slot
        failed = {} if slot == 2 else {"failed_s": 4.3 + 0.01 * slot}
        lines.append(formed(slot, pid, 2, 5, 5.0 + 0.1 * slot, 5.5, noticed_s=4.22, **failed))
        lines += steps(slot, pid, range(6, 10), begin_s=6.0, generation=2)
    kill = {"time_s": 4.2, "slot": 2, "pid": 12, "while": "computing"}
    ran = kills.driver.Ran(0.0, 8.0, [kill])
    made = kills.measure.result(ran, sorted(lines, key=lambda o: o["time_s"]))
    assert (made["kept_steps"], made["lost_steps"], made["wall_s"]) == (9, 3, 8.0)
    assert made["step_s"] == pytest.approx(0.5)
    (kill_row,) = made["kills"]
    expected = {
        "detect_first_s": 0.10,
        "detect_all_s": 0.13,
        "noticed_s": 0.02,
        "regroup_s": 1.1,
        "restore_s": 1.3,
        "first_s": 2.3,
    }
    assert {name: kill_row[name] for name in expected} == pytest.approx(expected)
    assert kill_row["kept_pids"] == 3
    assert not kill_row["overlaps"]
    curve = kills.measure.curve(ran, lines)
    assert [row[0] for row in curve] == [1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8, 9]


def test_kills_that_fall_into_a_recovery_are_marked(kills) -> None:
    lines = [formed(slot, 10 + slot, 1, 0, -0.2, -0.1) for slot in range(4)]
    for slot in range(4):
        lines += steps(slot, 10 + slot, range(1, 5), begin_s=0.0)
        lines.append(formed(slot, 30 + slot, 3, 4, 6.0, 6.2))
        lines += steps(slot, 30 + slot, range(5, 7), begin_s=6.5, generation=3)
    struck = [
        {"time_s": at_s, "slot": slot, "pid": 10 + slot, "while": "computing"}
        for at_s, slot in ((2.5, 0), (4.0, 1))
    ]
    made = kills.measure.result(kills.driver.Ran(0.0, 8.0, struck), lines)
    assert [kill["overlaps"] for kill in made["kills"]] == [True, True]
    assert [kill["struck_in_recovery"] for kill in made["kills"]] == [False, True]


def test_the_prediction_is_the_exact_renewal_form_of_the_measured_costs(kills) -> None:
    predicted = kills.summary.predicted
    one = [{"restore_s": 2.0}]
    # λΔ e^(-λu0) / (e^(λ(Δ + w)) - 1) by hand, λ = 0.1/s
    exact = predicted(one, kills=1, step_s=0.1, base_s=0.1, mttf_s=10.0, interval_steps=10)
    assert exact == pytest.approx(0.778477, abs=1e-5)
    slower = predicted(one, kills=1, step_s=0.12, base_s=0.1, mttf_s=10.0, interval_steps=10)
    assert slower == pytest.approx(0.642156, abs=1e-5)
    assert predicted([], kills=0, step_s=0.2, base_s=0.1, mttf_s=10.0, interval_steps=1) == 0.5
    assert predicted([], kills=2, step_s=0.2, base_s=0.1, mttf_s=10.0, interval_steps=1) is None


def test_intervals_and_percentiles(kills) -> None:
    assert kills.summary.t_half([0.0, 1.0, 2.0]) == pytest.approx(2.484138, abs=1e-5)
    assert kills.summary.t_half([0.5]) is None
    assert kills.summary.percentile([0.0, 1.0, 2.0, 3.0, 4.0], 0.9) == pytest.approx(3.6)


def test_a_row_says_what_was_measured(kills) -> None:
    kill = {"overlaps": False, "kept_pids": 3, "restore_s": 1.0, "first_s": 1.5}
    results = [
        {
            "kills": [kill, kill | {"overlaps": True}],
            "kept_steps": kept,
            "lost_steps": 2,
            "wall_s": 10.0,
            "step_s": 0.1,
            "last_loss": 2.5,
        }
        for kept in (60.0, 80.0)
    ]
    row = kills.summary.summarise("a way", results, base_s=0.1, mttf_s=5.0, interval_steps=1)
    assert (row.seeds, row.kills, row.kept_share, row.lost_per_kill) == (2, 4, 1.0, 1.0)
    assert row.ettr == pytest.approx((0.6, 0.8))
    assert row.times["first_s"] == (1.5, 1.5)
    text = kills.summary.table([row])
    assert "| a way | 4 | 100% | 0.70 ± 1.27 |" in text
    assert "| a way | 1.00 (1.00) | 1.50 (1.50) |" in text
    # what follows from no undisturbed run is there without one
    row = kills.summary.summarise("a way", results, base_s=None, mttf_s=5.0, interval_steps=1)
    text = kills.summary.table([row])
    assert "| a way | 4 | 100% | - | - | 1.0 | 100 ms | 2.50 |" in text
    assert "| a way | 1.00 (1.00) | 1.50 (1.50) |" in text


def test_a_process_that_has_the_number_of_a_rank_that_is_gone_is_not_struck(
    kills, tmp_path: Path
) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "kills.rank"])
    try:
        for at, process, struck in ((0, other, False), (1, rank, True)):
            (tmp_path / f"rank-{at}").write_text(str(process.pid))
            due = kills.driver.Kill(0.0, at)
            struck_kill = kills.driver._strike(tmp_path, due, time.time() + 0.2 + 240 * struck)
            assert (struck_kill is not None) == struck
        assert rank.wait(timeout=240) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (other, rank):
            process.kill()
            process.wait()


def test_notes_outlive_a_kill_and_all_that_was_started_is_ended(kills, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; from pathlib import Path; from kills.notes import Notes\n"
        "notes = Notes(Path(sys.argv[1])); notes.holds(0); notes.phase('update')\n"
        "notes.step(0, 1, 2.5, 1)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "(Path(sys.argv[1]) / 'child').write_text(str(child.pid)); time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
    )
    deadline_s = time.monotonic() + 240
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    child = int((tmp_path / "child").read_text())
    kills.driver.end(parent)
    assert parent.returncode == -signal.SIGKILL
    while kills.driver._lives(child):
        assert time.monotonic() < deadline_s
    assert int((tmp_path / "rank-0").read_text()) == parent.pid
    assert kills.notes.phase_of(tmp_path, parent.pid) == "update"
    (line,) = kills.notes.lines_of(tmp_path)
    assert (line["step"], line["loss"]) == (1, 2.5)
