"""What to do first: at most three things, each with what it wins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ettr.analysis import Analysis
from ettr.metrics.goodput import SAME_NODE
from ettr.report.answers import UNLIKELY
from ettr.report.plain_words import nodes_words, plainly, share_words
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

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
