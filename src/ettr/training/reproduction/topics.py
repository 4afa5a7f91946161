"""LDA by block-synchronous collapsed Gibbs sampling; a unit is a document's topic assignment.

The tokens are dealt into a few interleaved blocks. Within a block all tokens are drawn at once from
the counts as they stood before it (each without its own count); between blocks the counts are
brought up to date. That is the stale-count scheme of distributed samplers (Newman, Asuncion, Smyth
and Welling, "Distributed Algorithms for Topic Models", JMLR 2009), an approximation of the
sequential sampler: it is not exact Gibbs. The counts are rebuilt from the assignments every sweep,
so after a restore they agree with them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ettr.training.reproduction.workload import Floats, State, keyed

CHUNK = 4096  # tokens at a time, so that a chunk's table of topics stays in the cache


class Topics:
    """LDA on a corpus; the state is the topic of each token, uint8, documents one after another."""

    random = True

    def __init__(
        self,
        name: str,
        words: NDArray[np.int64],
        lengths: NDArray[np.int64],
        *,
        topics: int = 16,
        alpha: float = 0.1,
        beta: float = 0.01,
        blocks: int = 4,
    ) -> None:
        """Prepare the corpus.

        Args:
            name: of the experiment.
            words: type of each token from 0 up, documents one after another, shape (tokens,).
            lengths: tokens of each document, none empty, shape (documents,).
            topics: K, at most 255.
            alpha: prior weight of a topic in a document.
            beta: prior weight of a type in a topic.
            blocks: parts of a sweep between which the counts are brought up to date.
        """
        self.name = name
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self._topics, self._alpha, self._beta = topics, np.float32(alpha), np.float32(beta)
        self._types = int(words.max()) + 1
        self._lengths = lengths
        documents = np.repeat(np.arange(lengths.size), lengths)
        self._words, self._documents = words.astype(np.int64), documents
        self._parts = [(words[b::blocks] * 1, documents[b::blocks] * 1) for b in range(blocks)]
        self._below = np.triu(np.ones((topics, topics), dtype=np.float32))
        room = np.log(lengths - 1 + topics * alpha)
        self._constant = float((lengths * room).sum())

    def start(self, stream: int) -> State:
        """Topics at random."""
        return keyed(stream, 47).integers(0, self._topics, self._words.size).astype(np.uint8)

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """One sweep of each state with the same random numbers."""
        draws = keyed(stream, iteration).random(self._words.size, dtype=np.float32)
        done = [self._sweep(state, draws) for state in states]
        return [state for state, _ in done], np.array([loss for _, loss in done])

    def moved(self, now: State, saved: State) -> Floats:
        """The tokens of each document that changed topic."""
        return np.add.reduceat((now != saved).astype(np.float64), self.offsets[:-1])

    def _sweep(self, state: State, draws: NDArray[np.float32]) -> tuple[State, float]:
        """The new assignment, and the negative log likelihood per token seen on the way.

        The likelihood of a token is that of its type given all other assignments, before it is
        drawn again.
        """
        by_type = self._count(self._words, state, self._types)
        by_document = self._count(self._documents, state, self._lengths.size)
        result = np.array(state)
        blocks = len(self._parts)
        seen = 0.0
        for block, (words, documents) in enumerate(self._parts):
            before = state[block::blocks].astype(np.int64)
            u = draws[block::blocks]
            after = np.empty_like(before)
            scale = 1 / (by_type.sum(axis=0) + self._types * self._beta)
            likely = (by_type + self._beta) * scale
            share = by_document + self._alpha
            for at in range(0, words.size, CHUNK):
                part = slice(at, at + CHUNK)
                after[part], likelihood = self._draw(
                    likely.take(words[part], axis=0),
                    share.take(documents[part], axis=0),
                    before[part],
                    u[part],
                    scale,
                )
                seen += likelihood
            moved = np.flatnonzero(after != before)
            for table, rows in ((by_type, words[moved]), (by_document, documents[moved])):
                flat = table.reshape(-1)
                np.add.at(flat, rows * self._topics + after[moved], np.float32(1))
                np.subtract.at(flat, rows * self._topics + before[moved], np.float32(1))
            result[block::blocks] = after
        return result, (self._constant - seen) / self._words.size

    def _draw(
        self,
        chance: NDArray[np.float32],
        share: NDArray[np.float32],
        before: NDArray[np.int64],
        u: NDArray[np.float32],
        scale: NDArray[np.float32],
    ) -> tuple[NDArray[np.int64], float]:
        """New topics of a chunk of tokens and the sum of their log likelihoods."""
        own = np.arange(before.size) * self._topics + before
        own_scale = scale.take(before)
        rest = chance.reshape(-1)
        rest[own] = (rest.take(own) - own_scale) / (1 - own_scale)  # without the token itself
        share.reshape(-1)[own] -= 1
        chance *= share
        upto = chance @ self._below
        total = upto[:, -1]
        drawn = (upto < (u * total)[:, None]).astype(np.float32) @ np.ones(
            self._topics, dtype=np.float32
        )
        np.minimum(drawn, self._topics - 1, out=drawn)
        return drawn.astype(np.int64), float(np.log(total).sum(dtype=np.float64))

    def _count(
        self, rows: NDArray[np.int64], topics: NDArray[np.integer], size: int
    ) -> NDArray[np.float32]:
        """How many tokens of each row have each topic, shape (size, topics)."""
        flat = np.bincount(rows * self._topics + topics, minlength=size * self._topics)
        return flat.reshape(size, self._topics).astype(np.float32)
