"""Shards that a lost rank held in common with survivors, from the survivors.

With tensor parallelism (norms) or HSDP several ranks hold one region of a parameter, and nothing
but training alike keeps them equal. A rank that is restored from older blocks takes such shards
from a rank that goes on, or the copies would differ from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ettr.checkpoint.tensors.shards import Shard
from ettr.elastic.buddies.shard_image import Piece
from ettr.elastic.membership.control_store import RankMessages


@dataclass(frozen=True, slots=True)
class _Replicated:
    """Message of each rank: the regions that it holds in common with others."""

    regions: list[str]


def copy_from_survivors(
    pieces: Sequence[Piece], messages: RankMessages, *, slot: int, lost: Collection[int]
) -> None:
    """Bring the lost ranks' replicated shards, with their moments, from a survivor's live ones.

    Every rank of the generation calls it, after the lost ones were restored. A region of which no
    survivor has a copy stays as it was restored.

    Args:
        pieces: of this rank's rebuilt model.
        slot: this rank.
        lost: slots whose shard was in no survivor's process.

    Raises:
        RuntimeError: a rank was lost meanwhile.
    """
    mine = _replicated(pieces)
    held = [rank.regions for rank in messages.gather("replicas", _Replicated(sorted(mine)))]
    survivors = [other for other in range(len(held)) if other not in lost]
    of_survivor = {other: frozenset(held[other]) for other in survivors}
    for receiver in sorted(lost):
        for region in held[receiver]:
            sender = next((one for one in survivors if region in of_survivor[one]), None)
            if sender is None:
                continue
            if slot == sender:
                for piece in mine[region]:
                    dist.send(_packed(piece), receiver)
            elif slot == receiver:
                for piece in mine[region]:
                    value = torch.empty_like(_packed(piece))
                    dist.recv(value, sender)
                    _put(piece, value)


def _replicated(pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    """Region -> its pieces, of shards that others hold too."""
    found: dict[str, list[Piece]] = {}
    for piece in pieces:
        owner = piece.owner
        if isinstance(owner, Shard) and owner.replica[1] > 1:
            found.setdefault(f"{owner.spec.fqn} {owner.offsets} {owner.sizes}", []).append(piece)
    return found


def _packed(piece: Piece) -> Tensor:
    """A copy of the live part in host memory; of a number as float64."""
    value = piece.live()
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().clone()
    return torch.tensor(float(value), dtype=torch.float64)


def _put(piece: Piece, value: Tensor) -> None:
    with torch.no_grad():
        piece.put(value if piece.shape is not None else float(value))
