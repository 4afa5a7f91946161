"""A state of a node that no log ends is over where the node worked again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from attempt_tables import site_of_attempts
from cli.program import ettr

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
JOBS = "Cluster|JobID|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
EVENTS = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"


def text(days: float) -> str:
    return f"{BEGIN + timedelta(days=days):%Y-%m-%dT%H:%M:%S}"


def job(number: int, start_days: float, days: float, node: str = "n1") -> str:
    start, end = text(start_days), text(start_days + days)
    ran = f"{start}|{start}|{end}|{int(86400 * days)}"
    return f"c|{number}|ann|COMPLETED|{ran}|1|{node}|gres/gpu=8"


def state(
    start_days: float, end_days: float | None, *, node: str = "n1", of: str = "DOWN*",
    reason: str = "Not responding",
) -> str:  # fmt: skip
    end = "Unknown" if end_days is None else text(end_days)
    return f"c|{node}|{text(start_days)}|{end}|{of}|{reason}|slurm(900)"


def report(folder: Path, jobs: list[str], states: list[str], *words: str) -> Any:
    logs = []
    for name, head, rows in (("sacct.psv", JOBS, jobs), ("events.psv", EVENTS, states)):
        if rows:
            (folder / name).write_text("\n".join([head, *rows]) + "\n")
            logs.append(folder / name)
    done = ettr("ingest", folder / "site", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    done = ettr("nodes", folder / "site", *words, "--json")
    assert done.code == 0, done.err
    return done.json


# n2 works all of March, so that the logs reach to its end
MARCH = job(1, 0, 30, node="n2")


def test_a_node_that_worked_again_was_back(tmp_path: Path) -> None:
    """Down on 1 March by an event without an end; jobs from 5 March on; down 6 h on 10 March."""
    jobs = [MARCH, *(job(2 + n, 4 + n, 0.9) for n in range(5)), job(9, 9.25, 20)]
    found = report(tmp_path, jobs, [state(0, None), state(9, 9.25)])
    (worst,) = found["worst_nodes"]
    assert (worst["node"], worst["outages"]) == ("n1", 2)
    assert worst["node_hours"] == pytest.approx(4 * 24 + 6)
    assert found["unplanned_node_hours"] == pytest.approx(4 * 24 + 6)
    assert (found["repair_h"]["count"], found["repair_h"]["still_open"]) == (2, 0)
    quality = ettr("quality", tmp_path / "site", "--json").json["unended_states"]
    assert quality == {
        "node_states": 1,
        "by_jobs": 1,
        "node": "n1",
        "state": "DOWN",
        "since": "2026-03-01T00:00:00Z",
    }
    said = " ".join(ettr("quality", tmp_path / "site", "--detail").out.split())
    assert "1 state of nodes without an end (such as n1, DOWN since 2026-03-01 00:00)" in said


@pytest.mark.parametrize(
    "later",
    [
        [],
        [job(3, 5 + 5 / 1440, 0.01)],  # on its way to the node as that went down
        [job(3, 5.1, 0.4)],  # may be another clock's: hours later, and none after
    ],
)
def test_a_node_that_may_still_be_out_stays_out(later: list[str], tmp_path: Path) -> None:
    """n1 worked for five days, then went down; the logs go on for 25 days."""
    found = report(tmp_path, [MARCH, job(2, 0, 5), *later], [state(5, None)])
    assert found["unplanned_node_hours"] == pytest.approx(25 * 24)
    assert found["repair_h"]["still_open"] == 1
    assert ettr("quality", tmp_path / "site", "--json").json["unended_states"] is None


def test_the_next_event_of_a_node_ends_the_one_before(tmp_path: Path) -> None:
    """Without jobs: slurmdbd keeps one event of a node at a time."""
    states = [state(0, None), state(9, 9.25), state(19, 19.5), state(28, 30, node="n2")]
    found = report(tmp_path, [], states)
    hours = {one["node"]: (one["outages"], one["node_hours"]) for one in found["worst_nodes"]}
    # the first may have been over before the second began, which is not known
    assert hours == {"n1": (2, pytest.approx(9.25 * 24 + 12)), "n2": (1, pytest.approx(48))}


def test_a_drained_node_of_an_old_inventory_came_back(tmp_path: Path) -> None:
    """`scontrol show node` of 3 March says drained since the 2nd; jobs from the 4th on."""
    (tmp_path / "nodes.txt").write_text(
        "NodeName=n1 CPUTot=64 Gres=gpu:h100:8 State=IDLE+DRAIN\n"
        "   Reason=NHC: check_gpu failed [root@2026-03-02T00:00:00]\n\n"
        "NodeName=n2 CPUTot=64 Gres=gpu:h100:8 State=ALLOCATED\n"
    )
    done = ettr("ingest", tmp_path / "site", tmp_path / "nodes.txt", "--timezone", "UTC")
    assert done.code == 0, done.err
    jobs = [MARCH, job(2, 0, 1), job(3, 3, 5), job(4, 8, 22)]
    found = report(tmp_path, jobs, [])
    assert found["unplanned_node_hours"] == pytest.approx(48)


def test_jobs_of_a_table_without_allocations_end_a_state_too(tmp_path: Path) -> None:
    """Down on 1 March; a job of that node alone on the 5th, by a table of attempts."""
    rows = [
        f"c,{number},COMPLETED,{text(start)}Z,{text(start)}Z,{text(end)}Z,"
        f"{86400 * (end - start)},1,8,{node}\n"
        for number, start, end, node in ((1, 0, 30, "n2"), (2, 4, 9, "n1"))
    ]
    site_of_attempts(tmp_path, *rows)
    found = report(tmp_path, [], [state(0, None)])
    (worst,) = found["worst_nodes"]
    assert (worst["node"], worst["node_hours"]) == ("n1", pytest.approx(4 * 24))
    quality = ettr("quality", tmp_path / "site", "--json").json["unended_states"]
    assert (quality["node_states"], quality["by_jobs"]) == (1, 1)
