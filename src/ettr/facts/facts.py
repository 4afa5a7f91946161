"""A store's facts by name, each computed when it is first asked for and then kept.

What a fact depends on is read off its text (`ettr.facts.files`), closed over all that it reads: two
selections share every fact that takes nothing in which they differ, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from ettr.facts.files import Columns, Fact, fact, is_fact

if TYPE_CHECKING:
    import pyarrow as pa

    from ettr.facts.files import FactEngine

Given = Mapping[str, Any]
_Ask = Callable[[str, Given], Any]
_NUMBER = count()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_KEPT_ROWS = 200_000
"""Rows up to which what was fetched is kept for the next question."""


class Facts:
    """Tables of one store by name, on one engine.

    >>> facts.rows("status")          # a list of dictionaries; null is None
    >>> facts.columns("failures")     # NumPy arrays by column; null is NaN, or None in text
    >>> facts.distinct("nodes", "gpu_type")
    >>> facts.table("failures")       # its name in the engine, for a statement of your own
    >>> facts.under(since_us=0)       # the same store, other values: what is shared stays

    Args:
        given: the values that facts take by name (`$since_us`); one that is a function of the
            facts is computed when it is first needed.
    """

    def __init__(self, engine: FactEngine, given: Given, stored: Mapping[str, str]) -> None:
        self.engine = engine
        self._given = dict(given)
        self._stored = dict(stored)
        self._made: dict[tuple[str, tuple[Any, ...]], str] = {}
        self._fetched: dict[tuple[Any, ...], Any] = {}
        self._closures: dict[str, tuple[str, ...]] = {}
        self._identities: dict[str, Any] = {}

    def under(self, **changes: Any) -> Facts:
        """The facts of the same store where some values are others."""
        other = Facts(self.engine, self._given | changes, {})
        other._stored, other._made, other._fetched = self._stored, self._made, self._fetched
        other._closures = self._closures
        return other

    def over(self, **stored: str) -> Facts:
        """Facts of other rows: the engine's names of tables used as facts of that name."""
        return Facts(self.engine, self._given, self._stored | stored)

    def given(self, name: str) -> Any:
        """A value by name. Raises KeyError: none was given under it."""
        value = self._given[name]
        return value.of(self) if isinstance(value, Deferred) else value

    def store(self, name: str, physical: str) -> None:
        """Make a table of the engine known under a name."""
        self._stored[name] = physical
        self._closures.clear()

    def table(self, name: str) -> str:
        """The engine's name of a fact, computed with all that it reads."""
        if name in self._stored:
            return self._stored[name]
        key = self._key(name)
        if key not in self._made:
            one = fact(name)
            physical = f"fact_{name}_{next(_NUMBER)}"
            if one.make is not None:
                rows = one.make(self)
                if isinstance(rows, str):
                    physical = rows
                else:
                    self.engine.put(physical, one.columns, rows)
            else:
                view = one.keep == "view" or (
                    one.keep == "small" and "attempts" not in self.given("small")
                )
                self.engine.create(physical, one.code_with(self.table), self._bound(one), view=view)
            self._made[key] = physical
        return self._made[key]

    def keep(
        self, name: str, sql: str, *, view: bool, bound: Mapping[str, Any] | None = None
    ) -> str:
        """Keep what a statement of engine names selects; returns the engine's name of it."""
        physical = f"fact_{name}_{next(_NUMBER)}"
        self.engine.create(physical, sql, bound or {}, view=view)
        return physical

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a small fact as dictionaries."""
        found: list[dict[str, Any]] = self._kept(name, "rows", self.engine.rows)
        return found

    def row(self, name: str) -> dict[str, Any]:
        """The only row of a fact."""
        (one,) = self.rows(name)
        return one

    def columns(self, name: str, *names: str) -> Columns:
        """Columns of a fact, or some of those of a kept one, as arrays, for arithmetic.

        Numbers that may be null are floats with NaN, which holds microseconds exactly; text and
        booleans that may be null are objects with None.
        """
        found: Columns = self._kept(name, "columns", self.engine.columns, names)
        return found

    def distinct(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Each combination of values of some columns of a fact, in no order; null is None."""
        listed = ", ".join(f'"{column}"' for column in columns)
        key = self.table(name), "distinct", columns
        if key not in self._fetched:
            sql = f"SELECT DISTINCT {listed} FROM {key[0]}"
            self._fetched[key] = [tuple(row.values()) for row in self.engine.rows(sql, {})]
        found: list[tuple[Any, ...]] = self._fetched[key]
        return found

    def arrow(self, name: str) -> pa.Table:
        """Rows of a fact as an Arrow table."""
        return self._kept(name, "arrow", self.engine.arrow)

    def _kept(self, name: str, form: str, ask: _Ask, columns: tuple[str, ...] = ()) -> Any:
        is_kept = name in self._stored or fact(name).keep != "no"
        key: tuple[Any, ...]
        key = (self.table(name), form, *columns) if is_kept else (*self._key(name), form)
        if key in self._fetched:
            return self._fetched[key]
        if is_kept:
            listed = ", ".join(f'"{column}"' for column in columns) or "*"
            found = ask(f"SELECT {listed} FROM {key[0]}", {})
        else:
            found = ask(fact(name).code_with(self.table), self._bound(fact(name)))
        if _length(found) <= MOST_KEPT_ROWS:
            self._fetched[key] = found
        return found

    def _bound(self, one: Fact) -> dict[str, Any]:
        return {name: self.given(name) for name in one.takes}

    def _key(self, name: str) -> tuple[str, tuple[Any, ...]]:
        return name, tuple(map(self._identity, self._closure(name)))

    def _identity(self, name: str) -> Any:
        """What identifies a value: the value itself, or which object it is."""
        if name not in self._identities:
            value = self.given(name)
            try:
                hash(value)
            except TypeError:
                value = id(value)
            self._identities[name] = value
        return self._identities[name]

    def _closure(self, name: str) -> tuple[str, ...]:
        """Names of all values that a fact takes, by itself or through what it reads."""
        if name in self._stored:
            return ()
        if name not in self._closures:
            one = fact(name)
            unknown = [
                other for other in one.reads if other not in self._stored and not is_fact(other)
            ]
            if unknown:
                raise KeyError(f"{name} reads {', '.join(unknown)}, which is no fact")
            found = set(one.takes).union(*(self._closure(other) for other in one.reads))
            self._closures[name] = tuple(sorted(found))
        return self._closures[name]


class Deferred:
    """A value computed from the facts when it is first needed, once for all that share it."""

    def __init__(self, compute: Callable[[Facts], Any]) -> None:
        self._compute = compute
        self._values: list[Any] = []

    def of(self, facts: Facts) -> Any:
        """The value."""
        if not self._values:
            self._values.append(self._compute(facts))
        return self._values[0]


def _length(found: Any) -> int:
    if isinstance(found, dict):
        return len(next(iter(found.values()))) if found else 0
    return len(found)


def at(us: int) -> datetime:
    """The moment so many microseconds after 1970, in UTC."""
    return EPOCH + timedelta(microseconds=us)


def to_moment(us: int | None) -> datetime | None:
    """The same, where there may be none."""
    return None if us is None else at(us)
