"""Matrix factorisation by alternating least squares; a unit is a row of L or a column of R.

An iteration solves L from R, then R from L. So a failure between iterations that takes rows of L
costs nothing by construction, and only what is lost of R matters. The order is this package's: the
paper leaves it open.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reproduction.scar.compiled import compiled
from reproduction.scar.workload import Floats, State, keyed, unit_norms

F32 = NDArray[np.float32]
CHUNK = 1024  # users at a time, so that their normal equations stay in the cache


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

        Raises:
            UsageError: Numba is not installed.
        """
        self.name = name
        seen = ~np.isnan(ratings)
        self._seen = seen.astype(np.float32)
        centred = np.where(seen, ratings - ratings[seen].mean(), 0).astype(np.float32)
        self._x = centred / np.float32(centred[seen].std())
        self._square = float(np.square(self._x, dtype=np.float64).sum())
        self._users, self._items = ratings.shape
        self._rank, self._penalty = rank, penalty
        self._pairs = [(i, j) for i in range(rank) for j in range(i + 1)]
        self._solve = compiled(solve)
        self.offsets = np.arange(self._users + self._items + 1)

    def start(self, stream: int) -> State:
        """Small random factors of one stream."""
        shape = (self._users + self._items, self._rank)
        return (0.1 * keyed(stream, 31).standard_normal(shape)).astype(np.float32)

    def advance(
        self, states: Sequence[State], iteration: int, stream: int
    ) -> tuple[list[State], Floats]:
        """One sweep, L from R and R from L, of all states at once.

        The loss is the objective per rating, from the normal equations that the sweep needs anyway.
        """
        count, users = len(states), self._users
        right = np.stack([state[users:] for state in states])
        after = np.empty((count, *states[0].shape), dtype=np.float32)
        fits = np.zeros(count)
        products, factors = self._products(right)
        gram = np.zeros((products.shape[0], self._items), dtype=np.float32)
        target = np.zeros((factors.shape[0], self._items), dtype=np.float32)
        for at in range(0, users, CHUNK):
            part = slice(at, min(at + CHUNK, users))
            seen, x = self._seen[part], self._x[part]
            before = np.stack([state[part] for state in states])
            left, fit = self._solved(products @ seen.T, factors @ x.T, before)
            after[:, part] = left
            fits += fit
            by_user, of_user = self._products(left)
            gram += by_user @ seen
            target += of_user @ x
        after[:, users:], _ = self._solved(gram, target, right)
        sizes = [np.square(state, dtype=np.float64).sum() for state in states]
        losses = (self._square + fits + self._penalty * np.array(sizes)) / float(self._seen.sum())
        return list(after), losses

    def moved(self, now: State, saved: State) -> Floats:
        """The L2 distance of each row of L and each column of R."""
        return unit_norms(now - saved, self.offsets)

    def _products(self, fixed: F32) -> tuple[F32, F32]:
        """Products of the pairs of factors and the factors, shape (pairs or k × states, n)."""
        across = fixed.transpose(2, 0, 1)
        one, two = ([pair[side] for pair in self._pairs] for side in (0, 1))
        n = fixed.shape[1]
        factors = np.ascontiguousarray(across.reshape(-1, n))
        return (across[one] * across[two]).reshape(-1, n), factors

    def _solved(self, gram: F32, target: F32, before: F32) -> tuple[F32, Floats]:
        """The new factors (states, n, k), and Σ l·Gl − 2 l·t of the old ones a state."""
        count, n = before.shape[:2]
        after, fits = np.empty_like(before), np.zeros(count)
        self._solve(
            gram.reshape(-1, count, n),
            target.reshape(-1, count, n),
            self._penalty,
            before,
            after,
            fits,
        )
        return after, fits


def solve(gram: F32, target: F32, penalty: float, before: F32, after: F32, fits: Floats) -> None:
    """Solve many small normal equations (G + λ) l = t by Cholesky's decomposition.

    Args:
        gram: the lower triangle of G row by row, shape (k (k + 1) / 2, states, n).
        target: t, shape (k, states, n).
        penalty: λ.
        before: the factors now in place, shape (states, n, k).
        after: the solutions, written, shape (states, n, k).
        fits: Σ l·Gl − 2 l·t of the factors in place, added to, shape (states,).
    """
    k = target.shape[0]
    low = np.empty((k, k))
    y = np.empty(k)
    for state in range(target.shape[1]):
        for one in range(target.shape[2]):
            place = 0
            for i in range(k):
                here = before[state, one, i]
                fits[state] -= 2.0 * here * target[i, state, one]
                for j in range(i + 1):
                    value = float(gram[place, state, one])
                    place += 1
                    twice = 1.0 if i == j else 2.0
                    fits[state] += twice * here * before[state, one, j] * value
                    if i == j:
                        value += penalty
                    for m in range(j):
                        value -= low[i, m] * low[j, m]
                    low[i, j] = np.sqrt(value) if i == j else value / low[j, j]
                value = float(target[i, state, one])
                for m in range(i):
                    value -= low[i, m] * y[m]
                y[i] = value / low[i, i]
            for i in range(k - 1, -1, -1):
                value = y[i]
                for m in range(i + 1, k):
                    value -= low[m, i] * y[m]
                y[i] = value / low[i, i]
                after[state, one, i] = y[i]
