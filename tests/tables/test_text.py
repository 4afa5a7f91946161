"""Texts of tables: bytes of two encodings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.tables import rows
from ettr.tables.rows import text_of


def by_each_byte(data: bytes) -> str:
    """The same, a byte at a time."""
    escaped = data.decode("utf-8", "surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda found: chr(ord(found[0]) - 0xDC00), escaped)


PIECES = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=20).map(lambda words: words.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"a" * 200, b"\xff" * 200, "é€𝄞".encode(), b"\xed\xb2\x80", b"\xc3"]),
)


@given(st.lists(PIECES, max_size=8).map(b"".join))
def test_bytes_that_are_not_utf_8_are_latin_1_one_by_one(data: bytes) -> None:
    assert text_of(data) == by_each_byte(data)


@pytest.mark.parametrize("unit", [b"\xff", b"\xffa", b"\xc3(", b"a" * 49 + b"\xff"])
def test_a_megabyte_of_bad_bytes_is_not_taken_one_by_one(
    unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_calls = 0

    def latin_1(found: re.Match[str]) -> str:
        nonlocal n_calls
        n_calls += 1
        return by_each(found)

    by_each = rows._latin_1
    monkeypatch.setattr(rows, "_latin_1", latin_1)
    data = unit * ((1 << 20) // len(unit))
    assert text_of(data) == by_each_byte(data)
    assert n_calls <= len(data) // 50
