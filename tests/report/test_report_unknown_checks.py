"""Events that the taxonomy does not know are said to explain nothing, and how to change that."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.program import SACCT, Done, ettr
from ettr.metrics.coverage import taxonomy_row
from ettr.taxonomy import load_taxonomy

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sources" / "table.md"
HEAD = "hostname,ts,what,level\n"
# job 4 of the small site failed on n4 at 01:00
ON_N4 = "n4,2026-03-03T00:59:00Z,fan-3,critical\n"
COLUMNS = "node=hostname,time=ts,code=what,severity=level,check==site-check"


def words(done: Done) -> str:
    return " ".join(done.out.split())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unknown")
    (folder / "sacct.psv").write_text(SACCT)
    (folder / "checks.csv").write_text(HEAD + ON_N4 + "n1,2026-03-01T12:00:00Z,dust,warning\n")
    store = folder / "store"
    assert ettr("ingest", store, folder / "sacct.psv", "--timezone", "UTC").code == 0
    options = ("--source", "table", "--table", "events", "--columns", COLUMNS, "--cluster", "c")
    done = ettr("ingest", store, folder / "checks.csv", *options)
    assert done.code == 0, done.err
    return store


def test_they_are_listed_and_failures_stay_a_lower_bound(store: Path, tmp_path: Path):
    document: Any = ettr("report", store, "--json").json
    (unknown,) = document["quality"]["unknown_checks"]
    assert {key: unknown[key] for key in ("check", "code", "events", "critical_events")} == {
        "check": "site-check",
        "code": "*",
        "events": 2,
        "critical_events": 1,
    }
    assert document["logs"]["node_checks"] == []
    assert document["logs"]["unknown_checks"] == ["site-check"]
    assert document["failures"]["is_lower_bound"] is True
    assert document["failures"]["all_jobs"]["failures"] == 1
    done = ettr("report", "--detail", store, "-o", tmp_path / "r.html")
    assert "Say what the codes of site-check mean" in words(done)
    html = (tmp_path / "r.html").read_text("utf-8")
    assert "<pre" in html
    assert "check = &#34;site-check&#34;" in html


def test_the_rows_can_be_pasted_and_make_the_warning_go(store: Path, tmp_path: Path):
    text = ettr("quality", store, "--detail").out
    site = tmp_path / "site.toml"
    site.write_text(text[text.index("[[rules]]") :])
    document: Any = ettr("report", store, "--taxonomy", site, "--json").json
    assert document["quality"]["unknown_checks"] == []
    assert document["logs"]["node_checks"] == ["site-check"]
    assert document["failures"]["is_lower_bound"] is False
    # the critical event lies in the window of job 4; the warning is no fault
    assert document["failures"]["all_jobs"]["failures"] == 2
    assert document["failures"]["by_confidence"] == {
        "scheduler_only": 1,
        "high": 0,
        "medium": 1,
        "low": 0,
    }


def test_an_unknown_xid_is_listed_with_its_own_row(tmp_path: Path):
    log = tmp_path / "kernel.log"
    line = "2026-03-02T11:59:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): {}, pid=1, text\n"
    log.write_text(line.format(79) + line.format(9099))
    store = tmp_path / "store"
    assert ettr("ingest", store, log, "--cluster", "c").code == 0
    quality: Any = ettr("quality", store, "--json").json
    (unknown,) = quality["unknown_checks"]
    assert (unknown["check"], unknown["code"], unknown["events"]) == ("xid", "9099", 1)
    site = tmp_path / "site.toml"
    site.write_text(unknown["taxonomy_row"])
    quality = ettr("quality", store, "--taxonomy", site, "--json").json
    assert quality["unknown_checks"] == []


@pytest.mark.parametrize(
    ("check", "code"),
    [
        ("site-check", None),
        ("Mood  Probe", "SMART[5]*"),
        ("[HC] probe?", '"quoted" \\ back'),
        ("*", "?"),
        ("a\x7fb\tc", "é[x"),
    ],
)
@pytest.mark.parametrize("critical", [True, False])
def test_a_row_makes_just_its_check_and_code_known(
    check: str, code: str | None, critical: bool, tmp_path: Path
):
    row = taxonomy_row(check, code, critical=critical)
    assert tomllib.loads(row)["rules"]
    site = tmp_path / "site.toml"
    site.write_text(row, encoding="utf-8")
    taxonomy = load_taxonomy(site)
    assert taxonomy.knows(check, code)
    assert not taxonomy.knows(check, "another code")
    assert not taxonomy.knows(f"{check} and more", code)
    verdict = taxonomy.classify(check, code, "critical")
    assert (verdict is not None and verdict.is_node_fault) is critical
    # what the source does not grade is no fault by being pasted
    verdict = taxonomy.classify(check, code, "unknown")
    assert verdict is None or not verdict.is_node_fault


def test_the_page_on_tables_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checks.csv").write_text(HEAD + ON_N4)
    (tmp_path / "sacct.psv").write_text(SACCT)
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    commands = "\n".join(body for kind, body in blocks if kind == "sh").replace("\\\n", " ")
    (toml,) = [body for kind, body in blocks if kind == "toml"]
    (tmp_path / "site.toml").write_text(toml)
    assert ettr("ingest", "STORE", "sacct.psv", "--timezone", "UTC").code == 0
    ingest, report = (
        line.split()[1:]
        for line in commands.splitlines()
        if "checks.csv" in line or "site.toml" in line
    )
    assert ettr(*ingest).code == 0
    done = ettr(*report, "--json")
    assert done.code == 0, done.err
    assert done.json["failures"]["all_jobs"]["failures"] == 2
    assert done.json["quality"]["unknown_checks"] == []
