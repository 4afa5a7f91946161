"""Values that are no longer finite: a round that holds them is not saved over copies that are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ettr.checkpoint.rounds.staging import StagedBlock, Staging
from ettr.checkpoint.slots.format import HEADER_BYTES
from ettr.checkpoint.slots.plan import SlotPlan

_PIECE_BYTES = 1 << 20  # stays in the cache
# The bits of an exponent that says infinity or not a number; of `e4m3fn` of the latter alone.
_EXPONENT = {
    "float16": (np.uint16, 0x7C00),
    "bfloat16": (np.uint16, 0x7F80),
    "float8_e5m2": (np.uint8, 0x7C),
    "float8_e4m3fn": (np.uint8, 0x7F),
}
_SUMMED = {
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.float32,
    "complex128": np.float64,
}


class FiniteCheck:
    """Looks at trained parameters and their moments before they are written.

    A tensor that was not finite when it was first saved (a mask of infinities that is trained, a
    run resumed from such a step) is left alone.
    """

    def __init__(self, plan: SlotPlan, finite: set[str]) -> None:
        self._plan, self._finite = plan, finite

    def broken(self, staged: list[StagedBlock], staging: Staging) -> list[str]:
        """Names of tensors that were finite when last saved and are not; without any, note all."""
        good: set[str] = set()
        bad: set[str] = set()
        layout = self._plan.layout
        for one in staged:
            shard = self._plan.shard(one.block)
            if shard is None or not shard.optimizers or not shard.tensor.requires_grad:
                continue
            name = shard.spec.fqn
            payload = np.frombuffer(staging.record(one), np.uint8)[HEADER_BYTES:]
            parts = layout.components(one.block)
            finite = all(_finite(payload[at : at + n], part.dtype) for part, at, n in parts)
            (good if finite else bad).add(name)
        broken = sorted(bad & self._finite)
        if not broken:
            self._finite |= good - bad
        return broken


def _finite(raw: NDArray[np.uint8], dtype: str) -> bool:
    if dtype in _SUMMED:
        values = raw[: len(raw) // 8 * 8 if dtype != "float32" else len(raw)].view(_SUMMED[dtype])
        with np.errstate(all="ignore"):
            # One that is not finite makes the sum so; a sum that overflows is looked at again.
            return bool(np.isfinite(np.add.reduce(values)) or np.isfinite(values).all())
    if dtype in _EXPONENT:
        unsigned, mask = _EXPONENT[dtype]
        return not any(
            bool(((raw[at : at + _PIECE_BYTES].view(unsigned) & mask) == mask).any())
            for at in range(0, len(raw), _PIECE_BYTES)
        )
    return True
