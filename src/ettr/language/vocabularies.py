"""The bytes of each token of a `tokenizer.json`: byte-level BPE, sentencepiece, WordPiece."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ettr.errors import UsageError

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"
_DO = (
    "byte-level BPE, sentencepiece and WordPiece can be read; write an object with `vocabulary` "
    "and name it py:FILE:NAME"
)


def vocabulary_of(text: str) -> list[bytes]:
    """The bytes of each token, by its number; empty for special tokens and numbers without one.

    Args:
        text: What a `tokenizer.json` holds.

    Raises:
        UsageError: it is no tokenizer, or one of another kind.
    """
    try:
        document = json.loads(text)
        tokens = _tokens(document["model"])
        added = [
            (int(one["id"]), str(one["content"]), bool(one["special"]))
            for one in document.get("added_tokens") or ()
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"MODEL: tokenizer.json cannot be read ({error!r}); {_DO}") from error
    spelled = _spelling(document)
    size = 1 + max([*tokens.values(), *(number for number, _, _ in added)], default=-1)
    if size > 10_000_000:
        raise UsageError(f"MODEL: tokenizer.json has a token of number {size - 1:,}; {_DO}")
    found = [b""] * size
    for token, number in tokens.items():
        found[number] = spelled(token)
    for number, content, special in added:
        found[number] = b"" if special else content.encode()
    return found


def _tokens(model: dict[str, Any]) -> dict[str, int]:
    """Numbers of tokens; a unigram model lists them with their scores."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {str(token): number for number, (token, _) in enumerate(vocabulary)}
    return {str(token): int(number) for token, number in vocabulary.items()}


def _spelling(document: dict[str, Any]) -> Callable[[str], bytes]:
    """How a token of this kind spells its bytes."""
    decoder = document.get("decoder") or {}
    steps = decoder.get("decoders") or [decoder]
    kinds = {str(step.get("type")) for step in steps}
    if "ByteLevel" in kinds:
        return _byte_level
    if "WordPiece" in kinds:
        mark = next(str(step.get("prefix", "##")) for step in steps if step["type"] == "WordPiece")
        return lambda token: (
            token.removeprefix(mark).encode() if token.startswith(mark) else f" {token}".encode()
        )
    replaces = [step for step in steps if step.get("type") == "Replace"]
    if "Metaspace" in kinds or any(_SPACE in str(step.get("pattern")) for step in replaces):
        return _sentencepiece
    raise UsageError(f"MODEL: tokenizer.json has the decoder {', '.join(sorted(kinds))}; {_DO}")


def _sentencepiece(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()


def _byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTES[letter] for letter in token)
    except KeyError:
        return token.encode()  # added outside the byte alphabet


def _alphabet() -> dict[str, int]:
    """GPT-2's letters of bytes: printable ones are themselves, the others follow from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


_BYTES = _alphabet()
