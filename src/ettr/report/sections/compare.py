"""Fleets compared: which fails more often, by how much, of what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ettr.analysis.comparing import (
    AgainstPublished,
    FleetComparison,
    FleetPair,
    PeriodFigures,
    PeriodTrend,
    PublishedComparison,
    previous,
)
from ettr.estimates.interval import Interval
from ettr.metrics.runs import BelowEttr, FleetChecks, StoppedRun, below_ettr
from ettr.models.compare import Funnel, RateRatio
from ettr.report.charts import rates_chart
from ettr.report.numbers import (
    DASH,
    NOT_MEASURED,
    PER_NODE_DAYS,
    and_confidence,
    between,
    bounds,
    by_confidence,
    left_out,
    moment,
    number,
    p_value,
    percent,
    share_between,
)
from ettr.report.registry import Part
from ettr.report.section import Figure, Section, TextTable, table_of_rows
from ettr.report.sections.models import funnel_figure
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis


# -- what is below ETTR: each factor of the effective ratio, and the runs that a check stopped -----


def below_section(found: BelowEttr) -> Section:
    """The factors, the gates, and which check stopped which run."""
    stopped = len(found.stopped)
    factors = TextTable(
        "Factors of the effective ratio",
        ("factor", "value", "evidence", "remedy"),
        (
            (
                "ETTR, including waits for data",
                _share(found.ettr),
                counted(found.measured_runs, "run") + " with progress records",
                "checkpoints, restarts: `ettr plan`",
            ),
            (
                "1 - input stall",
                _left(found.input_stall),
                _waits(found),
                "`ettr input trace`, `plan`",
            ),
            (
                "1 - redundant work",
                _left(found.redundant_work_range),
                f"{counted(found.probed_runs, 'run')} with a probe"
                if found.probed_runs
                else "no probe of samples or augmentation",
                "`ettr.samples`",
            ),
            (
                "P(run kept)",
                share_between(found.run_kept) if found.run_kept else NOT_MEASURED,
                counted(found.checked_runs, "checked run"),
                "checks earlier in a run",
            ),
            ("product of those measured", _share(found.effective_at_most), "", ""),
        ),
        frozenset({1}),
    )
    gates = table_of_rows(
        "Checks",
        found.gates,
        ("gate", lambda one: one.gate),
        (">checks", lambda one: number(one.checks)),
        (">passed", lambda one: number(one.passed)),
        (">failed", lambda one: number(one.failed)),
        (">not decided", lambda one: number(one.undecided)),
        (
            ">GPU-hours",
            lambda one: NOT_MEASURED if one.gpu_hours is None else number(one.gpu_hours),
        ),
    )
    tables = (
        factors,
        *((gates,) if found.gates else ()),
        *((_stopped([("", one) for one in found.stopped]),) if stopped else ()),
    )
    note = (
        "The product is an upper bound of the effective ratio: a factor not measured is at most 1."
    )
    return Section("below-ettr", "Below ETTR", _lead(found), (), tables, (note,))


def _lead(found: BelowEttr) -> str:
    """What the waits for data and the checks came to."""
    words = []
    if found.input_stall is not None:
        most = "" if found.input_stall.low == found.input_stall.high else "At most "
        stall = percent(found.input_stall.estimate)
        waited = f"{most}{stall} of training time was spent waiting for data"
        hours = found.input_gpu_hours
        words.append(waited + (f", {number(hours, 4)} GPU-hours." if hours is not None else "."))
    if found.checked_runs:
        decided = found.checked_runs - found.undecided_runs
        cost = found.gate_gpu_hours
        says = f"Checks stopped {len(found.stopped)} of {counted(decided, 'run')}"
        words.append(says + (f", and cost {number(cost)} GPU-hours." if cost is not None else "."))
    if found.undecided_runs:
        words.append(f"{counted(found.undecided_runs, 'run')} more: not decided.")
    return " ".join(words)


def _waits(found: BelowEttr) -> str:
    """What the factor of the waits rests on."""
    if not found.timed_runs:
        return "no waits recorded: use `ProgressRecorder.batches`"
    is_open = found.input_stall is not None and found.input_stall.low < found.input_stall.high
    more = "; the host's waits, an upper bound" if is_open else ""
    return f"{counted(found.timed_runs, 'run')} with timed waits{more}"


def checks_table(fleets: tuple[FleetChecks, ...]) -> TextTable:
    """What the checks of several fleets came to."""
    return table_of_rows(
        "Runs that passed their checks",
        fleets,
        ("fleet", lambda one: one.name),
        (">runs checked", lambda one: number(one.checked_runs)),
        (">P(run kept)", lambda one: share_between(one.run_kept) if one.run_kept else NOT_MEASURED),
        (">stopped", lambda one: number(len(one.stopped))),
        (
            ">GPU-hours of checks",
            lambda one: NOT_MEASURED if one.gate_gpu_hours is None else number(one.gate_gpu_hours),
        ),
        in_brief=True,
    )


def stopped_of_fleets(fleets: tuple[FleetChecks, ...]) -> TextTable:
    """Which check stopped which run of which fleet, at which cost."""
    return _stopped([(f"{one.name}: ", run) for one in fleets for run in one.stopped])


def _stopped(runs: Sequence[tuple[str, StoppedRun]]) -> TextTable:
    return TextTable(
        "Runs that a check stopped",
        ("run", "step", "gate", "found", "GPU-hours", "evidence"),
        tuple(
            (
                f"{of}{one.run}",
                number(one.step),
                one.gate,
                f"{number(one.value)} [{number(one.low)}, {number(one.high)}]",
                NOT_MEASURED if one.gpu_hours is None else number(one.gpu_hours),
                one.evidence or "",
            )
            for of, one in runs
        ),
        frozenset({1, 3, 4}),
        in_brief=True,
    )


def _share(value: float | None) -> str:
    return NOT_MEASURED if value is None else percent(value)


def _left(share: Interval | None) -> str:
    if share is None or share.estimate is None:
        return NOT_MEASURED
    return bounds(Interval(1 - share.estimate, 1 - share.high, 1 - share.low))


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    found = analysis.ask(below_ettr)
    has_any = found.checked_runs or found.timed_runs or found.probed_runs
    return (below_section(found),) if has_any else ()


BELOW_ETTR = Part("below_ettr", place=95, question=below_ettr, sections=_sections, in_python=False)


# -- fleets compared: which fails more often, by how much, of what ---------------------------------


def compare_section(comparison: FleetComparison) -> Section:
    """The verdicts first, then rates, ratios and symptoms."""
    lead = " ".join(pair.ratio.meaning for pair in comparison.pairs)
    tables = [
        table_of_rows(
            "Failure rates",
            comparison.fleets,
            ("fleet", lambda fleet: fleet.name),
            ("jobs", lambda fleet: fleet.jobs),
            (">failures", lambda fleet: number(fleet.failures)),
            (">node-days", lambda fleet: number(fleet.node_days, 6)),
            (
                ">failures per 1,000 node-days",
                lambda fleet: between(Interval(fleet.per_1000_node_days, fleet.low, fleet.high)),
            ),
            (
                "clustered",
                lambda fleet: {"poisson": "no", "over-dispersed": "yes"}.get(
                    fleet.clustered, "unknown"
                ),
            ),
            ("by confidence", lambda fleet: by_confidence(fleet.by_confidence) or DASH),
        ),
        ratios_table(comparison.pairs),
    ]
    if len(comparison.pairs) == 1 and comparison.pairs[0].by_symptom:
        tables.append(_symptoms_table(comparison.pairs[0]))
    if comparison.checks:
        tables[0] = replace(tables[0], in_brief=True)
        tables += [checks_table(comparison.checks), stopped_of_fleets(comparison.checks)]
    figures: tuple[Figure, ...] = (
        rates_chart(
            "compare-rates",
            "Failure rates",
            "Of each fleet, with the interval of the table.",
            {
                fleet.name: Interval(fleet.per_1000_node_days, fleet.low, fleet.high)
                for fleet in comparison.fleets
            },
        ),
    )
    if comparison.funnel is not None:
        tables.append(_funnel_table(comparison.funnel))
        figures += (
            funnel_figure(
                comparison.funnel,
                "funnel",
                "Funnel of fleets",
                "Rates against exposure, with the limits that chance alone would respect.",
                what="fleets",
                named=frozenset(point.name for point in comparison.funnel.points),
            ),
        )
    notes = (
        f"Intervals are at {percent(comparison.confidence, 2)} and exact for independent failures; "
        "those for clustered failures allow for the spread seen over time or between nodes.",
        *comparison.notes,
    )
    jobs = {fleet.jobs for fleet in comparison.fleets} - {"all jobs"}
    careful = f"Only {', '.join(sorted(jobs))} count; --all-jobs compares all." if jobs else ""
    return Section(
        "compare",
        "Which fails more often",
        lead,
        figures,
        tuple(tables),
        notes,
        careful=careful,
    )


def _ratio(ratio: RateRatio) -> str:
    if ratio.ratio is None:
        return f"≥ {number(ratio.low)}" if ratio.low else "unknown"
    low = "0" if ratio.low < 1e-3 else number(ratio.low)
    high = "∞" if math.isinf(ratio.high) else number(ratio.high)
    return f"{number(ratio.ratio)} [{low}, {high}]"


def _ends(ratio: RateRatio) -> tuple[float, float]:
    return ratio.low, ratio.high


def ratios_table(pairs: tuple[FleetPair, ...]) -> TextTable:
    """The ratio of each pair, by what is assumed of the clustering of failures."""
    rows = []
    for pair in pairs:
        assumed = [("independent", "independent", pair.independent)]
        if _ends(pair.over_dispersed) != _ends(pair.independent):
            assumed.append(("over_dispersed", "clustered (over-dispersed)", pair.over_dispersed))
        if pair.paired is not None:
            assumed.append(("paired", "clustered in time, on the same nodes", pair.paired))
        for name, label, ratio in assumed:
            rows.append(
                (
                    f"{pair.a} over {pair.b}",
                    label,
                    _ratio(ratio),
                    p_value(ratio.p_value),
                    number(ratio.dispersion),
                    "yes" if pair.believe == name else "",
                )
            )
    return TextTable(
        "Rate ratios",
        (
            "rates of",
            "if failures are",
            "ratio",
            "p of equal rates",
            "variance / mean",
            "recommended",
        ),
        tuple(rows),
        frozenset({2, 3, 4}),
    )


def _symptoms_table(pair: FleetPair) -> TextTable:
    return TextTable(
        f"By symptom: {pair.a} over {pair.b}",
        ("symptom", f"failures, {pair.a}", f"failures, {pair.b}", "ratio", "p (Holm)", "meaning"),
        tuple(
            (
                symptom,
                number(ratio.a.failures),
                number(ratio.b.failures),
                _ratio(ratio),
                p_value(ratio.p_value),
                ratio.meaning,
            )
            for symptom, ratio in pair.by_symptom.items()
        ),
        frozenset({1, 2, 3, 4}),
    )


def _scaled(value: float) -> float:
    return value * PER_NODE_DAYS


def _funnel_table(funnel: Funnel) -> TextTable:
    return table_of_rows(
        f"Funnel around {number(_scaled(funnel.target_per_node_day))} per 1,000 node-days",
        funnel.points,
        ("fleet", lambda point: point.name),
        (">rate", lambda point: number(_scaled(point.rate.per_node_day or 0.0))),
        (
            ">95 % limits",
            lambda point: " to ".join(number(_scaled(end)) for end in point.limits_95),
        ),
        (
            ">99.8 % limits",
            lambda point: " to ".join(number(_scaled(end)) for end in point.limits_998),
        ),
        ("position", lambda point: point.place),
    )


# -- A fleet next to published ones ---------------------------------------------------------------


def published_section(found: PublishedComparison) -> Section:
    """The fleet's rate first, then each published one with the ratio and what it counts."""
    rows = [_row(one) for one in found.published]
    return Section(
        "published",
        "Next to published fleets",
        f"{found.name} has {between(found.per_1000_node_days)} failures per 1,000 node-days "
        f"({found.failures:,} in {number(found.node_days, 5)} node-days; {found.jobs}"
        f"{and_confidence(found.by_confidence)}).",
        figures=(
            rates_chart(
                "published",
                "Failure rates",
                "This fleet first. A published rate without its count has no interval.",
                {
                    found.name: found.per_1000_node_days,
                    **{one.name: _drawn(one) for one in found.published if _has_rate(one)},
                },
            ),
        ),
        tables=(
            TextTable(
                "Published rates per 1,000 node-days",
                ("fleet", "failures", "node-days", "rate", f"{found.name} over it", "p"),
                tuple(rows),
                frozenset({1, 2, 3, 4, 5}),
            ),
            table_of_rows(
                "What they count",
                found.published,
                ("fleet", lambda one: one.name),
                ("counted", lambda one: one.counted),
                ("source", lambda one: one.source),
            ),
        ),
        notes=(
            f"Intervals are at {percent(found.confidence, 2)}. A published rate without its count "
            "has none, and the ratio to it has that of this fleet alone and no test.",
            *found.notes,
        ),
    )


def _has_rate(one: AgainstPublished) -> bool:
    return one.per_1000_node_days.estimate is not None


def _drawn(one: AgainstPublished) -> Interval:
    """Its rate, as a point alone where it has no interval."""
    rate = one.per_1000_node_days
    if one.failures is None and rate.estimate is not None:
        return Interval(rate.estimate, rate.estimate, rate.estimate)
    return rate


def _row(one: AgainstPublished) -> tuple[str, ...]:
    bare = one.failures is None
    rate = one.per_1000_node_days
    return (
        one.name,
        DASH if one.failures is None else f"{one.failures:,}",
        number(one.node_days, 6),
        number(rate.estimate) if bare or rate.estimate is None else between(rate),
        DASH
        if one.ratio.estimate is None and one.node_days is None and not bare
        else between(one.ratio),
        DASH if one.p_value is None else p_value(one.p_value),
    )


# -- a period against the one before it ------------------------------------------------------------


_TITLE = "This period against the one before"


def previous_section(trend: PeriodTrend) -> Section:
    """The tested sentence first, then both periods."""
    shown = [("this", trend.this)]
    if trend.before is not None:
        shown.append(("before", trend.before))
    figures = [one for _, one in shown]
    table = TextTable(
        "Both periods" if trend.before else "The period",
        (
            *("period", "from", "until before", "failures", "node-days"),
            *("failures per 1,000 node-days", "GPU-hours that ran", "GPU-hours lost", "share lost"),
            "by confidence",
        ),
        tuple((name, *_cells(one)) for name, one in shown),
        frozenset({3, 4, 5, 6, 7, 8}),
        gpu_hours=(
            (6, tuple(one.ran_gpu_hours for one in figures)),
            (7, tuple(_estimate(one.lost_gpu_hours) for one in figures)),
        ),
    )
    tables: tuple[TextTable, ...] = (table,)
    if trend.comparison is not None:
        tables += (ratios_table(trend.comparison.pairs),)
    charts = () if trend.before is None else (_figure(shown),)
    return Section(
        "previous",
        _TITLE,
        trend.meaning,
        charts,
        tables,
        tuple(_notes(trend)),
        careful="Other jobs or other nodes in one of the periods change the rate as well.",
    )


def _figure(shown: Sequence[tuple[str, PeriodFigures]]) -> Figure:
    return rates_chart(
        "previous",
        "Failure rates of both periods",
        "Of all jobs, with the intervals of the table.",
        {f"{name} period": one.per_1000_node_days for name, one in reversed(shown)},
    )


def _cells(one: PeriodFigures) -> tuple[str, ...]:
    return (
        moment(one.start),
        moment(one.end),
        number(one.failures),
        number(one.node_days, 5),
        between(one.per_1000_node_days),
        "not measured" if one.ran_gpu_hours is None else number(one.ran_gpu_hours, 5),
        "not measured" if one.lost_gpu_hours is None else between(one.lost_gpu_hours, 4),
        percent(one.lost_share),
        by_confidence(one.by_confidence) or DASH,
    )


def _estimate(value: Interval | None) -> float | None:
    return None if value is None else value.estimate


def _notes(trend: PeriodTrend) -> list[str]:
    notes = []
    for name, one in (("this period", trend.this), ("the period before", trend.before)):
        if one is None:
            continue
        whole_days = (one.end - one.start).total_seconds() / SECONDS_PER_DAY
        if one.measured_days < 0.999 * whole_days:
            notes.append(
                f"Of the {counted(round(whole_days), 'day')} of {name} the logs cover "
                f"{number(one.measured_days)}: compare its rate and its share, not its totals."
            )
        without = left_out(one)
        if without:
            notes.append(f"In {name} {without}")
    if any(
        one is not None and one.lost_gpu_hours is not None for one in (trend.this, trend.before)
    ):
        notes.append(
            f"An interruption loses its job's runtime, at most {number(trend.cap_min)} minutes of "
            "it: half of an assumed checkpoint interval."
        )
    jobs = {fleet.jobs for fleet in trend.comparison.fleets} if trend.comparison else {"all jobs"}
    if jobs != {"all jobs"}:
        notes.append(f"The ratios are of {', '.join(sorted(jobs))}; both periods show all jobs.")
    notes.append(
        "Intervals of rates and of lost GPU-hours are of what such a period holds on average, and "
        "admit the clustering of its failures."
    )
    return notes


def _before_and_after(analysis: Analysis) -> tuple[Section, ...]:
    found = analysis.ask(previous)
    return () if found is None else (previous_section(found),)


PREVIOUS = Part(
    "previous",
    place=40,
    question=previous,
    sections=_before_and_after,
    title=_TITLE,
)
