"""What no log records is said to be not measured, and a count that misses some is a lower bound."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from cli.program import Done, ettr, ettr_once, write_logs

pytestmark = pytest.mark.slow

OUTAGE_KEYS = (
    "measured_node_hours",
    "available_node_hours",
    "unplanned_node_hours",
    "planned_node_hours",
    "draining_with_jobs_node_hours",
    "down_share",
    "lost_node_hours",
    "lost_gpu_hours",
    "outages_per_1000_node_days",
)


def store_of(folder: Path, *names: str) -> Path:
    """A store of those of the small site's logs."""
    folder.mkdir()
    files = [file for file in write_logs(folder) if file.name in names]
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.fixture(scope="module")
def accounting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of(tmp_path_factory.mktemp("evidence") / "alone", "sacct.psv")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The node of the job that ended FAILED passed a check at that time."""
    names = ("sacct.psv", "kernel.log", "events.psv")
    store = store_of(tmp_path_factory.mktemp("evidence") / "all", *names)
    checks = store.parent / "checks.csv"
    checks.write_text(
        "cluster,node,time,check,code,severity\nc,n4,2026-03-03T00:59:30Z,nvidia smi gpu_num,,ok\n"
    )
    done = ettr("ingest", store, checks, "--cluster", "c")
    assert done.code == 0, done.err
    return store


def words(done: Done) -> str:
    return " ".join(done.out.split())


def report(store: Path) -> str:
    return words(ettr_once("report", "--detail", store, "-o", store.parent / "report.html"))


def test_accounting_alone_gives_a_lower_bound(accounting: Path):
    text = report(accounting)
    assert "; a lower bound, see the failures" in text
    assert "failures go uncounted" in text
    assert "These are lower bounds: no kernel messages or health checks" in words(
        ettr("failures", accounting, "--detail")
    )
    document: Any = ettr("report", accounting, "--json").json
    assert document["failures"]["is_lower_bound"] is True
    assert document["logs"] == {
        "jobs": True,
        "node_checks": [],
        "node_states": False,
        "progress": False,
        "unknown_checks": [],
        "controller": False,
        "node_logs": False,
        "gpu_errors": False,
    }


def test_outages_that_no_log_records_are_not_measured(accounting: Path):
    text = report(accounting)
    assert "without them outages and repair times are unknown" in text
    assert "Outages and repair times are not measured" in words(
        ettr("nodes", accounting, "--detail")
    )
    nodes: Any = ettr("nodes", accounting, "--json").json
    assert [nodes[key] for key in OUTAGE_KEYS] == [None] * len(OUTAGE_KEYS)
    assert nodes["in_service_node_hours"] > 0
    html = (accounting.parent / "report.html").read_text("utf-8")
    assert "Not measured: the logs hold no kernel messages, health checks or node states" in html


def test_nothing_of_that_is_said_where_the_logs_are_there(everything: Path):
    text = report(everything)
    page = (everything.parent / "report.html").read_text("utf-8")
    # four nodes are too few to compare them with each other, whatever the logs hold
    lemons = re.search(r'<section id="lemons">.*?</section>', page, re.DOTALL)
    assert lemons is not None
    assert "fewer than 20 comparable nodes" in lemons[0]
    # no run of a day, and no period before: two of the four answers are not measured
    text = f"{text}{page.replace(lemons[0], '')}".replace("Not measured", "")
    for phrase in ("lower bound:", "lower bounds", "ot measured", "go uncounted"):
        assert phrase not in text
    document: Any = ettr("report", everything, "--json").json
    assert document["failures"]["is_lower_bound"] is False
    assert document["logs"]["node_checks"] == ["nvidia smi gpu_num", "xid"]
    assert document["nodes"]["unplanned_node_hours"] == 6.0


def test_a_job_that_failed_where_nothing_arrived_makes_a_lower_bound(tmp_path: Path):
    """The kernel's log holds a line of n1 alone; job 4 ended FAILED on n4."""
    store = store_of(tmp_path / "kernel", "sacct.psv", "kernel.log", "events.psv")
    document: Any = ettr("report", store, "--json").json
    assert document["attribution"]["evidence"]["failed"]["silent"] == 1
    assert document["failures"]["is_lower_bound"] is True
    text = words(ettr("failures", store, "--detail"))
    assert "1 attempt ended FAILED on a node that sent no kernel message" in text


def test_the_controllers_log_is_no_log_of_nodes(tmp_path: Path):
    """It says which node was lost, and nothing of the jobs that failed by themselves."""
    example = Path(__file__).parents[1] / "data" / "bad_morning"
    files = [example / "sacct.psv", example / "slurmctld.log"]
    done = ettr("report", "--detail", *files, "--timezone", "UTC", "-o", tmp_path / "r.html")
    assert "; a lower bound, see the failures" in words(done)


def test_a_stored_rate_stays_a_lower_bound_where_a_run_is_planned_with_it(
    accounting: Path, everything: Path, tmp_path: Path
):
    sentence = "The store's failure rate is a lower bound: no kernel messages or health checks"
    size, page = ("--nodes", "64"), tmp_path / "planner.html"
    assert sentence in words(ettr("plan", accounting, *size, "--html", page, "--detail"))
    assert sentence in unescape(page.read_text("utf-8"))
    assert sentence in ettr("plan", accounting, *size, "--json").json["assumptions"][0]
    assert sentence in words(ettr("project", accounting, *size, "--detail"))
    assert sentence in ettr("project", accounting, *size, "--json").json["notes"][0]
    for command in ("plan", "project"):
        assert "lower bound" not in words(ettr(command, everything, *size, "--detail"))


def test_evidence_is_the_same_however_many_events_may_be_judged(
    everything: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few events are read once and kept; of too many each stage reads what it needs."""
    from ettr.analysis import Analysis
    from ettr.attribution import rules
    from ettr.store import open_store

    def listed() -> tuple[bool, Any]:
        with open_store(str(everything)) as store:
            analysis = Analysis(store)
            kept = analysis.facts.table("observations") == analysis.facts.table("observations_kept")
            return kept, analysis.failure_list

    kept, with_kept = listed()
    monkeypatch.setattr(rules, "MOST_KEPT", 0)
    again, without = listed()
    assert (kept, again) == (True, False)
    assert with_kept == without
    assert any(one.evidence for one in with_kept.failures)
