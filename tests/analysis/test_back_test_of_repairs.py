"""A back-test tells repairs that all last alike from those that spread, and checkpoints apart."""

from __future__ import annotations

import numpy as np

from ettr.analysis.calibration.back_test import Quantity, placed_quantity, spread_of_times

NAME = "repair time, spread"
MEANS_H = np.array([2.0, 6.0, 12.0, 24.0])


def repairs(rng: np.random.Generator, spread: float) -> Quantity:
    """Twenty repairs of four kinds, whose means are known within a third."""
    kind = rng.integers(4, size=20)
    means = np.log(MEANS_H * rng.lognormal(0.0, 0.3, 4))[kind]
    hours = rng.lognormal(means - spread**2 / 2, spread)
    return spread_of_times(hours, kind.astype(object))


def p_values(planted: float, simulated: float, draws: int) -> np.ndarray:
    rng, found = np.random.default_rng(8), []
    for _ in range(draws):
        runs = [{NAME: repairs(rng, simulated)} for _ in range(12)]
        found.append(placed_quantity(NAME, repairs(rng, planted), runs).p_value)
    return np.array(found, dtype=np.float64)


def test_a_right_spread_of_repairs_seldom_fails() -> None:
    found = p_values(1.0, 1.0, 200)
    assert (found < 0.05).mean() <= 0.09
    assert (found < 0.002).mean() <= 0.01


def test_repairs_that_all_last_alike_fail_among_25_quantities() -> None:
    assert (p_values(1.0, 0.1, 60) < 0.002).all()
    assert (p_values(1.0, 0.3, 60) < 0.002).mean() >= 0.9
