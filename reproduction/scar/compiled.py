"""Plain Python loops turned into machine code, where an algorithm can not be written in arrays."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from ettr.errors import UsageError

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """The same function as Numba compiles it: same arguments, same result, about 100 times faster.

    Compiled once a process, when it is first called. Rounding is that of the plain function: no
    fast-math.

    Raises:
        UsageError: Numba is not installed.
    """
    return cast(Loop, _compiled(loop))


@cache
def _compiled(loop: Callable[..., Any]) -> object:
    try:
        import numba
    except ImportError as error:
        raise UsageError(
            "the reproduction needs numba; install it with pip install 'ettr[reproduce]'"
        ) from error
    return numba.njit(loop)
