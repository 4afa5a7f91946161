"""Whether two ranks called the same collective with tensors that fit."""

from __future__ import annotations

from collections import Counter

from ettr.flight.calls import Call
from ettr.flight.entries import Signature

# what may differ between ranks that call the same (as PyTorch's own trace analyser has it)
_FREE_INPUT = frozenset({"all_to_all", "alltoall", "alltoall_base", "all_to_all_base", "scatter"})
_FREE_OUTPUT = frozenset({"all_to_all", "alltoall", "alltoall_base", "all_to_all_base", "gather"})
_ROOTED = frozenset({"scatter", "gather"})


def comparable(signature: Signature) -> tuple[object, ...]:
    """Of a signature, what all ranks of a collective have in common."""
    name = signature.name
    kind = name.rpartition(":")[2].partition(" ")[0]
    inputs: object = signature.input_sizes
    outputs: object = signature.output_sizes
    if kind in _FREE_INPUT or kind in _ROOTED:
        inputs = None
    if kind in _FREE_OUTPUT or kind in _ROOTED:
        outputs = None
    types = None if kind in _ROOTED else (signature.input_dtypes, signature.output_dtypes)
    return (name, inputs, outputs, types)


def minority(call: Call) -> tuple[int, ...]:
    """The ranks that called something else than most; all ranks where no call has a majority."""
    if call.others is None:
        return ()
    forms = {rank: comparable(call.signature_on(rank)) for rank in call.ranks}
    counts = Counter(forms.values())
    if len(counts) == 1:
        return ()
    (usual, n_usual), (_, n_second) = counts.most_common(2)
    if n_usual == n_second:
        return tuple(sorted(forms))
    return tuple(sorted(rank for rank, form in forms.items() if form != usual))
