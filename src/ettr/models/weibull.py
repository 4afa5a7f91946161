"""Weibull lifetimes: nodes that get better with age, or wear out."""

import numpy as np

from ettr.estimates import Interval
from ettr.models.base import Fit, Parameter
from ettr.models.data import Floats
from ettr.models.log_location_scale import LogLocationScale, exponential


class Weibull(LogLocationScale):
    """Hazard that is a power of the clock: shape below 1 falls, 1 is constant, above 1 rises.

    Source:
        Weibull (1951), Journal of Applied Mechanics 18.
    """

    name = "Weibull"

    def cumulative(self, z: Floats) -> Floats:
        """Cumulative hazard at standardised log clock `z`."""
        return np.exp(z)

    def standardised_at(self, hazard: Floats) -> Floats:
        """Standardised log clock at which the cumulative hazard reaches values above 0."""
        return np.log(hazard)

    def hazard(self, z: Floats) -> Floats:
        """Its derivative in `z`."""
        return np.exp(z)

    def log_hazard(self, z: Floats) -> Floats:
        """Logarithm of `hazard`."""
        return z

    def log_hazard_slope(self, z: Floats) -> Floats:
        """Derivative of `log_hazard` in `z`."""
        return np.ones_like(z)

    def parameters(self, location: Interval, scale: Interval) -> tuple[Parameter, ...]:
        """Shape, one over `scale`; and the scale in seconds (63 % of lifetimes are shorter)."""
        return (
            Parameter.of("shape", "1", scale.inverse()),
            Parameter.of("scale", "s", exponential(location)),
        )

    def log_scale(self, fit: Fit) -> Interval:
        """One over the shape."""
        return fit.parameter("shape").inverse()

    def meaning(self, scale: Interval) -> str:
        """What the shape says about ageing, without a full stop."""
        shape = scale.inverse()
        band = f"(shape {shape.estimate:.2f} [{shape.low:.2f}, {shape.high:.2f}])"
        if shape.high < 1.0:
            return f"Failures become rarer as the clock runs {band}"
        if shape.low > 1.0:
            return f"Failures become more frequent as the clock runs {band}"
        return f"Neither wear nor settling in is shown {band}"
