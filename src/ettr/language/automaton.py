"""A regular expression as an automaton over bytes, whose states are made when they are reached.

Made at once, the states of `.*a.{20}` are 2 million; a search reaches few.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# the parser has no public name
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]  # isort: skip
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ettr.errors import EttrError, UsageError

# -- regular expressions as automata over characters, with the meaning that Python's `re` gives
# them
# The tree is that of Python's own parser, and the members of a class are found with Python's own
# matcher, so that `re.fullmatch` is the meaning by construction.


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


# -- a regular expression as an automaton over bytes, whose states are made when they are reached


DEAD = -1
_UNKNOWN = -2
_MOST_ARCS = 500_000


class FullAutomatonError(EttrError):
    """The automaton has as many states as its memory allows."""


class ByteAutomaton:
    """Accepts the UTF-8 of what `re.fullmatch` accepts.

    Every state can still reach a match; `DEAD` is where none can.
    """

    start = 0

    def __init__(self, regex: str, edits: int = 0, most_states: int = 100_000) -> None:
        """Parse the expression.

        Args:
            regex: As Python's `re` has it, without lookaround, anchors and references.
            edits: Most characters that may be inserted, left out or replaced.
            most_states: Beyond these `FullAutomatonError` is raised; a state takes 1 KB.

        Raises:
            UsageError: it is malformed, or no automaton can have it.
        """
        self.regex = regex
        self._most_states = most_states
        self._nfa = _Utf8Automaton(parsed(regex, edits))
        self._ids: dict[frozenset[int], int] = {}
        self._members: list[frozenset[int]] = []
        self.table: NDArray[np.int32] = np.full((64, 256), _UNKNOWN, np.int32)
        self._filled: NDArray[np.bool_] = np.zeros(64, np.bool_)
        self._accepts: NDArray[np.bool_] = np.zeros(64, np.bool_)
        self.matches_nothing = self._id(self._nfa.closure([self._nfa.start])) == DEAD

    @property
    def states(self) -> int:
        """Number of states made so far."""
        return len(self._members)

    def accepts(self, state: int) -> bool:
        """Whether what led there is a match."""
        return state != DEAD and bool(self._accepts[state])

    def extends(self, state: int) -> bool:
        """Whether a byte can follow."""
        return any(self._nfa.arcs[one] for one in self._members[state])

    def fill(self, states: NDArray[np.int32]) -> None:
        """Make the rows of `table` for these states.

        Raises:
            FullAutomatonError: there are too many states.
        """
        missing = states[~self._filled[states]]
        if missing.size:
            for state in np.unique(missing):
                self._fill(int(state))

    def after(self, text: bytes, state: int = 0) -> int:
        """The state after these bytes, or `DEAD`."""
        for byte in text:
            if state == DEAD:
                return DEAD
            self.fill(np.array([state], np.int32))
            state = int(self.table[state, byte])
        return state

    def fullmatch(self, text: bytes) -> bool:
        """Whether the bytes are a match."""
        return not self.matches_nothing and self.accepts(self.after(text))

    def _fill(self, state: int) -> None:
        arcs = [arc for one in self._members[state] for arc in self._nfa.arcs[one]]
        cuts = sorted({low for low, _, _ in arcs} | {high + 1 for _, high, _ in arcs})
        row = np.full(256, DEAD, np.int32)
        for low, end in itertools.pairwise(cuts):
            targets = [to for first, last, to in arcs if first <= low and end - 1 <= last]
            row[low:end] = self._id(self._nfa.closure(targets))
        self.table[state] = row
        self._filled[state] = True

    def _id(self, members: frozenset[int]) -> int:
        if not members:
            return DEAD
        found = self._ids.get(members)
        if found is not None:
            return found
        made = len(self._members)
        if made >= self._most_states:
            raise FullAutomatonError(
                f"REGEX: its automaton has more than {self._most_states:,} states; repeat less"
            )
        if made == len(self._filled):
            self.table = np.concatenate([self.table, np.full_like(self.table, _UNKNOWN)])
            self._filled = np.concatenate([self._filled, np.zeros_like(self._filled)])
            self._accepts = np.concatenate([self._accepts, np.zeros_like(self._accepts)])
        self._ids[members] = made
        self._members.append(members)
        self._accepts[made] = self._nfa.accepting in members
        return made


class _Utf8Automaton:
    """The automaton over characters with each character spelled in UTF-8; dead ends left out."""

    def __init__(self, characters: CharacterAutomaton) -> None:
        self.start, self.accepting = characters.start, characters.accepting
        self._empty = [list(states) for states in characters.empty]
        self.arcs: list[list[tuple[int, int, int]]] = [[] for _ in self._empty]
        self._closures: dict[int, frozenset[int]] = {}
        spelled: dict[tuple[tuple[tuple[int, int], ...], int], int] = {}
        sequences: dict[Ranges, list[tuple[tuple[int, int], ...]]] = {}
        count = 0
        for state, arcs in enumerate(characters.arcs):
            for ranges, to in arcs:
                if ranges not in sequences:
                    sequences[ranges] = [one for ends in ranges for one in utf8_sequences(*ends)]
                count += len(sequences[ranges])
                if count > _MOST_ARCS:
                    raise UsageError("REGEX: repeats too large classes of characters; repeat less")
                for places in sequences[ranges]:
                    self._spell(state, places, to, spelled)
        self._leave_out_dead_ends()

    def _spell(
        self,
        state: int,
        places: tuple[tuple[int, int], ...],
        to: int,
        spelled: dict[tuple[tuple[tuple[int, int], ...], int], int],
    ) -> None:
        (low, high), *rest = places
        if not rest:
            self.arcs[state].append((low, high, to))
            return
        key = (tuple(rest), to)
        known = spelled.get(key)
        if known is None:
            known = spelled[key] = len(self.arcs)
            self._empty.append([])
            self.arcs.append([])
            self._spell(known, key[0], to, spelled)
        self.arcs[state].append((low, high, known))

    def _leave_out_dead_ends(self) -> None:
        before: list[list[int]] = [[] for _ in self.arcs]
        for state, arcs in enumerate(self.arcs):
            for to in {arc[2] for arc in arcs} | {*self._empty[state]}:
                before[to].append(state)
        live, left = {self.accepting}, [self.accepting]
        while left:
            for state in before[left.pop()]:
                if state not in live:
                    live.add(state)
                    left.append(state)
        for state in range(len(self.arcs)):
            self._empty[state] = [to for to in self._empty[state] if to in live]
            self.arcs[state] = [arc for arc in self.arcs[state] if arc[2] in live]

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """The states with bytes to read, or accepting, that empty moves reach."""
        seen, left = set(states), list(states)
        while left:
            for to in self._empty[left.pop()]:
                if to not in seen:
                    seen.add(to)
                    left.append(to)
        return frozenset(one for one in seen if self.arcs[one] or one == self.accepting)


# -- the tokens of a vocabulary that may follow in a state of an automaton, found where asked ------


Walk = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Tokens that may follow, and the state after each."""
_KEPT_BYTES = 32_000_000


class TokenWalks:
    """Walks of all tokens from a state; those asked for last are kept.

    A token without bytes (a special one) is never walked.
    """

    def __init__(self, automaton: ByteAutomaton, vocabulary: Sequence[bytes]) -> None:
        self.automaton = automaton
        lengths = np.array([len(token) for token in vocabulary], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        self._bytes = np.frombuffer(b"".join(vocabulary), np.uint8)
        self._lengths = lengths
        self._tokens = np.flatnonzero(lengths).astype(np.int32)
        self._kept: OrderedDict[int, Walk] = OrderedDict()
        self._kept_bytes = 0

    def __call__(self, state: int) -> Walk:
        """Tokens that can follow in a state, and the states after them.

        Raises:
            FullAutomatonError: the automaton outgrew its memory.
        """
        found = self._kept.get(state)
        if found is not None:
            self._kept.move_to_end(state)
            return found
        found = self._walk(state)
        self._kept[state] = found
        self._kept_bytes += found[0].nbytes + found[1].nbytes
        while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
            _, (tokens, states) = self._kept.popitem(last=False)
            self._kept_bytes -= tokens.nbytes + states.nbytes
        return found

    def _walk(self, state: int) -> Walk:
        tokens = self._tokens
        states = np.full(tokens.size, state, np.int32)
        ended_tokens, ended_states = [], []
        place = 0
        while tokens.size:
            self.automaton.fill(states)
            states = self.automaton.table[states, self._bytes[self._starts[tokens] + place]]
            place += 1
            alive = states != DEAD
            tokens, states = tokens[alive], states[alive]
            ended = self._lengths[tokens] == place
            ended_tokens.append(tokens[ended])
            ended_states.append(states[ended])
            tokens, states = tokens[~ended], states[~ended]
        if not ended_tokens:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        return np.concatenate(ended_tokens), np.concatenate(ended_states)
