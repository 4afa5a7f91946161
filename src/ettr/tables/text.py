"""Texts as tables hold them: decoded, and free of what an engine cannot store."""

from __future__ import annotations

# what `surrogateescape` makes of bytes that are not UTF-8, and the characters they are in Latin-1
_LATIN_1 = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}


def text_of(data: bytes) -> str:
    """The bytes as text: UTF-8, and Latin-1 for those bytes alone that are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape").translate(_LATIN_1)


def storable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def clean(value: object) -> str | None:
    """A stripped text that every engine can hold, or None for nothing; numbers become text."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    return storable(str(value)).strip() or None
