"""Matrix factorisation by alternating least squares; a unit is a row of L or a column of R.

An iteration solves L from R, then R from L. So a failure between iterations that takes rows of L
costs nothing by construction, and only what is lost of R matters. The order is this package's: the
paper leaves it open.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ettr.training.reproduction.workload import Floats, State, keyed, unit_norms

F32 = NDArray[np.float32]


class Factorisation:
    """min Σ_seen (x − l·r)² + λ(‖L‖² + ‖R‖²); the state is L above R, shape (users + items, k)."""

    random = False

    def __init__(self, name: str, ratings: F32, *, rank: int, penalty: float) -> None:
        """Prepare the ratings.

        Args:
            name: of the experiment.
            ratings: shape (users, items), nan where not rated.
            rank: k.
            penalty: λ.
        """
        self.name = name
        seen = ~np.isnan(ratings)
        self._seen = seen.astype(np.float32)
        centred = np.where(seen, ratings - ratings[seen].mean(), 0).astype(np.float32)
        self._x = centred / np.float32(centred[seen].std())
        self._square = float(np.square(self._x, dtype=np.float64).sum())
        self._users, self._items = ratings.shape
        self._rank, self._penalty = rank, np.float32(penalty)
        self._seen_t = np.ascontiguousarray(self._seen.T)
        self._x_t = np.ascontiguousarray(self._x.T)
        self._pairs = [(i, j) for i in range(rank) for j in range(i, rank)]
        self.offsets = np.arange(self._users + self._items + 1)

    def start(self, stream: int) -> State:
        """Small random factors of one stream."""
        shape = (self._users + self._items, self._rank)
        return (0.1 * keyed(stream, 31).standard_normal(shape)).astype(np.float32)

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """One sweep, L from R and R from L, of all states at once."""
        left = np.stack([s[: self._users] for s in states])
        right = np.stack([s[self._users :] for s in states])
        gram, target = self._normal(self._seen, self._x, right)
        losses = self._loss(left, right, gram, target)
        left = self._solve(gram, target)
        gram, target = self._normal(self._seen_t, self._x_t, left)
        right = self._solve(gram, target)
        return [np.concatenate([a, b]) for a, b in zip(left, right, strict=True)], losses

    def moved(self, now: State, saved: State) -> Floats:
        """The L2 distance of each row of L and each column of R."""
        return unit_norms(now - saved, self.offsets)

    def _normal(self, seen: F32, x: F32, fixed: F32) -> tuple[F32, F32]:
        """The normal equations of one side: grams (pairs, states, n), targets (k, states, n)."""
        states, items, _ = fixed.shape
        one, two = ([pair[side] for pair in self._pairs] for side in (0, 1))
        products = fixed[:, :, one] * fixed[:, :, two]
        gram = products.transpose(2, 0, 1).reshape(-1, items) @ seen.T
        target = fixed.transpose(2, 0, 1).reshape(-1, items) @ x.T
        return (
            np.asarray(gram.reshape(len(one), states, -1)),
            np.asarray(target.reshape(self._rank, states, -1)),
        )

    def _solve(self, gram: F32, target: F32) -> F32:
        """Cholesky of many small systems at once, the systems along the last axis."""
        place = {pair: i for i, pair in enumerate(self._pairs)}
        k = self._rank
        low: dict[tuple[int, int], F32] = {}
        y: list[F32] = []
        for j in range(k):
            for i in range(j, k):
                value = gram[place[(j, i)]] + (self._penalty if i == j else 0)
                for m in range(j):
                    value = value - low[(i, m)] * low[(j, m)]
                low[(i, j)] = np.sqrt(value) if i == j else value / low[(j, j)]
        for i in range(k):
            value = target[i]
            for m in range(i):
                value = value - low[(i, m)] * y[m]
            y.append(value / low[(i, i)])
        for i in reversed(range(k)):
            for m in range(i + 1, k):
                y[i] = y[i] - low[(m, i)] * y[m]
            y[i] = y[i] / low[(i, i)]
        return np.ascontiguousarray(np.stack(y, axis=-1))

    def _loss(self, left: F32, right: F32, gram: F32, target: F32) -> Floats:
        """The objective per rating, from the normal equations that the sweep needs anyway."""
        columns = left.transpose(2, 0, 1).astype(np.float64)
        total = np.full(left.shape[0], self._square)
        total -= 2 * (columns * target).sum(axis=(0, 2))
        for index, (i, j) in enumerate(self._pairs):
            weight = 1 if i == j else 2
            total += weight * (columns[i] * columns[j] * gram[index]).sum(axis=1)
        for factor in (left, right):
            total += self._penalty * np.square(factor, dtype=np.float64).sum(axis=(1, 2))
        return np.asarray(total / float(self._seen.sum()))
