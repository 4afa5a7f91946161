"""How long fits and intervals take, beside lifelines where it has the same model.

Run: python benchmarks/models_fit.py

Anchor: an exact interval under 1 ms and a fit of 100,000 lifetimes under 1 s; lifelines 0.30.3
takes 22 to 209 ms for a rate of 200 units.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ettr.estimates.exact import poisson_interval
from ettr.models.compare import compare_rates
from ettr.models.constant import ConstantRate
from ettr.models.data import Counts, Lifetimes
from ettr.models.gamma_mixed import GammaMixed
from ettr.models.log_location_scale import Lognormal, Weibull
from ettr.models.piecewise import PiecewiseConstant

DAY_S = 86400.0


def best_ms(work: Callable[[], Any], repeats: int = 3) -> float:
    """Shortest of a few runs, in milliseconds; the first, which imports, is not counted."""
    work()
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return 1000.0 * min(taken)


def lifetimes(n: int) -> Lifetimes:
    """Weibull lifetimes, half of them censored, a fifth begun late."""
    rng = np.random.default_rng(0)
    raw = 100 * DAY_S * rng.weibull(0.7, 2 * n)
    until = DAY_S * rng.uniform(20, 150, 2 * n)
    entry = np.where(rng.random(2 * n) < 0.2, rng.uniform(0, 0.3, 2 * n) * until, 0.0)
    kept = np.flatnonzero(raw > entry)[:n]
    return Lifetimes(np.minimum(raw, until)[kept], (raw < until)[kept], entry[kept])


def fit_peer(
    peer: Callable[[], Any], days: np.ndarray, observed: np.ndarray, entry: np.ndarray
) -> None:
    """A fit of lifelines."""
    peer().fit(days, observed, entry=entry)


def main() -> None:
    """Print the table."""
    from lifelines import ExponentialFitter, LogNormalFitter, WeibullFitter

    warnings.simplefilter("ignore")
    data = lifetimes(100_000)
    small = lifetimes(200)
    counts = Counts(np.random.default_rng(1).negative_binomial(2, 0.2, 100_000), 100.0)
    rate = ConstantRate().fit(small).rate
    rows: list[tuple[str, float, float, float | None]] = [
        ("exact interval of a rate", best_ms(lambda: poisson_interval(419)), 1.0, None),
        ("exact ratio of two rates", best_ms(lambda: compare_rates(rate, rate)), 1.0, None),
    ]
    peers: dict[str, Any] = {
        "constant rate": ExponentialFitter,
        "Weibull": WeibullFitter,
        "lognormal": LogNormalFitter,
    }
    for sample, most_ms in ((small, 1000.0), (data, 1000.0)):
        days, entry = sample.duration_s / DAY_S, sample.entry_s / DAY_S
        for model in (ConstantRate(), Weibull(), Lognormal(), PiecewiseConstant()):
            ours = best_ms(partial(model.fit, sample))
            peer = peers.get(model.name)
            theirs = peer and best_ms(partial(fit_peer, peer, days, sample.observed, entry), 1)
            rows.append(
                (f"{model.name}, {sample.duration_s.size:,} lifetimes", ours, most_ms, theirs)
            )
    rows.append(
        ("gamma-mixed, 100,000 nodes", best_ms(lambda: GammaMixed().fit(counts)), 1000.0, None)
    )
    print(f"{'':40} {'ms':>9} {'limit':>7} {'':4} {'lifelines ms':>13} {'ratio':>7}")
    for name, ours, most, theirs in rows:
        verdict = "ok" if ours < most else "OVER"
        beside = f"{theirs:13.1f} {theirs / ours:7.1f}" if theirs else ""
        print(f"{name:40} {ours:9.3f} {most:7.0f} {verdict:4} {beside}")


if __name__ == "__main__":
    main()
