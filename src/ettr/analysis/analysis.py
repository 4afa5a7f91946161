"""Every result of a report over one store, each computed from the stages before it.

Each stage takes tables and returns tables or small frozen results; nothing is rendered here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis

from ettr.attribution import Attribution, FoldingRules, LogMatching, Window, attribute
from ettr.attribution.background import FalseFailuresBySize, false_failures_by_size
from ettr.attribution.cancellations import with_cancellers
from ettr.attribution.chance import (
    CoOccurrences,
    FalseAttribution,
    co_occurrence,
    false_attribution,
)
from ettr.attribution.job_history import JobHistory, explain
from ettr.defaults import CONFIDENCE, LARGE_JOB_GPUS, LOOK_BACK_S
from ettr.errors import StoreError
from ettr.metrics.availability import Availability, Service, availability, service
from ettr.metrics.clock_shifts import ClockShift, clock_shifts
from ettr.metrics.event_census import event_census
from ettr.metrics.exposure import Exposure, exposure
from ettr.metrics.faults import FleetFaults
from ettr.metrics.goodput import LOST_CAP_MIN, LostGoodput, lost_goodput
from ettr.metrics.incidents import IncidentLedger, incident_ledger
from ettr.metrics.instants import Period, has_rows, observed_period
from ettr.metrics.logs_read import LogsRead, logs_read
from ettr.metrics.mttf import MttfBySize, mttf_by_size
from ettr.metrics.preemptions import PreemptionRule, preemption_links
from ettr.metrics.quality import DataQuality, data_quality
from ettr.metrics.rates import RatesBySymptom, failure_rates
from ettr.metrics.run_progress import with_cluster
from ettr.metrics.runs import (
    LISTED_RUNS,
    MIN_SCHEDULED_H,
    CheckpointAssumptions,
    JobRuns,
    job_runs,
)
from ettr.metrics.sizes import SizeMix, SizeUnit, main_size_unit, size_mix
from ettr.metrics.status import StatusMix, status_mix
from ettr.metrics.stitching import RunJobs, RunRule, jobs_of_runs
from ettr.metrics.totals import Totals, totals
from ettr.metrics.trend import RateTrend, rate_trend
from ettr.metrics.unknown_checks import unknown_checks
from ettr.store import Store
from ettr.tables import FAILURES, TABLES
from ettr.tables.het_jobs import WholeJobs, whole_jobs
from ettr.tables.unnamed_clusters import with_one_cluster
from ettr.taxonomy import Taxonomy, load_taxonomy

if TYPE_CHECKING:
    from ettr.analysis.checkpoint_advice import CheckpointAdvice
    from ettr.analysis.clustering import FailureClustering
    from ettr.analysis.evidence import EvidenceCoverage
    from ettr.analysis.fleet import FleetModels
    from ettr.analysis.node_names import OtherName
    from ettr.analysis.projecting import ScaleProjection

FULL_WEEK_DAYS = 7.0
SMALL_SITE_ATTEMPTS = 200_000
MIN_GPUS = 8


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the analysis cannot read from the logs, each with the paper's value where it has one.

    `n_nodes` is the size of the fleet where the logs do not name all of its nodes.

    Source:
        Kokolis et al. (2025) for the window, the size of large jobs and the cap of 30 minutes.
    """

    taxonomy_file: Path | None = None
    believe: str | None = None
    window: Window = field(default_factory=Window)
    folding: FoldingRules = field(default_factory=FoldingRules)
    matching: LogMatching = field(default_factory=LogMatching)
    preemption: PreemptionRule = field(default_factory=PreemptionRule)
    above_gpus: int = LARGE_JOB_GPUS
    gpus_per_node: float | None = None
    n_nodes: int | None = None
    confidence: float = CONFIDENCE
    lost_cap_min: float = LOST_CAP_MIN
    checkpoints: CheckpointAssumptions = field(default_factory=CheckpointAssumptions)
    run_rule: RunRule = field(default_factory=RunRule)


class Analysis:
    """Results over one store, each computed when it is first asked for and then kept.

    A single metric costs only the stages that it needs; a report asks for all of them.
    """

    def __init__(self, store: Store, assumptions: Assumptions | None = None) -> None:
        self.store = store
        self.assumptions = assumptions or Assumptions()

    def _table(self, name: str) -> ibis.Table:
        return self.tables[name]

    @cached_property
    def _whole_jobs(self) -> WholeJobs:
        return whole_jobs(self._stored)

    @cached_property
    def _stored(self) -> dict[str, ibis.Table]:
        """The tables as the logs have them; GPUs that no log names are those of a given node."""
        stored = dict(self._of_clusters[0])
        per_node = self.assumptions.gpus_per_node
        if per_node is not None:
            attempts, held = stored["attempts"], stored["allocations"]
            counted = (attempts["n_nodes"] * per_node).round().cast("int64")
            stored["attempts"] = attempts.mutate(n_gpus=attempts["n_gpus"].coalesce(counted))
            stored["allocations"] = held.mutate(n_gpus=held["n_gpus"].fill_null(float(per_node)))
        return stored

    @cached_property
    def _of_clusters(self) -> tuple[dict[str, ibis.Table], str | None]:
        return with_one_cluster({name: self.store.table(name) for name in TABLES})

    @cached_property
    def tables(self) -> dict[str, ibis.Table]:
        """The store's tables by name.

        The parts of a heterogeneous job are one job, and who cancelled a job is known where any
        log says it.
        """
        tables = self._whole_jobs.tables
        matching = self.assumptions.matching
        attempts = with_cancellers(tables["attempts"], tables["events"], matching)
        return {**tables, "attempts": attempts}

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
    def logs_read(self) -> LogsRead:
        """Which kinds of logs the store holds."""
        t = self.tables
        return logs_read(
            t["attempts"],
            t["events"],
            t["node_states"],
            t["progress"],
            self.taxonomy,
            self._event_census,
        )

    @cached_property
    def _event_census(self) -> ibis.Table:
        return event_census(self._table("events"))

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
    def failure_rows(self) -> list[dict[str, Any]]:
        """Each failure with its cause and the ids of its evidence, in order of time."""
        found = self.failures.order_by("end", "attempt_id").to_pyarrow()
        rows: list[dict[str, Any]] = found.cast(FAILURES.arrow_schema).to_pylist()
        return rows

    @cached_property
    def co_occurrence(self) -> CoOccurrences:
        """Which symptoms come together in one failure."""
        found = self.attribution
        return co_occurrence(found.failures, found.observed, confidence=self.assumptions.confidence)

    @cached_property
    def false_attribution(self) -> FalseAttribution:
        """How often the window would blame a completed attempt."""
        found = self.attribution
        chance = false_attribution(
            self._table("attempts"),
            found.endings,
            found.observed,
            self.assumptions.confidence,
        )
        expected = self.false_failures.all_jobs.expected_false.estimate
        return replace(chance, expected_by_chance=expected)

    @cached_property
    def false_failures(self) -> FalseFailuresBySize:
        """How many failures chance explains, from the rate of faults that ended nothing."""
        found = self.attribution
        return false_failures_by_size(
            self._table("allocations"),
            found.endings,
            found.observed,
            found.episodes,
            self.assumptions.above_gpus,
            found.window,
            self.assumptions.confidence,
        )

    def explain(self, job_id: str, look_back_s: float = LOOK_BACK_S) -> JobHistory:
        """One job's story; the id of a part of a heterogeneous job means the whole.

        Args:
            job_id: as the scheduler shows it.
            look_back_s: how long before its first end events are read, in seconds.

        Raises:
            UsageError: there is no such job.
        """
        t = self.tables
        job_id = self._whole_jobs.job_of(job_id)
        return explain(
            t["attempts"],
            t["allocations"],
            t["events"],
            t["node_states"],
            job_id,
            self.taxonomy,
            files=t["files"],
            rules=self.assumptions.folding,
            window=self.assumptions.window,
            matching=self.assumptions.matching,
            look_back_s=look_back_s,
        )

    @cached_property
    def exposure(self) -> Exposure:
        """Node-time that jobs ran: the denominator of every failure rate."""
        return exposure(self._table("attempts"), self._table("allocations"))

    @cached_property
    def totals(self) -> Totals:
        """Jobs, attempts and hours."""
        return totals(self._table("attempts"), self._stored["attempts"])

    @cached_property
    def gpus_are_known(self) -> bool:
        """Whether any job names its GPUs, be it 0 of them."""
        attempts = self._table("attempts")
        ran = attempts.filter(attempts["elapsed_s"] > 0)
        return not has_rows(ran) or has_rows(ran.filter(ran["n_gpus"].notnull()))

    @cached_property
    def status(self) -> StatusMix:
        """How attempts end."""
        return status_mix(self._table("attempts"))

    @cached_property
    def size_unit(self) -> SizeUnit:
        """GPUs where the cluster has any, else nodes."""
        return main_size_unit(self._table("attempts"))

    @cached_property
    def sizes(self) -> SizeMix:
        """Job sizes."""
        return size_mix(self._table("attempts"), self.size_unit)

    @cached_property
    def rates(self) -> RatesBySymptom:
        """Failures per node-day by symptom."""
        given = self.assumptions
        return failure_rates(
            self.exposure.by_attempt,
            self.failures,
            above_gpus=given.above_gpus,
            confidence=given.confidence,
            all_jobs=self.clustering.all_jobs,
            large_jobs=self.clustering.large_jobs,
        )

    @cached_property
    def clustering(self) -> FailureClustering:
        """How failures cluster over time and over nodes."""
        from ettr.analysis.clustering import failure_clustering

        given = self.assumptions
        return failure_clustering(
            self.exposure, self.failures, self.period, given.above_gpus, given.confidence
        )

    @cached_property
    def trend(self) -> RateTrend:
        """Failures per node-day over time."""
        return rate_trend(
            self.exposure.by_attempt,
            self.failures,
            self._table("events"),
            self.period,
            confidence=self.assumptions.confidence,
            spread=self.clustering.all_jobs.believed,
            census=self._event_census,
        )

    @cached_property
    def mttf(self) -> MttfBySize:
        """Time to failure by job size; from faults and progress alone where there are no jobs."""
        if not self.logs_read.jobs:
            from ettr.analysis.without_jobs import mttf_without_jobs

            return mttf_without_jobs(self)
        return mttf_by_size(
            self._table("attempts"),
            self.exposure.by_attempt,
            self.failures,
            self._table("progress"),
            self.rates.best,
            unit=self.size_unit,
            gpus_per_node=self.assumptions.gpus_per_node,
            confidence=self.assumptions.confidence,
            spread=self.clustering.all_jobs.believed,
        )

    @cached_property
    def runs(self) -> JobRuns:
        """Job runs and their ETTR.

        Logs of less than a week have no runs of a day worth speaking of, and small sites few of
        many GPUs: there every run counts.

        Where there are no jobs, the runs are those that progress records name.
        """
        return self.runs_listed(LISTED_RUNS)

    def runs_listed(self, listed: int) -> JobRuns:
        """The same, with so many runs listed and measured by their progress."""
        if not self.logs_read.jobs:
            from ettr.analysis.without_jobs import recorded_runs

            return recorded_runs(self, listed)
        long_enough_h = MIN_SCHEDULED_H if self.period.days >= FULL_WEEK_DAYS else 0.0
        large_enough = MIN_GPUS if self.totals.attempts > SMALL_SITE_ATTEMPTS else 1
        return job_runs(
            self._table("attempts"),
            self._table("progress"),
            interruptions=self.attribution.interruptions,
            failures=self.failures,
            rule=self.assumptions.run_rule,
            assumptions=self.assumptions.checkpoints,
            min_scheduled_h=long_enough_h,
            min_gpus=large_enough if self.size_unit is SizeUnit.GPUS else 0,
            listed=listed,
        )

    @cached_property
    def goodput(self) -> LostGoodput:
        """GPU-hours lost, first and second order."""
        t = self.tables
        links = preemption_links(
            t["attempts"],
            t["allocations"],
            self.failures,
            t["events"],
            runs=self._resubmitted,
            rule_window_s=self.assumptions.preemption.rule_window_s,
            log_tolerance_s=self.assumptions.preemption.log_tolerance_s,
            confidence=self.assumptions.confidence,
        )
        return lost_goodput(
            self.failures,
            links,
            cap_min=self.assumptions.lost_cap_min,
            attempts=t["attempts"],
            exposed=self.exposure.by_attempt,
            runs=self._resubmitted,
        )

    @cached_property
    def _resubmitted(self) -> dict[str, RunJobs]:
        """By attempt, the jobs of runs with a failure that their owner submitted again."""
        attempts = self._table("attempts")
        return jobs_of_runs(
            attempts,
            with_cluster(self._table("progress"), attempts),
            self.assumptions.run_rule,
            self.failures,
        )

    @cached_property
    def nodes(self) -> Availability:
        """Node availability."""
        t = self.tables
        return availability(
            t["nodes"],
            t["node_states"],
            t["allocations"],
            self.period,
            self.taxonomy,
            confidence=self.assumptions.confidence,
            fleet=self.fleet,
        )

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
    def faults(self) -> FleetFaults | None:
        """Faults of the fleet; None where the logs hold none."""
        from ettr.analysis.node_faults import node_faults

        return node_faults(self)

    @cached_property
    def other_names(self) -> tuple[OtherName, ...]:
        """Nodes whose events go by another name than their jobs."""
        from ettr.analysis.node_names import other_names

        return other_names(self)

    @cached_property
    def evidence(self) -> EvidenceCoverage:
        """Whether evidence of nodes was arriving, and what was not found for want of it."""
        from ettr.analysis.evidence import evidence_coverage

        return evidence_coverage(self)

    @cached_property
    def incidents(self) -> IncidentLedger | None:
        """What incident ledgers state; None where there is none."""
        return incident_ledger(self._table("incidents"))

    @cached_property
    def quality(self) -> DataQuality:
        """How far the logs can be trusted."""
        return data_quality(
            self.tables,
            self.failures,
            self.exposure.basis,
            self._assumed(),
            unknown_checks(self._table("events"), self.taxonomy, self._event_census),
            self.clock_shifts,
            self._event_census,
        )

    @cached_property
    def clock_shifts(self) -> tuple[ClockShift, ...]:
        """Logs whose times differ by a constant, as after a wrong time zone."""
        return clock_shifts(self.tables)

    def _assumed(self) -> tuple[str, ...]:
        """The assumptions of this analysis in words."""
        given = self.assumptions
        window = given.window
        words = [
            f"An event can explain the end of an attempt from {window.before_s:.0f} s before it "
            f"to {window.after_s:.0f} s after it.",
            f"XID codes are judged by the verdicts of {self.taxonomy.believe} (option --believe).",
            f"Large jobs have more than {given.above_gpus} GPUs.",
        ]
        if taken := self._of_clusters[1]:
            words.append(
                f"Rows of logs that name no cluster were taken as those of {taken}, the only one "
                "that other logs name."
            )
        if given.gpus_per_node is not None:
            words.append(
                f"Where no log names the GPUs of a job or a node, {given.gpus_per_node:g} in each "
                "node are taken (--gpus-per-node)."
            )
        if given.n_nodes is not None:
            words.append(f"The fleet has {given.n_nodes:,} nodes, named or not (--fleet-nodes).")
        foreign = self._foreign_clusters()
        if foreign:
            words.append(
                f"Events and node states of {', '.join(foreign)} belong to no cluster with jobs "
                "and explain no failure: ingest them again with --cluster if the name is wrong."
            )
        return (*words, *(f"Changed by the site: {line}." for line in self.taxonomy.changed))

    def _foreign_clusters(self) -> list[str]:
        def named(table: str) -> set[str]:
            found = self.tables[table].select("cluster").distinct().to_pyarrow()
            return set(found["cluster"].to_pylist())

        jobs = named("attempts")
        return sorted((named("events") | named("node_states")) - jobs) if jobs else []

    @cached_property
    def models(self) -> FleetModels:
        """Whether failures are independent, and which model fits."""
        from ettr.analysis.fleet import fleet_models

        return fleet_models(
            self.exposure.by_node,
            self.failures,
            self.assumptions.confidence,
            self.clustering.all_jobs,
        )

    @cached_property
    def projection(self) -> ScaleProjection | None:
        """The fleet's failures at larger scales; None where nothing ran."""
        from ettr.analysis.projecting import project_store

        return project_store(self, ", ".join(self.clusters))

    @cached_property
    def checkpoint_advice(self) -> CheckpointAdvice | None:
        """The best checkpoint interval for each size of run; None where none was seen."""
        from ettr.analysis.checkpoint_advice import checkpoint_advice

        return checkpoint_advice(self)
