"""Texts as tables hold them: decoded, and free of what an engine cannot store."""

from __future__ import annotations

import re

# what `surrogateescape` makes of bytes that are not UTF-8: this number more than in Latin-1
_ESCAPED = 0xDC00
_NOT_UTF_8 = re.compile(f"[{chr(_ESCAPED + 0x80)}-{chr(_ESCAPED + 0xFF)}]")


_ASCII = bytes(range(0x80))
_LATIN_1 = {_ESCAPED + byte: byte for byte in range(0x80, 0x100)}
# of so many bytes one that is not UTF-8: to look for fewer takes a tenth of what `translate` takes,
# to look for each of many takes five times as long
_FEW = 50


def text_of(data: bytes) -> str:
    """The bytes as text: UTF-8, and Latin-1 for those bytes alone that are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
        n_bad = len(data) - len(text.encode("utf-8", "ignore"))
        if n_bad == len(data.translate(None, _ASCII)):
            return data.decode("latin-1")  # a tenth of the time
        if n_bad * _FEW > len(data):
            return text.translate(_LATIN_1)
        return _NOT_UTF_8.sub(_latin_1, text)


def _latin_1(escaped: re.Match[str]) -> str:
    return chr(ord(escaped[0]) - _ESCAPED)


def storable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def clean(value: object) -> str | None:
    """A stripped text that every engine can hold, or None for nothing; numbers become text."""
    if type(value) is str and value.isascii():
        return value.strip() or None
    if value is None or isinstance(value, bool | dict | list):
        return None
    return storable(str(value)).strip() or None
