"""Where tables live: a folder of Parquet (nothing to start), a DuckDB file, or any Ibis backend."""

from ettr.store.base import Ingestion, Store
from ettr.store.opening import is_store, open_store
from ettr.store.writing import Written, write_batches

__all__ = ["Ingestion", "Store", "Written", "is_store", "open_store", "write_batches"]
