"""What the answers of a simulated cluster owe to its assumed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ettr.estimates import Interval
from ettr.plan.cost import Price
from ettr.report.charts import BarSeries, row_chart
from ettr.report.numbers import DASH, number, percent
from ettr.report.section import Figure, Section, TextTable
from ettr.report.sections.what_if import difference_text, unestimated, what_if_section
from ettr.sim.cluster.sensitivity import (
    HEADLINES,
    AssumptionSensitivity,
    EffectSensitivity,
    ValueEffect,
    VariedWhatIf,
)
from ettr.sim.cluster.standing import standing_lines
from ettr.sim.cluster.workload import not_simulated_lines
from ettr.units import SECONDS_PER_MINUTE
from ettr.words import counted

_TITLE = "Sensitivity"
_NAMES = {
    "useful_gpu_hours": "useful GPU-hours",
    "lost_gpu_hours": "GPU-hours lost to interruptions",
    "out_gpu_hours": "GPU-hours out of service",
    "failed_attempts": "attempts ended by faults",
    "preemptions": "preemptions",
    "held_share": "utilisation, % of the GPU-hours",
    "first_wait_s": "mean first wait of the jobs that started, min",
    "largest_first_wait_s": "mean first wait of the largest jobs that started, min",
}
_FACTORS = {
    "held_share": 100.0,
    "first_wait_s": 1.0 / SECONDS_PER_MINUTE,
    "largest_first_wait_s": 1.0 / SECONDS_PER_MINUTE,
}
"""From the unit of a headline to the one that is shown, where that is another."""
_AXES = {
    "held_share": "change, percentage points",
    "first_wait_s": "change, min",
    "largest_first_wait_s": "change, min",
}
_SHOWN = 10


def sensitivity_section(found: AssumptionSensitivity) -> Section:
    """For each headline the values that move it most."""
    tables = tuple(_table(found, headline) for headline in HEADLINES)
    figures = tuple(_figure(found, headline) for headline in HEADLINES)
    return Section("sensitivity", _TITLE, _lead(found), figures, tables, _notes(found))


def _figure(found: AssumptionSensitivity, headline: str) -> Figure:
    """The values that move a headline most as two bars each, the one that moves it most on top."""
    own = [one for one in found.effects if one.headline == headline][:_SHOWN]
    series = []
    for name, changes in (
        ("half as large", [one.at_less for one in own]),
        ("half larger", [one.at_more for one in own]),
    ):
        known = [_shown(one, headline) or Interval.unknown() for one in changes]
        hover = [f"{name}: {_difference(one, headline)}" for one in changes]
        series.append(BarSeries(name, [one.estimate for one in known], hover, known))
    return row_chart(
        headline.replace("_", "-"),
        f"What moves {_NAMES[headline]}",
        f"SIMULATED, {found.standing.verdict}. Each value by itself, and the difference to "
        f"{_now(found, headline)} as it is; the line on a bar is its interval "
        f"of {percent(found.confidence)} confidence.",
        [one.value for one in own],
        series,
        axis_title="change, GPU-hours"
        if headline.endswith("gpu_hours")
        else _AXES.get(headline, "change"),
        barmode="group",
    )


def _table(found: AssumptionSensitivity, headline: str) -> TextTable:
    own = [one for one in found.effects if one.headline == headline]
    return TextTable(
        f"{_NAMES[headline]}: {_now(found, headline)} as it is; the {min(_SHOWN, len(own))} of "
        f"{counted(len(own), 'value')} that move it most",
        ("value", "as it is", "less", "change at less", "more", "change at more"),
        tuple(_row(one) for one in own[:_SHOWN]),
        frozenset({1, 2, 3, 4, 5}),
    )


def _row(one: ValueEffect) -> tuple[str, ...]:
    return (
        one.value,
        number(one.now),
        number(one.less),
        _difference(one.at_less, one.headline),
        number(one.more),
        _difference(one.at_more, one.headline),
    )


def _difference(value: Interval | None, headline: str) -> str:
    shown = _shown(value, headline)
    return DASH if shown is None else difference_text(shown)


def _shown(value: Interval | None, headline: str) -> Interval | None:
    """A difference in the unit that is shown."""
    return None if value is None else value.scaled(_FACTORS.get(headline, 1.0))


def _now(found: AssumptionSensitivity, headline: str) -> str:
    """A headline of the scenario as it is; a dash where a run has none."""
    now = getattr(found.base, headline)
    return number(None if now is None else now * _FACTORS.get(headline, 1), 4)


def _lead(found: AssumptionSensitivity) -> str:
    own = [one for one in found.effects if one.headline == "lost_gpu_hours"]
    words = (
        f"SIMULATED, no cluster logged this: {found.scenario}, {found.days:g} days, "
        f"{counted(len(found.seeds), 'seed')}, {counted(found.simulations, 'simulation')}. "
        f"{counted(len(own), 'assumed value')}, half as large and half larger, one at a time. "
    )
    lost = f"the GPU-hours lost to interruptions ({number(found.base.lost_gpu_hours, 4)})"
    if own[0].shown_change > 0:
        return f"{words}Most of all {own[0].value} moves {lost}."
    return f"{words}No value is shown to move {lost}: every interval holds 0."


def _notes(found: AssumptionSensitivity) -> tuple[str, ...]:
    made = [
        f"[a, b] is an interval of {percent(found.confidence)} confidence for the mean difference "
        "over the seeds, which all share; of so many intervals about "
        f"{100.0 * (1.0 - found.confidence):.0f} % exclude the truth by chance alone.",
        "First comes what moves a headline most by the end of its interval that lies nearer to 0.",
        "Each value is changed by itself: what several do together is not seen. Shares that sum "
        "to 1 are filled up by the others; a chance is 1 at most.",
    ]
    made += unestimated(
        end for one in found.effects for end in (one.at_less, one.at_more) if end is not None
    )
    made += _of_waits(found)
    made += not_varied_lines(found.not_varied)
    made += found.warnings
    made += found.replayed
    made += not_simulated_lines(found.not_simulated)
    return (*made, *standing_lines(found.standing))


def headlines_section(found: AssumptionSensitivity) -> Section:
    """The same in short: one line a headline."""
    return Section(
        "sensitivity", _TITLE, _lead(found), (), (_headlines_table(found),), _notes(found)
    )


def _headlines_table(found: AssumptionSensitivity) -> TextTable:
    """For each headline the one value that is shown to move it most."""
    first = [one for one in found.effects if one.rank == 1]
    return TextTable(
        f"What each headline owes to assumed values ({counted(len(found.seeds), 'seed')}, "
        f"{counted(found.simulations, 'simulation')}): the one that moves it most",
        ("headline", "as it is", "value", "change at half or less", "change at half more"),
        tuple(
            (
                _NAMES[one.headline],
                _now(found, one.headline),
                one.value if one.shown_change > 0 else f"{one.value} (not shown)",
                _difference(one.at_less, one.headline),
                _difference(one.at_more, one.headline),
            )
            for one in first
        ),
        frozenset({1, 3, 4}),
    )


def _changes_table(found: EffectSensitivity) -> TextTable:
    """The assumed values that move most what changes win back."""
    n = len(found.effects)
    return TextTable(
        "GPU-hours won back, and what they owe to assumed values: the "
        f"{min(_SHOWN, n)} of {n} that move them most ({counted(found.simulations, 'simulation')})",
        ("change", "value", "as it is", "less", "moves it by", "more", "moves it by"),
        tuple((one.headline, *_row(one)) for one in found.effects[:_SHOWN]),
        frozenset({2, 3, 4, 5, 6}),
    )


def varied_what_if_section(found: VariedWhatIf, price: Price | None = None) -> Section:
    """What changes are worth, with what that owes to the assumed values if that was asked for."""
    own = found.sensitivity
    section = what_if_section(found, price, is_varied=own is not None)
    if own is None:
        return section
    first = own.effects[0]
    lead = (
        f"Most of all the assumed {first.value} moves what {first.headline} wins."
        if first.shown_change > 0
        else "No assumed value is shown to move what a change wins: every interval holds 0."
    )
    notes = [
        "Each assumed value was made half as large and half larger, one at a time; what moves is "
        "the GPU-hours won back by the change. First comes what is moved most by the end of its "
        "interval that lies nearer to 0.",
        *unestimated(
            end for one in own.effects for end in (one.at_less, one.at_more) if end is not None
        ),
        *not_varied_lines(own.not_varied),
    ]
    return replace(
        section,
        lead=f"{section.lead} {lead}",
        tables=(*section.tables, _changes_table(own)),
        notes=(*dict.fromkeys((*section.notes, *notes)),),
    )


def not_varied_lines(not_varied: Sequence[str]) -> list[str]:
    """The values that were not varied, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for line in not_varied:
        name, _, reason = line.partition(": ")
        by_reason.setdefault(reason, []).append(name)
    return [f"Not varied ({why}): {', '.join(names)}." for why, names in by_reason.items()]


def _of_waits(found: AssumptionSensitivity) -> list[str]:
    """What a mean first wait leaves out, and why one may be missing."""
    made = [
        "A first wait ends at the first start of a job; jobs that still wait at the end are in no "
        "mean, and in a queue that grows it is too short. The largest jobs are those with the most "
        "GPUs."
    ]
    if any(
        end is not None and end.estimate is None
        for one in found.effects
        for end in (one.at_less, one.at_more)
    ):
        made.append(
            f"{DASH} for a wait: in one seed or more no such job started; simulate more days."
        )
    return made
