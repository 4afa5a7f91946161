"""Errors of the training script itself, as a rank reports them. Standard library only.

An error is taken for the script's own only where nothing suggests a peer, the network, a file
system or a device: those may be gone in the next generation, a mistake in the script is not.
"""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import asdict, dataclass

# Where collectives and the recovery itself raise, as parts of a file's path.
_OF_PEERS = ("/ettr/elastic/", "/torch/distributed/")
_OF_PEERS_BY_NAME = ("FencedError", "EvictedError")
_OF_PEERS_IN_WORDS = re.compile(
    r"gloo|nccl|socket|connection|connect\b|timeout|timed out|peer|broken pipe|aborted"
    r"|\bstore\b|process group|cuda error|device-side|hip error",
    re.IGNORECASE,
)
_TEXT_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class OwnError:
    """One error that a rank met and that seems to be the script's own.

    Attributes:
        generation, slot: Of the rank that met it.
        step: The last step that the rank had made; -1: none.
        place: The kind of error and the line that raised it.
        text: The error in words.
    """

    generation: int
    slot: int
    step: int
    place: str
    text: str

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> OwnError:
        """The error that `to_json` wrote."""
        return cls(**json.loads(text))


def own_error(
    kind: type[BaseException],
    failure: traceback.TracebackException,
    *,
    generation: int,
    slot: int,
    step: int,
) -> OwnError | None:
    """What to report of an error that broke a generation off; None: a peer may be the cause."""
    text = "".join(failure.format_exception_only()).strip()
    if not failure.stack or kind.__name__ in _OF_PEERS_BY_NAME:
        return None
    last = failure.stack[-1]
    if issubclass(kind, OSError) or any(part in last.filename for part in _OF_PEERS):
        return None
    if issubclass(kind, RuntimeError) and _OF_PEERS_IN_WORDS.search(text):
        return None
    place = f"{kind.__name__} at {last.filename}, line {last.lineno}"
    return OwnError(generation, slot, step, place, text[:_TEXT_CHARACTERS])
