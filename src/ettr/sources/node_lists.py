"""Node lists such as `node[1-4,6-8]` -> node names, as Slurm, Flux and others write them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ettr.sources.limits import LONGEST_NAME, MOST_NAMED, MOST_NODES

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_ZERO, _DASH, _COMMA, _OPEN, _CLOSE = b"0-,[]"
_IN_A_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-"
_IS_FOREIGN = np.ones(256, dtype=bool)
_IS_FOREIGN[list(_IN_A_NAME + b",[]")] = False
_IS_DIGIT, _IS_SIGN = np.zeros((2, 256), dtype=bool)
_IS_DIGIT[list(b"0123456789")] = _IS_SIGN[list(b"-,]")] = True

_MOST_DIGITS = 9
# of a number in a list, from 0 for one without leading zeros
_WIDTHS = _MOST_DIGITS + 1
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
# first and last number and the width of each range
Ranges = list[tuple[int, int, int]]


def expand_nodes(text: str, families: Families | None = None) -> tuple[str, ...]:
    """The node names of a list as Slurm writes it.

    Plain names and one pair of brackets are expanded here, since logs hold them by the million;
    all else goes to ClusterShell, without its groups and operators.

    Raises:
        ValueError: no list of nodes, or one of absurd length.
    """
    if _PLAIN.fullmatch(text):
        return tuple(dict.fromkeys(text.split(",")))
    match = _ONE_FOLD.fullmatch(text)
    numbers = _numbers(match[2]) if match else None
    if match is not None and numbers and len(match[1]) <= LONGEST_NAME:
        return _names(match[1], numbers, {} if families is None else families)
    return _by_clustershell(text)


def _names(prefix: str, numbers: Ranges, families: Families) -> tuple[str, ...]:
    names: list[str] = []
    for first, last, width in numbers:
        known = _family(prefix, width, last, last - first + 1, families)
        asked = range(first, last + 1)
        names += known[first : last + 1] if last < len(known) else _numbered(prefix, asked, width)
    return tuple(names) if len(numbers) == 1 else tuple(dict.fromkeys(names))


def _family(prefix: str, width: int, last: int, n_asked: int, families: Families) -> list[str]:
    """Names of the prefix from number 0 on; they do not reach to `last` where few are asked for."""
    family = families.get((prefix, width)) or families.setdefault((prefix, width), _Family())
    family.n_asked += n_asked
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


# -- Whole columns of texts: what is not one prefix with ranges behind it, or one name, is left ----


@dataclass(frozen=True, slots=True)
class RangeLists:
    """Those of some texts that list ranges of one prefix, and those that are one name.

    Attributes:
        names: indices of the texts that are one name.
        lists: indices of the texts that list ranges; `prefixes` has the prefix of each, and
            `n_listed` how many nodes it lists, those named twice counted twice.
        of_list: which of the lists each range belongs to, in order; `first`, `last` and `width`
            are its numbers and their digits, 0 where no zeros lead.
    """

    names: Ints
    lists: Ints
    prefixes: pa.Array
    n_listed: Ints
    of_list: Ints
    first: Ints
    last: Ints
    width: Ints

    def counts(self, n: int) -> Ints:
        """How many nodes each of the `n` texts lists; 0 for those that are left to others."""
        counts = np.zeros(n, dtype=np.int64)
        counts[self.names] = 1
        counts[self.lists] = self.n_listed
        return counts

    def ascending(self) -> Mask:
        """Which lists have their ranges in order and of one width, and so no node twice."""
        same = self.of_list[1:] == self.of_list[:-1]
        ordered = (self.first[1:] > self.last[:-1]) & (self.width[1:] == self.width[:-1])
        return _none_of(self.of_list[1:][same & ~ordered], len(self.lists))


def range_lists(texts: pa.Array) -> RangeLists:
    """What some texts list; none of them is null."""
    n = len(texts)
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + n + 1]
    data = texts.buffers()[2]
    raw = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]] if data else np.empty(0, np.uint8)
    bounds = bounds.astype(np.int64) - bounds[0]
    starts, ends = bounds[:-1], bounds[1:]

    def texts_of(places: Ints) -> Ints:
        return np.searchsorted(ends, places, side="right")

    is_ours = (ends > starts) & _none_of(texts_of(np.flatnonzero(_IS_FOREIGN[raw])), n)
    opens, closes = (np.flatnonzero(raw == sign) for sign in (_OPEN, _CLOSE))
    n_opens, n_closes = (np.bincount(texts_of(at), minlength=n) for at in (opens, closes))
    folded = is_ours & (n_opens == 1) & (n_closes == 1)
    opens, closes = opens[folded[texts_of(opens)]], closes[folded[texts_of(closes)]]
    at = np.flatnonzero(folded)
    n_before = opens - starts[at]
    fits = (n_before > 0) & (n_before <= LONGEST_NAME) & (closes == ends[at] - 1)
    at, opens, closes = at[fits], opens[fits], closes[fits]
    is_inside = _between(opens, closes, len(raw))
    commas = texts_of(np.flatnonzero((raw == _COMMA) & ~is_inside))
    has_no_comma = _none_of(commas, n)
    numbers = _BracketNumbers.read(raw, is_inside, closes)
    first, last, width, is_range = numbers.ranges(raw)
    is_good = has_no_comma[at] & numbers.alternate(closes - opens - 1)
    is_good &= _none_of(numbers.owner[numbers.is_first][~is_range], len(at))
    of_list = numbers.owner[numbers.is_first]
    kept = is_good[of_list]
    place = np.cumsum(is_good) - 1
    of_list, first, last, width = place[of_list[kept]], first[kept], last[kept], width[kept]
    at, opens = at[is_good], opens[is_good]
    n_listed = np.bincount(of_list, weights=last - first + 1, minlength=len(at))
    return RangeLists(
        names=np.flatnonzero(is_ours & (n_opens == 0) & (n_closes == 0) & has_no_comma),
        lists=at,
        prefixes=_texts(raw, starts[at], opens),
        n_listed=n_listed.astype(np.int64),
        of_list=of_list,
        first=first,
        last=last,
        width=width,
    )


@dataclass(frozen=True, slots=True)
class _BracketNumbers:
    """The numbers within brackets, in order: the brackets they are in, digits, and neighbours."""

    owner: Ints
    begin: Ints
    n_digits: Ints
    before: Bytes
    after: Bytes

    @classmethod
    def read(cls, raw: Bytes, is_inside: Mask, closes: Ints) -> _BracketNumbers:
        is_digit = np.zeros(len(raw) + 2, dtype=np.int8)
        is_digit[1:-1] = _IS_DIGIT[raw] & is_inside
        edges = np.diff(is_digit)
        begin, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        owner = np.searchsorted(closes, begin)
        return cls(owner, begin, end - begin, raw[begin - 1], raw[end])

    @property
    def is_first(self) -> Mask:
        """Which numbers begin a range, or are one by themselves."""
        is_first: Mask = self.before != _DASH
        return is_first

    def alternate(self, n_bytes: Ints) -> Mask:
        """In which brackets, of so many bytes, numbers and single signs take turns."""
        n = len(n_bytes)
        n_digits = np.bincount(self.owner, weights=self.n_digits, minlength=n)
        n_signs = n_bytes - n_digits
        wrong = ~_IS_SIGN[self.after] | ((self.before == _DASH) & (self.after == _DASH))
        wrong |= self.n_digits > _MOST_DIGITS
        n_numbers = np.bincount(self.owner, minlength=n)
        takes_turns: Mask = n_signs == n_numbers - 1
        return takes_turns & _none_of(self.owner[wrong], n)

    def ranges(self, raw: Bytes) -> tuple[Ints, Ints, Ints, Mask]:
        """First and last number and width of each range, and whether it is a plain one."""
        low = np.flatnonzero(self.is_first)
        high = np.minimum(low + (self.after[low] == _DASH), max(len(self.begin) - 1, 0))
        values = self._values(raw)
        first, last = values[low], values[high]
        n_low, n_high = self.n_digits[low], self.n_digits[high]
        leads = (raw[self.begin[low]] == _ZERO) & (n_low > 1)
        # numbers of equal width keep their zeros; others have none
        is_plain = (n_low == n_high) | ((n_low < n_high) & ~leads)
        is_plain &= (first <= last) & (last < MOST_NODES)
        return first, last, np.where(n_low == n_high, n_high, 0), is_plain

    def _values(self, raw: Bytes) -> Ints:
        values = np.zeros(len(self.begin), dtype=np.int64)
        for k in range(min(int(self.n_digits.max(initial=0)), _MOST_DIGITS)):
            more = np.flatnonzero(self.n_digits > k)
            values[more] = 10 * values[more] + raw[self.begin[more] + k] - _ZERO
        return values


def _none_of(owners: Ints, n: int) -> Mask:
    """Which of 0 to n - 1 are not among the owners."""
    mask = np.ones(n, dtype=bool)
    mask[owners] = False
    return mask


def _between(opens: Ints, closes: Ints, n: int) -> Mask:
    """Which of n bytes lie between an opening bracket and its closing one."""
    change = np.zeros(n, dtype=np.int8)
    change[opens] = 1
    change[closes] = -1
    inside: Mask = np.cumsum(change, dtype=np.int8).view(bool)
    inside[opens] = False
    return inside


def _texts(raw: Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The texts from each start to its end."""
    import pyarrow as pa

    n_bytes = ends - starts
    bounds = np.concatenate(([0], np.cumsum(n_bytes))).astype(np.int32)
    places = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], n_bytes)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(raw[places])]
    return pa.Array.from_buffers(pa.string(), len(starts), buffers)


@dataclass(frozen=True, slots=True)
class Placed:
    """The nodes of some lists: those of list `k` are `counts[k]` from `firsts[k]` on in `nodes`.

    Attributes:
        names: names of nodes, some of them more than once.
        nodes: indices into `names`.
    """

    names: pa.Array
    nodes: Ints
    firsts: Ints
    counts: Ints

    @classmethod
    def of_parts(cls, names: pa.Array, n: int, lists: Ints, firsts: Ints, counts: Ints) -> Placed:
        """The same of `n` lists, of each of which parts lie together among the names."""
        order = np.argsort(lists, kind="stable")
        lists, firsts, counts = lists[order], firsts[order], counts[order]
        ends = np.cumsum(counts)
        nodes = np.arange(counts.sum()) + np.repeat(firsts - (ends - counts), counts)
        of_list = np.bincount(lists, weights=counts, minlength=n).astype(np.int64)
        return cls(names, nodes, np.cumsum(of_list) - of_list, of_list)

    def of_lists(self, lists: Ints) -> Ints:
        """Indices into `names` of the nodes of some lists, one list behind the other."""
        counts = self.counts[lists]
        ends = np.cumsum(counts)
        before = np.repeat(self.firsts[lists] - (ends - counts), counts)
        nodes: Ints = self.nodes[np.arange(counts.sum()) + before]
        return nodes


class NodeLists:
    """Reads and expands each distinct list once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...] | None] = {}
        self._families: Families = {}
        self._kept = 0
        self._read: tuple[pa.Array, RangeLists] | None = None

    def checked(self, texts: pa.Array) -> tuple[Ints, Mask]:
        """How many nodes each text lists, and which are not a list of nodes.

        Most texts are known for a list without expanding them.
        """
        counts, others = self._counts(texts)
        wrong = np.zeros(len(texts), dtype=bool)
        for k, text in zip(others.tolist(), texts.take(others).to_pylist(), strict=True):
            wrong[k] = self(text) is None
            counts[k] = 0 if wrong[k] else listed_nodes(text)
        return counts, wrong

    def all_listed(self, texts: pa.Array) -> Ints:
        """How many nodes each text lists, be it a list of nodes or not."""
        counts, others = self._counts(texts)
        counts[others] = [*map(listed_nodes, texts.take(others).to_pylist())]
        return counts

    def _counts(self, texts: pa.Array) -> tuple[Ints, Ints]:
        """The counts of plain lists, and where the other texts are."""
        counts = self._ranges(texts).counts(len(texts))
        return counts, np.flatnonzero(counts == 0)

    def _ranges(self, texts: pa.Array) -> RangeLists:
        # the lists of a block of records are mostly asked for three times
        if self._read is None or not self._read[0].equals(texts):
            self._read = (texts, range_lists(texts))
        return self._read[1]

    def __call__(self, text: str) -> tuple[str, ...] | None:
        """The names, or None where the text is not a list of nodes."""
        if text not in self._known:
            self._make_room()
            try:
                names = expand_nodes(text, self._families)
            except ValueError:
                names = None
            self._known[text] = names
            self._kept += 1 + len(names or ())
        return self._known[text]

    def placed(self, texts: pa.Array) -> Placed:
        """The nodes that each text lists.

        A range is named where it lies in its family, so that lists share names.
        """
        import pyarrow as pa  # .1 s, and who names some nodes needs none

        self._make_room()
        found = self._ranges(texts)
        names: list[str] = []
        begins = self._of_families(found, names)
        is_here = begins >= 0
        is_left = np.ones(len(texts), dtype=bool)
        is_left[found.names] = is_left[found.lists[is_here]] = False
        others = np.flatnonzero(is_left)
        own = [self(text) or () for text in texts.take(others).to_pylist()]
        n_own = np.array([*map(len, own)], dtype=np.int64)
        first_own = len(names) + np.cumsum(n_own) - n_own
        names += chain.from_iterable(own)
        self._kept += len(names)
        single = texts.take(found.names)
        first_single = len(names) + np.arange(len(single))
        ranges = is_here[found.of_list]
        of_list = found.of_list[ranges]
        first, n_listed = found.first[ranges], (found.last - found.first + 1)[ranges]
        return Placed.of_parts(
            pa.concat_arrays([pa.array(names, pa.string()), single]),
            len(texts),
            np.concatenate((found.names, others, found.lists[of_list])),
            np.concatenate((first_single, first_own, begins[of_list] + first)),
            np.concatenate((np.ones_like(first_single), n_own, n_listed)),
        )

    def _of_families(self, found: RangeLists, names: list[str]) -> Ints:
        """Where number 0 of each list's family is among `names`, to which the families are added.

        -1 for lists that may name a node twice, and for those whose family does not reach so far.
        """
        begins = np.full(len(found.lists), -1, dtype=np.int64)
        codes = found.prefixes.dictionary_encode()
        prefixes = codes.dictionary.to_pylist()
        every = np.arange(len(begins))
        first_range = np.searchsorted(found.of_list, every)
        last_range = np.searchsorted(found.of_list, every, side="right") - 1
        family_of = _WIDTHS * codes.indices.to_numpy().astype(np.int64) + found.width[first_range]
        highest = np.zeros(_WIDTHS * len(prefixes), dtype=np.int64)
        n_asked = np.zeros_like(highest)
        plain = np.flatnonzero(found.ascending())
        np.add.at(n_asked, family_of[plain], found.n_listed[plain])
        np.maximum.at(highest, family_of[plain], found.last[last_range][plain])
        begin_of = np.full_like(highest, -1)
        for number in np.flatnonzero(n_asked).tolist():
            code, width = divmod(number, _WIDTHS)
            asked, last = int(n_asked[number]), int(highest[number])
            known = _family(prefixes[code], width, last, asked, self._families)
            if last < len(known):
                begin_of[number] = len(names)
                names += known
        begins[plain] = begin_of[family_of[plain]]
        return begins

    def _make_room(self) -> None:
        if self._kept > _MOST_KEPT:
            self._known, self._families, self._kept = {}, {}, 0


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
        n_named = listed_nodes(text) if "[" in text else 0
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
