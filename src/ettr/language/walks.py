"""The tokens of a vocabulary that may follow in a state of an automaton, found where asked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ettr.language.automaton import DEAD, ByteAutomaton

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
