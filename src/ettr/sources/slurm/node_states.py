"""How Slurm writes a node's state: base, flags, and the marks behind them."""

from __future__ import annotations

import re

# marks that sinfo and sacctmgr put behind a state
_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "",
}
# words of sinfo for a base state with a flag
_SPELLED = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DRNG": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "MAINTENANCE": ("MAINT",),
    "ALLOC": ("ALLOCATED",),
    "MIX": ("MIXED",),
    "COMP": ("COMPLETING",),
    "RESV": ("RESERVED",),
    "INVAL": ("INVALID_REG",),
    "INVALID": ("INVALID_REG",),
}
# of several, the first of these says why the node gets no work
_BY_RANK = (
    "DOWN",
    "ERROR",
    "FAIL",
    "DRAIN",
    "INVALID_REG",
    "MAINT",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "REBOOT_ISSUED",
    "FUTURE",
    "UNKNOWN",
    "POWERING_UP",
)
OUT_OF_SERVICE = frozenset(_BY_RANK) - {"UNKNOWN"}


def node_state(text: str) -> tuple[str, str | None]:
    """The state that counts, such as DOWN or DRAIN, and its other flags, comma-separated.

    Takes `DOWN*`, `IDLE+DRAIN`, `drained`, `DOWN+DRAIN+NOT_RESPONDING`.

    Raises:
        ValueError: no state.
    """
    marks: list[str] = []
    word = text.strip().upper()
    while word and word[-1] in _MARKS:
        marks.append(_MARKS[word[-1]])
        word = word[:-1]
    parts: list[str] = []
    for part in word.split("+"):
        bare = part.rstrip("".join(_MARKS))
        marks += [_MARKS[mark] for mark in part[len(bare) :]]
        if not re.fullmatch(r"[A-Z][A-Z_]{1,40}", bare):
            raise ValueError(f"{text!r} is no state of a node")
        parts += _SPELLED.get(bare, (bare,))
    parts += [mark for mark in marks if mark]
    state = next((name for name in _BY_RANK if name in parts), parts[0])
    flags = [name for name in dict.fromkeys(parts) if name not in {state, "IDLE"}]
    return state, ",".join(flags) or None


_USER = re.compile(r"(.*?)\((\d+)\)\Z")


def user_name(text: str) -> str | None:
    """`root` of `root(0)`; None where nobody is named."""
    if not text or text in {"None", "Unknown"}:
        return None
    match = _USER.match(text)
    return (match[1] or match[2]) if match else text
