"""Facts made in Python keep their values and types, nulls included, however many rows there are."""

from __future__ import annotations

import subprocess
import sys

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


def test_whatever_a_fact_reads_is_known_to_a_process_that_loaded_an_analysis_alone() -> None:
    """Facts made in Python come with the questions that ask for them, and those load late."""
    code = """
from ettr.analysis import Analysis
from ettr.facts import fact, fact_names
from ettr.facts.files import is_fact
from ettr.tables import TABLES
reads = {other for name in fact_names() for other in fact(name).reads} - TABLES.keys()
print(sorted(one for one in reads if not is_fact(one)))
"""
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
