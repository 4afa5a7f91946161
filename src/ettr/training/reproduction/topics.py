"""LDA by collapsed Gibbs sampling; a unit is a document's topic assignment.

The sampler is the sequential one (Griffiths and Steyvers, "Finding scientific topics", PNAS 2004):
each token in turn is taken out of the counts and drawn from what all other tokens say at that
moment. The counts are rebuilt from the assignments every sweep, so after a restore they agree with
them.

A run starts from topics dealt out one token after another by the same rule, each from the tokens
dealt before it. From topics at random a sampler spends its first sweeps, hundreds of them, in
breaking a tie between like topics, and throwing half of the documents back to random topics then
makes it faster: a disturbance would seem to have a negative cost.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ettr.training.reproduction.compiled import compiled
from ettr.training.reproduction.workload import Floats, State, keyed

Counts = NDArray[np.int32]
NONE = 255  # the topic of a token that has none yet


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
    ) -> None:
        """Prepare the corpus.

        Args:
            name: of the experiment.
            words: type of each token from 0 up, documents one after another, shape (tokens,).
            lengths: tokens of each document, none empty, shape (documents,).
            topics: K, at most 254.
            alpha: prior weight of a topic in a document.
            beta: prior weight of a type in a topic.

        Raises:
            UsageError: Numba is not installed.
        """
        self.name = name
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self._topics, self._alpha, self._beta = topics, float(alpha), float(beta)
        self._types = int(words.max()) + 1
        self._words = words.astype(np.int32)
        self._sweep = compiled(sweep)
        # the shares of a document's topics, before they are made to sum to one, sum to this
        room = np.log(lengths - 1 + topics * alpha)
        self._constant = float((lengths * room).sum())

    def start(self, stream: int) -> State:
        """Topics dealt out one after another, documents in random order."""
        rng = keyed(stream, 47)
        state = np.full(self._words.size, NONE, dtype=np.uint8)
        order = rng.permutation(self.offsets.size - 1)
        self._draw(state, order, rng.random(self._words.size, dtype=np.float32))
        return state

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """One sweep of each state with the same random numbers.

        The loss is the negative log likelihood per token as the sweep sees it: that of each token's
        type given all other assignments, just before its topic is drawn again.
        """
        draws = keyed(stream, iteration).random(self._words.size, dtype=np.float32)
        order = np.arange(self.offsets.size - 1)
        results = [np.array(state) for state in states]
        seen = np.array([self._draw(state, order, draws) for state in results])
        return results, (self._constant - seen) / self._words.size

    def moved(self, now: State, saved: State) -> Floats:
        """The tokens of each document that changed topic."""
        return np.add.reduceat((now != saved).astype(np.float64), self.offsets[:-1])

    def _draw(self, state: State, order: NDArray[np.int64], draws: NDArray[np.float32]) -> float:
        """One sweep in place; the sum of the log likelihoods."""
        known = np.flatnonzero(state != NONE)
        flat = self._words[known].astype(np.int64) * self._topics + state[known]
        by_type = np.bincount(flat, minlength=self._types * self._topics).astype(np.int32)
        return self._sweep(
            state,
            by_type.reshape(self._types, self._topics),
            self._words,
            self.offsets,
            order,
            draws,
            self._alpha,
            self._beta,
        )


def sweep(
    assigned: State,
    by_type: Counts,
    words: Counts,
    offsets: NDArray[np.int64],
    order: NDArray[np.int64],
    draws: NDArray[np.float32],
    alpha: float,
    beta: float,
) -> float:
    """Draw every token's topic anew, in place, and return the sum of their log likelihoods.

    A token whose topic is NONE is in no count and is drawn from the tokens that are.

    Args:
        assigned: the topic of each token; changed, shape (tokens,).
        by_type: tokens of each type in each topic; changed, shape (types, topics).
        words: the type of each token, shape (tokens,).
        offsets: first token of each document, and the number of tokens, shape (documents + 1,).
        order: the documents as they are drawn one after another, shape (documents,).
        draws: uniform in [0, 1), one a token.
        alpha: prior weight of a topic in a document.
        beta: prior weight of a type in a topic.
    """
    types, topics = by_type.shape
    weight = types * beta
    size = np.zeros(topics)
    for one in range(types):
        for topic in range(topics):
            size[topic] += by_type[one, topic]
    scale = 1.0 / (size + weight)
    share = np.empty(topics)
    upto = np.empty(topics)
    seen = 0.0
    for document in order:
        tokens = range(offsets[document], offsets[document + 1])
        share[:] = alpha
        for token in tokens:
            if assigned[token] != NONE:
                share[assigned[token]] += 1.0
        for token in tokens:
            word, topic = words[token], int(assigned[token])
            if topic != NONE:
                by_type[word, topic] -= 1
                share[topic] -= 1.0
                size[topic] -= 1.0
                scale[topic] = 1.0 / (size[topic] + weight)
            total = 0.0
            for one in range(topics):
                total += (by_type[word, one] + beta) * scale[one] * share[one]
                upto[one] = total
            at = draws[token] * total
            topic = 0
            while topic < topics - 1 and upto[topic] <= at:
                topic += 1
            assigned[token] = topic
            by_type[word, topic] += 1
            share[topic] += 1.0
            size[topic] += 1.0
            scale[topic] = 1.0 / (size[topic] + weight)
            seen += np.log(total)
    return seen
