"""Where a function of one number is zero, and where it is least, between two ends.

`scipy.optimize` has both, step for step; its import takes a third of a second of CPU time, which is
more than what most questions then compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST_STEPS = 500
_LEAST_RELATIVE = 4 * 2.0**-52
_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_ROOT_OF_PRECISION = math.sqrt(2.2e-16)


def root(
    of: Callable[[float], float],
    low: float,
    high: float,
    *,
    within: float = 2e-12,
    relative: float = _LEAST_RELATIVE,
) -> float:
    """The place between two ends of different sign where a function crosses zero.

    Args:
        within: largest error of the place, and `relative` as a part of it.

    Raises:
        ValueError: the function has the same sign at both ends.

    Source:
        Brent (1973), Algorithms for Minimization Without Derivatives, chapter 4.
    """
    before, here, other = float(low), float(high), 0.0
    f_before, f_here, f_other = float(of(before)), float(of(here)), 0.0
    if f_before == 0 or f_here == 0:
        return before if f_before == 0 else here
    if (f_before < 0) == (f_here < 0):
        raise ValueError(f"{f_before:g} at {low:g} and {f_here:g} at {high:g} have one sign")
    last_step = step = 0.0
    for _ in range(_MOST_STEPS):
        if f_before != 0 and (f_before < 0) != (f_here < 0):
            other, f_other = before, f_before
            last_step = step = here - before
        if abs(f_other) < abs(f_here):
            before, here, other = here, other, here
            f_before, f_here, f_other = f_here, f_other, f_here
        error = (within + relative * abs(here)) / 2
        half = (other - here) / 2
        if f_here == 0 or abs(half) < error:
            return here
        tried = math.inf
        if abs(last_step) > error and abs(f_here) < abs(f_before):
            tried = _interpolated(before, here, other, f_before, f_here, f_other)
        if 2 * abs(tried) < min(abs(last_step), 3 * abs(half) - error):
            last_step, step = step, tried
        else:
            last_step = step = half
        before, f_before = here, f_here
        if abs(step) > error:
            here += step
        else:
            here += error if half > 0 else -error
        f_here = float(of(here))
    return here


def _interpolated(
    before: float, here: float, other: float, f_before: float, f_here: float, f_other: float
) -> float:
    """The step to where a line or a parabola through the points is zero; infinite for none."""
    if before == other:
        return -f_here * (here - before) / (f_here - f_before)
    slope_before = (f_before - f_here) / (before - here)
    slope_other = (f_other - f_here) / (other - here)
    above = -f_here * (f_other * slope_other - f_before * slope_before)
    below = slope_other * slope_before * (f_other - f_before)
    return above / below if below else math.inf


def minimum(
    of: Callable[[float], float], low: float, high: float, *, within: float = 1e-5
) -> tuple[float, float]:
    """The place between two ends where a function of one valley is least, and its value there.

    Args:
        within: largest error of the place.

    Source:
        Brent (1973), Algorithms for Minimization Without Derivatives, chapter 5.
    """
    low, high = float(low), float(high)
    best = second = third = low + _GOLDEN * (high - low)
    step = last_step = 0.0
    f_best = f_second = f_third = float(of(best))
    for _ in range(_MOST_STEPS):
        middle = 0.5 * (low + high)
        error = _ROOT_OF_PRECISION * abs(best) + within / 3.0
        if not abs(best - middle) > 2.0 * error - 0.5 * (high - low):
            break
        is_golden = True
        if abs(last_step) > error:
            r = (best - second) * (f_best - f_third)
            q = (best - third) * (f_best - f_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            p, q = (-p if q > 0.0 else p), abs(q)
            r, last_step = last_step, step
            if abs(p) < abs(0.5 * q * r) and q * (low - best) < p < q * (high - best):
                is_golden, step = False, p / q
                place = best + step
                if place - low < 2.0 * error or high - place < 2.0 * error:
                    step = error if middle >= best else -error
        if is_golden:
            last_step = (low if best >= middle else high) - best
            step = _GOLDEN * last_step
        place = best + math.copysign(max(abs(step), error), step if step else 1.0)
        f_place = float(of(place))
        if f_place <= f_best:
            low, high = (best, high) if place >= best else (low, best)
            third, f_third = second, f_second
            second, f_second = best, f_best
            best, f_best = place, f_place
            continue
        low, high = (place, high) if place < best else (low, place)
        if f_place <= f_second or second == best:
            third, f_third = second, f_second
            second, f_second = place, f_place
        elif f_place <= f_third or third in (best, second):
            third, f_third = place, f_place
    return best, f_best
