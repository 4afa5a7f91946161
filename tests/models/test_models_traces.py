"""Real fleets: failures come in bursts, and the hazard falls with time."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from ettr.models.constant import ConstantRate
from ettr.models.data import Counts, Lifetimes, counts_by_window
from ettr.models.dispersion import burstiness, dispersion
from ettr.models.gamma_mixed import GammaMixed
from ettr.models.log_location_scale import Weibull
from ettr.models.registry import compare_models
from shared_data import shared

DAY_S = 86400.0
NODES, DAYS = 400, 348.98


@pytest.fixture(scope="module")
def infinitehbd():
    """Start of each fault in days, and its node, of 400 servers over 348.98 days."""
    path = shared("data/traces/infinitehbd") / "fault_trace.json.zst"
    events = json.loads(pa.input_stream(str(path), compression="zstd").read())
    starts = [event for event in events if event["event_type"] == "fault_start"]
    times = np.array([event["event_time"] for event in starts])
    nodes = np.array([event["node_id"] for event in starts])
    return times, nodes


@pytest.fixture(scope="module")
def lanl_node():
    """Days at which node 22 of LANL's system 2 failed, from the year 2000."""
    path = shared("data/traces/lanl") / "LA-UR-05-7318-failure-data-1996-2005.csv.zst"
    with pa.input_stream(str(path), compression="zstd") as stream:
        rows = pa.csv.read_csv(
            stream,
            convert_options=pa.csv.ConvertOptions(
                include_columns=["System", "nodenumz", "Prob Started"],
                column_types={"nodenumz": pa.string(), "System": pa.string()},
            ),
        ).to_pylist()
    from datetime import datetime

    times = [
        datetime.strptime(row["Prob Started"], "%m/%d/%Y %H:%M").timestamp()  # noqa: DTZ007
        for row in rows
        if row["System"] == "2" and row["nodenumz"] == "22"
    ]
    start = datetime(2000, 1, 1).timestamp()  # noqa: DTZ001
    return np.sort([(t - start) / DAY_S for t in times if t >= start])


def test_infinitehbd_rate_and_its_poisson_interval(infinitehbd):
    """4.18 faults per 1,000 node-days, mean time between failures 239 days, 95 % [220, 260]."""
    times, _ = infinitehbd
    fit = ConstantRate().fit(Counts([times.size], [NODES * DAYS]), confidence=0.95)
    rate = fit.rate_per_node_day
    assert 1000 * rate.estimate == pytest.approx(4.18, abs=0.005)
    assert [1 / rate.high, 1 / rate.estimate, 1 / rate.low] == pytest.approx(
        [220, 239, 260], abs=0.7
    )


def test_infinitehbd_gaps_vary_176_times_as_much(infinitehbd):
    found = burstiness(infinitehbd[0], np.random.default_rng(0))
    assert found.coefficient_of_variation == pytest.approx(1.76, abs=0.005)
    assert "failures come in bursts" in found.meaning


def test_infinitehbd_nodes_differ_beyond_chance(infinitehbd):
    """Variance over mean of counts per node 2.58, worst node 14."""
    _, nodes = infinitehbd
    hit = np.unique(nodes, return_counts=True)[1]
    counts = Counts(np.append(hit, np.zeros(NODES - hit.size)), DAYS)
    assert counts.failures.max() == 14
    found = dispersion(counts)
    assert found.index == pytest.approx(2.58, abs=0.01)
    assert found.believe == "over-dispersed"
    assert compare_models(counts).best.model == "gamma-mixed"
    assert GammaMixed().fit(counts).parameter("spread").low > 0.5


def test_infinitehbd_weeks_differ_beyond_chance(infinitehbd):
    weeks = counts_by_window(infinitehbd[0], 0.0, DAYS, 7.0, NODES)
    found = dispersion(weeks)
    assert found.believe == "over-dispersed"
    assert found.index > 1.5
    wide, narrow = found.over_dispersed, found.poisson
    assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low)


def test_lanl_node_22_gets_rarer_failures_as_time_passes(lanl_node):
    """Schroeder and Gibson (2006): Weibull of shape about 0.7 from the year 2000."""
    gaps = np.diff(lanl_node)
    gaps = gaps[gaps > 0]
    fit = Weibull().fit(Lifetimes(gaps * DAY_S, np.ones(gaps.size, bool)))
    shape = fit.parameter("shape")
    assert shape.estimate == pytest.approx(0.7, abs=0.06)
    assert shape.low < 0.7 < shape.high
    assert shape.high < 1.0
    assert compare_models(Lifetimes(gaps * DAY_S, np.ones(gaps.size, bool))).best.model != (
        "constant rate"
    )
