"""Weibull lifetimes: nodes that get better with age, or wear out."""

import math

import numpy as np

from ettr.estimates import Interval
from ettr.models.base import Fit, Parameter
from ettr.models.data import Floats
from ettr.models.log_location_scale import LogLocationScale


class Weibull(LogLocationScale):
    """Hazard that is a power of the clock: shape below 1 falls, 1 is constant, above 1 rises.

    Source:
        Weibull (1951), Journal of Applied Mechanics 18.
    """

    name = "Weibull"

    def cumulative(self, z: Floats) -> Floats:
        """Cumulative hazard at standardised log clock `z`."""
        return np.exp(z)

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
        """Shape, and the scale in seconds (63 % of lifetimes are shorter)."""
        shape = _shape(scale)
        return (
            Parameter("shape", "1", shape.estimate, shape.low, shape.high),
            Parameter(
                "scale",
                "s",
                None if location.estimate is None else _exp(location.estimate),
                _exp(location.low),
                _exp(location.high),
            ),
        )

    def log_scale(self, fit: Fit) -> Interval:
        """One over the shape."""
        shape = fit.parameter("shape")
        return _shape(Interval(shape.estimate, shape.low, shape.high))

    def meaning(self, scale: Interval) -> str:
        """What the shape says about ageing, without a full stop."""
        shape = _shape(scale)
        band = f"(shape {shape.estimate:.2f}, {shape.low:.2f} to {shape.high:.2f})"
        if shape.high < 1.0:
            return f"Failures become rarer as the clock runs {band}"
        if shape.low > 1.0:
            return f"Failures become more frequent as the clock runs {band}"
        return f"Neither wear nor settling in is shown {band}"


def _shape(scale: Interval) -> Interval:
    """Shape is one over the scale of the log lifetime, and the other way round."""
    return Interval(
        None if scale.estimate is None else 1.0 / scale.estimate,
        1.0 / scale.high,
        math.inf if scale.low == 0 else 1.0 / scale.low,
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700.0 else math.inf
