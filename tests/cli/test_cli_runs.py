"""`ettr runs` and `ettr goodput` on small hand-made logs."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

HEAD = "JobID|Cluster|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
ENDS = ("TIMEOUT", "CANCELLED by 1001", "NODE_FAIL", "PREEMPTED", "COMPLETED")


def attempt(job: int, state: str, start: str, end: str, run_s: int) -> str:
    times = f"{start}|{start}|{end}|{run_s}"
    return f"{job}|c|train|ann|{state}|{times}|2|n[1-2]|gres/gpu=16"


def store_of(folder: Path, *lines: str) -> Path:
    log = folder / "sacct.psv"
    log.write_text("\n".join([HEAD, *lines]) + "\n")
    done = ettr("ingest", folder / "store", log, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One task in five attempts of a day, an hour apart."""
    lines = [
        attempt(
            number,
            state,
            f"2026-01-0{number}T00:00:00",
            f"2026-01-0{number}T23:00:00",
            23 * 3600,
        )
        for number, state in enumerate(ENDS, 1)
    ]
    return store_of(tmp_path_factory.mktemp("one_run"), *lines)


def shown(*words: Any) -> dict[str, Any]:
    done = ettr(*words, "--json")
    assert done.code == 0, done.err
    document: dict[str, Any] = done.json
    return document


def test_the_time_limit_and_the_owners_cancel_are_no_interruptions(one_run: Path):
    """The node's failure and the preemption are; only the first is the infrastructure's."""
    (run,) = shown("runs", one_run)["runs"]
    assert (run["attempts"], run["interruptions"], run["failures"]) == (5, 2, 1)


def test_the_share_without_queue_is_printed_with_the_share_with_it(one_run: Path):
    assert "without queue" in ettr("runs", one_run, "--detail").out


def test_runs_too_short_to_say_are_counted_once(tmp_path: Path):
    """One run of a day, and one of a minute: shorter than the restart that is assumed."""
    store = store_of(
        tmp_path,
        attempt(1, "COMPLETED", "2026-01-01T00:00:00", "2026-01-01T23:00:00", 23 * 3600),
        attempt(2, "COMPLETED", "2026-01-02T00:00:00", "2026-01-02T00:01:00", 60),
    )
    found = shown("runs", store)
    assert (found["runs_found"], found["measured_runs"], found["unknown_runs"]) == (2, 0, 1)
    lead = " ".join(ettr("runs", store, "--detail").out.split())
    assert "times for 1 run without such records, not known for 1 run shorter than" in lead


def test_a_known_checkpoint_interval_moves_what_a_failure_can_lose(one_run: Path):
    """One failure of 16 GPUs after 23 h loses half of the interval."""
    assert shown("goodput", one_run)["first_order_gpu_hours"] == pytest.approx(8.0)
    known = shown("goodput", one_run, "--interval", "20min")
    assert known["cap_min"] == 10.0
    assert known["first_order_gpu_hours"] == pytest.approx(16 / 6)


def test_a_run_that_writes_a_third_of_its_time_lies_in_the_band_of_its_own_times(tmp_path: Path):
    """Saves of 5 min every 15: two thirds of the time at most. The usual band is far above."""
    store = store_of(
        tmp_path,
        attempt(1, "COMPLETED", "2026-01-01T00:00:00", "2026-01-05T00:00:00", 96 * 3600),
    )
    (usual,) = shown("runs", store)["runs"]
    assert usual["ettr_ratio"]["low"] > 0.9
    assert "--write" in ettr("runs", store, "--detail").out
    times = ("--interval", "15min", "--write", "5min")
    (known,) = shown("runs", store, *times)["runs"]
    assert known["ettr_ratio"]["low"] == pytest.approx((96 - 0.25) / 96 * 2 / 3)
    assert known["ettr_ratio"]["high"] == pytest.approx((96 - 1 / 60) / 96 * 2 / 3)
    refused = ettr("runs", store, "--interval", "15min", "--write", "15min")
    assert refused.code == 2
    assert "above the save time" in " ".join(refused.err.split())


def test_durations_that_overlap_are_named_with_the_band_that_they_leave(tmp_path: Path):
    """Steps of two hours at every hour: each says the time since the one before the last."""
    begin_s = 1_793_527_200
    events = [
        {"time": begin_s, "event": "start"},
        *(
            {"time": begin_s + 3600 * k, "event": "step", "step": k, "duration_s": 7200}
            for k in range(2, 26)
        ),
        {"time": begin_s + 25 * 3600, "event": "end"},
    ]
    lines = [json.dumps({"v": 1, "run": "r", "rank": 0, **one}) for one in events]
    (tmp_path / "progress.jsonl").write_text("\n".join(lines) + "\n")
    assert ettr("ingest", tmp_path / "store", tmp_path / "progress.jsonl").code == 0
    (run,) = shown("runs", tmp_path / "store")["runs"]
    # 24 steps claim 48 h within 25 h: 23 h of it twice
    assert run["split"]["overlap_h"] == pytest.approx(23.0)
    assert run["ettr_without_queue_ratio"]["high"] <= 1.0
    said = " ".join(ettr("runs", tmp_path / "store", "--detail").out.split())
    assert "durations of steps overlap, by 23 h." in said
    # no save is recorded, and the record does not say that it was done
    assert "0 s (0 s to 25 h)" in said


def recorded(folder: Path, *events: tuple[str, str, int, float, float | None]) -> Path:
    """A record; each event is job, event, step, hours since 2026-01-01 and duration in hours."""
    lines = [
        {
            "v": 1,
            "run": "train",
            "rank": 0,
            "job": job,
            "event": event,
            "step": step,
            "time": 1_767_225_600.0 + 3600.0 * hours,
            "duration_s": None if length_h is None else 3600.0 * length_h,
        }
        for job, event, step, hours, length_h in events
    ]
    path = folder / "progress.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def clock_two_hours_back(job: str, gap_h: float) -> list[tuple[str, str, int, float, float | None]]:
    """Ten steps of an hour; after `gap_h` ten more, by a clock that is two hours behind."""
    begin_h = 10.0 + gap_h - 2.0
    return [
        ("1", "start", 0, 0.0, None),
        *(("1", "step", n, float(n), 1.0) for n in range(1, 11)),
        ("1", "save", 10, 10.0, None),
        (job, "start", 10, begin_h, None),
        *((job, "step", 10 + n, begin_h + n, 1.0) for n in range(1, 11)),
        (job, "end", 20, begin_h + 10.0, None),
    ]


@pytest.mark.parametrize("gap_h", [1, 3])
def test_a_clock_set_back_between_two_attempts_is_said_and_the_ends_hold_the_truth(
    tmp_path: Path, gap_h: int
):
    begin_h = 10 + gap_h
    store = store_of(
        tmp_path,
        attempt(1, "NODE_FAIL", "2026-01-01T00:00:00", "2026-01-01T10:00:00", 10 * 3600),
        attempt(
            2,
            "COMPLETED",
            f"2026-01-01T{begin_h}:00:00",
            f"2026-01-01T{begin_h + 10}:00:00",
            10 * 3600,
        ),
    )
    record = recorded(tmp_path, *clock_two_hours_back("2", gap_h))
    assert ettr("ingest", store, record).code == 0
    (run,) = shown("runs", store)["runs"]
    assert run["attempts"] == 2
    assert run["scheduled_h"] == 20.0
    found = run["ettr_without_queue_ratio"]
    assert found["low"] <= 1.0 <= found["high"] + 1e-9
    said = " ".join(ettr("runs", store, "--detail").out.split())
    if gap_h == 1:  # the clock goes back behind a line
        assert run["split"]["clock_set_back"] == 1
        assert "the clock goes back, as a start or the next step shows." in said
    else:  # it does not, and the steps lie where no attempt was
        assert run["split"]["outside_steps"] == 2
        assert "2 steps are dated outside the attempts" in said
        assert found["low"] < found["high"]


def test_a_clock_set_back_in_a_record_alone_leaves_the_share_open(tmp_path: Path):
    record = recorded(tmp_path, *clock_two_hours_back("1", 1.0))
    assert ettr("ingest", tmp_path / "store", record).code == 0
    (run,) = shown("runs", tmp_path / "store")["runs"]
    assert run["split"]["clock_set_back"] == 1
    assert (run["scheduled_h"], run["productive_h"]["estimate"]) == (20.0, 20.0)
    assert run["ettr_without_queue_ratio"] == {"estimate": None, "low": 0.0, "high": 1.0}
    said = " ".join(ettr("runs", tmp_path / "store", "--detail").out.split())
    assert "No log of a scheduler bounds it" in said
