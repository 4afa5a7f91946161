"""Facts of an analysis: what its stages still make as Ibis expressions, under facts' names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.facts import Facts, made
from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred
from ettr.facts.interop import give
from ettr.tables import TABLES

if TYPE_CHECKING:
    from ettr.analysis.shared import SharedStages


def facts_of(stages: SharedStages, shared: Facts | None) -> Facts:
    """The facts of an analysis; `shared`: those of another one of the same store."""
    own = {
        "stages": stages,
        "jobs": Deferred(lambda _: stages.jobs),
        "all_listed": Deferred(lambda _: stages.every_node_is_listed),
        "accounted_rows": Deferred(lambda _: stages._accounted()),
    }
    if shared is not None:
        return shared.under(**own)
    logs = {"logs": stages, "tables": Deferred(lambda _: stages.tables)}
    parts = {"parts": Deferred(lambda _: stages.stored.parts)}
    backend = stages.read_store.backend
    return Facts(Duck(backend.con), {"backend": backend} | logs | parts | own, {})


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


def _stored(name: str, whole: str):  # type: ignore[no-untyped-def]
    return lambda facts: give(facts, name, facts.given(whole)[name])


_register()
