"""The experiments by name: which data, which algorithm, which settings. All numbers here are ours.

The paper's batch sizes, rates, ranks, topics, thresholds, intervals and failure rate are not known
to this package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.scar import data
from reproduction.scar.factorisation import Factorisation
from reproduction.scar.regression import Regression
from reproduction.scar.topics import Topics
from reproduction.scar.trials import Settings
from reproduction.scar.workload import Workload


@dataclass(frozen=True, slots=True)
class Experiment:
    """One row of the table: how to build it, how to run it, what is ours in it."""

    name: str
    build: Callable[[Path, int], Workload]  # data folder; every how-manieth document of a corpus
    settings: Settings
    ours: str


def _mnist_regression(folder: Path, _every: int) -> Workload:
    pixels, labels = data.mnist(folder / "mnist")
    return Regression("mlr-mnist", pixels, labels, rate=0.1, batch=500, judged=1000)


def _covtype_regression(folder: Path, _every: int) -> Workload:
    features, labels = data.covtype(folder / "covtype")
    return Regression("mlr-covtype", features, labels, rate=0.1, batch=1000, judged=5000)


def _jester_factorisation(folder: Path, _every: int) -> Workload:
    return Factorisation("mf-jester", data.jester(folder / "jester"), rank=5, penalty=1.0)


def movielens(path: Path) -> Experiment:
    """Matrix factorisation on a MovieLens file of the user's."""
    return Experiment(
        "mf-movielens",
        lambda _folder, _every: Factorisation(
            "mf-movielens", data.movielens(path), rank=5, penalty=5.0
        ),
        Settings(iterations=64, interval=16, grid="large"),
        "rank 5, λ 5, L before R",
    )


def _topics(name: str, corpus: tuple[data.Ints, data.Ints], every: int) -> Topics:
    """LDA on every `every`-th document of a large corpus."""
    words, lengths = corpus
    taken = np.arange(lengths.size) % every == 0
    words = words[np.repeat(taken, lengths)]
    return Topics(name, np.unique(words, return_inverse=True)[1], lengths[taken])


def _cnn(folder: Path, by: str) -> Workload:
    from reproduction.scar.network import network

    return network(folder / "mnist", by)


EXPERIMENTS = (
    Experiment(
        "mlr-mnist",
        _mnist_regression,
        Settings(iterations=128, interval=32, grid="full", streams=16),
        "all 60,000 digits, batch 500, rate 0.1, loss on 1,000 of them; 785 rows",
    ),
    Experiment(
        "mf-jester",
        _jester_factorisation,
        Settings(iterations=64, interval=16, grid="full", streams=16),
        "all 24,983 users, rank 5, λ 1, L before R",
    ),
    Experiment(
        "lda-reuters395",
        lambda folder, _every: Topics(
            "lda-reuters395", *data.reuters_395(folder / "reuters-lda395")
        ),
        Settings(iterations=64, interval=16, grid="full", streams=32, smooth=4),
        "all 395 documents, 16 topics, α 0.1, β 0.01, topics dealt at the start",
    ),
    Experiment(
        "mlr-covtype",
        _covtype_regression,
        Settings(iterations=128, interval=32, grid="full", streams=16),
        "all 581,012 rows, batch 1,000, rate 0.1, loss on 5,000 of them; 55 rows of weights",
    ),
    Experiment(
        "cnn-mnist-shard",
        lambda folder, _every: _cnn(folder, "shard"),
        Settings(iterations=96, interval=24, grid="full", streams=64, smooth=4),
        "all 60,000 digits, Adam 2e-3, batch 32; 64 equal shards, moments with the shard",
    ),
    Experiment(
        "lda-reuters21578",
        lambda folder, every: _topics(
            "lda-reuters21578", data.reuters_21578(folder / "reuters21578"), every
        ),
        Settings(iterations=64, interval=16, grid="large", streams=32, smooth=4),
        "{share} 19,039 stories of 1.62 M tokens, 16 topics",
    ),
    Experiment(
        "cnn-mnist-layer",
        lambda folder, _every: _cnn(folder, "layer"),
        Settings(iterations=96, interval=24, grid="full", streams=64, smooth=4),
        "the same network; 8 units, the weight and the bias of each of 4 layers",
    ),
    Experiment(
        "lda-20newsgroups",
        lambda folder, every: _topics(
            "lda-20newsgroups", data.newsgroups(folder / "20newsgroups"), every
        ),
        Settings(iterations=64, interval=16, grid="large", streams=16, smooth=4),
        "{share} 18,805 posts of 2.85 M tokens, 16 topics",
    ),
)
