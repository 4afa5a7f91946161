"""Facts in the SQL of other engines, for sites whose tables outgrow one machine.

sqlglot translates; each function below mends what it changes in silence, or writes as no engine
takes it. That a statement translates proves nothing: `tests/facts/test_other_engines.py` runs every
file on each engine and compares the rows. PostgreSQL must collate as C, as DuckDB and Spark do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ettr.errors import UsageError

ENGINES = ("spark", "postgres")


def translated(code: str, engine: str, given: Mapping[str, Any]) -> str:
    """A fact's statement as an engine takes it, the values that it takes written into it.

    Raises:
        UsageError: sqlglot is not installed.
        sqlglot.errors.UnsupportedError: the engine has no such construct.
    """
    try:
        import sqlglot
    except ModuleNotFoundError:
        raise UsageError(f"sqlglot is not installed: `pip install 'ettr[{engine}]'`") from None
    tree = sqlglot.parse_one(code, read="duckdb").transform(partial(_written, given=given))
    for mend in _MENDED[engine]:
        tree = tree.transform(mend)
    text: str = tree.sql(dialect=engine, unsupported_level=sqlglot.ErrorLevel.RAISE)
    return text


def _written(node: Any, given: Mapping[str, Any]) -> Any:
    """A value in place of its name: no engine but DuckDB binds any in CREATE TABLE ..."""
    from sqlglot import exp

    if not isinstance(node, exp.Placeholder):
        return node
    value = given[node.name]
    literal = exp.convert(value)
    return exp.cast(literal, "double") if isinstance(value, float) else literal


def _series(node: Any) -> Any:
    """PostgreSQL: `unnest(range(a, b))` is a set already."""
    from sqlglot import exp

    if isinstance(node, exp.Explode) and isinstance(node.this, exp.GenerateSeries):
        return node.this
    return node


def _whole_division(node: Any) -> Any:
    """PostgreSQL: `//` became DIV, which is numeric; `/` of whole numbers truncates likewise."""
    from sqlglot import exp

    if not isinstance(node, exp.IntDiv):
        return node
    sides = (exp.paren(exp.cast(side.copy(), "bigint")) for side in (node.left, node.right))
    return exp.paren(exp.Div(**dict(zip(("this", "expression"), sides, strict=True)), typed=True))


def _half_up(node: Any) -> Any:
    """PostgreSQL: a double at a half is rounded to the even number; a numeric away from 0."""
    from sqlglot import exp

    if isinstance(node, exp.Round) and not isinstance(node.this, exp.Cast):
        return exp.Round(this=exp.cast(node.this, "decimal"), decimals=node.args.get("decimals"))
    return node


def _named_subquery(node: Any) -> Any:
    """PostgreSQL before 16: a subquery behind FROM or JOIN needs a name."""
    from sqlglot import exp

    if isinstance(node, exp.Subquery) and isinstance(node.parent, exp.From | exp.Join):
        return node if node.alias else exp.alias_(node, "unnamed", table=True)
    return node


def _in_spark(node: Any) -> Any:
    """Spark: DuckDB's hash, of which only equality is asked, its sums, and its times."""
    from sqlglot import exp

    name = _SPARK_NAMES.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
    return node if name is None else exp.Anonymous(this=name, expressions=node.expressions)


_SPARK_NAMES = {
    "make_timestamptz": "timestamp_micros",
    "epoch_us": "unix_micros",
    "hash": "xxhash64",
}
_MENDED: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "spark": (_in_spark,),
    "postgres": (_series, _whole_division, _half_up, _named_subquery),
}
