"""The choice at failure time, by hand-worked costs; and the interval from measured times."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.plan.intervals import exact_interval_s
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun
from ettr.recovery import (
    RecoveryPolicy,
    RecoverySource,
    RecoveryTimes,
    RestorePrior,
    RunTimings,
    Situation,
    decide,
    iteration_cost,
    predicted_perturbation,
    recovery_times,
)
from ettr.recovery.restore_costs import Measuring, interval_steps

MEASURED = RecoveryTimes(
    step_s=2.0,
    regroup_s=3.0,
    replica_restore_s=1.0,
    partial_restore_s=4.0,
    full_restore_s=30.0,
    restart_s=60.0,
)


ALL = tuple(RecoverySource)


def costs(decision):
    return {option.source: option.cost_s for option in decision.options}


def test_each_option_costs_what_it_costs_by_hand():
    found = decide(
        Situation(
            reached_step=150,
            replica_step=149,
            stale_steps=20,
            relative_perturbation=0.01,
            full_step=100,
        ),
        MEASURED,
        RecoveryPolicy(),
    )
    assert costs(found) == pytest.approx(
        {
            RecoverySource.REPLICA: 3 + 1 + 1 * 2,
            RecoverySource.PARTIAL: 3 + 4 + 0.3 * 20 * 2,
            RecoverySource.ROLLBACK: 60 + 30 + 50 * 2,
        }
    )
    assert found.choice is RecoverySource.REPLICA
    assert "1 steps done again" in found.reason


def test_partial_loses_where_copies_are_old_and_the_full_checkpoint_is_fresh():
    measured = RecoveryTimes(step_s=2.0, regroup_s=3.0)
    stale = Situation(150, stale_steps=100, relative_perturbation=0.01, full_step=148)
    assert decide(stale, measured, RecoveryPolicy()).choice is RecoverySource.ROLLBACK
    fresh = Situation(150, stale_steps=5, relative_perturbation=0.01, full_step=100)
    assert decide(fresh, measured, RecoveryPolicy()).choice is RecoverySource.PARTIAL


def test_the_ceiling_on_the_perturbation_holds_whatever_it_costs():
    situation = Situation(10_000, stale_steps=3, relative_perturbation=0.2, full_step=0)
    found = decide(situation, MEASURED, RecoveryPolicy(max_relative_perturbation=0.1))
    assert found.choice is RecoverySource.ROLLBACK
    assert "over the ceiling of 0.1" in found.reason
    assert (
        decide(situation, MEASURED, RecoveryPolicy(max_relative_perturbation=0.3)).choice
        is RecoverySource.PARTIAL
    )


def test_an_unknown_perturbation_needs_a_ceiling_on_the_age():
    situation = Situation(1000, stale_steps=3, full_step=0)
    assert decide(situation, MEASURED, RecoveryPolicy()).choice is RecoverySource.ROLLBACK
    capped = RecoveryPolicy(max_stale_steps=5)
    assert decide(situation, MEASURED, capped).choice is RecoverySource.PARTIAL
    assert (
        decide(Situation(1000, stale_steps=6, full_step=0), MEASURED, capped).choice
        is RecoverySource.ROLLBACK
    )


def test_nothing_allowed_is_an_error_that_says_what_there_was():
    policy = RecoveryPolicy(allowed=(RecoverySource.REPLICA,))
    with pytest.raises(UsageError, match=r"no way to recover: rollback: the policy does not allow"):
        decide(Situation(10), MEASURED, policy)
    with pytest.raises(UsageError, match="no copy is left"):
        decide(Situation(10, full_step=None), MEASURED, policy)


def test_a_policy_out_of_range_lists_every_problem():
    with pytest.raises(UsageError, match=r"allowed: .*contraction: 1.5.*relative_distance"):
        RecoveryPolicy(allowed=(), contraction=1.5, relative_distance=0)


def test_the_bound_takes_part_where_c_is_known():
    theory = pytest.importorskip("reproduction.scar.theory")
    policy = RecoveryPolicy(contraction=0.95, relative_distance=0.5)
    assert iteration_cost(1, 0.25, policy) == pytest.approx(theory.anchored_cost(0.5, 0.25, 0.95))
    assert iteration_cost(1000, 0.25, policy) == 300


def test_the_survivors_distance_stands_for_the_lost_one():
    # root mean square of 3 and 4 hundredths, a quarter of the state: half of it
    assert predicted_perturbation([0.03, 0.04], 0.25) == pytest.approx(math.sqrt(0.00125) / 2)
    assert predicted_perturbation([], 0.25) is None


def test_without_survivors_the_composite_stands_against_the_full_checkpoint():
    whole_job = Situation(
        150, stale_steps=10, relative_perturbation=0.01, full_step=100, survivors=False
    )
    measured = replace(MEASURED, composite_restore_s=7.0)
    found = decide(whole_job, measured, RecoveryPolicy(allowed=ALL))
    assert costs(found) == pytest.approx(
        {RecoverySource.COMPOSITE: 60 + 7 + 0.6 * 10 * 2, RecoverySource.ROLLBACK: 60 + 30 + 50 * 2}
    )
    assert found.choice is RecoverySource.COMPOSITE
    assert "6 iterations predicted" in found.reason
    # a full checkpoint that is nearly as new is cheaper, and exact
    near = replace(whole_job, full_step=148)
    cheap = replace(measured, full_restore_s=7.0)
    assert decide(near, cheap, RecoveryPolicy(allowed=ALL)).choice is RecoverySource.ROLLBACK


def test_a_composite_is_taken_only_where_it_was_named_and_below_the_ceiling():
    whole_job = Situation(
        150, stale_steps=1, relative_perturbation=0.05, full_step=0, survivors=False
    )
    found = decide(whole_job, MEASURED, RecoveryPolicy())
    assert found.choice is RecoverySource.ROLLBACK
    assert "composite" in found.reason
    assert "the policy does not allow it" in found.reason
    low = RecoveryPolicy(allowed=ALL, max_relative_perturbation=0.01)
    assert "over the ceiling of 0.01" in decide(whole_job, MEASURED, low).reason
    unknown = replace(whole_job, relative_perturbation=None)
    assert decide(unknown, MEASURED, RecoveryPolicy(allowed=ALL)).choice is RecoverySource.ROLLBACK
    capped = RecoveryPolicy(allowed=ALL, max_stale_steps=2)
    assert decide(unknown, MEASURED, capped).choice is RecoverySource.COMPOSITE
    # where a shard lives, nothing is composed
    survivors = replace(whole_job, survivors=True)
    assert RecoverySource.COMPOSITE not in costs(
        decide(survivors, MEASURED, RecoveryPolicy(allowed=ALL))
    )


def test_the_planner_takes_each_sources_own_times_and_sizes():
    measuring = Measuring()
    measuring.add("step", 2.0)
    measuring.add("restart", 3.0)
    measuring.restored("rollback", 400, 40.2)
    policy = RecoveryPolicy(
        priors={source: RestorePrior(latency_s=0.2, bytes_per_s=100.0) for source in RecoverySource}
    )
    times = recovery_times(measuring.timed(), lost_bytes=100, total_bytes=800, policy=policy)
    assert times == RecoveryTimes(
        step_s=2.0,
        regroup_s=3.0,
        replica_restore_s=0.2 + 1,
        partial_restore_s=0.2 + 1,  # guessed
        full_restore_s=pytest.approx(0.2 + 80),
        restart_s=3.0,  # measured at half the size
        composite_restore_s=0.2 + 8,
    )
    # what was measured decides: the same failure, before and after a slow restore was met
    situation = Situation(20, stale_steps=50, relative_perturbation=0.0, full_step=10)
    before = recovery_times(
        RunTimings(2.0, 3.0, {}), lost_bytes=100, total_bytes=800, policy=policy
    )
    assert decide(situation, before, policy).choice is RecoverySource.ROLLBACK
    assert decide(situation, times, policy).choice is RecoverySource.PARTIAL
    nothing = recovery_times(RunTimings(None, None, {}), lost_bytes=0, total_bytes=0, policy=policy)
    assert nothing.step_s > 0
    assert nothing.regroup_s > 0


def test_a_source_without_a_prior_is_refused():
    with pytest.raises(UsageError, match="priors: none for partial, rollback, composite"):
        RecoveryPolicy(priors={RecoverySource.REPLICA: RestorePrior(0.1, 1e9)})


@given(
    reached=st.integers(0, 10_000),
    behind=st.integers(0, 500),
    stale=st.floats(0, 1000),
    relative=st.floats(0, 1),
    replica=st.booleans(),
)
def test_the_choice_is_allowed_and_no_allowed_option_is_cheaper(
    reached, behind, stale, relative, replica
):
    situation = Situation(
        reached,
        replica_step=max(0, reached - 1) if replica else None,
        stale_steps=stale,
        relative_perturbation=relative,
        full_step=max(0, reached - behind),
    )
    found = decide(situation, MEASURED, RecoveryPolicy())
    chosen = next(o for o in found.options if o.source is found.choice)
    assert chosen.refused is None
    assert all(o.cost_s >= chosen.cost_s for o in found.options if o.refused is None)
    if relative > 0.1:
        assert found.choice is not RecoverySource.PARTIAL


def test_measured_times_become_a_plan_and_its_best_interval():
    measuring = Measuring()
    for event, seconds in (
        ("step", 1.0),
        ("step", 3.0),
        ("save", 4.0),
        ("save", 6.0),
        ("restart", 20.0),
        ("restore", 10.0),
        ("step", None),
        ("stall", 99.0),
    ):
        measuring.add(event, seconds)
    run = measuring.run()
    assert (run.step_s, run.save_stall_s, run.restart_s, run.restore_s) == (2.0, 5.0, 20.0, 10.0)
    steps = interval_steps(run, mttf_s=10_000)
    assert steps == round(exact_interval_s(5.0, 10_000) / 2.0)
    best = PlannedRun(
        failures_per_node_day=8.64, n_nodes=1, interval_s=2.0 * steps, write_s=5.0, restart_s=30.0
    )
    for other in (steps // 2, steps * 2):
        assert exact_ettr(best) > exact_ettr(replace(best, interval_s=2.0 * other))


def test_an_interval_needs_a_timed_step_and_a_failure_rate():
    with pytest.raises(UsageError, match="no step has been timed"):
        interval_steps(Measuring().run(), mttf_s=10)
    measuring = Measuring()
    measuring.add("step", 1.0)
    assert interval_steps(measuring.run(), mttf_s=10) == 1
    measuring.add("save", 1.0)
    assert interval_steps(measuring.run(), mttf_s=math.inf) == 1_000_000
    with pytest.raises(UsageError, match="mttf_s: 0"):
        interval_steps(measuring.run(), mttf_s=0)


def test_a_perturbation_that_is_no_number_is_over_the_ceiling():
    """Survivors that hold NaN report a distance of NaN, which is not above anything."""
    found = decide(
        Situation(reached_step=50, stale_steps=2, relative_perturbation=math.nan, full_step=40),
        MEASURED,
        RecoveryPolicy(),
    )
    assert found.choice is RecoverySource.ROLLBACK
    assert "over the ceiling of 0.1" in found.reason
