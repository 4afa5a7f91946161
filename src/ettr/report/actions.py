"""What to do first: at most three things, each with what it wins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from ettr.analysis import Analysis
from ettr.analysis.clustering import come_in_bursts
from ettr.metrics.goodput import SAME_CAUSE, SAME_NODE
from ettr.report.answers import UNLIKELY
from ettr.report.findings import Finding
from ettr.report.numbers import duration, moment, number, percent
from ettr.taxonomy.catalogue import Taxonomy
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import (
    HOURS_PER_DAY,
    MICROSECONDS_PER_SECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)
from ettr.words import by_number, counted

# -- numbers and names as one says them: few digits, no powers of ten, no codes --------------------


NO_CAUSE = "no cause found"
_PLAIN = {
    "gpu-unavailable": "GPU unavailable",
    "gpu-memory": "GPU memory",
    "gpu-driver": "GPU driver",
    "nvlink": "NVLink",
    "infiniband": "InfiniBand",
    "filesystem": "file system",
    "main-memory": "main memory",
    "ethlink": "Ethernet",
    "pcie": "PCIe",
    "node-hardware": "node hardware",
    "boot": "node did not start",
    "oom": "out of memory",
    UNATTRIBUTED: NO_CAUSE,
}
_BRIEF = {
    "clock-shift": "clocks of two logs disagree",
    "runaway-jobs": "jobs without an end are counted",
    "too-few-states": "the export lacks end states",
    "unseen-attempts": "the accounting lacks some jobs",
    "restarts": "the accounting lacks some restarts",
    "part-covered": "logs cover only part of the period",
    "dump-window": "the export leaves jobs out",
    "early-start": "old jobs, but no nodes",
    "no-node-states": "a cluster lacks node states",
    "unplaced-rows": "some logs name no cluster",
    "unended-states": "node states lack an end",
    "no-node-list": "some jobs name no nodes",
    "no-gpu-count": "some jobs name no GPUs",
    "black-hole": "a node ends jobs at once",
    "hangs": "some runs probably hung",
    "no-checks": "no node logs were read",
    "other-names": "logs name nodes differently",
    "silent-nodes": "some nodes sent no logs",
    "false-failures": "some failures may be false",
    "down-by-hand": "nodes were stopped by hand",
    "short-logs": "the logs are very short",
    "read-again": "some files must be read again",
    "no-gpu-errors": "no log holds GPU errors",
    "joined-names": "nodes have several names",
}
_MOST, _BILLION, _MILLION = 1e12, 1e9, 1e6
_SMALLEST = 0.001


def plainly(value: float, digits: int = 2) -> str:
    """A number to two digits as one says it: 190,000, 1.2 million, under 0.001."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "endless"
    if value < 0.0:
        return f"minus {plainly(-value, digits)}"
    if 0.0 < value < _SMALLEST:
        return f"under {_SMALLEST}"
    if value >= _MOST:
        return "over 1,000 billion"
    for unit, name in ((_BILLION, " billion"), (_MILLION, " million")):
        if value >= unit:
            return _digits(value / unit, digits) + name
    return _digits(value, digits)


def _digits(value: float, digits: int) -> str:
    if value == 0.0:
        return "0"
    places = digits - 1 - math.floor(math.log10(value))
    rounded = round(value, places)
    if places <= 0 or rounded == int(rounded):
        return f"{rounded:,.0f}"
    return f"{rounded:.{places}f}".rstrip("0").rstrip(".")


def share_words(share: float) -> str:
    """A share in percent: 0.82 %, 34 %, under 0.01 %."""
    percent = 100.0 * share
    if 0.0 < percent < 0.01:
        return "under 0.01 %"
    return f"{plainly(percent)} %"


def hours_words(hours: float) -> str:
    """A length of time that is given in hours: 25 minutes, 7 hours, 13 days."""
    if hours < 2.0:
        return f"{plainly(hours * SECONDS_PER_HOUR / SECONDS_PER_MINUTE)} minutes"
    if hours < 2 * HOURS_PER_DAY:
        return f"{plainly(hours)} hours"
    return f"{plainly(hours / HOURS_PER_DAY)} days"


def cause_name(taxonomy: Taxonomy, symptom: str) -> str:
    """The plain name of a symptom."""
    known = taxonomy.symptoms.get(symptom)
    return _PLAIN.get(symptom) or (known.name if known else symptom.replace("-", " "))


def brief_of(finding: Finding) -> str:
    """A finding in about five words."""
    return _BRIEF.get(finding.code) or finding.code.replace("-", " ")


def nodes_words(names: Sequence[str]) -> str:
    """One node by its name, several by their number."""
    return names[0] if len(names) == 1 else counted(len(names), "node")


# -- what to do first: at most three things, each with what it wins --------------------------------


MOST_ACTIONS = 3
_MOST_OF_ONE_KIND = 2
_COLLECT = "ettr collect logs --since DATE"
_MONTH_DAYS = 30.0
_LEAST_DAYS = 15.0
"""Of shorter logs nothing is said by the month."""
_LEAST_SILENT = 0.1
"""Share of failures that missing logs must be able to add to be worth an action."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do.

    Attributes:
        says: What to do, and what it wins, in a short sentence.
        section: Slug of the section that has the evidence; empty for none.
        how: The command; empty for none. `--detail` and the page's fold show it.
        gpu_hours: What it wins in these logs; None where it wins knowledge.
    """

    says: str
    section: str = ""
    how: str = ""
    gpu_hours: float | None = None


def actions(analysis: Analysis, spread: tuple[float, float] | None) -> tuple[Action, ...]:
    """At most three: first what wins the most GPU-hours, then what the numbers lack.

    Args:
        spread: GPU-hours lost if checkpoints are frequent and if they are rare; None if known.
    """
    jobs = analysis.logs_read.jobs
    repairs = [*_nodes(analysis), *_hangs(analysis), *_loops(analysis)] if jobs else []
    repairs.sort(key=lambda one: -(one.gpu_hours or 0.0))
    lacking = list(_lacking(analysis, spread))
    kept = repairs[: MOST_ACTIONS - min(len(lacking), 1)]
    kept += lacking[: MOST_ACTIONS - len(kept)]
    if len(kept) < _MOST_OF_ONE_KIND and jobs:
        kept += list(_costliest(analysis))
    return tuple(kept)


def _nodes(analysis: Analysis) -> Iterator[Action]:
    holes = sorted({one.node for one in analysis.black_holes})
    for node in holes[:1]:
        ended = sum(one.ended for one in analysis.black_holes if one.node == node)
        says = f"Drain {node} and test it: it ended {counted(ended, 'job')} right after the start"
        yield Action(says, "node-records", f"ettr node STORE {node}", _lost_on(analysis, {node}))
    claimed = [one for one in analysis.lemon_nodes.candidates if one.claimed]
    names = {one.node for one in claimed}
    section = "lemons"
    if not names:
        worst = [
            one
            for one in analysis.node_records.nodes
            if one.chance is not None and one.chance < UNLIKELY and one.failures
        ]
        names, section = {one.node for one in worst}, "node-records"
    names -= set(holes)
    if not names:
        return
    failures = analysis.failure_list.failures
    theirs = sum(one.node in names for one in failures)
    hours = _lost_on(analysis, names)
    verb = "Drain" if section == "lemons" else "Test"
    share = f"{theirs:,} of {counted(len(failures), 'failure')}"
    how = "ettr lemons STORE" if section == "lemons" else f"ettr node STORE {min(names)}"
    says = f"{verb} {nodes_words(sorted(names))}: {share}{_hours(analysis, hours)}"
    yield Action(says, section, how, hours)


def _lost_on(analysis: Analysis, names: set[str]) -> float:
    """GPU-hours lost in failures that are blamed on these nodes."""
    return sum(
        (one.lost_gpu_hours or 0.0) + (one.preempted_gpu_hours or 0.0)
        for one in analysis.failure_list.failures
        if one.node in names
    )


def _hours(analysis: Analysis, hours: float) -> str:
    """What it wins: by the month where the logs are long enough to say so."""
    if not hours:
        return ""
    days = (analysis.period.end - analysis.period.start).total_seconds() / SECONDS_PER_DAY
    if days < _LEAST_DAYS:
        return f", {plainly(hours)} GPU-hours lost"
    return f", {plainly(hours * _MONTH_DAYS / days)} GPU-hours lost a month"


def _hangs(analysis: Analysis) -> Iterator[Action]:
    hung = analysis.hung_runs
    if not hung:
        return
    hours = sum(one.gpu_hours or 0.0 for one in hung)
    says = f"End hung jobs with a watchdog: {counted(len(hung), 'run')}{_hours(analysis, hours)}"
    yield Action(says, "failures", "", hours)


def _loops(analysis: Analysis) -> Iterator[Action]:
    loops = [one for one in analysis.goodput.crash_loops if one.patterns]
    if not loops:
        return
    worst = max(loops, key=lambda one: one.lost_gpu_hours or 0.0)
    hours = worst.lost_gpu_hours or 0.0
    won = f", {plainly(hours)} GPU-hours lost" if hours else ""
    where = f", always on {worst.node}" if SAME_NODE in worst.patterns else ""
    says = f"Hold job {worst.job_id}: {counted(worst.failures, 'failure')}{where}{won}"
    yield Action(says, "goodput", f"ettr explain STORE {worst.job_id}", hours)


def _lacking(analysis: Analysis, spread: tuple[float, float] | None) -> Iterator[Action]:
    """What to give or to collect, and which number gets better by it."""
    logs = analysis.logs_read
    if not logs.jobs:
        says = "Add job accounting: failure rates and cost need it"
        yield Action(says, "quality", _COLLECT)
        if not analysis.fleet_is_known:
            says = "Give the number of nodes: rates need it"
            yield Action(says, "quality", "ettr report STORE --fleet-nodes N")
    if spread is not None:
        low, high = spread
        yield Action(
            f"State your checkpoint interval: the loss may be {plainly(low)} to {plainly(high)} "
            "GPU-hours",
            "goodput",
            "ettr report STORE --interval 1h",
        )
    failures = analysis.rates.all_jobs.failures if logs.jobs else 0
    if logs.failures_are_lower_bound or not (logs.jobs or logs.errors):
        yield Action(
            "Add kernel logs and health checks: without them failures have no known cause",
            "quality",
            _COLLECT,
        )
    elif logs.jobs and (unheard := _unheard(analysis)) and failures:
        more = unheard / failures
        if more > _LEAST_SILENT:
            by = (
                f"{share_words(more)} higher"
                if more < 1.0
                else f"{plainly(1.0 + more)} times as high"
            )
            yield Action(
                f"Collect logs of silent nodes: the failure rate may be {by}",
                "failures",
                _COLLECT,
            )
    if not logs.node_states:
        yield Action(
            "Add node states: without them outages and repair times are unknown",
            "quality",
            _COLLECT,
        )
    if logs.jobs and analysis.runs.runs_found and not analysis.runs.measured_runs:
        yield Action(
            "Record training progress: without it ETTR rests on assumed times",
            "runs",
            "from ettr.progress import ProgressRecorder",
        )


def _unheard(analysis: Analysis) -> int:
    """Attempts that ended FAILED where no log could have shown why."""
    failed = analysis.evidence.failed
    return failed.total - failed.heard


def _costliest(analysis: Analysis) -> Iterator[Action]:
    """The cause that costs most, where nothing better is known."""
    known = [
        one for one in analysis.goodput.by_cause if one.gpu_hours and one.symptom != UNATTRIBUTED
    ]
    total = sum(one.gpu_hours or 0.0 for one in analysis.goodput.by_cause)
    if not known or not total:
        return
    worst = max(known, key=lambda one: one.gpu_hours or 0.0)
    name = worst.symptom.replace("-", " ")
    share = share_words((worst.gpu_hours or 0.0) / total)
    yield Action(f"Look into {name} first: {share} of the loss", "goodput", "", worst.gpu_hours)


# -- what to do next: rules over the results, the costliest first ----------------------------------


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
            _costliest_step,
            _hang_steps,
            _lemons,
            _repeated_failures,
            _unexplained,
            _unheard_step,
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


def _costliest_step(analysis: Analysis) -> Iterator[str]:
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


def _hang_steps(analysis: Analysis) -> Iterator[str]:
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


def _unheard_step(analysis: Analysis) -> Iterator[str]:
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
