"""Small tables for the tests of attribution: a cluster `c` whose clock starts at `at(0)`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ettr.analysis.assumptions import Assumptions
from ettr.attribution.job_history import failure_rows
from ettr.facts import Facts
from ettr.tables import ALLOCATIONS, ATTEMPTS, EVENTS, FILES, NODE_STATES, Table
from ettr.taxonomy import load_taxonomy
from fact_tables import attributed

CLUSTER = "c"
TAXONOMY = load_taxonomy()
_ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(offset_s: float) -> dt.datetime:
    """The time `offset_s` seconds after the start of the tests' clock."""
    return _ZERO + dt.timedelta(seconds=offset_s)


def arrow(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows in the table's schema, checked; columns that a row leaves out are null."""
    return table.check(pa.Table.from_pylist(rows, schema=table.arrow_schema))


@dataclass
class Cluster:
    """Rows of the tables that attribution reads, in plain Python."""

    attempts: list[dict[str, Any]] = field(default_factory=list)
    allocations: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    node_states: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)

    def attempt(
        self,
        job_id: str,
        state: str,
        nodes: tuple[str, ...] = ("n1",),
        *,
        start_s: float = 0.0,
        end_s: float | None = 7200.0,
        **more: Any,
    ) -> str:
        """Add one attempt with its allocations; returns its id."""
        attempt_id = f"{CLUSTER}/{job_id}@{start_s:.0f}"
        end = None if end_s is None else at(end_s)
        elapsed_s = (end_s or start_s) - start_s
        origin = self._origin("sacct")
        self.attempts.append(
            {
                "cluster": CLUSTER,
                "attempt_id": attempt_id,
                "job_id": job_id,
                "user": "ann",
                "state": state,
                "submit": at(start_s - 60),
                "start": at(start_s),
                "end": end,
                "elapsed_s": elapsed_s,
                "n_nodes": len(nodes),
                "n_gpus": 8 * len(nodes),
                "node_list": ",".join(nodes) or None,
                **origin,
                **more,
            }
        )
        self.allocations.extend(
            {
                "cluster": CLUSTER,
                "attempt_id": attempt_id,
                "node": node,
                "start": at(start_s),
                "end": end,
                "elapsed_s": elapsed_s,
                "n_gpus": 8.0,
                **origin,
            }
            for node in nodes
        )
        return attempt_id

    def event(
        self, node: str | None, time_s: float, code: str | None, check: str = "xid", **more: Any
    ) -> str:
        """Add one event; returns its id."""
        event_id = more.pop("event_id", f"e{len(self.events):04d}")
        self.events.append(
            {
                "event_id": event_id,
                "cluster": CLUSTER,
                "node": node,
                "time": at(time_s),
                "check": check,
                "code": code,
                "severity": "unknown",
                **self._origin("kern"),
                **more,
            }
        )
        return event_id

    def state(self, node: str, state: str, reason: str | None, start_s: float) -> str:
        """Add one interval of a node's state; returns the id it has among evidence."""
        self.node_states.append(
            {
                "cluster": CLUSTER,
                "node": node,
                "state": state,
                "reason": reason,
                "start": at(start_s),
                "end": at(start_s + 3600),
                **self._origin("events"),
            }
        )
        return f"node_state/{CLUSTER}/{node}/{state}/{round(at(start_s).timestamp() * 1e6)}"

    def on(self, **assumed: Any) -> Facts:
        """Facts of the tables, under those assumptions."""
        return attributed(
            {
                table.name: arrow(table, rows)
                for table, rows in (
                    (ATTEMPTS, self.attempts),
                    (ALLOCATIONS, self.allocations),
                    (EVENTS, self.events),
                    (NODE_STATES, self.node_states),
                    (FILES, self.files),
                )
            },
            Assumptions(**assumed),
        )

    def failures(self, **assumed: Any) -> list[dict[str, Any]]:
        """Rows of the table `failures`, under those assumptions."""
        return failure_rows(self.on(**assumed))

    def interruptions(self, **assumed: Any) -> list[dict[str, Any]]:
        """Rows of the fact `all_endings`, under those assumptions."""
        return self.on(**assumed).rows("all_endings")

    def _origin(self, source: str) -> dict[str, Any]:
        line = 1 + len(self.attempts) + len(self.events) + len(self.node_states)
        return {"source": source, "file_id": f"file-{source}", "line": line}


def by_job(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows by their job, which no two of them may share."""
    assert len({row["job_id"] for row in found}) == len(found)
    return {row["job_id"]: row for row in found}
