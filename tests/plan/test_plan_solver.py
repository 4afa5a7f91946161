"""What must be true: values that, put back, give the target; sentences where none does."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.plan.intervals import ONE_BY_ONE, required, requirements, with_best_interval
from ettr.plan.outlook import sensitivities
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, changed

RUN = PlannedRun(
    failures_per_node_day=6.5e-3,
    n_nodes=2048,
    interval_s=900.0,
    write_s=60.0,
    restart_s=300.0,
    queue_s=120.0,
)


@given(st.sampled_from(ONE_BY_ONE), st.floats(0.05, 0.98), st.sampled_from([math.inf, 2e5]))
def test_a_requirement_put_back_gives_the_target(
    name: str, target: float, productive_s: float
) -> None:
    run = replace(RUN, productive_s=productive_s)
    need = required(run, name, target)
    if not need.reachable:
        assert need.best_ettr < target
        assert "short of" in need.sentence
        return
    assert need.at_most is not None
    assume(math.isfinite(need.at_most) and need.at_most > 1e-6)
    at_most = exact_ettr(changed(run, name, need.at_most))
    assert at_most >= target - 1e-9
    assert exact_ettr(changed(run, name, need.at_most * 1.05)) < target
    # a finite run cut into whole intervals jumps where a last short one appears
    if math.isinf(productive_s):
        assert at_most == pytest.approx(target, abs=1e-6)
        if need.at_least:
            assert exact_ettr(changed(run, name, need.at_least)) == pytest.approx(target, abs=1e-6)


def test_each_input_has_its_sentence() -> None:
    for need in requirements(RUN, 0.7):
        assert need.sentence.startswith("For an ETTR of 0.7 the ")
    for need in requirements(RUN, 0.99):
        assert not need.reachable
        assert "short of 0.99: " in need.sentence
        assert need.sentence.endswith("as well.")


@pytest.mark.parametrize("target", [0.0, 1.0, 90.0, -0.1])
def test_a_target_that_cannot_be_is_refused(target: float) -> None:
    with pytest.raises(UsageError, match=r"give a share between 0 and 1, such as 0[.]9"):
        requirements(RUN, target)


def test_free_writes_make_the_shortest_interval_best() -> None:
    need = required(replace(RUN, write_s=0.0), "interval_s", 0.8)
    assert need.at_least == 0.0
    assert need.at_most is not None
    assert exact_ettr(replace(RUN, write_s=0.0, interval_s=need.at_most)) == pytest.approx(0.8)


def test_a_run_that_never_fails_reaches_it_with_any_restart() -> None:
    need = required(replace(RUN, failures_per_node_day=0.0), "restart_s", 0.9)
    assert need.at_most == math.inf
    assert "may take any value" in need.sentence


@given(st.floats(1e-4, 0.03), st.floats(60, 3600), st.floats(1, 300), st.floats(0, 900))
def test_elasticities_are_slopes(
    rate: float, interval_s: float, write_s: float, queue_s: float
) -> None:
    run = PlannedRun(
        failures_per_node_day=rate,
        n_nodes=2048,
        interval_s=interval_s,
        write_s=write_s,
        restart_s=300.0,
        queue_s=queue_s,
    )
    for one in sensitivities(run):
        name = "failures_per_node_day" if one.name == "n_nodes" else one.name
        value = getattr(run, name)
        up, down = (exact_ettr(changed(run, name, value * math.exp(h))) for h in (1e-5, -1e-5))
        assert one.elasticity == pytest.approx((math.log(up) - math.log(down)) / 2e-5, abs=1e-5)


def test_elasticities_of_a_finite_run_near_those_of_the_long_one() -> None:
    long = {one.name: one.elasticity for one in sensitivities(RUN)}
    finite = sensitivities(replace(RUN, productive_s=900.0 * 5000))
    for one in finite:
        assert one.elasticity == pytest.approx(long[one.name], abs=2e-3)
    assert [abs(one.elasticity) for one in finite] == sorted(
        (abs(one.elasticity) for one in finite), reverse=True
    )


@pytest.mark.parametrize("days", [2, 30, 54])
@pytest.mark.parametrize("write_s", [30.0, 300.0])
def test_at_the_best_interval_of_a_finite_run_its_elasticity_is_nothing(
    days: int, write_s: float
) -> None:
    shape = replace(RUN, write_s=write_s, productive_s=days * 86400.0)
    (one,) = [one for one in sensitivities(with_best_interval(shape)) if one.name == "interval_s"]
    assert abs(one.elasticity) < 0.01


def test_without_failures_an_interval_can_only_be_too_short() -> None:
    need = required(replace(RUN, failures_per_node_day=0.0, write_s=30.0), "interval_s", 0.9)
    assert need.at_least == pytest.approx(270.0)
    assert need.at_most == math.inf
    assert "must be at least 4.5 min" in need.sentence


def test_a_rate_that_halves_with_its_best_interval_reaches_what_a_held_interval_cannot() -> None:
    run = with_best_interval(
        PlannedRun(
            failures_per_node_day=6.5e-3,
            n_nodes=2048,
            interval_s=3600.0,
            write_s=300.0,
            restart_s=300.0,
        )
    )
    held = required(run, "failures_per_node_day", 0.9)
    follows = required(run, "failures_per_node_day", 0.9, keep_best=True)
    assert not held.reachable
    assert follows.at_most is not None
    moved = with_best_interval(changed(run, "failures_per_node_day", follows.at_most))
    assert exact_ettr(moved) == pytest.approx(0.9, abs=1e-6)
