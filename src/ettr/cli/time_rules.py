"""Options for how far apart in time two things may be and still belong together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import typer
from typer.models import OptionInfo

from ettr.cli import quantities as q
from ettr.cli.groups import Input, needs
from ettr.defaults import WINDOW_AFTER_S, WINDOW_BEFORE_S
from ettr.errors import UsageError
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from ettr.attribution import FoldingRules, LogMatching, Window
    from ettr.metrics.run_rules import CheckpointAssumptions, PreemptionRule

LONGEST_TIME_S = 366 * SECONDS_PER_DAY
USUAL_WINDOW = f"{WINDOW_BEFORE_S:g},{WINDOW_AFTER_S:g}"


OF_LOGS = needs(Input.STORE, Input.FILES)


def _time(flag: str, help_text: str) -> OptionInfo:
    option: OptionInfo = typer.Option(flag, metavar="TIME", help=help_text)
    return option


WINDOW: OptionInfo = typer.Option(
    "--window",
    metavar="BEFORE,AFTER",
    help="How long before and after a job's end an event may be and still explain it, in "
    f"seconds or with units; default {USUAL_WINDOW}.",
)
BURST_GAP = _time(
    "--burst-gap", "Silence after which the same error on a node starts a new episode."
)
STICKY_GAP = _time("--sticky-gap", "The same for errors that repeat until somebody acts.")
LOG_TOLERANCE = _time(
    "--log-tolerance",
    "How far from a job's end a line of the controller's log or a node's state may be "
    "and still say how it ended.",
)
PREEMPTION_WINDOW = _time(
    "--preemption-window",
    "Longest time between a preemption and the restart that it made room for.",
)
PREEMPTION_TOLERANCE = _time(
    "--preemption-tolerance",
    "How far from a preempted job's end the controller's line about it may be.",
)


def window(text: str | None) -> Window:
    """The window in which an event explains an end; the usual one where none was typed.

    Raises:
        UsageError: it cannot be understood, as in the functions below.
    """
    from ettr.attribution import Window

    return Window() if text is None else Window(*_two_times("--window", text))


def folding_rules(burst_gap: str, sticky_gap: str) -> FoldingRules:
    """How long a silence parts two episodes."""
    from ettr.attribution import FoldingRules

    return FoldingRules(
        burst_gap_s=limited_time_s("--burst-gap", burst_gap),
        sticky_gap_s=limited_time_s("--sticky-gap", sticky_gap),
    )


def log_matching(tolerance: str) -> LogMatching:
    """How far from an end a line about it may lie."""
    from ettr.attribution import LogMatching

    return LogMatching(limited_time_s("--log-tolerance", tolerance))


def preemption_rule(longest: str, tolerance: str) -> PreemptionRule:
    """How far a preemption may lie from the restart that it made room for, and from its line."""
    from ettr.metrics.run_rules import PreemptionRule

    return PreemptionRule(
        limited_time_s("--preemption-window", longest),
        limited_time_s("--preemption-tolerance", tolerance),
    )


def checkpoints(
    interval_s: float | None, restart_s: float | None, write_s: float | None
) -> CheckpointAssumptions:
    """The band of scenarios of runs that report no progress, narrowed by what is known.

    Raises:
        UsageError: an interval of 0, or not above the time of a write.
    """
    from ettr.metrics.run_rules import CheckpointAssumptions

    q.positive("--interval", interval_s, "seconds")
    interval_min, restart_min, save_min = (
        None if length_s is None else length_s / SECONDS_PER_MINUTE
        for length_s in (interval_s, restart_s, write_s)
    )
    return CheckpointAssumptions().narrowed(interval_min, restart_min, save_min)


def limited_time_s(option: str, text: str) -> float:
    """A length of time of up to a year, in seconds.

    Raises:
        UsageError: it is longer, or cannot be understood.
    """
    length_s = q.seconds(option, text)
    if length_s > LONGEST_TIME_S:
        raise UsageError(
            f"{option} {text}: give {LONGEST_TIME_S / SECONDS_PER_DAY:.0f}d at most, such as 5min"
        )
    return length_s


def _two_times(option: str, text: str) -> tuple[float, float]:
    """Two lengths of time in seconds, each a bare number of them or with its unit: `10min,300`."""
    try:
        first, second = (_bare_or_time(option, part) for part in text.split(","))
    except ValueError:
        first = second = math.nan
    # lengths below 0 are refused where a window is made
    if not max(abs(first), abs(second)) <= LONGEST_TIME_S or math.isnan(second):
        raise UsageError(
            f"{option} {text!r}: give two numbers of seconds, such as {USUAL_WINDOW}, none above "
            f"{LONGEST_TIME_S:.0f}, or two times with their unit, such as 10min,5min"
        )
    return first, second


def _bare_or_time(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        try:
            return q.seconds(option, text)
        except UsageError as error:
            raise ValueError(text) from error
