"""Text of others, made safe to look at."""

from __future__ import annotations

import unicodedata

_KEPT = {"\n", "\t"}
# control, format, surrogate, private, unassigned; line and paragraph separators
_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmless(text: str) -> str:
    """The text with every control and format character made visible.

    Job names, reasons and log lines come from others; an escape sequence among them must not
    move the cursor, recolour the screen or reverse the line.
    """
    if text.isascii() and text.isprintable():
        return text  # nearly every text, and a report shows hundreds of thousands
    return "".join(
        char
        if char in _KEPT or unicodedata.category(char) not in _STEERING
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text
    )


def cut(text: str, most: int) -> str:
    """The text, or its first `most` characters with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
