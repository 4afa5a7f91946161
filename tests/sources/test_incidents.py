"""Incident ledgers: what people state stays apart from what was measured."""

from pathlib import Path

import pytest

from cli.program import ettr, write_logs

pytestmark = pytest.mark.slow

LEDGER = """date,kind,hours_lost
2026-03-01,GPU,6.5
2026-03-02,GPU,
2026-03-03,switch,2.25
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "incidents.csv"
    path.write_text(LEDGER)
    return path


def test_stated_hours_are_in_the_report_and_in_no_other_number(tmp_path: Path, ledger: Path):
    logs = write_logs(tmp_path)
    for store, files in (("without", logs), ("with", [*logs, ledger])):
        assert ettr("ingest", tmp_path / store, *files, "--timezone", "UTC").code == 0
    without, found = (ettr("report", tmp_path / s, "--json").json for s in ("without", "with"))
    total = found["incidents"]["total"]
    assert (total["incidents"], total["lost_h"], total["without_hours"]) == (3, 8.75, 1)
    assert total["lost_gpu_hours"] is None
    kinds = [(one["kind"], one["stated"]["lost_h"]) for one in found["incidents"]["by_kind"]]
    assert kinds == [("GPU", 6.5), ("switch", 2.25)]
    assert without["incidents"] is None
    for part in ("period", "failures", "mttf", "goodput", "runs", "nodes", "totals"):
        assert found[part] == without[part], part


def test_a_ledger_alone_makes_a_report(tmp_path: Path, ledger: Path):
    assert ettr("ingest", tmp_path / "store", ledger).code == 0
    done = ettr("report", tmp_path / "store", "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    page = (tmp_path / "report.html").read_text("utf-8").replace("\xa0", " ")
    assert "8.750 hours lost, as stated" in page


def test_a_ledger_with_ids_that_grew_replaces_its_entries(tmp_path: Path):
    for text in ("id,day,cause,lost_hours\nA,2026-03-01,GPU,1\n", LEDGER):
        (tmp_path / "one.csv").write_text(text)
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("id,day,cause,lost_hours\nA,2026-03-01,GPU,1\n")
    second.write_text("id,day,cause,lost_hours\nA,2026-03-01,GPU,3\nB,2026-03-02,GPU,4\n")
    for path in (first, second):
        assert ettr("ingest", tmp_path / "store", path).code == 0
    total = ettr("report", tmp_path / "store", "--json").json["incidents"]["total"]
    assert (total["incidents"], total["lost_h"]) == (2, 7.0)


def test_other_names_are_mapped(tmp_path: Path):
    path = tmp_path / "tickets.csv"
    path.write_text("opened,root cause,outage\n2026-03-01,fire,9\n")
    words = ("--source", "incidents", "--columns", "time=opened,kind=root cause,lost_h=outage")
    assert ettr("ingest", tmp_path / "store", path, *words).code == 0
    total = ettr("report", tmp_path / "store", "--json").json["incidents"]["total"]
    assert total["lost_h"] == 9.0
    refused = ettr("ingest", tmp_path / "other", path, "--source", "incidents")
    assert refused.code == 1
    assert "no column for time, kind, lost_h" in refused.err


def test_a_local_time_asks_for_its_zone(tmp_path: Path):
    path = tmp_path / "local.csv"
    path.write_text("date,kind,lost_hours\n2026-03-01 10:00,GPU,1\n")
    refused = ettr("ingest", tmp_path / "store", path)
    assert refused.code != 0
    assert "--timezone" in refused.err


def test_a_ledger_that_people_write_may_lack_cells_or_have_more(tmp_path: Path):
    rows = (
        "date,kind,hours_lost,kind,comment",
        "2026-03-01,GPU,6.5",
        "2026-03-02,GPU,1,ours,new cable,",
        '2026-03-03,switch,2.25,,"replaced, then',
    )
    (tmp_path / "incidents.csv").write_text("\n".join(rows) + "\n")
    assert ettr("ingest", tmp_path / "store", tmp_path / "incidents.csv").code == 0
    found = ettr("report", tmp_path / "store", "--json").json["incidents"]
    assert found["total"]["lost_h"] == 9.75
    kinds = [(one["kind"], one["stated"]["lost_h"]) for one in found["by_kind"]]
    assert kinds == [("GPU", 7.5), ("switch", 2.25)]
