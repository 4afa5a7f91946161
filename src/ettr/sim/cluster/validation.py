"""The verdict of a back-test as a scenario carries it: what passed, what failed, since when."""

from __future__ import annotations

from dataclasses import dataclass

QUANTITIES = (
    "jobs submitted",
    "failure rate",
    "outages per node",
    "outages soon after another",
    "repair time, median",
    "repair time, mean",
    "utilisation",
    "lost goodput",
    "share FAILED",
    "share CANCELLED",
    "share TIMEOUT",
    "share OUT_OF_MEMORY",
    "share NODE_FAIL",
    "share PREEMPTED",
    "wait of part of a node, median",
    "wait of part of a node, 90 %",
    "wait of 1 node, median",
    "wait of 1 node, 90 %",
    "wait of 2 to 8 nodes, median",
    "wait of 2 to 8 nodes, 90 %",
    "wait of 9 nodes and more, median",
    "wait of 9 nodes and more, 90 %",
)
"""What a back-test compares."""
NEVER_VALIDATED = (
    "the effect of a change (whatif), since what is held back is the cluster as it is",
    "the split of lost work by checkpoints, which no scheduler records",
)


@dataclass(frozen=True, slots=True)
class Validation:
    """What a back-test found; `[validation]` in the file of a scenario.

    Attributes:
        store: Whose logs were held back.
        held_back_from: First day of them.
        held_back_until: The day on which they end.
        replicas: Simulations of that time.
        seed: Of the first.
        family_error: Chance that a scenario that is right fails in any quantity, at most.
        passed: Quantities (`QUANTITIES`) that lie within what was predicted.
        failed: Those that do not.
        not_measured: Those that reality or the simulations did not record often enough.
        values_sha256: Of the values that were tested; others are not validated by it.
        simulated: That the store is a simulation itself, in a sentence; empty where it is a site's.
    """

    store: str
    held_back_from: str
    held_back_until: str
    replicas: int
    seed: int
    family_error: float
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    not_measured: tuple[str, ...]
    values_sha256: str
    simulated: str = ""
