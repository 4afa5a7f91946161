"""Whether a run fails by a mistake in its script, which no further generation mends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ettr.elastic.membership import rendezvous
from ettr.elastic.membership.own_error import OwnError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_N_GENERATIONS = 2  # the first may have been a mishap: it is tried once more
_N_SLOTS = 2  # one slot alone may have a bad device


class OwnErrors:
    """Collects what ranks report, and what speaks against it: ranks that died without a word."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._errors: set[OwnError] = set()
        self._with_losses: set[int] = set()

    def listen(self, workers: Iterable[str], ended: Iterable[str], generation: int) -> None:
        """Read the reports.

        Args:
            workers: all that may have left one.
            ended: those found dead or hung in this generation. Without a report of their own they
                may be the reason for the errors of others.
        """
        reported = set()
        for worker in workers:
            key = rendezvous.own_error_key(worker)
            if self._store.check([key]) and (text := self._store.get(key)):
                self._errors.add(OwnError.from_json(text))
                reported.add(worker)
        if set(ended) - reported:
            self._with_losses.add(generation)

    def reason(self, world: int) -> str | None:
        """Why the run is given up: one error, in two generations and at one step; or None."""
        at_place: dict[str, list[OwnError]] = {}
        for error in self._errors:
            if error.generation not in self._with_losses:
                at_place.setdefault(error.place, []).append(error)
        for place, errors in at_place.items():
            # Steps were made since then: the newest failure only counts with those at its step.
            step = max(error.step for error in errors)
            same = [error for error in errors if error.step in (step, -1)]
            generations = sorted({error.generation for error in same})
            slots = sorted({error.slot for error in same})
            if len(generations) >= _N_GENERATIONS and len(slots) >= min(_N_SLOTS, world):
                return (
                    f"the script failed by the same error in generations "
                    f"{', '.join(map(str, generations))}, on slots {', '.join(map(str, slots))}, "
                    f"and no process had been lost: {same[0].text} ({place}); mend it and start "
                    f"the run again"
                )
        return None
