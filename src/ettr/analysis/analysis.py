"""Every question about one store, each answered from the stages that it needs.

Each stage takes tables and returns tables or small frozen results; nothing is rendered here. What
several questions share (fleet, outages, exposure, failures) is computed once, when the first asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ettr.analysis.assumptions import (
    AnswerT,
    Assumptions,
    Given,
    answer,
    asked,
    is_of_covered_time,
    taken_by,
)
from ettr.analysis.given_facts import LogStages, facts_of
from ettr.analysis.selecting import SelectionHead, selected_fleet, selection_head
from ettr.attribution.rules import LogMatching
from ettr.defaults import FALSE_DISCOVERY, LOOK_BACK_S
from ettr.facts.stored import NO_GPUS, kinds_of_nodes
from ettr.metrics.availability import Service, service
from ettr.metrics.coverage import NO_DIRECTION, CoveredTime, DumpWindow, covered_time, dump_windows
from ettr.metrics.instants import Period
from ettr.metrics.outages import Outage, outages, unplanned_where_jobs_ended
from ettr.metrics.rates import (
    GPU,
    WITH_GPUS,
    ClassRate,
    class_rates,
    facts_of_class,
    main_class,
    with_spread,
)
from ettr.metrics.sizes import SizeUnit
from ettr.selection import Selection
from ettr.store import Store
from ettr.units import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from ettr.analysis.causes import CauseSummary
    from ettr.analysis.clustering import FailureClustering, FailuresOfSize
    from ettr.analysis.evidence import EvidenceCoverage
    from ettr.analysis.failure_questions import FailureList
    from ettr.analysis.fleet import FleetModels
    from ettr.analysis.lemon_nodes import Exclusions
    from ettr.analysis.projecting import CheckpointAdvice
    from ettr.analysis.selecting import OtherName
    from ettr.attribution.background import CoOccurrences, FalseAttribution, FalseFailuresBySize
    from ettr.attribution.job_history import JobHistory
    from ettr.facts import Facts
    from ettr.lemons.candidates import Blame, LemonReport
    from ettr.lemons.fleet import Placement, Stratum
    from ettr.lemons.model import FleetSignals, LemonFit, NodeCounts, NodeName, NodeSignals
    from ettr.metrics.availability import Availability
    from ettr.metrics.black_holes import BlackHole, HungRun
    from ettr.metrics.clock_shifts import ClockShift
    from ettr.metrics.exposure import ExposureBasis, NodeJobs
    from ettr.metrics.faults import FleetFaults
    from ettr.metrics.goodput import LostGoodput
    from ettr.metrics.mttf import MttfBySize
    from ettr.metrics.node_records import NodeRecords
    from ettr.metrics.outages import SetDown, SymptomTimes
    from ettr.metrics.quality import DataQuality, EarlyStart, LeftOut, Runaways
    from ettr.metrics.rates import RatesBySymptom, RatesWithoutFalse
    from ettr.metrics.runs import JobRuns
    from ettr.metrics.sizes import SizeMix, UserFailures
    from ettr.metrics.status import StatusMix, Totals
    from ettr.metrics.stitching import Preemption, PreemptionLinks, RunJobs
    from ettr.metrics.trend import RateTrend
    from ettr.plan.cost import Price


_OF_ALL_LOGS = (
    *("taxonomy", "logs_period", "logs_clusters", "logs_fleet", "outages", "size_unit"),
    *("resubmitted", "logs_list_every_node", "logs_preemptions", "workload_weights"),
)
"""Stages that no selection changes."""
_OF_CLUSTERS = ("logs_read", "gpus_are_known", "logs_covered")
"""Stages that only a selection of clusters changes."""


class SharedStages(LogStages):
    """Stages over one store, each computed when it is first asked for and then kept.

    `tables`, `attribution` and what begins with `logs` are of all of the logs, so that no selection
    changes a verdict (`logs_read`, of the selected clusters, is part of none); the rest is of the
    selection.
    """

    # what a question of all of the facts finds
    exposure: cached_property[ExposureBasis] = asked("metrics.exposure.exposure_basis")
    logs_list_every_node: cached_property[bool] = asked("metrics.exposure.every_node_is_listed")
    node_jobs: cached_property[Mapping[tuple[str, str], NodeJobs]] = asked(
        "metrics.exposure.node_jobs"
    )
    totals: cached_property[Totals] = asked("metrics.status.totals")
    size_unit: cached_property[SizeUnit] = asked("metrics.sizes.main_size_unit")
    workload_weights: cached_property[dict[str, float]] = asked(
        "analysis.lemon_nodes.workload_weights"
    )

    def __init__(
        self,
        store: Store,
        assumptions: Assumptions | None = None,
        selection: Selection | None = None,
        price: Price | None = None,
    ) -> None:
        super().__init__(store, assumptions, selection)
        self.price = price

    def take_stages_of(self, other: SharedStages) -> None:
        """Take over what another analysis of the same store has computed of all of its logs."""
        same_clusters = other.selection.cluster == self.selection.cluster
        for name in (*_OF_ALL_LOGS, *(_OF_CLUSTERS if same_clusters else ())):
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]
        if "facts" in other.__dict__:
            self.facts = facts_of(self.given, other.facts)

    @cached_property
    def selection_head(self) -> SelectionHead:
        """The selection as the head of a report states it."""
        return selection_head(self.given)

    @cached_property
    def fleet(self) -> Service:
        """The selected nodes and their time in service."""
        if self.selected is None:
            return self.logs_fleet
        return selected_fleet(self.logs_fleet, self.period, self.selection, self.facts)

    @cached_property
    def logs_fleet(self) -> Service:
        """All nodes and their time in service."""
        given = self.assumptions
        return service(
            self.facts, self.logs_period, n_nodes=given.n_nodes, gpus_per_node=given.gpus_per_node
        )

    @cached_property
    def outages(self) -> tuple[Outage, ...]:
        """Outages of all nodes in all of the logs, also outside their time in service."""
        return self.outages_in(self.logs_period)

    def outages_in(self, period: Period) -> tuple[Outage, ...]:
        """The same of a period: open ones are cut at its end."""
        found = outages(self.facts, period, self.taxonomy)
        if not any(one.is_planned and one.silent_from_s for one in found):
            return found
        rows = self.facts.columns("ended_by_nodes")
        matching = self.assumptions.matching or LogMatching()
        return unplanned_where_jobs_ended(
            found,
            zip(
                rows["cluster"].tolist(),
                rows["node"].tolist(),
                (rows["end_us"] / MICROSECONDS_PER_SECOND).tolist(),
                strict=True,
            ),
            matching.tolerance_s,
        )

    @property
    def fleet_is_known(self) -> bool:
        """Whether the logs name more nodes than those that had trouble."""
        return self.fleet.is_known

    @property
    def every_node_is_listed(self) -> bool:
        """Whether that holds of the selected: of chosen nodes alone the lists say too much.

        Nor does it hold of a period where a job that goes on was suspended: only its attempt knows
        how long, and the two are cut at other times.
        """
        if self.selection.of_nodes or not self.logs_list_every_node:
            return False
        if not self.selection.has_period:
            return True
        return not any(row["open_suspended"] for row in self.facts.rows("ran_of_clusters"))

    @cached_property
    def logs_covered(self) -> CoveredTime | None:
        """The part of all of the logs in which errors of nodes arrived; None: not known, or all.

        Of one cluster: logs of several begin at times of their own.
        """
        if len(self.clusters) != 1 or not (self.logs_read.jobs and self.logs_read.errors):
            return None
        return covered_time(self.facts, self.logs_period, self.clusters[0])

    @cached_property
    def covered_time(self) -> CoveredTime | None:
        """The same of the selected period."""
        logs, period = self.logs_covered, self.period
        if logs is None:
            return None
        inside = logs.within(period)
        since = logs.since if logs.since and logs.since > period.start else None
        until = logs.until if logs.until and logs.until < period.end else None
        if since is None and until is None:
            return None
        return CoveredTime(logs.what, since, until, inside.days, period.days)

    @cached_property
    def dump_windows(self) -> tuple[DumpWindow, ...]:
        """Clusters whose dump of the accounting begins in the middle of their jobs."""
        if not self.logs_read.jobs:
            return ()
        return dump_windows(self.facts, self.selection.cluster, self.selection.since)

    @cached_property
    def classes(self) -> tuple[ClassRate, ...]:
        """Failure rates by class of node; empty where all nodes are of one."""
        return class_rates(self.facts, self.assumptions.confidence)

    @cached_property
    def rate_class(self) -> str:
        """The class of nodes that rates are of: `gpu`, a type of GPU, or nothing for all nodes."""
        return main_class(self.classes) if self.logs_read.jobs else ""

    @property
    def is_of_gpu_nodes(self) -> bool:
        """Whether rates are of nodes with GPUs alone, or of one type of them."""
        return bool(self.rate_class)

    @property
    def rate_type(self) -> str:
        """The type of GPU that rates are of alone, since types differ; empty for all nodes."""
        return "" if self.rate_class == GPU else self.rate_class

    @property
    def rate_nodes(self) -> str:
        """The same in words; empty where they are of all nodes."""
        if not self.rate_class:
            return ""
        return WITH_GPUS if self.rate_class == GPU else f"{self.rate_class} nodes"

    @cached_property
    def rate_facts(self) -> Facts:
        """The facts that rates are of."""
        return facts_of_class(self.facts, self.rate_class) if self.rate_class else self.facts

    @cached_property
    def rate_gpus_of_nodes(self) -> tuple[float, ...]:
        """GPUs of each node of that class of which an inventory names any."""
        named = self.fleet.gpus.keys() - self.fleet.gpus_of_jobs
        if self.rate_type:
            kinds = kinds_of_nodes(self.facts)
            named = {node for node in named if kinds.get(node, (True, ""))[1] == self.rate_type}
        return tuple(self.fleet.gpus[node] for node in sorted(named) if self.fleet.gpus[node] > 0)

    @cached_property
    def rate_unit(self) -> SizeUnit:
        """What sizes of the jobs count that rates are of: of selected ones that held GPUs, GPUs."""
        if self.is_of_gpu_nodes:
            return SizeUnit.GPUS
        if self.selection.is_everything or not self.logs_read.jobs:
            return self.size_unit
        shapes = self.rate_facts.columns("exposure_shapes")
        held_s = np.nan_to_num(shapes["node_s"].astype(np.float64))
        with_gpus_s = held_s[np.nan_to_num(shapes["n_gpus"].astype(np.float64)) > 0].sum()
        return SizeUnit.GPUS if 2.0 * with_gpus_s > held_s.sum() else self.size_unit

    @cached_property
    def clustering(self) -> FailureClustering:
        """How failures cluster over time and over nodes."""
        from ettr.analysis.clustering import failure_clustering
        from ettr.models.compare import undecided

        given = self.assumptions
        found = failure_clustering(self.rate_facts, self.period, given.above_gpus, given.confidence)
        if not self.dump_windows:
            return found
        return replace(found, direction=undecided(found.direction, NO_DIRECTION))

    @cached_property
    def clustering_of_all(self) -> FailuresOfSize:
        """How the failures of all jobs cluster, where nothing else is asked of `clustering`."""
        from ettr.analysis.clustering import clustering_of_all

        if "clustering" in self.__dict__:
            return self.clustering.every
        return clustering_of_all(self.rate_facts, self.period, self.assumptions.confidence)

    @cached_property
    def placement(self) -> Placement:
        """Node-days of each node, and the nodes of failures that blame none."""
        from ettr.analysis.lemon_nodes import placement_of

        return placement_of(self.given)

    @cached_property
    def lemon_strata(self) -> tuple[tuple[Stratum, ...], FleetSignals]:
        """The nodes in groups that are comparable, with their failures, and their signals."""
        from ettr.analysis.lemon_nodes import fleet_of

        return fleet_of(self.given)

    def lemon_fit(self, counts: NodeCounts) -> LemonFit:
        """The model of the lemons of a group, fitted once for the list of lemons and for blame."""
        from ettr.lemons.model import fit_lemons

        fits = self._lemon_fits
        # the counts are kept too, so that no others can have their identity
        if id(counts) not in fits:
            fits[id(counts)] = counts, fit_lemons(counts)
        return fits[id(counts)][1]

    @cached_property
    def _lemon_fits(self) -> dict[int, tuple[NodeCounts, LemonFit]]:
        return {}

    @cached_property
    def exclusions(self) -> Exclusions | None:
        """For each node who excluded it, in which job, and when; None where no log says it."""
        from ettr.analysis.lemon_nodes import exclusions_of

        return exclusions_of(self.given)

    @cached_property
    def node_signals(self) -> Mapping[NodeName, NodeSignals]:
        """What users, kernels, tickets and outages say of each node, as counts."""
        from ettr.analysis.lemon_nodes import node_signals

        return node_signals(self.given)

    @cached_property
    def blame(self) -> list[Blame]:
        """Each failure divided over the nodes of its attempt."""
        from ettr.analysis.lemon_nodes import blame_of

        return blame_of(self.given)

    @cached_property
    def ran_gpu_hours(self) -> float | None:
        """`totals.gpu_hours`, without the rest of them."""
        return self.totals.gpu_hours


class Analysis(SharedStages):
    """Results over one store, each computed when it is first asked for and then kept.

    A single metric costs only the stages that it needs; a report asks for all of them.
    """

    # what a question finds
    failure_rows: cached_property[list[dict[str, Any]]] = asked("analysis.questions.failure_rows")
    failure_list: cached_property[FailureList] = asked("analysis.failure_questions.failure_list")
    co_occurrence: cached_property[CoOccurrences] = asked(
        "analysis.failure_questions.co_occurrence"
    )
    false_attribution: cached_property[FalseAttribution] = asked(
        "analysis.failure_questions.false_attribution"
    )
    false_failures: cached_property[FalseFailuresBySize] = asked(
        "analysis.failure_questions.false_failures"
    )
    rates_without_false: cached_property[RatesWithoutFalse | None] = asked(
        "analysis.failure_questions.rates_without_false"
    )
    status: cached_property[StatusMix] = asked("metrics.status.status_mix")
    user_failures: cached_property[UserFailures] = asked("analysis.questions.user_failures")
    sizes: cached_property[SizeMix] = asked("analysis.questions.sizes")
    rates: cached_property[RatesBySymptom] = asked("analysis.failure_questions.rates")
    trend: cached_property[RateTrend] = asked("analysis.failure_questions.trend")
    mttf: cached_property[MttfBySize] = asked("analysis.failure_questions.mttf")
    runs: cached_property[JobRuns] = asked("analysis.loss_questions.runs")
    goodput: cached_property[LostGoodput] = asked("analysis.loss_questions.goodput")
    nodes: cached_property[Availability] = asked("analysis.loss_questions.nodes")
    node_records: cached_property[NodeRecords] = asked("analysis.node_history.records_of")
    recovery_times: cached_property[tuple[SymptomTimes, ...]] = asked(
        "analysis.node_history.recovery_of"
    )
    faults: cached_property[FleetFaults | None] = asked("analysis.node_faults.node_faults")
    other_names: cached_property[tuple[OtherName, ...]] = asked("analysis.selecting.other_names")
    evidence: cached_property[EvidenceCoverage] = asked("analysis.evidence.evidence_coverage")
    quality: cached_property[DataQuality] = asked("analysis.loss_questions.quality")
    clock_shifts: cached_property[tuple[ClockShift, ...]] = asked(
        "metrics.clock_shifts.clock_shifts"
    )
    black_holes: cached_property[tuple[BlackHole, ...]] = asked("metrics.black_holes.black_holes")
    hung_runs: cached_property[tuple[HungRun, ...]] = asked("metrics.black_holes.hung_runs")
    set_down: cached_property[SetDown | None] = asked("metrics.outages.set_down")
    runaways: cached_property[Runaways | None] = asked("metrics.quality.runaways")
    models: cached_property[FleetModels] = asked("analysis.fleet.fleet_models")
    checkpoint_advice: cached_property[CheckpointAdvice | None] = asked(
        "analysis.projecting.checkpoint_advice"
    )

    def ask(self, question: Callable[..., AnswerT]) -> AnswerT:
        """What a question finds, computed once.

        Raises:
            TypeError: it takes more than a question may.
        """
        if is_of_covered_time(question) and self.covered is not self:
            return self.covered.ask(question)
        if question not in self._answers:
            self._answers[question] = answer(question, self.given)
        found: AnswerT = self._answers[question]
        return found

    @cached_property
    def _answers(self) -> dict[Callable[..., Any], Any]:
        return {}

    def of(self, selection: Selection) -> Analysis:
        """The same logs under another selection; what all of the logs say is not computed again."""
        made = Analysis(self.store, self.assumptions, selection, self.price)
        made.take_stages_of(self)
        if selection.at_any_time == self.selection.at_any_time:
            # parts of a time are of one class, or they could not be compared
            made.rate_class = self.rate_class
        return made

    @cached_property
    def covered(self) -> Analysis:
        """The analysis of the covered time alone; the same one where that is all, or nothing."""
        found = self.covered_time
        if found is None or not found.covered_days:
            return self
        chosen = self.selection
        since, until = found.since or chosen.since, found.until or chosen.until
        return self.of(replace(chosen, since=since, until=until))

    @cached_property
    def clustering(self) -> FailureClustering:
        """How failures cluster over time and over nodes; the direction is of the covered time."""
        if self.covered is self:
            return super().clustering
        return replace(super().clustering, direction=self.covered.clustering.direction)

    def explain(self, job_id: str, look_back_s: float = LOOK_BACK_S) -> JobHistory:
        """One job's story; the id of a part of a heterogeneous job means the whole.

        Args:
            look_back_s: how long before its first end events are read, in seconds.

        Raises:
            UsageError: there is no such job.
        """
        from ettr.attribution.job_history import explain

        return explain(self.facts, self.het_jobs.job_of(job_id), look_back_s)

    @cached_property
    def gpus_are_known(self) -> bool:
        """Whether any job names its GPUs; 0 of them where a log or an option says that of nodes.

        Of the clusters asked about: another one's scheduler may account GPUs where theirs does not.
        """
        asked = self.selection.cluster
        rows = [r for r in self.facts.rows("ran_of_clusters") if not asked or r["cluster"] in asked]
        return not any(r["ran"] for r in rows) or any(r["names_gpus"] for r in rows)

    @cached_property
    def gpus_per_node(self) -> float | None:
        """`mttf.gpus_per_node`, without the rest of it."""
        from ettr.metrics.mttf import gpus_of_a_node

        if not self.logs_read.jobs or "mttf" in self.__dict__:
            return self.mttf.gpus_per_node
        given = self.assumptions.gpus_per_node
        return gpus_of_a_node(self.rate_facts, self.rate_unit, given, self.rate_gpus_of_nodes)

    def runs_listed(self, listed: int) -> JobRuns:
        """The same, with so many runs listed and measured by their progress."""
        from ettr.analysis import loss_questions

        given = Given(self.given, taken_by(loss_questions.runs))
        return loss_questions.runs_listed(self.facts, given, listed)

    @cached_property
    def logs_preemptions(self) -> PreemptionLinks:
        """Preemptions that failures caused, in all of the logs."""
        from ettr.metrics.stitching import preemption_links

        given = self.assumptions
        return preemption_links(
            self.facts,
            runs=self.resubmitted,
            rule_window_s=given.preemption.rule_window_s,
            log_tolerance_s=given.preemption.log_tolerance_s,
            confidence=given.confidence,
        )

    @cached_property
    def preemptions(self) -> tuple[Preemption, ...]:
        """Preemptions that failures caused, of the selection."""
        from ettr.metrics.stitching import selected_preemptions

        return selected_preemptions(self.facts, self.logs_preemptions)

    @cached_property
    def resubmitted(self) -> dict[str, RunJobs]:
        """By attempt, the jobs of runs with a failure that their owner submitted again."""
        from ettr.metrics.stitching import jobs_of_runs

        return jobs_of_runs(self.facts, self.assumptions.run_rule)

    def lemons(self, false_discovery: float = FALSE_DISCOVERY) -> LemonReport:
        """Nodes that may be lemons."""
        from ettr.analysis.lemon_nodes import lemons_of

        return lemons_of(self.given, false_discovery)

    @cached_property
    def lemon_nodes(self) -> LemonReport:
        """The same at the share of ordinary nodes that is usual."""
        return self.lemons()

    @cached_property
    def causes(self) -> CauseSummary | None:
        """Totals of the causes of interruptions; None where `ettr causes` takes too long."""
        from ettr.analysis.causes import cause_summary

        return cause_summary(self.given)

    @cached_property
    def spread_classes(self) -> tuple[ClassRate, ...]:
        """`classes` with intervals that admit clustering and the runs that hung."""
        if not self.classes:
            return ()
        kinds = {
            node: (kind or GPU) if has_gpus else NO_GPUS
            for node, (has_gpus, kind) in kinds_of_nodes(self.facts).items()
        }
        return with_spread(
            self.classes,
            self.clustering_of_all.spread.believed,
            [kinds.get((one.cluster, one.node), "") for one in self.hung_runs],
            self.assumptions.confidence,
        )

    @cached_property
    def early_start(self) -> EarlyStart | None:
        """What makes the period begin long before the logs do; None where it was selected."""
        from ettr.metrics.quality import early_start

        if self.selection.since is not None:
            return None
        return early_start(self.facts, self.logs_period, self.dump_windows)

    @cached_property
    def left_out(self) -> LeftOut | None:
        """What the dump of the accounting seems to lack; None: no jobs, or a selection of them."""
        from ettr.metrics.quality import left_out

        if not self.logs_read.jobs or not self.selection.is_everything:
            return None
        return left_out(self.facts, self.status)
