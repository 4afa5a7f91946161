"""Nodes that stand out under one name in several clusters: a role is likelier than a defect.

Front ends, login nodes and the first node of every system fail more often by what they do. Where no
inventory says what a node is for, the name does: that nodes of one name are claimed in each of
several clusters hardly happens by chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ettr.lemons.signals import NodeName

ROLE_CHANCE = 0.05
"""Names expected to be claimed in the same clusters by chance, below which a role is taken for
certain."""


def role_names(claims: Iterable[NodeName], nodes: Mapping[str, int]) -> frozenset[str]:
    """Names that stand out in more clusters than chance explains."""
    clusters: defaultdict[str, set[str]] = defaultdict(set)
    per_cluster: defaultdict[str, int] = defaultdict(int)
    for cluster, node in set(claims):
        clusters[node].add(cluster)
        per_cluster[cluster] += 1
    found = set()
    for node, some in clusters.items():
        if len(some) < 2:
            continue
        # names in common are at most those of the smallest cluster
        expected = float(min(nodes[one] for one in some))
        for one in some:
            expected *= per_cluster[one] / nodes[one]
        if expected < ROLE_CHANCE:
            found.add(node)
    return frozenset(found)
