"""Whether a scenario was fitted to the very days by which it is to be judged."""

from __future__ import annotations

from datetime import datetime, timedelta

from ettr.errors import UsageError
from ettr.sim.cluster.scenario import ClusterScenario

_FITTED = "fitted to "


def overlap_note(scenario: ClusterScenario, store: str, begin: datetime, end: datetime) -> str:
    """What a reader must know of a scenario whose fitted days are held back; empty for nothing.

    The period of a scenario that was fitted is that of the logs to which it was.

    Args:
        scenario: To judge.
        store: What the store is called whose days are held back.
        begin: First moment that is held back.
        end: Last moment.

    Raises:
        UsageError: it was fitted to these days of that store, and would be judged by what it knows.
    """
    fitted = {one for one in scenario.sources.values() if one.startswith(_FITTED)}
    since = scenario.period.origin
    until = since + timedelta(days=scenario.period.days)
    if not fitted or until <= begin or since >= end:
        return ""
    days = f"{since.date()} until {until.date()}"
    own = (f"{_FITTED}{store}: ", f"{_FITTED}simulated {store}: ")
    if any(one.startswith(own) for one in fitted):
        raise UsageError(
            f"{scenario.name} was fitted to {store}, {days} by its [period], and days from "
            f"{begin.date()} on are held back: it would be judged by what it was fitted to. Fit "
            "with `ettr simulate fit STORE --hold-back DAYS`, the same days, or give "
            "`ettr simulate backtest STORE --hold-back DAYS`, which fits and judges."
        )
    origin = min(fitted).removeprefix(_FITTED).partition(": ")[0]
    return (
        f"The scenario was fitted to {origin}, {days}, and the days that are held back from "
        f"{store} are among them: if both are logs of one cluster, this is no test."
    )
