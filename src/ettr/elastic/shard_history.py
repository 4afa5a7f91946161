"""What a rank holds across generations: its live shard, its last two images, and its neighbour's.

Each rank copies its shard after every update and hands the copy to the next rank of the ring. An
update begins only when every rank has come to the vote before it, and so has handed on the one
before: whoever dies, some step is held for every slot by a rank that lives, unless two neighbours
die together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ettr.elastic import shard_image as images
from ettr.elastic.neighbour_ring import Ring
from ettr.elastic.shard_image import Piece


class Versions:
    """Two images of one shard, each of one step; the older gives way."""

    def __init__(self) -> None:
        self._images: list[Tensor] = []
        self._steps = [-1, -1]

    @property
    def steps(self) -> list[int]:
        """The steps held, the newest first."""
        return sorted((step for step in self._steps if step >= 0), reverse=True)

    def image_of(self, step: int) -> Tensor:
        """The image of a step that is held."""
        return self._images[self._steps.index(step)]

    def room(self, n_bytes: int) -> Tensor:
        """The buffer of the older image, which is forgotten from here on."""
        if not self._images or self._images[0].numel() != n_bytes:
            self._images = [torch.empty(n_bytes, dtype=torch.uint8) for _ in range(2)]
            self._steps = [-1, -1]
        index = self._steps.index(min(self._steps))
        self._steps[index] = -1
        return self._images[index]

    def filled(self, image: Tensor, step: int) -> None:
        """The buffer that `room` gave holds the whole image of a step."""
        for index, held in enumerate(self._images):
            if held is image:
                self._steps[index] = step
            elif self._steps[index] == step:
                self._steps[index] = -1

    def forget_after(self, step: int) -> None:
        """The run goes on from a step: what is newer is not part of it any more.

        An image of the step that is done again would keep its room, and the copy of the new one
        would take that of the step from which all go on.
        """
        self._steps = [held if held <= step else -1 for held in self._steps]

    def forget(self) -> None:
        """Hold nothing."""
        self._steps = [-1, -1]


@dataclass(slots=True)
class Keeper:
    """One rank's memory over the generations.

    live: the local tensors themselves, by (parameter, part), of `live_step`; None where the process
    is new, or where an update was broken off within. mirror: images of the slot before this one.
    """

    live: dict[tuple[str, str], Any] | None = None
    live_step: int = -1
    own: Versions = field(default_factory=Versions)
    mirror: Versions = field(default_factory=Versions)

    @property
    def empty(self) -> bool:
        """Whether this rank holds nothing of its own shard."""
        return self.live is None and not self.own.steps

    def keep_live(self, pieces: list[Piece], step: int) -> None:
        """Hold on to the live tensors, without a copy."""
        self.live, self.live_step = images.live_parts(pieces), step

    def take_own(self, pieces: list[Piece], step: int) -> Tensor:
        """Copy the live shard into the older of the two images."""
        image = self.own.room(images.image_bytes(pieces))
        images.take(pieces, image)
        self.own.filled(image, step)
        return image

    def forget_images(self) -> None:
        """The run goes on from another state: no image is part of it."""
        self.own.forget()
        self.mirror.forget()


def exchange(keeper: Keeper, ring: Ring, step: int, image: Tensor, n_bytes: int) -> None:
    """Hand this rank's image to the next of the ring and take that of the one before.

    Args:
        n_bytes: of the image that comes.
    """
    into = keeper.mirror.room(n_bytes)
    ring.exchange(step, image, into)
    keeper.mirror.filled(into, step)
