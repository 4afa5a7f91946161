"""What to do next: rules over the results, the costliest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter

from ettr.analysis import Analysis
from ettr.analysis.clustering import come_in_bursts
from ettr.metrics.goodput import SAME_CAUSE, SAME_NODE
from ettr.report.numbers import duration, moment, number, percent
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import by_number, counted

MANY_UNEXPLAINED = 0.3
MOST_STEPS = 6
MOST_NAMED = 3
KERNEL_LOG = "kernel-xid"


def next_steps(analysis: Analysis) -> tuple[str, ...]:
    """At most six sentences, each naming a number and an action."""
    steps = [
        step
        for rule in (
            _no_jobs,
            _black_holes,
            _quality,
            _missing_logs,
            _costliest,
            _hangs,
            _lemons,
            _repeated_failures,
            _unexplained,
            _unheard,
            _left_out,
            _no_progress,
            _concentrated,
        )
        for step in rule(analysis)
    ]
    return tuple(steps[:MOST_STEPS])


def _no_jobs(analysis: Analysis) -> Iterator[str]:
    if not analysis.logs_read.jobs:
        yield (
            "These logs hold no jobs, so nothing here is about jobs. Add job accounting (`ettr "
            "sources` shows how to export it) to learn what the faults of the nodes cost."
        )
        if not analysis.fleet_is_known:
            yield (
                "The logs name only nodes that had trouble, so no rate has an estimate: give the "
                "number of nodes with `--fleet-nodes N`, or add `scontrol show node`."
            )


def _black_holes(analysis: Analysis) -> Iterator[str]:
    """The worst one: it takes every job that waits."""
    holes = analysis.black_holes
    if not holes:
        return
    worst = max(holes, key=lambda one: one.ended)
    others = sorted({one.node for one in holes} - {worst.node})
    more = f" So did {', '.join(others[:MOST_NAMED])}." if others else ""
    yield (
        f"{worst.node} ended {worst.early:,} of the {counted(worst.starts, 'attempt')} "
        f"that began on it within {worst.within_s} s ({counted(worst.users, 'user')}, "
        f"{moment(worst.first)} to {moment(worst.last)}): take it out of service, test "
        f"it, and check nodes before each job from now on.{more}"
    )


def _quality(analysis: Analysis) -> Iterator[str]:
    quality = analysis.quality
    if quality.rows_rejected:
        yield (
            f"{quality.rows_rejected:,} of {quality.rows_read:,} records could not be "
            "read; the section on data quality lists why. Every rate leaves them out."
        )


def _left_out(analysis: Analysis) -> Iterator[str]:
    if analysis.left_out and analysis.left_out.doubtful:
        yield analysis.left_out.doubtful


def _missing_logs(analysis: Analysis) -> Iterator[str]:
    logs = analysis.logs_read
    if logs.unknown_checks:
        yield (
            f"The taxonomy knows no code of {counted(len(logs.unknown_checks), 'check')} "
            f"({', '.join(logs.unknown_checks[:MOST_NAMED])}), so their events explain nothing: "
            "the section on data quality has rows to put into a file for `--taxonomy`."
        )
    if logs.failures_are_lower_bound:
        yield (
            "No kernel messages or health checks of nodes were read, so failures go "
            "uncounted and the others have no cause. Add them: `ettr sources` lists what "
            "ettr reads and how to get it."
        )
    if not logs.jobs and not logs.errors:
        yield (
            "No kernel messages or health checks of nodes were read, so errors of nodes are not "
            "measured. Add them: `ettr sources` lists what ettr reads and how to get it."
        )
    if not logs.node_states:
        yield (
            "No node states were read, so outages and repair times are not measured. Add "
            "`sacctmgr show event` (`ettr sources` lists the full command)."
        )


def _costliest(analysis: Analysis) -> Iterator[str]:
    causes = [(one.gpu_hours, one) for one in analysis.goodput.by_cause if one.gpu_hours]
    known = [(hours, cause) for hours, cause in causes if cause.symptom != UNATTRIBUTED]
    if not known:
        return
    most_h, costliest = max(causes, key=itemgetter(0))
    worst_h, worst = max(known, key=itemgetter(0))
    total_h = sum(hours for hours, _ in causes)
    cost = (
        f"{number(worst_h)} GPU-hours, {percent(worst_h / total_h)} of what failures cost, in "
        f"{counted(worst.failures, 'failure')}"
    )
    if costliest is worst:
        yield f"{worst.symptom} costs most: {cost}. Look into it first."
        return
    yield (
        f"Failures without a known cause cost most: {number(most_h)} GPU-hours, "
        f"{percent(most_h / total_h)} of what failures cost, in "
        f"{counted(costliest.failures, 'failure')}: find the logs of their nodes. Among "
        f"the known causes {worst.symptom} costs most: {cost}."
    )


def _hangs(analysis: Analysis) -> Iterator[str]:
    hung = analysis.hung_runs
    if not hung:
        return
    hours = sum(one.gpu_hours or 0.0 for one in hung)
    held = f", and held {number(hours)} GPU-hours from the fault on" if hours else ""
    symptom, n = Counter(one.symptom for one in hung).most_common(1)[0]
    yield (
        f"{counted(len(hung), 'run')} probably hung after a fault ({n:,} after {symptom}) until "
        f"somebody or the time limit ended {'it' if len(hung) == 1 else 'them'}{held}: let a "
        "watchdog end a run that makes no step, and a check drain the node at the fault."
    )


def _lemons(analysis: Analysis) -> Iterator[str]:
    claimed = [one for one in analysis.lemon_nodes.candidates if one.claimed]
    if not claimed:
        return
    named = ", ".join(
        f"{one.node} ({number(one.failures)} failures, {number(one.expected, 2)} expected)"
        for one in claimed[:MOST_NAMED]
    )
    more = f" and {len(claimed) - MOST_NAMED:,} more" if len(claimed) > MOST_NAMED else ""
    yield (
        f"{by_number('{n} [node is|nodes are] claimed as lemons', len(claimed))}: {named}{more}. "
        "Take them out of service and test them; `ettr lemons STORE NODE` writes the evidence for "
        "a ticket."
    )


def _repeated_failures(analysis: Analysis) -> Iterator[str]:
    """The costliest job whose failures chance does not explain; a large healthy one is no loop."""
    loops = [loop for loop in analysis.goodput.crash_loops if loop.patterns]
    if not loops:
        return
    worst = max(loops, key=lambda loop: loop.lost_gpu_hours or 0.0)
    lost, in_all = "", ""
    if analysis.gpus_are_known and worst.lost_gpu_hours is not None:
        lost, in_all = f", and lost {number(worst.lost_gpu_hours)} GPU-hours", " in all"
    explain = f"`ettr explain STORE {worst.job_id}` lists its failures."
    if SAME_NODE in worst.patterns:
        yield (
            f"Job {worst.job_id} failed {worst.failures:,} times, always on node "
            f"{worst.node}{lost}: take the node out of service and test it. {explain}"
        )
    elif SAME_CAUSE in worst.patterns:
        yield (
            f"Job {worst.job_id} failed {worst.failures:,} times, always with "
            f"{worst.symptoms[0]}{lost}: find what its failures have in common. {explain}"
        )
    elif worst.burst is not None:
        yield (
            f"Job {worst.job_id} failed {worst.burst.failures:,} times within "
            f"{duration(SECONDS_PER_HOUR * worst.burst.run_hours)} of running, where "
            f"{number(worst.burst.expected_failures, 2)} failures were to be "
            f"expected{lost}{in_all}: limit its requeues until you know the cause. {explain}"
        )


def _unexplained(analysis: Analysis) -> Iterator[str]:
    failures = analysis.rates.all_jobs.failures
    unexplained = sum(
        s.all_jobs.failures for s in analysis.rates.by_symptom if s.symptom == UNATTRIBUTED
    )
    if analysis.logs_read.failures_are_lower_bound:
        return
    if failures and unexplained / failures > MANY_UNEXPLAINED:
        yield (
            f"These logs show no cause for {unexplained:,} of "
            f"{counted(failures, 'failure')}: check that they include kernel messages and "
            "health checks of every node (`ettr sources` lists what ettr reads)."
        )


def _unheard(analysis: Analysis) -> Iterator[str]:
    logs = analysis.logs_read
    if not logs.jobs or logs.failures_are_lower_bound:
        return
    silent = analysis.evidence.failed.silent
    if not silent:
        return
    filtered = [
        file.name
        for file in analysis.quality.files
        if file.source == KERNEL_LOG and file.rows_read and not file.rows_skipped
    ]
    ended = f"{counted(silent, 'attempt')} ended FAILED on nodes that sent no logs"
    if filtered:
        more = f" and {len(filtered) - MOST_NAMED:,} more" if len(filtered) > MOST_NAMED else ""
        yield (
            f"{ended}, and {', '.join(filtered[:MOST_NAMED])}{more} "
            f"{'holds' if len(filtered) == 1 else 'hold'} errors alone, as if filtered. Ingest "
            "whole kernel logs (`journalctl -k`): lines without errors show which nodes were well."
        )
    else:
        yield (
            f"{ended}: ingest the kernel logs of those nodes, or find out why they do not arrive."
        )


def _no_progress(analysis: Analysis) -> Iterator[str]:
    runs = analysis.runs
    if not analysis.logs_read.jobs and not analysis.logs_read.progress:
        yield (
            "No progress records were read, so the ETTR of training runs is not "
            "measured. Ten lines with `ettr.progress` in the training loop record it."
        )
    if runs.runs_found and not runs.measured_runs and analysis.logs_read.progress:
        yield _unused_progress(analysis)
    elif runs.runs_found and not runs.measured_runs:
        yield (
            "No run has progress records, so every ETTR is a range over assumed checkpoint and "
            "restart times. Ten lines with `ettr.progress` in the training loop measure it instead."
        )


def _unused_progress(analysis: Analysis) -> str:
    """Why progress that was read measures no run."""
    jobs = analysis.facts.distinct("progress", "cluster", "job_id")
    rows = sorted(jobs, key=lambda row: tuple((one is None, one) for one in row))
    first = "/".join(one for one in rows[0] if one) or "without an id"
    clocks = ", or its clock is not that of the accounting" if analysis.clock_shifts else ""
    return (
        f"Progress records of {counted(len(rows), 'job')} were read (the first is "
        f"{first}), but they measure no run: no run of the accounting has these job ids "
        f"in this cluster{clocks}, or it is too short to count. Record the scheduler's "
        "job id, and the cluster's name as the accounting has it."
    )


def _concentrated(analysis: Analysis) -> Iterator[str]:
    believed = analysis.clustering.all_jobs.believed
    if believed.is_surely_clustered and believed.over == "nodes":
        if any(one.claimed for one in analysis.lemon_nodes.candidates):
            return
        yield (
            "A few nodes fail far more often than chance explains: check those with the most "
            "failures."
        )
    elif believed.is_surely_clustered:
        ends_us = analysis.rate_facts.columns("failures")["end_us"]
        times_days = ends_us / (MICROSECONDS_PER_SECOND * SECONDS_PER_DAY)
        if come_in_bursts(believed, times_days, analysis.assumptions.confidence):
            yield (
                "Failures come in bursts: before you replace nodes, look for what those "
                "of one hour have in common (switch, file system, power, a change)."
            )
