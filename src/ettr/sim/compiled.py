"""Compilation of the simulator's loops, by numba where it is installed (`ettr[sim]`).

The same functions run either way and give the same numbers; a test compares them.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from ettr.errors import UsageError

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


def compiled_entry_over(file: Path) -> Callable[[FunctionT], FunctionT]:
    """As `compiled_entry`, for a function of that file that takes named tuples of it.

    Its name gets a digest of the file, so that what was kept of another version is never read.
    """

    def entry(function: FunctionT) -> FunctionT:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        function.__qualname__ = f"{function.__qualname__}_{digest[:16]}"
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


# -- many simulations at once: on several processes, or wherever joblib is set to run them ---------
# Each task is a function of its arguments alone, so that results are the same on one worker or
# many.


BACKENDS = ("loky", "dask", "ray")
"""Where the command line can run simulations: processes of this machine, Dask, Ray."""
_BATCH = 4
"""Tasks of a worker between two reports of progress."""
Result = TypeVar("Result")


def results_of(
    task: Callable[..., Result],
    arguments: Sequence[tuple[object, ...]],
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """The results of a task for each set of arguments, in their order.

    With 2 workers or more joblib runs them, on processes of this machine unless its own
    `joblib.parallel_config(backend=...)` names another backend, such as Dask or Ray.

    Raises:
        UsageError: joblib is needed and not installed.
    """
    found: list[Result] = []
    for one in _in_order(task, arguments, workers):
        found.append(one)
        if progress:
            progress(len(found))
    return found


def _in_order(
    task: Callable[..., Result], arguments: Sequence[tuple[object, ...]], workers: int
) -> Iterator[Result]:
    if workers == 1:
        for one in arguments:
            yield task(*one)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise UsageError(
            f"{workers} workers: joblib is not installed; pip install 'ettr[sim]', or use 1 worker"
        ) from None
    with Parallel(n_jobs=workers) as parallel:
        for first in range(0, len(arguments), _BATCH * workers):
            batch = arguments[first : first + _BATCH * workers]
            # the standard output may be a JSON document, and a backend has warnings
            with redirect_stdout(sys.stderr):
                results = parallel(delayed(task)(*one) for one in batch)
            yield from results


@contextmanager
def on_backend(name: str | None) -> Iterator[None]:
    """Let joblib run on a backend, which is begun and ended with the context.

    Dask's address is that of `DASK_SCHEDULER_ADDRESS`, Ray's that of `RAY_ADDRESS`; without them
    they start on this machine. Within the context of Ray the standard output is that of errors:
    Ray prints on it, from a thread of its own, what it hears of its workers, whenever it hears it.

    Raises:
        UsageError: there is no such backend, or what it needs is not installed.
    """
    if name is None:
        yield
        return
    if name not in BACKENDS:
        raise UsageError(f"--backend {name!r}: give one of {', '.join(BACKENDS)}")
    with ExitStack() as stack:
        try:
            from joblib import parallel_config

            stack.enter_context(_BEGIN[name]())
        except ImportError as error:
            raise UsageError(
                f"--backend {name}: {error.name} is not installed; pip install "
                f"{ {'dask': 'joblib dask distributed', 'ray': 'joblib ray'}.get(name, 'joblib') }"
            ) from None
        stack.enter_context(parallel_config(backend=name))
        yield


@contextmanager
def _dask() -> Iterator[None]:
    from distributed import Client

    with Client(set_as_default=True):
        yield


@contextmanager
def _ray() -> Iterator[None]:
    import ray
    from ray.util.joblib import register_ray

    register_ray()
    is_running = ray.is_initialized()  # then who began it ends it
    with redirect_stdout(sys.stderr):
        if not is_running:
            ray.init(log_to_driver=False)
        try:
            yield
        finally:
            if not is_running:
                ray.shutdown()


_BEGIN: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "loky": nullcontext,
    "dask": _dask,
    "ray": _ray,
}
