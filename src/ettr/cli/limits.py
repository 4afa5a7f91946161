"""What may be typed at all, checked before a command sees it.

An option has its own limits where it means something; these are the bounds beyond which no option
means anything: a number that no cluster has, a text that no terminal takes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from ettr.errors import UsageError

LONGEST_TEXT = 20_000
LARGEST_WHOLE_NUMBER = 10**12
LARGEST_NUMBER, SMALLEST_NUMBER = 1e15, 1e-9
MOST_NODES = 10**6
"""Nodes of one fleet whose logs are read."""
MOST_GPUS_PER_NODE = 1024
LONGEST_PATTERN = 1000
_SHOWN = 60
_WITHDRAWN = {
    "--checkpoint-min": "--interval",
    "--restart-min": "--restart",
    "--save-min": "--write",
}


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


def check_withdrawn(words: Iterable[str]) -> None:
    """Refuse options that had their unit in their name; what follows `--` is not ours.

    Raises:
        UsageError: names the option that replaces it.
    """
    typed = list(words)
    for place, word in enumerate(typed):
        if word == "--":
            return
        name, _, value = word.partition("=")
        if name in _WITHDRAWN:
            minutes = shortened(value or "".join(typed[place + 1 : place + 2]) or "60")
            raise UsageError(
                f"{name}: is now {_WITHDRAWN[name]}, which takes a time with its unit; write "
                f"{_WITHDRAWN[name]} {minutes}min"
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
        raise UsageError(
            f"{option} {shortened(text)!r}: has the control character {wrong!r} in it; leave it out"
        )
