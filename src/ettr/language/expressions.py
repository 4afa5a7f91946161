"""Regular expressions as automata over characters, with the meaning that Python's `re` gives them.

The tree is that of Python's own parser, and the members of a class are found with Python's own
matcher, so that `re.fullmatch` is the meaning by construction.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# the parser has no public name
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]  # isort: skip

from ettr.errors import UsageError

Ranges = tuple[tuple[int, int], ...]
LAST_CODE_POINT = 0x10FFFF
MOST_STATES = 100_000
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF
_REFUSED = {
    "AT": "an anchor or a word boundary (^, $, \\A, \\Z, \\b, \\B); the whole text has to match, "
    "leave it out",
    "ASSERT": "lookaround; spell out what may follow",
    "ASSERT_NOT": "lookaround; spell out what may follow",
    "GROUPREF": "a reference to a group; spell out the alternatives",
    "GROUPREF_EXISTS": "a condition on a group; spell out the alternatives",
    "ATOMIC_GROUP": "an atomic group; write a plain one",
    "POSSESSIVE_REPEAT": "a possessive repetition; write a plain one",
}


class CharacterAutomaton:
    """A nondeterministic automaton: empty moves, and moves over ranges of code points."""

    def __init__(self) -> None:
        self.empty: list[list[int]] = []
        self.arcs: list[list[tuple[Ranges, int]]] = []
        self.start = self.state()
        self.accepting = -1

    def state(self) -> int:
        """A new state.

        Raises:
            UsageError: there are too many.
        """
        if len(self.empty) >= MOST_STATES:
            raise UsageError(
                f"REGEX: its repetitions expand to more than {MOST_STATES:,} states; repeat less"
            )
        self.empty.append([])
        self.arcs.append([])
        return len(self.empty) - 1


def parsed(regex: str, edits: int = 0) -> CharacterAutomaton:
    """The automaton of what `re.fullmatch(regex, text)` accepts.

    Args:
        edits: Most characters that may be inserted, left out or replaced (Levenshtein).

    Raises:
        UsageError: it is malformed, or has what no automaton has (lookaround, anchors).
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parser.parse(regex)
        made = CharacterAutomaton()
        made.accepting = _append(made, tree, tree.state.flags, made.start)
    except re.error as error:
        raise UsageError(f"REGEX {regex[:60]!r}: {error}") from error
    except (RecursionError, OverflowError) as error:
        raise UsageError(f"REGEX {regex[:60]!r}: is nested too deeply; simplify it") from error
    return _edited(made, edits) if edits else made


def _append(made: CharacterAutomaton, tree: Any, flags: int, start: int) -> int:
    """Add what a sequence matches; the state after it."""
    here = start
    for operation, value in tree:
        name = str(operation)
        if name in _REFUSED:
            raise UsageError(f"REGEX: has {_REFUSED[name]}")
        if name == "SUBPATTERN":
            _, added, removed, inner = value
            here = _append(made, inner, _combined(flags, added, removed), here)
        elif name == "BRANCH":
            end = made.state()
            for branch in value[1]:
                made.empty[_append(made, branch, flags, _after(made, here))].append(end)
            here = end
        elif name in {"MAX_REPEAT", "MIN_REPEAT"}:
            here = _repeated(made, value, flags, here)
        else:
            end = made.state()
            made.arcs[here].append((_members(operation, value, flags), end))
            here = end
    return here


def _after(made: CharacterAutomaton, start: int) -> int:
    """A new state reached without a character."""
    end = made.state()
    made.empty[start].append(end)
    return end


def _repeated(made: CharacterAutomaton, value: Any, flags: int, start: int) -> int:
    least, most, inner = value
    here = start
    for _ in range(least):
        here = _append(made, inner, flags, _after(made, here))
    if most == _constants.MAXREPEAT:
        here = _after(made, here)
        made.empty[_append(made, inner, flags, here)].append(here)
        return _after(made, here)
    end = made.state()
    made.empty[here].append(end)
    for _ in range(most - least):
        here = _append(made, inner, flags, _after(made, here))
        made.empty[here].append(end)
    return end


def _combined(flags: int, added: int, removed: int) -> int:
    kinds = re.ASCII | re.UNICODE | re.LOCALE
    return ((flags & ~kinds if added & kinds else flags) | added) & ~removed


def _members(operation: Any, value: Any, flags: int) -> Ranges:
    """Code points that one element matches."""
    name = str(operation)
    if name == "LITERAL" and not flags & re.IGNORECASE:
        return ((value, value),)
    if name == "ANY":
        every = (0, LAST_CODE_POINT)
        return (every,) if flags & re.DOTALL else ((0, 9), (11, LAST_CODE_POINT))
    if name == "IN" and not flags & re.IGNORECASE:
        kinds = {str(kind) for kind, _ in value}
        if kinds <= {"LITERAL", "RANGE"}:
            return tuple(one if str(kind) == "RANGE" else (one, one) for kind, one in value)
    if name not in {"LITERAL", "NOT_LITERAL", "IN"}:
        raise UsageError(f"REGEX: has {name.lower()}, which is not supported; leave it out")
    return _scanned(repr((operation, value)), flags, (operation, value))


_SCANNED: dict[tuple[str, int], Ranges] = {}


def _scanned(key: str, flags: int, element: tuple[Any, Any]) -> Ranges:
    """Code points that Python's matcher finds in the text of all of them."""
    if (key, flags) not in _SCANNED:
        state = _parser.State()
        state.flags = flags
        one = _parser.SubPattern(state, [element])
        runs = _parser.SubPattern(state, [(_constants.MAX_REPEAT, (1, _constants.MAXREPEAT, one))])
        found = _compiler.compile(runs, flags).finditer(_all_characters())
        _SCANNED[key, flags] = tuple(
            (_code_point(run.start()), _code_point(run.end() - 1)) for run in found
        )
    return _SCANNED[key, flags]


@lru_cache(maxsize=1)
def _all_characters() -> str:
    below = map(chr, range(_FIRST_SURROGATE))
    return "".join([*below, *map(chr, range(_LAST_SURROGATE + 1, LAST_CODE_POINT + 1))])


def _code_point(place: int) -> int:
    return place if place < _FIRST_SURROGATE else place + _LAST_SURROGATE - _FIRST_SURROGATE + 1


def _edited(exact: CharacterAutomaton, edits: int) -> CharacterAutomaton:
    """Accept what lies within a number of edits: a copy of the automaton for each edit made."""
    count = len(exact.empty)
    every: Ranges = ((0, LAST_CODE_POINT),)
    made = CharacterAutomaton()
    for _ in range(count * (edits + 1)):
        made.state()
    # state 0 is the start of a new automaton; copies follow it
    end = len(made.empty) - 1
    for edit in range(edits + 1):
        base, after = 1 + edit * count, 1 + (edit + 1) * count
        for state in range(count):
            made.empty[base + state] += [base + other for other in exact.empty[state]]
            made.arcs[base + state] += [(ranges, base + to) for ranges, to in exact.arcs[state]]
            if edit < edits:
                made.arcs[base + state].append((every, after + state))
                for _, to in exact.arcs[state]:
                    made.empty[base + state].append(after + to)
                    made.arcs[base + state].append((every, after + to))
    made.empty[0].append(1 + exact.start)
    made.accepting = end = made.state()
    for edit in range(edits + 1):
        made.empty[1 + edit * count + exact.accepting].append(end)
    return made


def utf8_sequences(first: int, last: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ranges of bytes, one for each place, that together spell the code points of a range."""
    for low, high in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF)):
        if max(first, low) <= min(last, high):
            yield from _spelled(max(first, low), min(last, high))
    if last >= 0x10000:
        yield from _spelled(max(first, 0x10000), last)


def _spelled(first: int, last: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Those of code points that take the same number of bytes."""
    for places in (1, 2, 3):
        mask = (1 << 6 * places) - 1
        if first & ~mask != last & ~mask:
            if first & mask:
                yield from _spelled(first, first | mask)
                yield from _spelled((first | mask) + 1, last)
                return
            if last & mask != mask:
                yield from _spelled(first, (last & ~mask) - 1)
                yield from _spelled(last & ~mask, last)
                return
    yield tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))
