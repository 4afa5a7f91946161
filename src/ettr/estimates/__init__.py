"""Rates and shares with intervals.

`interval` is the one type for a value with two ends (standard library only); `exact` has the exact
intervals of counts and shares, those of counts without SciPy.
"""

from ettr.estimates.interval import Interval

__all__ = ["Interval"]
