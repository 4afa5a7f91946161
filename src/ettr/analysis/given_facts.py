"""The facts of an analysis: of a store, under a selection and what is assumed."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import ettr.attribution.job_history
import ettr.attribution.rules

# facts made in Python
import ettr.attribution.shared_bursts
import ettr.facts.opening
import ettr.metrics.outages  # noqa: F401
from ettr.analysis.assumptions import Assumptions, asked
from ettr.analysis.selecting import is_pattern, resolved, selected_period
from ettr.errors import StoreError
from ettr.facts import Facts, load_when_unknown
from ettr.facts.chosen import microseconds
from ettr.facts.duck import FactText, documented
from ettr.facts.facts import Deferred
from ettr.facts.het_jobs import HetJobs
from ettr.facts.naming import Naming
from ettr.facts.opening import facts_of_store
from ettr.metrics.availability import LogsRead, clusters_of, logs_read
from ettr.metrics.instants import Period, observed_period
from ettr.metrics.outages import IncidentLedger, incident_ledger
from ettr.selection import Selection
from ettr.store import Store
from ettr.store.opening import on_duckdb
from ettr.tables.rows import DEFAULT_CLUSTER
from ettr.taxonomy import Taxonomy, load_taxonomy
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR


class OfStore(Protocol):
    """What the facts of an analysis take."""

    store: Store
    assumptions: Assumptions
    selection: Selection
    taxonomy: Taxonomy
    period: Period
    logs_period: Period

    @property
    def every_node_is_listed(self) -> bool:
        """Whether the allocations say no more than their attempts."""
        ...


def facts_of(stages: OfStore, shared: Facts | None) -> Facts:
    """The facts of an analysis; `shared`: those of another one of the same store."""
    chosen = stages.selection
    own = {
        "selection": chosen,
        "since_us": microseconds(chosen.since),
        "until_us": microseconds(chosen.until),
        "period_start_us": Deferred(lambda _: microseconds(stages.period.start)),
        "period_end_us": Deferred(lambda _: microseconds(stages.period.end)),
        "all_listed": Deferred(lambda _: stages.every_node_is_listed),
        "every_cluster": not chosen.cluster,
        "of_record": False,
        "runs_may_split": chosen.may_split_runs,
    }
    if shared is not None:
        return shared.under(**own)
    return facts_of_store(
        stages.store if stages.store.keeps_parquet else on_duckdb(stages.store),
        logs=stages,
        assumptions=stages.assumptions,
        taxonomy=Deferred(lambda _: stages.taxonomy),
        gpus_per_node=stages.assumptions.gpus_per_node,
        logs_start_us=Deferred(lambda _: microseconds(stages.logs_period.start)),
        logs_end_us=Deferred(lambda _: microseconds(stages.logs_period.end)),
        **attribution_values(stages.assumptions),
        **own,
    )


def documented_facts() -> list[FactText]:
    """All facts that a statement may read, those made in Python too."""
    know_every_fact()
    return documented()


def know_every_fact() -> None:
    """Load what makes facts in Python that only some questions read."""
    import ettr.analysis.back_test
    import ettr.analysis.evidence
    import ettr.analysis.loss_questions
    import ettr.analysis.questions
    import ettr.lemons.fleet
    import ettr.metrics.black_holes  # noqa: F401


load_when_unknown(know_every_fact)


def attribution_values(given: Assumptions) -> dict[str, object]:
    """The rules of attribution, as facts take them."""
    window, folding, matching = given.window, given.folding, given.matching
    bucket_s = max(SECONDS_PER_HOUR, window.length_s)
    lengths_s = {"before": window.before_s, "after": window.after_s, "bucket": bucket_s}
    lengths_s |= {"burst": folding.burst_gap_s, "sticky": folding.sticky_gap_s}
    lengths_s["tolerance"] = matching.tolerance_s
    # a node that hung a run is drained within a day; who records no step for half an hour is hung
    lengths_s |= {"hung_out": SECONDS_PER_DAY, "hung_silent": SECONDS_PER_HOUR / 2}
    lengths_us = {
        f"{name}_us": round(length_s * MICROSECONDS_PER_SECOND)
        for name, length_s in lengths_s.items()
    }
    return {"folding": folding, "above_gpus": given.above_gpus, **lengths_us}


# -- what a store's logs hold: their tables, period, clusters and kinds, before any question -------
# Each is computed once, when it is first asked for.


class LogStages:
    """Stages over the logs of one store; what begins with `logs` is of all of them.

    `logs_read` is of the selected clusters, and part of no verdict.
    """

    def __init__(
        self,
        store: Store,
        assumptions: Assumptions | None = None,
        selection: Selection | None = None,
    ) -> None:
        self.store = store
        self.assumptions = assumptions or Assumptions()
        self.selection = selection or Selection()
        by_names = (*map(is_pattern, self.selection.node), *self.selection.place)
        if self.selection.counts_back or any(by_names):
            bare = type(self)(store, assumptions)
            self.selection = resolved(self.selection, bare.given)
            self.facts = facts_of(self.given, bare.facts)

    @property
    def given(self) -> Any:
        """Itself, for what says what it takes: to mypy a cached property is read-only."""
        return self

    @property
    def naming(self) -> Naming:
        """Of which clusters those rows are that name none."""
        found: Naming = self.facts.given("naming")
        return found

    @property
    def het_jobs(self) -> HetJobs:
        """The heterogeneous jobs, and the ids under which their parts go."""
        found: HetJobs = self.facts.given("het_jobs")
        return found

    @cached_property
    def facts(self) -> Facts:
        """The facts of the store under the selection."""
        return facts_of(self.given, None)

    @cached_property
    def taxonomy(self) -> Taxonomy:
        """The taxonomy with the site's rows laid over it."""
        given = self.assumptions
        return load_taxonomy(given.taxonomy_file, believe=given.believe)

    @property
    def selected(self) -> Selection | None:
        """The selection; None where nothing is left out."""
        return None if self.selection.is_everything else self.selection

    @cached_property
    def period(self) -> Period:
        """The part of the time that the logs cover which is selected.

        Raises:
            StoreError: the store holds no rows.
        """
        logs = self.logs_period
        return selected_period(logs, self.selection) if self.selection.has_period else logs

    @cached_property
    def logs_period(self) -> Period:
        """The time that the logs cover. Raises StoreError: the store holds no rows."""
        found = observed_period(self.facts)
        ledger = None if found is not None else incident_ledger(self.facts.rows("incidents"))
        if ledger is not None:
            # a ledger is no log: it says when things happened only where no log does
            found = Period(ledger.first, ledger.last)
        if found is None:
            raise StoreError(
                f"{self.store.where}: holds no rows yet; `ettr ingest {self.store.where} FILE...` "
                "reads logs into it"
            )
        return found

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the selected clusters in the logs."""
        asked = self.selection.cluster
        return tuple(name for name in self.logs_clusters if not asked or name in asked)

    logs_clusters: cached_property[tuple[str, ...]] = asked("metrics.availability.named_clusters")

    @cached_property
    def logs_read(self) -> LogsRead:
        """Which kinds of logs the store holds, of the selected clusters."""
        return logs_read(self.facts, self.taxonomy, self.selection.cluster)

    @cached_property
    def clusters_without_states(self) -> tuple[str, ...]:
        """Selected clusters that ran jobs, with no state of their nodes, where others have some."""
        if len(self.clusters) < 2 or not self.logs_read.node_states:
            return ()
        ran, known = (clusters_of(self.facts, name) for name in ("attempts", "node_states"))
        return tuple(sorted((ran - known) & set(self.clusters)))

    @cached_property
    def has_unplaced_rows(self) -> bool:
        """Whether logs of several clusters hold rows of which nobody knows whose they are."""
        if not self.naming.is_by_node:
            return False
        placed = ("attempts", "nodes", "events", "node_states")
        return DEFAULT_CLUSTER in clusters_of(self.facts, *placed)

    incidents: cached_property[IncidentLedger | None] = asked("analysis.questions.incidents")
