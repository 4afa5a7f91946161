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
from collections import Counter
from collections.abc import Sequence
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


CONTENTION = (
    RoutingContention(Routing.STATIC, 32, 0.23971354166666656, 0.2, 0.5148640950520861),
    RoutingContention(Routing.ADAPTIVE, 32, 1.0, 1.0, 1.0),
)
"""Of 32 jobs whose nodes are drawn four times in pods of `PODS_NODES`, by the tests' flow model."""


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
        _tree_chance(faults, n_nodes, rails),
        chosen.bandwidth_share,
        chosen.step_factor,
        step_factor(faults.goodput if slowed else 1.0, faults.exposed_share),
        1 - 1 / chosen.step_factor,
        outcomes,
        CONTENTION,
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


def crossing_chance(bad: int, links: int, groups: int) -> float:
    """The chance that rings under static routing cross a bad link.

    Of each of the groups (a pod's uplinks of one rail) a flow leaves by one uplink and another
    enters by one, the same with the chance 1/`PODS_NODES`. Bad links lie anywhere among all.
    """
    if not bad or not groups:
        return 0.0
    none = 0.0
    for same in range(groups + 1):
        used = 2 * groups - same
        if bad > links - used:
            continue
        apart = (1 - 1 / PODS_NODES) ** (groups - same)
        chance = math.comb(groups, same) * (1 / PODS_NODES) ** same * apart
        none += chance * math.exp(_log_comb(links - used, bad) - _log_comb(links, bad))
    return 1 - none


def _tree_chance(faults: LinkFaults, n_nodes: int, rails: int) -> float:
    """The same of binary trees, by the number of links that their flows are expected to use."""
    ends: Counter[int] = Counter()
    for parent, child in tree_edges(n_nodes):
        pods = parent // PODS_NODES, child // PODS_NODES
        if pods[0] != pods[1]:
            ends.update((*pods, *pods))  # both ways
    unused = 1 - 1 / PODS_NODES
    used = rails * PODS_NODES * sum(1 - unused**n for n in ends.values())
    return float(1 - (1 - faults.bad / faults.links) ** used)


def tree_edges(n: int) -> list[tuple[int, int]]:
    """Parent and child of each edge of a binary tree in order of its nodes."""
    edges = []
    for at in range(1, n):
        low = at & -at
        parent = (at ^ low) | (low << 1)
        edges.append((parent if parent < n else at ^ low, at))
    return edges


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


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
