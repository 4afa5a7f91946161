"""Google's goodput log against a run whose truth is known."""

import json
import math
import random
from pathlib import Path

import pytest

from ettr.errors import SourceError
from ettr.progress.goodput import Goodput, goodput_of_events
from ettr.progress.google import read_google_goodput, read_google_goodput_file


def simulate(
    n_steps: int, n_disruptions: int, seed: int, *, within_a_step: bool = True
) -> tuple[list[dict], dict[str, float]]:
    """Entries, and the truth in milliseconds: all times are whole, so that sums are exact.

    A job saves every 100 steps; a disruption strikes within a step, or just after one has ended
    and before the next has started. The job then starts again from the last save.
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
            truth["restart"] += lost
            if not within_a_step:
                length = rng.randrange(900, 1100)
                truth["redone"] += length
                now += length
            now += lost
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


@pytest.mark.parametrize("seed", range(5))
def test_the_finished_step_that_the_log_hides_lies_within_what_is_unlogged(seed: int) -> None:
    entries, truth = simulate(2_000, 9, seed, within_a_step=False)
    split = goodput_of_events(read_google_goodput(entries))
    assert split.productive_s == truth["productive"]
    assert split.redone_s < truth["redone"] < split.redone_s + split.unlogged_s
    assert split.unlogged_s < 9 * 3.1  # a step with a save in it, the longest, takes 3.1 s
    assert split.redone_s + split.restart_s == pytest.approx(truth["redone"] + truth["restart"])


def log(*entries: tuple[str, float, int | None]) -> list[dict]:
    return [
        {"job_name": "j", f"{name}_time": time_s} | ({} if step is None else {"step_count": step})
        for name, time_s, step in entries
    ]


def test_a_log_that_ends_before_it_has_caught_up() -> None:
    """Steps 0 to 9, a new job, steps 5 to 7: eight steps count, of 103 s."""
    entries = log(
        ("job_start", 0.0, None),
        *(("step_start", float(n), n) for n in range(10)),
        ("job_start", 90.0, None),
        *(("step_start", 95.0 + n, n) for n in range(5, 8)),
        ("job_end", 103.0, None),
    )
    split = goodput_of_events(read_google_goodput(entries))
    assert (split.steps, split.productive_s, split.redone_s) == (8, 8.0, 4.0)
    assert split.goodput == pytest.approx(8 / 103)
    assert split.unlogged_s == 1.0  # step 9 may have been finished, as the tenth before the end


def test_a_step_behind_which_the_next_job_goes_on_was_finished() -> None:
    entries = log(
        ("job_start", 0.0, None),
        ("step_start", 1.0, 0),
        ("step_start", 3.0, 1),
        ("job_start", 60.0, None),
        ("step_start", 70.0, 2),
        ("job_end", 72.0, None),
    )
    split = goodput_of_events(read_google_goodput(entries))
    assert (split.steps, split.productive_s, split.redone_s) == (3, 6.0, 0.0)
    assert (split.restart_s, split.unlogged_s) == (1.0 + 65.0, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_entries_that_repeat_or_stand_in_another_order_change_nothing(seed: int) -> None:
    entries, truth = simulate(600, 3, seed)
    assert_exact([e for entry in entries for e in (entry, entry)], truth, 3)
    assert_exact([*entries, *entries], truth, 3)
    half = next(n for n, entry in enumerate(entries) if n > 600 and "job_start_time" in entry)
    assert_exact([*entries[half:], *entries[:half]], truth, 3)


def test_a_clock_set_back_at_the_restart_hides_the_time_between_only() -> None:
    entries = log(
        ("job_start", 5000.0, None),
        *(("step_start", 5000.0 + n, n) for n in range(10)),
        ("job_start", 1400.0, None),
        *(("step_start", 1400.0 + n, n) for n in range(5, 15)),
        ("job_end", 1415.0, None),
    )
    split = goodput_of_events(read_google_goodput(entries))
    assert (split.productive_s, split.redone_s, split.clock_set_back) == (15.0, 4.0, 1)
    assert split.restart_s == 5.0
    assert split.wall_s == 24.0


def test_entries_without_a_name_belong_to_the_only_job_that_has_one() -> None:
    entries = log(("job_start", 0.0, None), ("step_start", 1.0, 0), ("job_end", 2.0, None))
    del entries[0]["job_name"]
    assert {event.run for event in read_google_goodput(entries)} == {"j"}


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


@pytest.mark.parametrize("every", [1, 10])
def test_entries_of_every_tenth_step_give_the_goodput_of_all(every: int) -> None:
    """1,000 steps of a second after 100 s of starting; 20 s of a stall within step 500."""
    entries = [{"job_name": "j", "job_start_time": 0.0}]
    for step in range(0, 1000, every):
        late = 20.0 if step > 500 else 0.0
        entries.append(
            {"job_name": "j", "step_start_time": 100.0 + step + late, "step_count": step}
        )
        if step == 500:
            for end, time_s in (("start", 600.5), ("end", 620.5)):
                entries.append({"custom_badput_event_type": "hang", "job_name": "j"})
                entries[-1][f"custom_badput_event_{end}_time"] = time_s
    entries.append({"job_name": "j", "job_end_time": 1120.0})
    split = goodput_of_events(read_google_goodput(entries))
    assert (split.productive_s, split.stall_s, split.restart_s) == (1000.0, 20.0, 100.0)
    assert split.productive_low_s == 1000.0
    # Before the first entry nothing but the time of the start is left for steps.
    assert split.productive_high_s == 1000.0 if every == 1 else split.productive_high_s <= 1100.0


def test_a_step_that_was_finished_in_the_gap_may_have_taken_all_of_it() -> None:
    """Step 1 began at 3 s and was finished before the next job started at 60 s."""
    entries = log(
        ("job_start", 0.0, None),
        ("step_start", 1.0, 0),
        ("step_start", 3.0, 1),
        ("job_start", 60.0, None),
        ("step_start", 70.0, 2),
        ("job_end", 72.0, None),
    )
    split = goodput_of_events(read_google_goodput(entries))
    assert (split.productive_s, split.assumed_steps) == (6.0, 1)
    assert (split.productive_low_s, split.productive_high_s) == (4.0, 61.0)
    assert split.goodput_band == (4.0 / 72.0, 61.0 / 72.0)
    assert any("finished" in note for note in split.notes)
    live = Goodput()
    for event in read_google_goodput(entries):
        live.add(event)
    assert live.split() == split


def test_a_step_that_was_finished_in_the_gap_and_is_done_again_later_leaves_no_band() -> None:
    entries = log(
        ("job_start", 0.0, None),
        *(("step_start", float(n), n) for n in range(4)),
        ("job_start", 60.0, None),
        ("step_start", 70.0, 4),
        ("step_start", 72.0, 5),
        ("job_start", 80.0, None),
        *(("step_start", 81.0 + n, 2 + n) for n in range(4)),
        ("job_end", 85.0, None),
    )
    split = goodput_of_events(read_google_goodput(entries))
    assert split.productive_low_s == split.productive_s == split.productive_high_s == 6.0


def test_a_hidden_step_is_bounded_by_the_gap_and_not_by_the_last_steps() -> None:
    """Steps of 1 s; step 3 took 10 s, the job died at its end, and it was done again."""
    entries = log(
        ("job_start", 0.0, None),
        *(("step_start", float(n), n) for n in range(4)),
        ("job_start", 20.0, None),
        ("step_start", 25.0, 3),
        ("job_end", 35.0, None),
    )
    split = goodput_of_events(read_google_goodput(entries))
    assert (split.productive_s, split.productive_low_s, split.productive_high_s) == (13, 13, 13)
    assert (split.unlogged_s, split.unlogged_high_s) == (1.0, 17.0)
    assert any("up to 17 s" in note for note in split.notes)


def set_back(back_s: float) -> list[dict]:
    """Ten steps, 3,600 s in which nothing runs, steps 5 to 14; the clock is `back_s` behind."""
    again_s = 5010.0 + 3600.0 - back_s
    return log(
        ("job_start", 5000.0, None),
        *(("step_start", 5000.0 + n, n) for n in range(10)),
        ("job_start", again_s, None),
        *(("step_start", again_s + n, n) for n in range(5, 15)),
        ("job_end", again_s + 15.0, None),
    )


def test_where_the_clock_was_set_back_the_band_holds_the_truth_and_says_why() -> None:
    truth = goodput_of_events(read_google_goodput(set_back(0.0)))
    assert truth.goodput_band == (truth.goodput, truth.goodput)
    split = goodput_of_events(read_google_goodput(set_back(7200.0)))
    low, high = split.goodput_band
    assert low == 0.0 < truth.goodput < high == split.goodput
    assert (split.wall_s, split.wall_high_s, split.unlogged_high_s) == (24.0, math.inf, math.inf)
    assert any("clock went back" in note for note in split.notes)


def test_a_clock_set_back_within_a_step_leaves_its_length_open() -> None:
    entries = log(
        ("job_start", 5000.0, None),
        *(("step_start", 5000.0 + n - (900.0 if n > 5 else 0.0), n) for n in range(10)),
        ("job_end", 4110.0, None),
    )
    split = goodput_of_events(read_google_goodput(entries))
    assert split.goodput_band == (0.0, 1.0)
    assert split.productive_high_s == math.inf
    behind = goodput_of_events(
        read_google_goodput(
            log(
                ("job_start", 5000.0, None),
                ("step_start", 5001.0, 0),
                ("step_start", 5003.0, 1),
                ("job_start", 1000.0, None),
                ("step_start", 1010.0, 2),
                ("job_end", 1012.0, None),
            )
        )
    )
    assert behind.goodput_band == (0.0, 1.0)
