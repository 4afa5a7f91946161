"""Multinomial logistic regression by stochastic gradient descent; a unit is a row of the weights.

The batch of an iteration depends on the iteration alone, and the loss is taken on a fixed part of
the training set, so a run that lost nothing repeats itself.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reproduction.scar.workload import Floats, State, keyed, unit_norms

F32 = NDArray[np.float32]


class Regression:
    """Softmax regression on features (n, f), weights (f + 1, classes) with a row for the bias."""

    random = False

    def __init__(
        self,
        name: str,
        features: F32,
        labels: NDArray[np.int64],
        *,
        rate: float,
        batch: int,
        judged: int,
        decay: float = 1e-4,
    ) -> None:
        """Prepare the data.

        Args:
            name: of the experiment.
            features: shape (examples, features).
            labels: classes from 0 up, shape (examples,).
            rate: learning rate.
            batch: examples an iteration.
            judged: examples on which the loss is taken, the same always.
            decay: weight of ½‖W‖², which makes the loss strongly convex.
        """
        self.name = name
        ones = np.ones((features.shape[0], 1), dtype=np.float32)
        self._x = np.ascontiguousarray(np.hstack([features, ones]))
        self._classes = int(labels.max()) + 1
        self._y = labels
        self._rate, self._batch, self._decay = rate, batch, decay
        chosen = keyed(5).choice(labels.size, size=min(judged, labels.size), replace=False)
        self._judged_x, self._judged_y = self._x[chosen], labels[chosen]
        self.offsets = np.arange(self._x.shape[1] + 1)

    def start(self, stream: int) -> State:
        """All zero, whatever the stream."""
        return np.zeros((self._x.shape[1], self._classes), dtype=np.float32)

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """One batch for all states at once: they stand side by side as columns."""
        rows = keyed(stream, iteration).integers(0, self._y.size, size=self._batch)
        x, y = self._x[rows], self._y[rows]
        weights = np.concatenate(states, axis=1)
        losses = self._loss(weights, len(states))
        error = self._softmax(x @ weights, len(states))
        error[np.arange(y.size), :, y] -= 1
        slope = x.T @ error.reshape(y.size, -1) / np.float32(y.size)
        weights = weights - np.float32(self._rate) * (slope + np.float32(self._decay) * weights)
        return [np.ascontiguousarray(w) for w in np.split(weights, len(states), axis=1)], losses

    def moved(self, now: State, saved: State) -> Floats:
        """The L2 distance of each row."""
        return unit_norms(now - saved, self.offsets)

    def _softmax(self, scores: F32, count: int) -> F32:
        scores = scores.reshape(scores.shape[0], count, self._classes)
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        scores /= scores.sum(axis=2, keepdims=True)
        return scores

    def _loss(self, weights: F32, count: int) -> Floats:
        chance = self._softmax(self._judged_x @ weights, count)
        right = chance[np.arange(self._judged_y.size), :, self._judged_y]
        fit = -np.log(np.maximum(right, 1e-30)).astype(np.float64).mean(axis=0)
        size = np.square(weights, dtype=np.float64).reshape(-1, count, self._classes)
        return np.asarray(fit + 0.5 * self._decay * size.sum(axis=(0, 2)))
