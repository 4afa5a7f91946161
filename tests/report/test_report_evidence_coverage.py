"""Was evidence arriving? "No error found" in time without logs is counted apart, and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import Done, ettr, ettr_once
from ettr.analysis import Analysis
from ettr.analysis.evidence import uncovered_days
from ettr.store import open_store

pytestmark = pytest.mark.slow

HEAD = "Cluster|JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
ROW = "c|{job}|j|u|{state}|{start}|{start}|{end}|3600|1|{node}|gres/gpu=8\n"
# health checks pass on n1 twenty times a day for ten days; of the ten days after that nothing
# arrived; n2 is heard on the first day only
CHECKS = "cluster,node,time,check,code,severity\n" + "".join(
    f"c,n1,2026-03-{day:02d}T{hour:02d}:00:00Z,nvidia smi gpu_num,,ok\n"
    for day in range(1, 11)
    for hour in range(20)
)


def job(number: int, state: str, node: str, day: int) -> str:
    start, end = (f"2026-03-{day:02d}T{hour}:00:00" for hour in (10, 11))
    return ROW.format(job=number, state=state, node=node, start=start, end=end)


JOBS = (
    job(1, "FAILED", "n1", 5),  # heard
    job(2, "FAILED", "n2", 6),  # silent: n1 was heard
    job(3, "FAILED", "n1", 15),  # uncovered
    job(4, "NODE_FAIL", "n1", 16),  # uncovered, and no error found
    job(5, "COMPLETED", "n2", 20),
)


def words(done: Done) -> str:
    assert done.code == 0, done.err
    return " ".join(done.out.split())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coverage")
    (folder / "sacct.psv").write_text(HEAD + "".join(JOBS))
    (folder / "checks.csv").write_text(
        CHECKS + "c,n2,2026-03-01T00:00:00Z,nvidia smi gpu_num,,ok\n"
    )
    for name in ("sacct.psv", "checks.csv"):
        done = ettr("ingest", folder / "store", folder / name, "--timezone", "UTC")
        assert done.code == 0, done.err
    return folder / "store"


def test_each_node_day_is_heard_silent_or_uncovered(store: Path):
    evidence: Any = ettr_once("report", store, "--json").json["attribution"]["evidence"]
    errors, states = evidence["kinds"]
    assert errors["node_days"] == 2 * 20
    assert errors["heard_node_days"] == 10 + 1
    assert errors["uncovered_node_days"] == 2 * 10
    assert errors["silent_node_days"] == 9
    assert errors["nodes_never_heard"] == 0
    # of states nothing was read at all
    assert states["uncovered_node_days"] == states["node_days"] == 40
    assert states["nodes_never_heard_first"] == ["n1", "n2"]


def test_ends_in_uncovered_time_are_counted_apart(store: Path):
    document: Any = ettr_once("report", store, "--json").json
    evidence = document["attribution"]["evidence"]
    assert evidence["failed"] == {"heard": 1, "deaf": 0, "silent": 1, "uncovered": 1}
    assert evidence["unattributed"] == {"heard": 0, "deaf": 0, "silent": 0, "uncovered": 1}
    assert document["failures"]["all_jobs"]["failures"] == 1
    assert document["failures"]["is_lower_bound"] is True


def test_the_report_says_it(store: Path, tmp_path: Path):
    assert "1 attempt ended FAILED while no kernel messages" in words(
        ettr("failures", store, "--detail")
    )
    text = words(ettr("report", "--detail", store, "-o", tmp_path / "r.html"))
    assert "a lower bound" in text
    html = (tmp_path / "r.html").read_text("utf-8")
    assert "Was evidence arriving?" in html
    assert "1 while no evidence arrived and none could be found" in " ".join(html.split())


@pytest.mark.parametrize(
    ("job_id", "grade", "silent_nodes", "sentence"),
    [
        ("1", "heard", [], "of its node arrived between 2026-03-04 and 2026-03-05"),
        (
            "2",
            "silent",
            ["n2"],
            "No kernel message or health check of node n2 arrived between 2026-03-05 and "
            "2026-03-06: “no error found” says nothing about it.",
        ),
        ("3", "uncovered", ["n1"], "arrived on 2026-03-15, so no error could have been found"),
        ("4", "uncovered", ["n1"], "arrived on 2026-03-16, so no error could have been found"),
        ("5", "uncovered", ["n2"], None),  # completed: there is nothing to explain
    ],
)
def test_explain_says_whether_an_error_could_have_been_found(
    store: Path, job_id: str, grade: str, silent_nodes: list[str], sentence: str | None
):
    (evidence,) = ettr("explain", store, job_id, "--json").json["evidence"]
    assert (evidence["grade"], evidence["silent_nodes"]) == (grade, silent_nodes)
    text = words(ettr("explain", store, job_id, "--detail"))
    assert sentence in text if sentence else "evidence" not in text


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, {0, 1, 2, 3}),
        # one row a day: two days of silence have a chance of 14 %
        ({0: 1, 3: 1}, set()),
        # twenty a day: none of 2e-9 a day
        ({0: 20, 3: 20}, {1, 2}),
        ({1: 20, 2: 20}, {0, 3}),
    ],
)
def test_silence_is_uncovered_where_chance_does_not_explain_it(
    rows: dict[int, int], expected: set[int]
):
    assert uncovered_days(rows, 0, 3) == expected


@pytest.fixture(scope="module")
def kernel_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same jobs, and a kernel log of n1 that holds harmless lines, its driver's too."""
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "sacct.psv").write_text(HEAD + "".join(JOBS))
    (folder / "kern.log").write_text(
        "2026-03-01T02:00:00+00:00 n1 kernel: NVRM: loading NVIDIA UNIX Kernel Module  550.54\n"
        + "".join(
            f"2026-03-{day:02d}T03:00:00+00:00 n1 kernel: usb 1-1: new device\n"
            for day in range(1, 21)
        )
    )
    for name in ("sacct.psv", "kern.log"):
        done = ettr("ingest", folder / "store", folder / name, "--timezone", "UTC")
        assert done.code == 0, done.err
    return folder / "store"


def test_a_kernel_log_without_errors_shows_that_none_was_there(kernel_store: Path):
    document: Any = ettr("report", kernel_store, "--json").json
    evidence = document["attribution"]["evidence"]
    assert evidence["failed"] == {"heard": 2, "deaf": 0, "silent": 1, "uncovered": 0}
    assert evidence["unattributed"] == {"heard": 1, "deaf": 0, "silent": 0, "uncovered": 0}
    assert evidence["kinds"][0]["heard_node_days"] == 20
    # n2 was not heard, and a job ended FAILED there
    assert document["failures"]["is_lower_bound"] is True
    assert "No kernel messages" not in " ".join(document["next_steps"])


def test_counts_are_no_lower_bounds_where_every_kernel_log_was_arriving(
    kernel_store: Path, tmp_path: Path
):
    every = tmp_path / "every.log"
    xid = "NVRM: Xid (PCI:0000:1b:00): 43, pid=1, Ch 00000010"  # a program's; a driver is heard
    every.write_text(
        "2026-03-06T03:00:00+00:00 n2 kernel: usb 1-1: new device\n"
        f"2026-03-12T03:00:00+00:00 n1 kernel: {xid}\n"
    )
    assert ettr("ingest", kernel_store, every).code == 0
    document: Any = ettr("report", kernel_store, "--json").json
    assert document["attribution"]["evidence"]["failed"] == {
        "heard": 3,
        "deaf": 0,
        "silent": 0,
        "uncovered": 0,
    }
    assert document["failures"]["is_lower_bound"] is False
    assert "lower bound" not in words(ettr("failures", kernel_store, "--detail"))


def test_what_was_heard_of_a_node_before_its_service_does_not_cover_its_service(tmp_path: Path):
    """n2 is burnt in, and heard, for ten days, then in service and silent for ten."""
    checks = CHECKS.splitlines()[0] + "\n"
    for node, days in (("n1", range(1, 21)), ("n2", range(1, 11))):
        for day in days:
            for hour in range(20):
                checks += f"c,{node},2026-03-{day:02d}T{hour:02d}:00:00Z,nvidia smi gpu_num,,ok\n"
    (tmp_path / "sacct.psv").write_text(HEAD + job(1, "COMPLETED", "n1", 20))
    (tmp_path / "checks.csv").write_text(checks)
    (tmp_path / "nodes.csv").write_text(
        "cluster,node,n_gpus,in_service_from\n"
        "c,n1,8,2026-03-01T00:00:00Z\nc,n2,8,2026-03-11T00:00:00Z\n"
    )
    for name, options in (
        ("sacct.psv", ("--timezone", "UTC")),
        ("checks.csv", ("--timezone", "UTC")),
        ("nodes.csv", ("--source", "table", "--table", "nodes")),
    ):
        done = ettr("ingest", tmp_path / "store", tmp_path / name, *options)
        assert done.code == 0, done.err
    with open_store(tmp_path / "store") as opened:
        errors, _ = Analysis(opened).evidence.kinds
    assert errors.node_days == 20 + 10
    assert errors.heard_node_days == 20
    assert errors.silent_node_days == 10
    assert errors.uncovered_node_days == 0
    assert [one.nodes for one in errors.by_day] == [1] * 20
    assert errors.nodes_never_heard == 0
