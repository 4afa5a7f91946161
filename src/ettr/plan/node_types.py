"""A fleet of several node types, each with its own failure rate, as one run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.estimates import Interval


@dataclass(frozen=True, slots=True)
class NodeType:
    """Nodes of one type in a run.

    Attributes:
        name: Of the type.
        n_nodes: Of it in the run.
        per_node_day: Failures of one of them per day; both ends equal the estimate where the rate
            was typed without evidence.
    """

    name: str
    n_nodes: int
    per_node_day: Interval

    @property
    def failures_per_day(self) -> float:
        """Of all its nodes, at the estimate; 0 where nothing failed yet."""
        return self.n_nodes * (self.per_node_day.estimate or 0.0)


def mixed_rate(types: Sequence[NodeType]) -> Interval:
    """Failure rate of the mean node of a mixed run, per day.

    In a run in series the rates add: the mean over the nodes is all that the run depends on. A
    type without a failure adds 0 to the estimate; where no type has one there is no estimate.

    Raises:
        UsageError: no type, or one without nodes.

    **Source**: for the ends, the MOVER of Zou and Donner (2008), Statistics in Medicine 27: the
    distances of the ends of independent rates add as squares.
    """
    if not types or any(one.n_nodes < 1 for one in types):
        raise UsageError("a mixed run needs one node type or more, each with 1 node or more")
    total = sum(one.n_nodes for one in types)
    middle = sum(one.failures_per_day for one in types) / total
    below = above = 0.0
    for one in types:
        share, rate = one.n_nodes / total, one.per_node_day.estimate or 0.0
        below += (share * (rate - one.per_node_day.low)) ** 2
        above += (share * (one.per_node_day.high - rate)) ** 2
    high = middle + math.sqrt(above)
    if not middle and high:
        return Interval(None, 0.0, high)
    return Interval(middle, max(0.0, middle - math.sqrt(below)), high)
