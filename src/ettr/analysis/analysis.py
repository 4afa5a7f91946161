"""Every question about one store, each answered from the stages that it needs.

Each stage takes tables and returns tables or small frozen results; nothing is rendered here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ettr.analysis.assumptions import (
    AnswerT,
    Given,
    answer,
    asked,
    is_of_covered_time,
    taken_by,
)
from ettr.analysis.shared import SharedStages
from ettr.defaults import FALSE_DISCOVERY, LOOK_BACK_S
from ettr.facts.stored import NO_GPUS, kinds_of_nodes
from ettr.metrics.rates import GPU, ClassRate, with_spread
from ettr.selection import Selection

if TYPE_CHECKING:
    from ettr.analysis.causes import CauseSummary
    from ettr.analysis.checkpoint_advice import CheckpointAdvice
    from ettr.analysis.clustering import FailureClustering
    from ettr.analysis.evidence import EvidenceCoverage
    from ettr.analysis.failure_list import FailureList
    from ettr.analysis.fleet import FleetModels
    from ettr.analysis.selecting import OtherName
    from ettr.attribution.background import CoOccurrences, FalseAttribution, FalseFailuresBySize
    from ettr.attribution.job_history import JobHistory
    from ettr.lemons.candidates import LemonReport
    from ettr.metrics.availability import Availability
    from ettr.metrics.black_holes import BlackHole, HungRun
    from ettr.metrics.clock_shifts import ClockShift
    from ettr.metrics.faults import FleetFaults
    from ettr.metrics.goodput import LostGoodput
    from ettr.metrics.mttf import MttfBySize
    from ettr.metrics.node_records import NodeRecords
    from ettr.metrics.outages import SetDown, SymptomTimes
    from ettr.metrics.quality import DataQuality, EarlyStart, LeftOut, Runaways
    from ettr.metrics.rates import RatesBySymptom, RatesWithoutFalse
    from ettr.metrics.runs import JobRuns
    from ettr.metrics.sizes import SizeMix, UserFailures
    from ettr.metrics.status import StatusMix
    from ettr.metrics.stitching import Preemption, PreemptionLinks, RunJobs
    from ettr.metrics.trend import RateTrend


class Analysis(SharedStages):
    """Results over one store, each computed when it is first asked for and then kept.

    A single metric costs only the stages that it needs; a report asks for all of them.
    """

    # what a question finds
    failure_rows: cached_property[list[dict[str, Any]]] = asked("analysis.questions.failure_rows")
    failure_list: cached_property[FailureList] = asked("analysis.failure_list.failure_list")
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
        "analysis.failure_list.rates_without_false"
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
        "analysis.checkpoint_advice.checkpoint_advice"
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
