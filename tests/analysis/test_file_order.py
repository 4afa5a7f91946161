"""The order in which files are read, and in how many calls, changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.facts.stored import stored_rows
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.origin import log_file
from ettr.store import open_store

DAY = "2026-11-01T"
HEAD = (
    "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES|"
    "Comment\n"
)


def row(job_id: str, state: str, ends: str | None, elapsed_s: int, **given: str) -> str:
    """A job of 16 GPUs that began at ten; `ends` is the hour and minute."""
    cells = (job_id, "train", "ann", given.get("cluster", "alpha"), state)
    times = (f"{DAY}10:00:00", f"{DAY}10:00:00", f"{DAY}{ends}:00" if ends else "Unknown")
    where = (2, "n[1-2]", "gres/gpu=16", given.get("comment", ""))
    return "|".join(map(str, (*cells, *times, elapsed_s, *where))) + "\n"


LOGS = {
    "early.psv": HEAD
    + row("1", "RUNNING", None, 600, comment="seed 7")
    + row("2", "RUNNING", None, 600)
    + row("3", "PENDING", None, 0),
    "half.psv": HEAD
    + row("1", "RUNNING", None, 3600)
    + row("2", "CANCELLED by 0", "11:00", 3600)
    + row("4", "RUNNING", None, 1200),
    "full.psv": HEAD
    + row("1", "NODE_FAIL", "12:00", 7200)
    + row("2", "CANCELLED", "11:00", 3600)
    + row("3", "COMPLETED", "13:00", 10800),
    "events.psv": "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    f"alpha|n2|{DAY}12:00:00|{DAY}13:00:00|DOWN*|Not responding|slurm(64030)\n",
    "events_before.psv": "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    f"alpha|n2|{DAY}12:00:00|Unknown|DOWN*|Not responding|slurm(64030)\n",
    "kernel.log": f"{DAY}11:59:00+00:00 n2 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has "
    "fallen off the bus.\n",
    "slurmctld.log": f"[{DAY}12:00:01.000] Killing JobId=1 on failed node n2\n",
    "progress.jsonl": "".join(
        json.dumps(
            {"v": 1, "run": "r", "job": "1", "rank": 0, "event": "step", "step": n}
            | {"time": 1793527200.0 + 600 * n, "duration_s": 600}
        )
        + "\n"
        for n in range(1, 12)
    ),
}


def stored(folder: Path, calls: list[list[str]], kind: str) -> dict[str, Any]:
    """What a store holds and says once some files were read, call by call."""
    options = ReadOptions(timezone="UTC")
    for name, text in LOGS.items():
        (folder / name).write_text(text)
    with open_store(folder / f"store{kind}", create=True) as store:
        for names in calls:
            logs = [log_file(folder / name) for name in names]
            with_paths = [log.__enter__() for log in logs]
            for log in with_paths:
                ingest_file(store, log.path, options)
            for log in logs:
                log.__exit__(None, None, None)
        made = Analysis(store)
        return {
            "attempts": rows(made, "attempts", "attempt_id"),
            "allocations": rows(made, "allocations", "attempt_id", "node"),
            "node_states": rows(made, "node_states", "node", "start"),
            "events": rows(made, "events", "check", "time"),
            "progress": rows(made, "progress", "run_id", "time"),
            "failures": [
                (row["job_id"], row["node"], row["symptom"], row["confidence"])
                for row in made.failure_rows
            ],
            "shifts": made.clock_shifts,
            "preempted": made.goodput.preemption_links.links,
            "ettr": [run.ettr_ratio for run in made.runs.runs],
        }


def rows(made: Analysis, name: str, *order: str) -> list[dict[str, Any]]:
    """All rows of a table, without keys that hold the cluster's name and without provenance.

    Of two dumps that say the same of a job the one read last is where its row is from.
    """
    found = stored_rows(made.facts, name).sort_by([(one, "ascending") for one in order]).to_pylist()
    left_out = {"event_id", "attempt_id", "file_id", "line"}
    return [{k: v for k, v in row.items() if k not in left_out} for row in found]


@pytest.fixture(scope="module")
def all_at_once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return stored(tmp_path_factory.mktemp("once"), [list(LOGS)], "")


@pytest.mark.slow
def test_what_is_expected_of_all_logs(all_at_once):
    states = {row["job_id"]: row["state"] for row in all_at_once["attempts"]}
    assert states == {"1": "NODE_FAIL", "2": "CANCELLED", "3": "COMPLETED", "4": "RUNNING"}
    known = {
        row["job_id"]: (row["cancelled_by"], row["comment"]) for row in all_at_once["attempts"]
    }
    assert (known["2"], known["1"]) == (("0", None), (None, "seed 7"))
    assert all_at_once["failures"] == [("1", "n2", "gpu-unavailable", "high")]
    assert {row["cluster"] for row in all_at_once["events"]} == {"alpha"}


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kind"), [(0, ""), (1, ""), (2, ""), (3, ""), (0, ".duckdb")])
def test_files_in_any_order_and_any_number_of_calls(
    seed: int, kind: str, tmp_path: Path, all_at_once
):
    rng = np.random.default_rng(seed)
    names = [str(name) for name in rng.permutation(list(LOGS))]
    cuts = sorted(rng.choice(len(names) - 1, rng.integers(0, len(names)), replace=False) + 1)
    calls = [list(part) for part in np.split(np.array(names), cuts)]
    assert stored(tmp_path, [[str(n) for n in call] for call in calls], kind) == all_at_once


def whole_report(folder: Path, *calls: tuple[str, ...]) -> Any:
    """The report in JSON once some logs were read, call by call."""
    folder.mkdir()
    for name, text in LOGS.items():
        (folder / name).write_text(text)
    for names in calls:
        paths = (folder / name for name in names)
        done = ettr("ingest", folder / "store", *paths, "--timezone", "UTC")
        assert done.code == 0, done.err
    return ettr("report", folder / "store", "--json").json


@pytest.mark.slow
def test_a_kernel_log_read_before_the_cluster_has_a_name_gives_the_same_report(tmp_path: Path):
    """The whole JSON, ids of evidence and notes on the files included."""
    after = whole_report(tmp_path / "after", ("full.psv",), ("kernel.log",))
    before = whole_report(tmp_path / "before", ("kernel.log",), ("full.psv",))
    assert before == after
    (note,) = after["quality"]["files"][1]["notes"]
    assert note.endswith("taken as 'alpha', the only one that other logs name")
    assert note in after["quality"]["assumptions"]


@pytest.mark.slow
def test_a_log_that_has_grown_since_the_cluster_has_a_name_doubles_no_event(tmp_path: Path):
    report = whole_report(tmp_path / "site", ("kernel.log",), ("full.psv",))
    grown = tmp_path / "site" / "grown.log"
    line = f"{DAY}20:00:00+00:00 n9 kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE\n"
    grown.write_text(LOGS["kernel.log"] + line)
    assert ettr("ingest", tmp_path / "site" / "store", grown).code == 0
    with open_store(tmp_path / "site" / "store") as store:
        events = Analysis(store).facts.rows("events")
        assert sorted(row["code"] for row in events) == ["48", "79"]
    assert report["failures"]["rows"][0]["evidence"]
