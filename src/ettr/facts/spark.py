"""Spark as the engine of facts: it reads a store's Parquet itself, and hands out what is asked for.

What reaches this process is bounded by Spark's own `spark.driver.maxResultSize`, 1 GiB unless set.
A fact is kept by its executors (`localCheckpoint`), so that no plan holds those behind it.

sqlglot translates, for PostgreSQL too; what it changes in silence, or writes as no engine takes it,
is mended. That a statement translates proves nothing: `tests/facts/test_other_engines.py` runs
every file on each engine and compares the rows. PostgreSQL must collate as C, as DuckDB and Spark
do.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from ettr.errors import StoreError, UsageError
from ettr.facts.files import Columns, Rows
from ettr.store.computing import DUCKDB, Computing
from ettr.tables.columns import Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from ettr.store import Store
    from ettr.tables import Table


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


_PORTS = {"spark": 7077, "sc": 15002}
_PATIENCE_S = 10.0
_TYPES = {
    Kind.STRING: "string",
    Kind.INT: "bigint",
    Kind.FLOAT: "double",
    Kind.BOOL: "boolean",
    Kind.TIME: "timestamp",
}
_FACT = re.compile(r"\bfact_(\w+?)_\d+\b")
_DETAIL = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
_OF_A_SESSION_OF_OURS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_JAVA = "spark.driver.extraJavaOptions"
_FEW_ROWS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
_FOR_FEW_ROWS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_QUIET = """rootLogger.level = error
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %p %c{1}: %m%n
"""
_TOO_LARGE = "spark.driver.maxResultSize"


class Spark:
    """Statements in DuckDB's dialect on one session of Spark, whose facts are temporary views."""

    def __init__(self, session: Any, where: str, *, is_small: bool = False) -> None:
        self._session, self._where, self._is_small = session, where, is_small

    def source(self, table: Table, parts: Sequence[str]) -> str:
        """The name of a view over the parts of a stored table, with every column of its schema."""
        types = {column.name: _TYPES[column.kind] for column in table}
        name = f"stored_{table.name}"
        with self._in_words(name):
            if parts:
                typed = ", ".join(f"`{column}` {kind}" for column, kind in types.items())
                rows = self._session.read.schema(typed).parquet(*parts)
                rows = self._held(rows) if self._is_small else rows
            else:
                rows = self._no_rows(types)
            rows.createOrReplaceTempView(name)
        return name

    def create(self, name: str, sql: str, bound: Mapping[str, Any], *, view: bool) -> None:
        """Keep what a statement selects, as rows or as a view."""
        with self._in_words(name):
            rows = self._selected(sql, bound)
            (rows if view else self._held(rows)).createOrReplaceTempView(name)

    def put(self, name: str, columns: Sequence[tuple[str, str]], rows: Rows) -> None:
        """Keep few rows that were made elsewhere."""
        import pyarrow as pa

        types = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64()}
        types |= {"INTEGER": pa.int64(), "BOOLEAN": pa.bool_()}
        values = [*zip(*rows, strict=True)] or [()] * len(columns)
        arrays = {
            column: pa.array(of_column, types[kind])
            for (column, kind), of_column in zip(columns, values, strict=True)
        }
        self.put_arrow(name, pa.table(arrays))

    def put_arrow(self, name: str, rows: pa.Table) -> None:
        """Keep rows that were made elsewhere, in Arrow's types."""
        with self._in_words(name):
            self._of_arrow(rows).createOrReplaceTempView(name)

    def names(self, sql: str) -> list[str]:
        """Names of the columns of a statement."""
        with self._in_words(_asked_of(sql)):
            found: list[str] = self._selected(sql, {}).columns
            return found

    def rows(self, sql: str, bound: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of a statement as dictionaries."""
        found = self.arrow(sql, bound)
        columns = {name: found.column(name).to_pylist() for name in found.column_names}
        whole = [[_number(value) for value in values] for values in columns.values()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*whole, strict=True)]

    def columns(self, sql: str, bound: Mapping[str, Any]) -> Columns:
        """Columns of a statement as arrays."""
        found = self.arrow(sql, bound)
        return {name: _array(found.column(name)) for name in found.column_names}

    def arrow(self, sql: str, bound: Mapping[str, Any]) -> pa.Table:
        """Rows of a statement as an Arrow table."""
        with self._in_words(_asked_of(sql)):
            return self._selected(sql, bound).toArrow()

    def _held(self, rows: Any) -> Any:
        """Rows that are computed once: by the executors, or few of them as part of the plans."""
        if self._is_small:
            return self._of_arrow(rows.toArrow(), rows.schema)
        return rows.localCheckpoint()

    def _of_arrow(self, rows: pa.Table, schema: Any = None) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        if rows.num_rows:
            return self._session.createDataFrame(rows, schema)
        schema = schema or from_arrow_schema(rows.schema)
        return self._no_rows({one.name: one.dataType.simpleString() for one in schema})

    def _no_rows(self, types: Mapping[str, str]) -> Any:
        """Rows of which the planner knows that there are none: what reads them costs nothing."""
        typed = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in types.items())
        return self._session.sql(f"SELECT {typed} WHERE false")

    def _selected(self, sql: str, bound: Mapping[str, Any]) -> Any:
        return self._session.sql(translated(sql, "spark", bound))

    @contextmanager
    def _in_words(self, what: str) -> Iterator[None]:
        """Spark's own errors in a sentence."""
        from pyspark.errors import PySparkException

        errors: list[type[Exception]] = [PySparkException, ConnectionError]
        if "py4j.protocol" in sys.modules:
            errors.append(sys.modules["py4j.protocol"].Py4JError)
        try:
            yield
        except tuple(errors) as error:
            text = str(error)
            if _TOO_LARGE in text:
                raise StoreError(
                    f"{self._where}: the rows of {what} are more than may come to this process; "
                    f"select less (--since, --partition), or give --engine-option {_TOO_LARGE}=4g "
                    "(over Spark Connect the server's own setting)"
                ) from error
            why = _first_line(error)
            raise StoreError(f"{self._where}: Spark cannot compute {what}: {why}") from error


def spark_of(store: Store) -> tuple[Spark, Callable[[str], str]]:
    """Spark for the questions about a store, and what names its tables there.

    Raises:
        UsageError: the engine is not known, or its library is not installed.
        StoreError: it cannot be reached, or the store is not a folder of Parquet.
    """
    from ettr.tables import TABLES

    computing = store.computing
    if not store.keeps_parquet:
        raise StoreError(
            f"{store.where}: --engine {_shown(computing.engine)} reads a store that is a folder of "
            "Parquet; leave --engine out, or ingest the logs into a folder"
        )
    is_small = all(map(store.is_small, TABLES))
    session = session_of(computing, is_small=is_small)
    if is_small:  # to compile each plan to Java, and to split it, costs more than to run it
        for key, value in (_FOR_FEW_ROWS | dict(computing.options)).items():
            if key in _FOR_FEW_ROWS:
                session.conf.set(key, value)
    engine = Spark(session, _shown(computing.engine), is_small=is_small)
    made: dict[str, str] = {}

    def source(name: str) -> str:
        if name not in made:
            made[name] = engine.source(TABLES[name], store.parts_of(name))
        return made[name]

    return engine, source


def session_of(computing: Computing, *, is_small: bool = False) -> Any:
    """A session of the engine that was asked for, its clock UTC.

    Args:
        is_small: it will see few rows, and a Java of our own compiles for them.

    Raises:
        UsageError: the engine is not known, or its library is not installed.
        StoreError: it cannot be reached.
    """
    engine = computing.engine
    scheme, is_url, _ = engine.partition("://")
    if engine != "spark" and not (is_url and scheme in _PORTS):
        raise UsageError(
            f"--engine {engine}: give {DUCKDB}, spark (this machine, or what Spark's own settings "
            "say), spark://HOST:7077, or sc://HOST:15002 for Spark Connect"
        )
    odd = [key for key, _ in computing.options if not key.startswith("spark.")]
    if odd:
        raise UsageError(
            f"--engine-option {odd[0]}: settings of Spark begin with spark., as "
            "spark.executor.memory=8g"
        )
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(
            f"--engine {engine}: pyspark is not installed; pip install 'ettr[spark]'"
        ) from error
    shown = _shown(engine)
    if is_url:
        _check_there(shown, scheme)
    builder = SparkSession.builder
    own = _OF_A_SESSION_OF_OURS if engine == "spark" else {}
    for key, value in (own | dict(computing.options)).items():
        builder = builder.config(key, value)
    try:
        if scheme == "sc":
            session = builder.remote(engine).create()
        else:
            java = None if _JAVA in dict(computing.options) else _FEW_ROWS * is_small
            session = _classic(builder.master(engine) if is_url else builder, engine, java)
        session.conf.set("spark.sql.session.timeZone", "UTC")
    except StoreError:
        raise
    except ImportError as error:
        raise UsageError(
            f"--engine {shown}: Spark Connect needs more of pyspark; pip install 'ettr[spark]' "
            f"({str(error).splitlines()[0]})"
        ) from error
    except Exception as error:
        raise StoreError(f"{shown}: cannot be opened: {_first_line(error)}") from error
    return session


def _shown(engine: str) -> str:
    """The engine as messages have it: a URL of Spark Connect may hold a token."""
    return engine.partition("/;")[0]


def _classic(builder: Any, engine: str, java: str | None) -> Any:
    """A session in this process's own Java; of a context that is there, with its own settings."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise StoreError(
            f"--engine {engine}: Spark needs Java 17 or later here; install it, or give "
            "sc://HOST:15002 of a Spark Connect server, which needs none"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    handler = signal.getsignal(signal.SIGINT)
    with tempfile.NamedTemporaryFile("w", prefix="ettr-", suffix=".properties") as quiet:
        quiet.write(_QUIET)
        quiet.flush()
        if java is not None:
            builder = builder.config(_JAVA, f"{java}-Dlog4j2.configurationFile={quiet.name}")
        try:
            session = builder.getOrCreate()
        finally:
            # PySpark's own handler outlives its session and fails then
            signal.signal(signal.SIGINT, handler)
    return session.newSession()


def _check_there(engine: str, scheme: str) -> None:
    """Find out in seconds what Spark finds out in minutes: whether anyone answers."""
    hosts = engine.partition("://")[2].split("/")[0].split(";")[0].split(",")
    why = "no host is named"
    for host in filter(None, hosts):
        try:
            parts = urlsplit(f"//{host}")
            place = parts.hostname or "", parts.port or _PORTS[scheme]
            with socket.create_connection(place, timeout=_PATIENCE_S):
                return
        except (OSError, ValueError) as error:
            why = _first_line(error)
    raise StoreError(f"{engine}: no server answers: {why}; give {scheme}://HOST:{_PORTS[scheme]}")


def _first_line(error: Exception) -> str:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error).strip()
    if detail := _DETAIL.search(why):  # of a remote call, below a line that says little
        why = detail[1]
    return why.splitlines()[0] if why else type(error).__name__


def _asked_of(sql: str) -> str:
    """A statement by the facts that it reads."""
    return f"a statement about {', '.join(dict.fromkeys(_FACT.findall(sql))) or 'stored tables'}"


def _number(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _array(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column as facts hand it out: null is NaN in numbers, None elsewhere."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64() if kind.scale else pa.int64())
        kind = column.type
    if column.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = column.cast(pa.float64())
    elif column.null_count or not pa.types.is_primitive(kind):
        found = np.empty(len(column), dtype=np.object_)
        found[:] = column.to_pylist()
        return found
    return np.asarray(column.to_numpy())
