"""The five lines at the head of a report, on a site whose losses are counted by hand."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.program import EVENTS, KERNEL, SACCT, ettr
from ettr.analysis import Analysis
from ettr.report.answers import worst_nodes

LINES = (
    "Lost to failures, all 2.17 d of the logs",
    "Is it getting better than the period before?",
    "MTTF at the largest size run, 9-16 GPUs",
    "The 3 worst nodes",
    "What to do first",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    files = []
    for name, text in (("sacct.psv", SACCT), ("kernel.log", KERNEL), ("events.psv", EVENTS)):
        files.append(folder / name)
        files[-1].write_text(text)
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.mark.slow
def test_each_line_has_its_denominator_and_what_is_not_known_is_not_a_number(store: Path):
    done = ettr("report", store, "--json", "--gpu-hour-price", "2USD")
    document: dict[str, Any] = done.json
    lines = {one["question"]: one for one in document["summary"]}
    assert tuple(lines) == LINES
    # job 2 held 8 GPUs and lost half an hour of them; 584 GPU-hours ran
    cost = lines[LINES[0]]
    assert cost["answer"] == (
        "4 GPU-hours, 8 USD (0.667 to 10 GPU-hours, by how often jobs checkpoint)"
    )
    assert "of 584 that ran, in 1 failure from 2026-03-01 to " in cost["detail"]
    trend = lines[LINES[1]]
    assert trend["answer"] == "no data before"
    assert "No data before 2026-03-01" in trend["detail"]
    # no failure at that size: the time comes from the rate per node-day, and says so
    assert "0 failures in 24 job-hours at that size" in lines[LINES[2]]["detail"]
    assert lines[LINES[3]]["answer"] == "none stands out"
    assert "n1: 1 failure and 4 GPU-hours lost where" in lines[LINES[3]]["detail"]
    assert lines[LINES[4]]["answer"] == document["next_steps"][0]


@pytest.mark.slow
def test_without_jobs_every_line_says_not_measured(tmp_path: Path):
    (tmp_path / "kernel.log").write_text(KERNEL)
    done = ettr("report", tmp_path / "kernel.log", "--json", "--cluster", "c")
    assert done.code == 0, done.err
    answers = [one["answer"] for one in done.json["summary"]]
    assert answers[:4] == ["not measured"] * 4
    assert done.json["previous"] is None


@pytest.mark.slow
def test_the_loss_is_a_lower_bound_where_the_count_of_failures_is(tmp_path: Path):
    """Without logs of nodes failures go uncounted, and so does what they cost."""
    (tmp_path / "sacct.psv").write_text(SACCT)
    shown = ettr(
        "report", "--detail", tmp_path / "sacct.psv", "--timezone", "UTC", "-o", tmp_path / "r.html"
    )
    text = " ".join(shown.out.split())
    assert re.search(
        r"4 GPU-hours .*\(0.685 % of 584 that ran, in 1 failure .*; a lower bound", text
    )


def test_a_claimed_lemon_stands_out_whatever_chance_says_of_its_failures():
    row = {"cluster": "c", "failures": 2, "lost_gpu_hours": 18.0, "node_days": 5.0}
    nodes = [
        SimpleNamespace(node=name, expected_failures=0.15, chance=chance, **row)
        for name, chance in (("n1", 0.3), ("n2", 0.4), ("n3", 0.7))
    ]
    records = SimpleNamespace(blamed_failures=6, nodes=nodes)
    lemons = [
        SimpleNamespace(cluster="c", node="n2", claimed=True),
        SimpleNamespace(cluster="c", node="n3", claimed=False),
    ]
    found = worst_nodes(
        cast(
            Analysis,
            SimpleNamespace(node_records=records, lemon_nodes=SimpleNamespace(candidates=lemons)),
        )
    )
    assert found.answer == "n2"
    assert found.detail.startswith("2 failures and 18 GPU-hours lost where 0.150 are expected")
    assert "claimed as a lemon; of 6 failures blamed on 3 nodes" in found.detail


@pytest.mark.slow
def test_where_nothing_failed_the_nodes_that_ran_are_counted(tmp_path: Path):
    (tmp_path / "sacct.psv").write_text(SACCT.replace("NODE_FAIL", "COMPLETED"))
    done = ettr("report", tmp_path / "sacct.psv", "--timezone", "UTC", "--json")
    lines = {one["question"]: one for one in done.json["summary"]}
    assert lines["The 3 worst nodes"]["answer"] == "none"
    assert lines["The 3 worst nodes"]["detail"] == "no failure is blamed on a node; 4 nodes"


@pytest.mark.slow
def test_progress_of_a_job_that_nobody_knows_is_not_called_missing(store: Path, tmp_path: Path):
    step = '{"v":1,"run":"r","job":"99","rank":0,"time":%d,"event":"step","step":%d}\n'
    (tmp_path / "p.jsonl").write_text("".join(step % (1772370000 + n, n) for n in range(1, 5)))
    copytree(store, tmp_path / "store")
    done = ettr("ingest", tmp_path / "store", tmp_path / "p.jsonl")
    assert done.code == 0, done.err
    steps = " ".join(ettr("report", tmp_path / "store", "--json").json["next_steps"])
    assert "the records of 1 job are of no run of the accounting" in steps
    assert "Record training progress" not in steps


def test_runs_of_seconds_have_no_ettr_and_no_infinite_one(tmp_path: Path):
    head = "JobID|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    rows = [
        f"{job}|u{job}|c|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:00:20|20"
        f"|8|n[1-8]|gres/gpu=64\n"
        for job in (1, 2, 3)
    ]
    (tmp_path / "sacct.psv").write_text(head + "".join(rows))
    done = ettr("ingest", tmp_path / "store", tmp_path / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    text = " ".join(ettr("report", tmp_path / "store", "-o", tmp_path / "r.html").out.split())
    assert "inf to" not in text
    assert "of large runs: Not measured (the largest runs are shorter than a restart" in text
    first = ettr("runs", tmp_path / "store").out.splitlines()[0]
    assert first == "Not measured: no run is longer than the restart that is assumed (--restart)."
