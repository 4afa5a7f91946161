"""Random numbers in named streams: what one part of a simulation draws moves no other part."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, name: str, replica: int = 0) -> np.random.Generator:
    """The generator of one stream of one replica.

    Two scenarios with one seed share the numbers of every stream, so that their difference is
    known better than either.

    Source:
        O'Neill (2014) for PCG64; NumPy's SeedSequence for streams that do not overlap.
    """
    words = [seed, zlib.crc32(name.encode("utf-8")), replica]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
