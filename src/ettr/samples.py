"""Which training samples deserve augmentation: a tenth of them often gives most of its gain.

Augmenting costs CPU for every sample; most samples move the model little. A policy picks the
samples to augment by their loss or their influence, and a probe inside the training set says
whether it beats a random pick here: on some features it loses.

    >>> from ettr.samples import choose_policy, influence, pick
    >>> choice = choose_policy(evaluate, labels, scores, budget=0.1, rng=rng)   # doctest: +SKIP
    >>> rows = pick(choice.policy, scores(all_rows), budget=0.1, rng=rng)       # doctest: +SKIP

Worth nothing where augmentation is free (on an idle GPU), where each sample is seen once, or where
augmenting everything gains nothing on the held-out fold: the probe says that too.
Idea: Kuchnik and Smith, *Efficient Augmentation via Data Subsampling*, ICLR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ettr.errors import EttrError

__all__ = [
    "POLICIES",
    "PolicyChoice",
    "PolicyGain",
    "choose_policy",
    "downweighted",
    "hours_saved",
    "influence",
    "pick",
    "redundant_work",
]

# -- policies that pick the samples to augment: at random, by loss, by influence -------------------


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


# -- the probe: does a policy beat a random pick here, and does augmenting win anything at all -----


NONE, ALL = "none", "all"

Evaluate = Callable[[Rows, Rows, Rows], float]
"""Trains on rows, the second of which are augmented too, and scores augmented held-out rows."""


@dataclass(frozen=True, slots=True)
class PolicyGain:
    """What a policy gains over training without augmentation, on the held-out fold.

    Attributes:
        gain: the score less that without augmentation, mean over the repeats.
        low: the lower end of its interval.
        high: the upper end.
        share: of the gain of augmenting every sample; null where that gains nothing.
    """

    policy: str
    gain: float
    low: float
    high: float
    share: float | None


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The policy to use, what the probe measured, and why."""

    policy: str
    gains: tuple[PolicyGain, ...]
    why: str


def choose_policy(
    evaluate: Evaluate,
    labels: NDArray[np.intp],
    scores: Mapping[str, Callable[[Rows], Floats]],
    *,
    budget: float,
    rng: np.random.Generator,
    repeats: int = 4,
    held_out: float = 0.3,
    confidence: float = 0.8,
) -> PolicyChoice:
    """Choose a policy on folds inside the training set; random unless another beats it.

    Each repeat draws a fold with the classes in proportion, trains without augmentation, with
    every policy at the budget and with all rows augmented, and scores the fold. A policy is taken
    where its advantage over the random pick is above 0 with the confidence, paired by repeat.

    Args:
        evaluate: `evaluate(train_rows, augmented_rows, held_out_rows)` gives a score, higher is
            better; augmented rows are among those to train on.
        labels: (n_samples,), classes.
        scores: by policy, a function from training rows to a score each, at least 0; policies
            without one are not tried.
        budget: the share of rows that may be augmented.
        repeats: folds, at least 2.
        held_out: the share of rows in a fold.
        confidence: with which a policy must be above the random pick; a wrong choice costs little.

    Raises:
        EttrError: an unknown policy, under 2 repeats, or a score that is no number.
    """
    unknown = sorted(set(scores) - set(POLICIES))
    if unknown or repeats < 2 or not 0 < held_out < 1:
        raise EttrError(
            f"policies {unknown or 'known'}, {repeats} repeats, {held_out:g} held out: policies "
            f"are {', '.join(POLICIES)}; at least 2 repeats; a share between 0 and 1"
        )
    tried = [RANDOM, *(name for name in POLICIES if name in scores and name != RANDOM)]
    found: dict[str, list[float]] = {name: [] for name in [NONE, *tried, ALL]}
    for _ in range(repeats):
        train, fold = _fold(labels, held_out, rng)
        found[NONE].append(_finite(evaluate(train, train[:0], fold), NONE))
        for name in tried:
            own = scores[name](train) if name in scores else None
            rows = train[pick(name, own, n_samples=len(train), budget=budget, rng=rng)]
            found[name].append(_finite(evaluate(train, rows, fold), name))
        found[ALL].append(_finite(evaluate(train, train, fold), ALL))
    whole = math.fsum(np.subtract(found[ALL], found[NONE])) / repeats
    gains = tuple(_gain(name, found, whole, confidence) for name in [*tried, ALL])
    advantages = {
        name: _interval(np.subtract(found[name], found[RANDOM]), confidence) for name in tried[1:]
    }
    return _chosen(gains, advantages)


def _chosen(
    gains: Sequence[PolicyGain], advantages: Mapping[str, tuple[float, float, float]]
) -> PolicyChoice:
    whole = gains[-1]
    if whole.high <= 0 or (whole.low <= 0 and whole.gain <= 0):
        why = f"augmenting every sample gains nothing here ({whole.gain:+.4f}): leave it out"
        return PolicyChoice(RANDOM, tuple(gains), why)
    firm = {name: mean for name, (mean, low, _) in advantages.items() if low > 0}
    if not firm:
        why = "no policy is shown to beat a random pick"
        return PolicyChoice(RANDOM, tuple(gains), why)
    best = max(firm, key=lambda name: firm[name])
    return PolicyChoice(best, tuple(gains), f"{firm[best]:+.4f} over a random pick")


def _finite(score: float, policy: str) -> float:
    if not math.isfinite(score):
        raise EttrError(f"the score of `{policy}` is {score}: check how the probe was trained")
    return score


def _fold(labels: NDArray[np.intp], held_out: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows to train on and rows held out, each class in proportion."""
    fold: list[int] = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        fold.extend(rows[: max(1, round(held_out * len(rows)))].tolist())
    inside = np.zeros(len(labels), dtype=bool)
    inside[fold] = True
    return np.flatnonzero(~inside), np.flatnonzero(inside)


def _gain(
    name: str, found: Mapping[str, Sequence[float]], whole: float, confidence: float
) -> PolicyGain:
    mean, low, high = _interval(np.subtract(found[name], found[NONE]), confidence)
    return PolicyGain(name, mean, low, high, mean / whole if whole > 0 else None)


def _interval(differences: Floats, confidence: float) -> tuple[float, float, float]:
    """The mean of paired differences, with Student's interval."""
    n = len(differences)
    mean = float(differences.mean())
    spread = float(differences.std(ddof=1)) / math.sqrt(n)
    width = float(special.stdtrit(n - 1, (1 + confidence) / 2)) * spread
    return mean, mean - width, mean + width


def hours_saved(
    *,
    n_samples: int,
    n_epochs: float,
    augment_cpu_s: float,
    budget: float,
    n_probe_trainings: int,
    training_cpu_s: float,
) -> float:
    """CPU hours that a budget saves over augmenting all, less what the probe cost; may be negative.

    Args:
        augment_cpu_s: CPU seconds to augment one sample.
        n_probe_trainings: trainings of the probe: repeats × (policies + 2).
        training_cpu_s: CPU seconds of one of them.

    Example:
        >>> from ettr.samples import hours_saved
        >>> round(hours_saved(n_samples=1_281_167, n_epochs=90, augment_cpu_s=0.01, budget=0.1,
        ...                   n_probe_trainings=20, training_cpu_s=600), 1)
        284.9
    """
    saved_s = n_samples * n_epochs * augment_cpu_s * (1 - budget)
    return (saved_s - n_probe_trainings * training_cpu_s) / 3600


def redundant_work(
    choice: PolicyChoice, *, run: str, budget: float, copies: float = 1.0, tolerance: float = 0.05
) -> dict[str, str | float | None]:
    """A line for the store: the share of a run's work on samples that the probe shows idle.

    A run that trains on its samples and on `copies` augmented ones of each spends
    copies / (1 + copies) on the latter. What the chosen policy leaves out of that is redundant
    where it keeps the gain of augmenting all. Write the line as JSON into a file and ingest it: the
    report takes it as the factor `1 - redundant work` of that run.

    Args:
        run: the run that augments all samples.
        budget: the share of rows that the policy augments.
        copies: augmented samples that the run trains on for each plain one.
        tolerance: the part of the gain that may be lost.

    Returns:
        A row of the table `gates`, of the kind `redundant-work`: `value` by the means, `low` and
        `high` where the ends of the policy's interval decide.

    Raises:
        EttrError: a budget or a tolerance outside 0 to 1, or no copies.

    Example:
        >>> from ettr.samples import PolicyChoice, PolicyGain, redundant_work
        >>> kept = PolicyGain("loss", 0.019, 0.016, 0.022, 0.95)
        >>> whole = PolicyGain("all", 0.02, 0.017, 0.023, 1.0)
        >>> line = redundant_work(PolicyChoice("loss", (kept, whole), ""), run="r7", budget=0.1)
        >>> line["value"], line["low"], line["high"]
        (0.45, 0.0, 0.45)
    """
    if not (0 <= budget <= 1 and 0 <= tolerance < 1 and 0 < copies < math.inf):
        raise EttrError(
            f"budget {budget:g}, tolerance {tolerance:g}, copies {copies:g}: a budget from 0 to 1, "
            "a tolerance from 0 to under 1, and copies above 0"
        )
    by_name = {one.policy: one for one in choice.gains}
    whole, chosen = by_name[ALL], by_name[choice.policy]
    augmented = copies / (1 + copies)
    asked = (1 - tolerance) * whole.gain

    def idle(chosen_gain: float, whole_gain: float) -> float:
        if whole_gain <= 0:
            return augmented
        return augmented * (1 - budget) if chosen_gain >= asked else 0.0

    return {
        "run": run,
        "gate": "augmentation probe",
        "kind": "redundant-work",
        "value": idle(chosen.gain, whole.gain),
        "low": idle(chosen.low, whole.high),
        "high": idle(chosen.high, whole.low),
        "passed": None,
        "evidence": f"{choice.policy} at a budget of {budget:g}: {choice.why}",
    }
