"""Which kinds of logs were read: what none of them records was not measured."""

from __future__ import annotations

from dataclasses import dataclass

import ibis

from ettr.metrics.instants import has_rows

CONTROLLER_CHECK = "slurmctld"


@dataclass(frozen=True, slots=True)
class LogsRead:
    """Kinds of logs that a store holds.

    Attributes:
        jobs: Job accounting.
        node_checks: Checks with events about nodes, by name: kernel messages and health checks.
            The scheduler's own log is not among them.
        node_states: States of nodes, without which outages are unknown.
        progress: Progress records, without which the ETTR of a run is assumed.
    """

    jobs: bool
    node_checks: tuple[str, ...]
    node_states: bool
    progress: bool

    @property
    def failures_are_lower_bound(self) -> bool:
        """Whether failures go uncounted: of jobs that end FAILED only such checks name a cause."""
        return self.jobs and not self.node_checks


def logs_read(
    attempts: ibis.Table, events: ibis.Table, node_states: ibis.Table, progress: ibis.Table
) -> LogsRead:
    """Which kinds of logs the tables came from."""
    checks = events.select("check").distinct().to_pyarrow().column("check").to_pylist()
    return LogsRead(
        jobs=has_rows(attempts),
        node_checks=tuple(sorted(check for check in checks if check != CONTROLLER_CHECK)),
        node_states=has_rows(node_states),
        progress=has_rows(progress),
    )
