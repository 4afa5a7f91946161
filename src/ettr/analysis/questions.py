"""Questions that a report asks of every store: each a function of the facts and of what it names.

`ettr.analysis.asking` says how they are given that. Questions of one model or of one list stand in
the modules of those: `causes`, `lemon_nodes`, `projecting`, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from ettr.analysis.assumptions import Assumptions, assumed
from ettr.attribution import background, selected
from ettr.facts import Facts
from ettr.metrics.availability import Availability, Service, WholeLogs, availability
from ettr.metrics.goodput import LostGoodput, lost_goodput
from ettr.metrics.incidents import IncidentLedger, incident_ledger, selected_incidents
from ettr.metrics.instants import Period
from ettr.metrics.logs_read import LogsRead, clusters_of
from ettr.metrics.mttf import MttfBySize, mttf_by_size
from ettr.metrics.node_classes import ClassRate
from ettr.metrics.outages import Outage
from ettr.metrics.preemptions import PreemptionLinks, selected_links
from ettr.metrics.quality import DataQuality, Doubts, data_quality, unended_states
from ettr.metrics.rates import RatesBySymptom, failure_rates
from ettr.metrics.runs import LISTED_RUNS, MIN_SCHEDULED_H, JobRuns, job_runs
from ettr.metrics.sizes import SizeMix, SizeUnit, size_mix
from ettr.metrics.status import Totals
from ettr.metrics.stitching import RunJobs
from ettr.metrics.trend import RateTrend, rate_trend
from ettr.metrics.unknown_checks import unknown_checks, unknown_reasons
from ettr.metrics.user_failures import UserFailures
from ettr.metrics.user_failures import user_failures as failures_of_users
from ettr.models.compare import RateDirection
from ettr.selection import Selection
from ettr.tables import FAILURES

if TYPE_CHECKING:
    from ettr.analysis.clustering import FailureClustering
    from ettr.facts.naming import Naming
    from ettr.metrics.black_holes import HungRun
    from ettr.metrics.clock_shifts import ClockShift
    from ettr.metrics.coverage import CoveredTime, DumpWindow
    from ettr.metrics.exposure import ExposureBasis, NodeJobs
    from ettr.metrics.faults import FleetFaults
    from ettr.metrics.quality import EarlyStart, LeftOut, Runaways
    from ettr.taxonomy import Taxonomy

FULL_WEEK_DAYS = 7.0
SMALL_SITE_ATTEMPTS = 200_000
MIN_GPUS = 8


class OfLogs(Protocol):
    """What `logs` takes."""

    logs_read: LogsRead


def logs(_: Facts, given: OfLogs) -> LogsRead:
    """Which kinds of logs the store holds, of the selected clusters."""
    return given.logs_read


class OfAssumptions(Protocol):
    """What `assumptions` takes."""

    assumptions: Assumptions


def assumptions(_: Facts, given: OfAssumptions) -> Assumptions:
    """What the logs cannot say, as it was given or assumed."""
    return given.assumptions


def incidents(facts: Facts) -> IncidentLedger | None:
    """What incident ledgers state of the period, clusters and nodes; None where nothing."""
    return incident_ledger(selected_incidents(facts))


def failure_rows(facts: Facts) -> Annotated[list[dict[str, Any]], FAILURES]:
    """Each failure with its cause and the ids of its evidence, in order of time."""
    return selected.failure_rows(facts)


class OfSizes(Protocol):
    """What `sizes` takes."""

    size_unit: SizeUnit


def sizes(facts: Facts, given: OfSizes) -> SizeMix:
    """Job sizes."""
    return size_mix(facts, given.size_unit)


class OfUserFailures(Protocol):
    """What `user_failures` takes."""

    clusters: tuple[str, ...]


def user_failures(facts: Facts, given: OfUserFailures) -> UserFailures:
    """Failures of the users' own making, by user, account, exit code and node."""
    return failures_of_users(facts, several_clusters=len(given.clusters) > 1)


class OfRates(Protocol):
    """What rates take."""

    assumptions: Assumptions
    clustering: FailureClustering
    period: Period
    rate_facts: Facts
    hung_runs: tuple[HungRun, ...]


def rates(_: Facts, given: OfRates) -> RatesBySymptom:
    """Failures per 1,000 node-days by symptom; `table("failures")` has each of them."""
    found = given.clustering
    return failure_rates(
        given.rate_facts,
        above_gpus=given.assumptions.above_gpus,
        confidence=given.assumptions.confidence,
        all_jobs=found.all_jobs,
        large_jobs=found.large_jobs,
        symptoms=found.symptoms,
        large_jobs_symptoms=found.large_jobs_symptoms,
        probable_gpus=[one.n_gpus for one in given.hung_runs],
    )


def trend(_: Facts, given: OfRates) -> RateTrend:
    """Failures per node-day over time."""
    spread = given.clustering.all_jobs.believed
    return rate_trend(
        given.rate_facts, given.period, confidence=given.assumptions.confidence, spread=spread
    )


def direction(_: Facts, given: OfRates) -> RateDirection:
    """Whether the rate rose or fell over the logs."""
    return given.clustering.direction


class OfClasses(Protocol):
    """What `by_class`, `of_gpu_nodes` and `of_class` take."""

    spread_classes: tuple[ClassRate, ...]
    is_of_gpu_nodes: bool
    rate_class: str


def by_class(_: Facts, given: OfClasses) -> tuple[ClassRate, ...]:
    """Failure rates by class of node; empty where all nodes are of one."""
    return given.spread_classes


def of_gpu_nodes(_: Facts, given: OfClasses) -> bool:
    """Whether rates are of nodes with GPUs alone, or of one type of them."""
    return given.is_of_gpu_nodes


def of_class(_: Facts, given: OfClasses) -> str:
    """The class that rates are of: `gpu`, a type of GPU, or empty for all nodes."""
    return given.rate_class


def co_occurrence(facts: Facts, given: OfAssumptions) -> background.CoOccurrences:
    """Which symptoms come together in one failure."""
    return background.co_occurrence(facts, confidence=given.assumptions.confidence)


class OfFalseAttribution(Protocol):
    """What `false_attribution` takes."""

    assumptions: Assumptions
    false_failures: background.FalseFailuresBySize


def false_attribution(facts: Facts, given: OfFalseAttribution) -> background.FalseAttribution:
    """How often the window would blame a completed attempt."""
    found = background.false_attribution(facts, given.assumptions.confidence)
    expected = given.false_failures.all_jobs.expected_false.estimate
    return replace(found, expected_by_chance=expected)


class OfFalseFailures(Protocol):
    """What `false_failures` takes."""

    assumptions: Assumptions
    selected: object
    logs_list_every_node: bool
    node_jobs: Mapping[tuple[str, str], NodeJobs]


def false_failures(facts: Facts, given: OfFalseFailures) -> background.FalseFailuresBySize:
    """How many failures chance explains, from the rate of faults that ended nothing."""
    span_s = None
    if given.selected is None and given.logs_list_every_node:
        # how long jobs ran on each node in all of the logs
        span_s = {node: one.span_s for node, one in given.node_jobs.items()}
    return background.false_failures_by_size(facts, span_s, given.assumptions.confidence)


class OfMttf(Protocol):
    """What `mttf` takes."""

    assumptions: Assumptions
    logs_read: LogsRead
    rates: RatesBySymptom
    rate_facts: Facts
    rate_unit: SizeUnit
    rate_gpus_of_nodes: tuple[float, ...]
    clustering: FailureClustering
    fleet: Service
    faults: FleetFaults | None


def mttf(facts: Facts, given: OfMttf) -> MttfBySize:
    """Time to failure by job size; from faults and progress alone where there are no jobs."""
    if not given.logs_read.jobs:
        from ettr.analysis.without_jobs import mttf_without_jobs

        return mttf_without_jobs(facts, given)
    return mttf_by_size(
        given.rate_facts,
        given.rates.best,
        unit=given.rate_unit,
        gpus_per_node=given.assumptions.gpus_per_node,
        of_nodes=given.rate_gpus_of_nodes,
        confidence=given.assumptions.confidence,
        spread=given.clustering.all_jobs.believed,
    )


class OfRuns(Protocol):
    """What `runs` takes."""

    assumptions: Assumptions
    logs_read: LogsRead
    logs_period: Period
    totals: Totals
    size_unit: SizeUnit


def runs(facts: Facts, given: OfRuns) -> JobRuns:
    """Job runs and their ETTR.

    Logs of less than a week have no runs of a day worth speaking of, and small sites few of many
    GPUs: there every run counts.

    Of a selection they are those that ended in its period, whole, if any of their attempts is
    selected. Where there are no jobs, the runs are those that progress records name.
    """
    return runs_listed(facts, given, LISTED_RUNS)


def runs_listed(facts: Facts, given: OfRuns, listed: int) -> JobRuns:
    """The same, with so many runs listed and measured by their progress."""
    long_enough_h = MIN_SCHEDULED_H if given.logs_period.days >= FULL_WEEK_DAYS else 0.0
    if not given.logs_read.jobs:
        from ettr.analysis.without_jobs import recorded_runs

        return recorded_runs(facts, given.assumptions, long_enough_h, listed)
    large_enough = MIN_GPUS if given.totals.attempts > SMALL_SITE_ATTEMPTS else 1
    return job_runs(
        facts,
        rule=given.assumptions.run_rule,
        assumptions=given.assumptions.checkpoints,
        min_scheduled_h=long_enough_h,
        min_gpus=large_enough if given.size_unit is SizeUnit.GPUS else 0,
        listed=listed,
        with_ends=True,
    )


class OfGoodput(Protocol):
    """What `goodput` takes."""

    assumptions: Assumptions
    logs_preemptions: PreemptionLinks
    selected: object
    resubmitted: dict[str, RunJobs]


def goodput(facts: Facts, given: OfGoodput) -> LostGoodput:
    """GPU-hours lost, first and second order."""
    links = given.logs_preemptions
    return lost_goodput(
        facts,
        links if given.selected is None else selected_links(facts, links),
        cap_min=given.assumptions.lost_cap_min,
        runs=given.resubmitted,
    )


class OfNodes(Protocol):
    """What `nodes` takes."""

    assumptions: Assumptions
    logs_read: LogsRead
    period: Period
    fleet: Service
    outages: tuple[Outage, ...]
    selected: object
    selection: Selection
    logs_fleet: Service
    logs_period: Period


def nodes(facts: Facts, given: OfNodes) -> Availability:
    """Node availability, repair times, capacity lost."""
    whole = None
    if given.selected is not None:
        whole = WholeLogs(given.logs_fleet, given.logs_period, given.selection)
    return availability(
        facts,
        given.period,
        given.fleet,
        given.outages,
        # those of other clusters than the selected ones say nothing
        clusters_of(facts, "node_states") if given.logs_read.node_states else (),
        confidence=given.assumptions.confidence,
        logs=whole,
    )


class OfQuality(Protocol):
    """What `quality` takes."""

    assumptions: Assumptions
    taxonomy: Taxonomy
    exposure: ExposureBasis
    naming: Naming
    logs_clusters: tuple[str, ...]
    clock_shifts: tuple[ClockShift, ...]
    runaways: Runaways | None
    left_out: LeftOut | None
    dump_windows: tuple[DumpWindow, ...]
    early_start: EarlyStart | None
    covered_time: CoveredTime | None


def quality(facts: Facts, given: OfQuality) -> DataQuality:
    """How far the logs can be trusted."""
    jobs = clusters_of(facts, "attempts")
    foreign = sorted(clusters_of(facts, "events", "node_states") - jobs) if jobs else []
    return data_quality(
        facts,
        given.exposure,
        assumed(given.assumptions, given.taxonomy, foreign),
        Doubts(
            unknown_checks(facts, given.taxonomy),
            unknown_reasons(facts, given.taxonomy),
            given.clock_shifts,
            given.runaways,
            given.left_out,
            given.dump_windows,
            given.early_start,
            unended_states(facts),
            given.covered_time,
        ),
        given.naming,
        len(given.logs_clusters) > 1,
    )


OF_COVERED_TIME = frozenset({trend, mttf})
"""Questions of the time alone in which errors of nodes were recorded."""
