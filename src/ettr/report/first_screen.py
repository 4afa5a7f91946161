"""The first screen: four answers in plain words, failures over time, what to do, and why."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ettr.analysis import Analysis
from ettr.analysis.comparing import previous
from ettr.estimates.interval import Interval
from ettr.metrics.runs import JobRun
from ettr.metrics.sizes import SizeClass
from ettr.models.compare import Direction
from ettr.report.actions import (
    MOVES_MUCH,
    NO_CAUSE,
    Action,
    actions,
    brief_of,
    cause_name,
    hours_words,
    loss_by_interval,
    plainly,
    share_words,
)
from ettr.report.answers import largest_size
from ettr.report.findings import TOO_HIGH, Finding, findings
from ettr.report.section import first_sentence, wrapped
from ettr.report.sections.goodput import lost_in_all
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_MINUTE
from ettr.words import counted

NOT_MEASURED = "Not measured"
_ETTR = "Effective training time ratio (ETTR)"
_BEFORE = "Compared with the period before"
MOST_CAUSES = 4
_HALF = 2.0
_MOST_TIMES = 1e3
_MOST_BARS = 40


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the four answers.

    Attributes:
        assumes: An assumption or a gap that moves the number much; empty for none.
    """

    question: str
    answer: str
    small: tuple[str, ...] = ()
    assumes: str = ""


@dataclass(frozen=True, slots=True)
class CauseBars:
    """Failures of one cause: how many, their share of all, and how many in each step of time."""

    name: str
    symptom: str
    failures: int
    share: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FailureBars:
    """Failures over time by cause, the most frequent first; each step lasts `step`."""

    step: str
    starts: tuple[datetime, ...]
    rows: tuple[CauseBars, ...]

    @property
    def tallest(self) -> int:
        """The most failures of one cause in one step."""
        return max((max(row.counts, default=0) for row in self.rows), default=0)


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What a reader sees before anything else.

    Attributes:
        bars: Failures over time; None where there are none.
        careful: One line on what may be wrong with the numbers; empty for nothing.
    """

    title: str
    period: str
    notes: tuple[str, ...]
    headlines: tuple[Headline, ...]
    bars: FailureBars | None
    actions: tuple[Action, ...]
    careful: str


def first_screen(analysis: Analysis, title: str) -> FirstScreen:
    """The four answers, failures over time, at most three actions, and one line of caution."""
    found = findings(analysis)
    head = analysis.selection_head
    spread = loss_by_interval(analysis)
    notes = [first_sentence(note) for note in analysis.quality.site_notes]
    if not head.is_everything:
        notes.append(head.sentence)
    return FirstScreen(
        title=title,
        period=_period(analysis),
        notes=tuple(notes),
        headlines=(
            _lost_time(analysis, spread),
            _large_job(analysis, found),
            _ettr(analysis),
            _against_before(analysis),
        ),
        bars=_bars(analysis),
        actions=actions(analysis, spread),
        careful=_careful(found),
    )


def _period(analysis: Analysis) -> str:
    start, end = analysis.period.start, analysis.period.end
    begin = str(start.day)
    if (start.year, start.month) != (end.year, end.month):
        begin += f" {start:%b}"
    if start.year != end.year:
        begin += f" {start.year}"
    return f"{begin} to {end.day} {end:%b} {end.year} UTC"


def _lost_time(analysis: Analysis, spread: tuple[float, float] | None) -> Headline:
    question = "GPU time lost to failures"
    if not analysis.logs_read.jobs:
        return Headline(question, NOT_MEASURED, ("add job accounting",))
    if not analysis.gpus_are_known:
        return Headline(question, NOT_MEASURED, ("give --gpus-per-node",))
    ran = analysis.totals.gpu_hours
    if not ran:
        return Headline(question, NOT_MEASURED, ("no job held GPUs",))
    lost = lost_in_all(analysis.goodput)
    if lost is None:
        return Headline(question, NOT_MEASURED, ("give --gpus-per-node",))
    small = [f"{plainly(lost)} GPU-hours"]
    if analysis.price is not None:
        cost = lost * analysis.price.per_gpu_hour
        small.append(f"{plainly(cost)} {analysis.price.currency}")
    hourly = analysis.assumptions.checkpoints.middle.checkpoint_interval_min
    assumes = ""
    if spread is not None and lost:
        is_hourly = hourly == SECONDS_PER_MINUTE
        every = "hourly checkpoints" if is_hourly else f"checkpoints every {hourly:.0f} min"
        assumes = f"assumes {every}"
    return Headline(question, share_words(lost / ran), tuple(small), assumes)


def _large_job(analysis: Analysis, found: Sequence[Finding]) -> Headline:
    largest = largest_size(analysis.mttf.classes) if analysis.logs_read.jobs else None
    if largest is None:
        give = "no job of known size" if analysis.logs_read.jobs else "add job accounting"
        return Headline("A large job fails every", NOT_MEASURED, (give,))
    unit = analysis.mttf.size_unit.replace("gpus", "GPUs")
    if largest.size.size_to == 1:
        unit = unit.removesuffix("s")
    of_type = analysis.rate_type
    question = f"A job of {_sizes(largest.size)} {f'{of_type} {unit}'.strip()} fails every"
    rate = analysis.mttf.rate_used
    shown = largest.projected_mttf_h if rate.node_days > 0 else largest.scheduler_mttf_h
    failures = analysis.rates.all_jobs.failures
    seen = counted(failures, "failure") if failures else "no failure was seen"
    where = f" on {of_type} nodes alone" if of_type else " in total" if failures else ""
    small = (f"{seen}{where}",)
    if shown.estimate is None:
        return Headline(question, f"{hours_words(shown.low)} or more", small, _gap(found))
    return Headline(question, hours_words(shown.estimate), small, _gap(found))


def _sizes(size: SizeClass) -> str:
    """A class of known sizes as it is read: 64, 2,049 to 4,096."""
    ends = {one for one in (size.size_from, size.size_to) if one is not None}
    return " to ".join(f"{one:,}" for one in sorted(ends))


def _gap(found: Sequence[Finding]) -> str:
    """What may move the failure rate by more than half, the largest first; empty for nothing."""
    for one in found:
        if one.effect is None or "failure rate" not in one.effect.moves:
            continue
        if one.size > MOVES_MUCH:
            return brief_of(one)
    return ""


def _ettr(analysis: Analysis) -> Headline:
    runs = analysis.runs
    measured = [one for one in runs.runs if one.basis == "progress" and one.wallclock_h]
    if measured:
        return _measured_ettr(measured)
    question = f"{_ETTR} of large runs"
    seen = [one for one in runs.by_size if one.runs]
    # where no job names GPUs there is one class, of unknown size
    known = [one for one in seen if one.size.size_to is not None] or seen
    if not known:
        why = "no run lasted a day" if analysis.logs_read.jobs else "no job accounting"
        return Headline(question, NOT_MEASURED, (f"{why}; record progress",))
    largest = known[-1]
    pooled = largest.pooled_ettr_ratio
    if not math.isfinite(pooled.low + pooled.high):
        why = "the largest runs are shorter than a restart"
        return Headline(question, NOT_MEASURED, (f"{why}; record progress",))
    size = _sizes(largest.size)
    on = f"{size} {'GPU' if size == '1' else 'GPUs'}" if size else "all runs"
    question = f"{_ETTR}, {on}"
    assumes = "assumes checkpoint and restart times"
    if pooled.estimate is None:
        return Headline(question, f"{pooled.low:.2f} to {pooled.high:.2f}", (), assumes)
    small = (f"{pooled.low:.2f} to {pooled.high:.2f}",) if pooled.low < pooled.high else ()
    return Headline(question, f"{pooled.estimate:.2f}", small, assumes)


def _measured_ettr(measured: Sequence[JobRun]) -> Headline:
    """Of the measured runs of the largest size, weighted by their time."""
    most = max(one.n_gpus or 0 for one in measured)
    large = [one for one in measured if (one.n_gpus or 0) > most / _HALF]
    hours = sum(one.wallclock_h or 0.0 for one in large)
    parts: list[Interval] = [one.productive_h for one in large]
    low, high = (sum(ends) / hours for ends in zip(*((p.low, p.high) for p in parts), strict=True))
    known = [one.estimate for one in parts if one.estimate is not None]
    answer = f"{low:.2f} to {high:.2f}"
    if len(known) == len(parts):
        answer = f"{sum(known) / hours:.2f}"
    which = f"{counted(len(large), 'run')} measured"
    return Headline(f"{_ETTR}, {most:,} GPUs" if most else _ETTR, answer, (which,))


def _against_before(analysis: Analysis) -> Headline:
    trend = analysis.ask(previous)
    if trend is None:
        return Headline(_BEFORE, NOT_MEASURED, ("add job accounting",))
    days = (trend.this.end - trend.this.start).total_seconds() / SECONDS_PER_DAY
    question = f"Compared with the {plainly(days)} days before"
    if trend.before is None or trend.comparison is None or trend.direction is None:
        why = "add older logs" if trend.is_comparable else "logs cover too little"
        return Headline(_BEFORE, NOT_MEASURED, (why,))
    (pair,) = trend.comparison.pairs
    ratio = pair.ratio
    small = (_change_range(ratio.low, ratio.high),)
    if trend.direction is Direction.UNDECIDED or ratio.ratio is None:
        return Headline(question, "No clear change", small)
    return Headline(question, f"{_change(ratio.ratio)} failures", small)


def _change_range(low: float, high: float) -> str:
    if high == float("inf"):
        return f"{_change(low)} failures, or more"
    if low <= 1.0 <= high:
        return f"{_change(low)} to {_change(high)} failures"
    return f"{_change(low).rsplit(' ', 1)[0]} to {_change(high)}"


def _change(ratio: float) -> str:
    """A ratio of rates as a reader says it: 12 % fewer, 20 % more, 3 times as many."""
    if ratio >= _HALF:
        return f"{plainly(ratio)} times as many"
    share = round(100.0 * abs(ratio - 1.0))
    if not share:
        return "as many"
    return f"{share} % {'more' if ratio > 1.0 else 'fewer'}"


def _bars(analysis: Analysis) -> FailureBars | None:
    """Failures by hour, day, week or month: the shortest that gives at most some forty bars."""
    if not analysis.logs_read.jobs:
        return None
    failures = analysis.failure_list.failures
    if not failures:
        return None
    start, end = analysis.period.start, analysis.period.end
    spans = (("hour", 1.0 / 24), ("day", 1.0), ("week", 7.0), ("month", 30.0), ("quarter", 91.0))
    days = (end - start).total_seconds() / SECONDS_PER_DAY
    step, step_days = next(
        (one for one in spans if days / one[1] <= _MOST_BARS), ("year", max(365.0, days / 40))
    )
    n = max(1, -int(-days // step_days))
    edges = tuple(start + timedelta(days=step_days * place) for place in range(n))
    names = Counter(one.symptom for one in failures)
    # what has no cause is no cause: it comes last, whatever its number
    kept = [name for name, _ in names.most_common() if name != UNATTRIBUTED][:MOST_CAUSES]
    by_cause: dict[str, list[int]] = {name: [0] * n for name in kept}
    others, unknown = [0] * n, [0] * n
    for one in failures:
        place = int((one.time - start).total_seconds() / SECONDS_PER_DAY / step_days)
        place = min(max(place, 0), n - 1)
        row = unknown if one.symptom == UNATTRIBUTED else by_cause.get(one.symptom, others)
        row[place] += 1
    rows = [(cause_name(analysis.taxonomy, name), name, by_cause[name]) for name in kept]
    rows += [("other causes", "", others), (NO_CAUSE, UNATTRIBUTED, unknown)]
    return FailureBars(
        step,
        edges,
        tuple(
            CauseBars(name, symptom, sum(counts), sum(counts) / len(failures), tuple(counts))
            for name, symptom, counts in rows
            if sum(counts)
        ),
    )


def _careful(found: Sequence[Finding]) -> str:
    """The finding that may move a number the most, in one short sentence."""
    worst = next((one for one in found if one.size > 1.0), None)
    if worst is None or worst.effect is None:
        return ""
    which = worst.effect.moves[0]
    which = which if which.startswith("every ") else f"the {which}"
    by, most = "", worst.effect.at_most
    if most is not None and 1.0 < most < _MOST_TIMES:
        is_little = worst.effect.direction != TOO_HIGH and most < _HALF
        by = (
            f", by up to {share_words(most - 1.0)}"
            if is_little
            else f" by a factor of up to {most:.1f}"
        )
    brief = brief_of(worst)
    says = f"{brief[:1].upper()}{brief[1:]}"
    return f"{says}: {which} may be {worst.effect.direction}{by}."


# -- a report in ten lines, for a mail or a chat ---------------------------------------------------


_CELL = "vertical-align:top;padding:4px 12px 4px 0"


@dataclass(frozen=True, slots=True)
class BriefLine:
    """One line: what it is about, and what is to be said of it."""

    topic: str
    says: str


@dataclass(frozen=True, slots=True)
class Brief:
    """The first screen in at most ten lines."""

    title: str
    period: str
    lines: tuple[BriefLine, ...]


def brief(analysis: Analysis) -> Brief:
    """The answers of a report, what to do first, and what to be careful with."""
    simulated = "Simulated: " if analysis.selection_head.simulated else ""
    clusters = " and ".join(analysis.clusters) or "a fleet"
    return brief_of_screen(first_screen(analysis, f"{simulated}{clusters}"))


def brief_of_screen(first: FirstScreen) -> Brief:
    """The first screen as lines."""
    lines = []
    for one in first.headlines:
        more = ", ".join(filter(None, (*one.small, one.assumes)))
        lines.append(BriefLine(one.question, one.answer + (f" ({more})" if more else "")))
    if first.bars is not None:
        causes = (f"{row.name} {share_words(row.share)}" for row in first.bars.rows)
        lines.append(BriefLine("Why", ", ".join(causes)))
    topics = ("Do first", *["Then"] * len(first.actions))
    lines += [BriefLine(of, one.says) for of, one in zip(topics, first.actions, strict=False)]
    careful = " ".join(filter(None, (*first.notes, first.careful)))
    if careful:
        lines.append(BriefLine("Careful", careful))
    return Brief(first.title, first.period, tuple(lines))


def brief_text(found: Brief) -> str:
    """The lines as text, wrapped for a terminal."""
    lines = [f"{found.title}, {found.period}"]
    lines += [f"{one.topic}: {one.says}" for one in found.lines]
    return "\n".join(wrapped(line, "   ") for line in lines)


def brief_html(found: Brief) -> str:
    """The lines as a page that mail programs show: no script, no other file."""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL};text-align:left">{html.escape(one.topic)}</th>'
        f'<td style="{_CELL}">{html.escape(one.says)}</td></tr>\n'
        for one in found.lines
    )
    title = html.escape(found.title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<title>{title}</title></head>\n<body style="font-family:sans-serif;max-width:45em">\n'
        f"<h1>{title}</h1>\n"
        f"<p>{html.escape(found.period)}</p>\n<table>{rows}</table>\n</body></html>\n"
    )
