"""One DuckDB in a test process, where each store and each test's tables would begin their own.

To begin an engine takes 10 ms of CPU time, a connection to one that is there almost none, and the
suite asks thousands of small stores. What facts make is temporary and seen by its own connection
alone; settings of the whole engine differ by who begins it, so that each has one.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import finalize

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import duckdb

_NUMBER = count()


@cache
def _shared(_process: int) -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect()


def database() -> tuple[duckdb.DuckDBPyConnection, str]:
    """A connection of its own, and the name of a database in memory that nobody else uses."""
    whole = _shared(os.getpid())
    engine, name = whole.cursor(), f"given_{next(_NUMBER)}"
    engine.execute(f"ATTACH ':memory:' AS {name}")
    finalize(engine, whole.execute, f"DETACH {name}")
    return engine, name


def locks_its_engine() -> bool:
    """Whether the command that runs is `ettr sql`, after which its engine takes nothing else."""
    return "sql" in sys.argv


def share_engines(is_on: Callable[[], bool]) -> None:
    """Let engines in memory be connections to one of their kind, where `is_on` says so."""
    from ettr.store.computing import Computing

    connect, begun = Computing.connect, {}

    def connect_shared(
        computing: Computing, path: Path | None = None, **settings: Any
    ) -> duckdb.DuckDBPyConnection:
        if path is not None or not is_on() or locks_its_engine():
            return connect(computing, path, **settings)
        who = sys._getframe(1).f_code
        key = (os.getpid(), computing, *sorted(settings.items()), who.co_filename, who.co_name)
        if key not in begun:
            begun[key] = connect(computing, **settings)
        duck = begun[key].cursor()
        duck.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        return duck

    setattr(Computing, "connect", connect_shared)  # noqa: B010 - of another signature
