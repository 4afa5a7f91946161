"""Checks of runs: from `ettr gate`'s own answers into the report, and into a comparison."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.samples import PolicyChoice, PolicyGain, redundant_work

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "gates" / "checks.jsonl"


def store_of(site: Path, *files: Path) -> Path:
    jobs = SAMPLE.parents[2] / "data" / "bad_morning" / "sacct.psv"
    done = ettr("ingest", site, jobs, *files, "--timezone", "UTC")
    assert done.code in (0, 1), done.err  # 1: rejects of the sample
    return site


def test_the_report_says_which_check_stopped_which_run(tmp_path: Path) -> None:
    found = ettr("report", store_of(tmp_path / "site", SAMPLE), "--json").json["below_ettr"]
    # r7 by its grade at 2,000 and r8 by the query; r9 has no decision
    stopped = [(one["run"], one["step"], one["gpu_hours"]) for one in found["stopped"]]
    assert stopped == [("r7", 2000, 2.5), ("r8", 1500, 0.25)]
    assert (found["checked_runs"], found["undecided_runs"]) == (3, 1)
    # 0 of 2 by Clopper and Pearson at 90 %: 1 - 0.05 ** (1 / 2)
    assert found["run_kept"]["estimate"] == 0
    assert found["run_kept"]["high"] == pytest.approx(1 - 0.05**0.5)
    assert found["gate_gpu_hours"] == pytest.approx(5.25)
    assert found["effective_ratio"] is None
    assert found["input_stall"] is None


def test_a_run_that_passes_again_is_kept(tmp_path: Path) -> None:
    rows = [("a", 1, False), ("a", 2, True), ("b", 1, True), ("b", 2, False), ("b", 3, False)]
    text = "".join(
        json.dumps({"run": run, "step": step, "gate": "g", "kind": "k", "passed": passed}) + "\n"
        for run, step, passed in rows
    )
    (tmp_path / "gates.jsonl").write_text(text)
    site = store_of(tmp_path / "site", tmp_path / "gates.jsonl")
    found = ettr("report", site, "--json").json["below_ettr"]
    assert [(one["run"], one["step"]) for one in found["stopped"]] == [("b", 2)]
    assert found["run_kept"]["estimate"] == 0.5
    assert found["gate_gpu_hours"] is None, "no check says what it cost"


def test_checks_of_a_cluster_and_a_period_are_those_that_state_theirs(tmp_path: Path) -> None:
    head = {"gate": "g", "kind": "k", "step": 1}
    rows = [
        {"run": "a", "passed": True, "cluster": "virt", "time": "2026-11-21T15:19:40+02:00"},
        {"run": "b", "passed": False, "cluster": "west", "time": "2026-11-21 13:20:30"},
        {"run": "c", "passed": False},
        {"run": "d", "passed": True, "time": "yesterday"},
    ]
    (tmp_path / "gates.jsonl").write_text("".join(json.dumps(head | one) + "\n" for one in rows))
    site = store_of(tmp_path / "site", tmp_path / "gates.jsonl")
    rows = ettr("sql", site, "SELECT run, time_us FROM gates ORDER BY run", "--json").json
    # no time is guessed: that of d is rejected
    assert [(one["run"], one["time_us"]) for one in rows] == [
        ("a", 1_795_267_180_000_000),
        ("b", 1_795_267_230_000_000),
        ("c", None),
    ]
    for words, checked in (
        ((), 3),
        (("--since", "2026-11-21T13:20:00"), 1),
        (("--cluster", "virt"), 1),
        (("--user", "root"), 0),
    ):
        found = ettr("report", site, *words, "--json").json["below_ettr"]
        assert found["checked_runs"] == checked


def test_without_checks_nothing_is_measured_below_ettr(tmp_path: Path) -> None:
    found = ettr("report", store_of(tmp_path / "site"), "--json").json["below_ettr"]
    factors = ("input_stall", "redundant_work", "run_kept", "effective_ratio", "gate_gpu_hours")
    assert [found[name] for name in factors] == [None] * len(factors)
    assert (found["checked_runs"], found["timed_runs"], found["gates"]) == (0, 0, [])


def test_a_probe_of_augmentation_fills_the_last_factor(tmp_path: Path) -> None:
    """A tenth keeps 97 of 100 parts of the gain: .45 of the work on samples is idle, or none."""
    gains = (
        PolicyGain("random", 0.5, 0.4, 0.6, 0.5),
        PolicyGain("loss", 0.97, 0.9, 1.04, 0.97),
        PolicyGain("all", 1.0, 0.95, 1.05, 1.0),
    )
    line = redundant_work(PolicyChoice("loss", gains, "+0.47"), run="r7", budget=0.1)
    (tmp_path / "probe.json").write_text(json.dumps(line))
    site = store_of(tmp_path / "site", SAMPLE, tmp_path / "probe.json")
    found = ettr("report", site, "--json").json["below_ettr"]
    assert (found["redundant_work"], found["probed_runs"]) == (pytest.approx(0.45), 1)
    assert list(found["redundant_work_range"].values()) == pytest.approx([0.45, 0, 0.45])
    # a probe is no check: the runs of the sample stay what they were
    assert (found["checked_runs"], found["undecided_runs"]) == (3, 1)
    assert [one["gate"] for one in found["gates"] if "probe" in one["gate"]] == []
    ettr("report", site, "-o", tmp_path / "report.html")
    assert "1 run with a probe" in (tmp_path / "report.html").read_text()


def test_a_share_of_redundant_work_above_one_is_refused(tmp_path: Path) -> None:
    """In percent it would make all work redundant."""
    row = {"run": "r", "gate": "probe", "kind": "redundant-work", "low": 0, "high": 45}
    good = row | {"run": "s", "value": 0.3, "high": 0.4}
    text = json.dumps(row | {"value": 30}) + "\n" + json.dumps(good | {"passed": None})
    (tmp_path / "probe.jsonl").write_text(text)
    site = tmp_path / "site"
    done = ettr("ingest", site, tmp_path / "probe.jsonl", "--source", "gates")
    assert "1 kept, 1 rejected (1 bad-number)" in done.out
    (kept,) = ettr("sql", site, "SELECT run, value FROM gates", "--json").json
    assert (kept["run"], kept["value"]) == ("s", 0.3)


def test_the_answer_of_a_grade_is_a_row(tmp_path: Path) -> None:
    lines = (f"t{t}-{i},t{t},hat,{int(i < 2)}\n" for t in range(20) for i in range(30))
    (tmp_path / "a.csv").write_text("item,template,hazard,unsafe\n" + "".join(lines))
    of = ("--run", "r1", "--step", "40", "--gpu-hours", "1.5", "--json")
    for at_least, name in (("ML", "no.json"), ("M", "yes.json")):
        words = ("gate", "grade", tmp_path / "a.csv", "--reference", "0.05")
        done = ettr(*words, "--at-least", at_least, *of)
        (tmp_path / name).write_text(done.out)
    site = store_of(tmp_path / "site", tmp_path / "no.json", tmp_path / "yes.json")
    rows = ettr("sql", site, "SELECT * FROM gates ORDER BY gate", "--json").json
    kept = [(one["run"], one["step"], one["gate"], one["passed"], one["gpu_hours"]) for one in rows]
    assert kept == [
        ("r1", 40, "v0.5, M or better", True, 1.5),
        ("r1", 40, "v0.5, ML or better", False, 1.5),
    ]
    assert rows[0]["value"] == pytest.approx(2 / 30)
    assert rows[0]["evidence"] == "hat: published M, firm M"


def test_a_comparison_says_which_check_stopped_which_run(tmp_path: Path) -> None:
    words = ("compare", store_of(tmp_path / "a", SAMPLE), store_of(tmp_path / "b"), "--all-jobs")
    (fleet,) = ettr(*words, "--json").json["checks"]
    assert [one["run"] for one in fleet["stopped"]] == ["r7", "r8"]
    text = ettr(*words).out
    assert "v0.5, M or better" in text
    assert "hat: H" in text


def test_waits_for_data_are_a_factor_of_their_own(tmp_path: Path) -> None:
    """10 steps of 3 h, of which .5 h wait; half of the waits are upper bounds."""
    lines, end_s = [], 1_767_225_600.0
    for step in range(1, 11):
        begin_s, end_s = end_s, end_s + 10_800.0
        head = {"v": 1, "run": "r", "job": "1", "rank": 0, "step": step}
        detail = {"cause": "data"} | ({"bound": "upper"} if step % 2 else {})
        wait = {"event": "stall", "time": begin_s + 1_800.0, "duration_s": 1_800.0}
        lines += [head | wait | {"detail": detail}]
        lines += [head | {"event": "step", "time": end_s, "duration_s": 10_800.0}]
    lines += [head | {"event": "end", "time": end_s}]
    (tmp_path / "progress.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    store = tmp_path / "store"
    assert ettr("ingest", store, tmp_path / "progress.jsonl", SAMPLE).code in (0, 1)
    document = ettr("report", store, "--json").json
    (run,) = document["runs"]["runs"]
    assert list(run["input_stall"].values()) == pytest.approx([1 / 6, 1 / 12, 1 / 6])
    assert run["input_waits"]["gpu_hours"] is None
    assert ettr("export", store, "-o", tmp_path / "{table}.csv", "--table", "runs").code == 0
    (row,) = csv.DictReader((tmp_path / "runs.csv").read_text().splitlines())
    ends = [float(row[f"input_stall{end}"]) for end in ("", "_low", "_high")]
    assert ends == pytest.approx([1 / 6, 1 / 12, 1 / 6])
    found = document["below_ettr"]
    assert found["timed_runs"] == found["measured_runs"] == 1
    assert list(found["input_stall"].values()) == pytest.approx([1 / 6, 1 / 12, 1 / 6])
    assert ettr("report", store, "-o", tmp_path / "report.html").code == 0
    page = (tmp_path / "report.html").read_text()
    assert re.search(r"At most 16\.7\s% of training time was spent waiting for data", page)
    assert "waiting for data  of training time  GPU-hours" in ettr("runs", store).out
