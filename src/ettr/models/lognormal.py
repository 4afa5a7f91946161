"""Lognormal lifetimes: a hazard that rises, then falls for good."""

import math

import numpy as np

from ettr.estimates import Interval
from ettr.models.base import Fit, Parameter
from ettr.models.data import Floats
from ettr.models.log_location_scale import LogLocationScale, exponential


class Lognormal(LogLocationScale):
    """The logarithm of the lifetime is normal; typical of repair times and of mixed causes.

    Source:
        Crow and Shimizu (1988), Lognormal Distributions: Theory and Applications.
    """

    name = "lognormal"

    def cumulative(self, z: Floats) -> Floats:
        """Cumulative hazard at standardised log clock `z`."""
        from scipy.special import log_ndtr

        result: Floats = -log_ndtr(-z)
        return result

    def standardised_at(self, hazard: Floats) -> Floats:
        """Standardised log clock at which the cumulative hazard reaches values above 0."""
        from scipy.special import ndtri_exp

        result: Floats = -ndtri_exp(-hazard)
        return result

    def hazard(self, z: Floats) -> Floats:
        """Its derivative in `z`."""
        return np.exp(self.log_hazard(z))

    def log_hazard(self, z: Floats) -> Floats:
        """Logarithm of `hazard`."""
        from scipy.special import log_ndtr

        result: Floats = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_ndtr(-z)
        return result

    def log_hazard_slope(self, z: Floats) -> Floats:
        """Derivative of `log_hazard` in `z`."""
        return self.hazard(z) - z

    def parameters(self, location: Interval, scale: Interval) -> tuple[Parameter, ...]:
        """Median in seconds, and the standard deviation of the logarithm."""
        return (
            Parameter.of("median", "s", exponential(location)),
            Parameter.of("sigma", "1", scale),
        )

    def log_scale(self, fit: Fit) -> Interval:
        """Sigma itself."""
        return fit.parameter("sigma")

    def meaning(self, scale: Interval) -> str:
        """What sigma says, without a full stop."""
        return (
            "Half of all lifetimes lie within a factor "
            f"{math.exp(0.6745 * (scale.estimate or 0.0)):.2g} "
            f"of the median (sigma {scale.estimate:.2f} [{scale.low:.2f}, {scale.high:.2f}])"
        )
