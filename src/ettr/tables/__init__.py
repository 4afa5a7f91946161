"""The tables that every stage reads and writes: schemas, and how rows are made.

`columns` says what a table is and `schemas` which there are; `rows` makes rows of them (ids,
events, rejects, batches).
"""

from ettr.tables.columns import Column, Keeps, Kind, Table
from ettr.tables.schemas import (
    ALLOCATIONS,
    ATTEMPTS,
    DERIVED,
    EVENTS,
    FAILURES,
    FILES,
    INTERRUPTIONS,
    LOG_DAYS,
    NODE_STATES,
    NODES,
    PROGRESS,
    REJECTS,
    TABLES,
)

__all__ = [
    "ALLOCATIONS",
    "ATTEMPTS",
    "DERIVED",
    "EVENTS",
    "FAILURES",
    "FILES",
    "INTERRUPTIONS",
    "LOG_DAYS",
    "NODES",
    "NODE_STATES",
    "PROGRESS",
    "REJECTS",
    "TABLES",
    "Column",
    "Keeps",
    "Kind",
    "Table",
]
