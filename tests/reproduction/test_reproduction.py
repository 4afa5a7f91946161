"""The reproduction on small data: the algorithms against oracles, and every control of a cost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from reproduction.scar import results
from reproduction.scar.checkpoint_replay import Checkpointing, saved_at, stored
from reproduction.scar.controls import controls
from reproduction.scar.factorisation import solve
from reproduction.scar.overhead import overhead
from reproduction.scar.regression import Regression
from reproduction.scar.topics import sweep
from reproduction.scar.trials import (
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
from reproduction.scar.workload import clean_run, keyed, trailing_mean
from small_workloads import SETTINGS, factorisation, regression, topics


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("make", [regression, factorisation])
def test_a_trial_repeats_and_partial_recovery_beats_the_rollback(make):
    prepared = prepare(make(), SETTINGS)
    found = [trial(prepared, number)["arms"] for number in range(12)]
    mean = {key: np.mean([arms[key][0] for arms in found]) for key in found[0]}
    assert mean["partial/full/50"] <= mean["full/full"] + 1e-9
    if make is regression:  # a factorisation may well gain from a fresh start
        assert mean["partial/full/50"] < mean["partial/none/50"]
    assert trial(prepared, 3) == trial(prepared, 3)


@pytest.mark.slow
def test_partial_recovery_saves_about_as_much_as_on_mnist_for_a_small_regression():
    prepared = prepare(regression(), Settings(iterations=32, interval=8, grid="full"))
    found = [trial(prepared, number)["arms"] for number in range(20)]
    base = np.mean([arms["full/full"][0] for arms in found])
    savings = [1 - np.mean([a[f"partial/full/{p}"][0] for a in found]) / base for p in (25, 50, 75)]
    assert savings == sorted(savings, reverse=True)
    assert savings[0] > 0.3


@pytest.mark.slow
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
    for state, in_company, loss in zip((one, two), together, losses, strict=True):
        (alone,), (single,) = made.advance([state], 3, 0)
        assert in_company == pytest.approx(alone, abs=1e-6)
        assert loss == pytest.approx(single)


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_the_price_of_choosing_is_measured_with_the_clock_given():
    from itertools import count

    ticks = count()
    record = overhead(prepare(regression(), SETTINGS), lambda: next(ticks) * 0.001)
    assert record["score_ms"] == record["eighth_ms"] == record["full_ms"] == 1
    assert record["full_bytes"] == 13 * 3 * 4
    assert record["eighth_bytes"] == 2 * 3 * 4


def test_the_trailing_mean_uses_what_there_is_at_the_start():
    assert trailing_mean(np.array([4.0, 2.0, 0.0, 6.0]), 2).tolist() == [4, 3, 1, 3]
