"""Facts of an analysis: what its stages still make as Ibis expressions, under facts' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ettr.facts import Facts, made
from ettr.facts.asking import FactText, documented
from ettr.facts.chosen import microseconds
from ettr.facts.facts import Deferred
from ettr.facts.interop import give
from ettr.facts.opening import facts_of_store
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
        "since_us": microseconds(chosen.since),
        "until_us": microseconds(chosen.until),
        "period_start_us": Deferred(lambda _: microseconds(stages.period.start)),
        "period_end_us": Deferred(lambda _: microseconds(stages.period.end)),
        "all_listed": Deferred(lambda _: stages.every_node_is_listed),
    }
    if shared is not None:
        return shared.under(**own)
    return facts_of_store(
        stages.read_store,
        logs=stages,
        assumptions=stages.assumptions,
        taxonomy=Deferred(lambda _: stages.taxonomy),
        tables=Deferred(lambda _: stages.tables),
        gpus_per_node=stages.assumptions.gpus_per_node,
        logs_start_us=Deferred(lambda _: microseconds(stages.logs_period.start)),
        logs_end_us=Deferred(lambda _: microseconds(stages.logs_period.end)),
        **own,
    )


def documented_facts() -> list[FactText]:
    """All facts that a statement may read, those made in Python too."""
    return documented()


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
        changed = name in ("attempts", "node_states")
        made(name, (), reads=(f"whole_{name}",), takes=("tables",) if changed else ())(_final(name))
    for whole, facts in (("logs", _OF_LOGS), ("stages", _OF_SELECTION)):
        for name, made_by in facts.items():
            made(name, (), takes=(whole,))(_expressed(name, whole, made_by))


def _final(name: str) -> Callable[[Facts], str]:
    def make(facts: Facts) -> str:
        if name in ("attempts", "node_states") and not facts.given("tables").is_as_stored(name):
            return give(facts, name, facts.given("tables")[name])
        return facts.table(f"whole_{name}")

    return make


def _expressed(name: str, whole: str, made_by: Callable[[Any], Table]) -> Callable[[Facts], str]:
    return lambda facts: give(facts, name, made_by(facts.given(whole)))


_register()
