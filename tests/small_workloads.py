"""Small workloads of the reproduction, each of a kind: regression, factorisation, topics."""

import numpy as np

from reproduction.scar.factorisation import Factorisation
from reproduction.scar.regression import Regression
from reproduction.scar.topics import Topics
from reproduction.scar.trials import Settings

SETTINGS = Settings(iterations=32, interval=8, grid="large")


def regression() -> Regression:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 12)).astype(np.float32)
    y = np.argmax(x[:, :3] + 0.3 * rng.normal(size=(300, 3)), axis=1)
    return Regression("mlr-small", x, y, rate=0.1, batch=100, judged=200)


def factorisation() -> Factorisation:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 12)) + 0.5 * rng.normal(size=(40, 12))
    x[rng.random(x.shape) < 0.4] = np.nan
    return Factorisation("mf-small", x.astype(np.float32), rank=3, penalty=0.5)


def topics() -> Topics:
    rng = np.random.default_rng(3)
    lengths = rng.integers(5, 40, size=30)
    words = np.concatenate([rng.integers(0, 20, n) + 20 * (i % 3) for i, n in enumerate(lengths)])
    return Topics("lda-small", words, lengths, topics=8)
