"""The files behind the facts, and what each fact depends on, read off its text.

A file in `sql/` holds the facts of one subject, in DuckDB's dialect, one after the other, each a
header of comments (one row is ...; columns, units, what null means) and one `CREATE TABLE NAME AS`.
What it reads are the names after FROM and JOIN; what it takes are the names after `$`. A line
`-- keep: view` in the header keeps it as a view, which takes nothing, `-- keep: small` as one
unless the store has few attempts, and `-- keep: no` keeps no table of it, only what was fetched;
the rest are tables.

A rule that SQL would make unreadable (a state machine over few rows, a taxonomy's verdicts) is a
fact made in Python: a function under `made`, which names what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa


SQL = Path(__file__).parent / "sql"
_PART = re.compile(
    r"((?:^--[^\n]*\n)*)CREATE (?:TABLE|VIEW) (\w+) AS\n(.*?);$(?=\n\n|\n?\Z)",
    re.DOTALL | re.MULTILINE,
)
_READS = re.compile(r"\b(FROM|JOIN)(\s+)([a-z_][a-z0-9_]*)\b(?!\s*\()", re.IGNORECASE)
_TAKES = re.compile(r"\$([a-z_][a-z0-9_]*)")
_COMMENT = re.compile(r"--[^\n]*")
_KEEP = re.compile(r"^-- keep: (view|small|no)$", re.MULTILINE)
Rows = Sequence[tuple[object, ...]]
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact, before any store."""

    name: str
    text: str
    code: str
    keep: str
    reads: tuple[str, ...]
    takes: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] = ()
    make: Callable[[Any], Rows | str] | None = None

    def code_with(self, physical: Callable[[str], str]) -> str:
        """The statement with every table that it reads under another name."""

        def renamed(found: re.Match[str]) -> str:
            if found[3] not in self.reads:
                return found[0]
            return f"{found[1]}{found[2]}{physical(found[3])}"

        return _READS.sub(renamed, self.code)


_MADE: dict[str, Fact] = {}
_NOT_LOADED: list[Callable[[], None]] = []


def made(
    name: str,
    columns: Sequence[tuple[str, str]],
    *,
    reads: Sequence[str] = (),
    takes: Sequence[str] = (),
) -> Callable[[Callable[[Any], Rows | str]], Callable[[Any], Rows | str]]:
    """Register a function that makes the rows of a small fact in Python.

    Args:
        columns: its columns with their SQL types, in the order of the rows' values.
    """

    def register(make: Callable[[Any], Rows | str]) -> Callable[[Any], Rows | str]:
        _MADE[name] = Fact(name, "", "", "table", tuple(reads), tuple(takes), tuple(columns), make)
        return make

    return register


def fact_names() -> frozenset[str]:
    """Names of all facts."""
    return frozenset((*_in_files(), *_MADE))


def load_when_unknown(load: Callable[[], None]) -> None:
    """Have what makes further facts in Python loaded once a name is not known without it."""
    _NOT_LOADED.append(load)


def is_fact(name: str) -> bool:
    """Whether there is a fact of that name, loading what makes facts where it may be one."""
    while name not in _MADE and name not in _in_files():
        if not _NOT_LOADED:
            return False
        _NOT_LOADED.pop()()
    return True


def fact(name: str) -> Fact:
    """The fact of that name. Raises KeyError: there is none."""
    if not is_fact(name):
        raise KeyError(name)
    return _MADE[name] if name in _MADE else _of_file(name)


@cache
def _in_files() -> dict[str, tuple[str, str]]:
    """Of each fact in a file its part of the file, and its statement."""
    return {
        part[2]: (part[0], part[3])
        for path in SQL.glob("*.sql")
        for part in _PART.finditer(path.read_text(encoding="utf-8"))
    }


@cache
def _of_file(name: str) -> Fact:
    text, statement = _in_files()[name]
    code = _COMMENT.sub("", statement).strip()
    keep = _KEEP.search(text)
    named = dict.fromkeys(found[3] for found in _READS.finditer(code))
    steps = set(
        re.findall(
            r"(?:\bWITH|,)\s+(?:RECURSIVE\s+)?([a-z_][a-z0-9_]*)\s+AS\s*\(", code, re.IGNORECASE
        )
    )
    return Fact(
        name,
        text,
        code,
        keep[1] if keep else "table",
        tuple(other for other in named if other not in steps),
        tuple(dict.fromkeys(_TAKES.findall(code))),
    )


# -- what an engine of facts does; statements are in DuckDB's dialect ------------------------------


class FactEngine(Protocol):
    """Statements on one engine, which keeps facts under names."""

    def create(self, name: str, sql: str, bound: Mapping[str, Any], *, view: bool) -> None:
        """Keep what a statement selects, as rows or as a view."""

    def put(self, name: str, columns: Sequence[tuple[str, str]], rows: Rows) -> None:
        """Keep few rows that were made elsewhere."""

    def put_arrow(self, name: str, rows: pa.Table) -> None:
        """Keep rows that were made elsewhere, in Arrow's types."""

    def names(self, sql: str) -> list[str]:
        """Names of the columns of a statement."""

    def rows(self, sql: str, bound: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of a statement as dictionaries."""

    def columns(self, sql: str, bound: Mapping[str, Any]) -> Columns:
        """Columns of a statement as arrays."""

    def arrow(self, sql: str, bound: Mapping[str, Any]) -> pa.Table:
        """Rows of a statement as an Arrow table."""
