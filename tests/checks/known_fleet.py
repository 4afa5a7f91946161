"""Fleets of known truth: hidden defects that strike jobs, checks that find some, and what it costs.

The fleet knows which defects are there; a policy sees what an operator sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ettr.checks.selector import (
    Offer,
    Prospect,
    after_idle,
    after_pass,
    after_survival,
    choose,
    survival,
)

NODES, KINDS, CHECKS, IN_JOB, JOB_H = 64, 5, 8, 32, 12.0


@dataclass
class Fleet:
    """What nobody knows of a fleet, drawn."""

    rate_per_h: np.ndarray
    times: np.ndarray
    strike_per_h: np.ndarray
    coverage: np.ndarray
    hours: np.ndarray
    incident_h: float = 4.0

    @staticmethod
    def drawn(seed: int, incident_h: float = 4.0) -> Fleet:
        rng = np.random.default_rng(seed)
        rate = rng.dirichlet(np.ones(KINDS)) * rng.uniform(0.1, 0.3) / (IN_JOB * JOB_H)
        times = np.where(rng.random(NODES) < 0.04, rng.uniform(5, 20, NODES), 1.0)
        coverage = np.zeros((CHECKS, KINDS))
        for check in range(CHECKS):
            # each kind has a check, some checks have two kinds
            kinds = {check % KINDS, int(rng.integers(KINDS))}
            kinds = np.array(sorted(kinds))
            coverage[check, kinds] = rng.uniform(0.6, 0.95, len(kinds))
        hours = rng.choice([2, 5, 8, 12, 20, 30], CHECKS) / 60.0
        return Fleet(rate, times, rng.uniform(1 / 24, 1 / 4, KINDS), coverage, hours, incident_h)

    @property
    def rates(self) -> np.ndarray:
        return self.times[:, None] * self.rate_per_h


@dataclass
class Knowledge:
    """What a policy takes for true."""

    rates: np.ndarray
    strike_per_h: np.ndarray
    coverage: np.ndarray


@dataclass
class Outcome:
    """What a policy came to."""

    useful: float = 0.0
    lost: float = 0.0
    checks: float = 0.0
    incidents: np.ndarray = field(default_factory=lambda: np.zeros((NODES, KINDS)))
    hours: float = 0.0

    @property
    def useful_share(self) -> float:
        return self.useful / (self.useful + self.lost + self.checks)

    @property
    def mtbi_h(self) -> float:
        return self.useful / IN_JOB / max(self.incidents.sum(), 1)


Policy = Callable[[np.ndarray, np.ndarray, "Watch"], np.ndarray]


@dataclass
class Watch:
    """Beliefs of the policy: they see time, passes and survivals, never the truth."""

    known: Knowledge
    belief: np.ndarray
    hours: float = 0.0
    checked_h: np.ndarray = field(default_factory=lambda: np.full(NODES, -np.inf))


def select(fleet: Fleet) -> Policy:
    """The selector, with what the watch takes for true."""

    def policy(nodes: np.ndarray, truth: np.ndarray, watch: Watch) -> np.ndarray:
        rates = watch.known.rates[nodes]
        clean, bad = survival(rates, watch.known.strike_per_h, JOB_H)
        prospect = Prospect(watch.belief[nodes], clean, bad, fleet.incident_h * IN_JOB)
        offer = Offer(watch.known.coverage, fleet.hours, np.zeros(CHECKS), True)
        return choose(prospect, offer).runs

    return policy


def none(nodes: np.ndarray, truth: np.ndarray, watch: Watch) -> np.ndarray:
    return np.zeros((CHECKS, len(nodes)), dtype=bool)


def every(nodes: np.ndarray, truth: np.ndarray, watch: Watch) -> np.ndarray:
    return np.ones((CHECKS, len(nodes)), dtype=bool)


def daily(nodes: np.ndarray, truth: np.ndarray, watch: Watch) -> np.ndarray:
    """All checks, on nodes that had them a day ago or longer."""
    due = watch.hours - watch.checked_h[nodes] >= 24.0
    watch.checked_h[nodes[due]] = watch.hours
    return np.tile(due, (CHECKS, 1))


def strike_of(
    fleet: Fleet, defect: np.ndarray, nodes: np.ndarray, left_h: float, rng: np.random.Generator
) -> tuple[tuple[int, int], float]:
    """Place, kind and hour of the first strike; defects arise until then or until the end."""
    arise = np.where(defect[nodes], 0.0, rng.exponential(1 / fleet.rates[nodes]))
    strike = arise + rng.exponential(1 / fleet.strike_per_h, (IN_JOB, KINDS))
    node, kind = np.unravel_index(strike.argmin(), strike.shape)
    defect[nodes] |= arise <= min(left_h, strike[node, kind])
    return (int(node), int(kind)), float(strike[node, kind])


def run(
    fleet: Fleet,
    policy: Policy | None,
    known: Knowledge,
    jobs: int,
    seed: int,
) -> Outcome:
    """Jobs one after the other on nodes drawn at random; None is the oracle, who sees defects."""
    rates = fleet.rates
    defect = np.zeros((NODES, KINDS), dtype=bool)
    watch = Watch(known, np.zeros((NODES, KINDS)))
    out = Outcome()

    for job in range(jobs):
        # a stream for each job: policies meet the same luck
        rng = np.random.default_rng((seed, job))
        nodes = rng.choice(NODES, IN_JOB, replace=False)
        others = np.delete(np.arange(NODES), nodes)
        began = out.hours
        idle_luck = rng.random((len(others), KINDS))
        if policy is None:
            defect[nodes] = False
        else:
            watch.hours = out.hours
            runs = policy(nodes, defect, watch)
            held = (fleet.hours @ runs).max(initial=0.0)
            out.checks += held * IN_JOB
            out.hours += held
            for check in np.flatnonzero(runs.any(axis=1)):
                who = nodes[runs[check]]
                found = defect[who] & (rng.random((len(who), KINDS)) < fleet.coverage[check])
                defect[who] &= ~found
                passed = after_pass(watch.belief[who], known.coverage[check])
                watch.belief[who] = np.where(found, 0.0, passed)
        left = JOB_H
        while left > 1e-9:
            first, at_h = strike_of(fleet, defect, nodes, left, rng)
            ran = min(left, at_h)
            watch.belief[nodes] = after_survival(
                watch.belief[nodes], known.rates[nodes], known.strike_per_h, ran
            )
            left -= ran
            out.useful += ran * IN_JOB
            out.hours += ran
            if left > 1e-9:
                defect[nodes[first[0]], first[1]] = False
                watch.belief[nodes[first[0]], first[1]] = 0.0
                out.incidents[nodes[first[0]], first[1]] += 1
                out.lost += fleet.incident_h * IN_JOB
                out.hours += fleet.incident_h
        idle_h = out.hours - began
        defect[others] |= idle_luck < -np.expm1(-rates[others] * idle_h)
        watch.belief[others] = after_idle(watch.belief[others], known.rates[others], idle_h)
    return out


def true_knowledge(fleet: Fleet) -> Knowledge:
    return Knowledge(fleet.rates, fleet.strike_per_h, fleet.coverage)


def estimated(fleet: Fleet, past: Outcome) -> Knowledge:
    """Rates from the incidents of a past without checks; that defects take 12 h is a guess."""
    by_kind = (past.incidents.sum(axis=0) + 0.5) / (NODES * past.hours)
    expected = by_kind.sum() * past.hours
    shape = 1.0
    times = (past.incidents.sum(axis=1) + shape) / (expected + shape)
    return Knowledge(times[:, None] * by_kind, np.full(KINDS, 1 / 12.0), fleet.coverage)
