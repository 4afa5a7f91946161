"""`ettr sql`: figures come back from the facts, and a statement can do nothing but read."""

from __future__ import annotations

import json

import pytest

from cli.program import ettr


@pytest.fixture(autouse=True)
def an_engine_of_its_own(monkeypatch):
    """A statement locks the settings of its engine: no other test may share it."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sql")
    head = "cluster,job_id,state,submit,start,end,elapsed_s,n_nodes,n_gpus,node_list,partition\n"
    times = "2026-01-01T00:00:00Z,2026-01-01T00:00:00Z,2026-01-01T02:00:00Z,7200"
    rows = [f"c,1,COMPLETED,{times},1,8,n1,a\n", f'c,2,FAILED,{times},2,16,"n1,n2",b\n']
    (folder / "jobs.csv").write_text(head + "".join(rows))
    options = ("--source", "table", "--table", "attempts")
    assert ettr("ingest", folder / "site", folder / "jobs.csv", *options).code == 0
    return folder / "site"


def test_a_statement_reads_facts_of_the_selection(store):
    statement = "SELECT sum(gpu_s) / 3600 AS gpu_hours FROM status"
    everything = ettr("sql", store, statement, "--json")
    assert json.loads(everything.out) == [{"gpu_hours": 48.0}]
    one = ettr("sql", store, statement, "--partition", "b", "--json")
    assert json.loads(one.out) == [{"gpu_hours": 32.0}]
    cut = ettr("sql", store, "SELECT job_id FROM attempts ORDER BY job_id", "--limit", "1", "--csv")
    assert cut.out.split() == ["job_id", "1"]
    assert "the first 1 rows" in cut.err


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DROP TABLE attempts", "one SELECT"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("COPY attempts TO 'x.csv'", "one SELECT"),
        ("SELECT * FROM read_text('/etc/hostname')", "Cannot access file"),
        ("SELECT * FROM glob('/*')", "Cannot access"),
        ("SELECT * FROM attempts WHERE", "DuckDB"),
        ("SELECT nothing FROM attempts", "DuckDB"),
        ("SELECT * FROM nothing", "no fact is named 'nothing'; without a statement"),
        ("SELECT * FROM failure", "no fact is named 'failure'; similar: failures"),
        ("SELECT * FROM node_checks", "cannot be read alone"),
    ],
)
def test_what_is_more_than_reading_the_store_is_refused(store, statement, why):
    done = ettr("sql", store, statement)
    assert done.code == 2
    assert why in done.err
    assert not done.out


def test_a_statement_without_an_end_is_stopped(store):
    endless = "SELECT count(*) FROM range(1000000000000) a, range(1000000000000) b"
    done = ettr("sql", store, endless, "--seconds", "0.2")
    assert done.code == 1
    assert "longer than 0.2 s" in done.err


def test_the_list_and_the_file_behind_a_fact(store):
    listed = ettr("sql", store)
    assert {"attempts", "chosen", "exposure"} <= {
        line.split()[0] for line in listed.out.splitlines()
    }
    shown = ettr("sql", store, "--show", "totals")
    assert shown.out.startswith("-- One row")
    assert "FROM chosen" in shown.out
    assert "start_us" in ettr("sql", store, "--show", "attempts").out
    unknown = ettr("sql", store, "--show", "nothing")
    assert unknown.code == 2
    assert "lists them" in unknown.err
