"""LDA by collapsed Gibbs sampling; a unit is a document's topic assignment.

The sampler is the sequential one (Griffiths and Steyvers, "Finding scientific topics", PNAS 2004):
each token in turn is taken out of the counts and drawn from what all other tokens say at that
moment. The counts are made from the assignments at the head of every sweep, so after a restore they
agree with them.

A run starts from topics dealt out one token after another by the same rule, each from the tokens
dealt before it. From topics at random a sampler spends its first sweeps, over a hundred here, in
breaking a tie between like topics, and throwing half of the documents back to random topics then
makes it faster: a disturbance would seem to have a negative cost.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reproduction.scar.compiled import compiled
from reproduction.scar.workload import Floats, State, keyed

Counts = NDArray[np.int32]
NONE = 255  # the topic of a token that has none yet
TOGETHER = 8  # arms swept side by side: their chains of sums do not wait for one another


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
        self.topics, self._alpha, self._beta = topics, float(alpha), float(beta)
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
        (dealt,), _ = self._swept([state], order, rng.random(self._words.size, dtype=np.float32))
        return dealt

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """One sweep of each state with the same random numbers.

        The loss is the negative log likelihood per token as the sweep sees it: that of each token's
        type given all other assignments, just before its topic is drawn again.
        """
        draws = keyed(stream, iteration).random(self._words.size, dtype=np.float32)
        order = np.arange(self.offsets.size - 1)
        results: list[State] = []
        losses: list[Floats] = []
        for at in range(0, len(states), TOGETHER):
            after, seen = self._swept(states[at : at + TOGETHER], order, draws)
            results += after
            losses.append((self._constant - seen) / self._words.size)
        return results, np.concatenate(losses)

    def moved(self, now: State, saved: State) -> Floats:
        """The tokens of each document that changed topic."""
        return np.add.reduceat((now != saved).astype(np.float64), self.offsets[:-1])

    def _swept(
        self, states: Sequence[State], order: NDArray[np.int64], draws: NDArray[np.float32]
    ) -> tuple[list[State], Floats]:
        """The states after a sweep, and the log likelihood that it saw of each."""
        assigned, seen = np.stack(states, axis=1), np.zeros(len(states))
        self._sweep(
            assigned,
            self._words,
            self.offsets,
            order,
            draws,
            (self._types, self.topics),
            (self._alpha, self._beta),
            seen,
        )
        return [np.ascontiguousarray(assigned[:, arm]) for arm in range(len(states))], seen


def sweep(
    assigned: State,
    words: Counts,
    offsets: NDArray[np.int64],
    order: NDArray[np.int64],
    draws: NDArray[np.float32],
    sizes: tuple[int, int],
    priors: tuple[float, float],
    seen: Floats,
) -> None:
    """Redraw every token's topic, in place, in each of several arms that are independent.

    A token whose topic is NONE is in no count and is drawn from the tokens that are.

    Args:
        assigned: the topic of each token; changed, shape (tokens, arms).
        words: the type of each token, shape (tokens,).
        offsets: first token of each document, and the number of tokens, shape (documents + 1,).
        order: the documents as they are drawn one after another, shape (documents,).
        draws: uniform in [0, 1), one a token, the same for all arms.
        sizes: how many types and topics there are.
        priors: weight of a topic in a document (α) and of a type in a topic (β).
        seen: the log likelihoods of all tokens are added to it, shape (arms,).
    """
    (types, topics), (alpha, beta), arms = sizes, priors, assigned.shape[1]
    weight = types * beta
    by_type = np.zeros((types, arms, topics), dtype=np.int32)
    size = np.zeros((arms, topics))
    for token in range(words.size):
        for arm in range(arms):
            if assigned[token, arm] != NONE:
                by_type[words[token], arm, assigned[token, arm]] += 1
                size[arm, assigned[token, arm]] += 1.0
    scale = 1.0 / (size + weight)
    share = np.empty((arms, topics))
    upto = np.empty((arms, topics))
    for document in order:
        tokens = range(offsets[document], offsets[document + 1])
        share[:] = alpha
        for token in tokens:
            for arm in range(arms):
                if assigned[token, arm] != NONE:
                    share[arm, assigned[token, arm]] += 1.0
        for token in tokens:
            word = words[token]
            for arm in range(arms):
                topic = int(assigned[token, arm])
                if topic != NONE:
                    by_type[word, arm, topic] -= 1
                    share[arm, topic] -= 1.0
                    size[arm, topic] -= 1.0
                    scale[arm, topic] = 1.0 / (size[arm, topic] + weight)
                total = 0.0
                for one in range(topics):
                    total += (by_type[word, arm, one] + beta) * scale[arm, one] * share[arm, one]
                    upto[arm, one] = total
                at = draws[token] * total
                topic = 0
                while topic < topics - 1 and upto[arm, topic] <= at:
                    topic += 1
                assigned[token, arm] = topic
                by_type[word, arm, topic] += 1
                share[arm, topic] += 1.0
                size[arm, topic] += 1.0
                scale[arm, topic] = 1.0 / (size[arm, topic] + weight)
                seen[arm] += np.log(total)
