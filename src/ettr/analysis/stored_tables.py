"""The stored tables as expressions, for what is not yet answered from facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ibis.expr.types import Table

from ettr.facts.interop import as_ibis
from ettr.tables import TABLES

if TYPE_CHECKING:
    from ettr.analysis.log_stages import LogStages


class StoredTables(Mapping[str, Table]):
    """What every stage reads: whole jobs, and who cancelled one wherever any log says it."""

    def __init__(self, logs: LogStages) -> None:
        self._logs = logs
        self._made: dict[str, Table] = {}

    def __getitem__(self, name: str) -> Table:
        if name not in self._made:
            facts = self._logs.facts
            same = facts.table(name) == facts.table(f"raw_{name}")
            self._made[name] = self._logs.read_store.table(name) if same else as_ibis(facts, name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)
