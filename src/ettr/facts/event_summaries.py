"""What is asked of all events: of each kind by day, of each node by day and by kind.

A store of files keeps these of its large parts, so that a report does not read tens of millions of
events for a few thousand numbers. The facts are counted in the events where nothing is kept.

- `event_census` is one row a kind (`source`, `check`, `code`, `severity`) and UTC day (`day`, as
  days since 1970): `events`, how many; `first_us`, `last_us`; `first_end_us`, `last_end_us` of
  `time_end`, null where none has one.
- `event_days` is one row a node that events name and UTC day: `errors`, how many of them its own
  logs hold; 0 where only the controller names the node.
- `event_node_kinds` is one row a node and kind (`check`, `code`, `severity`): `events`, `first_us`,
  `last_us`.
"""

from __future__ import annotations

from collections.abc import Callable

from ettr.facts.facts import Facts
from ettr.facts.files import made

_SUMMARIES = {
    "event_census": "event_census",
    "event_days": "event_node_days",
    "event_node_kinds": "event_node_kinds",
}
"""Names of the facts, and of the tables that a store keeps for them."""


def _register() -> None:
    for name, kept in _SUMMARIES.items():
        made(f"{name}_parts", (), takes=("kept_summary",))(_parts(kept))
        either = (f"{name}_counted", f"{name}_summed")
        made(name, (), reads=either, takes=("kept_summary",))(_whole(name, kept))


def _parts(kept: str) -> Callable[[Facts], str]:
    def make(facts: Facts) -> str:
        from ettr.facts.interop import give

        return give(facts, kept, facts.given("kept_summary")(kept))

    return make


def _whole(name: str, kept: str) -> Callable[[Facts], str]:
    def make(facts: Facts) -> str:
        is_kept = facts.given("kept_summary")(kept) is not None
        return facts.table(f"{name}_summed" if is_kept else f"{name}_counted")

    return make


_register()
