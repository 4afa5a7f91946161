"""Questions that a report asks of every store about what failures cost: runs, goodput, nodes."""

from __future__ import annotations

from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import assumed
from ettr.metrics.availability import (
    Availability,
    WholeLogs,
    availability,
    clusters_of,
)
from ettr.metrics.coverage import unknown_checks, unknown_reasons
from ettr.metrics.goodput import LostGoodput, lost_goodput
from ettr.metrics.quality import DataQuality, data_quality, unended_states
from ettr.metrics.runs import LISTED_RUNS, MIN_SCHEDULED_H, JobRuns, job_runs
from ettr.metrics.sizes import SizeUnit
from ettr.metrics.stitching import selected_links

FULL_WEEK_DAYS = 7.0
SMALL_SITE_ATTEMPTS = 200_000
MIN_GPUS = 8


def runs(analysis: Analysis) -> JobRuns:
    """Job runs and their ETTR.

    Logs of less than a week have no runs of a day worth speaking of, and small sites few of many
    GPUs: there every run counts.

    Of a selection they are those that ended in its period, whole, if any of their attempts is
    selected. Where there are no jobs, the runs are those that progress records name.
    """
    return runs_listed(analysis, LISTED_RUNS)


def runs_listed(analysis: Analysis, listed: int) -> JobRuns:
    """The same, with so many runs listed and measured by their progress."""
    long_enough_h = MIN_SCHEDULED_H if analysis.logs_period.days >= FULL_WEEK_DAYS else 0.0
    if not analysis.logs_read.jobs:
        from ettr.analysis.without_jobs import recorded_runs

        return recorded_runs(analysis.facts, analysis.assumptions, long_enough_h, listed)
    large_enough = MIN_GPUS if analysis.totals.attempts > SMALL_SITE_ATTEMPTS else 1
    return job_runs(
        analysis.facts,
        rule=analysis.assumptions.run_rule,
        assumptions=analysis.assumptions.checkpoints,
        min_scheduled_h=long_enough_h,
        min_gpus=large_enough if analysis.size_unit is SizeUnit.GPUS else 0,
        listed=listed,
        with_ends=True,
    )


def goodput(analysis: Analysis) -> LostGoodput:
    """GPU-hours lost, first and second order."""
    links = analysis.logs_preemptions
    return lost_goodput(
        analysis.facts,
        links if analysis.selected is None else selected_links(analysis.facts, links),
        cap_min=analysis.assumptions.lost_cap_min,
        runs=analysis.resubmitted,
    )


def nodes(analysis: Analysis) -> Availability:
    """Node availability, repair times, capacity lost."""
    whole = None
    if analysis.selected is not None:
        whole = WholeLogs(analysis.logs_fleet, analysis.logs_period, analysis.selection)
    return availability(
        analysis.facts,
        analysis.period,
        analysis.fleet,
        analysis.outages,
        # those of other clusters than the selected ones say nothing
        clusters_of(analysis.facts, "node_states") if analysis.logs_read.node_states else (),
        confidence=analysis.assumptions.confidence,
        logs=whole,
    )


def quality(analysis: Analysis) -> DataQuality:
    """How far the logs can be trusted."""
    jobs = clusters_of(analysis.facts, "attempts")
    foreign = sorted(clusters_of(analysis.facts, "events", "node_states") - jobs) if jobs else []
    return data_quality(
        analysis.facts,
        analysis.exposure,
        assumed(analysis.assumptions, analysis.taxonomy, foreign),
        analysis.naming,
        len(analysis.logs_clusters) > 1,
        analysis.clock_shifts,
        unknown_checks=unknown_checks(analysis.facts, analysis.taxonomy),
        unknown_reasons=unknown_reasons(analysis.facts, analysis.taxonomy),
        runaways=analysis.runaways,
        left_out=analysis.left_out,
        windows=analysis.dump_windows,
        early_start=analysis.early_start,
        unended_states=unended_states(analysis.facts),
        covered=analysis.covered_time,
    )
