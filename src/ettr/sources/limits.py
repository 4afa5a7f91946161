"""What no record can be: one beyond these limits is rejected, or it would decide every rate."""

from __future__ import annotations

from datetime import UTC, datetime

from ettr.units import SECONDS_PER_DAY

FIRST_YEAR, LAST_YEAR = 1980, 2200
EARLIEST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
LATEST = datetime(LAST_YEAR, 12, 31, 23, 59, 59, tzinfo=UTC)
# one attempt, one event of a training run
LONGEST_S = 20 * 366 * SECONDS_PER_DAY
# several times what the largest machines have in one
MOST_GPUS_PER_NODE = 1024
# more than any machine has: a list beyond it is damage, and expanding it would eat memory
MOST_NODES = 200_000
# what the lists of one file name in all, each node as often as it is named: a tree of switches
# names a node once a level, and a machine of the largest size may have several
MOST_NAMED = 5 * MOST_NODES
# no host has a longer name; what names many nodes at once writes it once for each
LONGEST_NAME = 255


def most_gpus(n_nodes: int | None) -> int:
    """The most GPUs that so many nodes can have."""
    return MOST_GPUS_PER_NODE * max(1, MOST_NODES if n_nodes is None else n_nodes)


def most_listed(n_nodes: int | None) -> int:
    """The most nodes that a list may name of which a record says that there are so many.

    Some logs count the nodes of a job that was resized otherwise than they list them.
    """
    return MOST_NODES if n_nodes is None else 2 * n_nodes + 64
