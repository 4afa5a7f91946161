"""How each signal is distributed over the nodes of a fleet, as the paper's figure has it.

Source:
    Kokolis et al. (HPCA 2025): cumulative distributions of the lemon signals over 28 days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ettr.lemons.signals import NodeName, NodeSignals

SIGNAL_NAMES: Mapping[str, str] = {
    "excluded_by_jobs": "jobs that exclude it",
    "xid_episodes": "XID episodes",
    "tickets": "tickets",
    "outages": "outages",
    "multi_node_failures": "NODE_FAIL of several nodes",
    "single_node_failures": "NODE_FAIL of it alone",
    "single_node_failure_rate": "share of jobs on it alone",
}
"""The paper's seven, by their names in `NodeSignals`."""


@dataclass(frozen=True, slots=True)
class SignalDistribution:
    """The cumulative distribution of one signal over the nodes that ran jobs.

    Attributes:
        nodes: How many nodes have a value; of a rate, those that had a job alone.
    """

    signal: str
    nodes: int
    values: tuple[float, ...]
    shares: tuple[float, ...]


def signal_distributions(
    nodes: Iterable[NodeName], signals: Mapping[NodeName, NodeSignals]
) -> tuple[SignalDistribution, ...]:
    """Distributions of the signals that some log can show; a node without any has 0 of each."""
    known = [signals.get(node) for node in nodes]
    made = []
    for name in SIGNAL_NAMES:
        seen = [getattr(one, name) for one in known if one is not None]
        values = [float(one) for one in seen if one is not None]
        if not any(values):
            continue
        if not name.endswith("_rate"):
            values += [0.0] * (len(known) - len(seen))
        different, counts = np.unique(values, return_counts=True)
        shares = np.cumsum(counts) / len(values)
        made.append(
            SignalDistribution(name, len(values), tuple(different.tolist()), tuple(shares.tolist()))
        )
    return tuple(made)
