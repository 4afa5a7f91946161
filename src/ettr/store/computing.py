"""Where questions about a store are computed, and how much memory that may take."""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ettr.errors import UsageError
from ettr.files import folder_aside

if TYPE_CHECKING:
    import duckdb

DUCKDB = "duckdb"
_SHARE = 0.5
_LEAST_BYTES = 128 << 20  # with less DuckDB cannot sort one batch of rows


@dataclass(frozen=True, slots=True)
class Computing:
    """An engine by name, its own settings, and the memory of DuckDB.

    Attributes:
        memory_bytes: what DuckDB holds at most before it puts rows aside on disk; half of what the
            process may have if None.
    """

    engine: str = DUCKDB
    options: tuple[tuple[str, str], ...] = ()
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse a limit under which nothing runs.

        Raises:
            UsageError: the limit is too small.
        """
        if self.memory_bytes is not None and self.memory_bytes < _LEAST_BYTES:
            raise UsageError(
                f"--memory-limit: {self.memory_bytes / 1e6:.0f} MB is too little for the engine; "
                f"give {_LEAST_BYTES >> 20} MiB or more"
            )

    def connect(
        self, path: Path | None = None, *, read_only: bool = False, **settings: Any
    ) -> duckdb.DuckDBPyConnection:
        """A DuckDB whose clock is UTC, that puts aside on disk what exceeds its memory.

        Raises:
            duckdb.Error: the file cannot be opened.
            UsageError: an option is not one of DuckDB's.
        """
        # the engine without the package around it, which takes a command .05 s of CPU time; every
        # DuckDB since 1.4.0 has it under this name
        import _duckdb

        limit_bytes = self.memory_bytes or int(allowed_bytes() * _SHARE)
        try:
            aside, remove = folder_aside()
        except OSError:
            aside, remove = "", lambda: None
        given: dict[str, Any] = {
            "memory_limit": f"{limit_bytes}B",
            "temp_directory": aside,
        }
        given |= settings if self.engine != DUCKDB else settings | dict(self.options)
        try:
            duck: duckdb.DuckDBPyConnection = _duckdb.connect(
                path or ":memory:", read_only=read_only, config=given
            )
        except BaseException as error:
            remove()
            first = str(error).split("\n", 1)[0]
            if self.engine == DUCKDB and any(name in first for name, _ in self.options):
                raise UsageError(
                    f"--engine-option: {first}; DuckDB's duckdb_settings() lists what there is"
                ) from error
            raise
        weakref.finalize(duck, remove)
        duck.execute("SET TimeZone = 'UTC'")
        # a bar is drawn on stdout, amid JSON, where Python runs no script, as `python -c`; in a
        # notebook without widgets there is none, and the engine refuses to hear of it
        with suppress(_duckdb.InvalidInputException):
            duck.execute("SET enable_progress_bar = false")
        return duck


def with_arrow(duck: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The connection, of which Arrow tables can be asked and to which they can be given."""
    import duckdb  # noqa: F401 - the package adds that to the engine's connections

    return duck


def spare_pandas() -> None:
    """Let Arrow find no pandas: it imports it where it can, and no command asks for it.

    Arrow looks for it once, and again where it must make something of it.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)  # what makes it look
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Pandas is not found; others are left to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def allowed_bytes(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may have: the least limit of its cgroups, or all there is.

    Args:
        root: where `proc` and `sys` are.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> list[int]:
    try:
        listed = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
    found = []
    for line in listed:
        _, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        # within a container the path may be the host's, of which only the top is there
        own = top / place.strip("/")
        for folder in (own, *own.parents):
            if not folder.is_relative_to(top):
                break
            try:
                text = (folder / name).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                continue
            if text.isdigit():
                found.append(int(text))
    return found
