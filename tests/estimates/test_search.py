"""Searches in one number, against SciPy's own and against what is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from ettr.models.base import minimum, root


def _functions(rng):
    for _ in range(40):
        a, b, c = rng.normal(size=3)
        yield lambda x, a=a, b=b, c=c: math.tanh(a + x) + 0.3 * math.sin(b * x) + 0.1 * x + 0.01 * c
        yield lambda x, a=a, b=b: (x - a) ** 3 + math.exp(-b * x / 4) - 1.0
        yield lambda x, a=a: -1.0 if x < a else 1.0  # no slope to go by


@pytest.mark.parametrize(
    ("within", "relative"), [(2e-12, 4 * 2.0**-52), (1e-9, 1e-12), (1e-5, 1e-14)]
)
def test_a_root_is_that_of_scipy_to_the_last_bit(within, relative):
    compared = 0
    for of in _functions(np.random.default_rng([37, 1])):
        if of(-30.0) * of(40.0) > 0:
            continue
        compared += 1
        own = root(of, -30.0, 40.0, within=within, relative=relative)
        assert own == brentq(of, -30.0, 40.0, xtol=within, rtol=relative)
    assert compared > 60


def test_a_root_at_an_end_and_one_that_is_not_there():
    assert root(lambda x: x, 0.0, 3.0) == 0.0
    assert root(lambda x: x - 3.0, 0.0, 3.0) == 3.0
    with pytest.raises(ValueError, match="one sign"):
        root(lambda x: x * x + 1.0, -1.0, 2.0)


@pytest.mark.parametrize("within", [1e-4, 1e-5, 1e-6])
def test_the_least_place_is_that_of_scipy_to_the_last_bit(within):
    for of in _functions(np.random.default_rng([37, 2])):
        found = minimize_scalar(
            of, bounds=(-12.0, 7.0), method="bounded", options={"xatol": within}
        )
        assert minimum(of, -12.0, 7.0, within=within) == (found.x, found.fun)


def test_the_least_place_of_a_parabola_and_at_an_end():
    place, value = minimum(lambda x: (x - 1.25) ** 2 + 3.0, -10.0, 10.0, within=1e-8)
    assert place == pytest.approx(1.25, abs=1e-7)
    assert value == pytest.approx(3.0)
    place, _ = minimum(lambda x: x, -2.0, 5.0, within=1e-8)
    assert place == pytest.approx(-2.0, abs=1e-6)
