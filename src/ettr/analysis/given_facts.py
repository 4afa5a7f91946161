"""Facts of an analysis: what its stages still make as Ibis expressions, under facts' names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ettr.facts import Facts, made
from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred
from ettr.facts.interop import give
from ettr.tables import TABLES

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from ettr.analysis.shared import SharedStages


def facts_of(stages: SharedStages, shared: Facts | None) -> Facts:
    """The facts of an analysis; `shared`: those of another one of the same store."""
    chosen = stages.selection
    own = {
        "stages": stages,
        "selection": chosen,
        "since_us": _us(chosen.since),
        "until_us": _us(chosen.until),
        "period_start_us": Deferred(lambda _: _us(stages.period.start)),
        "period_end_us": Deferred(lambda _: _us(stages.period.end)),
        "jobs": Deferred(lambda _: stages.jobs),
        "all_listed": Deferred(lambda _: stages.every_node_is_listed),
        "accounted_rows": Deferred(lambda _: stages._accounted()),
    }
    if shared is not None:
        return shared.under(**own)
    backend = stages.read_store.backend
    logs = {
        "backend": backend,
        "logs": stages,
        "assumptions": stages.assumptions,
        "taxonomy": Deferred(lambda _: stages.taxonomy),
        "tables": Deferred(lambda _: stages.tables),
        "parts": Deferred(lambda _: stages.stored.parts),
        "logs_start_us": Deferred(lambda _: _us(stages.logs_period.start)),
        "logs_end_us": Deferred(lambda _: _us(stages.logs_period.end)),
    }
    return Facts(Duck(backend.con), logs | own, {})


def _us(moment: datetime | None) -> int | None:
    """Microseconds from 1970 to a moment with a zone."""
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OF_LOGS = {
    "all_failures": lambda logs: logs.attribution.failures,
    "all_endings": lambda logs: logs.attribution.endings,
    "all_episodes": lambda logs: logs.attribution.episodes,
    "all_observed": lambda logs: logs.attribution.observed,
    "interrupted_held": lambda logs: logs.interrupted_allocations,
    "event_census": lambda logs: logs.event_census,
    "event_days": lambda logs: logs.event_days,
    "event_node_kinds": lambda logs: logs.event_node_kinds,
}
_OF_SELECTION = {
    "failures": lambda stages: stages.failures,
    "endings": lambda stages: stages.endings,
}


def _register() -> None:
    for name in TABLES:
        made(name, (), takes=("tables",))(_stored(name, "tables"))
    for name in ("attempts", "allocations"):
        made(f"parts_{name}", (), takes=("parts",))(_stored(name, "parts"))
    made("chosen", (), takes=("jobs",))(
        lambda facts: give(facts, "chosen", facts.given("jobs").attempts)
    )
    made("held", (), takes=("jobs",))(
        lambda facts: give(facts, "held", facts.given("jobs").allocations)
    )
    made("accounted", (), takes=("accounted_rows",))(
        lambda facts: give(facts, "chosen", facts.given("accounted_rows"))
    )
    for whole, facts in (("logs", _OF_LOGS), ("stages", _OF_SELECTION)):
        for name, made_by in facts.items():
            made(name, (), takes=(whole,))(_expressed(name, whole, made_by))


def _expressed(name: str, whole: str, made_by: Callable[[Any], Table]) -> Callable[[Facts], str]:
    return lambda facts: give(facts, name, made_by(facts.given(whole)))


def _stored(name: str, whole: str) -> Callable[[Facts], str]:
    return lambda facts: give(facts, name, facts.given(whole)[name])


_register()
