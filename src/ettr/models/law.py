"""How long a node lasts in use: the law of a failure model by plain parameters, and its samples.

A fit is an estimate with intervals; a law is what a simulation draws from. The clock of a law is
the age of a node, in seconds of use since it was new.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from ettr.errors import UsageError
from ettr.models.data import Floats

_GRID = 16_384
_SMALLEST_HAZARD, _LARGEST_HAZARD = 1e-14, 60.0
_BISECTIONS = 110
_MOST_DOUBLINGS = 1000


class LifeLaw(ABC):
    """A law of the life of a node. A new one needs its cumulative hazard; the rest follows."""

    @abstractmethod
    def cumulative_hazard(self, clock_s: Floats) -> Floats:
        """Expected failures of a node up to an age in seconds if repairs do not change its age.

        The chance that a new node lives longer is exp of minus this.
        """

    def clock_at(self, hazard: Floats) -> Floats:
        """The age in seconds at which the cumulative hazard reaches a value; infinite if never."""
        return _inverse(self, np.asarray(hazard, dtype=np.float64))

    def node_factors(self, n: int, rng: np.random.Generator) -> Floats:
        """Factors of the hazard of n nodes, shape (n,): 1, unless nodes differ from each other."""
        del rng
        return np.ones(n)

    def of_node(self) -> LifeLaw:
        """The law of one node of factor 1: another one where nodes differ from each other."""
        return self

    def survival(self, clock_s: ArrayLike) -> Floats:
        """The chance that a new node lives longer than that, in seconds."""
        return np.exp(-self.cumulative_hazard(np.asarray(clock_s, dtype=np.float64)))

    def sample(self, n: int, rng: np.random.Generator, age_s: ArrayLike = 0.0) -> Floats:
        """Times until n nodes fail, given that they have survived to an age, in seconds.

        Args:
            age_s: Age of the nodes, one for all or shape (n,); new ones where 0.

        Returns:
            Shape (n,); infinite for a node that never fails.

        Raises:
            UsageError: an age is negative.

        Source:
            Inversion of the cumulative hazard: Devroye (1986), Non-Uniform Random Variate
            Generation, section VI.2.
        """
        age = np.broadcast_to(np.asarray(age_s, dtype=np.float64), (n,))
        if n and not float(age.min()) >= 0.0:
            raise UsageError(f"age_s is {float(age.min()):g}; give 0 or more seconds of use")
        hazard = self.cumulative_hazard(age) + rng.standard_exponential(n)
        return np.maximum(self.clock_at(hazard) - age, 0.0)

    def sample_in_service(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Ages of n nodes of a fleet in use for long, and the times until they fail, in seconds.

        Each node was new after its last failure. Failures then come at the rate of one a mean life.

        Raises:
            UsageError: the mean life is infinite, so that no fleet ever gets there.

        Source:
            Cox (1962), Renewal Theory, section 5.2: ages have a density in proportion to survival.
        """
        clock_s, lived_s = self.service_ages()
        age = np.interp(rng.random(n) * lived_s[-1], lived_s, clock_s)
        return age, self.sample(n, rng, age)

    def mean_s(self) -> float:
        """Mean life of a new node, in seconds; infinite where it never ends."""
        if not math.isfinite(float(self.clock_at(np.array([_LARGEST_HAZARD]))[0])):
            return math.inf
        return float(self.service_ages()[1][-1])

    def service_ages(self) -> tuple[Floats, Floats]:
        """A grid of ages, and the integral of survival up to each: the mean life at the end.

        Raises:
            UsageError: the mean life is infinite.
        """
        ends = self.clock_at(np.array([_SMALLEST_HAZARD, _LARGEST_HAZARD]))
        if not math.isfinite(float(ends[1])):
            raise UsageError(
                "the law has no finite mean life: nodes that never fail have no steady state; give "
                "an age of the nodes"
            )
        first = max(float(ends[0]), float(ends[1]) * 1e-280)
        clock_s = np.concatenate(([0.0], np.geomspace(first, float(ends[1]), _GRID)))
        survival = self.survival(clock_s)
        steps = np.diff(clock_s) * (survival[:-1] + survival[1:]) / 2.0
        return clock_s, np.concatenate(([0.0], np.cumsum(steps)))


def _inverse(law: LifeLaw, hazard: Floats) -> Floats:
    """Ages at which a cumulative hazard reaches values, found by bisection of its logarithm."""
    result = np.zeros_like(hazard)
    positive = hazard > 0
    if not positive.any():
        return result
    wanted = hazard[positive]
    low = high = 0.0
    for _ in range(_MOST_DOUBLINGS):
        if float(law.cumulative_hazard(np.exp([low]))[0]) < float(wanted.min()) or low < -600.0:
            break
        low = 2.0 * low - 1.0
    for _ in range(_MOST_DOUBLINGS):
        if float(law.cumulative_hazard(np.exp([high]))[0]) > float(wanted.max()) or high > 600.0:
            break
        high = 2.0 * high + 1.0
    high = min(high, 700.0)
    below, above = np.full_like(wanted, max(low, -700.0)), np.full_like(wanted, high)
    for _ in range(_BISECTIONS):
        middle = (below + above) / 2.0
        short = law.cumulative_hazard(np.exp(middle)) < wanted
        below, above = np.where(short, middle, below), np.where(short, above, middle)
    reached = law.cumulative_hazard(np.exp(above)) >= wanted * (1.0 - 1e-9)
    result[positive] = np.where(reached, np.exp(above), np.inf)
    return result
