"""One store, one exposure: every command divides the same failures by the same node-days.

Logs name the nodes of a job, or only say how many they were, or say it of some jobs alone. The
rates, the trend, the MTTF, the planner, the projection and the models take the same of all three.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

Job = tuple[str, str, int, int]
"""Its id, its end state, the day of January on which it starts, and the days that it runs."""

# three jobs of 32 nodes with 8 GPUs each, of 3, 4 and 4 days: 352 node-days
JOBS = (("1", "COMPLETED", 1, 3), ("2", "NODE_FAIL", 4, 4), ("3", "COMPLETED", 8, 4))
NODE_DAYS = 32 * (3 + 4 + 4)
WITHOUT_NAMES = "JobID|Cluster|JobName|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES"
WITHOUT_COUNTS = "JobID|Cluster|JobName|State|Submit|Start|End|ElapsedRaw|NodeList"
WITH_BOTH = f"{WITHOUT_NAMES}|NodeList"


def sacct(
    folder: Path, name: str, header: str, jobs: tuple[tuple[str, str, int, int], ...]
) -> Path:
    lines = [header]
    for job, state, first_day, days in jobs:
        start = f"2026-01-{first_day:02}T00:00:00"
        row = {
            "JobID": job,
            "Cluster": "c",
            "JobName": "train",
            "State": state,
            "Submit": start,
            "Start": start,
            "End": f"2026-01-{first_day + days:02}T00:00:00",
            "ElapsedRaw": str(86400 * days),
            "NNodes": "32",
            "AllocTRES": "billing=1,gres/gpu=256,node=32",
            "NodeList": "n[001-032]",
        }
        lines.append("|".join(row[field] for field in header.split("|")))
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def store_of(folder: Path, *logs: Path) -> Path:
    store = folder / "store"
    for log in logs:
        done = ettr("ingest", store, log, "--timezone", "UTC")
        assert done.code == 0, done.err
    return store


def asked(*words: str | Path) -> dict[str, Any]:
    done = ettr(*words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def of(one: dict[str, Any]) -> tuple[int, float]:
    return one["failures"], one["node_days"]


def exposures(report: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Failures and node-days of all jobs as each part of the report has them."""
    sizes = report["mttf"]["classes"]
    return {
        "rates": of(report["failures"]["all_jobs"]),
        "trend": of(report["failures"]["trend"]["points"][-1]),
        "models": of(report["models"]["dispersion"]["rate"]),
        "mttf": (
            sum(size["failures"] for size in sizes),
            # null where the nodes of a class are unknown
            sum(size["node_days"] for size in sizes if size["node_days"] is not None),
        ),
    }


def planned(store: Path, report: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Failures and node-days that the planner and the projection take, and those of the rates."""
    large, every = (of(report["failures"][name]) for name in ("large_jobs", "all_jobs"))
    return {
        "rates": large if large[1] else every,
        "plan": of(asked("plan", store, "--nodes", "128")["rate"]["evidence"]),
        "project": of(asked("project", store, "--nodes", "128")["rate"]),
    }


SHAPES = {
    "without names of nodes": ((WITHOUT_NAMES, JOBS),),
    "without numbers of nodes": ((WITHOUT_COUNTS, JOBS),),
    "with both": ((WITH_BOTH, JOBS),),
    "one log of each kind": (
        (WITHOUT_NAMES, JOBS[:1]),
        (WITHOUT_COUNTS, JOBS[1:2]),
        (WITH_BOTH, JOBS[2:]),
    ),
    "the failed job without names": ((WITH_BOTH, JOBS[::2]), (WITHOUT_NAMES, JOBS[1:2])),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_command_has_the_same_exposure(tmp_path: Path, shape: str):
    logs = [
        sacct(tmp_path, f"{place}.psv", header, jobs)
        for place, (header, jobs) in enumerate(SHAPES[shape])
    ]
    store = store_of(tmp_path, *logs)
    report = asked("report", store)
    found = exposures(report)
    assert found == {name: (1, pytest.approx(NODE_DAYS)) for name in found}
    used = planned(store, report)
    assert used == dict.fromkeys(used, used["rates"])


def test_a_log_without_names_of_nodes_has_large_jobs_to_plan_with(tmp_path: Path):
    store = store_of(tmp_path, sacct(tmp_path, "a.psv", WITHOUT_NAMES, JOBS))
    large = asked("failures", store)["large_jobs"]
    assert (large["failures"], large["node_days"]) == (1, NODE_DAYS)
    done = ettr("plan", store, "--gpus", "1024", "--detail")
    assert done.code == 0, done.err
    assert "1 in 352 node-days" in done.out
    done = ettr("project", store, "--gpus", "1024", "--detail")
    assert done.code == 0, done.err


def test_what_the_exposure_rests_on_is_stated(tmp_path: Path):
    logs = (
        sacct(tmp_path, "a.psv", WITHOUT_NAMES, JOBS[:1]),
        sacct(tmp_path, "b.psv", WITH_BOTH, JOBS[1:]),
    )
    quality = asked("quality", store_of(tmp_path, *logs))
    assert quality["exposure"] == {
        "node_hours": 24.0 * NODE_DAYS,
        "named_node_hours": 24.0 * 32 * 8,
        "attempts_named": 2,
        "attempts_counted": 1,
        "attempts_unknown": 0,
        "attempts_without_runtime": 0,
    }
    assert any("The nodes of 1 attempt are not named" in line for line in quality["assumptions"])


def test_attempts_that_say_nothing_of_nodes_are_counted_and_stated(tmp_path: Path):
    bare = "JobID|Cluster|JobName|State|Submit|Start|End|ElapsedRaw"
    logs = (
        sacct(tmp_path, "a.psv", bare, JOBS[:1]),
        sacct(tmp_path, "b.psv", WITH_BOTH, JOBS[1:]),
    )
    store = store_of(tmp_path, *logs)
    report = asked("report", store)
    assert set(exposures(report).values()) == {(1, 256.0)}
    quality = report["quality"]
    assert quality["exposure"]["attempts_unknown"] == 1
    assert any("it adds no exposure" in line for line in quality["assumptions"])


def test_a_log_without_numbers_of_nodes_knows_the_size_of_its_jobs(tmp_path: Path):
    """Beyond 32 nodes it is an extrapolation, whatever field the 32 come from."""
    told = []
    for header in (WITH_BOTH, WITHOUT_COUNTS):
        folder = tmp_path / str(len(header))
        folder.mkdir()
        store = store_of(folder, sacct(folder, "a.psv", header, JOBS))
        done = ettr("project", store, "--nodes", "512", "--detail")
        assert done.code == 0, done.err
        told.append(
            "512 nodes are 16 times the largest job seen (32)" in " ".join(done.out.split())
        )
    assert told == [True, True]


def test_before_and_after_keep_the_exposure_of_jobs_without_names(tmp_path: Path):
    store = store_of(tmp_path, sacct(tmp_path, "a.psv", WITHOUT_NAMES, JOBS))
    found = asked("compare", store, "--before", "2026-01-06T00:00Z", "--after", "2026-01-06T00:00Z")
    # the job that ran from the fourth to the eighth gives two days to either side
    node_days = {fleet["name"].split()[0]: fleet["node_days"] for fleet in found["fleets"]}
    assert node_days == {"before": 32 * 5.0, "after": 32 * 6.0}
