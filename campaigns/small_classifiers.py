"""Features and a classifier that train in a tenth of a second, for campaigns about samples."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import optimize, special

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
MNIST = Path(__file__).resolve().parents[2] / "shared" / "data" / "training" / "mnist"


def mnist(part: str) -> tuple[Floats, Ints]:
    """Digits (n, 28, 28) in 0 to 1, and their labels; `part` is train or t10k."""
    pixels = gzip.decompress((MNIST / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((MNIST / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28) / 255
    return images, np.frombuffer(labels, np.uint8, offset=8).astype(np.intp)


class PatchFeatures:
    """Convolution with patches of the training images, rectified and pooled in quadrants."""

    def __init__(
        self, images: Floats, rng: np.random.Generator, n_filters: int = 64, size: int = 6
    ) -> None:
        windows = sliding_window_view(images, (size, size), axis=(1, 2))
        n_images, height, width = windows.shape[:3]
        of = rng.integers(n_images, size=8 * n_filters)
        rows, columns = (rng.integers(side, size=8 * n_filters) for side in (height, width))
        patches = windows[of, rows, columns].reshape(8 * n_filters, -1)
        patches = patches - patches.mean(1, keepdims=True)
        busy = np.argsort(-patches.std(1))[:n_filters]
        chosen = patches[busy]
        self._filters = (chosen / np.linalg.norm(chosen, axis=1, keepdims=True)).T
        self._size = size
        raw = self._raw(images)
        self._mean, self._scale = raw.mean(0), raw.std(0) + 1e-6

    def _raw(self, images: Floats) -> Floats:
        parts: list[Floats] = []
        for some in np.array_split(images, max(1, len(images) // 200)):
            windows = sliding_window_view(some, (self._size, self._size), axis=(1, 2))
            n, height, width = windows.shape[:3]
            said = windows.reshape(n * height * width, -1) @ self._filters
            maps = np.maximum(said - 0.5, 0).reshape(n, height, width, -1)
            half_h, half_w = height // 2, width // 2
            quadrants = [
                maps[:, rows, columns].mean((1, 2))
                for rows in (slice(0, half_h), slice(half_h, None))
                for columns in (slice(0, half_w), slice(half_w, None))
            ]
            parts.append(np.concatenate(quadrants, axis=1))
        return np.concatenate(parts)

    def __call__(self, images: Floats) -> Floats:
        """(n, 4 · n_filters) features, standardised, with a constant."""
        scaled = (self._raw(images) - self._mean) / self._scale
        return np.concatenate([scaled, np.ones((len(images), 1))], axis=1)


def fitted(
    features: Floats,
    labels: Ints,
    n_classes: int,
    weights: Floats | None = None,
    ridge: float = 3e-3,
) -> Floats:
    """Weights (n_features, n_classes) of a logistic layer, by L-BFGS."""
    n, d = features.shape
    own = np.ones(n) if weights is None else weights
    total = own.sum()
    targets = np.eye(n_classes)[labels]

    def loss(flat: Floats) -> tuple[float, Floats]:
        layer = flat.reshape(d, n_classes)
        scores = features @ layer
        logs = special.log_softmax(scores, axis=1)
        value = -(own * (targets * logs).sum(1)).sum() / total + ridge / 2 * (flat**2).sum()
        slope = features.T @ (own[:, None] * (np.exp(logs) - targets)) / total + ridge * layer
        return float(value), slope.ravel()

    found = optimize.minimize(
        loss, np.zeros(d * n_classes), jac=True, method="L-BFGS-B", options={"maxiter": 60}
    )
    return np.asarray(found.x).reshape(d, n_classes)


def probabilities(layer: Floats, features: Floats) -> Floats:
    """(n, n_classes) of the layer."""
    return np.asarray(special.softmax(features @ layer, axis=1))
