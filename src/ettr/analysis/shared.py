"""What several questions about a store share: its tables, period, fleet, exposure and failures.

Each is computed once, when the first question asks for it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import ibis

from ettr.analysis.assumptions import Assumptions
from ettr.analysis.stored_tables import StoredTables, stored_tables
from ettr.attribution import Attribution, attribute
from ettr.errors import StoreError
from ettr.metrics.availability import Service, service
from ettr.metrics.event_census import event_census
from ettr.metrics.exposure import Exposure, exposure
from ettr.metrics.incidents import IncidentLedger, incident_ledger
from ettr.metrics.instants import Period, observed_period
from ettr.metrics.logs_read import LogsRead, logs_read
from ettr.metrics.sizes import SizeUnit, main_size_unit
from ettr.metrics.totals import Totals, totals
from ettr.store import Store
from ettr.taxonomy import Taxonomy, load_taxonomy

if TYPE_CHECKING:
    from ettr.analysis.clustering import FailureClustering


class SharedStages:
    """Stages over one store, each computed when it is first asked for and then kept."""

    def __init__(self, store: Store, assumptions: Assumptions | None = None) -> None:
        self.store = store
        self.assumptions = assumptions or Assumptions()

    @cached_property
    def stored(self) -> StoredTables:
        """The store's tables, as the logs have them and as every stage reads them."""
        return stored_tables(self.store, self.assumptions)

    @property
    def tables(self) -> dict[str, ibis.Table]:
        """The tables by name that every stage reads."""
        return self.stored.tables

    @cached_property
    def taxonomy(self) -> Taxonomy:
        """The taxonomy with the site's rows laid over it."""
        given = self.assumptions
        return load_taxonomy(given.taxonomy_file, believe=given.believe)

    @cached_property
    def period(self) -> Period:
        """The time that the logs cover.

        Raises:
            StoreError: the store holds no rows.
        """
        t = self.tables
        found = observed_period(
            t["attempts"],
            t["node_states"],
            t["events"],
            t["nodes"],
            t["allocations"],
            t["progress"],
        )
        if found is None and self.incidents is not None:
            # a ledger is no log: it says when things happened only where no log does
            found = Period(self.incidents.first, self.incidents.last)
        if found is None:
            raise StoreError(
                f"{self.store.where}: holds no rows yet; `ettr ingest {self.store.where} FILE...` "
                "reads logs into it"
            )
        return found

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters in the logs."""
        named = self._clusters_in("attempts", "nodes", "events", "incidents")
        return named or self._clusters_in("node_states", "allocations", "progress")

    def _clusters_in(self, *tables: str) -> tuple[str, ...]:
        names: set[str] = set()
        for table in tables:
            column = self.tables[table].select("cluster").distinct().to_pyarrow()["cluster"]
            names.update(name for name in column.to_pylist() if name is not None)
        return tuple(sorted(names))

    @cached_property
    def event_census(self) -> ibis.Table:
        """How many events there are of each kind on each day."""
        return event_census(self.tables["events"])

    @cached_property
    def logs_read(self) -> LogsRead:
        """Which kinds of logs the store holds."""
        t = self.tables
        return logs_read(
            t["attempts"],
            t["events"],
            t["node_states"],
            t["progress"],
            self.taxonomy,
            self.event_census,
        )

    @cached_property
    def incidents(self) -> IncidentLedger | None:
        """What incident ledgers state; None where there is none."""
        return incident_ledger(self.tables["incidents"])

    @cached_property
    def fleet(self) -> Service:
        """Nodes and their time in service."""
        t, given = self.tables, self.assumptions
        return service(
            t["nodes"],
            t["node_states"],
            self.period,
            t["allocations"],
            t["events"],
            n_nodes=given.n_nodes,
            gpus_per_node=given.gpus_per_node,
        )

    @property
    def fleet_is_known(self) -> bool:
        """Whether the logs name more nodes than those that had trouble."""
        return self.fleet.is_known

    @cached_property
    def exposure(self) -> Exposure:
        """Node-time that jobs ran: the denominator of every failure rate."""
        return exposure(self.tables["attempts"], self.tables["allocations"])

    @cached_property
    def attribution(self) -> Attribution:
        """Interruptions, episodes and failures."""
        t = self.tables
        return attribute(
            t["attempts"],
            t["allocations"],
            t["events"],
            t["node_states"],
            self.taxonomy,
            rules=self.assumptions.folding,
            window=self.assumptions.window,
            matching=self.assumptions.matching,
        )

    @cached_property
    def failures(self) -> ibis.Table:
        """The table `failures`."""
        return self.attribution.failures

    @cached_property
    def clustering(self) -> FailureClustering:
        """How failures cluster over time and over nodes."""
        from ettr.analysis.clustering import failure_clustering

        given = self.assumptions
        return failure_clustering(
            self.exposure, self.failures, self.period, given.above_gpus, given.confidence
        )

    @cached_property
    def totals(self) -> Totals:
        """Jobs, attempts and hours."""
        return totals(self.tables["attempts"], self.stored.parts["attempts"])

    @cached_property
    def size_unit(self) -> SizeUnit:
        """GPUs where the cluster has any, else nodes."""
        return main_size_unit(self.tables["attempts"])
