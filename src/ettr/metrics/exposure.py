"""The exposure behind every failure rate: node-time that jobs ran, defined once.

A log may name the nodes of an attempt (rows in `allocations`), say how many they were
(`attempts.n_nodes`), both, or neither. Attempt by attempt, so that logs of different detail can
lie in one store:

1. where its nodes are named, the sum of the time it ran on each of them;
2. else where their number is known, that number times its runtime;
3. else nothing: the attempt adds no exposure, and `ExposureBasis` counts it.

An attempt that began and whose log does not say for how long adds none either, and is counted
apart. Time suspended is no runtime. A node that two jobs share is exposed twice, once in each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ettr.facts import Facts, made
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR
from ettr.words import by_number

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ExposureBasis:
    """What the exposure rests on: attempts that ran, by what their log says of their nodes.

    Attributes:
        attempts_without_runtime: Attempts that began, and no log says how long they ran; they add
            no exposure either, whatever is known of their nodes.
    """

    node_hours: float
    named_node_hours: float
    attempts_named: int
    attempts_counted: int
    attempts_unknown: int
    attempts_without_runtime: int

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a reader must know of it, one sentence each; none where all nodes are named."""
        words = {
            "The nodes of {n} [attempt|attempts] are not named: [its|their] exposure is "
            "[its|their] number of nodes times [its|their] runtime.": self.attempts_counted,
            "{n} [attempt that ran names|attempts that ran name] no nodes and no number of nodes: "
            "[it adds|they add] no exposure, so rates come out too high.": self.attempts_unknown,
            "{n} [attempt that began does|attempts that began do] not say how long [it|they] ran: "
            "[it adds|they add] no exposure, so rates come out too "
            "high.": self.attempts_without_runtime,
        }
        return tuple(by_number(sentence, n) for sentence, n in words.items() if n)


@made("exposure", (), reads=("exposure_joined", "exposure_listed"), takes=("all_listed",))
def _by_attempt(facts: Facts) -> str:
    """One row is a selected attempt and the node-time that it ran.

    The list of nodes of each attempt may say all that it held: then a join is spared.
    """
    return facts.table("exposure_listed" if facts.given("all_listed") else "exposure_joined")


@made(
    "exposure_nodes",
    (),
    reads=("exposure_nodes_all", "exposure_nodes_named", "exposure_basis", "held_totals"),
    takes=("all_listed",),
)
def _by_node(facts: Facts) -> str:
    """One row is a node of a selected attempt, with its time there.

    Two joins are left out where they change nothing.
    """
    basis = facts.row("exposure_basis")
    foreign = False
    if not facts.given("all_listed"):
        foreign = facts.row("held_totals")["held_s"] > basis["named_s"] * (1.0 + _ROUNDING)
    alone = not foreign and not basis["counted"]
    return facts.table("exposure_nodes_named" if alone else "exposure_nodes_all")


def exposure_basis(facts: Facts) -> ExposureBasis:
    """The exposure of the selected attempts, from the best that the log says of each."""
    row = facts.row("exposure_basis")
    return ExposureBasis(
        node_hours=row["node_s"] / SECONDS_PER_HOUR,
        named_node_hours=row["named_s"] / SECONDS_PER_HOUR,
        attempts_named=int(row["named"]),
        attempts_counted=int(row["counted"]),
        attempts_unknown=int(row["unknown"]),
        attempts_without_runtime=int(row["without_runtime"]),
    )


# -- Whether the allocations say no more than the attempts do: then few questions need a join of
#    both
#
# Where that holds throughout, the node-time of an attempt is its time times its nodes. To join
# millions of attempts with what they held by their ids, which are long texts, costs ten times as
# much as to test it.


def every_node_is_listed(facts: Facts) -> bool:
    """Whether each attempt with a list of nodes holds as many rows as it has, with its own times.

    Also that no other rows are held, and that the list of an attempt on one node is the name of a
    node. An ingestion makes the rows of the lists, and of tables that contradict each other the
    lists count.
    """
    row = facts.row("node_lists")
    if row["no_number"] or row["unheld"]:
        return False
    return all(row[f"listed{half}"] == row[f"held{half}"] for half in ("", "_low", "_high"))


# -- What ran on each node and how it ended, in one pass over what jobs held ----------------------


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
