"""Where tables live: a folder of Parquet (nothing to start), a DuckDB file, or any Ibis backend."""

from ettr.store.base import Ingestion, Store
from ettr.store.opening import open_store

__all__ = ["Ingestion", "Store", "open_store"]
