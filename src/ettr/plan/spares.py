"""Spare nodes as a closed loop: nodes fail only while the job runs.

While too few nodes are left the job stands still and nothing fails, so the number in repair never
exceeds the spares by more than one. That is a queue with spares + 1 servers and no waiting room:
the share of time in which the job stands still is Erlang's loss.
"""

from ettr.errors import UsageError


def standstill_share(spares: int, offered: float) -> float:
    """Share of time in which a job stands still for want of nodes.

    It depends on the mean repair time alone, not on the law of repairs.

    Args:
        spares: Nodes held ready, which do not fail while they wait.
        offered: Failures of the running job per day, times the mean repair in days: the nodes that
            would be in repair if failures never stopped.

    Raises:
        UsageError: a negative number of spares or of nodes.

    Source:
        Erlang (1917); Sevastyanov (1957), Theory of Probability 2, for any law of repair times.
    """
    if spares < 0 or offered < 0:
        raise UsageError(f"spares {spares} and offered {offered} nodes: give 0 or more of each")
    if offered == 0:
        return 0.0
    inverse = 1.0
    for servers in range(1, spares + 2):
        # 1 / B grows without bound where spares are many: then the loss is nothing
        inverse = 1.0 + inverse * servers / offered
        if inverse > 1e300:
            return 0.0
    return 1.0 / inverse


def spares_needed(offered: float, full_share: float = 0.99) -> int:
    """Fewest spares with which the job has all its nodes for that share of the time.

    Raises:
        UsageError: a share outside 0 to 1, or a negative number of nodes.
    """
    if not 0.0 < full_share < 1.0:
        raise UsageError(f"full_share is {full_share}; give a share between 0 and 1, such as 0.99")
    if offered < 0:
        raise UsageError(f"offered is {offered} nodes; give 0 or more")
    inverse, spares = 1.0, 0
    while offered > 0:
        inverse = 1.0 + inverse * (spares + 1) / offered
        if 1.0 / inverse <= 1.0 - full_share:
            break
        spares += 1
    return spares
