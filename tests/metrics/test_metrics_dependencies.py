"""Chains of jobs by `--dependency`: one task, although each job of it may complete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ettr.metrics.run_rules import RunRule
from ettr.metrics.runs import job_runs
from ettr.metrics.stitching import jobs_of_runs, parse_dependency
from ettr.tables import ATTEMPTS
from fact_tables import facts_of
from synthetic.tables import every_table

pytestmark = pytest.mark.slow

START = datetime(2025, 1, 1, tzinfo=UTC)


def attempt(
    job_id: str, start_h: float, hours: float, after: str | None = None, **given: Any
) -> dict[str, Any]:
    start = START + timedelta(hours=start_h)
    submit = START + timedelta(hours=given.pop("submit_h", start_h))
    row = {
        "cluster": "c",
        "attempt_id": f"{given.get('cluster', 'c')}/{job_id}@{start_h}",
        "job_id": job_id,
        "user": "ann",
        "name": "train",
        "state": "COMPLETED",
        "submit": submit,
        "eligible": submit,
        "start": start,
        "end": start + timedelta(hours=hours),
        "elapsed_s": hours * 3600.0,
        "n_nodes": 2,
        "n_gpus": 16,
        "work_dir": "/w",
        "dependency": after,
        "source": "t",
        "file_id": "t",
        "line": 1,
    }
    return {name: {**row, **given}.get(name) for name in ATTEMPTS.names}


@pytest.mark.parametrize(
    ("text", "ids", "is_singleton"),
    [
        ("afterany:15", ("15",), False),
        ("afterok:15:16,afternotok:17", ("15", "16", "17"), False),
        ("afterany:15?singleton", ("15",), True),
        ("afterany:15(unfulfilled),singleton(unfulfilled)", ("15",), True),
        ("aftercorr:15", ("15_3",), False),
        ("afterany:15_2:16+0", ("15_2", "16+0"), False),
        ("after:15+5", (), False),  # its beginning, not its end
        ("afterburstbuffer:15,expand:16", (), False),
        ("no sense at all", (), False),
        ("", (), False),
    ],
)
def test_what_slurm_lets_one_wait_for(text: str, ids: tuple[str, ...], is_singleton: bool):
    found = parse_dependency(text, "20_3")
    assert (found.job_ids, found.is_singleton) == (ids, is_singleton)


Runs = list[tuple[str, ...]]
SCENARIOS: dict[str, tuple[list[dict[str, Any]], Runs]] = {
    # what the queue's wait is, and how a job ended, does not matter
    **{
        f"a chain by {kind}": (
            [
                attempt("1", 0, 10),
                attempt("2", 30, 10, f"{kind}:1", submit_h=1),
                attempt("3", 41, 10, f"{kind}:2", submit_h=31),
            ],
            [("1", "2", "3")],
        )
        for kind in ("afterany", "afterok", "afternotok", "aftercorr")
    },
    # without a dependency the rule by names stands
    "two that completed": ([attempt("1", 0, 10), attempt("2", 10.5, 10)], [("1",), ("2",)]),
    "one that goes on": (
        [attempt("1", 0, 10, state="TIMEOUT"), attempt("2", 10.5, 10)],
        [("1", "2")],
    ),
    "one that comes late": (
        [attempt("1", 0, 10, state="TIMEOUT"), attempt("2", 23, 10)],
        [("1",), ("2",)],
    ),
    # no chain: the next stage, another's job, or a job of that id elsewhere
    **{
        f"a pipeline with another {name}": (
            [attempt("1", 0, 10), attempt("2", 10, 10, "afterok:1", **{name: other})],
            [("1",), ("2",)],
        )
        for name, other in (("name", "eval"), ("user", "bob"), ("cluster", "d"))
    },
    "a chain that changes its folder, and who is resubmitted by hand": (
        [
            attempt("1", 0, 10),
            attempt("2", 10, 10, "afterany:1", submit_h=1, state="FAILED", work_dir="/w/2"),
            attempt("3", 21, 10),
        ],
        [("1", "2", "3")],
    ),
    "chains of one name side by side": (
        [
            attempt("1", 0, 10),
            attempt("3", 10, 10, "afterany:1", submit_h=0),
            attempt("2", 1, 10),
            attempt("4", 11, 10, "afterany:2", submit_h=0),
        ],
        [("1", "3"), ("2", "4")],
    ),
    "chains of one name in turn": (
        [
            attempt("1", 0, 10),
            attempt("3", 20, 10, "afterany:1", submit_h=0),
            attempt("2", 10, 10),
            attempt("4", 30, 10, "afterany:2", submit_h=0),
        ],
        [("1", "3"), ("2", "4")],
    ),
    "two that wait for one, a sweep": (
        [
            attempt("1", 0, 10),
            attempt("2", 10, 10, "afterok:1", submit_h=0),
            attempt("3", 10, 10, "afterok:1", submit_h=0),
        ],
        [("1",), ("2",), ("3",)],
    ),
    "slices queued at once as singletons": (
        [
            attempt("1", 0, 20, "singleton"),
            *(attempt(str(n), 10 * n, 10, "singleton", submit_h=0) for n in range(2, 5)),
        ],
        [("1", "2", "3", "4")],
    ),
    "a nightly singleton": (
        [attempt(str(n + 1), 24 * n, 3, "singleton") for n in range(3)],
        [("1",), ("2",), ("3",)],
    ),
    "a requeue within a chain": (
        [
            attempt("1", 0, 5, state="NODE_FAIL"),
            attempt("1", 6, 5),
            attempt("2", 30, 10, "afterany:1", submit_h=1),
        ],
        [("1", "2")],
    ),
    # no scheduler accepts it; a log may say it
    "jobs that wait for each other": (
        [attempt("1", 0, 10, "afterany:2"), attempt("2", 10, 10, "afterany:1")],
        [("1", "2")],
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Runs]:
    """The runs of each scenario: they lie in one store, each on clusters of its own."""
    rows = [
        row | {name: f"{scenario}: {row[name]}" for name in ("cluster", "attempt_id")}
        for scenario, (given, _) in SCENARIOS.items()
        for row in given
    ]
    attempts = pa.Table.from_pylist(rows, schema=ATTEMPTS.arrow_schema)
    made: dict[str, Runs] = {scenario: [] for scenario in SCENARIOS}
    for run in job_runs(facts_of(every_table({"attempts": attempts})), min_scheduled_h=0.0).runs:
        made[run.cluster.partition(":")[0]].append(run.job_ids)
    return {scenario: sorted(of_one) for scenario, of_one in made.items()}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_one_run(scenario: str, found: dict[str, Runs]):
    assert found[scenario] == SCENARIOS[scenario][1]


def test_the_run_of_a_failed_job_is_found_from_any_job_of_its_chain():
    """The chain has the folder of its first job, which did not fail."""
    rows = [
        attempt("1", 0, 10, work_dir="/first"),
        attempt("2", 11, 5, "afterany:1", submit_h=0, state="FAILED", work_dir="/b"),
        attempt("3", 17, 5, "afterany:2", submit_h=0, work_dir="/c"),
        attempt("4", 30, 1, user="ben"),
        attempt("5", 40, 1, user=None),
    ]
    tables = every_table({"attempts": pa.Table.from_pylist(rows, schema=ATTEMPTS.arrow_schema)})
    failed = pa.table({"attempt_id": [r["attempt_id"] for r in rows if r["state"] == "FAILED"]})
    found = jobs_of_runs(facts_of({**tables, "failures": failed}), RunRule())
    assert {name: jobs.job_ids for name, jobs in found.items()} == {
        "c/1@0": ("1", "2", "3"),
        "c/2@11": ("1", "2", "3"),
        "c/3@17": ("1", "2", "3"),
    }
