"""What bad links between pods do to the speed of a job: its rings are hashed at each start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ettr.plan.network import Routing, step_factor
from ettr.sim.cluster.scenario import ClusterScenario, uplinks_of
from ettr.sim.streams import stream


class BadLinks:
    """The bad uplinks of a cluster, drawn, and how much each attempt is slowed."""

    def __init__(self, scenario: ClusterScenario, seed: int) -> None:
        self._links, self._machines, self._seed = scenario.links, scenario.machines, seed
        n_links = uplinks_of(scenario)
        n_bad = 0 if self._links is None else self._links.bad
        self._is_bad = np.zeros(n_links, dtype=np.bool_)
        self._is_bad[stream(seed, "bad links").permutation(n_links)[:n_bad]] = True

    def slow(self, nodes: Sequence[int], task: int, attempt: int) -> float:
        """Time of the steps over that without bad links.

        A ring of each rail leaves and enters each pod of the job by one of its uplinks, and is as
        slow as the slowest; alone in the fabric it fills none of the good ones.
        """
        links, machines = self._links, self._machines
        pods = sorted({machines.pod_of(node) for node in nodes})
        if links is None or len(pods) < 2 or not links.bad or links.routing != Routing.STATIC:
            return 1.0
        rails = machines.gpus_per_node
        rng = stream(self._seed, f"hashes of attempt {attempt}", task)
        groups = np.array(pods)[:, None] * rails + np.arange(rails)
        taken = groups * links.uplinks + rng.integers(links.uplinks, size=(2, *groups.shape))
        hit = bool(self._is_bad[taken].any())
        return step_factor(links.goodput_share if hit else 1.0, links.exposed_share)
