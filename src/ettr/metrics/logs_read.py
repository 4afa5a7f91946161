"""Which kinds of logs were read: what none of them records was not measured."""

from __future__ import annotations

from dataclasses import dataclass

import ibis

from ettr.metrics.instants import has_rows
from ettr.tables.event_summaries import CONTROLLER_CHECK
from ettr.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class LogsRead:
    """Kinds of logs that a store holds.

    Attributes:
        jobs: Job accounting.
        node_checks: Checks with events about nodes that the taxonomy understands, by name: kernel
            messages and health checks. The scheduler's own log is not among them.
        node_states: States of nodes, without which outages are unknown.
        progress: Progress records, without which the ETTR of a run is assumed.
        unknown_checks: Checks with events of which the taxonomy knows no code: these events can
            explain nothing.
        controller: The scheduler's own log, which names nodes that failed and who cancelled.
        node_logs: Logs of nodes that arrived, whether or not their lines report anything.
    """

    jobs: bool
    node_checks: tuple[str, ...]
    node_states: bool
    progress: bool
    unknown_checks: tuple[str, ...] = ()
    controller: bool = False
    node_logs: bool = False

    @property
    def errors(self) -> bool:
        """Whether kernel messages or health checks of nodes arrived, with errors or without."""
        return bool(self.node_checks) or self.node_logs

    @property
    def failures_are_lower_bound(self) -> bool:
        """Whether failures go uncounted: of jobs that end FAILED only such checks name a cause."""
        return self.jobs and not self.errors


def logs_read(
    attempts: ibis.Table,
    events: ibis.Table,
    node_states: ibis.Table,
    progress: ibis.Table,
    taxonomy: Taxonomy,
    census: ibis.Table | None = None,
    log_days: ibis.Table | None = None,
) -> LogsRead:
    """Which kinds of logs the tables came from.

    Args:
        attempts: the table `attempts`; likewise the next three.
        events: observations.
        node_states: states of nodes.
        progress: progress records.
        taxonomy: which checks and codes are understood.
        census: of the events (`event_census`), where it is at hand.
        log_days: on which days the logs of nodes arrived.
    """
    kinds = events if census is None else census
    rows = kinds.select("check", "code").distinct().to_pyarrow().to_pylist()
    pairs = [(row["check"], row["code"]) for row in rows if row["check"] != CONTROLLER_CHECK]
    understood = {check for check, code in pairs if taxonomy.knows(check, code)}
    return LogsRead(
        jobs=has_rows(attempts),
        node_checks=tuple(sorted(understood)),
        node_states=has_rows(node_states),
        progress=has_rows(progress),
        unknown_checks=tuple(sorted({check for check, _ in pairs} - understood)),
        controller=len(pairs) < len(rows),
        node_logs=log_days is not None and has_rows(log_days),
    )
