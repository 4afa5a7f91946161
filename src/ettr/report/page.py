"""An analysis as a report: the sections in order, the key numbers, what to do next."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ettr.analysis import Analysis
from ettr.estimates import Interval
from ettr.metrics.availability import Availability
from ettr.metrics.goodput import LostGoodput
from ettr.report.actions import next_steps
from ettr.report.answers import expects_false, five_lines, largest_size, uncounted
from ettr.report.findings import caution, findings, lower_bound, short_logs
from ettr.report.first_screen import first_screen
from ettr.report.html import Card, Page
from ettr.report.numbers import (
    NO_GPUS,
    NOT_MEASURED,
    SAY_GPUS,
    and_confidence,
    between,
    duration,
    hours_between,
    legend,
    moment,
    none_says,
    number,
    percent,
)
from ettr.report.parts import part_document, part_sections
from ettr.report.registry import PARTS
from ettr.report.rows import (
    REPORT_FORMAT,
    REPORT_VERSION,
    money,
    plain,
    price_words,
    selection_line,
    simulation_line,
)
from ettr.report.section import Section, wrapped
from ettr.report.sections.goodput import lost_in_all
from ettr.units import SECONDS_PER_DAY
from ettr.version import __version__
from ettr.words import counted

ALLOCATIONS = 100_000
"""New objects after which the collector looks; Python's own number is 700."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the collector look less often until the context is left.

    A report makes a million small objects that live to its end. To look among them for cycles took
    a twentieth of its time and found next to nothing.
    """
    usual = gc.get_threshold()
    gc.set_threshold(max(ALLOCATIONS, usual[0]), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


# called as each part begins, with its name and how many are done
Progress = Callable[[str, int], None]

_WITHOUT_JOBS = ("nodes", "incidents", "runs", "mttf", "projection", "quality")
"""What comes first where the logs hold no jobs: the parts that other logs can fill."""


def sections(analysis: Analysis, on_part: Progress | None = None) -> Iterator[Section]:
    """Every section of the report, in order."""
    names = list(PARTS)
    if not analysis.logs_read.jobs:
        first = _without_jobs(analysis)
        names.sort(key=lambda name: first.index(name) if name in first else len(first))
    for n_done, name in enumerate(names):
        if on_part:
            on_part(name, n_done)
        yield from part_sections(name, analysis)


def _without_jobs(analysis: Analysis) -> tuple[str, ...]:
    """The parts that a store without jobs can fill, in their order."""
    logs = analysis.logs_read
    if logs.progress and not (logs.errors or logs.node_states):
        return ("runs", "mttf", "projection", "quality")
    filled = [name for name in _WITHOUT_JOBS if name != "runs" or logs.progress]
    return tuple(filled)


@fewer_collections()
def page(analysis: Analysis, on_part: Progress | None = None) -> Page:
    """The whole report before it is rendered."""
    rendered = tuple(sections(analysis, on_part))
    steps = next_steps(analysis)
    period = analysis.period
    return Page(
        title=report_title(analysis),
        subtitle=(
            f"{moment(period.start)} to {moment(period.end)} UTC, "
            f"{duration(SECONDS_PER_DAY * period.days)}; {_what_ran(analysis)}{_price(analysis)}"
        ),
        selection=_selected(analysis),
        site_notes=analysis.quality.site_notes,
        caution=caution(analysis),
        cards=cards(analysis),
        next_steps=steps,
        answers=five_lines(analysis, steps),
        sections=rendered,
        first=first_screen(analysis, report_title(analysis)),
        footer=f"ettr {__version__}. Times are UTC.",
        legend=legend(analysis.assumptions.confidence),
    )


def report_title(analysis: Analysis) -> str:
    """Whose report it is, and whether a simulation wrote the logs."""
    simulated = "Simulated: reliability" if analysis.selection_head.simulated else "Reliability"
    return f"{simulated} of {' and '.join(analysis.clusters) or 'a fleet'}"


def _selected(analysis: Analysis) -> str:
    """The selection with what its reader must know; empty for all of a store of logs."""
    head = analysis.selection_head
    return " ".join(filter(None, (selection_line(head), simulation_line(head))))


def _price(analysis: Analysis) -> str:
    return "" if analysis.price is None else f", at {price_words(analysis.price)}"


def _what_ran(analysis: Analysis) -> str:
    if not analysis.logs_read.jobs:
        return "no job accounting"
    ran = analysis.totals
    hours = f"GPU-hours {NOT_MEASURED}: {NO_GPUS}"
    if analysis.gpus_are_known:
        hours = f"{number(ran.gpu_hours, 7)} GPU-hours"
    return f"{counted(ran.jobs, 'job')} in {counted(ran.attempts, 'attempt')}, {hours}"


def cards(analysis: Analysis) -> tuple[Card, ...]:
    """The key numbers, each with its denominator; of jobs, of faults, or of both."""
    extrapolated = "; extrapolated, see above" if short_logs(analysis) else ""
    made = list(_job_cards(analysis, extrapolated)) if analysis.logs_read.jobs else []
    faults = analysis.faults
    if faults is not None and (faults.basis == "records" or not made):
        known = "" if faults.fleet_is_known else "; at most: the logs name only nodes with trouble"
        made.append(
            Card(
                "Faults per 1,000 node-days in service",
                between(faults.in_service.per_1000_node_days),
                f"{faults.faults:,} in {number(faults.in_service.node_days, 5)} node-days"
                f"{known}{extrapolated}",
            )
        )
    elif not made:
        made += _cards_without_faults(analysis)
    if analysis.nodes.in_service_node_hours:
        made.append(_outage_card(analysis.nodes))
    return tuple(made)


def _cards_without_faults(analysis: Analysis) -> Iterator[Card]:
    """Cards of a store without jobs and faults: recorded runs, and what was not measured."""
    if analysis.logs_read.progress:
        measured = [run for run in analysis.runs.runs if run.split is not None]
        hours = sum(run.scheduled_h for run in measured)
        yield Card(
            "Effective training time without queue",
            _share_of([run.productive_h for run in measured], hours),
            f"of {number(hours, 5)} h in {counted(len(measured), 'recorded run')}; the queue is "
            "not measured: no job accounting",
        )
        yield Card(
            "Hours between restarts",
            between(analysis.mttf.interruption_mttf_h),
            "of recorded runs, whatever the cause",
        )
    yield Card(
        "Failures per 1,000 node-days",
        NOT_MEASURED,
        "no job accounting and no faults of nodes: `ettr sources` lists how to export them",
    )


def _share_of(parts_h: Sequence[Interval], hours: float) -> str:
    """The sum of those hours as a share; two ends where one of them has no estimate."""
    if not hours:
        return NOT_MEASURED
    low, high = (
        sum(ends) / hours for ends in zip(*((p.low, p.high) for p in parts_h), strict=True)
    )
    known = [part.estimate for part in parts_h if part.estimate is not None]
    if len(known) < len(parts_h) or (low <= 0.0 and high >= 1.0):  # anything may be true
        return f"{percent(low)} to {percent(high)}"
    estimate = percent(sum(known) / hours)
    return estimate if low == high else f"{estimate} ({percent(low)} to {percent(high)})"


def _outage_card(nodes: Availability) -> Card:
    label = "Node time lost to unplanned outages"
    if nodes.down_share is None:
        return Card(label, NOT_MEASURED, "no states of nodes in the logs: sacctmgr show event")
    hours = f"{number(nodes.measured_node_hours, 5)} node-hours in service"
    if not nodes.fleet_is_known:
        only = "only nodes that had trouble are named: give --fleet-nodes N or the inventory"
        return Card(label, f"≤ {percent(nodes.down_share)}", f"of {hours}; {only}")
    return Card(label, percent(nodes.down_share), f"of {hours}")


def _job_cards(analysis: Analysis, extrapolated: str) -> Iterator[Card]:
    rate = analysis.rates.all_jobs
    bound = _bound(analysis)
    by_sureness = and_confidence(analysis.rates.by_confidence)
    yield Card(
        "Failures per 1,000 node-days",
        between(rate.per_1000_node_days),
        f"{rate.failures:,} in {number(rate.node_days, 5)} node-days of runtime{bound}"
        f"{extrapolated}{by_sureness}",
    )
    if rate.failures:
        yield _direction_card(analysis)
    yield _mttf_card(analysis, bool(bound))
    if not analysis.gpus_are_known:
        yield Card(
            "GPU-hours lost to failures",
            NOT_MEASURED,
            f"{NO_GPUS}: {SAY_GPUS}",
        )
        return
    if not analysis.totals.gpu_hours:
        yield Card("GPU-hours lost to failures", "0", "no job held GPUs")
        return
    lost = analysis.goodput
    total = lost_in_all(lost)
    if total is None:
        yield Card("GPU-hours lost to failures", NOT_MEASURED, none_says(lost))
        return
    ran = analysis.totals.gpu_hours
    yield Card(
        "GPU-hours lost to failures",
        number(total),
        (f"{money(analysis.price, total)}; " if analysis.price else "")
        + f"{percent(total / ran if ran else None)} of {number(ran, 6)} that ran, in "
        + f"{counted(rate.failures, 'failure')}{bound}"
        + _left_out(lost)
        + by_sureness,
    )


def _left_out(lost: LostGoodput) -> str:
    """Why the loss in GPU-hours can only be a lower bound, in addition to `_bound`."""
    if lost.failures_without_gpus:
        return "; a lower bound: some failures name no GPUs"
    if lost.failures_without_runtime:
        return "; a lower bound: some failures do not say how long they ran"
    if lost.preemptions_without_gpus:
        return "; a lower bound: some preempted jobs name no GPUs"
    unknown = lost.preemptions_without_runtime
    return "; a lower bound: some preempted jobs do not say how long they ran" if unknown else ""


def _mttf_card(analysis: Analysis, some_uncounted: bool) -> Card:
    """The MTTF at the largest size that ran: one over all sizes says how many small jobs ran."""
    mttf = analysis.mttf
    largest = largest_size(mttf.classes)
    bound = ""
    if some_uncounted and largest is not None:
        bound = uncounted(largest.projected_mttf_h, expects_false(analysis))
    if largest is None:
        return Card("Mean time to failure of a job", NOT_MEASURED, "no job of known size ran")
    return Card(
        f"Mean time to failure of a job of {largest.size.label} "
        f"{mttf.size_unit.replace('gpus', 'GPUs')}",
        hours_between(largest.projected_mttf_h),
        "from the rate per node-day; at that size there were "
        f"{counted(largest.failures, 'failure')} in {number(largest.job_hours, 4)} job-hours"
        + bound,
    )


def _bound(analysis: Analysis) -> str:
    """Why the count of failures can only be a lower bound, in a few words."""
    if analysis.logs_read.failures_are_lower_bound:
        return "; a lower bound: no logs of nodes"
    if lower_bound(analysis):
        # with false failures among them they bound nothing
        bound = "and" if expects_false(analysis) else "a lower bound:"
        if ended := sum(one.uncounted for one in analysis.black_holes):
            nodes = counted(len({one.node for one in analysis.black_holes}), "node")
            return f"; {bound} {nodes} ended {counted(ended, 'attempt')} more at their start"
        if hung := analysis.hung_runs:
            return f"; {bound} {counted(len(hung), 'run')} more probably hung after a fault"
        return f"; {bound} no logs arrived from some nodes on which jobs ended FAILED"
    return ""


def _direction_card(analysis: Analysis) -> Card:
    direction = analysis.clustering.direction
    ratio = direction.ratio
    return Card(
        "Is it getting better over the logs?",
        direction.verdict.value,
        "not tested: nothing ran"
        if ratio is None
        else "rate of the later half of the node-days over that of the earlier: "
        f"{between(Interval(ratio.ratio, ratio.low, ratio.high), 2)}",
    )


@fewer_collections()
def document(analysis: Analysis, on_part: Progress | None = None) -> dict[str, object]:
    """The same numbers as JSON; docs/reference/report-json.md says what each key holds."""
    made: dict[str, object] = {
        "format": REPORT_FORMAT,
        "version": REPORT_VERSION,
        "ettr": __version__,
        "clusters": list(analysis.clusters),
        "period": plain(analysis.period),
        "selection": plain(analysis.selection_head),
        **({} if analysis.price is None else {"price": plain(analysis.price)}),
    }
    for n_done, name in enumerate(PARTS):
        if on_part:
            on_part(name, n_done)
        made[name] = part_document(name, analysis)
    steps = next_steps(analysis)
    made["findings"] = [plain(one) for one in findings(analysis)]
    made["summary"] = [plain(one) for one in five_lines(analysis, steps)]
    made["next_steps"] = list(steps)
    return made


# -- the head of a report for a terminal: all that its answers rest on -----------------------------


def summary_text(page: Page) -> str:
    """What the page rests on, as text: key numbers, each section's answer, what to do next."""
    width = max((len(card.label) for card in page.cards), default=0)
    lines = [page.title, page.subtitle, ""]
    if page.selection:
        lines += [wrapped(page.selection), ""]
    for note in page.site_notes:
        lines += [wrapped(note), ""]
    if page.caution:
        lines += [wrapped(page.caution), ""]
    how = [f"{one.says}: {one.how}" for one in page.first.actions if one.how] if page.first else []
    lines += [*(wrapped(f"How: {one}", "  ") for one in how), *([""] if how else [])]
    for one in page.answers:
        detail = f" ({one.detail})" if one.detail else ""
        lines.append(wrapped(f"{one.question}: {one.answer}{detail}", "  "))
    lines += [""] if page.answers else []
    lines += [
        wrapped(f"{card.label:<{width}}  {card.value}  ({card.detail})", " " * (width + 2))
        for card in page.cards
    ]
    if page.legend:
        lines += ["", wrapped(page.legend)]
    for section in page.sections[:4]:
        lines += ["", wrapped(f"{section.title}: {section.lead}")]
    if page.next_steps:
        lines += ["", "What to do next"]
        lines += [wrapped(f"{i}. {step}", "   ") for i, step in enumerate(page.next_steps, 1)]
    return "\n".join(lines)
