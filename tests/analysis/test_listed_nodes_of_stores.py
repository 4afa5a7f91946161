"""Stores on which the short way over lists of nodes, or over runs, would tell something else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.selection import Selection
from ettr.store import open_store

HEAD = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|Suspended|"
    "NNodes|NodeList|AllocTRES|WorkDir"
)


def line(job: str, name: str, state: str, times: str, ran: str, node: str) -> str:
    """A record of sacct of one or two nodes; `ran` is ElapsedRaw|Suspended."""
    n_nodes = 2 if "-" in node else 1
    tres = f"cpu={64 * n_nodes},gres/gpu={8 * n_nodes},node={n_nodes}"
    return f"c|{job}|{name}|ann|{state}|0:0|{times}|{ran}|{n_nodes}|{node}|{tres}|/w"


def of_day(day: int, hour: int) -> str:
    return f"2026-03-{day:02}T{hour:02}:00:00"


def store_of(tmp_path: Path, *lines: str) -> str:
    log = tmp_path / "sacct.psv"
    log.write_text("\n".join((HEAD, *lines)) + "\n")
    done = ettr("ingest", tmp_path / "s", log, "--timezone", "UTC")
    assert done.code == 0, done.err
    return str(tmp_path / "s")


@pytest.mark.slow
def test_an_open_job_that_was_suspended_is_cut_once(tmp_path: Path) -> None:
    """What it holds does not know that it was suspended: attempts and nodes are still cut alike."""
    begun, ended = of_day(1, 0), of_day(2, 12)
    place = store_of(
        tmp_path,
        line(
            "1",
            "train",
            "RUNNING",
            f"{begun}|{begun}|{begun}|Unknown",
            "172800|1-00:00:00",
            "n[1-2]",
        ),
        line("2", "tune", "COMPLETED", f"{begun}|{begun}|{begun}|{ended}", "129600|00:00:00", "n1"),
    )
    day = Selection(since=datetime(2026, 3, 2, tzinfo=UTC), until=datetime(2026, 3, 3, tzinfo=UTC))
    with open_store(place) as store:
        whole = Analysis(store)
        assert whole.every_node_is_listed
        part = whole.of(day)
        assert not part.every_node_is_listed
        by_attempt = sum(row["node_s"] for row in part.facts.rows("exposure"))
        by_node = sum(row["elapsed_s"] for row in part.facts.rows("exposure_nodes"))
        assert by_attempt == pytest.approx(by_node)
        # two nodes for a day, and the other job for half of one
        assert by_attempt == pytest.approx(2 * 86_400 + 43_200)


@pytest.mark.slow
def test_a_run_of_several_jobs_is_told_though_none_of_its_attempts_failed(tmp_path: Path) -> None:
    """The failed attempt is alone in its run, 19 hours later another begins with two jobs."""
    first = "|".join((of_day(1, 0),) * 3 + (of_day(1, 6),))
    again = "|".join((of_day(2, 1), of_day(2, 1), of_day(2, 5), of_day(2, 15)))
    other = "|".join((of_day(2, 16),) * 3 + (of_day(3, 15),))
    place = store_of(
        tmp_path,
        line("1", "train", "NODE_FAIL", first, "21600|00:00:00", "n1"),
        line("1", "train", "FAILED", again, "36000|00:00:00", "n4"),
        line("2", "train", "COMPLETED", other, "82800|00:00:00", "n3"),
    )
    with open_store(place) as store:
        analysis = Analysis(store)
        assert len(analysis.failure_rows) == 1
        runs = analysis.resubmitted
        assert {run.job_ids for run in runs.values()} == {("1", "2")}
        assert len(runs) == 2
        assert not runs.keys() & {row["attempt_id"] for row in analysis.failure_rows}
