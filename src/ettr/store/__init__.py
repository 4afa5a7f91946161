"""Where tables live: a folder of Parquet (nothing to start), a DuckDB file, or any Ibis backend."""

from ettr.store.base import Ingestion, Store
from ettr.store.opening import is_store, open_store

__all__ = ["Ingestion", "Store", "is_store", "open_store"]
