"""Counts and durations in sentences."""

from __future__ import annotations

import re

from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

_MOST_WRITTEN_OUT = 1e9
"""Days from here up are printed by their power of ten."""
_BY_NUMBER = re.compile(r"\[([^][|]*)\|([^][|]*)\]")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun in the singular or the plural: 1 run, 2 runs, 0 runs."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def by_number(sentence: str, count: int) -> str:
    """A sentence with the count for `{n}`, and of each `[singular|plural]` the form that fits."""
    chosen = _BY_NUMBER.sub(r"\1" if count == 1 else r"\2", sentence)
    return chosen.replace("{n}", f"{count:,}")


def spell(duration_s: float) -> str:
    """A duration in the unit that fits it: `4.2 s`, `7 min`, `1.8 h`, `47.7 d`."""
    for unit_s, name in (
        (SECONDS_PER_DAY, "d"),
        (SECONDS_PER_HOUR, "h"),
        (SECONDS_PER_MINUTE, "min"),
    ):
        if duration_s >= unit_s:
            value = duration_s / unit_s
            if value >= _MOST_WRITTEN_OUT:
                mantissa, _, power = f"{value:.2e}".partition("e")
                return f"{mantissa}e{int(power)} {name}"
            return f"{value:.3g} {name}" if value < 1000 else f"{value:,.0f} {name}"
    return f"{duration_s:.3g} s"
