"""Independent failures at a constant rate, as the exact form has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Independent:
    """Independent failures at a constant rate, as the exact form has them."""

    words: str = "independent failures at a constant rate"

    def times_s(
        self, failures_per_s: float, horizon_s: float, rng: np.random.Generator
    ) -> np.ndarray:
        """Moments of failure; see `FailureLaw`."""
        n = rng.poisson(failures_per_s * horizon_s)
        return np.sort(rng.uniform(0.0, horizon_s, n))
