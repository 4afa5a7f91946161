"""A run that was resubmitted elsewhere is one run, whichever part of it is selected."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HEADER = (
    "Cluster|JobID|JobName|User|Partition|QOS|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES|Comment"
)


def job(
    number: int, start_h: float, end_h: float, *, user: str = "ann", partition: str = "a",
    qos: str = "low", state: str = "TIMEOUT", nodes: str = "n[1-2]", gpus: str = "gres/gpu=16",
    name: str = "train",
) -> str:  # fmt: skip
    start, end = (f"{BEGIN + timedelta(hours=h):%Y-%m-%dT%H:%M:%S}" for h in (start_h, end_h))
    seconds = int(3600 * (end_h - start_h))
    return (
        f"c|{number}|{name}|{user}|{partition}|{qos}|{state}|{start}|{start}|{end}|{seconds}|2"
        f"|{nodes}|{gpus}|run=llm"
    )


def store(folder: Path, *rows: str) -> Path:
    (folder / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n")
    done = ettr("ingest", folder / "site", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "site"


def runs(site: Path, *words: str, code: int = 0) -> Any:
    done = ettr("runs", site, *words, "--json")
    assert done.code == code, done.err
    return done.json


MOVED = (
    job(1, 0, 20),
    job(2, 20, 50, partition="b", qos="high", nodes="n[3-4]"),
    job(3, 50, 60, state="COMPLETED"),
)


@pytest.mark.parametrize(
    ("words", "partly"),
    [
        ((), 0),
        (("--cluster", "c"), 0),
        (("--user", "ann"), 0),
        (("--partition", "a"), 1),
        (("--partition", "b"), 1),
        (("--qos", "high"), 1),
        (("--node", "n3"), 1),
        (("--partition", "a", "--partition", "b"), 0),
        (("--partition", "b", "--since", "2026-03-03T03:00"), 1),  # it ended at 12:00
    ],
)
def test_a_run_that_moved_to_another_partition_stays_whole(
    words: tuple[str, ...], partly: int, tmp_path: Path
) -> None:
    """20 h in a, 30 in b, 10 in a again, each submitted as the one before it ended."""
    site = store(tmp_path, *MOVED)
    found = runs(site, *words)
    (run,) = found["runs"]
    assert run["job_ids"] == ["1", "2", "3"]
    hours = [run[f"{name}_h"] for name in ("wallclock", "scheduled", "queue", "between")]
    assert hours == [60.0, 60.0, 0.0, 0.0]
    assert run["gpu_hours"] == 60 * 16
    assert found["partly_selected_runs"] == partly


def test_the_report_says_that_a_run_is_partly_of_another_selection(tmp_path: Path) -> None:
    site = store(tmp_path, *MOVED)
    text = " ".join(ettr("runs", site, "--partition", "b", "--detail").out.split())
    assert "1 of these runs also had attempts outside the selection." in text
    assert "A run counts whole if one of its attempts is selected" in text
    assert "selected" not in ettr("runs", site, "--detail").out


def test_a_run_of_which_nothing_is_selected_is_none(tmp_path: Path) -> None:
    site = store(tmp_path, *MOVED, job(4, 0, 10, user="bob", partition="d", name="x"))
    assert [run["job_ids"] for run in runs(site, "--partition", "d")["runs"]] == [["4"]]
    assert runs(site, "--partition", "b", "--until", "2026-03-02")["runs"] == []
    assert len(runs(site)["runs"]) == 2


def test_a_run_id_of_two_users_is_one_run_of_each(tmp_path: Path) -> None:
    site = store(tmp_path, job(1, 0, 20), job(2, 30, 40, user="bob"))
    (run,) = runs(site, "--user", "bob", "--run-id", "run=([a-z]+)")["runs"]
    assert (run["attempts"], run["between_h"], run["wallclock_h"]) == (2, 10.0, 30.0)


def test_attempts_without_gpus_are_those_of_the_selected_period(tmp_path: Path) -> None:
    """One ended on 1 March, one on 2 March; a third names its GPUs."""
    rows = (job(1, 0, 10, gpus="", name="x"), job(2, 30, 40, gpus="", name="y"), job(3, 0, 40))
    site = store(tmp_path, *rows)
    assert runs(site)["attempts_without_gpus"] == 2
    assert runs(site, "--since", "2026-03-02")["attempts_without_gpus"] == 1
    assert runs(site, "--until", "2026-03-02")["attempts_without_gpus"] == 1
    assert runs(site, "--partition", "a")["attempts_without_gpus"] == 2
    nothing = runs(site, "--partition", "b", code=1)  # there is no such partition
    assert nothing["attempts_without_gpus"] == 0
