"""Whether beliefs and coverage hold: what they foretold of a fleet's past against what came.

Each run of a check is foretold from all that was known before it, by the same rules by which the
selector decides. A coverage that is too high foretells too many finds, and too few incidents
after a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ettr.checks.beliefs import (
    Floats,
    after_idle,
    after_pass,
    after_survival,
    log_survival,
    survival,
)
from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import poisson_interval


@dataclass(frozen=True, slots=True)
class NodeMoment:
    """What happened to one node at one time: a check's run, the end of a job's hours, a failure.

    Attributes:
        ran_h: Hours of jobs on the node since the moment before, of `hours` in all.
        check: Index of the check that ran; None for none.
        kind: Index of the kind of defect that was found, or that struck; None for neither.
    """

    node: int
    hours: float
    ran_h: float
    check: int | None = None
    kind: int | None = None


@dataclass(frozen=True, slots=True)
class Foretold:
    """Finds of one check, foretold and counted."""

    runs: int
    expected: float
    found: int
    holds: bool


@dataclass(frozen=True, slots=True)
class ChecksBackTest:
    """The verdict over a fleet's past.

    Attributes:
        checks: Of each check; None where it never ran.
        incidents: Of jobs.
    """

    checks: tuple[Foretold | None, ...]
    incidents: Foretold
    holds: bool


def check_back_test(
    moments: Iterable[NodeMoment],
    rates_per_h: Floats,
    strike_per_h: Floats,
    coverage: Floats,
    confidence: float = CONFIDENCE,
) -> ChecksBackTest:
    """Foretell each moment from those before it, and compare the sums.

    Args:
        moments: in order of time, at least those of each node.
        rates_per_h: at which defects arise, shape (nodes, kinds).
        coverage: shape (checks, kinds).
        confidence: of all comparisons together; each gets its part.
    """
    n_checks = len(coverage)
    belief = np.zeros_like(rates_per_h)
    runs, expected, found = np.zeros(n_checks, int), np.zeros(n_checks), np.zeros(n_checks, int)
    strikes, expected_strikes, spans = 0, 0.0, 0
    for one in moments:
        own, rate = belief[one.node], rates_per_h[one.node]
        own = after_idle(own, rate, one.hours - one.ran_h)
        if one.ran_h > 0:
            spans += 1
            hurt = log_survival(own, *survival(rate, strike_per_h, one.ran_h))
            expected_strikes -= float(hurt.sum())
            own = after_survival(own, rate, strike_per_h, one.ran_h)
        if one.check is not None:
            covered = coverage[one.check]
            runs[one.check] += 1
            expected[one.check] += 1 - float(np.prod(1 - own * covered))
            found[one.check] += one.kind is not None
            own = after_pass(own, covered)
        elif one.kind is not None:
            strikes += 1
        if one.kind is not None:
            own[one.kind] = 0.0
        belief[one.node] = own
    each = 1 - (1 - confidence) / (1 + int((runs > 0).sum()))
    by_check = tuple(
        _foretold(int(runs[at]), float(expected[at]), int(found[at]), each) if runs[at] else None
        for at in range(n_checks)
    )
    incidents = _foretold(spans, expected_strikes, strikes, each)
    every = [incidents, *(one for one in by_check if one is not None)]
    return ChecksBackTest(by_check, incidents, all(one.holds for one in every))


def _foretold(runs: int, expected: float, found: int, confidence: float) -> Foretold:
    low, high = poisson_interval(found, confidence)
    return Foretold(runs, expected, found, low <= expected <= high)
