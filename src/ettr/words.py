"""Counts and durations in sentences."""

from __future__ import annotations

import math
import re
import unicodedata

from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

_LEAST, _MOST = 1e-7, 1e15
"""Beyond these nobody counts the digits, and nobody needs the number."""
_BY_NUMBER = re.compile(r"\[([^][|]*)\|([^][|]*)\]")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun in the singular or the plural: 1 run, 2 runs, 0 runs."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def by_number(sentence: str, count: int) -> str:
    """A sentence with the count for `{n}`, and of each `[singular|plural]` the form that fits."""
    chosen = _BY_NUMBER.sub(r"\1" if count == 1 else r"\2", sentence)
    return chosen.replace("{n}", f"{count:,}")


def significant(value: float, digits: int = 3) -> str:
    """A number to so many significant digits, thousands grouped, without a power of ten."""
    if not math.isfinite(value):
        return f"{value:g}"
    if 0.0 < abs(value) < _LEAST:
        return "< 0.0000001" if value > 0.0 else "> -0.0000001"
    if abs(value) >= _MOST:
        return "> 1,000,000 billion" if value > 0.0 else "< -1,000,000 billion"
    whole = math.floor(math.log10(abs(value))) + 1 if value else 1
    text = f"{value:,.{max(0, digits - whole)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def p_words(chance: float) -> str:
    """A p-value to two digits, with its letter; below a ten-thousandth only that it is."""
    return "p < 0.0001" if chance < 1e-4 else f"p {chance:.2g}"


def spell(duration_s: float) -> str:
    """A duration in the unit that fits it: `4.2 s`, `7 min`, `1.8 h`, `47.7 d`."""
    for unit_s, name in (
        (SECONDS_PER_DAY, "d"),
        (SECONDS_PER_HOUR, "h"),
        (SECONDS_PER_MINUTE, "min"),
    ):
        if duration_s >= unit_s:
            value = duration_s / unit_s
            return f"{significant(value)} {name}"
    return f"{significant(duration_s)} s"


# -- text of others, made safe to look at ----------------------------------------------------------


_KEPT = {"\n", "\t"}
# control, format, surrogate, private, unassigned; line and paragraph separators
_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmless(text: str) -> str:
    """The text with every control and format character made visible.

    Job names, reasons and log lines come from others; an escape sequence among them must not
    move the cursor, recolour the screen or reverse the line.
    """
    if text.isascii() and text.isprintable():
        return text  # nearly every text, and a report shows hundreds of thousands
    return "".join(
        char
        if char in _KEPT or unicodedata.category(char) not in _STEERING
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text
    )


def cut(text: str, most: int) -> str:
    """The text, or its first `most` characters with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
