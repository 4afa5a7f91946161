"""A regular expression as an automaton over bytes, whose states are made when they are reached.

Made at once, the states of `.*a.{20}` are 2 million; a search reaches few.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ettr.errors import EttrError, UsageError
from ettr.language.expressions import CharacterAutomaton, Ranges, parsed, utf8_sequences

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
