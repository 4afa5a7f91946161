"""The stored tables as expressions, for what is not yet answered from facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ibis.expr.types import Table

from ettr.attribution.cancellations import with_cancellers
from ettr.attribution.controller_states import with_controller_states
from ettr.facts.interop import as_ibis
from ettr.metrics.unended_states import UnendedStates, with_known_ends
from ettr.tables import TABLES
from ettr.tables.materialize import materialize

if TYPE_CHECKING:
    from ettr.analysis.log_stages import LogStages

_CONTROLLER = "slurmctld-log"


class StoredTables(Mapping[str, Table]):
    """What every stage reads: whole jobs, and who cancelled one wherever any log says it.

    Attributes:
        unended_states: States of nodes that no log ends, though they are over; None: there is none,
            or none was asked for.
    """

    def __init__(self, logs: LogStages, layer: str) -> None:
        self._logs = logs
        self._layer = layer
        self._made: dict[str, Table] = {}
        self._unended: UnendedStates | None = None

    @property
    def unended_states(self) -> UnendedStates | None:
        """States of nodes that no log ends, though they are over; None: there is none."""
        _ = self["node_states"]
        return self._unended

    def __getitem__(self, name: str) -> Table:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)

    def is_as_stored(self, name: str) -> bool:
        """Whether a table is that of the facts of its layer, no rule having changed it."""
        return self[name] is self._of_facts(name)

    def _of_facts(self, name: str) -> Table:
        key = f"of facts {name}"
        if key not in self._made:
            facts, layer = self._logs.facts, self._layer
            if layer == "parts" and name not in ("attempts", "allocations"):
                layer = "named"
            same = facts.table(f"{layer}_{name}") == facts.table(f"raw_{name}")
            self._made[key] = (
                self._logs.read_store.table(name) if same else as_ibis(facts, f"{layer}_{name}")
            )
        return self._made[key]

    def _make(self, name: str) -> Table:
        found = self._of_facts(name)
        if self._layer == "parts":
            return found
        if name == "attempts":
            of_events = self._of_facts("events")
            made = with_cancellers(found, of_events, self._logs.assumptions.matching)
        elif name == "node_states":
            held, attempts = self._of_facts("allocations"), self._of_facts("attempts")
            made, self._unended = with_known_ends(found, held, attempts)
            if any(file.source == _CONTROLLER for file in self._logs.read_store.files()):
                made = with_controller_states(made, self._of_facts("events"), held)
        else:
            return found
        if made is not found and self._logs.read_store.is_small(name):
            return materialize(made)
        return made
