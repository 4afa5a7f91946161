"""Policies that pick the samples to augment: at random, by loss, by influence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ettr.errors import EttrError

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

RANDOM = "random"
POLICIES = (RANDOM, "loss", "influence")


def pick(
    policy: str, scores: Floats | None, *, n_samples: int, budget: float, rng: np.random.Generator
) -> Rows:
    """Rows to augment, ascending: a share `budget` of them, without repeats.

    By scores it draws with a chance in proportion to each, so that one outlier does not take all;
    samples of score 0 are drawn when no other is left. Call it again with new scores after some
    epochs: the samples that matter change as the model learns.

    Args:
        policy: one of `POLICIES`.
        scores: (n_samples,), at least 0: the loss or the influence of each sample; None at random.
        budget: above 0 up to 1.

    Raises:
        EttrError: an unknown policy, a budget out of range, or scores that cannot be chances.

    Example:
        >>> import numpy as np
        >>> from ettr.samples import pick
        >>> pick("loss", np.array([0.0, 9.0, 0.0, 9.0]), n_samples=4, budget=0.5,
        ...      rng=np.random.default_rng(0))
        array([1, 3])
    """
    if policy not in POLICIES:
        raise EttrError(f"policy {policy!r}: one of {', '.join(POLICIES)}")
    if not 0 < budget <= 1 or n_samples < 1:
        raise EttrError(
            f"a budget of {budget:g} of {n_samples} samples: give a share above 0, at most 1"
        )
    n_picked = max(1, round(budget * n_samples))
    if policy == RANDOM:
        return np.sort(rng.choice(n_samples, n_picked, replace=False))
    if scores is None or scores.shape != (n_samples,):
        given = "none" if scores is None else f"of shape {scores.shape}"
        raise EttrError(f"scores {given}: `{policy}` needs one per sample, {n_samples}")
    if not np.isfinite(scores).all() or (scores < 0).any():
        raise EttrError(f"a score that is negative or no number: sample {_first_wrong(scores)}")
    # exponential clocks: the first n to ring are a draw in proportion, without replacement
    with np.errstate(divide="ignore"):
        rings = np.where(scores > 0, rng.exponential(size=n_samples) / scores, np.inf)
    order = np.lexsort((rng.random(n_samples), rings))
    return np.sort(order[:n_picked])


def _first_wrong(scores: Floats) -> int:
    return int(np.flatnonzero(~np.isfinite(scores) | (scores < 0))[0])


def influence(
    features: Floats, labels: NDArray[np.intp], probabilities: Floats, *, ridge: float = 1e-3
) -> Floats:
    """The influence of each sample on its own loss, for a linear last layer.

    How far the loss of a sample would rise if the layer were fitted without it: the residual of
    each class, squared, times the leverage of the features under the curvature of that class. Exact
    to second order for a binary logistic layer; classes are taken one against the rest.

    Args:
        features: (n_samples, n_features), what the last layer sees.
        labels: (n_samples,), classes from 0.
        probabilities: (n_samples, n_classes), what the layer says.
        ridge: the layer's own penalty on its squared weights, per sample.

    Returns:
        (n_samples,), at least 0.

    Raises:
        EttrError: shapes differ, or a ridge that is not above 0.
    """
    n_samples, n_features = features.shape
    if labels.shape != (n_samples,) or probabilities.shape[0] != n_samples or ridge <= 0:
        raise EttrError(
            f"features {features.shape}, labels {labels.shape}, probabilities "
            f"{probabilities.shape}, ridge {ridge:g}: give each a row per sample, a ridge above 0"
        )
    total = np.zeros(n_samples)
    for label in range(probabilities.shape[1]):
        share = probabilities[:, label]
        curvature = (features * (share * (1 - share))[:, None]).T @ features
        curvature[np.diag_indices(n_features)] += ridge * n_samples
        leverage = np.einsum("ij,ij->i", features, np.linalg.solve(curvature, features.T).T)
        total += (share - (labels == label)) ** 2 * leverage
    return total


def downweighted(n_samples: int, picked: Rows, n_copies: int) -> tuple[Floats, Floats]:
    """Weights with which a picked sample and its copies count as much as any other sample.

    Without them augmenting a few samples makes these more frequent, too.

    Returns:
        Weights of the samples (n_samples,) and of the copies (len(picked) · n_copies,).

    Example:
        >>> import numpy as np
        >>> from ettr.samples import downweighted
        >>> downweighted(3, np.array([1]), 1)
        (array([1. , 0.5, 1. ]), array([0.5]))
    """
    share = 1 / (1 + n_copies)
    weights = np.ones(n_samples)
    weights[picked] = share
    return weights, np.full(len(picked) * n_copies, share)
