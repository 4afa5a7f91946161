"""Node lists such as `node[1-4,6-8]` -> node names, as Slurm, Flux and others write them."""

from __future__ import annotations

import re

# More nodes than any machine has: a list beyond it is damage, and expanding it would eat memory.
MOST_NODES = 200_000
_MOST_DIGITS = 9

_RANGE = re.compile(r"(\d+)-(\d+)")
_ONE_FOLD = re.compile(r"([A-Za-z0-9_.\-]+)\[([0-9,\-]+)\]")
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]+(?:,[A-Za-z0-9_.\-]+)*")


# names by prefix and width, so that overlapping lists share them
Families = dict[tuple[str, int], list[str]]


def expand_nodes(text: str, families: Families | None = None) -> tuple[str, ...]:
    """The node names of a list as Slurm writes it.

    Plain names and one pair of brackets are expanded here, since logs hold them by the million;
    all else goes to ClusterShell, without its groups and operators.

    Raises:
        ValueError: no list of nodes, or one of absurd length.
    """
    if _PLAIN.fullmatch(text):
        return tuple(dict.fromkeys(text.split(",")))
    if (match := _ONE_FOLD.fullmatch(text)) and (
        names := _one_fold(match[1], match[2], {} if families is None else families)
    ):
        return names
    return _by_clustershell(text)


def _one_fold(prefix: str, ranges: str, families: Families) -> tuple[str, ...] | None:
    """Names of `prefix[ranges]`; None where ClusterShell must decide what it means."""
    names: list[str] = []
    parts = ranges.split(",")
    for part in parts:
        low, dash, high = part.partition("-")
        if not dash:
            high = low
        if not (low.isdecimal() and high.isdecimal()) or len(high) > _MOST_DIGITS:
            return None
        first, last = int(low), int(high)
        # equal widths keep their zeros
        if len(low) != len(high) and (low.startswith("0") or len(low) > len(high)):
            return None
        if last < first or last >= MOST_NODES:
            return None
        width = len(low) if len(low) == len(high) else 0
        family = families.setdefault((prefix, width), [])
        if len(family) <= last:
            family += [f"{prefix}{number:0{width}d}" for number in range(len(family), last + 1)]
        names += family[first : last + 1]
    return tuple(names) if len(parts) == 1 else tuple(dict.fromkeys(names))


def _by_clustershell(text: str) -> tuple[str, ...]:
    if re.search(r"[@!&^*?\s|;\"'<>]", text):
        raise ValueError(f"{text[:80]!r} is no list of nodes")
    most = 1
    for low, high in _RANGE.findall(text):
        if len(low) > 12 or len(high) > 12:
            raise ValueError(f"{text[:80]!r} names an absurd number of nodes")
        most *= max(int(high) - int(low) + 1, 1)
    total = sum(max(int(high) - int(low) + 1, 1) for low, high in _RANGE.findall(text))
    if total > MOST_NODES or ("][" in text and most > MOST_NODES):
        raise ValueError(f"{text[:80]!r} names an absurd number of nodes")
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        nodes = NodeSet(text, resolver=RESOLVER_NOGROUP)
        if len(nodes) > MOST_NODES:
            raise ValueError(f"{text[:80]!r} names an absurd number of nodes")
        names = tuple(nodes)
    except (NodeSetException, ArithmeticError, IndexError, TypeError) as error:
        raise ValueError(f"{text[:80]!r} is no list of nodes: {error}") from error
    if not names:
        raise ValueError(f"{text[:80]!r} names no node")
    return names


class NodeLists:
    """Expands each distinct list once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...] | None] = {}
        self._families: Families = {}

    def __call__(self, text: str) -> tuple[str, ...] | None:
        """The names, or None where the text is no list of nodes."""
        if text not in self._known:
            if len(self._known) > 500_000:
                self._known.clear()
            try:
                self._known[text] = expand_nodes(text, self._families)
            except ValueError:
                self._known[text] = None
        return self._known[text]
