"""What may be wrong with the numbers: each finding once, with its effect, the largest first."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol

from ettr.analysis import Analysis
from ettr.analysis.selecting import joined_names
from ettr.facts import Facts
from ettr.metrics.availability import LogsRead
from ettr.metrics.black_holes import BlackHole, HungRun
from ettr.metrics.outages import SetDown
from ettr.metrics.quality import DataQuality
from ettr.metrics.rates import ClassRate, RatesWithoutFalse, RateWithoutFalse
from ettr.report.numbers import between, duration, moment, number, percent
from ettr.sources.base import READERS
from ettr.tables.rows import DEFAULT_CLUSTER
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis.evidence import EvidenceCoverage
    from ettr.analysis.selecting import OtherName
    from ettr.metrics.coverage import DumpWindow
    from ettr.metrics.quality import LeftOut, Runaways


# -- how much of a failure rate may be false attribution, in words ---------------------------------


LEAST_FALSE = 1.0
"""Fewer false failures than this are not worth a note on a rate."""


class OfFalseRate(Protocol):
    """What `rate_without_false` takes."""

    rates_without_false: RatesWithoutFalse | None


def rate_without_false(_: Facts, given: OfFalseRate) -> RateWithoutFalse | None:
    """The rate that a store gives a projection, with and without false failures."""
    return projecting_rate(given)


def projecting_rate(given: OfFalseRate | Analysis) -> RateWithoutFalse | None:
    """The same of an analysis."""
    found = given.rates_without_false
    return None if found is None else found.best


def has_false(rate: RateWithoutFalse | None) -> bool:
    """Whether one failure or more behind the rate is expected to be false."""
    return rate is not None and (rate.expected_false.estimate or 0.0) >= LEAST_FALSE


def with_and_without(found: RatesWithoutFalse | None) -> str:
    """The rate as counted and without the false failures, of large jobs where any ran.

    Empty where not even the upper end of their number is one failure.
    """
    if found is None:
        return ""
    rate = found.best
    if rate.expected_false.estimate is None or rate.expected_false.high < LEAST_FALSE:
        return ""
    large = f" of jobs of more than {found.above_gpus} GPUs"
    return (
        f"Of the {counted(rate.failures, 'failure')}"
        f"{large if rate is found.large_jobs else ''}, {number(rate.on_evidence)} "
        f"{'rests' if rate.on_evidence == 1 else 'rest'} on a check alone, "
        f"{between(rate.expected_false)} of them expected to be false: "
        f"{between(rate.per_1000_node_days)} per 1,000 node-days with those, "
        f"{between(rate.without_false_per_1000_node_days)} without."
    )


def false_note(rate: RateWithoutFalse | None) -> str:
    """What false attribution may add to a rate that something is projected with; empty for little.

    Args:
        rate: with and without the false failures; None where none was measured.
    """
    if rate is None or not has_false(rate):
        return ""
    return (
        f"Of the {counted(rate.failures, 'failure')} behind the failure rate some "
        f"{between(rate.expected_false)} are expected to be false, blamed on faults that ended "
        "nothing: without them the rate would be "
        f"{between(rate.without_false_per_1000_node_days)} per 1,000 node-days."
    )


# -- failures of which no log says that they are ---------------------------------------------------


def black_hole_says(one: BlackHole) -> str:
    """What happened on a black hole, and what is not counted for it."""
    elsewhere = (
        f"on other nodes {percent(one.elsewhere)} fail that early and "
        f"{percent(one.failed_elsewhere)} fail at all"
        if one.elsewhere is not None
        else "no other node ran jobs"
    )
    uncounted = by_number(
        "No log says why: {n} of them [is|are] not counted as [a failure|failures].", one.uncounted
    )
    return (
        f"{one.early:,} of {counted(one.starts, 'attempt')} that began on {one.node} ended FAILED "
        f"within {one.within_s} s, from {moment(one.first)} to {moment(one.last)}. They belonged "
        f"to {counted(one.users, 'user')}; {elsewhere}. {uncounted}"
    )


def not_counted(holes: Sequence[BlackHole], hung: Sequence[HungRun]) -> str:
    """What a node ended and no log calls a failure, so that none counts; empty for nothing."""
    says = [
        f"it ended {one.early:,} of {counted(one.starts, 'attempt')} within {one.within_s} s of "
        f"the start ({counted(one.users, 'user')}, from {moment(one.first)} to {moment(one.last)})"
        for one in holes
    ]
    if hung:
        says.append(f"{counted(len(hung), 'run')} probably hung after a fault of it")
    return ", and ".join(says)


def hangs_say(hung: Sequence[HungRun]) -> str:
    """How many runs probably hung, and what that makes of the failures; empty without any."""
    if not hung:
        return ""
    states = Counter(one.state for one in hung)
    ended = ", ".join(f"{n:,} {state}" for state, n in states.most_common())
    lasted = duration(median((one.end - one.fault).total_seconds() for one in hung))
    sure = sum(one.is_sure for one in hung)
    progress = f" The recorded progress of {sure:,} had already stopped." if sure else ""
    hours = sum(one.gpu_hours or 0.0 for one in hung)
    held = f" They held {number(hours)} GPU-hours after the fault." if hours else ""
    return (
        f"{counted(len(hung), 'run')} ended ({ended}) after a fault on a node that was then taken "
        f"out of service, {lasted} after it at the median: they probably hung, and are not counted "
        f"as failures; the high end of the rate includes them.{progress}{held}"
    )


def set_down_says(found: SetDown, failures: int) -> str:
    """How many failures rest on a node that was set DOWN by hand."""
    who = [f"by a person in {found.by_person:,}"] if found.by_person else []
    if found.by_unknown:
        who.append(f"by a person or by Slurm, not known which, in {found.by_unknown:,}")
    says = (
        f"In {found.by_person + found.by_unknown:,} of {counted(failures, 'failure')} the node was "
        f"set DOWN when the job ended: {', '.join(who)}."
    )
    if not found.without_fault:
        return says
    typed = ", ".join(f"“{reason}”" for reason in found.reasons)
    return (
        f"{says} No log names a fault for {found.without_fault:,} of them"
        f"{f' ({typed})' if typed else ''}: if that was planned work, say so in a file for "
        "`--taxonomy`, and they no longer count as failures."
    )


def classes_say(classes: Sequence[ClassRate], of_nodes: str) -> str:
    """What rates are of, and those of each class of node; empty where there is but one.

    Args:
        classes: Of nodes.
        of_nodes: Those that the rates are of, in words; empty for all.
    """
    if not classes:
        return ""
    each = "; ".join(
        f"{one.name}: {between(one.per_1000_node_days)} ({counted(one.failures, 'failure')} in "
        f"{number(one.node_days, 5)} node-days)"
        for one in classes
    )
    only = f"These rates are of {of_nodes} alone. " if of_nodes else ""
    return f"{only}By class of node, per 1,000 node-days: {each}."


# -- what may be wrong with the numbers: each finding once, with its effect, the largest first -----


FEW_NODE_DAYS = 5.0
SHORT_LOG_H = 1.0
TOO_LOW, TOO_HIGH, EITHER = "too low", "too high", "too low or too high"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a finding does to numbers.

    Attributes:
        direction: "too low", "too high", or "too low or too high".
        at_most: Largest ratio of the right number and the one given, either way round (1.3 is 30 %
            off); None where nothing bounds it.
    """

    moves: tuple[str, ...]
    direction: str
    at_most: float | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a reader must know before trusting a number.

    Attributes:
        code: Its kind, as `runaway-jobs`.
        says: A sentence or two: what is wrong, and what to do.
        effect: Which numbers it moves; None where it moves none.
        rows: How many attempts, states, events or nodes it is about; None where it is not counted.
    """

    code: str
    says: str
    effect: Effect | None = None
    rows: int | None = None

    @property
    def size(self) -> float:
        """How much it may move a number, to sort by: nothing is 1, what nothing bounds the most."""
        if self.effect is None:
            return 1.0
        return math.inf if self.effect.at_most is None else self.effect.at_most


def _moving(
    code: str,
    says: str,
    at_most: float | None = None,
    rows: int | None = None,
    *,
    moves: tuple[str, ...] = ("failure rate",),
    direction: str = TOO_LOW,
) -> Finding:
    """A finding that moves numbers: where nothing else is said, a failure rate that is too low."""
    return Finding(code, says, Effect(moves, direction, at_most), rows)


def findings(analysis: Analysis) -> tuple[Finding, ...]:
    """All findings, those first that may move a number the most."""
    found = [*_of_logs(analysis), *_uncounted(analysis), *_false(analysis), *_by_hand(analysis)]
    found += _of_quality(analysis.quality)
    found += _read_again(analysis)
    if joined := joined_names(analysis.facts):
        found.append(Finding("joined-names", joined))
    if short := short_logs(analysis):
        found.append(_moving("short-logs", short, moves=("every rate",), direction=EITHER))
    return tuple(sorted(found, key=lambda one: -one.size))


def caution(analysis: Analysis) -> str | None:
    """What a reader must know before the first number, the worst first; None for nothing."""
    at_head = [one for one in _of_logs(analysis) if one.code not in ("unended-states", "restarts")]
    at_head.sort(key=lambda one: -one.size)
    sentences = [one.says for one in at_head]
    if short := short_logs(analysis):
        sentences.append(short)
    return " ".join(sentences) or None


def _of_logs(analysis: Analysis) -> Iterator[Finding]:
    """What the logs lack, or say wrongly."""
    for shift in analysis.clock_shifts:
        most = _with(analysis, analysis.evidence.failed.total - analysis.evidence.failed.uncovered)
        yield _moving(
            "clock-shift",
            shift.sentence,
            most,
            shift.agreeing,
            moves=("causes", "failure rate"),
            direction=EITHER,
        )
    if runaway := analysis.runaways:
        most = _without(analysis, runaway.node_days)
        yield _moving("runaway-jobs", runaway.sentence, most, runaway.attempts)
    if missing := analysis.left_out:
        kinds = ("too-few-states",) * (missing.none_completed + missing.none_failed)
        for code, says in zip((*kinds, "unseen-attempts"), missing.certain, strict=False):
            direction = TOO_HIGH if says not in missing.too_few_failures else TOO_LOW
            unseen = code == "unseen-attempts"
            most = _with(analysis, missing.unseen_attempts) if unseen else None
            rows = missing.unseen_attempts if unseen else missing.ended
            yield _moving(code, says, most, rows, direction=direction)
        if missing.doubtful:
            yield _moving("restarts", missing.doubtful)
    if covered := analysis.covered_time:
        yield _moving("part-covered", covered.sentence)
    for window in analysis.dump_windows:
        most = _without(analysis, window.node_days_before)
        yield _moving("dump-window", window.sentence, most)
    if early := analysis.early_start:
        known_days = (analysis.period.end - early.known_from).total_seconds() / SECONDS_PER_DAY
        most = analysis.period.days / known_days if known_days > 0 else None
        moves = ("rates and shares by time in service",)
        yield _moving("early-start", early.sentence, most, moves=moves)
    if without := without_states(analysis):
        yield _moving("no-node-states", without, moves=("outages",))
    if analysis.has_unplaced_rows:
        yield _moving(
            "unplaced-rows",
            "Some logs name no cluster, and several clusters or none have nodes of those "
            f"names. Their rows are kept apart as {DEFAULT_CLUSTER!r} and explain no "
            "failure of another cluster. Read them again with --cluster.",
            moves=("causes", "failure rate"),
        )


def _read_again(analysis: Analysis) -> Iterator[Finding]:
    """Files that an older reader read than the program has now."""
    by_options: dict[str, list[str]] = {}
    for row in analysis.facts.rows("files"):
        if (row["reader"] or 1) < READERS.get(row["source"], 1):
            by_options.setdefault(row["options"] or "{}", []).append(row["name"])
    if not by_options:
        return
    n_files = sum(map(len, by_options.values()))
    commands = "; ".join(
        f"`ettr ingest {' '.join([analysis.store.where, *sorted(names), *_typed(options)])}`"
        for options, names in sorted(by_options.items())
    )
    yield Finding(
        "read-again",
        f"ettr has been fixed since it read {counted(n_files, 'file')}: what it missed or "
        f"misread is still wrong here. Read them again: {commands}.",
        Effect(("every number",), EITHER, None),
        n_files,
    )


def _typed(options: str) -> Iterator[str]:
    """The options of a reading that are texts, as they are typed."""
    for name, value in sorted(json.loads(options).items()):
        if isinstance(value, str):
            yield f"--{name.replace('_', '-')} {value}"


def _of_quality(quality: DataQuality) -> Iterator[Finding]:
    """What single rows lack, or say wrongly."""
    if unended := quality.unended_states:
        yield _moving(
            "unended-states",
            unended.sentence,
            rows=unended.node_states,
            moves=("outages",),
            direction=EITHER,
        )
    clocks = quality.clocks
    for code, count, what in (
        ("start-before-submit", clocks.attempts_started_before_submit, "started before submission"),
        ("end-before-start", clocks.attempts_ended_before_start, "ended before their start"),
        ("elapsed-mismatch", clocks.attempts_elapsed_mismatch, "of another length than they say"),
        ("events-before-jobs", clocks.events_before_first_job, "before the first job"),
        ("events-after-jobs", clocks.events_after_last_job, "after the last job"),
    ):
        if count:
            noun = "event" if code.startswith("events") else "attempt"
            yield Finding(code, f"{counted(count, noun)} {what}.", None, count)
    if clocks.node_down_lag_s is not None:
        yield Finding(
            "down-lag",
            f"A node's DOWN state begins {number(clocks.node_down_lag_s)} s after the end of the "
            f"attempt that failed on it (median of {counted(clocks.node_down_pairs, 'pair')}).",
            None,
            clocks.node_down_pairs,
        )
    if quality.nodes_not_in_inventory:
        first = ", ".join(quality.nodes_not_in_inventory_first[:5])
        yield Finding(
            "nodes-not-in-inventory",
            f"The inventory lacks {counted(quality.nodes_not_in_inventory, 'node')} that "
            f"ran jobs ({first}): ingest the output of `scontrol show node`.",
            None,
            quality.nodes_not_in_inventory,
        )
    if quality.attempts_without_nodes:
        share = quality.attempts_without_nodes_share
        yield _moving(
            "no-node-list",
            f"{counted(quality.attempts_without_nodes, 'attempt')} ({percent(share)} of "
            "those that ran) name no nodes: no event can explain how they ended.",
            _of_rest(share),
            quality.attempts_without_nodes,
            moves=("failures by cause",),
        )
    if quality.attempts_without_gpu_count:
        share = quality.attempts_without_gpu_count_share
        yield _moving(
            "no-gpu-count",
            f"{counted(quality.attempts_without_gpu_count, 'attempt')} ({percent(share)} "
            "of those that ran) name no number of GPUs: GPU-hours leave them out.",
            _of_rest(share),
            quality.attempts_without_gpu_count,
            moves=("GPU-hours",),
        )


def _uncounted(analysis: Analysis) -> Iterator[Finding]:
    """Failures that are not counted, for want of evidence."""
    for hole in analysis.black_holes:
        says = f"{black_hole_says(hole)} Take {hole.node} out of service and test it."
        yield _moving("black-hole", says, _with(analysis, hole.uncounted), hole.ended)
    if hung := analysis.hung_runs:
        yield _moving("hangs", hangs_say(hung), _with(analysis, len(hung)), len(hung))
    if why := _why_failures_uncounted(analysis):
        code, says, rows = why
        yield _moving(code, says[:1].upper() + says[1:], _with(analysis, rows), rows)


def _false(analysis: Analysis) -> Iterator[Finding]:
    """Failures that are counted and expected to be false."""
    rate = projecting_rate(analysis)
    says = false_note(rate)
    if rate is None or not says:
        return
    right, given = rate.without_false_per_1000_node_days.low, rate.per_1000_node_days.estimate
    most = given / right if right and given else None
    rows = round(rate.expected_false.estimate or 0.0)
    yield _moving("false-failures", says, most, rows, direction=TOO_HIGH)


def _by_hand(analysis: Analysis) -> Iterator[Finding]:
    """Failures of which all that is known is that somebody set the node DOWN."""
    found = analysis.set_down
    if found is None:
        return
    failures = analysis.rates.all_jobs.failures
    left = failures - found.without_fault
    most = failures / left if left > 0 else None
    moved = Effect(("failure rate",), TOO_HIGH, most) if found.without_fault else None
    rows = found.by_person + found.by_unknown
    yield Finding("down-by-hand", set_down_says(found, failures), moved, rows)


def _with(analysis: Analysis, more: int) -> float | None:
    """How much higher the failure rate is with so many more failures."""
    failures = analysis.rates.all_jobs.failures
    return (failures + more) / failures if failures else None


def _without(analysis: Analysis, node_days: float) -> float | None:
    """How much higher the failure rate is without so much runtime."""
    all_days = analysis.rates.all_jobs.node_days
    return all_days / (all_days - node_days) if all_days > node_days else None


def _of_rest(share: float | None) -> float | None:
    return 1 / (1 - share) if share is not None and share < 1 else None


def without_states(analysis: Analysis) -> str | None:
    """A sentence on clusters whose nodes no log describes, where one describes those of others."""
    without = analysis.clusters_without_states
    if not without:
        return None
    return (
        f"No node states of {', '.join(without)} were read: outages there are unknown, "
        "and all figures on outages are those of the other clusters."
    )


def short_logs(analysis: Analysis) -> str | None:
    """A sentence on rates that rest on next to no exposure; None where there is enough.

    Too little is less than five node-days of runtime (in service, for logs of faults alone), or
    logs that span less than an hour.
    """
    node_days, of_what = _exposure(analysis)
    span_days = analysis.period.days
    if not node_days:
        return None
    if node_days >= FEW_NODE_DAYS and span_days * HOURS_PER_DAY >= SHORT_LOG_H:
        return None
    return (
        f"The logs span {duration(SECONDS_PER_DAY * span_days)} and hold "
        f"{number(node_days)} node-days {of_what}. That is too little: every rate is "
        "extrapolated from it and says nothing about a cluster."
    )


def _exposure(analysis: Analysis) -> tuple[float, str]:
    if not analysis.logs_read.jobs and analysis.faults is not None:
        return analysis.faults.in_service.node_days, "in service"
    return analysis.rates.all_jobs.node_days, "of runtime"


class OfLowerBound(Protocol):
    """What `is_lower_bound` takes."""

    logs_read: LogsRead
    ran_gpu_hours: float | None
    evidence: EvidenceCoverage
    other_names: tuple[OtherName, ...]
    runaways: Runaways | None
    left_out: LeftOut | None
    dump_windows: tuple[DumpWindow, ...]
    black_holes: tuple[BlackHole, ...]
    hung_runs: tuple[HungRun, ...]


def is_lower_bound(_: Facts, given: OfLowerBound) -> bool:
    """Whether failures are known to go uncounted."""
    return _why_uncounted(given) is not None


def lower_bound(analysis: Analysis) -> str | None:
    """Why failures go uncounted, in a sentence; None where none is known to."""
    why = _why_uncounted(analysis)
    if why is None:
        return None
    # with false failures among them they bound nothing
    false = has_false(projecting_rate(analysis))
    return f"{'Failures go uncounted as well' if false else 'These are lower bounds'}: {why}"


def rate_cautions(analysis: Analysis) -> tuple[str, ...]:
    """What may be wrong with the failure rate that a store gives a plan or a projection.

    False failures that it counts, and failures that it does not.
    """
    false, why = false_note(projecting_rate(analysis)), _why_uncounted(analysis)
    # with false failures in it the rate bounds nothing
    wrong = "leaves out failures as well" if false else "is a lower bound"
    uncounted = "" if why is None else f"The store's failure rate {wrong}: {why}"
    of = ""
    if analysis.rate_type:
        of = (
            f"The store's failure rate is that of {analysis.rate_nodes} alone, since "
            "types of GPU differ: --gpu-type gives the rate of others."
        )
    return tuple(filter(None, (of, false, uncounted)))


def _why_uncounted(analysis: OfLowerBound | Analysis) -> str | None:
    """Why rates are too low: what is not counted, and what runtime never was."""
    runaways = analysis.runaways if analysis.logs_read.jobs else None
    missing = analysis.left_out.too_few_failures if analysis.left_out else ()
    windows = (one.sentence for one in analysis.dump_windows)
    unseen = _why_failures_uncounted(analysis)
    holes = (black_hole_says(one) for one in analysis.black_holes if one.uncounted)
    reasons = (
        *holes,
        hangs_say(analysis.hung_runs),
        unseen and unseen[1],
        runaways and runaways.sentence,
        *missing,
        *windows,
    )
    return " ".join(reason for reason in reasons if reason) or None


def _why_failures_uncounted(analysis: OfLowerBound | Analysis) -> tuple[str, str, int] | None:
    """A finding's code, why failures are not counted, and of how many attempts."""
    logs = analysis.logs_read
    failed = analysis.evidence.failed
    if logs.failures_are_lower_bound:
        why = (
            f"{_no_checks(logs)}. Without them a job that ended FAILED by a fault of a "
            "node does not count as a failure of the infrastructure."
        )
        return "no-checks", why, failed.total
    if not logs.jobs:
        return None
    if pairs := analysis.other_names:
        why = (
            f"Kernel messages and health checks use {counted(len(pairs), 'name')} that may belong "
            f"to several nodes ({pairs[0].in_events}, perhaps {pairs[0].in_jobs}), so errors there "
            "explain no failure. Ingest an inventory with host names, or write the names as the "
            "accounting does and ingest these logs again."
        )
        return "other-names", why, failed.total
    words = []
    if failed.deaf:
        words.append(
            f"{counted(failed.deaf, 'attempt')} ended FAILED on nodes with GPUs, while "
            "the logs of their cluster never hold a line of the GPUs' driver (NVRM, "
            "amdgpu): such logs may lack the errors of the GPUs"
        )
    if failed.uncovered:
        words.append(
            f"{counted(failed.uncovered, 'attempt')} ended FAILED while no kernel "
            "messages or health checks of the cluster arrived"
        )
    if failed.silent:
        words.append(
            f"{counted(failed.silent, 'attempt')} ended FAILED on a node that sent no kernel "
            "message or health check that day or the day before: it was well, or its log is missing"
        )
    if not words:
        return None
    why = (
        f"{'; '.join(words)}. Whether a node failed there cannot be known (see how sure the causes "
        "are)."
    )
    rows = failed.total - failed.heard
    return ("no-gpu-errors" if failed.deaf else "silent-nodes"), why, rows


def _no_checks(logs: LogsRead) -> str:
    words = "no kernel messages or health checks of nodes were read"
    if logs.unknown_checks:
        words += " that the taxonomy understands (data quality lists the others)"
    return words
