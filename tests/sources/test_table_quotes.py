"""A quote that is not closed costs its own line of a CSV file at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from ettr.sources.base import ReadOptions
from ettr.sources.registry import named
from source_samples import read_all, rows_of

HEADER = "time,node,check,message\n"
LINES = [f"{1_770_000_000 + n},n{n},c,fine" for n in range(300)]


@pytest.mark.parametrize(
    ("at", "line"),
    [
        ((7,), '1770000007,n7,c,"fine'),
        ((7,), '1770000007,"n7,c,fine'),
        ((7, 200), '1770000007,n7,c,"fine'),
        (range(0, 300, 3), '1770000007,n7,c,"fine'),
    ],
    ids=["last cell", "second cell", "two lines", "every third line"],
)
def test_a_quote_that_is_not_closed_costs_its_own_line(tmp_path: Path, at, line: str):
    lines = list(LINES)
    for index in at:
        lines[index] = line
    path = tmp_path / "site.csv"
    path.write_text(HEADER + "\n".join(lines) + "\n")
    batches = read_all(named("table"), path, ReadOptions(table="events"))
    nodes = {row["node"] for row in rows_of(batches, "events")}
    assert {f"n{n}" for n in range(300) if n not in at} <= nodes
    assert sum(batch.rows_read for batch in batches) == 300


def test_a_cell_may_hold_line_breaks_and_quotes(tmp_path: Path):
    path = tmp_path / "site.csv"
    path.write_text(HEADER + '1770000000,n1,c,"a\nb ""c"", d"\n' + LINES[1] + "\n")
    batches = read_all(named("table"), path, ReadOptions(table="events"))
    assert [row["message"] for row in rows_of(batches, "events")] == ['a\nb "c", d', "fine"]
    assert [row["line"] for row in rows_of(batches, "events")] == [2, 4]
