"""Five lines for whoever pays: cost, trend, MTTF at the largest size, worst nodes, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ettr.analysis import Analysis
from ettr.analysis.comparing import (
    USUAL_DAYS,
    PeriodFigures,
    PeriodTrend,
    caps_min,
    previous,
)
from ettr.estimates.interval import Interval
from ettr.metrics.mttf import SizeMttf
from ettr.metrics.node_records import NodeRecord
from ettr.report.findings import has_false, lower_bound, projecting_rate
from ettr.report.numbers import (
    NO_GPUS,
    NOT_MEASURED,
    SAY_GPUS,
    between,
    duration,
    hours_between,
    left_out,
    moment,
    none_says,
    number,
    p_value,
    percent,
)
from ettr.report.rows import money
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

UNLIKELY = 0.01
"""Below this chance a node has more failures than chance explains."""
MOVED = 1.5
"""What is assumed is named with a number that it moves so many times or more."""
_NAMED = 3
_NO_JOBS = "the logs hold no job accounting"


@dataclass(frozen=True, slots=True)
class Answer:
    """One line: the question, the answer, and what it rests on."""

    question: str
    answer: str
    detail: str = ""


def five_lines(analysis: Analysis, steps: Sequence[str]) -> tuple[Answer, ...]:
    """What a manager asks first, each with its denominator."""
    return (
        _cost(analysis),
        _trend(analysis),
        _mttf(analysis),
        worst_nodes(analysis),
        Answer("What to do first", steps[0] if steps else "Nothing stands out."),
    )


def _cost(analysis: Analysis) -> Answer:
    trend = analysis.ask(previous)
    if trend is None:
        return Answer("Lost to failures", NOT_MEASURED, _NO_JOBS)
    this = trend.this
    question = f"Lost to failures, {_period_words(analysis, this)}"
    if this.ran_gpu_hours is None:
        return Answer(question, NOT_MEASURED, f"{NO_GPUS}: {SAY_GPUS}")
    if this.lost_gpu_hours is None:
        return Answer(question, NOT_MEASURED, none_says(this))
    if not this.ran_gpu_hours:
        return Answer(question, "no GPU-hours", "no job held GPUs")
    count = this.counted_gpu_hours or this.lost_gpu_hours
    answer = f"{number(count.estimate)} GPU-hours"
    if analysis.price is not None:
        answer += f", {money(analysis.price, count.estimate, 3)}"
    hangs_on = count.high > MOVED * count.low
    if hangs_on:
        ends = f"{number(count.low)} to {number(count.high)} GPU-hours"
        answer += f" ({ends}, by how often jobs checkpoint)"
    bound = ""
    if lower_bound(analysis):
        but = " but for false ones" if expects_false(analysis) else ""
        bound = f"; a lower bound{but}, see the failures"
    failures = this.by_confidence.total if this.by_confidence else this.failures
    without = left_out(this)
    if without:
        bound += f"; a lower bound: {without.removesuffix('.')}"
    return Answer(
        question,
        answer,
        f"{percent(this.lost_share)} of {number(this.ran_gpu_hours, 5)} that ran, in "
        f"{counted(failures, 'failure')} from {_date(this.start)} to {_date(this.end)} UTC"
        f"{bound}; {_work_lost(analysis, asks=hangs_on)}; a period like it loses "
        f"{between(this.lost_gpu_hours)} on average",
    )


def _work_lost(analysis: Analysis, *, asks: bool) -> str:
    """What one failure is taken to lose."""
    least, most = caps_min(analysis.assumptions)
    words = f"at most {number(analysis.assumptions.lost_cap_min)} min of work a failure"
    if not asks:
        return words
    return (
        f"{words}, assumed, and {number(least)} to {number(most)} min with other intervals and "
        "restarts: give yours (--interval)"
    )


def _date(time: datetime) -> str:
    return moment(time).removesuffix(" 00:00:00")


def _period_words(analysis: Analysis, this: PeriodFigures) -> str:
    if analysis.selection.has_period:
        return "selected period"
    days = (this.end - this.start).total_seconds() / SECONDS_PER_DAY
    if days < USUAL_DAYS:
        return f"all {duration(SECONDS_PER_DAY * days)} of the logs"
    return f"last {number(days)} days"


def _trend(analysis: Analysis) -> Answer:
    trend, question = analysis.ask(previous), "Is it getting better than the period before?"
    if trend is None:
        return Answer(question, NOT_MEASURED, _NO_JOBS)
    if trend.direction is None or trend.before is None:
        within = analysis.clustering.direction
        return Answer(
            question,
            _incomparable(trend),
            f"{trend.meaning} Within the logs: {within.meaning}",
        )
    # the verdict stands before it
    tested = trend.meaning.partition(": ")[2] if trend.comparison else trend.meaning
    return Answer(question, trend.direction.value, f"{tested} {_both(trend)}")


def _incomparable(trend: PeriodTrend) -> str:
    if not trend.is_comparable:
        return "not comparable"
    return "no data before" if trend.before is None else "nothing to compare"


def _both(trend: PeriodTrend) -> str:
    """Rates and shares of the period and of the one before."""
    words = [
        f"{between(one.per_1000_node_days)} failures per 1,000 node-days ({one.failures:,} in "
        f"{number(one.node_days, 5)})"
        + ("" if one.lost_share is None else f" and {percent(one.lost_share)} of GPU-hours lost")
        for one in (trend.this, trend.before)
        if one is not None
    ]
    return f"Now {words[0]}; before {words[-1]}."


def largest_size(classes: Sequence[SizeMttf]) -> SizeMttf | None:
    """The class of the largest jobs of known size that ran; None where none did."""
    ran = [one for one in classes if one.job_hours > 0 and one.size.size_from is not None]
    return ran[-1] if ran else None


def expects_false(analysis: Analysis) -> bool:
    """Whether a failure or more that was counted is expected to be none."""
    return has_false(projecting_rate(analysis))


def uncounted(mttf_h: Interval, some_false: bool) -> str:
    """What failures that go uncounted mean for an MTTF, or for the least that it is said to be.

    Args:
        some_false: Whether others are expected to be none, so that it may err either way.
    """
    if some_false:
        return "; failures go uncounted, and some are expected to be false"
    bound = "it may be shorter" if mttf_h.estimate is None else "an upper bound"
    return f"; {bound}: failures go uncounted"


def _mttf(analysis: Analysis) -> Answer:
    mttf = analysis.mttf
    largest = largest_size(mttf.classes)
    if largest is None:
        return Answer("MTTF at the largest size run", NOT_MEASURED, "no job of known size ran")
    unit = mttf.size_unit.replace("gpus", "GPUs")
    seen = (
        f"{counted(largest.failures, 'failure')} in {number(largest.job_hours, 4)} job-hours at "
        "that size"
    )
    if covered := analysis.covered_time:
        seen += f" in the {number(covered.covered_days, 3)} days that are covered"
    if largest.failures:
        seen += f", {hours_between(largest.scheduler_mttf_h)} between them"
    rate = mttf.rate_used
    shown = largest.projected_mttf_h if rate.node_days > 0 else largest.scheduler_mttf_h
    bound = uncounted(shown, expects_false(analysis)) if lower_bound(analysis) else ""
    of = f" on {analysis.rate_nodes}" if analysis.rate_nodes else ""
    return Answer(
        f"MTTF at the largest size run, {largest.size.label} {unit}{of}",
        hours_between(shown),
        f"from {between(rate.per_1000_node_days)} failures per 1,000 node-days; {seen}{bound}",
    )


def worst_nodes(analysis: Analysis) -> Answer:
    """The nodes that stand out: claimed as lemons, or by failures that chance hardly explains."""
    records, question = analysis.node_records, f"The {_NAMED} worst nodes"
    if records.blamed_failures is None:
        return Answer(question, NOT_MEASURED, _NO_JOBS)
    compared = [one for one in records.nodes if one.chance is not None and one.failures]
    ran = sum(bool(one.node_days) for one in records.nodes)  # no chance where nothing failed
    total = f"{counted(records.blamed_failures, 'failure')} blamed on {counted(ran, 'node')}"
    if not compared:
        return Answer(question, "none", f"no failure is blamed on a node; {counted(ran, 'node')}")
    claimed = {(one.cluster, one.node) for one in analysis.lemon_nodes.candidates if one.claimed}

    def is_claimed(one: NodeRecord) -> bool:
        return (one.cluster, one.node) in claimed

    worst = [one for one in compared if (one.chance or 0.0) < UNLIKELY or is_claimed(one)][:_NAMED]
    if not worst:
        rows = "; ".join(f"{one.node}: {_blame(one)}" for one in compared[:_NAMED])
        return Answer(question, "none stands out", f"chance explains the most: {rows}; of {total}")
    blames = [
        f"{_blame(one)}, {'' if is_claimed(one) else 'not '}claimed as a lemon" for one in worst
    ]
    more = "" if len(worst) == _NAMED else "; the others are within chance"
    rows = "; ".join(f"{one.node}: {words}" for one, words in zip(worst, blames, strict=True))
    if len(worst) == 1:
        (rows,) = blames  # the answer is its name
    return Answer(question, ", ".join(one.node for one in worst), f"{rows}; of {total}{more}")


def _blame(one: NodeRecord) -> str:
    chance = "" if one.chance is None else f", chance {p_value(one.chance)}"
    failures = counted(one.failures or 0, "failure")
    lost = f" and {number(one.lost_gpu_hours, 4)} GPU-hours lost" if one.lost_gpu_hours else ""
    return f"{failures}{lost} where {number(one.expected_failures)} are expected{chance}"
