"""Google's goodput log against a run whose truth is known."""

import json
import random
from pathlib import Path

import pytest

from ettr.errors import SourceError
from ettr.progress.goodput import goodput_of_events
from ettr.progress.google import read_google_goodput, read_google_goodput_file


def simulate(n_steps: int, n_disruptions: int, seed: int) -> tuple[list[dict], dict[str, float]]:
    """Entries, and the truth in milliseconds: all times are whole, so that sums are exact.

    A job saves every 100 steps; a disruption strikes within a step, after which the job starts
    anew from the last save.
    """
    rng = random.Random(seed)
    strikes = sorted(rng.sample(range(150, n_steps), n_disruptions), reverse=True)
    now, step, saved = 1_700_000_000_000, 0, 0
    entries: list[dict] = []
    spent: dict[int, int] = {}
    truth = dict.fromkeys(("productive", "redone", "restart", "stall"), 0)

    def say(**entry) -> None:
        name, value = next(iter(entry.items()))
        entries.append({"job_name": "j", name: value / 1000, **dict(list(entry.items())[1:])})

    def begin() -> None:
        nonlocal now
        say(job_start_time=now)
        for name, length in (("tpu_init", 30_000), ("training_prep", 9_000)):
            say(**{f"{name}_start_time": now})
            now += length
            truth["restart"] += length
            say(**{f"{name}_end_time": now})

    begin()
    while step < n_steps:
        say(step_start_time=now, step_count=step)
        if strikes and step == strikes[-1]:
            strikes.pop()
            lost = rng.randrange(1, 900) + rng.randrange(60_000, 300_000)
            now += lost
            truth["restart"] += lost
            for again in range(saved, step):
                truth["redone"] += spent.pop(again)
            step = saved
            begin()
            continue
        length = rng.randrange(900, 1100)
        now += length
        spent[step] = length
        if step % 100 == 0:
            # within the step: its time goes on after the save
            say(custom_badput_event_start_time=now, custom_badput_event_type="save")
            now += 2_000
            truth["stall"] += 2_000
            say(custom_badput_event_end_time=now, custom_badput_event_type="save")
            saved = step
        step += 1
    say(job_end_time=now)
    truth["productive"] = sum(spent.values())
    return entries, {name: ms / 1000 for name, ms in truth.items()}


def assert_exact(entries: list[dict], truth: dict[str, float], disruptions: int) -> None:
    split = goodput_of_events(read_google_goodput(entries))
    assert split.productive_s == truth["productive"]
    assert split.redone_s == truth["redone"]
    assert split.restart_s == truth["restart"]
    assert split.stall_s == truth["stall"]
    assert split.idle_s == 0.0
    assert split.restarts == disruptions
    assert split.wall_s == pytest.approx(sum(truth.values()), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_split_is_the_truth_to_the_microsecond(seed: int) -> None:
    entries, truth = simulate(2_000, 9, seed)
    assert_exact(entries, truth, 9)


@pytest.mark.slow
def test_two_hundred_thousand_steps() -> None:
    # The size of anchor S7: 200,000 steps, 189 disruptions.
    entries, truth = simulate(200_000, 189, 7)
    assert_exact(entries, truth, 189)


def test_iso_times_and_two_jobs(tmp_path: Path) -> None:
    lines = [
        {"job_name": "a", "job_start_time": "2025-01-01T00:00:00"},
        {"job_name": "a", "step_start_time": "2025-01-01T00:00:10+00:00", "step_count": 0},
        {"job_name": "b", "job_start_time": 1.0},
        {"job_name": "a", "data_loading_end_time": "2025-01-01T00:00:11Z"},
        {"job_name": "a", "job_end_time": "2025-01-01T00:00:12"},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    events = read_google_goodput_file(path, job="a")
    assert [(e.event, e.step, e.duration_s) for e in events] == [
        ("start", 0, None),
        ("step", 0, 2.0),
        ("end", 0, None),
    ]
    with pytest.raises(SourceError, match="entries of the jobs 'a' and 'b'; name one as job="):
        read_google_goodput_file(path)
    path.write_text("{}\nnope\n")
    with pytest.raises(SourceError, match="line 2 is not JSON"):
        read_google_goodput_file(path)
    with pytest.raises(SourceError, match="'soon' is neither Unix seconds nor ISO 8601"):
        list(read_google_goodput([{"job_start_time": "soon"}]))


def test_entries_that_are_damaged_are_named(tmp_path: Path) -> None:
    for entry, told in (
        ({"step_start_time": 1.0}, "step_count: 'nothing' was given"),
        ({"step_start_time": 1.0, "step_count": "many"}, "step_count: 'many' was given"),
        ({"step_start_time": float("nan"), "step_count": 1}, "step_start_time: nan is neither"),
    ):
        with pytest.raises(SourceError, match=told):
            list(read_google_goodput([entry]))
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"job_name": "\xff\xfe"}\n')
    with pytest.raises(SourceError, match="it is no UTF-8 text"):
        read_google_goodput_file(path)
