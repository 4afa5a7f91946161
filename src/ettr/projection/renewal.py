"""Expected failures where a repair makes a node as good as new."""

from collections.abc import Callable

import numpy as np

from ettr.errors import UsageError
from ettr.models.data import Floats


def renewals(
    cumulative_hazard: Callable[[Floats], Floats], horizon_s: float, n_steps: int = 2000
) -> float:
    """Failures expected of one new node up to `horizon_s`, each repair making it new again.

    Args:
        cumulative_hazard: Of a lifetime, by age in seconds: `Fit.cumulative_hazard`.
        horizon_s: Time watched, in seconds.
        n_steps: Steps of the grid; the error falls with its square where the density is smooth.

    Raises:
        UsageError: the horizon is not positive.

    Source:
        Xie (1989), Communications in Statistics - Simulation and Computation 18.
    """
    if not horizon_s > 0:
        raise UsageError(f"horizon_s is {horizon_s}; give a positive time in seconds")
    grid = np.linspace(0.0, horizon_s, n_steps + 1)
    half = grid[1:] - grid[1] / 2.0
    by_end = -np.expm1(-cumulative_hazard(grid))
    by_half = -np.expm1(-cumulative_hazard(half))
    expected = np.zeros(n_steps + 1)
    step = np.zeros(n_steps)
    for i in range(1, n_steps + 1):
        past = by_half[1:i][::-1] @ step[: i - 1]
        expected[i] = (by_end[i] + past - by_half[0] * expected[i - 1]) / (1.0 - by_half[0])
        step[i - 1] = expected[i] - expected[i - 1]
    return float(expected[-1])
