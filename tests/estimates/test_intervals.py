"""The one interval type: ends that may be infinite, in arithmetic and in JSON."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate, mean_time_interval, rate_interval
from ettr.report.rows import plain

positive = st.floats(1e-9, 1e9)


@given(st.tuples(positive, positive, positive).map(sorted), positive)
def test_the_inverse_holds_the_inverse_of_what_the_interval_holds(ends, factor):
    low, middle, high = ends
    interval = Interval(middle, low, high)
    assert interval.contains(middle)
    inverse = interval.inverse(factor)
    assert inverse.estimate == factor / middle
    assert (inverse.low, inverse.high) == (factor / high, factor / low)
    assert interval.scaled(factor).contains(middle * factor)


def test_ends_without_bound_stay_without_bound():
    open_above = Interval(None, 2.0, math.inf)
    assert open_above.scaled(3.0) == Interval(None, 6.0, math.inf)
    assert open_above.inverse() == Interval(None, 0.0, 0.5)
    assert Interval(0.0, 0.0, 4.0).inverse() == Interval(None, 0.25, math.inf)
    assert Interval.unknown().scaled(5.0) == Interval.unknown()
    assert Interval.unknown().contains(-1e300)


def test_json_has_null_for_an_end_without_bound():
    assert plain(Interval.unknown()) == {"estimate": None, "low": None, "high": None}
    assert plain(rate_interval(0, 0.0)) == {"estimate": None, "low": 0.0, "high": None}
    assert plain(mean_time_interval(0, 0.0)) == {"estimate": None, "low": None, "high": None}


def test_without_exposure_a_rate_has_no_upper_end_and_a_lifetime_no_lower_one():
    assert FailureRate(0, 0.0).interval() == Interval(None, 0.0, math.inf)
    assert FailureRate(0, 0.0).mttf_h(4) == Interval(None, 0.0, math.inf)
