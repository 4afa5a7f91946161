"""Small tables for the tests of attribution: a cluster `c` whose clock starts at `at(0)`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import ibis
import pyarrow as pa

from ettr.attribution import Attribution, FoldingRules, Window, attribute
from ettr.tables import ALLOCATIONS, ATTEMPTS, EVENTS, NODE_STATES, Table
from ettr.taxonomy import load_taxonomy

CLUSTER = "c"
TAXONOMY = load_taxonomy()
_ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_NAMES = count()


def at(offset_s: float) -> dt.datetime:
    """The time `offset_s` seconds after the start of the tests' clock."""
    return _ZERO + dt.timedelta(seconds=offset_s)


def arrow(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows in the table's schema, checked; columns that a row leaves out are null."""
    return table.check(pa.Table.from_pylist(rows, schema=table.arrow_schema))


@dataclass
class Cluster:
    """Rows of the four tables that attribution reads, in plain Python."""

    attempts: list[dict[str, Any]] = field(default_factory=list)
    allocations: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    node_states: list[dict[str, Any]] = field(default_factory=list)

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

    def on(self, connection: ibis.BaseBackend) -> Tables:
        """The four tables on a backend, under names that no other test uses."""
        made = [
            _create(connection, f"{table.name}_{next(_NAMES)}", arrow(table, rows))
            for table, rows in (
                (ATTEMPTS, self.attempts),
                (ALLOCATIONS, self.allocations),
                (EVENTS, self.events),
                (NODE_STATES, self.node_states),
            )
        ]
        return Tables(*made)

    def _origin(self, source: str) -> dict[str, Any]:
        line = 1 + len(self.attempts) + len(self.events) + len(self.node_states)
        return {"source": source, "file_id": f"file-{source}", "line": line}


@dataclass(frozen=True)
class Tables:
    """The tables on a backend."""

    attempts: ibis.Table
    allocations: ibis.Table
    events: ibis.Table
    node_states: ibis.Table

    def attribute(
        self, *, rules: FoldingRules | None = None, window: Window | None = None
    ) -> Attribution:
        """Attribution by the package's own taxonomy."""
        return attribute(
            self.attempts,
            self.allocations,
            self.events,
            self.node_states,
            TAXONOMY,
            rules=rules,
            window=window,
        )


def _create(connection: ibis.BaseBackend, name: str, table: pa.Table) -> ibis.Table:
    if connection.name != "pyspark":
        return connection.create_table(name, table)
    # through create_table, ibis 12 loses whole numbers of a column that also holds nulls
    connection._session.createDataFrame(table).createOrReplaceTempView(name)
    return connection.table(name)


def rows(table: ibis.Table, *order: str) -> list[dict[str, Any]]:
    """All rows as dictionaries, in order."""
    found = (table.order_by(list(order)) if order else table).to_pyarrow().to_pylist()
    return [{name: _aware(value) for name, value in row.items()} for row in found]


def _aware(value: Any) -> Any:
    """Spark hands out the times of its views without their zone, which is UTC."""
    naive = isinstance(value, dt.datetime) and value.tzinfo is None
    return value.replace(tzinfo=dt.UTC) if naive else value


def by_job(table: ibis.Table) -> dict[str, dict[str, Any]]:
    """Rows by their job, which no two of them may share."""
    found = rows(table, "job_id")
    assert len({row["job_id"] for row in found}) == len(found)
    return {row["job_id"]: row for row in found}
