"""Failures to come, with bands, and how often such bands held in the past."""

from __future__ import annotations

import math

from ettr.analysis.forecasting import AheadForecast, FailureForecast
from ettr.report.numbers import (
    DASH,
    and_confidence,
    between,
    duration,
    number,
    percent,
    share_between,
)
from ettr.report.section import Section, TextTable
from ettr.units import SECONDS_PER_DAY


def forecast_section(forecast: FailureForecast) -> Section:
    """One row for each length of time; the sentences first."""
    return Section(
        "forecast",
        f"{forecast.of_what.capitalize()} to come",
        " ".join(one.meaning for one in forecast.ahead),
        (),
        (_table(forecast),),
        (
            f"From {number(forecast.events)} {forecast.of_what} in "
            f"{duration(SECONDS_PER_DAY * forecast.history_days)} of logs"
            f"{and_confidence(forecast.by_confidence)}; bands at "
            f"{percent(forecast.confidence, 2)}.",
            *forecast.notes,
        ),
    )


def _table(forecast: FailureForecast) -> TextTable:
    return TextTable(
        "Forecasts",
        (
            "ahead",
            "windows of the past",
            "node-days",
            f"{forecast.of_what} expected",
            "bands checked",
            "held",
            "past counts half after",
        ),
        tuple(
            (
                duration(SECONDS_PER_DAY * one.ahead_days),
                number(one.windows),
                number(one.node_days, 4),
                DASH if one.failures.estimate is None else between(one.failures),
                number(one.backtests),
                share_between(one.held_share, 2),
                _memory(one),
            )
            for one in forecast.ahead
        ),
        frozenset(range(7)),
    )


def _memory(one: AheadForecast) -> str:
    if one.half_life_windows is None:
        return DASH
    if math.isinf(one.half_life_windows):
        return "never"
    return duration(SECONDS_PER_DAY * one.ahead_days * one.half_life_windows)
