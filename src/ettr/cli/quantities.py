"""Times, sizes and counts as people type them: `10s`, `5min`, `1.5TB`, `200GB/s`, `419/110592`.

A time or a size has its unit with it, so that nobody has to remember which one an option means.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from ettr.errors import UsageError
from ettr.selection import Back
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

ValueT = TypeVar("ValueT")
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)(/s)?\s*")
_SECONDS = {
    "s": 1.0,
    "sec": 1.0,
    "m": SECONDS_PER_MINUTE,
    "min": SECONDS_PER_MINUTE,
    "h": SECONDS_PER_HOUR,
    "hour": SECONDS_PER_HOUR,
    "hours": SECONDS_PER_HOUR,
    "d": SECONDS_PER_DAY,
    "day": SECONDS_PER_DAY,
    "days": SECONDS_PER_DAY,
    "ms": 1e-3,
}
_BACK = re.compile(r"([0-9]{1,5})\s*([a-z]+)")
_DAYS_BACK = {"today": 0, "yesterday": 1}
_MOST_DIGITS = 12
_FIRST_YEAR, _LAST_YEAR = 1980, 2200
# in seconds 30 million years and a nanosecond, in bytes a thousand exabytes
_LARGEST_AMOUNT, _SMALLEST_AMOUNT = 1e21, 1e-9
_BYTES = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "pb": 1e15,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
    "pib": 2.0**50,
}


def seconds(option: str, text: str) -> float:
    """A length of time in seconds.

    Raises:
        UsageError: it is malformed, it is negative, or it has no unit.
    """
    return _quantity(option, text, _SECONDS, "5min, 10s, 1.5h or 2d", per_s=False)


def time_days(option: str, text: str) -> float:
    """A length of time in days.

    Raises:
        UsageError: as `seconds` does.
    """
    return seconds(option, text) / SECONDS_PER_DAY


def if_given(read: Callable[[str, str], ValueT], option: str, text: str | None) -> ValueT | None:
    """What `read` makes of the text; None where the option is absent."""
    return None if text is None else read(option, text)


def if_typed(read: Callable[[str, str], float], option: str, text: str | None) -> float | None:
    """The quantity as `read` understands it; None where the option is absent.

    Raises:
        UsageError: as `read` does.
    """
    return None if text is None else read(option, text)


def typed_time(duration_s: float) -> str:
    """A length of time as it may be typed: 5min, 90s."""
    for unit in ("d", "h", "min"):
        if duration_s and duration_s % _SECONDS[unit] == 0:
            return f"{duration_s / _SECONDS[unit]:g}{unit}"
    return f"{duration_s:g}s"


def typed_size(size_bytes: float) -> str:
    """A size as it may be typed: 500GB."""
    return f"{size_bytes / _BYTES['gb']:g}GB"


def typed_rate(size_bytes_per_s: float) -> str:
    """A rate as it may be typed: 50GB/s."""
    return f"{typed_size(size_bytes_per_s)}/s"


def n_bytes(option: str, text: str) -> float:
    """A size in bytes.

    Raises:
        UsageError: it is malformed, it is negative, it has no unit, or it is in bits.
    """
    _refuse_bits(option, text)
    return _quantity(option, text, _BYTES, "800GB or 5.6TB", per_s=False)


def bytes_per_s(option: str, text: str) -> float:
    """A rate in bytes per second.

    Raises:
        UsageError: it is malformed, it is negative, it has no unit, or it is in bits.
    """
    _refuse_bits(option, text)
    return _quantity(option, text, _BYTES, "200GB/s", per_s=True)


def _refuse_bits(option: str, text: str) -> None:
    # vendors print networks in Gb/s: taken for GB/s they would be eight times as fast
    match = _QUANTITY.fullmatch(text)
    if match and match[2].endswith("b"):
        raise UsageError(
            f"{option} {text!r}: a small b means bits; give bytes, such as 200GB or 200GB/s "
            "(400Gb/s are 50GB/s)"
        )


def _quantity(
    option: str, text: str, units: dict[str, float], examples: str, *, per_s: bool
) -> float:
    if text.strip().startswith("-"):
        raise UsageError(f"{option} {text}: is negative; give 0 or more, such as {examples}")
    match = _QUANTITY.fullmatch(text)
    value = float(match[1]) if match else math.nan
    if match and value == 0 and not match[2]:
        return 0.0
    unit = match[2].lower() if match else ""
    if match is None or unit not in units or (match[3] is not None and not per_s):
        raise UsageError(f"{option} {text!r}: give a number with its unit, such as {examples}")
    if not math.isfinite(value):
        raise UsageError(f"{option} {text!r}: is too large; give a number such as {examples}")
    amount = value * units[unit]
    if amount > _LARGEST_AMOUNT or 0 < amount < _SMALLEST_AMOUNT:
        small_or_large = "small" if amount < 1 else "large"
        raise UsageError(
            f"{option} {shortened(text)!r}: is too {small_or_large}; give one such as {examples}"
        )
    return amount


def positive(option: str, value: float | None, unit: str) -> float | None:
    """The same number where it is one above 0; None where the option is absent.

    Raises:
        UsageError: it is 0, negative, without end, or none.
    """
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"{option} {value:g}: give a positive number of {unit}, or leave it out")
    return value


def days(option: str, text: str | None) -> float | None:
    """A length of time in days, of a time with its unit or a bare number of days; None if absent.

    Raises:
        UsageError: it is 0, negative, without end, or cannot be understood.
    """
    if text is None:
        return None
    try:
        bare = float(text)
    except ValueError:
        return positive(option, time_days(option, text), "days")
    return positive(option, bare, "days")


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Positive whole numbers, comma-separated; digits only, so that `4k` is refused.

    Raises:
        UsageError: one is not a positive whole number.
    """
    parts = [part.strip().replace("_", "") for part in text.split(",")]
    wrong = [
        part
        for part in parts
        if not (part.isascii() and part.isdigit() and part.strip("0") and len(part) <= _MOST_DIGITS)
    ]
    if wrong:
        raise UsageError(
            f"{option} {text!r}: {wrong[0]!r} is not a whole number above 0; give one or several, "
            "comma-separated, such as 4096,16384"
        )
    return tuple(int(part) for part in parts)


def failures_over_node_days(text: str) -> tuple[str | None, int, float] | None:
    """(name, failures, node-days) of `name=419/110592`, name optional; None where it is no such.

    Raises:
        UsageError: it looks like one, and is not.
    """
    name, equals, counts = text.rpartition("=")
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*/\s*([0-9.eE+-]+)\s*", counts)
    if match is None:
        return None
    try:
        failures, node_days = float(match[1]), float(match[2])
    except ValueError:
        return None
    if not failures.is_integer() or failures < 0 or not 0 < node_days < math.inf:
        raise UsageError(
            f"{text}: give failures (a whole number, 0 or more) over node-days (above 0), such as "
            "419/110592"
        )
    for number in (failures, node_days):
        check_number(text, number)
    return (name.strip() or None) if equals else None, int(failures), node_days


def rate_with_ends(option: str, text: str) -> tuple[float, ...]:
    """A rate such as `6.5`, or with the ends of its interval, `6.5,6.1,6.9`: one number or three.

    Raises:
        UsageError: it is malformed.
    """
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 3):
        raise UsageError(
            f"{option} {shortened(text)!r}: give a rate with a decimal point, such as 6.5, or the "
            "rate with both ends of its interval, such as 6.5,6.1,6.9"
        )
    for number in numbers:
        if math.isfinite(number):
            check_number(option, number)
    return numbers


def moment(option: str, text: str) -> datetime:
    """A time with its zone.

    Raises:
        UsageError: it is malformed, or it has no zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(
            f"{option} {text!r}: give a time with its zone, such as 2026-03-01T00:00:00Z"
        )
    if not _FIRST_YEAR <= found.year < _LAST_YEAR:
        raise UsageError(f"{option} {text!r}: is not in {_FIRST_YEAR} to {_LAST_YEAR}")
    return found


def utc_moment(option: str, text: str) -> datetime:
    """A date or a time in UTC; without an offset it is taken as UTC.

    Raises:
        UsageError: it is malformed, or lies in no year of a log.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{option} {shortened(text)!r}: give a date or a time, such as 2026-03-01 or "
            "2026-03-01T06:00+02:00 (without an offset it is UTC), or one counted from the end of "
            "the logs: 7d, 12h, today, yesterday"
        ) from None
    if not _FIRST_YEAR <= found.year < _LAST_YEAR:
        raise UsageError(f"{option} {text!r}: is not in {_FIRST_YEAR} to {_LAST_YEAR}")
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def back_from_end(text: str) -> Back | None:
    """A time counted back from the end of the logs, as `7d`, `today` or `yesterday`; else None."""
    word = text.strip().lower()
    if word in _DAYS_BACK:
        return Back(days=_DAYS_BACK[word])
    found = _BACK.fullmatch(word)
    if found is None or found[2] not in _SECONDS:
        return None
    return Back(length=timedelta(seconds=int(found[1]) * _SECONDS[found[2]]))


def span_days(option: str, text: str) -> tuple[float, float]:
    """A span `0d,90d` of a clock, in days.

    Raises:
        UsageError: it is malformed, or it ends before it begins.
    """
    parts = text.split(",")
    if len(parts) != 2:
        raise UsageError(f"{option} {text!r}: give two times, from and to, such as 0d,90d")
    begin, end = (time_days(option, part) for part in parts)
    if not begin < end:
        raise UsageError(f"{option} {text!r}: ends before it begins; write it as 0d,90d")
    return begin, end


def shares(option: str, text: str, names: tuple[str, ...]) -> dict[str, float]:
    """Shares by name of `node=0.8,process=0.2`; they sum to 1.

    Raises:
        UsageError: a name is unknown, a share is malformed, or they do not sum to 1.
    """
    found: dict[str, float] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if name.strip() in found:
            raise UsageError(f"{option} {text!r}: names {name.strip()} twice; name it once")
        if name.strip() not in names or not 0 <= share <= 1:
            raise UsageError(
                f"{option} {text!r}: {pair.strip()!r} is not a share; write "
                f"{names[0]}=0.2,{names[1]}=0.8 with names among {', '.join(names)}"
            )
        found[name.strip()] = share
    if not math.isclose(sum(found.values()), 1.0, abs_tol=1e-6):
        raise UsageError(f"{option} {text!r}: the shares sum to {sum(found.values()):g}, not 1")
    return found


def one_of(option: str, text: str, choices: type[ChoiceT]) -> ChoiceT:
    """The choice that a text names.

    Raises:
        UsageError: it names none; the message lists those there are.
    """
    try:
        return choices(text)
    except ValueError:
        known = " or ".join(choice.value for choice in choices)
        raise UsageError(f"{option} {text}: give {known}") from None


LONGEST_TEXT = 20_000
LARGEST_WHOLE_NUMBER = 10**12
LARGEST_NUMBER, SMALLEST_NUMBER = 1e15, 1e-9
MOST_NODES = 10**6
"""Nodes of one fleet whose logs are read."""
MOST_GPUS_PER_NODE = 1024
LONGEST_PATTERN = 1000
_SHOWN = 60


def check_words(words: Iterable[str]) -> None:
    """Refuse words of a command line that are longer than any value; what follows `--` is not ours.

    Raises:
        UsageError: one is.
    """
    for word in words:
        if word == "--":
            return
        if len(word) > LONGEST_TEXT:
            raise UsageError(
                f"{shortened(word)}: has {len(word):,} characters; give {LONGEST_TEXT:,} at most"
            )


def check_value(option: str, value: object) -> None:
    """Refuse a number beyond all bounds, and text with control characters.

    NaN and infinity pass: what is wrong with them depends on the option.

    Raises:
        UsageError: names the option.
    """
    if isinstance(value, list | tuple):
        for one in value:
            check_value(option, one)
    elif isinstance(value, str | Path):
        _check_text(option, str(value))
    elif isinstance(value, int):
        if abs(value) > LARGEST_WHOLE_NUMBER:
            raise UsageError(
                f"{option} {shortened(str(value))}: give a whole number of at most "
                f"{LARGEST_WHOLE_NUMBER:,}"
            )
    elif isinstance(value, float) and abs(value) != float("inf"):
        check_number(option, value)


def check_number(option: str, value: float) -> None:
    """Refuse a number that is neither 0 nor within all bounds.

    Raises:
        UsageError: names the option.
    """
    if abs(value) > LARGEST_NUMBER or 0 < abs(value) < SMALLEST_NUMBER:
        raise UsageError(
            f"{option} {value:g}: give 0, or a number from {SMALLEST_NUMBER:g} to "
            f"{LARGEST_NUMBER:g}"
        )


def shortened(text: str) -> str:
    """A text as a message repeats it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _check_text(option: str, text: str) -> None:
    wrong = next((one for one in text if unicodedata.category(one) in {"Cc", "Cs"}), None)
    if wrong is not None:
        raise UsageError(f"{option} {shortened(text)!r}: leave out the control character {wrong!r}")
