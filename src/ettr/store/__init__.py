"""Where tables live: a folder of Parquet (nothing to start), a DuckDB file, or PostgreSQL."""

from ettr.store.base import Ingestion, Store
from ettr.store.layout import Access
from ettr.store.opening import is_store, open_store
from ettr.store.writing import Written, write_batches

__all__ = ["Access", "Ingestion", "Store", "Written", "is_store", "open_store", "write_batches"]
