"""Many simulations at once: on several processes, or wherever joblib is set to run them.

Each task is a function of its arguments alone, so that results are the same on one worker or many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stdout,
)
from typing import TypeVar

from ettr.errors import UsageError

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
