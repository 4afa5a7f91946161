"""Tables and figures for other programs: `ettr export`, `--csv`, the JSON Schema of the report."""

from __future__ import annotations

import csv
import io
import json
import stat
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from cli.program import SACCT, ettr, program
from ettr.report.json_schema import published_schema, report_schema
from ettr.report.rows import cell
from ettr.tables import DERIVED, TABLES

EXAMPLE = sorted((Path(__file__).resolve().parents[1] / "data" / "bad_morning").iterdir())


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# -- export ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_table_goes_into_one_duckdb_file(site: Path, tmp_path: Path):
    out = tmp_path / "tables.duckdb"
    done = ettr("export", site, "--to", out)
    assert done.code == 0, done.err
    assert f"failures: 1 row -> {out}" in done.out
    with duckdb.connect(str(out), read_only=True) as database:
        names = {row[0] for row in database.execute("SHOW TABLES").fetchall()}
        assert names == {*TABLES, *DERIVED}
        assert database.execute("SELECT job_id, node, symptom FROM failures").fetchall() == [
            ("2", "n1", "gpu-unavailable")
        ]
        hours = database.execute("SELECT sum(hours) FROM outages WHERE NOT is_planned").fetchall()
        assert hours == [(6.0,)]
        facts = dict(
            database.execute(
                "SELECT table_name, table_comment FROM information_schema.tables "
                "WHERE table_schema = 'facts'"
            ).fetchall()
        )
        listed = ettr("sql", site, "--json").json
        assert facts == {one["name"]: one["means"] for one in listed}
        for statement in (
            "SELECT state, attempts, gpu_s FROM {}status ORDER BY state",
            "SELECT cluster, max(start_us) AS last_us FROM {}attempts GROUP BY cluster",
        ):
            rows = database.execute(statement.format("facts.")).fetchall()
            answer = program("sql", site, statement.format(""), "--json").json
            assert [list(row) for row in rows] == [list(row.values()) for row in answer]
    again = ettr("export", site, "--to", out)
    assert again.code == 2
    assert "is there already" in again.err


@pytest.mark.slow
def test_parquet_has_the_schema_of_the_table(site: Path, tmp_path: Path):
    done = ettr("export", site, "--to", tmp_path / "new" / "{table}.parquet")
    assert done.code == 0, done.err
    for name, table in {**TABLES, **DERIVED}.items():
        read = pq.read_table(tmp_path / "new" / f"{name}.parquet")
        assert table.check(read).num_rows == read.num_rows


@pytest.mark.slow
def test_csv_holds_one_table(site: Path, tmp_path: Path):
    out = tmp_path / "attempts.csv"
    done = ettr("export", site, "--to", out, "--table", "attempts", "--json")
    assert done.code == 0, done.err
    assert done.json == [{"table": "attempts", "rows": 6, "file": str(out), "not_measured": None}]
    rows = rows_of(out.read_text())
    assert [row["job_id"] for row in rows if row["state"] == "NODE_FAIL"] == ["2"]
    assert {row["start"] for row in rows if row["job_id"] == "1"} == {"2026-03-01T00:00:00Z"}


@pytest.mark.parametrize(("access", "mode"), [("owner", 0o600), ("group", 0o640)])
@pytest.mark.parametrize("ending", ["csv", "duckdb"])
def test_who_may_read_the_store_may_read_what_is_exported(
    tmp_path: Path, access: str, mode: int, ending: str
):
    (tmp_path / "sacct.psv").write_text(SACCT)
    read = ("ingest", tmp_path / "st", tmp_path / "sacct.psv", "--timezone", "UTC")
    assert ettr(*read, "--readable-by", access).code == 0
    out = tmp_path / f"out.{ending}"
    assert ettr("export", tmp_path / "st", "--table", "attempts", "--to", out).code == 0
    assert stat.S_IMODE(out.stat().st_mode) == mode


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to", "out.xlsx"), "give a name that ends in .parquet, .csv, .duckdb"),
        (("--to", "out.csv"), "a csv file holds one table and 18 are asked for"),
        (("--to", "out.csv", "--table", "job"), "no table named 'job'; there are: nodes"),
        (("--to", "out.csv", "--table", "failures", "--json", "--csv"), "one form"),
    ],
)
def test_wrong_use_says_what_to_give(words: tuple[str, ...], says: str, site: Path):
    done = ettr("export", site, *words)
    assert done.code == 2
    assert says in done.err


@pytest.mark.slow
def test_what_was_not_measured_is_said(tmp_path: Path):
    """No row of outages without states of nodes does not mean that there was none."""
    sacct = tmp_path / "sacct.psv"
    sacct.write_text(SACCT)
    assert ettr("ingest", tmp_path / "store", sacct, "--timezone", "UTC").code == 0
    done = ettr("export", tmp_path / "store", "--to", tmp_path / "o.csv", "--table", "outages")
    assert done.code == 0
    assert "outages: not measured, since no log holds states of nodes" in done.err


# -- CSV ------------------------------------------------------------------------------------------

HOSTILE = "=cmd|' /C calc'!A0"


@pytest.mark.slow
def test_no_text_of_a_log_is_a_formula(tmp_path: Path):
    sacct = tmp_path / "sacct.csv"
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx"]
    text = SACCT.replace("|train|", f"|{names[0]}|").replace("|never|", f"|{names[3]}|")
    sacct.write_text(text.replace("|bug|", f"|{names[2]}|"))
    assert ettr("ingest", tmp_path / "s", sacct, "--timezone", "UTC").code == 0
    out = tmp_path / "attempts.csv"
    assert ettr("export", tmp_path / "s", "--to", out, "--table", "attempts").code == 0
    written = {row["name"] for row in rows_of(out.read_text())}
    assert {"'=1+1", "'@SUM(A1)", "'-1"} <= written
    shown = {row["name"] for row in rows_of(ettr("runs", tmp_path / "s", "--csv").out)}
    assert "'=1+1" in shown


@pytest.mark.parametrize("text", [HOSTILE, "+1", "-1", "@a", "\tx", "\rx", "\nx", "＝1"])
def test_text_that_begins_like_a_formula_gets_an_apostrophe(text: str):
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize(("value", "written"), [(-1.5, "-1.5"), (-3, "-3"), (None, ""), ("a", "a")])
def test_numbers_stay_numbers(value: float | str | None, written: str):
    assert cell(value) == written


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "column", "values"),
    [
        (("failures",), "symptom", {"gpu-unavailable"}),
        (("status",), "state", {"COMPLETED", "NODE_FAIL", "CANCELLED", "FAILED", "PREEMPTED"}),
        (("mttf",), "size_to", {"0", "8", "16"}),
        (("explain", "2"), "state", {"NODE_FAIL", "COMPLETED"}),
    ],
)
def test_a_metric_prints_its_list(
    words: tuple[str, ...], column: str, values: set[str], site: Path
):
    name, *rest = words
    done = ettr(name, site, *rest, "--csv")
    assert done.code == 0, done.err
    assert {row[column] for row in rows_of(done.out)} <= values | {""}
    assert {row[column] for row in rows_of(done.out)} & values


@pytest.mark.slow
def test_the_csv_of_a_metric_has_the_numbers_of_its_json(site: Path):
    (csv_row,) = rows_of(ettr("failures", site, "--csv").out)
    (entry,) = ettr("failures", site, "--json").json["by_symptom"]
    bounds = entry["all_jobs"]["per_1000_node_days"]
    assert float(csv_row["all_jobs_per_1000_node_days"]) == bounds["estimate"]
    assert float(csv_row["all_jobs_per_1000_node_days_low"]) == bounds["low"]
    assert float(csv_row["all_jobs_per_1000_node_days_high"]) == bounds["high"]


@pytest.mark.parametrize(
    "words",
    [
        ("sources",),
        ("catalog",),
        ("plan", "--gpus", "1024", "--failures", "3", "--node-days", "900"),
        ("project", "--failures", "3", "--node-days", "900", "--gpus", "1024"),
        ("compare", "a=3/900", "b=9/900"),
    ],
)
def test_csv_is_where_json_is(words: tuple[str, ...]):
    done = ettr(*words, "--csv")
    assert done.code == 0, done.err
    rows = rows_of(done.out)
    assert rows
    assert None not in rows[0]


# -- the schema of the report ---------------------------------------------------------------------


def errors_of(document: object) -> list[str]:
    found = Draft202012Validator(published_schema()).iter_errors(document)
    return [f"{list(error.absolute_path)}: {error.message[:200]}" for error in found]


@pytest.mark.slow
def test_the_published_schema_is_that_of_the_code():
    Draft202012Validator.check_schema(published_schema())
    assert published_schema() == json.loads(json.dumps(report_schema()))


@pytest.mark.slow
def test_the_report_of_a_site_is_valid(document: dict[str, Any]):
    assert errors_of(document) == []
    assert set(published_schema()["properties"]) == set(document)


@pytest.mark.slow
@pytest.mark.parametrize("files", [EXAMPLE, EXAMPLE[:1], EXAMPLE[1:2]], ids=["all", "one", "other"])
def test_the_report_of_any_logs_is_valid(files: list[Path]):
    """Logs that bear few figures leave many null."""
    done = ettr("report", *files, "--timezone", "UTC", "--json")
    assert done.code == 0, done.err
    assert errors_of(done.json) == []


@pytest.mark.slow
def test_what_is_wrong_in_a_report_is_found(document: dict[str, Any]):
    assert errors_of({**document, "totals": {**document["totals"], "jobs": "four"}})
    assert errors_of({key: value for key, value in document.items() if key != "mttf"})
    assert errors_of({**document, "version": 2})
