"""Bad links under a run: the chance that its collective crosses one, and what a step then takes.

Rails and pods: GPU r of each node is on rail r, and of each pod and rail so many uplinks lead to
the spine. A collective is as fast as its slowest flow. Static routing hashes each flow onto one
uplink of its pod and rail at either end; adaptive routing spreads it over all of them; removal
hashes it over the good ones. The loss that a bad link causes is put in, as its goodput: this is
arithmetic on assumptions, and no evidence for a site.

Source:
    Kokolis et al. (2025), section on the network's resilience: 50 to 75 % of the bandwidth lost
    without it, and adaptive routing that keeps the bandwidth and varies less.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ettr.errors import UsageError

PODS_NODES = 20
GOODPUT = 0.25
EXPOSED_SHARE = 0.3
"""Of a step, in which the program waits for its collectives."""
NO_EVIDENCE = (
    "The loss by a bad link is an input (--link-goodput, --exposed-share), not evidence "
    "from a site. Measure bus bandwidth with nccl-tests."
)


class Routing(StrEnum):
    """How a fabric chooses the link of a flow."""

    STATIC = "static"
    ADAPTIVE = "adaptive"
    REMOVAL = "removal"


class Collective(StrEnum):
    """Which nodes send to which."""

    RING = "ring"
    TREE = "tree"


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """Bad uplinks of a cluster, and what they do to a run.

    Attributes:
        goodput: Of a bad link, as a share of a good one's.
        exposed_share: Of a step, in which the program waits for its collectives.

    Raises:
        UsageError: values that cannot be.
    """

    bad: int
    links: int
    routing: Routing = Routing.STATIC
    goodput: float = GOODPUT
    exposed_share: float = EXPOSED_SHARE

    def __post_init__(self) -> None:
        """Check the values."""
        if not 0 <= self.bad <= self.links or not 0 < self.links <= 10**7:
            raise UsageError(
                f"--bad-links {self.bad}/{self.links}: give bad links over all uplinks of the "
                "cluster, as 4/640"
            )
        if not 0 < self.goodput <= 1:
            raise UsageError(f"--link-goodput {self.goodput:g}: give a share above 0, 1 at most")
        if not 0 <= self.exposed_share <= 1:
            raise UsageError(f"--exposed-share {self.exposed_share:g}: give a share from 0 to 1")


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """What bad links do to a run.

    Attributes:
        crossing_chance: That a flow of the run's rings is hashed onto a bad link;
            `tree_crossing_chance` of its binary trees.
        bandwidth_share: Mean bandwidth of its collectives over that without bad links.
        step_factor: Time of the run's steps over that without bad links, where flows are hashed
            again after each restart; `worst_step_factor` while a flow crosses one.
        lost_share: Of the time of the run.
    """

    bad: int
    links: int
    routing: Routing
    goodput: float
    exposed_share: float
    pods: int
    crossings: int
    crossing_chance: float
    tree_crossing_chance: float
    bandwidth_share: float
    step_factor: float
    worst_step_factor: float
    lost_share: float
    by_routing: tuple[RoutingOutcome, ...]
    contention: tuple[RoutingContention, ...]
    caution: str = NO_EVIDENCE


@dataclass(frozen=True, slots=True)
class RoutingOutcome:
    """The same run under one routing."""

    routing: Routing
    bandwidth_share: float
    step_factor: float


@dataclass(frozen=True, slots=True)
class RoutingContention:
    """Jobs of two nodes across pods side by side, all links good: bandwidth of each job's own.

    Attributes:
        mean_share: Of the jobs; a collective is as fast as its slowest flow, one each way and rail.
        low_share: That 5 % of the jobs have less than.
        flow_share: Mean of the flows for themselves.
    """

    routing: Routing
    jobs: int
    mean_share: float
    low_share: float
    flow_share: float


def network_plan(faults: LinkFaults, n_nodes: int, rails: int) -> NetworkPlan:
    """What bad links do to a run on so many nodes, in pods of `PODS_NODES`, one ring per rail.

    Raises:
        UsageError: the run crosses more links than the cluster is said to have.
    """
    pods = -(-n_nodes // PODS_NODES)
    groups = rails * pods if pods > 1 else 0
    if 2 * groups > faults.links:
        raise UsageError(
            f"--bad-links {faults.bad}/{faults.links}: the rings of {n_nodes} nodes cross "
            f"{2 * groups} uplinks; give all uplinks of the cluster"
        )
    hit = crossing_chance(faults.bad, faults.links, groups)
    outcomes = tuple(_outcome(routing, faults, hit) for routing in Routing)
    chosen = next(one for one in outcomes if one.routing == faults.routing)
    slowed = faults.routing == Routing.STATIC and groups > 0 and faults.bad > 0
    return NetworkPlan(
        faults.bad,
        faults.links,
        faults.routing,
        faults.goodput,
        faults.exposed_share,
        pods,
        2 * groups,
        hit,
        _tree_chance(faults, Fabric(n_nodes, rails)),
        chosen.bandwidth_share,
        chosen.step_factor,
        step_factor(faults.goodput if slowed else 1.0, faults.exposed_share),
        1 - 1 / chosen.step_factor,
        outcomes,
        tuple(contention(routing) for routing in (Routing.STATIC, Routing.ADAPTIVE)),
    )


def _outcome(routing: Routing, faults: LinkFaults, hit: float) -> RoutingOutcome:
    """Alone in the fabric a ring's flows have whole groups of uplinks to spread over."""
    if routing != Routing.STATIC:
        hit = 0.0
    slow = step_factor(faults.goodput, faults.exposed_share)
    lost = hit * (1 - 1 / slow)
    return RoutingOutcome(routing, 1 - hit * (1 - faults.goodput), 1 / (1 - lost))


def step_factor(bandwidth_share: float, exposed_share: float) -> float:
    """A step's time at a share of the bandwidth, over that at all of it."""
    return 1 - exposed_share + exposed_share / bandwidth_share


def crossing_chance(bad: int, links: int, groups: int, uplinks: int = PODS_NODES) -> float:
    """The chance that rings under static routing cross a bad link.

    Of each of the groups (a pod's uplinks of one rail) a flow leaves by one uplink and another
    enters by one, the same with the chance 1/uplinks. Bad links lie anywhere among all.
    """
    if not bad or not groups:
        return 0.0
    none = 0.0
    for same in range(groups + 1):
        used = 2 * groups - same
        if bad > links - used:
            continue
        chance = (
            math.comb(groups, same) * (1 / uplinks) ** same * (1 - 1 / uplinks) ** (groups - same)
        )
        none += chance * math.exp(_log_comb(links - used, bad) - _log_comb(links, bad))
    return 1 - none


def _tree_chance(faults: LinkFaults, fabric: Fabric) -> float:
    """The same of binary trees, by the number of links that their flows are expected to use."""
    ends: Counter[int] = Counter()
    for source, sink in edges_of(range(fabric.n_nodes), Collective.TREE):
        pods = source // fabric.pod_nodes, sink // fabric.pod_nodes
        if pods[0] != pods[1]:
            ends.update(pods)
    unused = 1 - 1 / fabric.uplinks
    used = fabric.rails * fabric.uplinks * sum(1 - unused**n for n in ends.values())
    return float(1 - (1 - faults.bad / faults.links) ** used)


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# -- The flow model: every flow, every link, max-min fair ------------------------------------------


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
    edges = []
    for at in range(1, n):
        low = at & -at
        parent = (at ^ low) | (low << 1)
        parent = parent if parent < n else at ^ low
        edges += [(nodes[at], nodes[parent]), (nodes[parent], nodes[at])]
    return edges


def _flows(
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


def max_min(paths: Sequence[tuple[int, ...]], capacity: dict[int, float]) -> list[float]:
    """Max-min fair rates of flows, 1 at most: fill all alike, and stop those on a full link."""
    rates = [0.0] * len(paths)
    room = dict(capacity)
    users: dict[int, set[int]] = {}
    for flow, path in enumerate(paths):
        for link in path:
            users.setdefault(link, set()).add(flow)
    open_flows, level = set(range(len(paths))), 0.0
    while open_flows:
        share = {link: room[link] / len(own) for link, own in users.items() if own}
        step = min(min(share.values(), default=math.inf), 1.0 - level)
        level += step
        for link, own in users.items():
            room[link] -= step * len(own)
        full = {link for link, own in users.items() if own and room[link] <= 1e-12}
        ended = {flow for link in full for flow in users[link]}
        if level >= 1.0 - 1e-12:
            ended = set(open_flows)
        for flow in ended:
            rates[flow] = level
            for link in paths[flow]:
                users[link].discard(flow)
        open_flows -= ended
    return rates


def contention(
    routing: Routing, jobs: int = 32, draws: int = 4, seed: int = 1
) -> RoutingContention:
    """Jobs of two nodes in different pods, side by side in a fabric of good links."""
    rng = random.Random(seed)  # noqa: S311
    fabric = Fabric(2 * jobs)
    shares: list[float] = []
    flows: list[float] = []
    for _ in range(draws):
        nodes = list(range(fabric.n_nodes))
        rng.shuffle(nodes)
        nodes.sort(key=lambda node: node // fabric.pod_nodes)
        # half of all nodes apart is more than a pod
        pairs = list(zip(nodes[:jobs], nodes[jobs:], strict=True))
        owners, rates = _flows(fabric, pairs, frozenset(), routing, rng)
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
