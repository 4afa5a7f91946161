"""The progress of simulations on stderr, the compile before them included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ettr.cli.output import progress_bar

COMPILING = "compiling the loop: about half a minute"
KEPT = ", kept for later runs"


@contextmanager
def simulating_bar(total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """As `progress_bar`; it says that a loop is compiled, which has no progress of its own."""
    from ettr.sim.compiled import compile_noticed

    done_so_far = 0
    with progress_bar(total, unit) as advance:

        def advance_and_count(what: str, done: int) -> None:
            nonlocal done_so_far
            done_so_far = done
            advance(what, done)

        def say_compiling(is_kept: bool) -> None:
            advance(COMPILING + (KEPT if is_kept else ""), done_so_far)

        with compile_noticed(say_compiling):
            yield advance_and_count
