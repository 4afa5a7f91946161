"""From what the user typed to a store."""

from __future__ import annotations

from pathlib import Path

from ettr.errors import StoreError
from ettr.store.base import Store
from ettr.store.layout import Access

_DUCKDB_ENDINGS = (".duckdb", ".ddb")


def open_store(
    where: str | Path, *, create: bool = False, readable_by: Access | None = None
) -> Store:
    """Open the store at `where`.

    Args:
        where: a folder, a DuckDB file (its name ends in .duckdb or .ddb where it is to be made),
            or the URL of a PostgreSQL database.
        readable_by: who may read its files; the owner of a new store, and of one that exists whom
            it had, if None.

    Raises:
        StoreError: it is not there, is something else, or its name is one of MotherDuck's.
        UsageError: `readable_by` is given for a database server.
    """
    from ettr.store.backend import BackendStore
    from ettr.store.engines import MOTHERDUCK, DuckDBFile, is_duckdb, no_motherduck, open_url
    from ettr.store.folder import FolderStore

    text = str(where)
    if "\0" in text:
        raise StoreError(f"{text!r}: no path or URL has a zero character in it")
    if "://" in text:
        return BackendStore(open_url(text, create=create, readable_by=readable_by))
    if text.startswith(MOTHERDUCK):
        raise no_motherduck(text)
    path = Path(text)
    if path.suffix in _DUCKDB_ENDINGS or is_duckdb(path):
        engine = DuckDBFile(path.absolute(), text, create=create, readable_by=readable_by)
        return BackendStore(engine)
    if path.is_file():
        raise StoreError(
            f"{path}: is a file, not a store; give a folder, or a name that ends in .duckdb "
            f"(`ettr ingest STORE {path}` reads a log into one)"
        )
    return FolderStore(path, create=create, readable_by=readable_by)


def is_store(where: str) -> bool:
    """Whether `where` names a store rather than a file to read."""
    from ettr.store.engines import MOTHERDUCK, is_duckdb

    path = Path(where)
    if "://" in where or where.startswith(MOTHERDUCK):
        return True
    return path.suffix in _DUCKDB_ENDINGS or path.is_dir() or is_duckdb(path)
