"""Every fact in a file says on Spark and on PostgreSQL what it says on DuckDB, row for row.

Commands ask for facts on DuckDB; each is then translated and run with the same inputs, of which it
finds the most rows.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pytest

from cli.program import ettr
from ettr.analysis import back_test  # noqa: F401 - facts made in Python
from ettr.facts import Facts
from ettr.facts.files import SQL, Fact, fact_names
from ettr.facts.files import fact as fact_of
from ettr.facts.spark import translated
from ettr.store import folder as folder_store
from ettr.store.folder import FolderStore
from facts.asked_stores import DIRECT, STORES
from store.postgres_server import running

SPARK = {
    "driver.bindAddress": "127.0.0.1",
    "driver.host": "127.0.0.1",
    "sql.session.timeZone": "UTC",
    "sql.shuffle.partitions": "1",
    "ui.enabled": "false",
    # compiling each plan to Java would cost more than running it on so few rows
    "sql.codegen.wholeStage": "false",
    "sql.codegen.factoryMode": "NO_CODEGEN",
    "sql.adaptive.enabled": "false",
    # nothing runs often enough to be worth the second compiler: two fifths of the CPU seconds
    "driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
NAMES = sorted(name for name in fact_names() if fact_of(name).code)
NOT_TRANSLATED = {"node_lists": "hash(), DuckDB's own of 64 bits"}
TRANSLATED = [name for name in NAMES if name not in NOT_TRANSLATED]
MOST_ROWS = 5000
LOGS = Path(__file__).resolve().parents[1] / "data" / "bad_morning"
COMMANDS = ("goodput", "nodes")


@dataclass(frozen=True)
class Asked:
    """A fact as a command asked for it."""

    fact: Fact
    inputs: dict[str, str]
    given: dict[str, Any]
    duck: Any
    n_rows: int

    def code(self, name_of: Callable[[str], str]) -> str:
        return self.fact.code_with(lambda name: name_of(self.inputs[name]))

    @cached_property
    def rows(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        found = self.duck.execute(self.code(str), self.given or None)
        return [column[0] for column in found.description], found.fetchall()


class Asking:
    """What was asked, by fact: that of most rows, up to what is soon compared."""

    def __init__(self) -> None:
        self.of: dict[str, Asked] = {}
        self.last: Facts | None = None
        self._real = Facts._bound

    def bound(self, facts: Facts, one: Fact) -> dict[str, Any]:
        given, self.last = self._real(facts, one), facts
        inputs = {name: facts.table(name) for name in one.reads}
        duck = facts.engine.connection
        counted = f"SELECT count(*) FROM ({one.code_with(inputs.__getitem__)}) counted"
        ((n_rows,),) = duck.execute(counted, given or None).fetchall()
        before = self.of.get(one.name)
        if before is None or before.n_rows < n_rows <= MOST_ROWS:
            self.of[one.name] = Asked(one, inputs, given, duck, n_rows)
        return given


def normal(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return value


def key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        (value is None, f"{value:.9e}" if isinstance(value, int | float) else str(value))
        for value in row
    )


def same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str | bool):
        return bool(one == other)
    return bool(one == other) or abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def compare(theirs: list[tuple[Any, ...]], ours: list[tuple[Any, ...]], sql: str) -> None:
    pairs = [sorted((tuple(map(normal, row)) for row in rows), key=key) for rows in (ours, theirs)]
    assert len(pairs[0]) == len(pairs[1]), sql
    for one, other in zip(*pairs, strict=True):
        assert len(one) == len(other), sql
        assert all(map(same, one, other)), (one, other, sql)


class Spark:
    """A session whose inputs are Parquet files of what DuckDB has."""

    types: ClassVar = {"VARCHAR": "string", "INTEGER": "bigint", "HUGEINT": "bigint"}

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder = session, folder

    def load(self, name: str, source: str, duck: Any) -> None:
        path = self.folder / f"{name}.parquet"
        columns, typed = columns_of(duck, source, self.types)
        duck.execute(f"COPY (SELECT {columns} FROM {source}) TO '{path}' (FORMAT parquet)")
        found = self.session.read.schema(", ".join(f"`{c}` {t}" for c, t in typed))
        found.parquet(str(path)).createOrReplaceTempView(name)

    def rows(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        found = self.session.sql(sql)
        return found.columns, [tuple(row) for row in found.collect()]


class Postgres:
    """A server whose inputs are temporary tables of what DuckDB has."""

    types: ClassVar = {
        "VARCHAR": "text",
        "DOUBLE": "double precision",
        "INTEGER": "bigint",
        "HUGEINT": "bigint",
    }

    def __init__(self, server: Any) -> None:
        self.server = server

    def load(self, name: str, source: str, duck: Any) -> None:
        columns, typed = columns_of(duck, source, self.types)
        listed = ", ".join(f'"{column}" {kind}' for column, kind in typed)
        self.server.execute(f"CREATE TEMP TABLE {name} ({listed})")
        rows = duck.execute(f"SELECT {columns} FROM {source}").fetchall()
        with self.server.cursor().copy(f"COPY {name} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def rows(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        found = self.server.execute(sql)
        return [column.name for column in found.description], found.fetchall()


def columns_of(duck: Any, source: str, types: dict[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """What to select of a table, and its columns with an engine's types; wide integers narrowed."""
    described = duck.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    wide = ("HUGEINT", "INTEGER")
    columns = ", ".join(
        f'CAST("{name}" AS BIGINT) AS "{name}"' if kind in wide else f'"{name}"'
        for name, kind, *_ in described
    )
    return columns, [(name, types.get(kind, kind.lower())) for name, kind, *_ in described]


class Others:
    """Runs facts on one engine, each input loaded once."""

    def __init__(self, name: str, engine: Spark | Postgres) -> None:
        self.name, self.engine = name, engine
        self._loaded: dict[tuple[int, str], str] = {}

    def rows(self, asked: Asked) -> tuple[str, list[str], list[tuple[Any, ...]]]:
        def name_of(source: str) -> str:
            at = (id(asked.duck), source)
            if at not in self._loaded:
                self._loaded[at] = f"given_{len(self._loaded)}"
                self.engine.load(self._loaded[at], source, asked.duck)
            return self._loaded[at]

        sql = translated(asked.code(name_of), self.name, asked.given)
        return sql, *self.engine.rows(sql)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Asked]]:
    """What the commands asked of the stores."""
    asking, close = Asking(), FolderStore.close
    stores: list[FolderStore] = []
    least_rows = folder_store.LEAST_ROWS

    def bound(facts: Facts, one: Fact) -> dict[str, Any]:
        return asking.bound(facts, one)

    def left_open(store: FolderStore) -> None:
        stores.append(store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Facts, "_bound", bound)
        patch.setattr(FolderStore, "close", left_open)
        for name, made in STORES.items():
            folder = tmp_path_factory.mktemp(name)
            patch.setattr(folder_store, "LEAST_ROWS", 1 if name == "example" else least_rows)
            for words in made(folder):
                done = ettr(*words)
                assert done.code == 0, (words, done.err)
        assert asking.last is not None
        for name, given in DIRECT.items():
            asking.last.under(**given).rows(name)
    yield asking.of
    for store in stores:
        close(store)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Others]:
    pyspark = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = pyspark.SparkSession.builder.master("local[1]")
    for name, value in SPARK.items():
        made = made.config(f"spark.{name}", value)
    folder = tmp_path_factory.mktemp("spark")
    handler = signal.getsignal(signal.SIGINT)
    session = made.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    # PySpark's own handler outlives its session and fails then, in whichever test comes next
    signal.signal(signal.SIGINT, handler)
    yield Others("spark", Spark(session, folder))
    session.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Others]:
    psycopg = pytest.importorskip("psycopg")
    with running() as url:
        with psycopg.connect(f"{url}/postgres", autocommit=True) as admin:
            admin.execute("CREATE DATABASE facts TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        with psycopg.connect(f"{url}/facts", autocommit=True) as server:
            yield Others("postgres", Postgres(server))


@pytest.mark.slow
def test_each_fact_in_a_file_has_rows_in_a_store(asked: dict[str, Asked]):
    assert sorted(asked) == NAMES
    assert not [name for name, one in asked.items() if not one.n_rows]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(SQL.glob("*.sql")), ids=lambda path: path.stem)
def test_a_file_as_a_whole_runs_in_plain_duckdb(path: Path, asked: dict[str, Asked]):
    """What stands above in the file is there; of what stands elsewhere the columns suffice."""
    parts = [fact_of(name) for name in re.findall(r"^CREATE \w+ (\w+) AS$", path.read_text(), re.M)]
    with duckdb.connect() as plain:
        for other in {other for one in parts for other in one.reads} - {one.name for one in parts}:
            one = next(asked[part.name] for part in parts if other in part.reads)
            columns = one.duck.execute(f"DESCRIBE {one.inputs[other]}").fetchall()
            listed = ", ".join(f'"{name}" {kind}' for name, kind, *_ in columns)
            plain.execute(f"CREATE TABLE {other} ({listed})")
        for part, statement in zip(parts, plain.extract_statements(path.read_text()), strict=True):
            given = {name: asked[part.name].given[name] for name in part.takes}
            plain.execute(statement, given or None)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRANSLATED)
def test_spark_says_the_same(name: str, asked: dict[str, Asked], spark: Others):
    says_the_same(name, asked, spark)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_the_same_on_spark(
    command: str, spark: Others, tmp_path_factory: pytest.TempPathFactory
):
    """Whole reports take minutes: docs/how-to/use-spark.md has their outcome."""
    place = tmp_path_factory.getbasetemp() / "on_spark"
    if not place.exists():
        logs = map(str, sorted(LOGS.iterdir()))
        assert ettr("ingest", str(place), *logs, "--timezone", "UTC").code == 0
    ours, theirs = (
        ettr(command, str(place), "--json", "--engine", engine) for engine in ("duckdb", "spark")
    )
    assert (ours.code, theirs.code) == (0, 0), theirs.err
    same_json(json.loads(ours.out), json.loads(theirs.out), command)


def same_json(one: Any, other: Any, at: str) -> None:
    """Equal, numbers to 1e-9 of themselves."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for name in one:
            same_json(one[name], other[name], f"{at}.{name}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for place, pair in enumerate(zip(one, other, strict=True)):
            same_json(*pair, f"{at}[{place}]")
    else:
        assert same(one, other), (at, one, other)


@pytest.mark.postgres
@pytest.mark.parametrize("name", TRANSLATED)
def test_postgres_says_the_same(name: str, asked: dict[str, Asked], postgres: Others):
    says_the_same(name, asked, postgres)


def says_the_same(name: str, asked: dict[str, Asked], other: Others) -> None:
    columns, rows = asked[name].rows
    sql, their_columns, theirs = other.rows(asked[name])
    assert their_columns == columns, sql
    compare(theirs, rows, sql)
