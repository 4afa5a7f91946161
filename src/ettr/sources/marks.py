"""Finds the lines that hold one of many texts, at about the cost of looking for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

_WORD = 4
# a text of so many bytes holds a whole word, wherever the words of a block begin
SHORTEST_BYTES = 2 * _WORD - 1
_MIX = np.uint32(0x9E3779B1)
_UPPER_HALF = 1
_WINDOW = np.uint64((1 << 8 * SHORTEST_BYTES) - 1)
# what most lines are made of: a part of a text without any of it is found in fewer other places
_COMMON = (
    b" kernel: kernel link becomes ready entered state error, failed device port module "
    b"new high-speed interrupt took too long audit operation profile mlx5_core 0000: nvme nvme0: "
    b"amdgpu: amdgpu 0000: enabled register driver memory page process task not responding to the "
    b"temperature threshold time reset timeout of the in the and for more than during progress "
    b"using this service exceed before physical internal another action transaction version "
    b"corruption blocked connection recovery detected Link is Up: Link up: Going to event on dev "
)


class Marks:
    """Texts that mark a line.

    Of each a window of seven bytes is chosen, which holds a whole word of four bytes in one of four
    places. A block's own words are looked up in a table; where one is known the window is compared,
    and where that is the same the text.

    Raises:
        ValueError: a text is shorter than `SHORTEST_BYTES`.
    """

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts: dict[int, list[tuple[bytes, int]]] = {}
        for text in set(texts):
            if len(text) < SHORTEST_BYTES:
                raise ValueError(f"{text!r} has fewer than {SHORTEST_BYTES} bytes")
            first = min(range(len(text) - SHORTEST_BYTES + 1), key=lambda at: _n_common(text, at))
            window = int.from_bytes(text[first : first + SHORTEST_BYTES], "little")
            self._texts.setdefault(window, []).append((text, first))
        self._windows = np.array(sorted(self._texts), dtype="<u8")
        shifts = np.arange(_WORD, dtype="<u8") * np.uint64(8)
        self._words = [np.unique((self._windows >> shift).astype("<u4")) for shift in shifts]
        self._table = np.zeros(1 << 16, dtype=np.bool_)
        self._table[_hashes(np.concatenate(self._words))] = True

    def lines(self, block: bytes) -> set[int]:
        """Where each line begins that holds one of the texts, as places in the block."""
        starts: set[int] = set()
        n_wide = len(block) - SHORTEST_BYTES
        if n_wide < 1:
            return starts
        words = np.frombuffer(block, "<u4", len(block) // _WORD)
        wide = np.ndarray((n_wide,), "<u8", block, strides=(1,))
        places = np.flatnonzero(self._table.take(_hashes(words)))
        found = words[places]
        for shift, known in enumerate(self._words):
            at = places[_among(found, known)] * _WORD - shift
            at = at[(at >= 0) & (at < n_wide)]
            windows = wide[at] & _WINDOW
            same = _among(windows, self._windows)
            for place, window in zip(at[same].tolist(), windows[same].tolist(), strict=True):
                if any(block.startswith(text, place - n) for text, n in self._texts[window]):
                    starts.add(block.rfind(b"\n", 0, place) + 1)
        return starts


def _hashes(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint16]:
    halves: npt.NDArray[np.uint16] = (words * _MIX).view("<u2")[_UPPER_HALF::2]
    return halves


def _among(values: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of the values are known; those are sorted."""
    same: npt.NDArray[np.bool_] = (
        known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    )
    return same


def _n_common(text: bytes, at: int) -> int:
    return sum(text[place : place + _WORD] in _COMMON for place in range(at, at + _WORD))
