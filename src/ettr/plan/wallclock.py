"""The distribution of a run's wall-clock, not only its mean: by inversion of its transform.

The wall-clock is a sum of independent parts (a recovery, the segments), each with a transform in
closed form. A Fourier series on a window that holds all but 1e-10 of the probability gives the
distribution; the chance of no failure at all, a step, is kept apart so that the series is smooth.
"""

import cmath
import math
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates.interval import Interval
from ettr.plan.renewal import expected_failures, expected_wallclock_s, segments
from ettr.plan.run import PlannedRun
from ettr.words import significant

QUANTILES = (0.1, 0.5, 0.9, 0.99)
ENDLESS = 1000.0
"""A run expected to take this many times its productive time is said not to end."""

QUEUE_LAWS = ("fixed", "exponential")
_LOG_TAIL = math.log(1e-10)
_MOST_TERMS = 8192
_ROUNDING = 1e-3
# one part in e^20 is known to six digits in double precision, one in e^35 to none
_HIGHEST_LOAD = 20.0


@dataclass(frozen=True, slots=True)
class Wallclock:
    """Wall-clock of one run from submission to its last write.

    Probabilities are right to about 1e-4, and to 1e-8 where tens of failures are expected.

    Attributes:
        shortest_s: Without a failure and, for a queue of random length, without a wait.
    """

    mean_s: float
    sd_s: float
    shortest_s: float
    undisturbed: float
    productive_s: float
    _start_s: float
    _period_s: float
    _terms: tuple[complex, ...]

    def within(self, wallclock_s: float) -> float:
        """Probability that the run is done within `wallclock_s`."""
        over_s = wallclock_s - self.shortest_s
        # a run of thousands of hours does not resolve the last bits of its length
        step = self.undisturbed if over_s >= -1e-9 * self.shortest_s else 0.0
        at = (over_s - self._start_s) / self._period_s
        if at <= 0:
            return step
        if at >= 1:
            return 1.0
        turn = cmath.exp(2j * math.pi * at)
        power, total = 1.0 + 0j, (1.0 - self.undisturbed) * at
        for term in self._terms:
            power *= turn
            total += term.real * (power.real - 1.0) - term.imag * power.imag
        return min(1.0, max(0.0, step + total))

    def quantile_s(self, probability: float) -> float:
        """The wall-clock within which the run is done with `probability`.

        Raises:
            UsageError: not strictly between 0 and 1.
        """
        if not 0.0 < probability < 1.0:
            raise UsageError(f"{probability} is not a probability; give 0.9 for the ninth decile")
        if probability <= self.undisturbed:
            return self.shortest_s
        low_s = max(0.0, self._start_s)
        high_s = self._start_s + self._period_s
        for _ in range(45):
            middle_s = (low_s + high_s) / 2.0
            if self.within(self.shortest_s + middle_s) < probability:
                low_s = middle_s
            else:
                high_s = middle_s
        return self.shortest_s + (low_s + high_s) / 2.0


def wallclock(run: PlannedRun, queue_law: str = "fixed") -> Wallclock:
    """The distribution of the wall-clock of `run`, under the assumptions of the exact form.

    Args:
        queue_law: Each wait is `fixed` at queue_s, or `exponential` with that mean.

    Raises:
        UsageError: a run without end, one that will not end, or an unknown law.

    **Source**: derived in docs/explanation/ettr-models.md; the inversion is that of Abate and
    Whitt (1992), Queueing Systems 10, without damping, on a window from Chernoff's bound.
    """
    if queue_law not in QUEUE_LAWS:
        raise UsageError(f"queue_law {queue_law!r} is unknown; give {' or '.join(QUEUE_LAWS)}")
    if math.isinf(run.productive_s):
        raise UsageError("a run without end has no wall-clock; give productive_s")
    rate = run.failures_per_s
    load = rate * max(min(run.interval_s, run.productive_s) + run.write_s, run.restart_s)
    if load > _HIGHEST_LOAD:
        raise UsageError(
            f"{significant(load)} failures are expected in a single interval or restart, so the "
            "run will "
            "not end; shorten the interval or the restart, or use fewer nodes"
        )
    return _invert(_Excess.of(run, queue_law == "exponential"), run)


@dataclass(frozen=True, slots=True)
class _Excess:
    """Transform of the time beyond the shortest that the run can take."""

    rate: float
    restart_s: float
    queue_s: float
    random_queue: bool
    lengths: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, run: PlannedRun, random_queue: bool) -> "_Excess":
        n_full, last_s = segments(run)
        lengths = ((n_full, run.interval_s + run.write_s), (1, last_s + run.write_s))
        return cls(run.failures_per_s, run.restart_s, run.queue_s, random_queue, lengths)

    def shortest_s(self) -> float:
        waits_s = 0.0 if self.random_queue else self.queue_s
        return waits_s + self.restart_s + sum(n * length_s for n, length_s in self.lengths)

    def undisturbed(self) -> float:
        if self.random_queue and self.queue_s:
            return 0.0
        return math.exp(-self.rate * (self.restart_s + sum(n * x for n, x in self.lengths)))

    def at(self, s: complex) -> complex:
        """E[e^(-s X)]."""
        total_rate = self.rate + s
        wait = 1.0 / (1.0 + s * self.queue_s) if self.random_queue else cmath.exp(-s * self.queue_s)
        fails = wait * self.rate * _held(total_rate, self.restart_s)
        begun = math.exp(-self.rate * self.restart_s) / (1.0 - fails)
        value = begun * (wait if self.random_queue else 1.0)
        recovery = begun * wait * cmath.exp(-s * self.restart_s)
        for n, length_s in self.lengths:
            if n:
                fails = recovery * self.rate * _held(total_rate, length_s)
                value *= (math.exp(-self.rate * length_s) / (1.0 - fails)) ** n
        return value

    def log_moment(self, tilt: float) -> float:
        """ln E[e^(tilt X)]; infinite where it does not exist."""
        if self.random_queue and tilt * self.queue_s >= 1.0:
            return math.inf
        try:
            wait = (
                1.0 / (1.0 - tilt * self.queue_s)
                if self.random_queue
                else math.exp(tilt * self.queue_s)
            )
            left = 1.0 - wait * self.rate * _held(self.rate - tilt, self.restart_s).real
            if left <= 0:
                return math.inf
            total = -self.rate * self.restart_s - math.log(left)
            recovery = math.exp(total + tilt * self.restart_s) * wait
            total += math.log(wait) if self.random_queue else 0.0
            for n, length_s in self.lengths:
                left = 1.0 - recovery * self.rate * _held(self.rate - tilt, length_s).real
                if n and left <= 0:
                    return math.inf
                total += n * (-self.rate * length_s - math.log(left)) if n else 0.0
        except OverflowError:
            return math.inf
        return total

    def variance_s2(self) -> float:
        """Exact variance: geometric numbers of failed attempts, each of independent length."""
        wait_s2 = self.queue_s**2 if self.random_queue else 0.0
        n_again, n_again2 = _failed_attempts(self.rate * self.restart_s)
        cut_s, cut_s2 = _cut_short(self.rate, self.restart_s)
        again_s2 = n_again * (cut_s2 + wait_s2) + n_again2 * (cut_s + self.queue_s) ** 2
        recovery_s = self.queue_s + self.restart_s + n_again * (cut_s + self.queue_s)
        recovery_s2 = wait_s2 + again_s2
        total = recovery_s2
        for n, length_s in self.lengths:
            n_failed, n_failed2 = _failed_attempts(self.rate * length_s)
            cut_s, cut_s2 = _cut_short(self.rate, length_s)
            once_s2 = n_failed * (cut_s2 + recovery_s2) + n_failed2 * (cut_s + recovery_s) ** 2
            total += n * once_s2
        return total


def _held(rate: complex, length_s: float) -> complex:
    """(1 - e^(-rate length)) / rate, and its limit where they nearly cancel."""
    load = rate * length_s
    if abs(load) < 1e-6:
        return length_s * (1.0 - load / 2.0)
    return (1.0 - cmath.exp(-load)) / rate


def _failed_attempts(load: float) -> tuple[float, float]:
    """Mean and variance of the attempts that fail before one of that load does not."""
    mean = math.expm1(load)
    return mean, mean * math.exp(load)


def _cut_short(rate: float, length_s: float) -> tuple[float, float]:
    """Mean and variance of the length of an attempt, given that it fails."""
    load = rate * length_s
    if load < 1e-3:
        return length_s * (0.5 - load / 12.0), length_s**2 / 12.0
    growth = math.expm1(load)
    # 1/λ² - L² e^λL / (e^λL - 1)²
    return 1.0 / rate - length_s / growth, 1.0 / rate**2 - length_s**2 * (growth + 1) / growth**2


def _invert(excess: _Excess, run: PlannedRun) -> Wallclock:
    mean_s, sd_s = expected_wallclock_s(run), math.sqrt(excess.variance_s2())
    shortest_s, undisturbed = excess.shortest_s(), excess.undisturbed()
    start_s, end_s = _window(excess, mean_s - shortest_s, sd_s)
    # room on both sides, so that the series does not wrap at a bend
    period_s = 1.1 * (end_s - start_s)
    start_s -= 0.05 * (end_s - start_s)
    terms: list[complex] = []
    small = 0
    for k in range(1, _MOST_TERMS + 1 if sd_s else 1):
        frequency = 2.0 * math.pi * k / period_s
        value = excess.at(1j * frequency) - (undisturbed if start_s <= 0 else 0.0)
        term = value * cmath.exp(1j * frequency * start_s) / (1j * math.pi * k)
        terms.append(term)
        small = small + 1 if abs(term) < 1e-12 else 0
        if small == 8:
            break
    return Wallclock(
        mean_s,
        sd_s,
        shortest_s,
        undisturbed if start_s <= 0 else 0.0,
        run.productive_s,
        start_s,
        period_s,
        tuple(terms),
    )


def _window(excess: _Excess, mean_s: float, sd_s: float) -> tuple[float, float]:
    """Times beyond the shortest that hold all but 1e-10 of the probability on either side."""
    if not sd_s:
        return 0.0, 1.0
    # at no tilt at all the moment is 1, its logarithm 0
    if not math.isfinite(sd_s) or not abs(excess.log_moment(0.0)) < _ROUNDING:
        raise UsageError(
            f"the run takes {significant(mean_s)} s on average: it hardly ever ends, so its "
            "distribution is "
            "unknown; shorten the interval or the restart, or use fewer nodes"
        )
    tilt = 1.0 / sd_s
    while math.isfinite(excess.log_moment(tilt)):
        tilt *= 2.0
    low, high = 0.0, tilt
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if math.isfinite(excess.log_moment(middle)) else (low, middle)
    tilts = [low * share for share in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99)]
    tilts += [j / sd_s for j in (0.5, 1, 2, 3, 5, 7) if j / sd_s < low]
    end_s = min((excess.log_moment(t) - _LOG_TAIL) / t for t in tilts)
    starts = [(_LOG_TAIL - excess.log_moment(-j / sd_s)) * sd_s / j for j in (1, 2, 4, 6, 7, 9)]
    return max(0.0, *starts), max(end_s, mean_s + sd_s)


@dataclass(frozen=True, slots=True)
class WallclockQuantiles:
    """Wall-clock of a run of finite length: its mean, and its quantiles.

    Attributes:
        quantiles: Pairs of a probability and the wall-clock within which the run ends with it.
        quantile_bands_s: The same of each of the quantiles, in their order. An end is infinite
            where the run will not end at that rate.
    """

    productive_s: float
    mean_s: float
    sd_s: float
    expected_failures: float
    quantiles: tuple[tuple[float, float], ...]
    mean_band_s: Interval
    quantile_bands_s: tuple[Interval, ...]


def ends(run: PlannedRun) -> bool:
    """Whether a run of finite length can be expected to end at all."""
    return expected_wallclock_s(run) < ENDLESS * run.productive_s


def wallclock_quantiles(
    run: PlannedRun, per_node_day: Interval | None = None
) -> WallclockQuantiles | None:
    """Mean and quantiles of a run's wall-clock; None for the long run, and for one without end."""
    if math.isinf(run.productive_s) or not ends(run):
        return None
    law = wallclock(run)
    rate = per_node_day or Interval(None, run.failures_per_node_day, run.failures_per_node_day)
    low, high = (_at_rate(run, end) for end in (rate.low, rate.high))
    quantiles = tuple((share, law.quantile_s(share)) for share in QUANTILES)
    return WallclockQuantiles(
        run.productive_s,
        law.mean_s,
        law.sd_s,
        expected_failures(run),
        quantiles,
        Interval(law.mean_s, _mean_s(low), _mean_s(high)),
        tuple(
            Interval(at_s, _quantile_s(low, share), _quantile_s(high, share))
            for share, at_s in quantiles
        ),
    )


def _at_rate(run: PlannedRun, per_node_day: float) -> Wallclock | None:
    """The law at another failure rate; None where the run will not end at it."""
    if math.isinf(per_node_day):
        return None
    other = replace(run, failures_per_node_day=per_node_day)
    return wallclock(other) if ends(other) else None


def _mean_s(law: Wallclock | None) -> float:
    return math.inf if law is None else law.mean_s


def _quantile_s(law: Wallclock | None, share: float) -> float:
    return math.inf if law is None else law.quantile_s(share)
