"""What a reader must know before the first number."""

from __future__ import annotations

from ettr.analysis import Analysis
from ettr.metrics.logs_read import LogsRead
from ettr.report.false_rates import false_note, has_false, projecting_rate
from ettr.report.numbers import duration, number
from ettr.tables.rows import DEFAULT_CLUSTER
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY
from ettr.words import counted

FEW_NODE_DAYS = 5.0
SHORT_LOG_H = 1.0


def cautions(analysis: Analysis) -> str | None:
    """All that a reader must know before the first number, the worst first; None for nothing."""
    sentences = [shift.sentence for shift in analysis.clock_shifts]
    if analysis.runaways:
        sentences.append(analysis.runaways.sentence)
    if analysis.left_out:
        sentences += analysis.left_out.certain
    sentences += [one.sentence for one in analysis.dump_windows]
    if analysis.early_start:
        sentences.append(analysis.early_start.sentence)
    if without := without_states(analysis):
        sentences.append(without)
    if analysis.has_unplaced_rows:
        sentences.append(
            "Some logs name no cluster, and their nodes are nodes of several clusters or of none: "
            f"their rows stand apart as {DEFAULT_CLUSTER!r} and are evidence for no other cluster. "
            "Read them again with --cluster."
        )
    if short := short_logs(analysis):
        sentences.append(short)
    return " ".join(sentences) or None


def without_states(analysis: Analysis) -> str | None:
    """A sentence on clusters whose nodes no log describes, where one describes those of others."""
    without = analysis.clusters_without_states
    if not without:
        return None
    return (
        f"No states of nodes of {', '.join(without)} were read: outages there are unknown, and "
        "what is said of outages is of the other clusters only."
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
        f"The logs span {duration(SECONDS_PER_DAY * span_days)} and hold {number(node_days)} "
        f"node-days {of_what}: every rate per 1,000 node-days, and whatever follows from it, is "
        "extrapolated from that and says nothing about a cluster."
    )


def _exposure(analysis: Analysis) -> tuple[float, str]:
    if not analysis.logs_read.jobs and analysis.faults is not None:
        return analysis.faults.in_service.node_days, "in service"
    return analysis.rates.all_jobs.node_days, "of runtime"


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
    return tuple(filter(None, (false, uncounted)))


def _why_uncounted(analysis: Analysis) -> str | None:
    """Why rates are too low: what is not counted, and what runtime never was."""
    runaways = analysis.runaways if analysis.logs_read.jobs else None
    missing = analysis.left_out.too_few_failures if analysis.left_out else ()
    windows = (one.sentence for one in analysis.dump_windows)
    reasons = (
        _why_failures_uncounted(analysis),
        runaways and runaways.sentence,
        *missing,
        *windows,
    )
    return " ".join(reason for reason in reasons if reason) or None


def _why_failures_uncounted(analysis: Analysis) -> str | None:
    logs = analysis.logs_read
    if not logs.failures_are_lower_bound:
        return _named_otherwise(analysis) or _unheard(analysis)
    return (
        f"{_no_checks(logs)}, and without them a job that a node's fault ended as FAILED does not "
        "count as a failure of the infrastructure."
    )


def _named_otherwise(analysis: Analysis) -> str | None:
    """The same where errors lie on nodes under names that no job has."""
    pairs = analysis.other_names if analysis.logs_read.jobs else ()
    if not pairs:
        return None
    return (
        f"kernel messages and health checks call {counted(len(pairs), 'node')} by another name "
        f"than the jobs do ({pairs[0].in_events} for {pairs[0].in_jobs}), so that errors there "
        "explain no failure. Write the names as in the accounting and ingest these logs again."
    )


def _unheard(analysis: Analysis) -> str | None:
    """The same where logs of nodes were read and may not be those of all nodes at all times."""
    if not analysis.logs_read.jobs:
        return None
    failed = analysis.evidence.failed
    words = []
    if failed.uncovered:
        words.append(
            f"{counted(failed.uncovered, 'attempt')} ended FAILED while no kernel messages or "
            "health checks of its cluster arrived"
        )
    if failed.silent:
        words.append(
            f"{counted(failed.silent, 'attempt')} ended FAILED on a node from which no kernel "
            "message or health check arrived on that day or the day before (all was well there, or "
            "its log is missing)"
        )
    if not words:
        return None
    return (
        f"{', and '.join(words)}. Whether a node failed there cannot be known (see how sure the "
        "causes are)."
    )


def _no_checks(logs: LogsRead) -> str:
    words = "no kernel messages or health checks of nodes were read"
    if logs.unknown_checks:
        words += " that the taxonomy understands (data quality lists the others)"
    return words
