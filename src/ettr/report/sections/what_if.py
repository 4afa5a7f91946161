"""What changes of a simulated cluster are worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ettr.analysis.calibration.back_test import BackTest, PlacedQuantity, ReplayedWait
from ettr.analysis.calibration.fit import SiteFit
from ettr.estimates import Interval
from ettr.plan.cost import Price
from ettr.report.charts import BarSeries, row_chart, waits_chart
from ettr.report.numbers import DASH, between, duration, number, p_value, percent
from ettr.report.rows import price_words
from ettr.report.section import Figure, Section, TextTable, table_of_rows
from ettr.sim.cluster.run import ClusterHours
from ettr.sim.cluster.standing import standing_lines, standing_of
from ettr.sim.cluster.whatif import (
    HEADLINES,
    AssumptionSensitivity,
    EffectSensitivity,
    Intervention,
    ValueEffect,
    VariedWhatIf,
    WhatIf,
)
from ettr.sim.cluster.workload import not_simulated_lines
from ettr.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ettr.words import counted

_TITLE = "What if"
_NO_INTERVAL = "(no interval)"


def difference_text(value: Interval, digits: int = 3) -> str:
    """A difference with its interval, or that none can be estimated."""
    if value.estimate is not None and math.isinf(value.low) and math.isinf(value.high):
        return f"{number(value.estimate, digits)} {_NO_INTERVAL}"
    return between(value, digits)


def unestimated(values: Iterable[Interval]) -> Iterator[str]:
    """What a difference without an interval is, if there are any."""
    if any(_NO_INTERVAL in difference_text(one) for one in values):
        yield (
            f"{_NO_INTERVAL}: every seed differs by the same number, so that nothing says how far "
            "the mean may be from it; give more seeds with --runs."
        )


def what_if_section(
    found: WhatIf, price: Price | None = None, *, is_varied: bool = False
) -> Section:
    """The change of most useful work for what it buys first, then all of them."""
    base = found.base
    table = table_of_rows(
        "Each change, compared with the scenario as it is",
        found.interventions,
        ("change", lambda one: one.change),
        (">useful GPU-hours, less bought", lambda one: difference_text(one.net_gpu_hours, 4)),
        (">more useful", lambda one: difference_text(one.useful_gpu_hours, 4)),
        (">bought", lambda one: number(one.bought_gpu_hours, 4)),
        (">less wasted", lambda one: difference_text(one.won_gpu_hours, 4)),
        (">attempts ended by faults", lambda one: difference_text(one.failed_attempts)),
        (">preemptions", lambda one: difference_text(one.preemptions)),
        gpu_hours=((1, tuple(one.net_gpu_hours.estimate for one in found.interventions)),),
    )
    waits = TextTable(
        "How much longer jobs wait until they first start, hours",
        ("change", "all jobs", "highest priority", "largest jobs"),
        (
            (
                "as it is",
                *(number(_hours(one)) for one in _waits_s(base)),
            ),
            *(
                (
                    one.change,
                    *(
                        difference_text(wait.scaled(1.0 / SECONDS_PER_HOUR))
                        for wait in (
                            *(one.first_wait_s, one.highest_first_wait_s),
                            one.largest_first_wait_s,
                        )
                    ),
                )
                for one in found.interventions
            ),
        ),
        frozenset({1, 2, 3}),
    )
    return Section(
        "what-if",
        _TITLE,
        _lead(found),
        _figures(found, price),
        (table, waits),
        _notes(found, is_varied),
        gpu_hours=(("lost", base.lost_gpu_hours), ("out of service", base.out_gpu_hours)),
    )


def _figures(found: WhatIf, price: Price | None) -> tuple[Figure, ...]:
    """Bars of the useful work that each change wins, ranked, in GPU-hours and in money."""
    share = percent(found.confidence)
    hours = _bars(
        found,
        "what-if",
        "Useful GPU-hours won, less those bought",
        f"SIMULATED, {found.standing.verdict}. The line on a bar is its interval of {share} "
        "confidence; one that reaches 0 or below shows no gain.",
        "GPU-hours",
        1.0,
    )
    if price is None:
        return (hours,)
    money = _bars(
        found,
        "what-if-cost",
        "The same in money",
        f"SIMULATED, {found.standing.verdict}. {price_words(price)}.",
        price.currency,
        price.per_gpu_hour,
    )
    return hours, money


def _bars(
    found: WhatIf, slug: str, title: str, caption: str, unit: str, per_gpu_hour: float
) -> Figure:
    won = [one.net_gpu_hours.scaled(per_gpu_hour) for one in found.interventions]
    series = BarSeries(
        unit,
        [one.estimate for one in won],
        [f"{difference_text(one, 4)} {unit}" for one in won],
        won,
    )
    names = [one.change for one in found.interventions]
    figure = row_chart(slug, title, caption, names, [series], axis_title=unit)
    return replace(figure, layout=figure.layout | {"showlegend": False})


def _lead(found: WhatIf) -> str:
    base, best = found.base, found.interventions[0]
    all_hours = base.useful_gpu_hours + base.wasted_gpu_hours
    writes = ""
    if base.write_gpu_hours:
        writes = f", {number(base.write_gpu_hours, 4)} held up by writes of checkpoints"
    if base.network_gpu_hours:
        writes += f", {number(base.network_gpu_hours, 4)} lost to bad or shared links"
    wasted = percent(base.wasted_gpu_hours / all_hours if all_hours else None)
    words = (
        f"SIMULATED, no cluster logged this: {found.scenario}, {found.days:g} days, "
        f"{counted(len(found.seeds), 'seed')}. As it is, interruptions lose "
        f"{number(base.lost_gpu_hours, 4)} GPU-hours and {number(base.out_gpu_hours, 4)} are out "
        f"of service{writes}, {wasted} of these and the useful ones. "
    )
    won = best.net_gpu_hours
    if won.low > 0:
        words = (
            f"{words}Most useful work is won by {best.change}: {between(won, 4)} GPU-hours"
            f"{' more than it buys' if best.bought_gpu_hours > 0 else ''}{_waiting(best)}."
        )
    else:
        words = f"{words}No change is shown to win anything: every interval reaches 0 or below."
    return " ".join((words, *found.warnings))


def _waiting(best: Intervention) -> str:
    """Who waits longer for it, where that is shown; empty where nobody is."""
    later = [
        f"{who} wait {between(wait.scaled(1.0 / SECONDS_PER_HOUR))} h longer"
        for who, wait in (
            ("all jobs", best.first_wait_s),
            ("those of the highest priority", best.highest_first_wait_s),
            ("the largest", best.largest_first_wait_s),
        )
        if math.isfinite(wait.low) and wait.low > 0
    ]
    return f", and {', '.join(later)}" if later else ""


def _waits_s(hours: ClusterHours) -> tuple[float | None, ...]:
    return hours.first_wait_s, hours.highest_first_wait_s, hours.largest_first_wait_s


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / SECONDS_PER_HOUR


def _notes(found: WhatIf, is_varied: bool) -> tuple[str, ...]:
    return (
        f"[a, b] is an interval of {percent(found.confidence)} confidence for the mean difference "
        "over the seeds, which scenario and change share.",
        *unestimated(
            value
            for one in found.interventions
            for value in (
                *(one.net_gpu_hours, one.won_gpu_hours, one.useful_gpu_hours),
                *(one.failed_attempts, one.preemptions),
            )
        ),
        "More useful: bounded by the jobs that users submit. Bought: GPU-hours of the machines "
        "that a change adds, used or not; what else it costs is not known. Less wasted: less lost "
        "to interruptions and all restarts, less out of service, less held up by writes of "
        "checkpoints; where more jobs run, more is lost as well.",
        f"{found.assumed} of the {found.values} values of the scenario are assumed"
        + ("." if is_varied else "; --sensitivity says what the answer owes to them."),
        *found.replayed,
        *not_simulated_lines(found.not_simulated),
        *standing_lines(found.standing),
    )


# -- what the answers of a simulated cluster owe to its assumed values -----------------------------


_SWEPT_TITLE = "Sensitivity"
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
    return Section(
        "sensitivity",
        _SWEPT_TITLE,
        _swept_lead(found),
        figures,
        tables,
        _swept_notes(found),
    )


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


def _swept_lead(found: AssumptionSensitivity) -> str:
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


def _swept_notes(found: AssumptionSensitivity) -> tuple[str, ...]:
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
        "sensitivity",
        _SWEPT_TITLE,
        _swept_lead(found),
        (),
        (_headlines_table(found),),
        _swept_notes(found),
    )


def _headlines_table(found: AssumptionSensitivity) -> TextTable:
    """For each headline the one value that is shown to move it most."""
    first = [one for one in found.effects if one.rank == 1]
    return table_of_rows(
        f"What each headline owes to assumed values ({counted(len(found.seeds), 'seed')}, "
        f"{counted(found.simulations, 'simulation')}): the one that moves it most",
        first,
        ("headline", lambda one: _NAMES[one.headline]),
        (">as it is", lambda one: _now(found, one.headline)),
        ("value", lambda one: one.value if one.shown_change > 0 else f"{one.value} (not shown)"),
        (">change at half or less", lambda one: _difference(one.at_less, one.headline)),
        (">change at half more", lambda one: _difference(one.at_more, one.headline)),
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


# -- a scenario fitted to a site, and what it predicts of logs that were held back -----------------


def fit_section(found: SiteFit) -> Section:
    """How much the logs bear, and all that they do not."""
    return Section(
        "site-fit",
        f"{found.scenario.name}: a scenario fitted to {found.store}",
        f"{found.fitted} of its {found.values} values are fitted to {found.store}, {found.since} "
        f"until {found.until}. {standing_of(found.scenario).sentence}",
        (),
        (),
        (*(f"Not fitted: {one}." for one in found.not_fitted), *found.notes),
    )


def back_test_section(found: BackTest) -> Section:
    """The verdict, then each quantity with reality's place."""
    return Section(
        "back-test",
        f"Back-test of {found.scenario}",
        found.standing.sentence,
        wait_figures(found.quantities, _wait_words(found), _site_words(found)),
        (
            TextTable(
                "Reality among the simulations",
                (
                    *("quantity", "unit", "reality", "predicted", "90 % interval"),
                    *("simulations below", "p", "p, Holm", "verdict"),
                ),
                tuple(_fit_row(one) for one in found.quantities),
                frozenset({2, 3, 4, 5, 6, 7}),
            ),
        ),
        (
            f"SIMULATED: {found.replicas} simulations of {found.held_back_from} until "
            f"{found.held_back_until}, each after {found.warm_up_days} days of warm-up, values "
            f"with an interval drawn from it; seed {found.seed}.",
            "p: chance of a reality as far from what was predicted, two-sided, if the scenario is "
            "right; failed where it lies below "
            f"{percent(found.family_error)} after Holm's correction.",
            *standing_lines(found.standing)[1:],
            *(f"Not fitted: {one}." for one in found.not_fitted),
            *found.notes,
        ),
    )


def wait_figures(
    quantities: Sequence[PlacedQuantity | ReplayedWait], words: str, theirs: str = "real"
) -> tuple[Figure, ...]:
    """Waits by size of the job, simulated and real: their medians, and what 90 % stay below.

    A size with too few jobs in the simulations is left out, and the caption names it.
    """
    made = []
    for level, title in (("median", "Median wait by size"), ("90 %", "Wait that 90 % stay below")):
        own = {
            one.quantity.removeprefix("wait of ").removesuffix(f", {level}"): one
            for one in map(_drawn_wait, quantities)
            if one.quantity.startswith("wait of ") and one.quantity.endswith(f", {level}")
        }
        drawn = {size: one for size, one in own.items() if one.simulated is not None}
        if not drawn:
            continue
        made.append(
            waits_chart(
                f"waits-{'median' if level == 'median' else 'p90'}",
                title,
                f"{words}{_without(own)}",
                list(drawn),
                [one.simulated for one in drawn.values() if one.simulated is not None],
                [one.real_s for one in drawn.values()],
                theirs,
            )
        )
    return tuple(made)


@dataclass(frozen=True, slots=True)
class DrawnWait:
    """A quantile of waits in seconds as a figure has it; None where it was not measured."""

    quantity: str
    real_s: float | None
    simulated: Interval | None


def _drawn_wait(one: PlacedQuantity | ReplayedWait) -> DrawnWait:
    if isinstance(one, PlacedQuantity):
        name, real_s, middle, low, high = one.name, one.reality, one.predicted, one.low, one.high
    else:
        name, real_s, middle = one.quantity, one.real_s, one.simulated_s
        low = high = middle
    if middle is None or low is None or high is None:
        return DrawnWait(name, real_s, None)
    return DrawnWait(name, real_s, Interval(middle, low, high))


def _wait_words(found: BackTest) -> str:
    return (
        f"Of jobs from {found.held_back_from} until {found.held_back_until}: {found.replicas} "
        "simulations with the interval that holds reality with 90 % probability if the scenario is "
        f"right, next to the {_site_words(found)} wait."
    )


def _site_words(found: BackTest) -> str:
    """What the waits of the site are: a store that is simulated has no real ones."""
    return "held-back simulated" if found.validation.simulated else "real"


def _without(own: Mapping[str, DrawnWait]) -> str:
    """Sizes that a figure of waits lacks, in words."""
    absent = [size for size, one in own.items() if one.simulated is None]
    unreal = [size for size, one in own.items() if one.simulated and one.real_s is None]
    words = f" Too few simulated jobs: {', '.join(absent)}." if absent else ""
    return f"{words} Not measured in reality: {', '.join(unreal)}." if unreal else words


def replayed_waits_section(
    waits: Sequence[ReplayedWait], scenario: str, site: str, seed: int, simulated: str = ""
) -> Section:
    """Waits of a simulation that replayed the jobs of a site, next to the real ones."""
    words = f"SIMULATED: {scenario}, seed {seed}, replaying the jobs of {site}."
    theirs = "replayed, of a simulation" if simulated else "real"
    if simulated:
        words = f"{words} {site} is not a real cluster. {simulated}"
    return Section(
        "waits",
        "Waits by size of two simulations" if simulated else "Waits by size, simulated and real",
        words,
        wait_figures(waits, words, theirs),
        (
            table_of_rows(
                "Waits",
                waits,
                ("quantity", lambda one: one.quantity),
                (">" + theirs, lambda one: _wait(one.real_s)),
                (">simulated", lambda one: _wait(one.simulated_s)),
            ),
        ),
        (
            "One simulation has no interval: `ettr simulate backtest` has one, over many.",
            "The simulated cluster begins empty, so that its first jobs wait less.",
        ),
    )


def _wait(wait_s: float | None) -> str:
    return "not measured" if wait_s is None else duration(wait_s)


def _fit_row(one: PlacedQuantity) -> tuple[str, ...]:
    interval = DASH
    if one.low is not None and one.high is not None:
        interval = f"{number(one.low)} to {number(one.high)}"
    return (
        one.name,
        one.unit,
        "not measured" if one.reality is None else number(one.reality),
        number(one.predicted),
        interval,
        DASH if one.rank is None else f"{one.rank:g} of {one.replicas}",
        DASH if one.p_value is None else p_value(one.p_value),
        DASH if one.p_adjusted is None else p_value(one.p_adjusted),
        one.verdict,
    )
