"""What to do first: at most three things, each with what it wins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ettr.analysis import Analysis
from ettr.metrics.goodput import SAME_NODE, loss_of_each
from ettr.report.answers import UNLIKELY
from ettr.report.findings import Finding
from ettr.taxonomy.catalogue import Taxonomy
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import (
    HOURS_PER_DAY,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)
from ettr.words import counted

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
_KERNEL_LOG = "kernel-xid"
_MONTH_DAYS = 30.0
_LEAST_DAYS = 15.0
"""Of shorter logs nothing is said by the month."""
MOVES_MUCH = 1.5
"""An assumption stands next to a number that it moves by more than this factor."""
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


def sentences(listed: Sequence[Action]) -> tuple[str, ...]:
    """Each action in a sentence, with its command."""
    return tuple(f"{one.says}{f' (`{one.how}`)' if one.how else ''}." for one in listed)


def loss_by_interval(analysis: Analysis) -> tuple[float, float] | None:
    """GPU-hours lost if checkpoints are frequent and if they are rare.

    None where the interval was given, or where no loss is known.
    """
    band = analysis.assumptions.checkpoints
    low_min, high_min = (one.checkpoint_interval_min / 2 for one in (band.best, band.worst))
    if low_min == high_min or not analysis.logs_read.jobs or not analysis.gpus_are_known:
        return None
    low, high = (
        sum(loss_of_each(analysis.facts, analysis.preemptions, cap_min).gpu_hours)
        for cap_min in (low_min, high_min)
    )
    return (low, high) if low and high / low > MOVES_MUCH else None


def actions(analysis: Analysis, spread: tuple[float, float] | None) -> tuple[Action, ...]:
    """At most three: first what wins the most GPU-hours, then what the numbers lack.

    Args:
        spread: GPU-hours lost if checkpoints are frequent and if they are rare; None if known.
    """
    jobs = analysis.logs_read.jobs
    repairs = [*_nodes(analysis), *_hangs(analysis), *_loops(analysis)] if jobs else []
    repairs.sort(key=lambda one: -(one.gpu_hours or 0.0))
    if jobs:  # such a node takes every job that waits
        repairs = [*_black_holes(analysis), *repairs]
    lacking = list(_lacking(analysis, spread))
    kept = repairs[: MOST_ACTIONS - min(len(lacking), 1)]
    kept += lacking[: MOST_ACTIONS - len(kept)]
    if len(kept) < _MOST_OF_ONE_KIND and jobs:
        kept += list(_costliest(analysis))
    return tuple(kept)


def _black_holes(analysis: Analysis) -> Iterator[Action]:
    """The node that ended the most jobs."""
    ended = Counter[str]()
    for one in analysis.black_holes:
        ended[one.node] += one.ended
    for node, n in ended.most_common(1):
        says = f"Drain {node} and test it: it ended {counted(n, 'job')} right after the start"
        yield Action(says, "node-records", f"ettr node STORE {node}", _lost_on(analysis, {node}))


def _nodes(analysis: Analysis) -> Iterator[Action]:
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
    names -= {one.node for one in analysis.black_holes}
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
        says, how = "Add kernel logs and health checks", _COLLECT
        if unknown := logs.unknown_checks:
            says, how = (
                f"Say what the codes of {unknown[0]} mean",
                "ettr report STORE --taxonomy FILE",
            )
        yield Action(f"{says}: without them failures have no known cause", "quality", how)
    elif logs.jobs and (unheard := _unheard(analysis)) and failures:
        more = unheard / failures
        if more > _LEAST_SILENT:
            by = (
                f"{share_words(more)} higher"
                if more < 1.0
                else f"{plainly(1.0 + more)} times as high"
            )
            filtered = any(
                file.source == _KERNEL_LOG and file.rows_read and not file.rows_skipped
                for file in analysis.quality.files
            )
            what = (
                "whole kernel logs (some hold errors alone)" if filtered else "logs of silent nodes"
            )
            yield Action(f"Collect {what}: the failure rate may be {by}", "failures", _COLLECT)
    if not logs.node_states:
        yield Action(
            "Add node states: without them outages and repair times are unknown",
            "quality",
            _COLLECT,
        )
    if logs.jobs and analysis.runs.runs_found and not analysis.runs.measured_runs:
        says = "Record training progress: without it ETTR rests on assumed times"
        if logs.progress:
            jobs = len(analysis.facts.distinct("progress", "cluster", "job_id"))
            says = (
                "Record the cluster and the scheduler's job id with progress: the records of "
                f"{counted(jobs, 'job')} are of no run of the accounting"
            )
        yield Action(says, "runs", "from ettr.progress import ProgressRecorder")


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
