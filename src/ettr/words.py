"""Counts in sentences: the noun, and what depends on it, in the singular or the plural."""

from __future__ import annotations

import re

_BY_NUMBER = re.compile(r"\[([^][|]*)\|([^][|]*)\]")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun in the singular or the plural: 1 run, 2 runs, 0 runs."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def by_number(sentence: str, count: int) -> str:
    """A sentence with the count for `{n}`, and of each `[singular|plural]` the form that fits."""
    chosen = _BY_NUMBER.sub(r"\1" if count == 1 else r"\2", sentence)
    return chosen.replace("{n}", f"{count:,}")
