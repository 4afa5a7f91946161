"""Expected failures under a repair law: a repaired node is as good as new, or as it was before."""

from collections.abc import Callable

import numpy as np

from ettr.errors import UsageError
from ettr.models.data import Floats, RepairLaw

__all__ = ["CumulativeHazard", "RepairLaw", "failures_between", "renewals"]

CumulativeHazard = Callable[[Floats], Floats]
"""Of a lifetime, by age in seconds: `Fit.cumulative_hazard`."""


def failures_between(
    cumulative_hazard: CumulativeHazard, from_s: float, to_s: float, law: RepairLaw
) -> float:
    """Failures expected of one node that is `from_s` old until its clock would show `to_s`.

    Raises:
        UsageError: the ages are no span.
    """
    if not 0 <= from_s < to_s:
        raise UsageError(f"from_s {from_s} to to_s {to_s} is no span; give 0 <= from_s < to_s")
    if law is RepairLaw.MINIMAL:
        low, high = cumulative_hazard(np.array([from_s, to_s]))
        return float(high - low)
    return renewals(cumulative_hazard, to_s - from_s, age_s=from_s)


def renewals(
    cumulative_hazard: CumulativeHazard,
    horizon_s: float,
    n_steps: int = 2000,
    *,
    age_s: float = 0.0,
) -> float:
    """Failures expected of one node up to `horizon_s`, each repair making it new again.

    Args:
        n_steps: Steps of the grid; the error falls with its square where the density is smooth.

    Returns:
        The expected number; where lives are shorter than a step of the grid, that of the long run.

    Raises:
        UsageError: the horizon is not positive, or the age is negative.

    Source:
        Xie (1989), Communications in Statistics - Simulation and Computation 18.
    """
    if not horizon_s > 0:
        raise UsageError(f"horizon_s is {horizon_s}; give a positive time in seconds")
    if not age_s >= 0:
        raise UsageError(f"age_s is {age_s}; give an age of 0 or more seconds")
    grid = np.linspace(0.0, horizon_s, n_steps + 1)
    half = grid[1:] - grid[1] / 2.0
    by_end = -np.expm1(-cumulative_hazard(grid))
    by_half = -np.expm1(-cumulative_hazard(half))
    if by_half[0] > 0.5:
        # lives are shorter than a step of the grid: in the long run one failure a mean life
        return horizon_s / _mean_life_s(cumulative_hazard, horizon_s)
    expected = np.zeros(n_steps + 1)
    step = np.zeros(n_steps)
    for i in range(1, n_steps + 1):
        past = by_half[1:i][::-1] @ step[: i - 1]
        expected[i] = (by_end[i] + past - by_half[0] * expected[i - 1]) / (1.0 - by_half[0])
        step[i - 1] = expected[i] - expected[i - 1]
    if age_s == 0.0:
        return float(expected[-1])
    # the first failure follows the lifetime that is left; from there on the node is new
    gone = cumulative_hazard(np.array([age_s]))
    first = -np.expm1(-(cumulative_hazard(age_s + grid) - gone))
    later = (expected[:-1] + expected[1:])[::-1] / 2.0
    return float(first[-1] + np.diff(first) @ later)


def _mean_life_s(cumulative_hazard: CumulativeHazard, horizon_s: float) -> float:
    """Mean of a life that hardly ever reaches the horizon: the integral of its survival."""
    clock_s = np.concatenate(([0.0], np.geomspace(horizon_s * 1e-12, horizon_s, 2000)))
    with np.errstate(over="ignore"):
        survival = np.exp(-cumulative_hazard(clock_s))
    return float(np.sum(np.diff(clock_s) * (survival[:-1] + survival[1:]) / 2.0))
