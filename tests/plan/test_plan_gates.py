"""When to test whether a run is still usable: against a simulation that plays each interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cli.program import ettr
from ettr.errors import UsageError
from ettr.plan.questions import (
    SECONDS_PER_WEEK,
    Gate,
    exact_interval_s,
    first_order_interval_s,
    gate_plan,
    useful_share,
    useful_share_of_run,
)

MINUTE_S = 60.0


def simulated_share(gate: Gate, interval_s: float, rng: np.random.Generator) -> float:
    """Of 20,000 runs from a good state until the next one: what is kept over what passed."""
    doomed_after_s = rng.exponential(1.0 / gate.doomed_per_s, 20_000)
    doomed = doomed_after_s < interval_s
    gates = np.where(doomed, rng.geometric(gate.catch_chance, doomed.size), 1)
    return (~doomed).sum() * interval_s / (gates.sum() * (interval_s + gate.cost_s))


def settings() -> list[Gate]:
    rng = np.random.default_rng(44)
    return [
        Gate(
            cost_s=MINUTE_S * 5 * 24 ** rng.random(),  # 5 min to 2 h
            doomed_per_s=0.05 * 60 ** rng.random() / SECONDS_PER_WEEK,  # .05 to 3 a week
            catch_chance=0.3 + 0.7 * rng.random(),
        )
        for _ in range(50)
    ]


def test_both_intervals_keep_what_the_simulated_optimum_keeps_in_50_settings():
    for number, gate in enumerate(settings()):
        first_s = first_order_interval_s(gate)

        def at(interval_s: float, number: int = number, gate: Gate = gate) -> float:
            # the same draws for every interval: differences are those of the interval
            return simulated_share(gate, interval_s, np.random.default_rng(number))

        optimum = max(at(first_s * factor) for factor in np.geomspace(1 / 3, 3, 25))
        assert at(first_s) == pytest.approx(optimum, rel=0.01)
        assert at(exact_interval_s(gate)) == pytest.approx(optimum, rel=0.01)
        assert useful_share(gate, first_s) == pytest.approx(at(first_s), rel=0.015)


def test_the_exact_interval_is_the_best_of_the_exact_form():
    for gate in settings():
        best_s = exact_interval_s(gate)
        around = [useful_share(gate, best_s * factor) for factor in (0.97, 1.0, 1.03)]
        assert max(around) == around[1]


def test_a_gate_of_a_cost_near_zero_and_certain_is_first_order():
    gate = Gate(1.0, 1.0 / SECONDS_PER_WEEK, 1.0)
    assert exact_interval_s(gate) == pytest.approx(math.sqrt(SECONDS_PER_WEEK), rel=1e-3)


def played_share(gate: Gate, run_s: float, n_intervals: int, rng: np.random.Generator) -> float:
    """2,000 runs with an end, played interval by interval."""
    interval_s, total_s = run_s / n_intervals, 0.0
    for _ in range(2_000):
        done = 0
        while done < n_intervals:
            total_s += interval_s + gate.cost_s
            if rng.random() < math.exp(-gate.doomed_per_s * interval_s):
                done += 1
                continue
            at = done + 1
            while at < n_intervals and rng.random() >= gate.catch_chance:
                at += 1
                total_s += interval_s + gate.cost_s
    return 2_000 * run_s / total_s


@pytest.mark.parametrize(("n_intervals", "chance"), [(1, 0.5), (2, 0.3), (6, 0.5), (20, 0.9)])
def test_the_share_of_a_run_with_an_end_is_that_of_runs_played(n_intervals: int, chance: float):
    gate = Gate(3_600.0, 0.8 / SECONDS_PER_WEEK, chance)
    played = played_share(gate, 2 * SECONDS_PER_WEEK, n_intervals, np.random.default_rng(1))
    found = useful_share_of_run(gate, 2 * SECONDS_PER_WEEK, n_intervals)
    assert found == pytest.approx(played, rel=0.04)


def test_a_gate_that_cannot_pay_is_refused_with_the_chance_from_which_it_would():
    run_s = 2 * SECONDS_PER_WEEK
    with pytest.raises(UsageError, match=r"it pays from a catch chance of (0\.\d+) on") as refused:
        gate_plan(Gate(86_400.0, 0.1 / SECONDS_PER_WEEK, 0.05), run_s)
    chance = float(str(refused.value).rpartition("chance of ")[2].split()[0])
    assert gate_plan(Gate(86_400.0, 0.1 / SECONDS_PER_WEEK, chance), run_s).gates >= 2
    with pytest.raises(UsageError, match="it pays from"):
        gate_plan(Gate(86_400.0, 0.1 / SECONDS_PER_WEEK, chance - 0.002), run_s)
    with pytest.raises(UsageError, match="at any catch chance"):
        gate_plan(Gate(10 * 86_400.0, 0.01 / SECONDS_PER_WEEK, 0.9), run_s)


def test_the_number_of_gates_of_a_run_is_the_best_of_all():
    run_s = 3 * SECONDS_PER_WEEK
    for gate in settings()[::5]:
        every = [useful_share_of_run(gate, run_s, n) for n in range(2, 1_500)]
        assert gate_plan(gate, run_s).useful_share == pytest.approx(max(every), rel=1e-4)


def test_the_plan_prints_both_intervals_and_the_share_without_gates():
    words = ("--gpus", "1024", "--failures-per-1000-node-days", "6.5", "--days", "30d")
    gates = ("--gate", "20min", "--doomed", "0.8/week", "--catch", "0.9")
    done = ettr("plan", *words, *gates)
    assert done.code == 0, done.err
    assert "gates of 20 min" in done.out
    # sqrt(20 min x 0.9 x 1 week / 0.8)
    assert "7.94 h" in done.out
    found = ettr("plan", *words, *gates, "--json").json["answers"]["gates"]
    assert found["first_order_interval_s"] == pytest.approx(28_574, abs=10)
    assert found["without_share"] == pytest.approx(math.exp(-0.8 * 30 / 7), rel=0.01)
    alone = ettr("plan", *words, "--gate", "20min")
    assert alone.code == 2
    assert "--gate, --doomed and --catch go together" in alone.err
    assert "0.8/week" in ettr("plan", *words, *gates[:2], "--doomed", "8", "--catch", "1").err
