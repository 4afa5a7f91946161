import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from ettr.analysis.forecasting import forecast, rolling_forecasts
from ettr.errors import UsageError
from ettr.models.data import Counts, counts_by_window
from shared_data import shared


def test_a_steady_fleet_is_forecast_by_its_mean():
    rng = np.random.default_rng(1)
    found = forecast(Counts(rng.poisson(20, 100), 100.0))
    assert found.mean == pytest.approx(20, rel=0.15)
    assert found.low < 16
    assert found.high > 24
    assert found.low > 8


def test_a_longer_window_expects_more():
    counts = Counts(np.tile([4, 6], 20), 100.0)
    assert forecast(counts, node_days=300.0).mean == pytest.approx(3 * forecast(counts).mean)


def test_a_far_larger_fleet_is_no_surer_than_the_level():
    rng = np.random.default_rng(3)
    inside, draws = 0, 200
    for _ in range(draws):
        counts = Counts(rng.poisson(10.0, 20), np.full(20, 1000.0))
        made = forecast(counts, 1e7)
        # 10,000 times the nodes at the true rate
        inside += made.low <= rng.poisson(1e5) <= made.high
    # three standard errors below 90 %
    assert inside / draws > 0.83


def test_a_fleet_whose_level_moved_is_forecast_at_its_new_level():
    rng = np.random.default_rng(2)
    moved = np.concatenate([rng.poisson(50, 60), rng.poisson(10, 30)])
    found = forecast(Counts(moved, 100.0))
    assert found.mean < 20
    assert found.half_life_windows < 26


def test_a_forecast_uses_nothing_that_came_later():
    rng = np.random.default_rng(3)
    x = rng.poisson(7, 30)
    rolled = rolling_forecasts(Counts(x, 100.0))
    for i in (0, 5, 17):
        assert rolled.forecasts[i] == forecast(Counts(x[: 12 + i], 100.0))
        assert rolled.seen[i] == x[12 + i]


@pytest.mark.slow
def test_bands_hold_on_steady_and_on_bursty_fleets():
    rng = np.random.default_rng(4)
    steady = rng.poisson(8, (12, 80))
    bursty = rng.poisson(rng.gamma(2.0, 4.0, (12, 80)))
    for draws in (steady, bursty):
        inside = [rolling_forecasts(Counts(x, 100.0)).share_inside.estimate for x in draws]
        assert 0.88 <= np.mean(inside) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("window_days", [3.5, 7.0])
def test_infinitehbd_bands_hold(window_days):
    path = shared("data/traces/infinitehbd") / "fault_trace.json.zst"
    events = json.loads(pa.input_stream(str(path), compression="zstd").read())
    times = [e["event_time"] for e in events if e["event_type"] == "fault_start"]
    found = rolling_forecasts(counts_by_window(times, 0.0, 348.98, window_days, 400))
    assert found.share_inside.estimate >= 0.9
    assert found.share_inside.low <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("system", ["2", "8", "16", "18", "19", "20"])
def test_lanl_bands_hold(system):
    """Fortnights of six systems: calm, drifting and with a violent first year."""
    from datetime import datetime

    path = shared("data/traces/lanl") / "LA-UR-05-7318-failure-data-1996-2005.csv.zst"
    with pa.input_stream(str(path), compression="zstd") as stream:
        rows = pa.csv.read_csv(
            stream,
            convert_options=pa.csv.ConvertOptions(
                include_columns=["System", "Prob Started"], column_types={"System": pa.string()}
            ),
        ).to_pylist()
    days = np.sort(
        [
            datetime.strptime(row["Prob Started"], "%m/%d/%Y %H:%M").timestamp() / 86400  # noqa: DTZ007
            for row in rows
            if row["System"] == system
        ]
    )
    counts = counts_by_window(days, float(days[0]), float(days[-1]), 14.0, 1)
    found = rolling_forecasts(counts)
    # system 18 begins with a burst that the bands remember for a year: 97 % inside
    assert 0.86 <= found.share_inside.estimate <= 0.98
    assert found.share_inside.high >= 0.9
    assert list(found.held) == sorted(found.held)


def test_too_little_past_is_refused():
    with pytest.raises(UsageError, match="5 windows are too few to forecast from; give 12"):
        forecast(Counts([1, 2, 3, 4, 5], 10.0))
    with pytest.raises(UsageError, match="give 13 or more"):
        rolling_forecasts(Counts(np.ones(12), 10.0))
    with pytest.raises(UsageError, match="without exposure"):
        forecast(Counts(np.zeros(20), np.zeros(20)))
