"""The engines that keep a store where it is no folder: a DuckDB file, and PostgreSQL.

A store asks three things of its engine: what was written is still there tomorrow, an ingestion is
one transaction, and a command reads all tables as of one moment. Engines that are not known to do
all three are refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from ettr.errors import StoreError, UsageError
from ettr.files import DRAFT_ENDING
from ettr.store.base import SQL_TYPES, corrupt, decode_all
from ettr.store.computing import Computing
from ettr.store.layout import Access
from ettr.tables import TABLES, Table
from ettr.tables.columns import Kind

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_MAGIC, _MAGIC_AT = b"DUCK", 8
_LOCK_SPACE = 0x65747472  # "ettr", for the advisory locks of a database that others use too
_PRIVATE_UMASK = 0o077
_PATIENCE_S = 60
_AT_ONCE = 50_000
_TYPES = {Kind.STRING: "TEXT", Kind.FLOAT: "DOUBLE PRECISION"}
MOTHERDUCK = ("md:", "motherduck:")
KEPT = (
    "a folder, s3://BUCKET/PREFIX (or gs, az), a file ending in .duckdb, or "
    "postgres://USER@HOST/DATABASE"
)


class DuckDBFile:
    """A DuckDB file; read without a lock on other readers, and written by one process at a time."""

    connection: duckdb.DuckDBPyConnection | None = None
    errors: tuple[type[Exception], ...]

    def __init__(
        self,
        path: Path,
        where: str,
        *,
        create: bool = False,
        readable_by: Access | None = None,
        settings: dict[str, Any] | None = None,
        computing: Computing | None = None,
    ) -> None:
        import duckdb

        # DuckDB reads the beginning of a name such as sqlite:x as the kind of another database
        self._path = path = path.absolute()
        self.where, self._settings = where, settings or {}
        self._computing = computing or Computing()
        self.errors = (duckdb.Error,)
        _check_file(path, where, to_write=create)
        if create and _is_absent(path):
            self._make(readable_by or Access.OWNER)
        elif not path.exists():
            raise StoreError(f"{where}: no such store; `ettr ingest {where} FILE...` makes one")
        elif readable_by is not None:
            path.chmod(readable_by.file_mode)
        self._writable = create
        self._open(read_only=not create)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let no other process open the file: DuckDB's own lock."""
        if not self._writable:
            _check_file(self._path, self.where, to_write=True)
            self.close()
            self._open(read_only=False)
            self._writable = True
        yield

    def _open(self, *, read_only: bool) -> None:
        try:
            self.connection = self._computing.connect(
                self._path, read_only=read_only, **self._settings
            )
        except Exception as error:
            raise self._cannot_open(error) from error
        (self._catalog,) = self._duck.execute("SELECT current_database()").fetchone() or ("",)

    @property
    def _duck(self) -> duckdb.DuckDBPyConnection:
        if self.connection is None:
            raise StoreError(f"{self.where}: is closed")
        return self.connection

    def place(self, name: str) -> str:
        """The table in the file: a temporary view may have its name."""
        catalog = self._catalog.replace('"', '""')
        return f'"{catalog}"."main"."{name}"'

    def columns(self, name: str) -> dict[str, bool] | None:
        """Columns of a table, and which may be null; None where there is no such table."""
        found = self._duck.execute(
            "SELECT column_name, is_nullable FROM duckdb_columns() "
            "WHERE database_name = ? AND schema_name = 'main' AND table_name = ?",
            [self._catalog, name],
        ).fetchall()
        return {column: bool(nullable) for column, nullable in found} or None

    def rows(self, name: str, columns: Sequence[str]) -> pa.Table:
        """All rows of a table that is there."""
        listed = ", ".join(f'"{column}"' for column in columns)
        query = f"SELECT {listed} FROM {self.place(name)}"  # noqa: S608 - names of ours
        return self._duck.sql(query).to_arrow_table()

    def make(self, table: Table) -> None:
        """Make a table without rows."""
        typed = ", ".join(
            f'"{column.name}" {SQL_TYPES[column.kind]}{"" if column.nullable else " NOT NULL"}'
            for column in table
        )
        self._duck.execute(f"CREATE TABLE {self.place(table.name)} ({typed})")

    def append(self, table: Table, rows: pa.Table) -> None:
        """Add rows to a table that has every column."""
        self._duck.register("rows_to_write", rows)
        try:
            self._duck.execute(
                f"INSERT INTO {self.place(table.name)} BY NAME SELECT * FROM rows_to_write"  # noqa: S608
            )
        finally:
            self._duck.unregister("rows_to_write")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction; its log next to the file is for the owner's eyes."""
        umask = os.umask(_PRIVATE_UMASK)
        try:
            self._duck.execute("BEGIN TRANSACTION")
            try:
                yield
                self._duck.execute("COMMIT")
            except BaseException:
                with suppress(*self.errors):  # a commit that failed has ended it
                    self._duck.execute("ROLLBACK")
                raise
        finally:
            os.umask(umask)

    def replace(self, table: Table, rows: pa.Table) -> None:
        """Let a table hold these rows alone, in columns typed as its schema has them."""
        self._duck.execute(f"DROP TABLE {self.place(table.name)}")
        self.make(table)
        self.append(table, rows)

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def check_integrity(self) -> None:
        """Read the file from end to end.

        The connection is closed: one that met corrupt data may refuse all that follows.
        """
        import duckdb

        with suppress(duckdb.Error):
            self.close()
        try:
            duck = duckdb.connect(self._path, read_only=True)
        except duckdb.Error:
            return  # held by another process, perhaps; what failed speaks for itself
        with duck:
            held = duck.execute("SELECT table_name FROM duckdb_tables()").fetchall()
            for (name,) in held:
                try:
                    decode_all(duck, f'"{name}"')
                except duckdb.Error as error:
                    raise corrupt(f"{self.where}, table {name}", error) from error

    def _make(self, access: Access) -> None:
        """An empty database under its name, or none: a file cut short would open for nobody."""
        import duckdb

        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{os.urandom(8).hex()}{DRAFT_ENDING}")
        try:
            duckdb.connect(draft).close()
            draft.chmod(access.file_mode)
            if self._path.exists():  # empty: nothing is lost
                draft.replace(self._path)
            else:
                with suppress(FileExistsError):  # another process made it meanwhile
                    os.link(draft, self._path)
        except (OSError, duckdb.Error) as error:
            raise StoreError(f"{self.where}: cannot be made: {_first_line(error)}") from error
        finally:
            draft.unlink(missing_ok=True)

    def _cannot_open(self, error: Exception) -> StoreError:
        text = _first_line(error)
        if "Conflicting lock" in text:
            holder = text.partition("Conflicting lock is held in ")[2].partition(". See")[0]
            return StoreError(
                f"{self.where}: another process ({holder}) is writing to this store; try again "
                "when it is done"
            )
        return StoreError(f"{self.where}: cannot be opened: {text}")


class Postgres:
    """A schema of a PostgreSQL database; read as of one moment."""

    connection = None
    errors: tuple[type[Exception], ...]

    def __init__(self, url: str, *, create: bool = False) -> None:
        parts = _url_parts(url)
        name = parts.hostname or ""
        user = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
        self.where = f"postgres://{user}{name}{port}{parts.path}"
        if not parts.path.strip("/"):
            raise StoreError(f"{self.where}: names no database; give postgres://USER@HOST/DATABASE")
        try:
            import psycopg
        except ImportError as error:
            raise StoreError(
                f"{self.where}: psycopg is not installed; pip install 'ettr[postgres]'"
            ) from error
        self.errors = (psycopg.Error,)
        try:
            self.server = psycopg.connect(url, autocommit=True)
        except Exception as error:  # a wrong parameter is any exception of the driver
            raise StoreError(f"{self.where}: cannot be opened: {_first_line(error)}") from error
        self.server.execute("SET TIME ZONE 'UTC'")
        self._snapshot: Any = None
        if not create:
            self.server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._snapshot = self.server.transaction(force_rollback=True)
            self._snapshot.__enter__()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold an advisory lock of the schema."""
        self._leave_snapshot()
        self.server.execute(f"SET lock_timeout = '{_PATIENCE_S}s'")
        query = f"({_LOCK_SPACE}, hashtext(current_schema()))"
        if not self._value(f"SELECT pg_try_advisory_lock{query}"):
            raise StoreError(
                f"{self.where}: another process is ingesting into this store; try again when it is "
                "done"
            )
        try:
            yield
        finally:
            with suppress(*self.errors):  # a connection that is gone holds no lock
                self._value(f"SELECT pg_advisory_unlock{query}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction."""
        with self.server.transaction():
            yield

    def place(self, name: str) -> str:
        """The name of one of our tables as statements write it."""
        return f'"{name}"'

    def columns(self, name: str) -> dict[str, bool] | None:
        """Columns of a table, and which may be null; None where there is no such table."""
        found = self.server.execute(
            "SELECT column_name, is_nullable = 'YES' FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name = %s",
            [name],
        ).fetchall()
        return dict(found) or None

    def rows(self, name: str, columns: Sequence[str]) -> pa.Table:
        """All rows of a table that is there."""
        import pyarrow as pa

        listed = ", ".join(f'"{column}"' for column in columns)
        kinds = {column.name: column.kind for column in TABLES[name]}
        schema = pa.schema([pa.field(column, kinds[column].arrow) for column in columns])
        batches = []
        with self.server.cursor() as cursor:
            cursor.execute(f'SELECT {listed} FROM "{name}"')  # noqa: S608 - names of ours
            while some := cursor.fetchmany(_AT_ONCE):
                arrays = [
                    pa.array(values, kinds[column].arrow)
                    for column, values in zip(columns, zip(*some, strict=True), strict=True)
                ]
                batches.append(pa.record_batch(arrays, schema=schema))
        return pa.Table.from_batches(batches, schema)

    def make(self, table: Table) -> None:
        """Make a table without rows."""
        typed = ", ".join(
            f'"{column.name}" {_TYPES.get(column.kind, SQL_TYPES[column.kind])}'
            f"{'' if column.nullable else ' NOT NULL'}"
            for column in table
        )
        self.server.execute(f'CREATE TABLE "{table.name}" ({typed})')

    def append(self, table: Table, rows: pa.Table) -> None:
        """Add rows to a table that has every column."""
        listed = ", ".join(f'"{column}"' for column in rows.column_names)
        with (
            self.server.cursor() as cursor,
            cursor.copy(f'COPY "{table.name}" ({listed}) FROM STDIN') as copy,
        ):
            for batch in rows.to_batches(_AT_ONCE):
                columns = [batch.column(place).to_pylist() for place in range(batch.num_columns)]
                for row in zip(*columns, strict=True):
                    copy.write_row(row)

    def replace(self, table: Table, rows: pa.Table) -> None:
        """Let a table hold these rows alone.

        Who reads the older rows keeps them: a table that is dropped would wait for its readers.
        """
        there = self.columns(table.name) or {}
        nullable = all(there.get(column.name, False) for column in table if column.nullable)
        if set(there) == set(table.names) and nullable:
            self.server.execute(f'DELETE FROM "{table.name}"')  # noqa: S608 - a name of ours
        else:
            self.server.execute(f'DROP TABLE "{table.name}"')
            self.make(table)
        self.append(table, rows)

    def check_integrity(self) -> None:
        """Nothing: the server looks after what it keeps."""

    def close(self) -> None:
        """Close the connection."""
        with suppress(*self.errors):
            self._leave_snapshot()
        self.server.close()

    def _leave_snapshot(self) -> None:
        if self._snapshot is not None:
            snapshot, self._snapshot = self._snapshot, None
            snapshot.__exit__(None, None, None)
            self.server.isolation_level = None

    def _value(self, query: str) -> object:
        row = self.server.execute(query).fetchone()
        return row[0] if row else None


Engine: TypeAlias = DuckDBFile | Postgres
"""An open database that keeps the tables of a store.

What is written in a `transaction` is there after it, or nothing is; while one process is `writing`
no other can, and `check_integrity` raises StoreError where something is corrupt.
"""


def open_url(url: str, *, create: bool, readable_by: Access | None, computing: Computing) -> Engine:
    """Open the engine that a URL names.

    Raises:
        StoreError: it is not there, cannot be opened, or cannot keep a store.
        UsageError: the access to the files of a database server is asked for.
    """
    scheme = url.partition("://")[0].lower()
    if scheme == "duckdb":
        return _duckdb_by_url(url, create, readable_by, computing)
    if scheme in {"postgres", "postgresql"}:
        if readable_by is not None:
            raise UsageError(
                "--readable-by is for a folder or a DuckDB file; in a database server grant the "
                "rights there"
            )
        return Postgres(url, create=create)
    raise _no_store(url, scheme)


def _duckdb_by_url(
    url: str, create: bool, readable_by: Access | None, computing: Computing
) -> DuckDBFile:
    # duckdb://a/b is a relative path, duckdb:///a/b an absolute one
    path, _, query = url.partition("://")[2].partition("?")
    if path in {"", "/", ":memory:"}:
        raise StoreError(
            f"{url}: names no file, so nothing would be saved; give duckdb://site.duckdb"
        )
    if path.startswith(MOTHERDUCK):
        raise _no_store(url, "MotherDuck")
    settings = dict(parse_qsl(query))
    settings.pop("read_only", None)
    return DuckDBFile(
        Path(path),
        url,
        create=create,
        readable_by=readable_by,
        settings=settings,
        computing=computing,
    )


def no_motherduck(text: str) -> StoreError:
    """Why what DuckDB takes for a database at MotherDuck is no store, and what to type instead."""
    return StoreError(
        f"{text}: MotherDuck is not known to keep a store whole; give {KEPT} (./{text} is a folder "
        "of that name)"
    )


def is_duckdb(path: Path) -> bool:
    """Whether a file is a DuckDB database, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC
    except OSError:
        return False


def _no_store(url: str, name: str) -> StoreError:
    return StoreError(
        f"{url.partition('://')[0]}://: {name or 'it'} is not known to keep a store whole; give "
        f"{KEPT}"
    )


def _url_parts(url: str) -> Any:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        scheme = url.partition("://")[0]
        raise StoreError(f"{scheme}://: is no URL: {error}; give {KEPT}") from error
    return parts


def _is_absent(path: Path) -> bool:
    """Whether there is no database: no file, or one without a byte."""
    return not path.exists() or path.stat().st_size == 0


def _check_file(path: Path, where: str, *, to_write: bool) -> None:
    """Refuse what is no plain file, and to write through a symbolic link."""
    if to_write:
        for one in (path, path.with_name(f"{path.name}.wal")):
            if one.is_symlink():
                raise StoreError(
                    f"{one}: is a symbolic link, and ettr follows none when it writes a "
                    "store; name the file that it leads to"
                )
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise StoreError(f"{where}: is not a file; give a name for a file that ends in .duckdb")


def _first_line(error: Exception) -> str:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error).strip()
    return why.splitlines()[0] if why else type(error).__name__
