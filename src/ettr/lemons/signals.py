"""What else speaks for a node's being a lemon: signals with their times, and repairs.

Those that are failures of jobs themselves (NODE_FAIL of one node and of several) are counted by
the model as failures and shown here only. The others become further counts, as far as they are not
echoes of a failure that is counted already.

Source:
    Kokolis et al. (2025), section on lemon nodes: excluded jobs, XIDs, tickets, times out of
    service, NODE_FAIL of jobs of several nodes and of one, and the rate of the latter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ettr.units import SECONDS_PER_DAY

NodeName = tuple[str, str]
Times = Mapping[NodeName, Sequence[float]]

OUTAGES = "outages without a failed job"
XID_EPISODES = "XID episodes without a failed job"
TICKETS = "tickets without a failed job"
EXCLUSIONS = "users who excluded it without a failed job of theirs"
SAME_S = 3600.0
"""A signal and a failure of one node this close to each other are one event."""
TICKET_AFTER_S = 3 * SECONDS_PER_DAY
"""A ticket so soon after a failure of the node is about it."""
_ECHO_S: Mapping[str, tuple[float, float]] = {
    OUTAGES: (SAME_S, SAME_S),
    XID_EPISODES: (SAME_S, SAME_S),
    TICKETS: (SAME_S, TICKET_AFTER_S),
}
"""How long before and after a failure a signal is its echo."""


@dataclass(frozen=True, slots=True)
class NodeSignals:
    """The paper's seven signals of one node; None where no log could show one."""

    excluded_by_jobs: int | None
    excluded_by_users: int | None
    xid_episodes: int | None
    tickets: int | None
    outages: int | None
    multi_node_failures: int
    single_node_failures: int
    single_node_attempts: int
    single_node_failure_rate: float | None


@dataclass(frozen=True, slots=True)
class FleetSignals:
    """Signals of all nodes."""

    times_s: Mapping[str, Times]
    repairs_s: Times


def apart(name: str, times_s: Iterable[float], failures_s: Sequence[float]) -> tuple[float, ...]:
    """Those of a node's signals that are not the echo of a failure that names it."""
    if name not in _ECHO_S:
        return tuple(times_s)
    before_s, after_s = _ECHO_S[name]
    times, failures = np.fromiter(times_s, float), np.sort(np.asarray(failures_s, float))
    first = np.searchsorted(failures, times - after_s, side="left")
    last = np.searchsorted(failures, times + before_s, side="right")
    return tuple(times[first == last].tolist())
