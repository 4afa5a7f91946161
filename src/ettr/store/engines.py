"""The engines that keep a store where it is no folder: a DuckDB file, and PostgreSQL.

A store asks three things of its engine: what was written is still there tomorrow, an ingestion is
one transaction, and a command reads all tables as of one moment. Engines that are not known to do
all three are refused.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import ibis
import pyarrow as pa
from ibis.backends import BaseBackend

from ettr.errors import StoreError, UsageError
from ettr.files import DRAFT_ENDING
from ettr.store.base import disconnect
from ettr.store.integrity import corrupt, decode_all
from ettr.store.layout import Access

_MAGIC, _MAGIC_AT = b"DUCK", 8
_LOCK_SPACE = 0x65747472  # "ettr", for the advisory locks of a database that others use too
_PRIVATE_UMASK = 0o077
_PATIENCE_S = 60
MOTHERDUCK = ("md:", "motherduck:")
KEPT = "a folder, a file ending in .duckdb, or postgres://USER@HOST/DATABASE"


class Engine(ABC):
    """An open database that keeps the tables of a store.

    Attributes:
        backend: the Ibis backend.
        where: the place as messages name it, without a password.
        errors: what the engine raises where it cannot read or write.
    """

    backend: BaseBackend
    where: str
    errors: tuple[type[Exception], ...]

    @abstractmethod
    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let no other process write until the context is left.

        Raises:
            StoreError: another one does.
        """

    @abstractmethod
    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written in the context is there after it, or nothing is."""

    @abstractmethod
    def replace(self, name: str, rows: pa.Table) -> None:
        """Let a table hold these rows alone."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Read all that is stored, where the engine can separate damage from a bug.

        Raises:
            StoreError: something is corrupt.
        """

    def close(self) -> None:
        """Close the connection."""
        disconnect(self.backend)


class DuckDBFile(Engine):
    """A DuckDB file; read without a lock on other readers, and written by one process at a time."""

    def __init__(
        self,
        path: Path,
        where: str,
        *,
        create: bool = False,
        readable_by: Access | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        import duckdb

        # DuckDB reads the beginning of a name such as sqlite:x as the kind of another database
        self._path = path = path.absolute()
        self.where, self._settings = where, settings or {}
        self.errors = (duckdb.Error,)
        _check_file(path, where, to_write=create)
        if create and _is_absent(path):
            self._make(readable_by or Access.OWNER)
        elif not path.exists():
            raise StoreError(f"{where}: no such store; `ettr ingest {where} FILE...` makes one")
        elif readable_by is not None:
            path.chmod(readable_by.file_mode)
        self._writable = create
        try:
            self.backend = ibis.duckdb.connect(path, read_only=not create, **self._settings)
        except Exception as error:
            raise self._cannot_open(error) from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let no other process open the file: DuckDB's own lock."""
        if not self._writable:
            _check_file(self._path, self.where, to_write=True)
            self.backend.disconnect()
            try:
                self.backend.do_connect(database=self._path, read_only=False, **self._settings)
            except self.errors as error:
                raise self._cannot_open(error) from error
            self._writable = True
        yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction; its log next to the file is for the owner's eyes."""
        umask = os.umask(_PRIVATE_UMASK)
        try:
            self.backend.raw_sql("BEGIN TRANSACTION")
            try:
                yield
                self.backend.raw_sql("COMMIT")
            except BaseException:
                with suppress(*self.errors):  # a commit that failed has ended it
                    self.backend.raw_sql("ROLLBACK")
                raise
        finally:
            os.umask(umask)

    def replace(self, name: str, rows: pa.Table) -> None:
        """Let a table hold these rows alone, in columns typed as theirs."""
        self.backend.create_table(name, rows, overwrite=True)

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


class Postgres(Engine):
    """A schema of a PostgreSQL database; read as of one moment."""

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
            self.backend = ibis.connect(f"postgres{url[url.index('://') :]}")
        except Exception as error:  # a wrong parameter is any exception of the driver
            raise StoreError(f"{self.where}: cannot be opened: {_first_line(error)}") from error
        self.backend.con.adapters.register_loader("numeric", _number_loader())
        self._snapshot: Any = None
        if not create:
            self.backend.con.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._snapshot = self.backend.con.transaction(force_rollback=True)
            self._snapshot.__enter__()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold an advisory lock of the schema."""
        self._leave_snapshot()
        with self.backend.con.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = '{_PATIENCE_S}s'")
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
        with self.backend.con.transaction():
            yield

    def replace(self, name: str, rows: pa.Table) -> None:
        """Let a table hold these rows alone.

        Who reads the older rows keeps them: a table that is dropped would wait for its readers.
        """
        there = self.backend.table(name).schema()
        nullable = all(
            there[column.name].nullable or not column.nullable
            for column in rows.schema
            if column.name in there
        )
        if set(there) != set(rows.column_names) or not nullable:
            self.backend.create_table(name, rows, overwrite=True)
            return
        with self.backend.con.cursor() as cursor:
            cursor.execute(f'DELETE FROM "{name}"')  # noqa: S608
        self.backend.insert(name, rows)

    def check_integrity(self) -> None:
        """Nothing: the server looks after what it keeps."""

    def close(self) -> None:
        """Close the connection."""
        with suppress(*self.errors):
            self._leave_snapshot()
        super().close()

    def _leave_snapshot(self) -> None:
        if self._snapshot is not None:
            snapshot, self._snapshot = self._snapshot, None
            snapshot.__exit__(None, None, None)
            self.backend.con.isolation_level = None

    def _value(self, query: str) -> object:
        with self.backend.con.cursor() as cursor:
            return cursor.execute(query).fetchone()[0]


def open_url(url: str, *, create: bool, readable_by: Access | None) -> Engine:
    """Open the engine that a URL names.

    Raises:
        StoreError: it is not there, cannot be opened, or cannot keep a store.
        UsageError: the access to the files of a database server is asked for.
    """
    scheme = url.partition("://")[0].lower()
    if scheme == "duckdb":
        return _duckdb_by_url(url, create, readable_by)
    if scheme in {"postgres", "postgresql"}:
        if readable_by is not None:
            raise UsageError(
                "--readable-by is for a folder or a DuckDB file; in a database server grant the "
                "rights there"
            )
        return Postgres(url, create=create)
    raise _no_store(url, scheme)


def _duckdb_by_url(url: str, create: bool, readable_by: Access | None) -> DuckDBFile:
    # as Ibis reads such a URL: duckdb://a/b is a relative path, duckdb:///a/b an absolute one
    path, _, query = url.partition("://")[2].partition("?")
    if path in {"", "/", ":memory:"}:
        raise StoreError(
            f"{url}: names no file, so nothing would be kept; give duckdb://site.duckdb"
        )
    if path.startswith(MOTHERDUCK):
        raise _no_store(url, "MotherDuck")
    settings = dict(parse_qsl(query))
    settings.pop("read_only", None)
    return DuckDBFile(Path(path), url, create=create, readable_by=readable_by, settings=settings)


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
    how = (
        "; Spark reads a folder: ettr.store.folder.FolderStore(FOLDER, backend=...)"
        if "spark" in name
        else ""
    )
    return StoreError(
        f"{url.partition('://')[0]}://: {name or 'it'} is not known to keep a store whole; give "
        f"{KEPT}{how}"
    )


def _number_loader() -> type[Any]:
    """What reads a `numeric` as the number that Ibis typed it as, which no Decimal is.

    PostgreSQL types sums of whole numbers, and numbers that a query states, so.
    """
    from psycopg.adapt import Loader

    class NumberLoader(Loader):
        def load(self, data: Any) -> float:
            text = bytes(data)
            return int(text) if text.lstrip(b"-").isdigit() else float(text)

    return NumberLoader


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
    """Refuse what is no plain file, and to write through a symbolic link.

    Raises:
        StoreError: it is one of these.
    """
    if to_write:
        for one in (path, path.with_name(f"{path.name}.wal")):
            if one.is_symlink():
                raise StoreError(
                    f"{one}: is a symbolic link, and no link is followed to write a store; name "
                    "the file that it leads to"
                )
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise StoreError(f"{where}: is no file; give a name for a file that ends in .duckdb")


def _first_line(error: Exception) -> str:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error).strip()
    return why.splitlines()[0] if why else type(error).__name__
