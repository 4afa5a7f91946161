"""Laws of age and steps of the rate carried to a run: simulated, and recovered."""

import math

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.models.data import Lifetimes, fleet_on_calendar
from ettr.models.log_location_scale import Lognormal, Weibull
from ettr.projection.scale import RepairLaw, Scale, Seen, fit_at_ages, fit_since_last_step, project

DAY_S = 86400.0


def ageing_fleet(rng, nodes, seen_days, shape, scale_days):
    """Nodes new at day 0, repaired to the state they had: failures of a power-law process."""
    ends, seen, begins = [], [], []
    for _ in range(nodes):
        n = rng.poisson((seen_days / scale_days) ** shape)
        times = np.sort(seen_days * rng.random(n) ** (1.0 / shape))
        begins.extend([0.0, *times])
        ends.extend([*times, seen_days])
        seen.extend([True] * n + [False])
    return Lifetimes(np.array(ends) * DAY_S, np.array(seen), np.array(begins) * DAY_S)


def mean_rate(begin, end, shape, scale_days):
    """Per node-day of the planted law between two ages."""
    return ((end / scale_days) ** shape - (begin / scale_days) ** shape) / (end - begin)


@pytest.mark.parametrize(("shape", "scale_days"), [(0.5, 60.0), (1.0, 90.0), (2.0, 120.0)])
@pytest.mark.parametrize("ages", [(0.0, 10.0), (90.0, 100.0), (100.0, 130.0)])
def test_the_rate_at_ages_of_a_planted_law_is_recovered(shape, scale_days, ages):
    rng = np.random.default_rng(7)
    data = ageing_fleet(rng, 300, 100.0, shape, scale_days)
    level = FailureRate(data.failures, data.node_days)
    fit = fit_at_ages(Weibull(), data, ages, level, repair_law=RepairLaw.MINIMAL)
    truth = mean_rate(*ages, shape, scale_days)
    assert fit.rate_per_node_day.low < truth < fit.rate_per_node_day.high
    if ages[0]:  # of a law that begins at zero the first days hold next to no failures
        assert fit.rate_per_node_day.estimate == pytest.approx(truth, rel=0.25)
    plain = level.per_node_day
    if shape != 1.0:
        outside = plain < fit.rate_per_node_day.low or plain > fit.rate_per_node_day.high
        assert outside, "a constant rate is wrong at these ages, and the band says so"


@pytest.mark.slow
def test_bands_at_ages_hold_the_planted_rate():
    rng = np.random.default_rng(8)
    inside = []
    for _ in range(150):
        data = ageing_fleet(rng, 40, 100.0, 0.6, 60.0)
        fit = fit_at_ages(
            Weibull(),
            data,
            (100.0, 130.0),
            FailureRate(data.failures, 4000.0),
            repair_law=RepairLaw.MINIMAL,
        )
        band = fit.rate_per_node_day
        inside.append(band.low <= mean_rate(100.0, 130.0, 0.6, 60.0) <= band.high)
    assert np.mean(inside) >= 0.9


def test_a_planted_lognormal_law_is_recovered():
    """Lifetimes of median 50 days and sigma 0.8, watched for 80 days: H = -ln(1 - Phi(z))."""
    rng = np.random.default_rng(9)
    life_s = np.exp(rng.normal(math.log(50 * DAY_S), 0.8, 1000))
    data = Lifetimes(np.minimum(life_s, 80 * DAY_S), life_s < 80 * DAY_S)
    level = FailureRate(data.failures, data.node_days)
    for begin, end in ((0.0, 20.0), (40.0, 60.0), (80.0, 90.0)):
        hazard = [
            -math.log(0.5 * math.erfc(math.log(day / 50.0) / 0.8 / math.sqrt(2.0))) if day else 0.0
            for day in (begin, end)
        ]
        truth = (hazard[1] - hazard[0]) / (end - begin)
        band = fit_at_ages(
            Lognormal(), data, (begin, end), level, repair_law=RepairLaw.MINIMAL
        ).rate_per_node_day
        assert band.low < truth < band.high
        assert band.estimate == pytest.approx(truth, rel=0.1)


def test_a_day_of_age_counts_for_as_much_use_as_it_had():
    """Nodes in use half of the time: as many failures over half the exposure, twice the rate."""
    data = ageing_fleet(np.random.default_rng(7), 300, 100.0, 0.5, 60.0)
    whole = fit_at_ages(Weibull(), data, (0, 30), FailureRate(data.failures, data.node_days))
    half = fit_at_ages(Weibull(), data, (0, 30), FailureRate(data.failures, data.node_days / 2))
    for end in ("estimate", "low", "high"):
        one, other = (getattr(fit.rate_per_node_day, end) for fit in (whole, half))
        assert other == pytest.approx(2 * one)


def test_what_is_projected_names_its_ages_and_warns_beyond_them():
    data = ageing_fleet(np.random.default_rng(7), 300, 100.0, 0.5, 60.0)
    fit = fit_at_ages(Weibull(), data, (100, 130), FailureRate(data.failures, data.node_days))
    found = project(
        [fit], Scale(300, age_days=(100, 130)), Seen(300, gpus_per_node=8.0, oldest_days=100.0)
    )
    assert found.lines[0].model == "Weibull at 100 to 130 days"
    assert [warning.kind for warning in found.warnings] == ["extrapolation"]
    assert "No node older than 100 days was seen" in found.warnings[0].text


def test_without_a_failure_a_law_of_age_does_not_apply():
    data = Lifetimes([DAY_S] * 5, [False] * 5)
    with pytest.raises(UsageError, match="Weibull knows nothing of ages; project with a constant"):
        fit_at_ages(Weibull(), data, (0, 1), FailureRate(0, 5.0))
    with pytest.raises(UsageError, match="give 0 <= from < to"):
        fit_at_ages(Weibull(), data, (5, 1), FailureRate(0, 5.0))


def test_only_what_came_after_the_last_step_counts():
    """100 nodes: 8 a day for 30 days, then 2 a day for 30 days."""
    rng = np.random.default_rng(3)
    early, late = np.sort(rng.uniform(0, 30, 240)), np.sort(rng.uniform(30, 60, 60))
    data = fleet_on_calendar(np.concatenate([early, late]), 0.0, 60.0, 100)
    fit, step_days = fit_since_last_step(data)
    assert step_days == pytest.approx(30, abs=1.5)
    assert fit.rate_per_node_day.low < 0.02 < fit.rate_per_node_day.high
    assert fit.rate.node_days == pytest.approx(100 * (60 - step_days))
    assert abs(fit.rate.failures - 60) <= 5


@pytest.mark.slow
@pytest.mark.parametrize(("late_per_day", "least"), [(2, 0.85), (8, 0.8)])
def test_bands_since_a_large_step_or_none_hold_the_planted_rate(late_per_day, least):
    """100 nodes and 8 failures a day for 30 days, then a quarter of them, or as many as before."""
    inside = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        early = np.sort(rng.uniform(0, 30, rng.poisson(240)))
        late = np.sort(rng.uniform(30, 60, rng.poisson(30 * late_per_day)))
        fit, _ = fit_since_last_step(
            fleet_on_calendar(np.concatenate([early, late]), 0.0, 60.0, 100), 0.9
        )
        band = fit.rate_per_node_day
        inside.append(band.low <= late_per_day / 100 <= band.high)
    assert np.mean(inside) >= least


def test_without_a_step_all_of_the_time_counts():
    rng = np.random.default_rng(4)
    data = fleet_on_calendar(np.sort(rng.uniform(0, 60, 120)), 0.0, 60.0, 100)
    fit, step_days = fit_since_last_step(data)
    assert step_days == 0.0
    assert fit.rate.failures == 120
    assert fit.rate.node_days == pytest.approx(6000.0)
