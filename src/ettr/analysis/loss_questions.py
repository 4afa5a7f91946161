"""Questions that a report asks of every store about what failures cost: runs, goodput, nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ettr.analysis.assumptions import Assumptions, assumed
from ettr.facts import Facts
from ettr.metrics.availability import (
    Availability,
    LogsRead,
    Service,
    WholeLogs,
    availability,
    clusters_of,
)
from ettr.metrics.coverage import unknown_checks, unknown_reasons
from ettr.metrics.goodput import LostGoodput, lost_goodput
from ettr.metrics.instants import Period
from ettr.metrics.outages import Outage
from ettr.metrics.quality import DataQuality, data_quality, unended_states
from ettr.metrics.runs import LISTED_RUNS, MIN_SCHEDULED_H, JobRuns, job_runs
from ettr.metrics.sizes import SizeUnit
from ettr.metrics.status import Totals
from ettr.metrics.stitching import PreemptionLinks, RunJobs, selected_links
from ettr.selection import Selection

if TYPE_CHECKING:
    from ettr.facts.naming import Naming
    from ettr.metrics.clock_shifts import ClockShift
    from ettr.metrics.coverage import CoveredTime, DumpWindow
    from ettr.metrics.exposure import ExposureBasis
    from ettr.metrics.quality import EarlyStart, LeftOut, Runaways
    from ettr.taxonomy import Taxonomy


FULL_WEEK_DAYS = 7.0
SMALL_SITE_ATTEMPTS = 200_000
MIN_GPUS = 8


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
        given.naming,
        len(given.logs_clusters) > 1,
        given.clock_shifts,
        unknown_checks=unknown_checks(facts, given.taxonomy),
        unknown_reasons=unknown_reasons(facts, given.taxonomy),
        runaways=given.runaways,
        left_out=given.left_out,
        windows=given.dump_windows,
        early_start=given.early_start,
        unended_states=unended_states(facts),
        covered=given.covered_time,
    )
