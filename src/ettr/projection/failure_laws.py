"""Laws by which the failures of a run may be drawn: a fleet's own timeline, or nodes that age."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ettr.errors import UsageError
from ettr.models.data import Floats
from ettr.words import spell


class FailureLaw(Protocol):
    """When a run fails."""

    @property
    def words(self) -> str:
        """The law and what it assumes, in words."""

    def times_s(self, failures_per_s: float, horizon_s: float, rng: np.random.Generator) -> Floats:
        """Moments of failure from 0 to the horizon, ascending, shape (n,), in seconds.

        Args:
            failures_per_s: Mean rate of the whole run, which the law keeps.
        """


@dataclass(frozen=True, slots=True)
class Independent:
    """Independent failures at a constant rate, as the exact form has them; to test a simulation."""

    words: str = "independent failures at a constant rate"

    def times_s(self, failures_per_s: float, horizon_s: float, rng: np.random.Generator) -> Floats:
        """Moments of failure; see `FailureLaw`."""
        n = rng.poisson(failures_per_s * horizon_s)
        return np.sort(rng.uniform(0.0, horizon_s, n))


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedTimeline:
    """Blocks of a fleet's own calendar of failures, put together at random.

    Within a block failures keep their distances, so that bursts stay bursts; blocks are
    independent. A larger run is several such fleets at once, a smaller one meets each failure with
    the chance that its rate asks for.

    **Source**: Künsch (1989), Annals of Statistics 17, the moving-block bootstrap, circular as in
    Politis and Romano (1992).
    """

    failures_s: Floats
    span_s: float
    block_s: float

    def __post_init__(self) -> None:
        """Check that there is something to replay.

        Raises:
            UsageError: no failure, or a block longer than the logs.
        """
        if not self.failures_s.size or not 0 < self.block_s <= self.span_s:
            raise UsageError(
                f"{self.failures_s.size} failures in {self.span_s:g} s, blocks of {self.block_s:g} "
                "s: give one failure or more and a block no longer than the logs"
            )

    @property
    def words(self) -> str:
        """The law and what it assumes, in words."""
        return (
            f"blocks of {spell(self.block_s)} of the store's own {self.failures_s.size:,} "
            "failures, drawn at random; a run of another size meets a failure of a burst in "
            "proportion to its nodes"
        )

    def times_s(self, failures_per_s: float, horizon_s: float, rng: np.random.Generator) -> Floats:
        """Moments of failure; see `FailureLaw`."""
        fleets = failures_per_s * self.span_s / self.failures_s.size
        copies = max(1, math.ceil(fleets))
        blocks = max(1, math.ceil(horizon_s / self.block_s))
        begins = rng.uniform(0.0, self.span_s, copies * blocks)
        place = np.tile(np.arange(blocks) * self.block_s, copies)
        # the logs twice in a row, so that a block may reach over their end
        twice = np.concatenate([self.failures_s, self.failures_s + self.span_s])
        first = np.searchsorted(twice, begins)
        counts = np.searchsorted(twice, begins + self.block_s) - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        times = twice[np.repeat(first, counts) + within] + np.repeat(place - begins, counts)
        kept = times[rng.random(times.size) < fleets / copies]
        return np.sort(kept[kept < horizon_s])


@dataclass(frozen=True, slots=True)
class AgeingNodes:
    """Nodes with Weibull lives, as good as new after a failure, at all ages when the run begins.

    Attributes:
        shape: Of the lives: below 1 a failure makes the next one likelier, above 1 nodes wear out.
    """

    n_nodes: int
    shape: float

    @property
    def words(self) -> str:
        """The law and what it assumes, in words."""
        return (
            f"Weibull lives of shape {self.shape:.2f} of {self.n_nodes:,} nodes, good as new after "
            "each failure, at all ages when the run begins"
        )

    def times_s(self, failures_per_s: float, horizon_s: float, rng: np.random.Generator) -> Floats:
        """Moments of failure; see `FailureLaw`."""
        mean_s = self.n_nodes / failures_per_s
        scale_s = mean_s / math.gamma(1.0 + 1.0 / self.shape)
        # a life met at a random moment is longer in proportion to its length
        life_s = scale_s * rng.gamma(1.0 + 1.0 / self.shape, size=self.n_nodes) ** (
            1.0 / self.shape
        )
        next_s = life_s * rng.random(self.n_nodes)
        struck: list[Floats] = []
        while True:
            next_s = next_s[next_s < horizon_s]
            if not next_s.size:
                break
            struck.append(next_s)
            next_s = next_s + scale_s * rng.weibull(self.shape, next_s.size)
        return np.sort(np.concatenate(struck)) if struck else np.empty(0)
