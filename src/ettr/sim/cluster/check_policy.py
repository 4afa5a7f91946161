"""Checks of nodes before jobs of whole nodes: which policy runs which, and what it believes.

A policy sees what an operator sees: how long a node has served, which checks it passed, which
faults struck it. Of the scenario it knows the rates and the coverage, not which nodes are lemons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ettr.checks.beliefs import after_pass, after_survival, survival
from ettr.checks.selector import Bools, Offer, Prospect, choose
from ettr.sim.cluster.scenario import ClusterScenario, covers_of
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR


class CheckPolicy:
    """The node checks of a scenario, by number, and which of them run."""

    def __init__(self, scenario: ClusterScenario) -> None:
        self._scenario = scenario
        kinds = [one for one in scenario.faults if one.latent_s]
        n_nodes, n_checks = scenario.machines.nodes, len(scenario.node_checks)
        self.kinds: Mapping[str, int] = {one.symptom: at for at, one in enumerate(kinds)}
        self.run_s = np.array([one.run_s for one in scenario.node_checks])
        self._rate_per_h = np.array([one.per_1000_node_days for one in kinds]) / 24_000.0
        self._strike_per_h = np.array([SECONDS_PER_HOUR / one.latent_s for one in kinds])
        self.coverage = np.zeros((n_checks, len(kinds)))
        for check, one in enumerate(scenario.node_checks):
            for symptom, share in covers_of(one.covers).items():
                self.coverage[check, self.kinds[symptom]] = share
        self._checked_s = np.full((n_checks, n_nodes), -math.inf)
        self._belief = np.zeros((n_nodes, len(kinds)))
        self._since_s = np.zeros((n_nodes, len(kinds)))
        self._strikes = np.zeros(n_nodes)

    def runs(self, nodes: Sequence[int], limit_s: float, now_s: int) -> Bools:
        """Which checks run on which of the nodes of a job that starts, shape (checks, nodes)."""
        policy, which = self._scenario.checks.policy, np.array(nodes)
        if policy == "selector":
            return self._selected(which, limit_s, now_s)
        least_s = now_s if policy == "before-each-job" else now_s - SECONDS_PER_DAY
        return np.asarray(self._checked_s[:, which] <= least_s)

    def _selected(self, nodes: np.ndarray, limit_s: float, now_s: int) -> Bools:
        scenario, rules = self._scenario, self._scenario.checkpoints
        rates = self._worse(nodes, now_s)[:, None] * self._rate_per_h
        served_h = (now_s - self._since_s[nodes]) / SECONDS_PER_HOUR
        belief = after_survival(self._belief[nodes], rates, self._strike_per_h, served_h)
        self._belief[nodes], self._since_s[nodes] = belief, now_s
        # of log-uniform time limits, what jobs use of them on average
        most = scenario.outcomes.longest_limit_factor
        used = (1 - 1 / most) / math.log(most) if most > 1 else 1.0
        hours = limit_s * used / SECONDS_PER_HOUR
        clean, with_defect = survival(rates, self._strike_per_h, hours)
        lost_h = min(rules.interval_s / SECONDS_PER_HOUR, hours) / 2
        # a defect that strikes during the restart costs the time until then, later ones all of it
        strike, restart_h = self._strike_per_h, rules.restart_s / SECONDS_PER_HOUR
        is_later = np.exp(-strike * restart_h)
        cost_h = (1 - is_later) / strike + is_later * lost_h
        incident_h = float((belief @ cost_h).sum() / max(belief.sum(), 1e-300))
        false_h = scenario.checks.false_repair_mean_s / SECONDS_PER_HOUR
        chances = np.array([one.false_alarm_chance for one in scenario.node_checks])
        prospect = Prospect(belief, clean, with_defect, incident_h * len(nodes), restarts=True)
        offer = Offer(self.coverage, self.run_s / SECONDS_PER_HOUR, chances * false_h, waits=True)
        return choose(prospect, offer).runs

    def _worse(self, nodes: np.ndarray, now_s: int) -> np.ndarray:
        """By how much each node is expected to fail more often, from the strikes so far."""
        share, factor = self._scenario.lemons.share, self._scenario.lemons.factor
        if not share or factor <= 0.0:
            return np.ones(len(nodes))
        usual = float(self._rate_per_h.sum()) * now_s / SECONDS_PER_HOUR
        odds = np.log(max(1 - share, 1e-12) / share) - self._strikes[nodes] * math.log(factor)
        odds += (factor - 1) * usual
        return np.asarray(1 + (factor - 1) / (1 + np.exp(np.clip(odds, -700, 700))))

    def passed(self, nodes: Sequence[int], is_passed: Bools, now_s: int) -> None:
        """Checks found nothing on nodes, shape (checks, nodes)."""
        which = np.array(nodes)
        self._checked_s[:, which] = np.where(is_passed, now_s, self._checked_s[:, which])
        for check in np.flatnonzero(is_passed.any(axis=1)):
            own = which[is_passed[check]]
            self._belief[own] = after_pass(self._belief[own], self.coverage[check])

    def gone(self, symptom: str, node: int, now_s: int) -> None:
        """A defect was found, or struck: the repair takes it away."""
        kind = self.kinds[symptom]
        self._belief[node, kind], self._since_s[node, kind] = 0.0, now_s
        self._strikes[node] += 1
