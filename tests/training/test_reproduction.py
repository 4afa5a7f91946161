"""The reproduction on small data: the algorithms against oracles, and every control of a cost."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.training.reproduction import results, summary
from ettr.training.reproduction.controls import controls
from ettr.training.reproduction.factorisation import Factorisation, solve
from ettr.training.reproduction.overhead import overhead
from ettr.training.reproduction.regression import Regression
from ettr.training.reproduction.running import Checkpointing, saved_at, stored
from ettr.training.reproduction.topics import Topics, sweep
from ettr.training.reproduction.trials import (
    Arm,
    Settings,
    arms,
    costs,
    failure_iteration,
    lost_units,
    prepare,
    recovered,
    settings_record,
    trial,
)
from ettr.training.reproduction.workload import clean_run, keyed, trailing_mean

SETTINGS = Settings(iterations=32, interval=8, grid="large")


def regression() -> Regression:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 12)).astype(np.float32)
    y = np.argmax(x[:, :3] + 0.3 * rng.normal(size=(300, 3)), axis=1)
    return Regression("mlr-small", x, y, rate=0.1, batch=100, judged=200)


def factorisation() -> Factorisation:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 12)) + 0.5 * rng.normal(size=(40, 12))
    x[rng.random(x.shape) < 0.4] = np.nan
    return Factorisation("mf-small", x.astype(np.float32), rank=3, penalty=0.5)


def topics() -> Topics:
    rng = np.random.default_rng(3)
    lengths = rng.integers(5, 40, size=30)
    words = np.concatenate([rng.integers(0, 20, n) + 20 * (i % 3) for i, n in enumerate(lengths)])
    return Topics("lda-small", words, lengths, topics=8)


@pytest.mark.parametrize("make", [regression, factorisation, topics])
def test_every_control_holds_exactly(make):
    smooth = 4 if make is topics else 1
    prepared = prepare(make(), Settings(iterations=32, interval=8, grid="large", smooth=smooth))
    for number in range(6):
        record = controls(prepared, number)
        assert record["ok"], record
        assert abs(record["no_failure"]) < 1e-9
        assert abs(record["replay"]) < 1e-9
        assert record["whole_is_traditional"]
        assert record["all_lost_is_full"]


@pytest.mark.parametrize("make", [regression, factorisation])
def test_a_trial_repeats_and_partial_recovery_beats_the_rollback(make):
    prepared = prepare(make(), SETTINGS)
    found = [trial(prepared, number)["arms"] for number in range(12)]
    mean = {key: np.mean([arms[key][0] for arms in found]) for key in found[0]}
    assert mean["partial/full/50"] <= mean["full/full"] + 1e-9
    if make is regression:  # a factorisation may well gain from a fresh start
        assert mean["partial/full/50"] < mean["partial/none/50"]
    assert trial(prepared, 3) == trial(prepared, 3)


def test_partial_recovery_saves_about_as_much_as_on_mnist_for_a_small_regression():
    prepared = prepare(regression(), Settings(iterations=32, interval=8, grid="full"))
    found = [trial(prepared, number)["arms"] for number in range(20)]
    base = np.mean([arms["full/full"][0] for arms in found])
    savings = [1 - np.mean([a[f"partial/full/{p}"][0] for a in found]) / base for p in (25, 50, 75)]
    assert savings == sorted(savings, reverse=True)
    assert savings[0] > 0.3


def test_a_sweep_of_least_squares_solves_each_row_as_numpy_does():
    made = factorisation()
    state = made.start(0)
    (after,), _ = made.advance([state], 0, 0)
    seen, x, right = made._seen, made._x, state[40:]
    for user in range(40):
        r = right[seen[user] > 0]
        expected = np.linalg.solve(r.T @ r + 0.5 * np.eye(3), r.T @ x[user][seen[user] > 0])
        assert after[user] == pytest.approx(expected, rel=2e-3, abs=1e-4)


def test_the_objective_of_the_factorisation_is_the_one_it_names_and_never_rises():
    made = factorisation()
    state = made.start(0)
    seen = []
    for k in range(20):
        before = state
        (state,), (loss,) = made.advance([state], k, 0)
        gap = made._seen * (made._x - before[:40] @ before[40:].T)
        naive = (np.sum(gap.astype(float) ** 2) + 0.5 * np.sum(before.astype(float) ** 2)) / (
            made._seen.sum()
        )
        assert loss == pytest.approx(naive, rel=1e-4)
        seen.append(loss)
    assert (np.diff(seen[1:]) < 1e-6).all()


def test_losing_rows_of_l_between_sweeps_costs_nothing_as_the_docs_say():
    prepared = prepare(factorisation(), SETTINGS)
    run = prepared.runs[0]
    lost = recovered(run.states[10], run.states[0], prepared.workload.offsets, np.arange(40))
    ((cost, censored),) = costs(prepared, 0, 10, [lost])
    assert abs(cost) < 1
    assert not censored


def test_a_step_of_the_regression_follows_the_slope_of_its_loss():
    made = regression()
    every = Regression("all", made._x[:, :-1], made._y, rate=1e-2, batch=1, judged=300, decay=1e-2)
    state = keyed(4).normal(size=(13, 3)).astype(np.float32)
    rows = keyed(0, 0).integers(0, 300, size=1)

    def loss(w):
        scores = made._x[rows].astype(float) @ w
        chance = np.exp(scores) / np.exp(scores).sum()
        return -np.log(chance[0, made._y[rows[0]]]) + 0.5e-2 * np.sum(w**2)

    slope = np.zeros((13, 3))
    for at in np.ndindex(13, 3):
        step = np.zeros((13, 3))
        step[at] = 1e-6
        slope[at] = (loss(state + step) - loss(state - step)) / 2e-6
    (after,), _ = every.advance([state], 0, 0)
    assert (state - after) / 1e-2 == pytest.approx(slope, abs=1e-3)


def test_arms_that_run_side_by_side_run_as_they_would_alone():
    made = regression()
    one, two = made.start(0), keyed(9).normal(size=(13, 3)).astype(np.float32)
    together, losses = made.advance([one, two], 3, 0)
    for state, beside, loss in zip((one, two), together, losses, strict=True):
        (alone,), (single,) = made.advance([state], 3, 0)
        assert beside == pytest.approx(alone, abs=1e-6)
        assert loss == pytest.approx(single)


def test_each_topic_is_drawn_from_the_topics_that_all_other_tokens_have_at_that_moment():
    """Against a recount of everything before every draw, in NumPy."""
    made = topics()
    state = made.start(0)
    words, documents = made._words, np.repeat(np.arange(30), np.diff(made.offsets))
    draws = keyed(0, 0).random(words.size, dtype=np.float32)
    (after,), (loss,) = made.advance([state], 0, 0)
    now, total = state.astype(int), 0.0
    for i in range(words.size):
        others = np.arange(words.size) != i
        by_topic = [others & (now == k) for k in range(8)]
        type_in = np.array([same[words == words[i]].sum() for same in by_topic]) + 0.01
        in_document = np.array([same[documents == documents[i]].sum() for same in by_topic]) + 0.1
        size = np.array([same.sum() for same in by_topic]) + 60 * 0.01
        upto = np.cumsum(type_in / size * in_document)
        now[i] = np.searchsorted(upto, draws[i] * upto[-1], side="right")
        total += np.log(upto[-1] / in_document.sum())
    assert made._types == 60
    assert (after == now).all()
    assert loss == pytest.approx(-total / words.size, rel=1e-9)


def test_the_compiled_loops_give_what_the_plain_ones_give():
    made, other = topics(), topics()
    other._sweep = sweep
    (one,), _ = made.advance([made.start(1)], 0, 1)
    (two,), _ = other.advance([other.start(1)], 0, 1)
    assert (one == two).all()
    plain = factorisation()
    plain._solve = solve
    (one,), first = factorisation().advance([plain.start(0)], 0, 0)
    (two,), second = plain.advance([plain.start(0)], 0, 0)
    assert one == pytest.approx(two, rel=1e-5)
    assert first == pytest.approx(second)


def test_topics_at_the_start_are_dealt_to_every_token_and_like_words_come_together():
    made = topics()
    state = made.start(0)
    assert state.max() < 8
    at_random = keyed(3).integers(0, 8, state.size).astype(np.uint8)
    _, (dealt, random) = made.advance([state, at_random], 0, 0)
    assert dealt < random - 0.05


def test_topics_are_found_in_text_that_has_them():
    run = clean_run(topics(), 0, 40, 4)
    # three sets of 20 words: without topics a word is one of 60, with them one of 20
    assert math.log(20) < run.smoothed()[39] < math.log(20) + 0.15
    assert run.losses[0] > run.smoothed()[39] + 0.1
    assert run.states.dtype == np.uint8


def test_the_running_checkpoint_writes_the_same_bytes_and_covers_everything_in_turn():
    made = regression()
    run = clean_run(made, 0, 32, 1)
    for parts in (2, 4, 8):
        ages = saved_at(made, run, Checkpointing("round-robin", parts), 8)
        assert (ages[8] > 0).all()  # one interval has saved every unit
        assert ((ages[8 + 8 // parts] == 8 + 8 // parts).sum()) == math.ceil(13 / parts)
    assert (saved_at(made, run, Checkpointing("none"), 8) == 0).all()
    full = saved_at(made, run, Checkpointing("full"), 8)
    assert (full[15] == 8).all()
    assert (full[16] == 16).all()


def test_priority_saves_what_moved_most():
    made = regression()
    run = clean_run(made, 0, 32, 1)
    ages = saved_at(made, run, Checkpointing("priority", 4), 8)
    moved = made.moved(run.states[2], run.states[0])
    assert set(np.flatnonzero(ages[2])) == set(np.argsort(-moved)[:4])
    gaps = {}
    for policy in ("priority", "random"):
        ages = saved_at(made, run, Checkpointing(policy, 4), 8)
        gaps[policy] = np.mean(
            [
                np.linalg.norm(stored(run, ages[t], made.offsets) - run.states[t])
                for t in range(9, 33)
            ]
        )
    assert gaps["priority"] < gaps["random"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_a_failure_falls_inside_the_run(seed, last):
    assert 1 <= failure_iteration(np.random.default_rng(seed), 2 / 64, last) <= last


def test_failures_are_geometric_before_they_are_cut_off():
    rng = np.random.default_rng(0)
    drawn = [failure_iteration(rng, 0.2, 1000) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(5, abs=0.25)
    assert np.mean(np.array(drawn) == 1) == pytest.approx(0.2, abs=0.02)


def test_lost_sets_have_the_size_they_claim_and_grow_within_a_trial():
    order, owners = keyed(1).permutation(40), keyed(2).permutation(8)
    sets = [
        set(lost_units(Arm("partial", Checkpointing("full"), p), 40, order, owners))
        for p in (0.25, 0.5, 0.75)
    ]
    assert [len(s) for s in sets] == [10, 20, 30]
    assert sets[0] < sets[1] < sets[2]
    by_owner = lost_units(
        Arm("partial", Checkpointing("full"), 0.5, by_owner=True), 40, order, owners
    )
    assert len(by_owner) == 20
    assert {int(u) // 5 for u in by_owner} == set(map(int, owners[:4]))
    assert len(lost_units(Arm("full", Checkpointing("full")), 40, order, owners)) == 40


def test_the_full_grid_has_every_arm_of_the_design():
    keys = {arm.key for arm in arms("full")}
    for policy in ("priority", "round-robin", "random"):
        for parts in (2, 4, 8):
            assert f"full/{policy}-{parts}" in keys
            assert {f"partial/{policy}-{parts}/{p}" for p in (25, 50, 75)} <= keys
    assert {f"partial/{w}/{p}" for w in ("full", "none") for p in (25, 50, 75)} <= keys
    assert "partial/priority-8/50/owner" in keys


def test_a_trial_that_never_arrives_is_censored_at_the_cap():
    prepared = prepare(regression(), SETTINGS)
    broken = np.full_like(prepared.runs[0].states[0], np.nan)
    ((cost, censored),) = costs(prepared, 0, 5, [broken])
    assert censored
    assert cost == pytest.approx(5 * 32 - prepared.kappas[0])


def test_wrong_settings_say_what_to_change():
    made = regression()
    run = clean_run(made, 0, 8, 1)
    with pytest.raises(UsageError, match="no multiple of 1/r = 8"):
        saved_at(made, run, Checkpointing("priority", 8), 12)
    with pytest.raises(UsageError, match="allowed are full, none, priority"):
        saved_at(made, run, Checkpointing("newest"), 8)


def test_a_run_that_was_killed_goes_on_where_it_stopped(tmp_path):
    prepared = prepare(regression(), SETTINGS)
    path = tmp_path / "mlr-small.jsonl"
    head = settings_record(prepared.workload, prepared)
    results.resume(path, head)
    made = []

    def make(number):
        made.append(number)
        return trial(prepared, number)

    assert len(list(results.missing(path, "trial", 2, make))) == 2
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"trial","trial":2,"ar')  # killed while writing
    assert len(results.resume(path, head)) == 3
    list(results.missing(path, "trial", 4, make))
    assert made == [0, 1, 2, 3]
    assert path.read_bytes().startswith(whole)
    assert [r["trial"] for r in results.read(path)[1:]] == [0, 1, 2, 3]
    with pytest.raises(UsageError, match="other settings \\(interval\\)"):
        results.resume(path, {**head, "interval": 16})


def written(tmp_path, trials=10):
    prepared = prepare(regression(), SETTINGS)
    path = tmp_path / "mlr-small.jsonl"
    results.resume(path, settings_record(prepared.workload, prepared))
    list(results.missing(path, "control", 2, lambda n: controls(prepared, n)))
    list(results.missing(path, "trial", trials, lambda n: trial(prepared, n)))
    return path


def test_the_summary_pairs_the_trials_and_draws_the_figure(tmp_path):
    from xml.etree import ElementTree as Tree

    path = written(tmp_path)
    results.append(path, overhead(prepare(regression(), SETTINGS), time.perf_counter))
    assert summary.write_summary(tmp_path)
    found = summary.summarise(results.read(path))
    base = found.arms["full/full"]
    assert base.saving == 0
    assert base.saving_low == base.saving_high == 0  # paired with itself
    half = found.arms["partial/full/50"]
    assert half.saving_low <= half.saving <= half.saving_high
    assert half.trials == 10
    assert "78 to 95 %" in (tmp_path / "table.md").read_text()
    late = sum(r["T"] > 8 for r in results.read(path) if r["kind"] == "trial")
    assert f"| mlr-small | {late} | " in summary.late_table([results.read(path)])
    figure = Tree.fromstring((tmp_path / "figure.svg").read_text())  # noqa: S314 our own file
    assert figure.tag.endswith("svg")
    assert len((tmp_path / "summary.jsonl").read_text().splitlines()) == len(found.arms)


def test_a_control_that_fails_is_not_hidden(tmp_path):
    path = written(tmp_path, trials=2)
    path.write_text(path.read_text().replace('"ok":true', '"ok":false', 1))
    assert not summary.write_summary(tmp_path)
    assert "1 of 2" in (tmp_path / "table.md").read_text()


def test_nothing_to_summarise_is_said(tmp_path):
    with pytest.raises(UsageError, match="holds no results"):
        summary.write_summary(tmp_path)


def test_the_price_of_choosing_is_measured_with_the_clock_given():
    from itertools import count

    ticks = count()
    record = overhead(prepare(regression(), SETTINGS), lambda: next(ticks) * 0.001)
    assert record["score_ms"] == record["eighth_ms"] == record["full_ms"] == 1
    assert record["full_bytes"] == 13 * 3 * 4
    assert record["eighth_bytes"] == 2 * 3 * 4


def shared_noise(runs: int, each: int) -> list[results.Record]:
    """Trials whose cost is that of their clean run alone: `each` of a run say no more than one."""
    costs_of_runs = np.random.default_rng(8).normal(5, 2, runs)
    return [
        {
            "kind": "trial",
            "trial": number,
            "stream": number % runs,
            "T": 20,
            "arms": {
                "full/full": [10.0, 0, 1.0],
                "partial/full/50": [costs_of_runs[number % runs], 0, 1.0],
            },
        }
        for number in range(runs * each)
    ]


def test_more_trials_of_the_same_clean_runs_do_not_narrow_an_interval():
    head = {"kind": "settings", "workload": "w", "grid": "large"}
    widths = []
    for each in (1, 10):
        arm = summary.summarise([head, *shared_noise(20, each)]).arms["partial/full/50"]
        widths.append(arm.cost_high - arm.cost_low)
    spread = np.std([r["arms"]["partial/full/50"][0] for r in shared_noise(20, 1)], ddof=1)
    assert widths[0] == pytest.approx(2 * 1.96 * spread / math.sqrt(20), rel=0.15)
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_trials_are_drawn_where_clean_runs_are_too_few_to_draw():
    weights = summary.resampled(shared_noise(4, 25), 1)
    assert weights.shape == (summary.RESAMPLES, 100)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert len(np.unique(weights[0, ::4])) > 1  # trials of one run have weights of their own


def test_equal_values_share_the_mean_of_their_ranks():
    assert summary._ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4, 1, 4, 2, 4]
    assert summary._ranks(np.array([7.0, 7.0])).tolist() == [1.5, 1.5]


def test_a_trial_whose_arms_all_cost_the_same_says_nothing_of_agreement():
    flat = {key: [0.0, 0, float(size)] for size, key in enumerate("abcd", 1)}
    tied = {"a": [0.0, 0, 1.0], "b": [0.0, 0, 2.0], "c": [3.0, 0, 3.0], "d": [4.0, 0, 4.0]}
    # Spearman with ties, by hand: ranks 1.5 1.5 3 4 against 1 2 3 4
    assert summary._agreement([flat, tied]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


def test_the_trailing_mean_uses_what_there_is_at_the_start():
    assert trailing_mean(np.array([4.0, 2.0, 0.0, 6.0]), 2).tolist() == [4, 3, 1, 3]


def test_a_few_seeds_have_students_interval(tmp_path):
    path = tmp_path / "gpt-stale-tuned.jsonl"
    results.append(path, {"kind": "settings", "rate": 6e-3, "label": "tuned"})
    for seed, cost in enumerate([1.0, 2.0, 3.0, 4.0, 5.0]):
        arms = {"25/10": [cost, 0, 0.1]}
        results.append(path, {"kind": "trial", "trial": seed, "T": 12, "arms": arms})
    (row,) = summary.stale_rows(tmp_path)
    # t(0.975; 4) = 2.776 from a table; the mean 3 ± 2.776 · sqrt(2.5 / 5)
    assert row["cost_low"] == pytest.approx(3 - 2.776 * math.sqrt(0.5), abs=1e-3)
    assert row["cost_high"] == pytest.approx(3 + 2.776 * math.sqrt(0.5), abs=1e-3)
    assert "3.0 (1.0 to 5.0)" in summary.stale_table([row])


def test_a_single_seed_has_no_interval(tmp_path):
    path = tmp_path / "gpt-stale-tuned.jsonl"
    results.append(path, {"kind": "settings", "rate": 6e-3, "label": "tuned"})
    arms = {"25/10": [7.0, 0, 0.1]}
    results.append(path, {"kind": "trial", "trial": 0, "T": 12, "arms": arms})
    (row,) = summary.stale_rows(tmp_path)
    assert row["cost_low"] is row["cost_high"] is None
    assert "| 7.0 |" in summary.stale_table([row])
