"""The report of a restore: what was restored, how old it is, and how far from what was lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ettr.checkpoint.perturbation import Perturbation
from ettr.checkpoint.slots.reader import BadBlock
from ettr.recovery.planner import RecoveryPolicy, iteration_cost


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore has put into a state.

    Attributes:
        fell_back: Places that could not be trusted; the block's next older copy was taken.
        missing: Parameters of which no good record covers some element (only with
            allow_missing=True).
        fresh_moments: Parameters that were saved before the optimizer had made their moments:
            those are zero again, their step counts with them.
        objects_step: The step that objects and parameter groups are of; after a torn write an
            earlier one than the blocks'. None: none were saved.
        unused_tensors: Saved tensors that a state with an optimizer does not have (only with
            allow_missing=True).
        restored_fraction: Share of the elements of the model's parameters and buffers, those of
            all ranks counted.
    """

    blocks: int
    known_blocks: int
    restored_bytes: int
    oldest_step: int | None
    newest_step: int | None
    fell_back: tuple[BadBlock, ...]
    missing: tuple[str, ...]
    fresh_moments: tuple[str, ...]
    restore_s: float
    objects: tuple[str, ...] = ()
    objects_step: int | None = None
    missing_objects: tuple[str, ...] = ()
    unused_objects: tuple[str, ...] = ()
    restored_fraction: float = 1.0
    mean_step: float | None = None
    reached_step: int | None = None
    perturbation: Perturbation | None = None
    unused_moments: tuple[str, ...] = ()
    unused_tensors: tuple[str, ...] = ()
    replaced_options: tuple[str, ...] = ()

    @property
    def consistent(self) -> bool:
        """Whether all blocks are of one step; otherwise the state is a composite."""
        return self.oldest_step == self.newest_step

    @property
    def delta_norm(self) -> float | None:
        """‖δ‖; `perturbation` says whether it was measured or estimated."""
        return None if self.perturbation is None else self.perturbation.delta_norm

    def __str__(self) -> str:
        """The report in a sentence."""
        return self.summary()

    def summary(self, policy: RecoveryPolicy | None = None) -> str:
        """The report in a sentence."""
        clauses = [
            f"restored {_percent(self.restored_fraction)} of the parameters "
            f"({self.blocks} of {self.known_blocks} blocks)",
            *self._age_clauses(policy),
            f"in {self.restore_s:.2f} s",
            *self._object_clauses(),
        ]
        return ", ".join(clauses)

    def _object_clauses(self) -> list[str]:
        clauses = []
        if self.objects_step is not None and self.objects_step != self.newest_step:
            clauses.append(f"objects of step {self.objects_step}")
        not_restored = (
            *self.missing,
            *self.missing_objects,
            *self.unused_objects,
            *self.unused_tensors,
            *self.unused_moments,
        )
        if not_restored:
            clauses.append(f"not restored: {first_names(not_restored)}")
        if self.replaced_options:
            clauses.append(f"options as saved, not as built: {first_names(self.replaced_options)}")
        if self.fresh_moments:
            clauses.append(f"moments begun from zero: of {first_names(self.fresh_moments)}")
        return clauses

    def _age_clauses(self, policy: RecoveryPolicy | None) -> list[str]:
        if self.oldest_step is None or self.newest_step is None:
            return []
        clauses = [f"of step {_span(self.oldest_step, self.newest_step)}"]
        if self.reached_step is not None:
            youngest, oldest = (self.reached_step - s for s in (self.newest_step, self.oldest_step))
            clauses.append(f"staleness {_span(youngest, oldest)} steps")
        if self.perturbation is not None:
            clauses.append(str(self.perturbation))
        if policy is not None and self.reached_step is not None and self.mean_step is not None:
            relative = None if self.perturbation is None else self.perturbation.relative
            cost = iteration_cost(self.reached_step - self.mean_step, relative, policy)
            clauses.append(f"predicted cost {cost:.1f} iterations")
        if self.fell_back:
            clauses.append(f"{len(self.fell_back)} damaged places, older copies taken")
        return clauses


def first_names(names: Sequence[str], n: int = 5) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(names[:n]) + more


def _percent(fraction: float) -> str:
    """A share to three digits, rounded down: 100 % is all of it."""
    if fraction <= 0:
        return "0 %"
    percent = 100 * fraction
    digits = 2 - math.floor(math.log10(percent))
    rounded_down = math.floor(percent * 10.0**digits + 1e-9) / 10.0**digits
    return f"{rounded_down:.3g} %"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
