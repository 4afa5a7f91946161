"""Each kind of log alone, and each left out: every figure is right, null, or called a bound.

The small site has four nodes of eight GPUs. Job 2 ended NODE_FAIL on n1 at 12:00, a
minute after an XID 79 there; job 4 ended FAILED on n4 at 01:00, half a minute after a check that
found a GPU missing; n1 was down from 12:00 to 18:00.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.program import EVENTS, KERNEL, SACCT, Done, ettr
from ettr.analysis import Analysis
from ettr.report.html import render
from ettr.report.page import document, page, summary_text
from ettr.report.section import joined
from ettr.store import open_store

pytestmark = pytest.mark.slow

CHECKS = """\
cluster,node,time,check,code,severity
c,n4,2026-03-03T00:59:30Z,nvidia smi gpu_num,missing,critical
c,n2,2026-03-01T12:00:00Z,nvidia smi gpu_num,,ok
"""
CONTROLLER = """\
[2026-03-02T12:00:00.000] requeue job JobId=2 due to failure of node n1
"""
STEPS = [
    {"event": "start", "step": 0, "time": 1_772_323_200.0, "duration_s": None},
    *(
        {"event": "step", "step": n, "time": 1_772_323_200.0 + 3600.0 * n, "duration_s": 3600.0}
        for n in range(1, 13)
    ),
    {"event": "save", "step": 12, "time": 1_772_366_700.0, "duration_s": 300.0},
    {"event": "end", "step": 12, "time": 1_772_366_700.0, "duration_s": None},
]
PROGRESS = "".join(
    json.dumps({"v": 1, "run": "train", "cluster": "c", "job": "1", "rank": 0, **step}) + "\n"
    for step in STEPS
)
LOGS = {
    "accounting": ("sacct.psv", SACCT),
    "states": ("events.psv", EVENTS),
    "kernel": ("kernel.log", KERNEL),
    "checks": ("checks.csv", CHECKS),
    "controller": ("slurmctld.log", CONTROLLER),
    "progress": ("progress.jsonl", PROGRESS),
}
ALONE = [frozenset({name}) for name in LOGS]
LEFT_OUT = [frozenset(LOGS) - {name} for name in LOGS]
CASES = [*ALONE, *LEFT_OUT, frozenset(LOGS)]


def words(done: Done) -> str:
    assert done.code == 0, done.err
    return " ".join(done.out.split())


class Site:
    """A store of some of the logs, and its report in every form."""

    def __init__(self, folder: Path, names: frozenset[str]) -> None:
        self.names = names
        self.store = folder / "store"
        texts = {folder / file: text for name, (file, text) in LOGS.items() if name in names}
        for path, text in texts.items():
            path.write_text(text)
        done = ettr("ingest", self.store, *texts, "--timezone", "UTC", "--cluster", "c")
        assert done.code == 0, done.err
        with open_store(self.store) as opened:
            analysis = Analysis(opened)
            whole = page(analysis)
            self.text = " ".join(summary_text(whole).split())
            self.sections = " ".join(joined(whole.sections).split())
            self.html = render(whole)
            self.json: Any = json.loads(json.dumps(document(analysis), allow_nan=False))

    def has(self, name: str) -> bool:
        return name in self.names


@pytest.fixture(scope="module", params=CASES, ids=lambda names: "+".join(sorted(names)))
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"), request.param)


def test_every_form_of_the_report_is_made(site: Site):
    for form in (site.text, site.sections, site.html):
        assert " 0 jobs" not in form
        assert "– h" not in form
    assert [section for section in ("Nodes", "Job sizes") if section in site.sections]


def test_the_logs_that_are_there_are_named(site: Site):
    logs = site.json["logs"]
    assert logs["jobs"] is site.has("accounting")
    assert logs["node_states"] is site.has("states")
    assert logs["progress"] is site.has("progress")
    assert logs["controller"] is site.has("controller")
    checks = [
        name for log, name in (("checks", "nvidia smi gpu_num"), ("kernel", "xid")) if site.has(log)
    ]
    assert logs["node_checks"] == checks


def test_counts_of_jobs(site: Site):
    totals, failures = site.json["totals"], site.json["failures"]
    if not site.has("accounting"):
        assert totals == dict.fromkeys(totals)
        assert failures["all_jobs"]["failures"] is None
        assert failures["is_lower_bound"] is None
        assert site.json["goodput"]["first_order_gpu_hours"] is None
        assert "no job accounting" in site.text
        return
    assert (totals["jobs"], totals["attempts"], totals["gpu_hours"]) == (4, 6, 584.0)
    # job 2 by its state; job 4 only where the check was read
    assert failures["all_jobs"]["failures"] == 1 + site.has("checks")
    # without the check job 4 is missed, and nothing else arrived from its node
    assert failures["is_lower_bound"] is not site.has("checks")
    lost = site.json["goodput"]["first_order_gpu_hours"]
    assert lost == pytest.approx(4.0 * (1 + site.has("checks")))


def test_confidence_of_failures(site: Site):
    counts = site.json["failures"]["by_confidence"]
    if not site.has("accounting"):
        assert counts == dict.fromkeys(counts)
        return
    assert counts["high"] == site.has("kernel")
    assert counts["scheduler_only"] == (not site.has("kernel"))
    assert counts["medium"] == site.has("checks")
    assert counts["low"] == 0


def test_lower_bounds_say_so(site: Site):
    bound = site.has("accounting") and not (site.has("checks") or site.has("kernel"))
    if site.has("accounting"):
        assert ("Add kernel logs and health checks: without them" in site.text) is bound
    missed = site.has("accounting") and not site.has("checks")
    assert ("These are lower bounds" in site.sections) is missed
    assert ("These are lower bounds" in site.html) is missed


def test_outages(site: Site):
    nodes = site.json["nodes"]
    keys = ("unplanned_node_hours", "down_share", "lost_node_hours", "outages_per_1000_node_days")
    if not site.has("states"):
        assert [nodes[key] for key in keys] == [None] * 4
        assert nodes["repair_h"]["count"] is None
        return
    assert nodes["unplanned_node_hours"] == 6.0
    assert nodes["repair_h"]["mean_h"]["estimate"] == 6.0
    # who else was in service only the jobs know
    assert nodes["fleet_is_known"] is site.has("accounting")
    if not site.has("accounting"):
        assert "≤" in site.text


def test_nodes_that_nobody_names_are_not_counted(site: Site):
    named = site.names - {"progress"}
    assert (site.json["nodes"]["nodes"] is None) is not bool(named)
    if site.has("accounting"):
        assert site.json["nodes"]["nodes"] == 4


def test_faults_of_nodes(site: Site):
    faults = site.json["nodes"]["faults"]
    # n1: error or outage or both, within a quarter of an hour; n4: the check
    expected = (site.has("kernel") or site.has("states")) + site.has("checks")
    if not expected:
        assert faults is None
        return
    assert faults["faults"] == expected
    rate = faults["in_service"]["per_1000_node_days"]
    if site.has("accounting"):
        assert faults["fleet_is_known"] is True
        assert rate["estimate"] == pytest.approx(
            1000 * expected / faults["in_service"]["node_days"]
        )
    else:
        assert faults["fleet_is_known"] is False
        assert rate["estimate"] is None


def test_progress_is_measured_or_not_known(site: Site):
    runs, mttf = site.json["runs"], site.json["mttf"]
    if not site.has("progress"):
        assert runs["measured_runs"] == (0 if site.has("accounting") else None)
        assert mttf["interruption_mttf_h"] == {"estimate": None, "low": None, "high": None}
        return
    assert runs["measured_runs"] == 1
    (measured,) = [run for run in runs["runs"] if run["basis"] == "progress"]
    if not site.has("accounting"):
        # 12 h of steps in 12 h 5 min; how long the job waited nobody says
        assert measured["ettr_without_queue_ratio"]["estimate"] == pytest.approx(12 / (12 + 1 / 12))
        assert measured["ettr_ratio"]["estimate"] is None
        assert measured["queue_h"] is None
        assert measured["gpu_hours"] is None


def test_what_to_do_next_names_the_logs_that_are_missing(site: Site):
    steps = " ".join(site.json["next_steps"])
    assert ("Add job accounting" in steps) is not site.has("accounting")
    # of what is lacking three are named, what the most numbers rest on first
    if site.has("accounting"):
        assert ("Add node states" in steps) is not site.has("states")
    assert ("Add kernel logs and health checks" in steps) is not (
        site.has("checks") or site.has("kernel")
    )


def test_what_no_log_bears_is_null(site: Site):
    attribution = site.json["attribution"]["false_attribution"]
    evidence = site.has("checks") or site.has("kernel") or site.has("states")
    measured = site.has("accounting") and evidence
    assert (attribution["n_touched"] is not None) is measured
    assert (attribution["share"]["high"] is not None) is measured
    clocks = site.json["quality"]["clocks"]
    assert (clocks["attempts_ended_before_start"] is not None) is site.has("accounting")
    links = site.json["goodput"]["preemption_links"]
    known = site.has("accounting") and site.has("controller")
    assert (links["told_by_log"] is not None) is known


@pytest.fixture(scope="module")
def plans(site: Site) -> tuple[Done, Done]:
    size = ("--nodes", "4", "--fleet-nodes", "16", "--json")
    return ettr("plan", site.store, *size), ettr("project", site.store, *size)


def test_a_plan_and_a_projection_from_what_there_is(site: Site, plans: tuple[Done, Done]):
    plan, projection = plans
    refusals = {"controller": "no fault of a node is recorded", "kernel": "span no time"}
    if len(site.names) == 1 and not site.names.isdisjoint(refusals):
        (name,) = site.names
        assert (plan.code, projection.code) == (2, 2)
        assert refusals[name] in plan.err
        return
    assert plan.code == 0, plan.err
    assert projection.code == 0, projection.err
    rate = projection.json["rate"]
    if site.names == {"progress"}:
        assert rate["failures"] == 0
        assert rate["node_days"] == pytest.approx(16 * (12 + 1 / 12) / 24, rel=1e-3)
        assert "restarts" in projection.json["jobs"]
        refused = ettr("plan", site.store, "--nodes", "4")
        assert (refused.code, "--fleet-nodes" in refused.err) == (2, True)
    elif not site.has("accounting"):
        assert rate["failures"] == site.json["nodes"]["faults"]["faults"]
        assert "faults of nodes" in projection.json["jobs"]


REPEATED = "".join(
    f"c|7|loop|ann|NODE_FAIL|0:0|{day}T00:00:00|{day}T00:00:00|{day}T01:00:00|{day}T05:00:00|"
    "14400|1|n3|cpu=64,gres/gpu=8,node=1|/w/d\n"
    for day in ("2026-03-03", "2026-03-04", "2026-03-05")
)
"""A job that failed three times, so that the table of such jobs has a row."""


@pytest.fixture(scope="module")
def without_gpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the accounting, with a job that keeps failing, in which no job names its GPUs."""
    folder = tmp_path_factory.mktemp("without-gpus")
    head, *rows = [line.split("|") for line in (SACCT + REPEATED).splitlines()]
    place = head.index("AllocTRES")
    kept = [cells[:place] + cells[place + 1 :] for cells in (head, *rows)]
    log = folder / "sacct.psv"
    log.write_text("".join("|".join(cells) + "\n" for cells in kept))
    assert ettr("ingest", folder / "store", log, "--timezone", "UTC").code == 0
    return folder / "store"


OF_GPUS = ("GPU-hours", "in failed jobs", "in preempted jobs", "their GPUs")
UNKNOWN = {"–", "not measured"}


def test_no_table_has_gpu_hours_that_nobody_measured(without_gpus: Path):
    with open_store(without_gpus) as opened:
        whole = page(Analysis(opened))
    found = [
        (table.title, header, row[place])
        for section in whole.sections
        for table in section.tables
        for place, header in enumerate(table.headers)
        if header.startswith(OF_GPUS)
        for row in table.rows
    ]
    assert {title for title, _, _ in found} >= {
        *("GPU-hours lost by cause", "GPU-hours lost by size of the failed job"),
        *("Jobs with repeated failures", "Failures", "End states", "Job sizes in nodes"),
        *("ETTR by run size", "Best checkpoint interval by size of run"),
    }
    assert [one for one in found if one[2] not in UNKNOWN] == []
    assert "GPU-hours lost by cause" not in [
        figure.title for section in whole.sections for figure in section.figures
    ]
    assert not re.search(r"(?<![\d.,])0 GPU-hours", render(whole))


@pytest.mark.parametrize(
    "command", ["goodput", "status", "sizes", "runs", "user-failures", "failures"]
)
def test_no_command_prints_gpu_hours_that_nobody_measured(without_gpus: Path, command: str):
    asked = [command, without_gpus, *(["--list"] if command == "failures" else [])]
    rows = list(csv.DictReader(ettr(*asked, "--csv").out.splitlines()))
    cells = [v for row in rows for name, v in row.items() if name.endswith("gpu_hours")]
    assert rows
    assert set(cells) == {""}


def cpus_alone(folder: Path, *more: Path) -> Path:
    """A store whose accounting lists CPUs and no GPUs."""
    log = folder / "sacct.psv"
    log.write_text(re.sub(r"gres/gpu=\d+,", "", SACCT))
    assert ettr("ingest", folder / "store", log, *more, "--timezone", "UTC").code == 0
    return folder / "store"


def inventory(folder: Path, gres: str) -> Path:
    """The four nodes as `scontrol show node` prints them."""
    file = folder / "nodes.txt"
    node = (
        "NodeName=n{n} Arch=x86_64 CoresPerSocket=32\n   CPUAlloc=0 CPUTot=64 CPULoad=0.1\n"
        "   Gres={gres}\n   State=IDLE ThreadsPerCore=1\n   CfgTRES=cpu=64,mem=1000M\n\n"
    )
    file.write_text("".join(node.format(n=n, gres=gres) for n in range(1, 5)))
    return file


def said_of(store: Path) -> tuple[str, Any]:
    """The text and the JSON of one report."""
    with open_store(store) as opened:
        analysis = Analysis(opened)
        return " ".join(summary_text(page(analysis)).split()), document(analysis)


@pytest.mark.parametrize("gres", [None, "gpu:h100:8"])
def test_gpus_that_no_job_lists_are_not_measured(tmp_path: Path, gres: str | None):
    """A cluster that does not account them logs the same as one whose jobs used none."""
    store = cpus_alone(tmp_path, *([] if gres is None else [inventory(tmp_path, gres)]))
    report, document = said_of(store)
    assert "GPU-hours not measured: no GPUs are accounted" in report
    assert re.search(r"Lost to failures, [^:]*: not measured \(no GPUs are accounted", report)
    assert document["totals"]["gpu_hours"] is None
    assert document["goodput"]["first_order_gpu_hours"] is None
    assert document["previous"]["this"]["lost_gpu_hours"] is None
    assert [one["size"]["size_from"] for one in document["runs"]["by_size"]] == [None]
    assert {one["n_gpus"] for one in document["planning"]["sizes"]} == {None}
    given: Any = ettr("report", store, "--gpus-per-node", "8", "--json").json
    assert given["totals"]["gpu_hours"] == 584.0


@pytest.mark.parametrize("said_by", ["inventory", "option"])
def test_no_gpus_is_0_where_that_is_known(tmp_path: Path, said_by: str):
    files = [inventory(tmp_path, "(null)")] if said_by == "inventory" else []
    options = ["--gpus-per-node", "0"] if said_by == "option" else []
    store = cpus_alone(tmp_path, *files)
    document: Any = ettr("report", store, *options, "--json").json
    assert document["totals"]["gpu_hours"] == 0.0
    assert document["goodput"]["first_order_gpu_hours"] == 0.0
    report = words(ettr("report", "--detail", store, *options, "-o", tmp_path / "r.html"))
    assert "no GPU-hours (no job held GPUs)" in report
    assert "of 0 that ran" not in report


def test_jobs_without_gpus_have_no_gpu_hours(without_gpus: Path):
    report, document = said_of(without_gpus)
    assert document["totals"]["gpu_hours"] is None
    assert document["goodput"]["first_order_gpu_hours"] is None
    assert document["status"]["states"][0]["gpu_hours"] is None
    assert re.search(r"Lost to failures, [^:]*: not measured \(no GPUs are accounted", report)
    given: Any = ettr("report", without_gpus, "--gpus-per-node", "8", "--json").json
    assert given["totals"]["gpu_hours"] == 584.0 + 3 * 4.0 * 8
    assert given["goodput"]["first_order_gpu_hours"] == 4.0 + 3 * 4.0
