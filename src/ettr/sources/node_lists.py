"""Node lists such as `node[1-4,6-8]` -> node names, as Slurm, Flux and others write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ettr.sources.limits import LONGEST_NAME, MOST_NAMED, MOST_NODES

_MOST_DIGITS = 9
# names kept for lists that come again; a log of ever new lists must not fill memory
_MOST_KEPT = 2_000_000
# names that are kept of a prefix, for each that a list named: one high number must not make all
_MOST_MORE = 2

_PIECES = re.compile(r"[\[\],]|[^\[\],]+")
_RANGE = re.compile(r"(\d+)-(\d+)")
_ONE_FOLD = re.compile(
    r"([A-Za-z0-9_.+\-]+)\[([0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)\]"
)
_ENDS = re.compile(r"([0-9]+)-?([0-9]*)")
_ONE_RANGE = re.compile(r"([A-Za-z0-9_.+\-]+)\[([0-9]{1,9})-([0-9]{1,9})\]")
_PLAIN = re.compile(r"[A-Za-z0-9_.+\-]+(?:,[A-Za-z0-9_.+\-]+)*")
_IN_BRACKETS = re.compile(r"\[[^\[\]]*\]")
# what a list is made of; others in it are a sign of another column, as in `gres/gpu=8`
_LISTED = re.compile(r"[A-Za-z0-9_.+\-\[\],/:]+")


@dataclass(slots=True)
class _Family:
    """Names of one prefix and width from number 0 on, and how many the lists have asked for."""

    names: list[str] = field(default_factory=list)
    n_asked: int = 0


# by prefix and width, so that overlapping lists share names
Families = dict[tuple[str, int], _Family]
Ints = npt.NDArray[np.int64]
# first and last number and the width of each range
Ranges = list[tuple[int, int, int]]
# prefix, ranges, and how many nodes they list
Folded = tuple[str, Ranges, int]


def expand_nodes(text: str, families: Families | None = None) -> tuple[str, ...]:
    """The node names of a list as Slurm writes it.

    Plain names and one pair of brackets are expanded here, since logs hold them by the million;
    all else goes to ClusterShell, without its groups and operators.

    Raises:
        ValueError: no list of nodes, or one of absurd length.
    """
    if _PLAIN.fullmatch(text):
        return tuple(dict.fromkeys(text.split(",")))
    if fold := _fold(text):
        prefix, numbers, _ = fold
        return _names(prefix, numbers, {} if families is None else families)
    return _by_clustershell(text)


def _fold(text: str) -> Folded | None:
    """What `prefix[ranges]` says; None where ClusterShell must decide."""
    if (one := _ONE_RANGE.fullmatch(text)) and len(one[2]) == len(one[3]):  # most are so
        first, last = int(one[2]), int(one[3])
        if first <= last < MOST_NODES and len(one[1]) <= LONGEST_NAME:
            return one[1], [(first, last, len(one[3]))], last - first + 1
    match = _ONE_FOLD.fullmatch(text)
    numbers = _numbers(match[2]) if match else None
    if match is None or not numbers or len(match[1]) > LONGEST_NAME:
        return None
    n_listed = 0
    for first, last, _ in numbers:
        n_listed += last - first + 1
    return match[1], numbers, n_listed


def _names(prefix: str, numbers: Ranges, families: Families) -> tuple[str, ...]:
    names: list[str] = []
    for first, last, width in numbers:
        known = _family(prefix, first, last, width, families)
        asked = range(first, last + 1)
        names += known[first : last + 1] if last < len(known) else _numbered(prefix, asked, width)
    return tuple(names) if len(numbers) == 1 else tuple(dict.fromkeys(names))


def _family(prefix: str, first: int, last: int, width: int, families: Families) -> list[str]:
    """Names of the prefix from number 0 on; they do not reach to `last` where few are asked for."""
    family = families.get((prefix, width)) or families.setdefault((prefix, width), _Family())
    family.n_asked += last - first + 1
    n_known = len(family.names)
    if n_known <= last < _MOST_MORE * family.n_asked:
        family.names += _numbered(prefix, range(n_known, last + 1), width)
    return family.names


def _numbered(prefix: str, numbers: range, width: int) -> list[str]:
    return [f"{prefix}{number:0{width}d}" for number in numbers]


def _numbers(ranges: str) -> Ranges | None:
    """First and last number and the width of each range; None where it is not plain."""
    numbers: Ranges = []
    for low, last_or_none in _ENDS.findall(ranges):
        high = last_or_none or low
        n_low, width = len(low), len(high)
        if n_low != width:
            # equal widths keep their zeros
            if n_low > width or (low[0] == "0" and n_low > 1):
                return None
            width = 0
        first, last = int(low), int(high)
        if last < first or last >= MOST_NODES:
            return None
        numbers.append((first, last, width))
    return numbers


def _by_clustershell(text: str) -> tuple[str, ...]:
    # brackets within brackets are in no list; a megabyte of them would be counted for nothing
    if _LISTED.fullmatch(text) is None or "[[" in text or "]]" in text:
        raise ValueError(f"{text[:80]!r} is not a list of nodes")
    if listed_nodes(text) > MOST_NODES:
        raise ValueError(f"{text[:80]!r} names an absurd number of nodes")
    if max(map(len, _IN_BRACKETS.sub("", text).split(","))) > LONGEST_NAME:
        raise ValueError(f"{text[:80]!r} has a name of more than {LONGEST_NAME} characters")
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        nodes = NodeSet(text, resolver=RESOLVER_NOGROUP)
        if len(nodes) > MOST_NODES:
            raise ValueError(f"{text[:80]!r} names an absurd number of nodes")
        names = tuple(nodes)
    except (NodeSetException, ArithmeticError, AssertionError, IndexError, TypeError) as error:
        raise ValueError(f"{text[:80]!r} is not a list of nodes: {error}") from error
    if not names or any("/" in name for name in names):
        raise ValueError(f"{text[:80]!r} names no node")
    return names


def listed_nodes(text: str) -> int:
    """How many nodes a list names, those named twice counted twice, without expanding it."""
    if "[" not in text and "]" not in text:
        return text.count(",") + 1
    total, of_name, in_brackets, is_inside = 0, 1, 0, False
    for piece in _PIECES.findall(text):
        if piece == "[":
            in_brackets, is_inside = 0, True
        elif piece == "]":
            # brackets that nothing opened count nothing, or many of them would make a huge number
            of_name, in_brackets, is_inside = of_name * max(in_brackets, 1), 0, False
        elif piece != ",":
            in_brackets += _n_numbers(piece) if is_inside else 0
        elif not is_inside:
            total, of_name = total + of_name, 1
    return total + of_name


def _n_numbers(text: str) -> int:
    found = _RANGE.fullmatch(text)
    if found is None:
        return 1
    if max(len(found[1]), len(found[2])) > _MOST_DIGITS:
        return MOST_NODES + 1
    return max(int(found[2]) - int(found[1]) + 1, 1)


class NodeLists:
    """Reads and expands each distinct list once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...] | None] = {}
        self._folds: dict[str, Folded | None] = {}
        self._families: Families = {}
        self._kept = 0

    def checked(self, text: str) -> int:
        """How many nodes a list names, as `listed_nodes` counts them.

        Most texts are known for a list without expanding them.

        Raises:
            ValueError: the text is not a list of nodes.
        """
        fold = self._folds.get(text) or self._fold(text)
        if fold is None and self(text) is None:
            raise ValueError(f"{text[:80]!r} is not a list of nodes")
        return listed_nodes(text) if fold is None else fold[2]

    def listed(self, text: str) -> int:
        """The same of any text, be it a list of nodes or not."""
        fold = self._folds.get(text) or self._fold(text)
        return listed_nodes(text) if fold is None else fold[2]

    def __call__(self, text: str) -> tuple[str, ...] | None:
        """The names, or None where the text is not a list of nodes."""
        if text not in self._known:
            self._make_room()
            fold = self._fold(text)
            try:
                names = _names(fold[0], fold[1], self._families) if fold else expand_nodes(text)
            except ValueError:
                names = None
            self._known[text] = names
            self._kept += 1 + len(names or ())
        return self._known[text]

    def placed(self, texts: Iterable[str]) -> tuple[list[str], Ints, Ints]:
        """Names; where among them those of each text begin; and how many each lists.

        A range is named where it lies in its family, so that lists share names.
        """
        names: list[str] = []
        families: dict[int, tuple[int, list[str]]] = {}
        places: list[tuple[int, int, int]] = []
        for text in texts:
            fold = self._folds.get(text) or self._fold(text)
            if fold and len(fold[1]) == 1:
                ((first, last, width),) = fold[1]
                known = _family(fold[0], first, last, width, self._families)
                if last < len(known):
                    number, _ = families.setdefault(id(known), (len(families) + 1, known))
                    places.append((number, first, fold[2]))
                    continue
            own = self(text) or ()
            places.append((0, len(names), len(own)))
            names += own
        begins = [0]
        for _, known in families.values():
            begins.append(len(names))
            names += known
        self._kept += len(names)
        of_family, firsts, counts = np.array(places, dtype=np.int64).reshape(-1, 3).T
        return names, np.array(begins)[of_family] + firsts, counts

    def _fold(self, text: str) -> Folded | None:
        if "[" not in text:
            return None
        if text not in self._folds:
            self._make_room()
            fold = self._folds[text] = _fold(text)
            self._kept += 1 + len(fold[1] if fold else ())
        return self._folds[text]

    def _make_room(self) -> None:
        if self._kept > _MOST_KEPT:
            self._known, self._folds, self._families, self._kept = {}, {}, {}, 0


class FileNodeLists:
    """The lists of a file all of whose nodes are held at once.

    All of them together name no more nodes than one list may: forty lines of 35 bytes would fill
    memory otherwise. Lists that name few new nodes are still read after one that names too many.
    """

    def __init__(self) -> None:
        self._expand = NodeLists()
        self._names: set[str] = set()
        self._n_named = 0

    def __call__(self, text: str) -> tuple[str, ...]:
        """The names.

        Raises:
            ValueError: no list of nodes, or one with which the file names too many.
        """
        # without brackets a file cannot name more than it has bytes for
        n_named = self._expand.listed(text) if "[" in text else 0
        if self._n_named + n_named > MOST_NAMED:
            raise ValueError(f"the lists of the file name more than {MOST_NAMED:,} nodes in all")
        names = self._expand(text)
        self._n_named += n_named
        if names is None:
            raise ValueError(f"{text[:80]!r} is not a list of nodes")
        if len(self._names) + len(names) > MOST_NODES:
            n_new = sum(name not in self._names for name in names)
            if len(self._names) + n_new > MOST_NODES:
                raise ValueError(f"with {text[:80]!r} the file has more than {MOST_NODES:,} nodes")
        self._names.update(names)
        return names
