"""Nodes whose logs and jobs give them different names: errors there explain no failure."""

from __future__ import annotations

from dataclasses import dataclass

from ettr.facts import Facts
from ettr.metrics.availability import event_nodes, nodes_of


@dataclass(frozen=True, slots=True)
class OtherName:
    """One node under two names."""

    in_events: str
    in_jobs: str


def other_names(facts: Facts) -> tuple[OtherName, ...]:
    """Nodes of events that ran no job, and jobs' nodes with the same host name.

    Host names are the part before the first dot, in lower case. A node that ran no job under
    either name is not listed: it may have been idle.
    """
    events, jobs = event_nodes(facts), nodes_of(facts, "allocations")
    by_host: dict[tuple[str, str], str] = {
        (cluster, _host(node)): node for cluster, node in sorted(jobs)
    }
    strange = sorted(events - jobs)
    return tuple(
        OtherName(node, by_host[cluster, _host(node)])
        for cluster, node in strange
        if (cluster, _host(node)) in by_host
    )


def _host(node: str) -> str:
    return node.partition(".")[0].lower()
