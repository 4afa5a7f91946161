"""Nodes whose logs and jobs give them different names: errors there explain no failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ettr.metrics.availability import event_nodes, nodes_of

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis


@dataclass(frozen=True, slots=True)
class OtherName:
    """One node under two names."""

    in_events: str
    in_jobs: str


def other_names(analysis: Analysis) -> tuple[OtherName, ...]:
    """Nodes of events that ran no job, and jobs' nodes with the same host name.

    Host names are the part before the first dot, in lower case. A node that ran no job under
    either name is not listed: it may have been idle.
    """
    events, jobs = event_nodes(analysis.facts), nodes_of(analysis.facts, "allocations")
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
