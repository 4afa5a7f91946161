"""Every question about one store, each answered from the stages that it needs.

Each stage takes tables and returns tables or small frozen results; nothing is rendered here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ettr.analysis.assumptions import assumed
from ettr.analysis.shared import SharedStages
from ettr.attribution.background import FalseFailuresBySize, false_failures_by_size
from ettr.attribution.chance import (
    CoOccurrences,
    FalseAttribution,
    co_occurrence,
    false_attribution,
)
from ettr.attribution.job_history import JobHistory, explain
from ettr.attribution.selected import failure_rows
from ettr.defaults import FALSE_DISCOVERY, LOOK_BACK_S
from ettr.metrics.availability import Availability, WholeLogs, availability
from ettr.metrics.black_holes import BlackHole, black_holes
from ettr.metrics.clock_shifts import ClockShift, clock_shifts
from ettr.metrics.early_start import EarlyStart, early_start
from ettr.metrics.faults import FleetFaults
from ettr.metrics.goodput import LostGoodput, lost_goodput
from ettr.metrics.hangs import HungRun, hung_runs
from ettr.metrics.left_out import LeftOut, left_out
from ettr.metrics.logs_read import clusters_of
from ettr.metrics.mttf import MttfBySize, gpus_of_a_node, mttf_by_size
from ettr.metrics.preemptions import (
    Preemption,
    PreemptionLinks,
    preemption_links,
    selected_links,
    selected_preemptions,
)
from ettr.metrics.quality import DataQuality, Doubts, data_quality
from ettr.metrics.rates import RatesBySymptom, failure_rates
from ettr.metrics.runaway import Runaways, runaways
from ettr.metrics.runs import LISTED_RUNS, MIN_SCHEDULED_H, JobRuns, job_runs
from ettr.metrics.set_down import SetDown, set_down
from ettr.metrics.sizes import SizeMix, SizeUnit, size_mix
from ettr.metrics.status import StatusMix, status_mix
from ettr.metrics.stitching import RunJobs, jobs_of_runs
from ettr.metrics.trend import RateTrend, rate_trend
from ettr.metrics.unended_states import unended_states
from ettr.metrics.unknown_checks import unknown_checks
from ettr.metrics.unknown_reasons import unknown_reasons
from ettr.metrics.user_failures import UserFailures, user_failures
from ettr.selection import Selection

if TYPE_CHECKING:
    from ettr.analysis.causes import CauseSummary
    from ettr.analysis.checkpoint_advice import CheckpointAdvice
    from ettr.analysis.clustering import FailureClustering
    from ettr.analysis.evidence import EvidenceCoverage
    from ettr.analysis.failure_list import FailureList
    from ettr.analysis.fleet import FleetModels
    from ettr.analysis.node_names import OtherName
    from ettr.analysis.previous import PeriodTrend
    from ettr.analysis.projecting import ScaleProjection
    from ettr.lemons.candidates import LemonReport
    from ettr.metrics.node_records import NodeRecords
    from ettr.metrics.recovery_times import SymptomTimes
    from ettr.metrics.without_false import RatesWithoutFalse

FULL_WEEK_DAYS = 7.0
SMALL_SITE_ATTEMPTS = 200_000
MIN_GPUS = 8


class Analysis(SharedStages):
    """Results over one store, each computed when it is first asked for and then kept.

    A single metric costs only the stages that it needs; a report asks for all of them.
    """

    def of(self, selection: Selection) -> Analysis:
        """The same logs under another selection; what all of the logs say is not computed again."""
        made = Analysis(self.store, self.assumptions, selection, self.price)
        made.take_stages_of(self)
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

    @cached_property
    def previous(self) -> PeriodTrend | None:
        """The latest period against the one before it; None where the logs hold no jobs."""
        from ettr.analysis.previous import period_trend

        return period_trend(self)

    @cached_property
    def failure_rows(self) -> list[dict[str, Any]]:
        """Each failure with its cause and the ids of its evidence, in order of time."""
        return failure_rows(self.facts)

    @cached_property
    def failure_list(self) -> FailureList:
        """Each failure with whose it was, what it lost, and the log lines behind its cause."""
        from ettr.analysis.failure_list import failure_list

        return failure_list(self)

    @cached_property
    def co_occurrence(self) -> CoOccurrences:
        """Which symptoms come together in one failure."""
        return co_occurrence(self.facts, confidence=self.assumptions.confidence)

    @cached_property
    def false_attribution(self) -> FalseAttribution:
        """How often the window would blame a completed attempt."""
        chance = false_attribution(self.facts, self.assumptions.confidence)
        expected = self.false_failures.all_jobs.expected_false.estimate
        return replace(chance, expected_by_chance=expected)

    @property
    def _span_s(self) -> dict[tuple[str, str], float] | None:
        """How long jobs ran on each node in all of the logs; None where that is not known yet."""
        if self.selected is not None or not self.logs_list_every_node:
            return None
        return {node: one.span_s for node, one in self.node_jobs.items()}

    @cached_property
    def false_failures(self) -> FalseFailuresBySize:
        """How many failures chance explains, from the rate of faults that ended nothing."""
        return false_failures_by_size(self.facts, self._span_s, self.assumptions.confidence)

    @cached_property
    def rates_without_false(self) -> RatesWithoutFalse | None:
        """The failure rates without the failures that chance explains; None: no log of nodes."""
        from ettr.analysis.false_rates import rates_without_false

        return rates_without_false(self)

    def explain(self, job_id: str, look_back_s: float = LOOK_BACK_S) -> JobHistory:
        """One job's story; the id of a part of a heterogeneous job means the whole.

        Args:
            job_id: as the scheduler shows it.
            look_back_s: how long before its first end events are read, in seconds.

        Raises:
            UsageError: there is no such job.
        """
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
    def status(self) -> StatusMix:
        """How attempts end."""
        return status_mix(self.facts)

    @cached_property
    def user_failures(self) -> UserFailures:
        """Failures of the users' own making."""
        return user_failures(self.facts, several_clusters=len(self.clusters) > 1)

    @cached_property
    def sizes(self) -> SizeMix:
        """Job sizes."""
        return size_mix(self.facts, self.size_unit)

    @cached_property
    def rates(self) -> RatesBySymptom:
        """Failures per node-day by symptom."""
        given = self.assumptions
        return failure_rates(
            self.rate_facts,
            above_gpus=given.above_gpus,
            confidence=given.confidence,
            all_jobs=self.clustering.all_jobs,
            large_jobs=self.clustering.large_jobs,
            symptoms=self.clustering.symptoms,
            large_jobs_symptoms=self.clustering.large_jobs_symptoms,
            probable_gpus=[one.n_gpus for one in self.hung_runs],
        )

    @cached_property
    def trend(self) -> RateTrend:
        """Failures per node-day over time."""
        if self.covered is not self:
            return self.covered.trend
        return rate_trend(
            self.rate_facts,
            self.period,
            confidence=self.assumptions.confidence,
            spread=self.clustering.all_jobs.believed,
        )

    @cached_property
    def mttf(self) -> MttfBySize:
        """Time to failure by job size; from faults and progress alone where there are no jobs."""
        if not self.logs_read.jobs:
            from ettr.analysis.without_jobs import mttf_without_jobs

            return mttf_without_jobs(self)
        if self.covered is not self:
            return self.covered.mttf
        return mttf_by_size(
            self.rate_facts,
            self.rates.best,
            unit=self.rate_unit,
            gpus_per_node=self.assumptions.gpus_per_node,
            of_nodes=self._gpus_of_nodes,
            confidence=self.assumptions.confidence,
            spread=self.clustering.all_jobs.believed,
        )

    @cached_property
    def _gpus_of_nodes(self) -> tuple[float, ...]:
        """GPUs of each node of which an inventory names any."""
        fleet = self.fleet
        named = fleet.gpus.keys() - fleet.gpus_of_jobs
        return tuple(fleet.gpus[node] for node in sorted(named) if fleet.gpus[node] > 0)

    @cached_property
    def gpus_per_node(self) -> float | None:
        """`mttf.gpus_per_node`, without the rest of it."""
        if not self.logs_read.jobs or "mttf" in self.__dict__:
            return self.mttf.gpus_per_node
        given = self.assumptions.gpus_per_node
        return gpus_of_a_node(self.rate_facts, self.rate_unit, given, self._gpus_of_nodes)

    @cached_property
    def runs(self) -> JobRuns:
        """Job runs and their ETTR.

        Logs of less than a week have no runs of a day worth speaking of, and small sites few of
        many GPUs: there every run counts.

        Of a selection they are those that ended in its period, whole, if any of their attempts is
        selected. Where there are no jobs, the runs are those that progress records name.
        """
        return self.runs_listed(LISTED_RUNS)

    def runs_listed(self, listed: int) -> JobRuns:
        """The same, with so many runs listed and measured by their progress."""
        if not self.logs_read.jobs:
            from ettr.analysis.without_jobs import recorded_runs

            return recorded_runs(self, listed)
        long_enough_h = MIN_SCHEDULED_H if self.logs_period.days >= FULL_WEEK_DAYS else 0.0
        large_enough = MIN_GPUS if self.totals.attempts > SMALL_SITE_ATTEMPTS else 1
        return job_runs(
            self.facts,
            rule=self.assumptions.run_rule,
            assumptions=self.assumptions.checkpoints,
            min_scheduled_h=long_enough_h,
            min_gpus=large_enough if self.size_unit is SizeUnit.GPUS else 0,
            listed=listed,
            with_ends=True,
        )

    @cached_property
    def goodput(self) -> LostGoodput:
        """GPU-hours lost, first and second order."""
        links = self.logs_preemptions
        return lost_goodput(
            self.facts,
            links if self.selected is None else selected_links(self.facts, links),
            cap_min=self.assumptions.lost_cap_min,
            runs=self._resubmitted,
        )

    @cached_property
    def logs_preemptions(self) -> PreemptionLinks:
        """Preemptions that failures caused, in all of the logs."""
        given = self.assumptions
        return preemption_links(
            self.facts,
            runs=self._resubmitted,
            rule_window_s=given.preemption.rule_window_s,
            log_tolerance_s=given.preemption.log_tolerance_s,
            confidence=given.confidence,
        )

    @cached_property
    def preemptions(self) -> tuple[Preemption, ...]:
        """Preemptions that failures caused, of the selection."""
        return selected_preemptions(self.facts, self.logs_preemptions)

    @cached_property
    def _resubmitted(self) -> dict[str, RunJobs]:
        """By attempt, the jobs of runs with a failure that their owner submitted again."""
        return jobs_of_runs(self.facts, self.assumptions.run_rule)

    @cached_property
    def nodes(self) -> Availability:
        """Node availability."""
        # those of other clusters than the selected ones say nothing
        has_states = self.logs_read.node_states
        return availability(
            self.facts,
            self.period,
            self.fleet,
            self.outages,
            clusters_of(self.facts, "node_states") if has_states else (),
            confidence=self.assumptions.confidence,
            logs=None
            if self.selected is None
            else WholeLogs(self.logs_fleet, self.logs_period, self.selection),
        )

    def lemons(self, false_discovery: float = FALSE_DISCOVERY) -> LemonReport:
        """Nodes that may be lemons.

        Args:
            false_discovery: largest expected share of ordinary nodes among the claimed.
        """
        from ettr.analysis.lemon_nodes import lemons_of

        return lemons_of(self, false_discovery)

    @cached_property
    def lemon_nodes(self) -> LemonReport:
        """The same at the share of ordinary nodes that is usual."""
        return self.lemons()

    @cached_property
    def causes(self) -> CauseSummary | None:
        """Totals of the causes of interruptions; None where `ettr causes` takes too long."""
        from ettr.analysis.causes import cause_summary

        return cause_summary(self)

    @cached_property
    def node_records(self) -> NodeRecords:
        """Each node, and rates of the places they are in."""
        from ettr.analysis.node_history import records_of

        return records_of(self)

    @cached_property
    def recovery_times(self) -> tuple[SymptomTimes, ...]:
        """From the first error to a node that works again, by symptom."""
        from ettr.analysis.node_history import recovery_of

        return recovery_of(self)

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
    def quality(self) -> DataQuality:
        """How far the logs can be trusted."""
        return data_quality(
            self.facts,
            self.exposure,
            assumed(self.assumptions, self.taxonomy, self._foreign_clusters()),
            Doubts(
                unknown_checks(self.facts, self.taxonomy),
                unknown_reasons(self.facts, self.taxonomy),
                self.clock_shifts,
                self.runaways,
                self.left_out,
                self.dump_windows,
                self.early_start,
                unended_states(self.facts),
                self.covered_time,
            ),
            self.naming,
            len(self.logs_clusters) > 1,
        )

    @cached_property
    def clock_shifts(self) -> tuple[ClockShift, ...]:
        """Logs whose times differ by a constant, as after a wrong time zone."""
        return clock_shifts(self.facts)

    @cached_property
    def black_holes(self) -> tuple[BlackHole, ...]:
        """Nodes that ended the selected jobs of many users within seconds of their start."""
        return black_holes(self.facts)

    @cached_property
    def hung_runs(self) -> tuple[HungRun, ...]:
        """Selected runs that probably hung after a fault: failures that no log calls one."""
        return hung_runs(self.facts)

    @cached_property
    def set_down(self) -> SetDown | None:
        """Selected failures whose node somebody set DOWN at their end."""
        return set_down(self.facts)

    @cached_property
    def runaways(self) -> Runaways | None:
        """Attempts that the accounting holds for running, though they are over."""
        return runaways(self.facts)

    @cached_property
    def early_start(self) -> EarlyStart | None:
        """What makes the period begin long before the logs do; None where it was selected."""
        if self.selection.since is not None:
            return None
        return early_start(self.facts, self.logs_period, self.dump_windows)

    @cached_property
    def left_out(self) -> LeftOut | None:
        """What the dump of the accounting seems to lack; None: no jobs, or a selection of them."""
        if not self.logs_read.jobs or not self.selection.is_everything:
            return None
        return left_out(self.facts, self.status)

    def _foreign_clusters(self) -> list[str]:
        jobs = clusters_of(self.facts, "attempts")
        return sorted(clusters_of(self.facts, "events", "node_states") - jobs) if jobs else []

    @cached_property
    def models(self) -> FleetModels:
        """Whether failures are independent, and which model fits."""
        from ettr.analysis.fleet import fleet_models

        return fleet_models(
            self.rate_facts,
            self.clustering.every.counts,
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
