"""Effects of nodes from segments that show the slowest only, against sums over all effects."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ettr.lemons import slow_runs
from ettr.lemons.slow_runs import MAX_SLOW, MIN_SLOW, TAIL_PRIOR, TAILS

STEP = 0.008
EFFECTS = np.arange(-0.064, 0.32, STEP)
BASES = np.arange(-0.35, 0.13, STEP)
HELD = ((0, 1), (0, 2), (1, 2), (0,), (1,), (0, 1))
"""Nodes of the segments of a run: all of them meet, which makes loops."""


def _likelihood(log_step: np.ndarray, noise: float) -> np.ndarray:
    """Of each three effects, summed over the step time of the run itself."""
    places = np.indices([len(EFFECTS)] * 3)
    total = np.ones((len(BASES), *places[0].shape))
    for held, seen in zip(HELD, log_step, strict=True):
        density = stats.t.pdf(seen - BASES[:, None] - EFFECTS, 4, scale=noise)
        total *= density[:, places[list(held)].max(axis=0)]
    return total.sum(axis=0)


def _by_sums(log_step: np.ndarray, noise: float) -> np.ndarray:
    """Probability that each of three nodes is slow, summed over all effects and laws."""
    shifts = np.log1p(np.geomspace(MIN_SLOW, MAX_SLOW, 60))[:, None]
    likelihood = _likelihood(log_step, noise)
    slow, total = np.zeros(3), 0.0
    for scale in slow_runs.SCALES:
        away = np.log(scale / slow_runs.USUAL_SCALE) / slow_runs.SCALE_SPREAD
        for tail, weight in zip(TAILS, TAIL_PRIOR, strict=True):
            plain = stats.t.pdf(EFFECTS, tail, scale=scale)
            moved = stats.t.pdf(EFFECTS - shifts, tail, scale=scale).mean(axis=0)
            for share in slow_runs.SHARES_OR_NONE:
                one, any_of = share * moved, (1 - share) * plain + share * moved
                with_third = likelihood @ any_of
                of_law = [one @ with_third @ any_of, any_of @ with_third @ one]
                of_law.append(any_of @ (likelihood @ one) @ any_of)
                slow += stats.norm.pdf(away) * weight * np.array(of_law)
                total += stats.norm.pdf(away) * weight * (any_of @ with_third @ any_of)
    return slow / total


def _found(log_step: tuple[float, ...]) -> slow_runs.Effects:
    segment = np.repeat(np.arange(len(HELD)), [len(held) for held in HELD])
    run = np.zeros(len(HELD), dtype=np.int64)
    steps = slow_runs.GroupedSegments(
        run, np.array(log_step) + 2.0, segment, np.concatenate(HELD), np.ones(3, dtype=np.int64)
    )
    return slow_runs.effects(steps, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "log_step",
    [
        # the third node is slow; none is; one that another segment denies
        (0.01, 0.21, 0.20, 0.0, -0.01, 0.0),
        (0.01, 0.0, -0.01, 0.02, -0.02, 0.01),
        (0.09, 0.01, 0.0, -0.01, 0.0, 0.01),
    ],
)
def test_probabilities_are_those_of_sums_over_all_effects(log_step: tuple[float, ...]):
    found = _found(log_step)
    assert found.slow == pytest.approx(_by_sums(np.array(log_step), found.noise), abs=0.04)


@pytest.mark.slow
def test_a_slow_node_in_most_segments_of_its_run_is_rather_missed_than_another_accused():
    log_step = (0.12, 0.10, -0.01, 0.11, 0.0, 0.12)
    found = _found(log_step)
    exact = _by_sums(np.array(log_step), found.noise)
    assert found.slow.argmax() == exact.argmax() == 0
    assert np.all(found.slow <= exact + 0.01)
