"""From what the user typed to a store."""

from __future__ import annotations

from pathlib import Path

from ettr.errors import StoreError
from ettr.store.base import Store

_DUCKDB_ENDINGS = (".duckdb", ".ddb")


def open_store(where: str | Path, *, create: bool = False) -> Store:
    """Open the store at `where`.

    Args:
        where: a folder, a file that ends in .duckdb or .ddb, or the URL of an Ibis backend.
        create: make it if it is not there.

    Raises:
        StoreError: it is not there, or is something else.
    """
    from ettr.store.backend import BackendStore
    from ettr.store.folder import FolderStore

    text = str(where)
    if "://" in text:
        return BackendStore.connect(text)
    path = Path(text)
    if path.suffix in _DUCKDB_ENDINGS:
        if not create and not path.exists():
            raise StoreError(f"{path}: no such store; `ettr ingest {path} FILE...` makes one")
        return BackendStore.connect(f"duckdb://{path.resolve()}", where=text)
    if path.is_file():
        raise StoreError(
            f"{path}: is a file, not a store; give a folder, or a name that ends in .duckdb "
            f"(`ettr ingest STORE {path}` reads a log into one)"
        )
    return FolderStore(path, create=create)


def is_store(where: str) -> bool:
    """Whether `where` names a store rather than a file to read."""
    path = Path(where)
    return "://" in where or path.suffix in _DUCKDB_ENDINGS or path.is_dir()
