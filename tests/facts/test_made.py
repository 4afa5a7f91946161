"""Facts made in Python keep their values and types, nulls included, however many rows there are."""

from __future__ import annotations

import duckdb
import pytest

from ettr.facts.duck import Duck

COLUMNS = (("node", "VARCHAR"), ("us", "BIGINT"), ("hours", "DOUBLE"), ("is_open", "BOOLEAN"))


@pytest.mark.parametrize("n", [0, 1, 5000])
def test_rows_come_back_as_they_were_put(n: int) -> None:
    # the first thousands of a column may all be null
    rows = [
        (
            f"n{i}" if i > 3000 else None,
            2**60 + i if i % 3 else None,
            i / 4,
            None if i % 2 else True,
        )
        for i in range(n)
    ]
    engine = Duck(duckdb.connect())
    engine.put("made_rows", COLUMNS, rows)
    assert [tuple(row.values()) for row in engine.rows("SELECT * FROM made_rows", {})] == rows
