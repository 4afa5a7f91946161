"""Node lists by whole columns are those that are read one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ettr.sources.limits import MOST_NODES
from ettr.sources.node_lists import NodeLists, expand_nodes, listed_nodes, range_lists

PIECES = ["n", "gpu-", "_", "[", "]", "1", "01", "007", "99", "-", ",", "[1-3]", "[08-11,20]", "é"]
NUMBERS = st.tuples(st.integers(0, 120), st.integers(-1, 5), st.integers(0, 4), st.booleans())


def _folded(prefix: str, numbers: list[tuple[int, int, int, bool]], end: str) -> str:
    ranges = [
        f"{low:0{width}d}" if alone else f"{low:0{width}d}-{low + more:0{width}d}"
        for low, more, width, alone in numbers
    ]
    return f"{prefix}[{','.join(ranges)}]{end}"


TEXTS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
        st.builds(
            _folded,
            st.sampled_from(["n", "gpu", "rack1-", "a,b"]),
            st.lists(NUMBERS, min_size=1, max_size=3),
            st.sampled_from(["", "", "", "x"]),
        ),
    ),
    unique=True,
    max_size=12,
)


def _one_by_one(text: str) -> tuple[str, ...] | None:
    try:
        return expand_nodes(text)
    except ValueError:
        return None


def _names(lists: NodeLists, texts: pa.Array) -> list[tuple[str, ...]]:
    placed = lists.placed(texts)
    nodes = placed.names.take(pa.array(placed.of_lists(np.arange(len(texts))))).to_pylist()
    ends = np.cumsum(placed.counts)
    return [tuple(nodes[end - count : end]) for end, count in zip(ends, placed.counts, strict=True)]


@settings(max_examples=200, deadline=None, database=None)
@given(TEXTS, st.integers(0, 2))
def test_lists_are_read_by_the_column_as_one_by_one(texts: list[str], first: int) -> None:
    column = pa.array(["n[1-2]"] * first + texts, pa.string()).slice(first)
    expected = [_one_by_one(text) for text in texts]
    lists = NodeLists()
    counts, wrong = lists.checked(column)
    assert wrong.tolist() == [names is None for names in expected]
    known = ~wrong
    assert counts[known].tolist() == [
        listed_nodes(t) for t, k in zip(texts, known, strict=True) if k
    ]
    assert lists.all_listed(column).tolist() == [*map(listed_nodes, texts)]
    # with names that are known from other lists, too
    for _ in range(2):
        assert _names(lists, column) == [names or () for names in expected]


def test_names_follow_each_other_as_their_lists_write_them() -> None:
    texts = ["n[1-2,4]", "login", "n[3]", "gpu[09-11]", "n[2-3,1-2]", "n[8-10]", "a,b", "bad]"]
    assert _names(NodeLists(), pa.array(texts)) == [
        ("n1", "n2", "n4"),
        ("login",),
        ("n3",),
        ("gpu09", "gpu10", "gpu11"),
        ("n2", "n3", "n1"),
        ("n8", "n9", "n10"),
        ("a", "b"),
        (),
    ]


NO_PLAIN_LISTS = [
    "n",
    "a,b",
    "n[1-2]x",
    "n[1-2][3]",
    "[1-2]",
    "n[]",
    "n[1-2-3]",
    "n[1,,2]",
    "n[,1]",
    "n[1",
    "n[3-1]",
    "n[10-9]",
    "n[08-9]",
    "né[1]",
    "n[1234567890]",
    "a,n[1-2]",
    "n]1[",
]


@pytest.mark.parametrize(
    "text", ["", "n[1 ]", f"n[0-{MOST_NODES}]", "n" * 256 + "[1]", *NO_PLAIN_LISTS]
)
def test_what_is_no_plain_list_is_left_to_others(text: str) -> None:
    found = range_lists(pa.array(["x[1-2]", text, "x[7]"]))
    assert found.lists.tolist() == [0, 2]
    assert found.n_listed.tolist() == [2, 1]


def test_one_high_number_makes_no_other_names() -> None:
    lists = NodeLists()
    texts = pa.array([f"x{rack}y[199999]" for rack in range(20)] + ["x0y[1-2]"])
    assert _names(lists, texts)[-2:] == [("x19y199999",), ("x0y1", "x0y2")]
    assert len(lists.placed(texts).names) < 1000
