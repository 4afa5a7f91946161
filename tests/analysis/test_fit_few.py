"""Fits of what few events show: their intervals hold the truth as often as they say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ettr.analysis.calibration.back_test import _ends
from ettr.analysis.calibration.fit import _patience
from ettr.analysis.calibration.fit_faults import LEAST_REPAIRS, _drawn_to, _repair
from ettr.analysis.calibration.record import ScenarioMaker
from ettr.sim.cluster.scenario import scenario_of, scenario_text


def repairs(seconds: np.ndarray) -> Any:
    return SimpleNamespace(repair_s=seconds, is_over=np.ones(seconds.size, dtype=np.bool_))


@pytest.mark.slow
def test_the_mean_repair_of_a_rare_symptom_lies_in_its_interval():
    """Kinds differ by a uniform factor of 7 either way, as no normal law has; one is frequent."""
    rng = np.random.default_rng(5)
    n, held, alone = 150, 0, 0
    for _ in range(n):
        mean_s = 30_000.0 * np.exp(rng.uniform(-1.95, 1.95, 4))
        counts = (60, 12, 5, int(rng.integers(1, LEAST_REPAIRS)))
        kinds = [
            mean * rng.lognormal(-0.5, 1.0, count)
            for mean, count in zip(mean_s, counts, strict=True)
        ]
        pooled = repairs(np.concatenate(kinds))
        everything = _repair(pooled.repair_s, pooled.is_over, "outages of all kinds")
        made = _drawn_to(everything, repairs(kinds[3]))
        assert made is not None
        assert everything is not None
        one, common = made["repair_mean_s"], everything["repair_mean_s"]
        assert one is not None
        assert common is not None
        held += one.low <= mean_s[3] <= one.high
        alone += common.low <= mean_s[3] <= common.high
    assert held >= 0.84 * n
    # the interval of all kinds together is none of this one
    assert alone < 0.6 * n


def test_repairs_of_its_own_move_a_symptom_from_the_common_mean():
    pooled = repairs(np.random.default_rng(1).lognormal(9.0, 1.0, 40))
    everything = _repair(pooled.repair_s, pooled.is_over, "outages of all kinds")
    assert everything is not None
    common = everything["repair_mean_s"]
    assert common is not None
    found = []
    for n in (0, 2, 7):
        one = _drawn_to(everything, repairs(np.full(n, 200_000.0)))["repair_mean_s"]  # type: ignore[index]
        found.append((one.value, one.high / one.low))  # type: ignore[union-attr, operator]
    assert found[0][0] == pytest.approx(common.value)
    assert found[0][1] == pytest.approx(np.exp(2 * 1.645), rel=1e-3)
    assert found[0][0] < found[1][0] < found[2][0]
    assert found[0][1] > found[1][1] > found[2][1]
    assert _drawn_to(None, repairs(np.array([]))) is None


@pytest.mark.slow
def test_the_share_of_the_impatient_lies_in_its_interval():
    """Waits by Weibull's law; a tenth of the owners cancels after four hours in the mean."""
    rng = np.random.default_rng(3)
    base = scenario_of(*scenario_text("rsc-1-like"))
    n, shares, means = 120, 0, 0
    for _ in range(n):
        jobs = 1500
        wait_s = 3000.0 * rng.weibull(0.5, jobs)
        patience_s = np.where(rng.random(jobs) < 0.1, rng.exponential(14_400.0, jobs), np.inf)
        gone = patience_s < wait_s
        attempts: Any = SimpleNamespace(
            is_first=np.ones(jobs, dtype=np.bool_),
            submit_s=np.zeros(jobs),
            start_s=np.where(gone, np.nan, wait_s),
            end_s=np.where(gone, patience_s, wait_s + 60.0),
            state=np.where(gone, "CANCELLED", "COMPLETED"),
        )
        maker = ScenarioMaker(base, "site")
        made = _patience(maker, attempts, np.ones(jobs, dtype=np.bool_), 1e9)
        share, mean_s = made["impatient_share"], made["mean_patience_s"]
        assert share is not None
        assert mean_s is not None
        shares += share.low <= 0.1 <= share.high
        means += mean_s.low <= 14_400.0 <= mean_s.high
    assert shares >= 0.84 * n
    assert means >= 0.84 * n


def test_the_ends_of_a_share_lie_between_0_and_1():
    values = np.array([0.55, 0.7, 0.8, 0.9])
    scaled = np.arcsin(np.sqrt(values))
    low, high = _ends(values, scaled, 1.5, 1.0)
    assert (low, high) == (0.0, 1.0)
    assert _ends(values, scaled, 1.5, np.inf)[1] > 1.0
