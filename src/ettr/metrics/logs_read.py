"""Which kinds of logs were read: what none of them records was not measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ettr.facts import Facts
from ettr.metrics.availability import nodes_of
from ettr.tables.event_summaries import CONTROLLER_CHECK
from ettr.taxonomy import Taxonomy
from ettr.taxonomy.rules import KERNEL_CHECK

_AMD = "amdgpu"
"""Beginning of the codes of AMD's driver."""


@dataclass(frozen=True, slots=True)
class LogsRead:
    """Kinds of logs that a store holds.

    Attributes:
        node_checks: Checks with events about nodes that the taxonomy understands, by name: kernel
            messages and health checks. The scheduler's own log is not among them.
        unknown_checks: Checks with events of which the taxonomy knows no code: these events can
            explain nothing.
        node_logs: Logs of nodes that arrived, whether or not their lines report anything.
        gpu_errors: Whether any line was an error of a GPU's driver (XID, SXID, amdgpu), or any
            health check reported: where none was, a log may be one in which none would stand.
    """

    jobs: bool
    node_checks: tuple[str, ...]
    node_states: bool
    progress: bool
    unknown_checks: tuple[str, ...] = ()
    controller: bool = False
    node_logs: bool = False
    gpu_errors: bool = False

    @property
    def errors(self) -> bool:
        """Whether kernel messages or health checks of nodes arrived, with errors or without."""
        return bool(self.node_checks) or self.node_logs

    @property
    def failures_are_lower_bound(self) -> bool:
        """Whether failures go uncounted: of jobs that end FAILED only such checks name a cause."""
        return self.jobs and not self.errors


def logs_read(facts: Facts, taxonomy: Taxonomy, clusters: Collection[str] = ()) -> LogsRead:
    """Which kinds of logs the store holds.

    Args:
        clusters: only of these, since what arrived from one says nothing of another; all if empty.
    """
    if clusters and len(named_clusters(facts)) > 1:
        codes = facts.columns("event_codes")
        chosen = np.isin(codes["cluster"].astype(str), list(clusters))
        codes = {name: codes[name][chosen] for name in ("check", "code")}
    else:
        clusters, codes = (), facts.columns("event_census")
    kinds = set(zip(codes["check"].tolist(), codes["code"].tolist(), strict=True))
    pairs = [(check, code) for check, code in kinds if check != CONTROLLER_CHECK]
    understood = {check for check, code in pairs if taxonomy.knows(check, code)}

    def has_rows(table: str) -> bool:
        return any(
            row["table_name"] == table and (not clusters or row["cluster"] in clusters)
            for row in facts.rows("rows_by_cluster")
        )

    return LogsRead(
        jobs=has_rows("attempts"),
        node_checks=tuple(sorted(understood)),
        node_states=has_rows("node_states"),
        progress=has_rows("progress"),
        unknown_checks=tuple(sorted({check for check, _ in pairs} - understood)),
        controller=len(pairs) < len(kinds),
        node_logs=has_rows("log_days"),
        gpu_errors=any(
            check in understood and (check != KERNEL_CHECK or str(code).startswith(_AMD))
            for check, code in pairs
        ),
    )


def clusters_of(facts: Facts, *tables: str) -> frozenset[str]:
    """The clusters that rows of stored tables name (`rows_by_cluster` has which tables)."""
    rows = facts.rows("rows_by_cluster")
    named = {row["cluster"] for row in rows if row["table_name"] in tables}
    return frozenset(named - {None})


def named_clusters(facts: Facts) -> tuple[str, ...]:
    """Names of the clusters in the logs."""
    named = clusters_of(facts, "attempts", "nodes", "events", "incidents")
    if not named:
        held = {cluster for cluster, _ in nodes_of(facts, "allocations")}
        named = clusters_of(facts, "node_states", "progress") | held
    return tuple(sorted(named))
