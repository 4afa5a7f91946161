"""Node lists such as `node[1-4,6-8]` -> node names, by ClusterShell's NodeSet."""

from __future__ import annotations

import re

# More nodes than any machine has: a list beyond it is damage, and expanding it would eat memory.
MOST_NODES = 200_000

_RANGE = re.compile(r"(\d+)-(\d+)")
_ONE_FOLD = re.compile(r"([A-Za-z0-9_.\-]+)\[([0-9,\-]+)\]")
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]+(?:,[A-Za-z0-9_.\-]+)*")


def expand_nodes(text: str) -> tuple[str, ...]:
    """The node names of a list as Slurm writes it.

    Plain names and one pair of brackets are expanded here, since logs hold them by the million;
    all else goes to ClusterShell, without its groups and operators.

    Raises:
        ValueError: no list of nodes, or one of absurd length.
    """
    if _PLAIN.fullmatch(text):
        return tuple(dict.fromkeys(text.split(",")))
    if (match := _ONE_FOLD.fullmatch(text)) and (names := _one_fold(*match.groups())):
        return names
    return _by_clustershell(text)


def _one_fold(prefix: str, ranges: str) -> tuple[str, ...] | None:
    names: list[str] = []
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not dash:
            if not low:
                return None
            names.append(prefix + low)
            continue
        if not low.isdigit() or not high.isdigit() or len(high) > 9 or len(low) > len(high):
            return None
        # equal widths keep their zeros; of unequal ones ClusterShell decides what they mean
        if len(low) != len(high) and low.startswith("0") and low != "0":
            return None
        first, last = int(low), int(high)
        if last < first or len(names) + last - first >= MOST_NODES:
            return None
        if len(low) == len(high):
            width = len(low)
            names.extend(f"{prefix}{number:0{width}d}" for number in range(first, last + 1))
        else:
            names.extend(f"{prefix}{number}" for number in range(first, last + 1))
    return tuple(dict.fromkeys(names))


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

    def __call__(self, text: str) -> tuple[str, ...] | None:
        """The names, or None where the text is no list of nodes."""
        if text not in self._known:
            if len(self._known) > 500_000:
                self._known.clear()
            try:
                self._known[text] = expand_nodes(text)
            except ValueError:
                self._known[text] = None
        return self._known[text]
