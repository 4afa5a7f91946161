"""Intervals: each is where its own form is best, and the exact one is best of all."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.plan.intervals import (
    daly_higher_order_interval_s,
    daly_interval_s,
    exact_interval_s,
    optimal_share,
    paper_interval_s,
    with_best_interval,
    young_interval_s,
)
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, cautions, nodes_of


def test_young_on_numbers_worked_by_hand() -> None:
    assert young_interval_s(2.0, 100.0) == 20.0
    assert daly_interval_s(2.0, 90.0, 10.0) == 18.0


@pytest.mark.parametrize("share", [1e-12, 1e-6, 1e-4, 0.01, 0.3, 1.0, 5.0, 30.0])
def test_exact_optimum_agrees_with_lambert_w(share: float) -> None:
    from scipy.special import lambertw

    x = optimal_share(share)
    if share >= 1e-4:
        assert x == pytest.approx(1 + lambertw(-math.exp(-1 - share)).real, rel=1e-6)
    assert -x - math.log1p(-x) == pytest.approx(share, rel=1e-3)
    assert x == pytest.approx(math.sqrt(2 * share), rel=max(share**0.5, 1e-9)) or share > 0.01


@given(st.floats(0.1, 3000), st.floats(60, 1e7))
def test_no_interval_beats_the_exact_one(write_s: float, mttf_s: float) -> None:
    best_s = exact_interval_s(write_s, mttf_s)
    run = PlannedRun(
        failures_per_node_day=86400 / mttf_s, n_nodes=1, interval_s=best_s, write_s=write_s
    )
    others = [
        young_interval_s(write_s, mttf_s),
        daly_interval_s(write_s, mttf_s),
        daly_higher_order_interval_s(write_s, mttf_s),
        best_s * 0.97,
        best_s * 1.03,
    ]
    for other_s in others:
        if other_s > 0:
            assert exact_ettr(replace(run, interval_s=other_s)) <= exact_ettr(run) * (1 + 1e-12)


def test_daly_higher_order_is_the_exact_one_to_third_order() -> None:
    errors = [
        abs(daly_higher_order_interval_s(w, 1.0) / exact_interval_s(w, 1.0) - 1)
        for w in (1e-2, 1e-4)
    ]
    assert errors[0] < 1e-3
    assert errors[1] < errors[0] / 100


def test_daly_falls_back_to_the_mttf_and_to_zero() -> None:
    assert daly_higher_order_interval_s(200.0, 100.0) == 100.0
    assert daly_interval_s(400.0, 100.0) == 0.0


@pytest.mark.parametrize("n_gpus", [8, 1_024, 131_072])
@pytest.mark.parametrize("hours", [0.1, 3.0, 400.0])
def test_best_cut_of_a_finite_run(n_gpus: int, hours: float) -> None:
    run = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=nodes_of(n_gpus),
        interval_s=60.0,
        write_s=45.0,
        restart_s=300.0,
        queue_s=0.0,
        productive_s=hours * 3600,
    )
    best = with_best_interval(run)
    ettrs = [exact_ettr(replace(run, interval_s=run.productive_s / n)) for n in range(1, 6000, 7)]
    assert exact_ettr(best) >= max(ettrs) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"write_s": -1.0}, r"write_s: -1.0; give 0 or more"),
        ({"n_nodes": 0}, r"n_nodes: 0; a run needs 1 node or more"),
        ({"interval_s": 0.0}, r"interval_s: 0.0; give a positive number"),
        ({"productive_s": -5.0}, r"productive_s: -5.0; .* or leave it out"),
        ({"queue_s": math.nan}, r"queue_s: nan is not a number"),
        ({"failures_per_node_day": -1e-3, "restart_s": -2.0}, r"(?s)node_day: -0.001.*restart_s"),
    ],
)
def test_bad_input_gets_a_sentence(change: dict[str, float], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        replace(
            PlannedRun(failures_per_node_day=6.5e-3, n_nodes=16, interval_s=600.0, write_s=0.0),
            **change,
        )


def test_forms_refuse_where_they_have_no_meaning() -> None:
    from ettr.plan.intervals import second_form_ettr

    run = PlannedRun(failures_per_node_day=6.5e-3, n_nodes=16_384, interval_s=3600.0, write_s=0.0)
    with pytest.raises(UsageError, match="shorten the interval or the restart"):
        second_form_ettr(run)
    with pytest.raises(UsageError, match="restart faster"):
        paper_interval_s(10.0, 100.0, 300.0)
    with pytest.raises(UsageError, match="write time and a failure rate above 0"):
        with_best_interval(run)
    with pytest.raises(UsageError, match="write time of 0 or more"):
        young_interval_s(-1.0, 100.0)
    with pytest.raises(UsageError, match="1 or more of each"):
        nodes_of(0)


def test_an_interval_over_the_mttf_is_computed_with_a_sentence() -> None:
    run = PlannedRun(failures_per_node_day=6.5e-3, n_nodes=16_384, interval_s=3600.0, write_s=0.0)
    said = " ".join(cautions(run))
    assert "interval of 1 h is longer than the MTTF of 13.5 min" in said
    assert "Shorten the interval below 13.5 min" in said
    assert exact_ettr(run) > 0
    assert (
        cautions(
            PlannedRun(failures_per_node_day=6.5e-3, n_nodes=16, interval_s=600.0, write_s=0.0)
        )
        == ()
    )
