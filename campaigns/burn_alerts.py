"""Burn alerts of fleets that just meet their budget, and of fleets that fail twice as often.

A row is 12 months of fleets whose budget expects so many failures a month, at one false alarm a
year. Failures come alone, or in bursts of geometric size with mean 2 that last a day; how much they
vary is estimated from the fleet's own history, as `ettr slo` does, or known. `alarms`: a year and
fleet without a change. `delay`: after the rate doubles in month seven, the median time until an
alert, in days and in failures that came. Of budgets of GPU-hours a failure takes a log-normal part
(`sigma`); those of a burst take alike, or apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from campaigns import Table
from ettr.analysis.objectives import RATIO, burn, burn_rule, dispersion_of_losses
from ettr.models.dispersion import FailureTimeline, spread_over_time
from ettr.units import DAYS_PER_YEAR, SECONDS_PER_DAY

TITLE = "Burn alerts of budgets"
SIZE = 200
BURST, BURST_DAYS = 2.0, 1.0
EDGES = np.linspace(0.0, DAYS_PER_YEAR, 731)
NODES = 100.0
FALSE_ALARMS_A_YEAR = 1.0
Times = NDArray[np.float64]
VERDICT = (
    "dispersion known: .92 on average (.74 to 1.10); estimated: .74 (.46 to 1.01); of GPU-hours "
    ".89 (.56 to 1.20)"
)


def failures(rng: np.random.Generator, expected: float, burst: float, from_days: float) -> Times:
    """Failure times in days from some day on to the end of the year, so many expected a year."""
    left = 1.0 - from_days / DAYS_PER_YEAR
    parents = rng.uniform(from_days, DAYS_PER_YEAR, rng.poisson(expected * left / burst))
    times = np.repeat(parents, rng.geometric(1.0 / burst, parents.size))
    if burst > 1.0:
        times = times + rng.uniform(0.0, BURST_DAYS, times.size)
    return np.sort(times[times < DAYS_PER_YEAR])


def dispersion(times: Times) -> float:
    """How many times the failures vary as much as independent ones, as `ettr slo` takes it."""
    spread = spread_over_time(FailureTimeline(times, EDGES, EDGES * NODES))
    return round(max(1.0, spread.index), 2) if spread.is_clustered else 1.0


def alerts(times: Times, expected: float, phi: float) -> list[float]:
    """The days on which an alert begins."""
    rule = burn_rule(round(FALSE_ALARMS_A_YEAR / expected, 6), phi)
    a_day = expected / DAYS_PER_YEAR
    return [one.since / a_day for one in burn(times * a_day, expected, rule).alerts]


def losses(
    rng: np.random.Generator, expected: float, burst: float, sigma: float, *, alike: bool
) -> tuple[Times, Times]:
    """When failures of a year came, and what each took: 1 on average, one draw a burst if alike."""
    parents = rng.uniform(0.0, DAYS_PER_YEAR, rng.poisson(expected / burst))
    burst_of = np.repeat(np.arange(parents.size), rng.geometric(1.0 / burst, parents.size))
    spread = BURST_DAYS if burst > 1.0 else 0.0
    times = parents[burst_of] + rng.uniform(0.0, spread, burst_of.size)
    drawn = rng.standard_normal(burst_of.size)
    taken = np.exp(sigma * (drawn[burst_of] if alike else drawn) - sigma**2 / 2.0)
    order = np.argsort(times)
    order = order[times[order] < DAYS_PER_YEAR]
    return times[order], taken[order]


def alerts_of_losses(times: Times, lost: Times, expected: float) -> int:
    """How many alerts a budget of GPU-hours raises, as `ettr slo` does."""
    edges, allowed = EDGES * SECONDS_PER_DAY, EDGES / DAYS_PER_YEAR * expected
    phi = dispersion_of_losses(dispersion(times), times * SECONDS_PER_DAY, lost, edges, allowed)
    scale = float((lost**2).sum() / lost.sum()) if times.size else 1.0
    rule = burn_rule(round(FALSE_ALARMS_A_YEAR * scale / expected, 6), phi)
    spent = times / DAYS_PER_YEAR * expected / scale
    return len(burn(spent, expected / scale, rule, (lost / scale).tolist()).alerts)


def _rows_of_losses(size: int) -> Iterator[tuple[str, ...]]:
    laws = [("alone", 1.0, False), ("in bursts, alike", BURST, True)]
    for name, burst, alike in [*laws, ("in bursts, apart", BURST, False)]:
        for sigma, a_month in ((0.5, 30), (1.0, 3), (1.0, 10), (1.0, 30), (1.5, 30)):
            rng = np.random.default_rng([a_month, int(10 * sigma), int(burst), int(alike)])
            n = []
            for _ in range(size):
                times, lost = losses(rng, 12.0 * a_month, burst, sigma, alike=alike)
                n.append(alerts_of_losses(times, lost, 12.0 * a_month))
            yield (
                f"GPU-hours, {name}, sigma {sigma:g}",
                str(a_month),
                "estimated",
                f"{np.mean(n):.2f}",
                f"{np.std(n) / np.sqrt(size):.2f}",
                "",
                "",
            )


def run(size: int) -> Table:
    """Alarms and delays of `size` fleets a row."""
    return Table(
        ("failures", "a month", "dispersion", "alarms", "standard error", "delay, d", "failures"),
        (*_rows(size), *_rows_of_losses(size)),
        "[failures a month, 1 in bursts]",
        "without a change one alarm a fleet and year, or fewer",
        VERDICT,
    )


def _rows(size: int) -> Iterator[tuple[str, ...]]:
    change = DAYS_PER_YEAR / 2.0
    for burst in (1.0, BURST):
        for a_month in (3, 10, 30, 100):
            rng = np.random.default_rng([a_month, int(burst > 1.0)])
            expected, truth = 12.0 * a_month, 2.0 * burst - 1.0
            steady = [failures(rng, expected, burst, 0.0) for _ in range(size)]
            worse = [
                np.sort(
                    np.concatenate([one, failures(rng, (RATIO - 1.0) * expected, burst, change)])
                )
                for one in steady
            ]
            for known in (True, False):
                phis = [truth if known else dispersion(one) for one in steady]
                n = [len(alerts(t, expected, phi)) for t, phi in zip(steady, phis, strict=True)]
                waits, came = [], []
                for times, phi in zip(worse, phis, strict=True):
                    after = [day for day in alerts(times, expected, phi) if day > change]
                    day = after[0] if after else np.inf
                    waits.append(day - change)
                    came.append(int(((times > change) & (times <= day)).sum()))
                yield (
                    "in bursts" if burst > 1.0 else "alone",
                    str(a_month),
                    f"{truth:g}" if known else f"estimated, median {np.median(phis):.2g}",
                    f"{np.mean(n):.2f}",
                    f"{np.std(n) / np.sqrt(size):.2f}",
                    f"{np.median(waits):.0f}",
                    f"{np.median(came):.0f}",
                )
