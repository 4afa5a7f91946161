"""The flow model of a fabric of pods and rails: every flow, every link, max-min fair."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ettr.plan.network import (
    GOODPUT,
    PODS_NODES,
    Routing,
    RoutingContention,
    max_min,
    tree_edges,
)


class Collective(StrEnum):
    """Which nodes send to which."""

    RING = "ring"
    TREE = "tree"


@dataclass(frozen=True, slots=True)
class Fabric:
    """Pods of nodes, rails, and the uplinks of each pod and rail."""

    n_nodes: int
    rails: int = 8
    pod_nodes: int = PODS_NODES
    uplinks: int = PODS_NODES

    @property
    def pods(self) -> int:
        """Pods in all."""
        return -(-self.n_nodes // self.pod_nodes)

    @property
    def links(self) -> int:
        """Uplinks in all."""
        return self.pods * self.rails * self.uplinks


def edges_of(nodes: Sequence[int], collective: Collective) -> list[tuple[int, int]]:
    """Which node sends to which: a ring, or both ways along a binary tree in order of the nodes."""
    n = len(nodes)
    if n < 2:
        return []
    if collective == Collective.RING:
        return [(nodes[at], nodes[(at + 1) % n]) for at in range(n)]
    both = [(pair, pair[::-1]) for pair in tree_edges(n)]
    return [(nodes[one], nodes[other]) for pairs in both for one, other in pairs]


def flows_of(
    fabric: Fabric,
    jobs: Iterable[Sequence[int]],
    bad: frozenset[int],
    routing: Routing,
    rng: random.Random,
    goodput: float = GOODPUT,
    collective: Collective = Collective.RING,
) -> tuple[list[int], list[float]]:
    """Job and rate of each flow between pods."""
    paths: list[tuple[int, ...]] = []
    owner: list[int] = []
    capacity: dict[int, float] = {}
    for job, nodes in enumerate(jobs):
        for source, sink in edges_of(nodes, collective):
            ends = source // fabric.pod_nodes, sink // fabric.pod_nodes
            if ends[0] == ends[1]:
                continue  # below the pod's switch nothing is shared
            for rail in range(fabric.rails):
                path = []
                for down, pod in enumerate(ends):
                    first = (pod * fabric.rails + rail) * fabric.uplinks
                    group = range(first, first + fabric.uplinks)
                    link, room = _link(group, bad, routing, goodput, rng)
                    # each direction of a link for itself
                    path.append(2 * link + down)
                    capacity[2 * link + down] = room
                paths.append(tuple(path))
                owner.append(job)
    return owner, max_min(paths, capacity)


def _link(
    group: range, bad: frozenset[int], routing: Routing, goodput: float, rng: random.Random
) -> tuple[int, float]:
    """The link that a flow takes, and its capacity; adaptive: all of the group as one."""
    if routing == Routing.ADAPTIVE:
        return group.start, sum(goodput if link in bad else 1.0 for link in group)
    good = [link for link in group if link not in bad] if routing == Routing.REMOVAL else []
    link = rng.choice(good or group)
    return link, goodput if link in bad else 1.0


def contention(
    routing: Routing, jobs: int = 32, draws: int = 4, seed: int = 1
) -> RoutingContention:
    """Jobs of two nodes in different pods, side by side in a fabric of good links."""
    rng = random.Random(seed)
    fabric = Fabric(2 * jobs)
    shares: list[float] = []
    flows: list[float] = []
    for _ in range(draws):
        nodes = list(range(fabric.n_nodes))
        rng.shuffle(nodes)
        nodes.sort(key=lambda node: node // fabric.pod_nodes)
        # half of all nodes apart is more than a pod
        pairs = list(zip(nodes[:jobs], nodes[jobs:], strict=True))
        owners, rates = flows_of(fabric, pairs, frozenset(), routing, rng)
        slowest = [1.0] * jobs
        for job, rate in zip(owners, rates, strict=True):
            slowest[job] = min(slowest[job], rate)
        shares += slowest
        flows += rates
    shares.sort()
    return RoutingContention(
        routing,
        jobs,
        sum(shares) / len(shares),
        shares[int(0.05 * len(shares))],
        sum(flows) / len(flows),
    )
