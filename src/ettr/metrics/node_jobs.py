"""What ran on each node and how it ended, in one pass over what jobs held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ettr.facts import Facts, made
from ettr.units import MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class NodeJobs:
    """What ran on one node.

    Attributes:
        first_s: When the first of its attempts began, in seconds since 1970; None where no log
            says.
        last_s: When the last one ended; infinity where one goes on.
    """

    elapsed_s: float
    multi_node_failures: int
    single_node_failures: int
    single_node_attempts: int
    first_s: float | None = None
    last_s: float | None = None
    span_s: float = 0.0

    @property
    def single_node_failure_rate(self) -> float | None:
        """Share of the attempts on it alone that ended as NODE_FAIL; None without any."""
        if not self.single_node_attempts:
            return None
        return self.single_node_failures / self.single_node_attempts


NOTHING_RAN = NodeJobs(0.0, 0, 0, 0)


def node_jobs(facts: Facts) -> Mapping[tuple[str, str], NodeJobs]:
    """What the chosen attempts ran on each node, by cluster and name."""
    return {
        (row["cluster"], row["node"]): NodeJobs(
            row["elapsed_s"] or 0.0,
            int(row["multi"]),
            int(row["single"]),
            int(row["alone"]),
            _seconds(row["first_us"]),
            math.inf if row["goes_on"] else _seconds(row["last_us"]),
            float(row["span_s"] or 0),
        )
        for row in facts.rows("node_jobs")
    }


@made(
    "node_jobs",
    (),
    reads=("node_jobs_joined", "node_jobs_listed"),
    takes=("selection", "all_listed"),
)
def _node_jobs(facts: Facts) -> str:
    """Lists of nodes that say all that attempts held spare a join with all of them."""
    listed = facts.given("selection").is_everything and facts.given("all_listed")
    return facts.table("node_jobs_listed" if listed else "node_jobs_joined")


def _seconds(moment_us: int | None) -> float | None:
    return None if moment_us is None else moment_us / MICROSECONDS_PER_SECOND
