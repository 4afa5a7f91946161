"""A rate of items that come in templates: items of one template resemble each other.

The unsafe items of a template are beta-binomial: their rate varies between templates with the
correlation ρ. An end of the interval is the rate at which the observed sum has the chance α, under
the ρ that is likeliest *at that rate*: where few templates are unsafe, ρ is large at rates far
above the observed one, so that templates not drawn are allowed for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ettr.estimates.interval import Interval
from ettr.estimates.special import bdtr, betaln, gammaln

Floats: TypeAlias = NDArray[np.float64]
ASSUMED_CORRELATION = 0.05
"""Where no data say, before a run."""
LARGEST_CORRELATION = 0.6
_CORRELATIONS = np.concatenate([[0.0], np.geomspace(1e-4, LARGEST_CORRELATION, 40)])
_STEPS = 14
_LARGEST_SIZE = 2000


@dataclass(frozen=True, slots=True)
class TemplateCounts:
    """Unsafe items of each template, and its items.

    Raises:
        ValueError: no template, or one without items.
    """

    unsafe: tuple[int, ...]
    items: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that there is something to count."""
        if not self.items or min(self.items) < 1:
            raise ValueError("a template without items")

    @property
    def n_items(self) -> int:
        """All items."""
        return sum(self.items)

    @property
    def n_unsafe(self) -> int:
        """All unsafe items."""
        return sum(self.unsafe)

    @property
    def rate(self) -> float:
        """The share of items that are unsafe."""
        return self.n_unsafe / self.n_items


def effective_items(n_items: float, n_templates: int, correlation: float) -> float:
    """As how many independent items the items of templates of one size count."""
    return n_items / (1.0 + (n_items / n_templates - 1.0) * correlation)


def likeliest_correlation(counts: TemplateCounts, rate: float) -> float:
    """The correlation within a template that makes the counts likeliest at a rate."""
    kinds = Counter(zip(counts.unsafe, counts.items, strict=True))
    unsafe, items = (np.array(one, float) for one in zip(*kinds, strict=True))
    times = np.array(list(kinds.values()), float)
    rate = min(1.0 - 1e-9, max(1e-9, rate))
    rho = _CORRELATIONS[1:, None]
    a, b = rate * (1.0 - rho) / rho, (1.0 - rate) * (1.0 - rho) / rho
    logs = (times * (betaln(a + unsafe, b + items - unsafe) - betaln(a, b))).sum(axis=1)
    alone = float((times * (unsafe * math.log(rate) + (items - unsafe) * np.log1p(-rate))).sum())
    return float(_CORRELATIONS[int(np.argmax(np.concatenate([[alone], logs])))])


def sum_at_most(n_unsafe: int, items: Sequence[int], rate: float, correlation: float) -> float:
    """The chance of at most so many unsafe items in all templates."""
    n_items = sum(items)
    if n_unsafe < 0 or n_unsafe >= n_items:
        return float(n_unsafe >= n_items)
    if correlation == 0.0:
        return float(bdtr(n_unsafe, n_items, rate))
    return float(_sums(items, rate, correlation)[n_unsafe])


def _sums(items: Sequence[int], rate: float, correlation: float) -> Floats:
    """The chances of at most 0, 1, ... unsafe items in all templates."""
    n_items = sum(items)
    if correlation == 0.0:
        alone: Floats = bdtr(np.arange(n_items + 1.0), n_items, rate)
        return alone
    size = 1 << n_items.bit_length()
    whole = np.ones(size // 2 + 1, complex)
    for n, times in Counter(items).items():
        whole *= np.fft.rfft(_chances(n, rate, correlation), size) ** times
    chances: Floats = np.clip(np.cumsum(np.fft.irfft(whole, size)[: n_items + 1]), 0.0, 1.0)
    return chances


def _chances(n_items: int, rate: float, correlation: float) -> Floats:
    """The chances of 0 to all unsafe items in one template."""
    k = np.arange(n_items + 1.0)
    rate = min(1.0 - 1e-12, max(1e-300, rate))
    scale = (1.0 - correlation) / correlation
    a, b = rate * scale, (1.0 - rate) * scale
    ways = gammaln(n_items + 1) - gammaln(k + 1) - gammaln(n_items - k + 1)
    chances: Floats = np.exp(ways + betaln(k + a, n_items - k + b) - betaln(a, b))
    return chances


def rate_interval(counts: TemplateCounts, confidence: float) -> Interval:
    """The rate with the ends that the sum of unsafe items bears, as the module says."""
    alpha = (1.0 - confidence) / 2.0
    rate, seen, items = counts.rate, counts.n_unsafe, counts.items

    def at_most(at: float, most: int) -> float:
        return sum_at_most(most, items, at, likeliest_correlation(counts, at))

    low, high = 0.0, 1.0
    if seen > 0:
        low = _crossing(lambda at: 1.0 - at_most(at, seen - 1) > alpha, 0.0, rate)
    if seen < counts.n_items:
        high = _crossing(lambda at: at_most(at, seen) <= alpha, rate, 1.0)
    return Interval(rate, low, high)


def _crossing(is_above: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that holds from some rate on begins to hold; rates by their logarithm."""
    below = max(low, high * 1e-6)
    above = high
    for _ in range(_STEPS):
        middle = math.sqrt(below * above)
        if is_above(middle):
            above = middle
        else:
            below = middle
    return math.sqrt(below * above)


def correlation_at_edge(rate: float, edge: float, size: int, correlation: float) -> float:
    """The correlation that templates of one size and of a rate will make likeliest at an edge."""
    size = min(size, _LARGEST_SIZE)  # the rate of a larger template is known as well
    k = np.arange(size + 1.0)
    chances = _chances(size, rate, max(correlation, 1e-6))
    logs = [float(((k * math.log(edge) + (size - k) * math.log1p(-edge)) * chances).sum())]
    for one in _CORRELATIONS[1:]:
        a, b = edge * (1.0 - one) / one, (1.0 - edge) * (1.0 - one) / one
        logs.append(float(((betaln(a + k, b + size - k) - betaln(a, b)) * chances).sum()))
    return float(_CORRELATIONS[int(np.argmax(logs))])


def chance_decided(
    items: Sequence[int], rate: float, edge: float, correlation: float, confidence: float
) -> float:
    """How likely a run of these templates decides on which side of an edge a rate is."""
    alpha, n_items = (1.0 - confidence) / 2.0, sum(items)
    size = max(1, round(n_items / len(items)))
    at_edge = correlation_at_edge(rate, edge, size, correlation)
    sums, own = _sums(items, edge, at_edge), _sums(items, rate, correlation)
    if rate < edge:  # the most unsafe items that are too few for the edge
        most = int(np.searchsorted(sums, alpha, side="right")) - 1
        return float(own[most]) if most >= 0 else 0.0
    fewest = int(np.searchsorted(sums, 1.0 - alpha)) + 1  # the fewest that are too many
    return 1.0 - float(own[fewest - 1]) if fewest <= n_items else 0.0
