"""What the links between pods do to the speed of a job: bad ones, and those that jobs share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ettr.plan.network import Routing, max_min, step_factor
from ettr.sim.cluster.scenario import ClusterScenario, uplinks_of
from ettr.sim.streams import stream


class SharedLinks:
    """The uplinks of a cluster, of which some are bad, and the flows of the jobs that run."""

    def __init__(self, scenario: ClusterScenario, seed: int) -> None:
        self._links, self._machines, self._seed = scenario.links, scenario.machines, seed
        n_links = uplinks_of(scenario)
        n_bad = 0 if self._links is None else self._links.bad
        self._is_bad = np.zeros(n_links, dtype=np.bool_)
        self._is_bad[stream(seed, "bad links").permutation(n_links)[:n_bad]] = True
        self._room: list[float] = []
        if self._links is not None:
            room = np.where(self._is_bad, self._links.goodput_share, 1.0)
            if self._links.routing == Routing.ADAPTIVE:
                # the first link of a group is all of it
                room = np.repeat(
                    room.reshape(-1, self._links.uplinks).sum(axis=1), self._links.uplinks
                )
            self._room = room.tolist()
        self._paths: dict[int, list[list[int]]] = {}
        self._users: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)

    def start(self, number: int, nodes: Sequence[int], task: int, attempt: int) -> float:
        """Time of a job's steps over that on links of its own, none of them bad.

        A ring of each rail leaves and enters each pod of the job by one of its uplinks, hashed at
        each start, and is as slow as its slowest flow. Flows share links as in the planner's flow
        model, max-min, with those of the jobs that run as this one starts, as if all sent at once;
        jobs that come or go later leave the factor as it is.
        """
        links, machines = self._links, self._machines
        pods = sorted({machines.pod_of(node) for node in nodes})
        if links is None or len(pods) < 2:
            return 1.0
        rng = stream(self._seed, f"hashes of attempt {attempt}", task)
        rails = machines.gpus_per_node
        groups = np.array(pods)[:, None] * rails + np.arange(rails)
        chosen = rng.integers(links.uplinks, size=(2, *groups.shape))
        if links.routing == Routing.ADAPTIVE:
            chosen[:] = 0
        elif links.routing == Routing.REMOVAL:
            is_bad = self._is_bad.reshape(-1, links.uplinks)[groups]
            chosen = (rng.random((2, *is_bad.shape)) + is_bad).argmin(axis=-1)
        leaves, enters = groups * links.uplinks + chosen
        # each direction of a link for itself; from a pod into the next of the ring
        paths = np.stack([2 * leaves, 2 * np.roll(enters, -1, axis=0) + 1], axis=-1)
        self._paths[number] = paths.reshape(-1, 2).tolist()
        for at, path in enumerate(self._paths[number]):
            for link in path:
                self._users[link].add((number, at))
        return step_factor(self._slowest(number), links.exposed_share)

    def end(self, number: int) -> None:
        """A job sends no more."""
        for at, path in enumerate(self._paths.pop(number, ())):
            for link in path:
                self._users[link].discard((number, at))

    def _slowest(self, number: int) -> float:
        """The rate of a job's slowest flow, by all flows that share a full link, however far."""
        flows: dict[tuple[int, int], tuple[int, ...]] = {}
        room: dict[int, float] = {}
        new = [(number, at) for at in range(len(self._paths[number]))]
        while new:
            flow = new.pop()
            if flow in flows:
                continue
            path = self._paths[flow[0]][flow[1]]
            full = [one for one in path if len(self._users[one]) > self._room[one // 2]]
            flows[flow] = tuple(full)
            room |= {one: self._room[one // 2] for one in full}
            new += [other for one in full for other in self._users[one]]
        rates = max_min(list(flows.values()), room)
        return min(rate for flow, rate in zip(flows, rates, strict=True) if flow[0] == number)
