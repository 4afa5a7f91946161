"""How a live state differs from what was saved, where nothing is damaged: tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ettr.checkpoint.renaming import rename_for
from ettr.checkpoint.restore_report import first_names
from ettr.checkpoint.slots.earlier_records import superblock_of
from ettr.checkpoint.slots.layout import RESERVED, TensorSpec
from ettr.checkpoint.slots.record_selection import OpenCheckpoint
from ettr.checkpoint.state import State, TrainingState
from ettr.checkpoint.tensors.shards import FACTOR, Shard


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The tensors in which a state and a checkpoint differ.

    Attributes:
        gone: Saved tensors for which a run to be trained has no place, with their shapes.
        tied: Saved tensors that are one with another now -> that one.
    """

    added: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    gone: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    types: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    nothing_fits: bool = False

    def reasons(self, *, allow_missing: bool, cast: bool) -> list[str]:
        """Why a restore must not go on without being asked to, each with what it would take."""
        reasons = []
        if not allow_missing or self.nothing_fits:
            reasons += self._missing()
        if self.types and not cast:
            named = [
                f"{name}: {component} was saved as {before} and is {now} now"
                for name, (component, before, now) in self.types.items()
            ]
            reasons.append(
                f"{first_names(named, 3)}. Build them in the saved type, or give cast=True"
            )
        return reasons

    def _missing(self) -> list[str]:
        reasons = []
        if self.added:
            reasons.append(
                f"{len(self.added)} tensors were not saved and are in the model now "
                f"({first_names(list(self.added))})"
            )
        if self.gone:
            names = [f"{n}, tied to {self.tied[n]} now" if n in self.tied else n for n in self.gone]
            reasons.append(
                f"{len(names)} saved tensors have no place in the model ({first_names(names)})"
            )
        if self.shapes:
            named = [
                f"{name}: it was saved with shape {list(a)} and has {list(b)} now"
                for name, (a, b) in self.shapes.items()
            ]
            reasons.append(first_names(named))
        if not reasons:
            return []
        offers = []
        if rename := rename_for(self.gone, self.added):
            offers.append(f"rename={rename} if they are the same under other names")
        if not self.nothing_fits:
            offers.append("allow_missing=True to leave what differs as it is built")
        give = f". Build the model that was saved, or give {', or '.join(offers)}" if offers else ""
        return ["; ".join(reasons) + give]


def mismatch(checkpoint: OpenCheckpoint, state: State, live: Sequence[Shard]) -> Mismatch:
    """Compare a state with the latest layouts of the slots that are read.

    Where the layout of a damaged slot cannot be read, what it lacks says nothing of the model.
    """
    saved, everywhere = _saved_tensors(checkpoint)
    unread = any(slot.damaged and superblock_of(slot) is None for slot in checkpoint.slots)
    now = {shard.spec.fqn: shard.spec for shard in live if FACTOR not in shard.spec.fqn}
    both = [(saved[name], spec) for name, spec in now.items() if name in saved]
    gone: dict[str, tuple[int, ...]] = {}
    tied: dict[str, str] = {}
    if isinstance(state, TrainingState) and state.whole_run:
        aliases = state.tied_names()
        gone = {n: saved[n].shape for n in sorted(everywhere - state.tensor_names())}
        tied = {name: aliases[name] for name in gone if name in aliases}
    return Mismatch(
        {} if unread else {n: spec.shape for n, spec in now.items() if n not in saved},
        gone,
        {b.fqn: (a.shape, b.shape) for a, b in both if a.shape != b.shape},
        {b.fqn: kinds for a, b in both if (kinds := _types(a, b)) is not None},
        tied,
        nothing_fits=bool(now) and not unread and not any(a.shape == b.shape for a, b in both),
    )


def _saved_tensors(checkpoint: OpenCheckpoint) -> tuple[dict[str, TensorSpec], set[str]]:
    """The saved tensors by their names now, and those that each slot holds."""
    saved: dict[str, TensorSpec] = {}
    held: list[set[str]] = []
    for slot in checkpoint.slots:
        superblock = superblock_of(slot)
        if superblock is None or all(file.path in checkpoint.superseded for file in slot.files):
            continue
        specs = {checkpoint.live_name(spec.fqn): spec for spec in superblock.layout.tensors}
        specs = {name: spec for name, spec in specs.items() if FACTOR not in name}
        saved |= specs
        held.append(specs.keys() - RESERVED)
    return saved, set.intersection(*held) if held else set()


def _types(saved: TensorSpec, now: TensorSpec) -> tuple[str, str, str] | None:
    of_saved = {component.name: component for component in saved.components}
    for component in now.components:
        before = of_saved.get(component.name, component)
        if before.dtype != component.dtype and "number" not in (before.kind, component.kind):
            return component.name, before.dtype, component.dtype
    return None
