"""Which samples to augment: policies, weights, and the probe that falls back to a random pick."""

import numpy as np
import pytest

from ettr.errors import EttrError
from ettr.samples import (
    PolicyChoice,
    PolicyGain,
    choose_policy,
    downweighted,
    influence,
    pick,
    redundant_work,
)


def test_a_pick_is_in_proportion_to_the_scores_and_without_repeats() -> None:
    rng = np.random.default_rng(0)
    scores = np.array([1.0] * 50 + [4.0] * 50)
    counts = np.zeros(100)
    for _ in range(2000):
        rows = pick("loss", scores, n_samples=100, budget=0.02, rng=rng)
        assert len(set(rows.tolist())) == 2
        counts[rows] += 1
    # two of a hundred: the second draw changes the ratio of 4 by under 2 %
    assert counts[50:].sum() / counts[:50].sum() == pytest.approx(4, rel=0.1)
    zero = pick("influence", np.array([0.0, 0, 5, 0]), n_samples=4, budget=0.5, rng=rng)
    assert 2 in zero
    assert len(zero) == 2


def test_influence_is_the_loss_without_the_sample_to_second_order() -> None:
    """Against fitting again without each sample, by another route: Newton's steps by hand."""
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(size=(60, 3)), np.ones((60, 1))], axis=1)
    y = (x[:, 0] + rng.normal(0, 0.8, 60) > 0).astype(np.intp)

    def fit(rows: np.ndarray) -> np.ndarray:
        w = np.zeros(4)
        for _ in range(30):
            p = 1 / (1 + np.exp(-x[rows] @ w))
            slope = x[rows].T @ (p - y[rows]) + 0.6 * w
            w -= np.linalg.solve((x[rows].T * (p * (1 - p))) @ x[rows] + 0.6 * np.eye(4), slope)
        return w

    def loss(w: np.ndarray, row: int) -> float:
        return float(np.logaddexp(0, -(2 * y[row] - 1) * (x[row] @ w)))

    every = np.arange(60)
    whole = fit(every)
    p = 1 / (1 + np.exp(-x @ whole))
    said = influence(x, y, np.stack([1 - p, p], axis=1), ridge=0.01)
    seen = np.array([loss(fit(every[every != row]), row) - loss(whole, row) for row in every])
    # both classes count the same residual
    assert np.corrcoef(said / 2, seen)[0, 1] > 0.98
    assert np.median(said / 2 / seen) == pytest.approx(1, abs=0.15)


def test_downweighted_samples_count_once() -> None:
    weights, copies = downweighted(5, np.array([0, 3]), 4)
    assert weights.sum() + copies.sum() == pytest.approx(5)
    assert weights[3] + copies[4:].sum() == pytest.approx(1)


def probed(gains: dict[str, float], noise: float, seed: int = 0) -> str:
    """The choice where a picked row's worth is known: `gains` by policy, of which 0.1 is all."""
    rng = np.random.default_rng(seed)
    labels = np.arange(200) % 2
    worth = {"loss": np.arange(200) % 5 == 0, "influence": np.arange(200) % 5 == 1}

    def evaluate(_train: np.ndarray, augmented: np.ndarray, _fold: np.ndarray) -> float:
        score = 0.8 + float(rng.normal(0, noise))
        if len(augmented) > 100:
            return score + gains["all"]
        for name, mask in worth.items():
            if len(augmented) and mask[augmented].mean() > 0.9:
                return score + gains[name]
        return score + (gains["random"] if len(augmented) else 0)

    scores = {
        name: lambda rows, mask=mask: mask[rows].astype(float) for name, mask in worth.items()
    }
    return choose_policy(evaluate, labels, scores, budget=0.1, rng=rng).policy


def test_the_probe_takes_what_wins_and_falls_back_to_random() -> None:
    wins = {"all": 0.1, "random": 0.03, "loss": 0.08, "influence": 0.05}
    assert [probed(wins, 0.003, seed) for seed in range(20)].count("loss") == 20
    loses = {"all": 0.1, "random": 0.06, "loss": 0.01, "influence": 0.02}
    assert [probed(loses, 0.003, seed) for seed in range(20)].count("random") == 20
    equal = {"all": 0.1, "random": 0.06, "loss": 0.06, "influence": 0.06}
    # two policies, each at 10 % one-sided
    assert [probed(equal, 0.01, seed) for seed in range(60)].count("random") >= 40


def test_the_probe_says_when_augmenting_wins_nothing() -> None:
    rng = np.random.default_rng(0)
    choice = choose_policy(
        lambda _train, augmented, _fold: 0.9 - 0.0001 * len(augmented) + float(rng.normal(0, 1e-4)),
        np.arange(40) % 2,
        {},
        budget=0.1,
        rng=rng,
    )
    assert choice.policy == "random"
    assert "gains nothing" in choice.why
    assert choice.gains[-1].share is None


@pytest.mark.parametrize(
    ("policy", "scores", "budget", "why"),
    [
        ("newest", None, 0.1, "random, loss, influence"),
        ("loss", None, 0.1, "needs one per sample, 4"),
        ("loss", np.ones(3), 0.1, r"\(3,\)"),
        ("loss", np.array([1, np.nan, 1, 1]), 0.1, "sample 1"),
        ("loss", np.array([1, 1, 1, -1.0]), 0.1, "sample 3"),
        ("random", None, 0.0, "above 0"),
    ],
)
def test_a_wrong_request_is_refused(
    policy: str, scores: np.ndarray | None, budget: float, why: str
) -> None:
    with pytest.raises(EttrError, match=why):
        pick(policy, scores, n_samples=4, budget=budget, rng=np.random.default_rng(0))


def test_a_score_that_is_no_number_ends_the_probe_in_a_sentence() -> None:
    with pytest.raises(EttrError, match="score of `none` is nan"):
        choose_policy(
            lambda *_: float("nan"), np.arange(20) % 2, {}, budget=0.1, rng=np.random.default_rng(0)
        )


@pytest.mark.parametrize(
    ("chosen", "whole", "share"),
    [
        ((0.5, 0.4, 0.6), (1.0, 0.9, 1.1), (0, 0, 0)),  # half of the gain is lost
        ((0.99, 0.97, 1.01), (1.0, 0.9, 1.1), (0.6, 0.6, 0.6)),
        ((-0.01, -0.03, 0.01), (-0.02, -0.03, -0.01), (0.75, 0.75, 0.75)),  # all work is idle
    ],
)
def test_redundant_work_is_what_the_chosen_policy_leaves_out(
    chosen: tuple[float, ...], whole: tuple[float, ...], share: tuple[float, ...]
) -> None:
    """Three augmented copies of each sample are three quarters of the work; a fifth is kept."""
    gains = (PolicyGain("loss", *chosen, None), PolicyGain("all", *whole, None))
    choice = PolicyChoice("loss", gains, "")
    line = redundant_work(choice, run="r", budget=0.2, copies=3)
    assert tuple(line[name] for name in ("value", "low", "high")) == pytest.approx(share)
    with pytest.raises(EttrError, match="a budget from 0 to 1"):
        redundant_work(choice, run="r", budget=20)
