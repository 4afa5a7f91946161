"""A scenario fitted to a site, and what it predicts of logs that were held back."""

from __future__ import annotations

from ettr.analysis.calibration.back_test import BackTest, PlacedQuantity
from ettr.analysis.calibration.fit import SiteFit
from ettr.report.numbers import DASH, number, p_value, percent
from ettr.report.section import Section, TextTable
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
        (),
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
