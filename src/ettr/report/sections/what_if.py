"""What changes of a simulated cluster are worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ettr.estimates import Interval
from ettr.plan.cost import Price
from ettr.report.charts import BarSeries, row_chart
from ettr.report.money import price_words
from ettr.report.numbers import between, number, percent
from ettr.report.section import Figure, Section, TextTable
from ettr.sim.cluster.run import ClusterHours
from ettr.sim.cluster.standing import standing_lines
from ettr.sim.cluster.whatif import Intervention, WhatIf
from ettr.sim.cluster.workload import not_simulated_lines
from ettr.units import SECONDS_PER_HOUR
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
    table = TextTable(
        "Each change, compared with the scenario as it is",
        (
            *("change", "useful GPU-hours, less bought", "more useful", "bought", "less wasted"),
            *("attempts ended by faults", "preemptions"),
        ),
        tuple(
            (
                one.change,
                difference_text(one.net_gpu_hours, 4),
                difference_text(one.useful_gpu_hours, 4),
                number(one.bought_gpu_hours, 4),
                difference_text(one.won_gpu_hours, 4),
                difference_text(one.failed_attempts),
                difference_text(one.preemptions),
            )
            for one in found.interventions
        ),
        frozenset({1, 2, 3, 4, 5, 6}),
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
