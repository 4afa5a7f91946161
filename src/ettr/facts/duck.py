"""DuckDB as the engine of facts, and a statement of the user's own, which can only read.

The engine keeps it to that: one statement that its parser takes for a SELECT, no file but those of
the store, no setting changed, an end to its memory and its time.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Timer
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ettr.errors import StoreError, UsageError
from ettr.facts.facts import Facts
from ettr.facts.files import Columns, Fact, Rows, fact, fact_names
from ettr.store.computing import with_arrow
from ettr.tables import TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Duck:
    """Statements on one connection of DuckDB, whose facts are temporary tables and views."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def run(self, sql: str, bound: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Run one statement."""
        return self.connection.execute(sql, dict(bound) if bound else None)

    def create(self, name: str, sql: str, bound: Mapping[str, Any], *, view: bool) -> None:
        """Keep what a statement selects, as a table or as a view."""
        if view and bound:
            raise ValueError(f"{name} is a view, which binds nothing: {', '.join(bound)}")
        self.run(f"CREATE TEMP {'VIEW' if view else 'TABLE'} {name} AS {sql}", bound)

    def put(self, name: str, columns: Sequence[tuple[str, str]], rows: Rows) -> None:
        """Keep few rows that were made elsewhere."""
        if not rows:
            typed = ", ".join(f'"{column}" {kind}' for column, kind in columns)
            self.run(f"CREATE TEMP TABLE {name} ({typed})")
            return
        # a statement with thousands of marks takes DuckDB a hundred times as long
        given = {
            column: _objects(values)
            for (column, _), values in zip(columns, zip(*rows, strict=True), strict=True)
        }
        cast = ", ".join(f'CAST("{column}" AS {kind}) AS "{column}"' for column, kind in columns)
        self.connection.register("given_rows", given)
        self.run(f"CREATE TEMP TABLE {name} AS SELECT {cast} FROM given_rows")
        self.connection.unregister("given_rows")

    def put_arrow(self, name: str, rows: pa.Table) -> None:
        """Keep rows that were made elsewhere, in Arrow's types."""
        with_arrow(self.connection).register("given_rows", rows)
        self.run(f"CREATE TEMP TABLE {name} AS FROM given_rows")
        self.connection.unregister("given_rows")

    def names(self, sql: str) -> list[str]:
        """Names of the columns of a statement."""
        return [column[0] for column in self.run(sql).description or ()]

    def rows(self, sql: str, bound: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of a statement as dictionaries."""
        found = self.run(sql, bound)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def columns(self, sql: str, bound: Mapping[str, Any]) -> Columns:
        """Columns of a statement as arrays."""
        found = self.run(sql, bound).fetchnumpy()
        return {name: _plain(values) for name, values in found.items()}

    def arrow(self, sql: str, bound: Mapping[str, Any]) -> pa.Table:
        """Rows of a statement as an Arrow table."""
        return with_arrow(self.connection).sql(sql, params=dict(bound) or None).to_arrow_table()


def _objects(values: Sequence[object]) -> npt.NDArray[Any]:
    found = np.empty(len(values), dtype=np.object_)
    found[:] = values
    return found


def _plain(values: Any) -> npt.NDArray[Any]:
    """A fetched column as a plain array: null is NaN in numbers, None elsewhere."""
    if type(values) is np.ndarray:
        return values
    absent = np.ma.getmaskarray(values)
    if not absent.any():
        return np.asarray(values.data)
    if values.dtype.kind in "iuf":
        numbers = np.asarray(values.data, dtype=np.float64).copy()
        numbers[absent] = np.nan
        return numbers
    found = np.asarray(values.data).astype(object)
    found[absent] = None
    return found


_WORD = re.compile(r"[a-z_][a-z0-9_]*")
_NO_TABLE = re.compile(r"Catalog Error: Table with name (\S+) does not exist")
_OF_A_QUESTION = frozenset(
    (
        *("asked_cluster", "asked_node", "asked_node_names", "claimed", "down", "edges"),
        *("restarts", "linked", "first_day", "last_day", "fleet_in_service", "understood_checks"),
        *("repaired", "scored_from_s", "scored_to_s", "first_rows", "least_share", "least_size"),
        *("most_shown", "sized_by_nodes", "cells_origin_s", "best_lost_s", "run_gap_s"),
        *("run_min_gpus", "run_rule", "run_jobs"),
    )
)
"""Values that one question gives to its facts."""
_INNER = re.compile(r"^(raw|named|parts|whole|het|given|history)_|_(counted|summed)$")


@dataclass(frozen=True, slots=True)
class FactText:
    """A fact as its reader sees it."""

    name: str
    means: str
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a statement."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    is_cut: bool


def documented() -> list[FactText]:
    """All facts that a statement may read, stored tables first."""
    stored = [FactText(table.name, f"One row is {table.row}.", "") for table in TABLES.values()]
    shown = (name for name in fact_names() - TABLES.keys() if not _INNER.search(name))
    names = sorted(name for name in shown if not _is_of_a_question(name))
    others = (FactText(name, _means(fact(name)), fact(name).text) for name in names)
    return stored + [one for one in others if one.means]


def text_of(name: str) -> str:
    """The file behind a fact, or what a stored table's columns are.

    Raises:
        UsageError: there is no such fact.
    """
    if name in TABLES:
        table = TABLES[name]
        lines = [f"-- One row is {table.row}."]
        for column in table:
            null = f"; null: {column.null}" if column.null else ""
            lines.append(f"-- {_narrow(column.name, str(column.kind))}: {column.means}{null}")
        return "\n".join(lines)
    known = {one.name: one for one in documented()}
    if name not in known:
        raise UsageError(f"no fact named {name!r}; `ettr sql STORE` lists them")
    return known[name].text or f"-- {known[name].means} Made in Python."


def ask(facts: Facts, sql: str, *, most_rows: int, memory_bytes: int, seconds: float) -> Found:
    """Rows of a SELECT over facts by name; what it names is computed first.

    The connection takes no other settings and no other files after it.

    Raises:
        UsageError: it is no single SELECT, or the engine does not understand it.
        StoreError: it takes longer, or needs more memory.
    """
    import duckdb

    name_facts(facts, sql)
    engine = _duck_of(facts)
    files = ", ".join("'" + path.replace("'", "''") + "'" for path in facts.given("files"))
    engine.run(f"SET memory_limit = '{int(memory_bytes)}B'")
    engine.run(f"SET allowed_paths = [{files}]")
    engine.run("SET enable_external_access = false")
    engine.run("SET lock_configuration = true")
    timer = Timer(seconds, engine.connection.interrupt)
    timer.start()
    try:
        found = engine.run(sql)
        rows = found.fetchmany(most_rows + 1)
    except duckdb.InterruptException as error:
        raise StoreError(
            f"the statement took longer than {seconds:g} s; --seconds gives it more"
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise StoreError(
            f"the statement needs more than {memory_bytes / 1e9:.1f} GB; select less, or run it "
            "where more memory is free"
        ) from error
    except duckdb.Error as error:
        raise UsageError(_no_fact(str(error)) or f"DuckDB: {error}") from error
    finally:
        timer.cancel()
    names = tuple(column[0] for column in found.description or ())
    return Found(names, rows[:most_rows], len(rows) > most_rows)


def _no_fact(says: str) -> str:
    """What to write where an error is about a name that no fact has; empty for another error."""
    match = _NO_TABLE.match(says)
    if not match:
        return ""
    near = difflib.get_close_matches(match[1], fact_names() | TABLES.keys(), 3)
    similar = f"similar: {', '.join(near)}; " if near else ""
    return f"no fact is named {match[1]!r}; {similar}without a statement `ettr sql` lists them"


def name_facts(facts: Facts, sql: str) -> None:
    """Let what a SELECT over facts names stand under these names in the engine.

    Raises:
        UsageError: it is no single SELECT, or names a fact that one question alone has.
    """
    _check(sql)
    duck = _duck_of(facts)
    for name in sorted(set(_WORD.findall(sql.lower())) & (fact_names() | TABLES.keys())):
        if _is_of_a_question(name):
            raise UsageError(f"{name}: is about what one question asks, and cannot be read alone")
        duck.run(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {facts.table(name)}")


def _duck_of(facts: Facts) -> Duck:
    if not isinstance(facts.engine, Duck):
        raise UsageError("a statement of your own runs on DuckDB; open the store without engine")
    return facts.engine


def _check(sql: str) -> None:
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(f"DuckDB: {error}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError("give one SELECT statement: a store is read here, never written")


def _is_of_a_question(name: str) -> bool:
    """Whether a fact takes, by itself or through what it reads, what one question gives."""
    if name in TABLES:
        return False
    try:
        one = fact(name)
    except KeyError:  # made where its question is, which nobody has asked
        return True
    return not _OF_A_QUESTION.isdisjoint(one.takes) or any(map(_is_of_a_question, one.reads))


def _means(one: Fact) -> str:
    """The header's first sentence."""
    lines = [line[2:].strip() for line in one.text.splitlines() if line.startswith("--")]
    text = " ".join(lines) or (one.make.__doc__ if one.make else "") or ""
    first = text.split(". ")[0].split("\n\n")[0].strip().rstrip(".")
    return f"{first}." if first.startswith("One row") else ""


def _narrow(name: str, kind: str) -> str:
    return f"{name}_us" if kind.startswith("timestamp") else name
