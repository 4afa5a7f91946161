"""A scenario fitted to a site, and what it predicts of logs that were held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ettr.analysis.calibration.back_test import BackTest, PlacedQuantity, ReplayedWait
from ettr.analysis.calibration.fit import SiteFit
from ettr.estimates import Interval
from ettr.report.charts import waits_chart
from ettr.report.numbers import DASH, duration, number, p_value, percent
from ettr.report.section import Figure, Section, TextTable
from ettr.sim.cluster.standing import standing_lines, standing_of


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
                tuple(_row(one) for one in found.quantities),
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
            TextTable(
                "Waits",
                ("quantity", theirs, "simulated"),
                tuple((one.quantity, _wait(one.real_s), _wait(one.simulated_s)) for one in waits),
                frozenset({1, 2}),
            ),
        ),
        (
            "One simulation has no interval: `ettr simulate backtest` has one, over many.",
            "The simulated cluster begins empty, so that its first jobs wait less.",
        ),
    )


def _wait(wait_s: float | None) -> str:
    return "not measured" if wait_s is None else duration(wait_s)


def _row(one: PlacedQuantity) -> tuple[str, ...]:
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
