"""Fault processes whose hazard changes in time: faults per window, ages, and what reads them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cluster_scenarios import fault, one_size, played, quiet, seconds, small
from ettr.errors import UsageError
from ettr.sim.cluster.faults import ChangingFaultClock, FaultClock, in_period, law_of, steps_of
from ettr.sim.cluster.run import loop_can
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, text_of
from ettr.sim.cluster.scenario_parts import RateChange, SimulatedPeriod
from ettr.sim.cluster.standing import values_digest
from ettr.sim.cluster.whatif import changed_scenario, varied_values

DAY_S = 86_400
PER_1000, SYMPTOM = 40.0, "gpu-memory"
CHANGES = (RateChange(SYMPTOM, 10.0, 4.0), RateChange(SYMPTOM, 20.0, 0.0),
           RateChange(SYMPTOM, 25.0, 0.5))  # fmt: skip
LAWS = [("constant", 1.0), ("weibull", 0.6), ("weibull", 2.0), ("lognormal", 1.2)]


def changing(**values: object) -> ClusterScenario:
    """Forty days of 40 nodes with few jobs and repairs of minutes."""
    return quiet(
        period={"days": 40.0},
        arrivals={"jobs_per_day": 1.0},
        jobs=one_size(8, 600.0),
        faults=(fault(SYMPTOM, PER_1000, repair_mean_s=120.0, repair_sigma=0.0, **values),),
        lemons={"share": 0.0},
        rate_changes=CHANGES,
    )


def test_faults_of_each_window_are_as_many_as_its_factor_says():
    edges_s = np.array([0.0, 10.0, 20.0, 25.0, 40.0]) * DAY_S
    found = np.zeros(4)
    for seed in range(1, 7):
        scenario = changing()
        _, run = played(scenario, seed)
        begin_s = scenario.period.origin.timestamp()
        times = seconds(run.truth()["faults"]["time"])
        found += np.histogram(np.array(times) - begin_s, edges_s)[0]
    expected = 6 * 40 * np.array([10.0, 40.0, 0.0, 7.5]) * PER_1000 / 1000.0
    assert found[2] == 0
    for n, mean in zip(found, expected, strict=True):
        low, high = stats.poisson.interval(0.999, mean) if mean else (0, 0)
        assert low <= n <= high, (found, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "form"), LAWS)
def test_of_any_law_the_hazard_between_faults_is_exponential(law: str, form: float):
    """Summed by small steps of service, outages left out; the clock has a law's inverse instead."""
    process = replace(fault(SYMPTOM, 400.0), law=law, form=form)
    itself = law_of(process)
    changes = (RateChange(SYMPTOM, 4.0, 3.0), RateChange(SYMPTOM, 9.0, 0.4))
    steps = steps_of(changes, SYMPTOM)
    clock = ChangingFaultClock(process, 300, 5, frozenset(), 1.0, steps)
    rng = np.random.default_rng(1)
    sums = []
    for node in range(300):
        fault_s = clock.due_s(node)
        for _ in range(3):
            if not math.isfinite(fault_s) or fault_s > 1e8:
                break
            clock.strike(node, int(fault_s))
            # out of service for two days after a third of the life that comes
            out_s = int(fault_s + (clock.due_s(node) - fault_s) * rng.random() / 3)
            clock.stop(node, out_s)
            clock.resume(node, out_s + 2 * DAY_S)
            next_s = clock.due_s(node)
            times = np.concatenate([
                np.linspace(fault_s, out_s, 4000), np.linspace(out_s + 2 * DAY_S, next_s, 4000)
            ])  # fmt: skip
            middle = (times[1:] + times[:-1]) / 2
            passed = np.diff(times)
            passed[3999] = 0.0
            ages = np.concatenate([[0.0], np.cumsum(passed)])
            factor = np.where(middle < 4 * DAY_S, 1.0, np.where(middle < 9 * DAY_S, 3.0, 0.4))
            sums.append(float(factor @ np.diff(itself.cumulative_hazard(ages))))
            fault_s = next_s
    assert len(sums) == 900
    assert stats.kstest(sums, "expon").pvalue > 1e-3


@pytest.mark.parametrize(("law", "form"), LAWS)
def test_a_factor_of_1_changes_nothing(law: str, form: float):
    scenario = replace(changing(law=law, form=form), period=SimulatedPeriod("2026-01-05", 15.0))
    ones = tuple(replace(one, factor=1.0) for one in CHANGES)
    plain, _ = played(replace(scenario, rate_changes=()), 3)
    same, _ = played(replace(scenario, rate_changes=ones), 3)
    other, _ = played(scenario, 3)
    assert plain == same
    assert plain["node_states"] != other["node_states"]
    # the clock that could change says the same, too
    steps = ((0.0, 5.0 * DAY_S, 1.0), (5.0 * DAY_S, math.inf, 1.0))
    process = scenario.faults[0]
    one = FaultClock(process, 50, 2, frozenset({3}), 7.0)
    two = ChangingFaultClock(process, 50, 2, frozenset({3}), 7.0, steps)
    for node in range(50):
        due_s = one.due_s(node)
        assert two.due_s(node) == pytest.approx(due_s, rel=1e-9, abs=1)
        for clock in (one, two):
            clock.strike(node, due_s)
            clock.stop(node, due_s + 1)
            clock.resume(node, due_s + 9000)
        assert two.due_s(node) == pytest.approx(one.due_s(node), rel=1e-9, abs=2)


def test_what_came_before_the_first_change_is_as_without_it():
    scenario = changing()
    (plain, _), (other, _) = (
        played(replace(scenario, rate_changes=changes), 4) for changes in ((), CHANGES)
    )
    until = scenario.period.origin.timestamp() + 10 * DAY_S
    early = [
        [row for row in tables["node_states"].to_pylist() if row["start"].timestamp() < until - 600]
        for tables in (plain, other)
    ]
    assert early[0]
    assert early[0] == early[1]


def test_a_scenario_with_changes_is_written_read_changed_varied_and_checked():
    made = changing()
    assert loop_can(made)
    assert scenario_of(text_of(made)).rate_changes == CHANGES
    assert "rate_changes" not in text_of(small())
    assert values_digest(made) != values_digest(replace(made, rate_changes=()))
    changed = changed_scenario(made, f"rate_changes.{SYMPTOM}.factor=x2")
    assert [one.factor for one in changed.rate_changes] == [8.0, 0.0, 1.0]
    varied, _ = varied_values(made, ["rate_changes*"])
    assert "rate_changes[1].factor" in {one.name for one in varied}
    for wrong, says in (
        ((RateChange("infiniband", 1.0, 2.0),), "has no entry"),
        ((CHANGES[0], CHANGES[0]), "one factor from a day on"),
        ((RateChange(SYMPTOM, -1.0, 2.0),), "from_day"),
        ((RateChange(SYMPTOM, 1.0, -2.0),), "factor"),
    ):
        with pytest.raises(UsageError, match=says):
            replace(made, rate_changes=wrong)


def test_days_keep_their_dates_in_another_period():
    windowed = replace(changing().faults[0], from_day=5.0, to_day=30.0)
    scenario = replace(changing(), faults=(windowed,))
    moved = in_period(scenario, SimulatedPeriod("2026-01-27", 10.0))  # 22 days later
    assert moved.rate_changes == (RateChange(SYMPTOM, 0.0, 0.0), RateChange(SYMPTOM, 3.0, 0.5))
    assert (moved.faults[0].from_day, moved.faults[0].to_day) == (0.0, 8.0)
    earlier = in_period(scenario, SimulatedPeriod("2026-01-03", 10.0))
    assert [one.from_day for one in earlier.rate_changes] == [12.0, 22.0, 27.0]
    over = in_period(scenario, SimulatedPeriod("2026-03-03", 10.0))
    assert over.faults[0].per_1000_node_days == 0.0
