"""Compilation of the simulator's loops, by numba where it is installed (`ettr[sim]`).

The same functions run either way and give the same numbers; a test compares them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

_SWITCH = "NUMBA_DISABLE_JIT"

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def compiled(function: FunctionT) -> FunctionT:
    """The function compiled where others that are call it; called by Python it is interpreted.

    So none gets a wrapper for Python and code of its own: half of what a compile took.
    """
    try:
        from numba.extending import register_jitable
    except ImportError:
        return function
    register = cast("Callable[..., Callable[[FunctionT], FunctionT]]", register_jitable)
    return register(no_cfunc_wrapper=True, **_uncounted())(function)


def compiled_entry(function: FunctionT) -> FunctionT:
    """The function through which Python enters compiled ones, kept on disk with them.

    It takes plain tuples and shares a file with all that it calls: numba reads what it has kept
    before it looks at the age of that file, fails if a class is gone, and knows no other file.
    """
    return _kept(function)


def compiled_entry_over(folder: Path) -> Callable[[FunctionT], FunctionT]:
    """As `compiled_entry`, for a function that calls others of all modules in its folder.

    Its name gets a digest of them, so that what was kept of other versions is never read.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())

    def entry(function: FunctionT) -> FunctionT:
        function.__qualname__ = f"{function.__qualname__}_{digest.hexdigest()[:16]}"
        return _kept(function)

    return entry


def _kept(function: FunctionT) -> FunctionT:
    try:
        from numba import njit
    except ImportError:
        return function
    compiler = cast("Callable[..., Callable[[FunctionT], FunctionT]]", njit)
    with suppress(RuntimeError):  # no folder for the cache can be written
        return compiler(cache=True, **_uncounted())(function)
    return compiler(**_uncounted())(function)


@cache
def _uncounted() -> Mapping[str, bool]:
    """Options of numba's compiler, for functions that make no array."""
    from numba.core.cpu import CPUTargetOptions

    option = {"_nrt": False}
    return option if hasattr(CPUTargetOptions, "_nrt") else {}


@contextmanager
def compile_noticed(notice: Callable[[bool], None]) -> Iterator[None]:
    """Call once, as a first loop is compiled within the block; not where what was kept is read.

    numba itself says when a compile begins. Nothing is called where loops are interpreted, nor for
    compiles in other processes.
    """
    try:
        from numba.core.event import Listener, install_listener
    except ImportError:
        yield
        return

    class FirstCompile(Listener):
        """Passes on the first compile; those of the functions that it calls begin within it."""

        is_noticed = False

        def on_start(self, event: Any) -> None:
            """A compile begins."""
            if not self.is_noticed:
                self.is_noticed = True
                notice(event.data["dispatcher"].stats.cache_path is not None)

        def on_end(self, event: Any) -> None:
            """A compile is over."""

    with install_listener("numba:compile", FirstCompile()):
        yield


def engine_name() -> str:
    """How the loops run here."""
    try:
        from numba import __version__
    except ImportError:
        return "interpreted"
    return "interpreted" if os.environ.get(_SWITCH, "0") != "0" else f"numba {__version__}"
