"""Tables in the middle: views that keep what they refer to."""

import gc

import ibis
import pytest

from ettr.tables.materialize import as_view, materialize


@pytest.fixture
def numbers():
    backend = ibis.duckdb.connect()
    backend.create_table("numbers", schema=ibis.schema({"n": "int64", "name": "string"}))
    backend.insert("numbers", [(1, "a"), (2, "b"), (3, None)])
    return backend.table("numbers")


def test_a_view_has_the_rows_and_types_of_what_it_names(numbers):
    some = numbers.filter(numbers["n"] > 1).mutate(twice=numbers["n"] * 2)
    view = as_view(some)
    assert view.schema() == some.schema()
    rows = view.order_by("n").to_pyarrow().to_pylist()
    assert rows == [{"n": 2, "name": "b", "twice": 4}, {"n": 3, "name": None, "twice": 6}]


def test_what_builds_on_a_view_does_not_repeat_it(numbers):
    deep = numbers
    for _ in range(5):
        deep = deep.filter(deep["n"] > 0).distinct()
    sql = ibis.to_sql(as_view(deep).select("n"))
    assert "DISTINCT" not in sql
    assert "DISTINCT" in ibis.to_sql(deep.select("n"))


def test_a_view_keeps_what_it_refers_to(numbers):
    known = ibis.memtable({"n": [2, 3]}, schema={"n": "int64"})
    kept = materialize(numbers.filter(numbers["n"] < 3))
    view = as_view(kept.semi_join(known, "n"))
    del known, kept
    gc.collect()
    assert view.to_pyarrow().to_pylist() == [{"n": 2, "name": "b"}]


def test_tables_in_memory_alone_need_no_view():
    known = ibis.memtable({"n": [2, 3]})
    assert as_view(known) is known
