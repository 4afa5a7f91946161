"""Job arrays of a simulated cluster: ids as sacct has them, %N never exceeded."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from cluster_scenarios import fault, most_at_once, one_size, played, quiet, small
from ettr.errors import UsageError
from ettr.sim.cluster.policies import held_by
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text
from ettr.sim.cluster.scenario_parts import ArrayClass, JobClass, Priority, Quota
from ettr.sim.cluster.scheduler import array_limits
from ettr.sim.cluster.workload import jobs_of_day, shown_tasks, with_tasks
from ettr.sources.base import ReadOptions
from ettr.sources.registry import named
from source_samples import read_all, rows_of

TABLE = """
[[arrays]]
source = "assumed"
gpus = 1
share = 0.1
mean_tasks = 20
most_running = 4
"""


def with_arrays(**parts: object) -> ClusterScenario:
    """Two crowded days of 16 nodes on which everything happens, with arrays of two sizes."""
    usual = {
        "period": {"days": 2.0},
        "machines": {"nodes": 16},
        "arrivals": {"jobs_per_day": 120.0},
        "faults": (fault("gpu-memory", 300.0), fault("node-hardware", 200.0, crash_chance=0.0,
                                                     node_down_chance=0.9)),
        "bursts": (),
        "arrays": (ArrayClass(1, 0.3, 15.0, 3), ArrayClass(8, 0.2, 4.0, 2)),
    }  # fmt: skip
    return small(**(usual | parts))


def running_tasks(attempts: pa.Table) -> dict[str, int]:
    """Most tasks of each array that ran at one time."""
    rows = attempts.filter(attempts["array_job_id"].is_valid())
    ones = rows.set_column(
        rows.schema.get_field_index("n_gpus"), "n_gpus", pa.array([1] * len(rows))
    )
    return most_at_once(ones, lambda row: row["array_job_id"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "waiting"), [(1, "easy-backfill"), (2, "easy-backfill"), (3, "in-order")]
)
def test_no_array_runs_more_tasks_than_it_may(seed: int, waiting: str):
    tables, run = played(with_arrays(scheduling={"waiting": waiting}), seed)
    attempts = tables["attempts"]
    limit = {
        row["array_job_id"]: 3 if row["requested_gpus"] == 1 else 2
        for row in attempts.to_pylist()
        if row["array_job_id"]
    }
    most = running_tasks(attempts)
    assert all(most[array] <= limit[array] for array in most)
    assert {3, 2} <= set(most.values())
    assert "JobArrayTaskLimit" in attempts["reason"].to_pylist()
    hours = [row["gpu_hours"] or 0.0 for row in run.truth()["hours"].to_pylist()]
    assert sum(hours) == pytest.approx(16 * 8 * 48, rel=1e-12)
    free, _ = played(with_arrays(arrays=(ArrayClass(1, 0.3, 15.0, 0),)), seed)
    assert max(running_tasks(free["attempts"]).values()) > 3, "or the limit held nothing"


@pytest.mark.slow
def test_tasks_have_the_ids_that_sacct_gives_them(tmp_path: Path):
    """The reader of sacct finds the same array in the same ids; tasks share what is the array's."""
    tables, _ = played(with_arrays(outcomes={"impatient_share": 0.5, "mean_patience_s": 600.0}))
    rows = tables["attempts"].to_pylist()
    tasks = defaultdict(list)
    for row in rows:
        if row["array_job_id"] is not None:
            tasks[row["array_job_id"]].append(row)
    assert len(tasks) > 20
    for array, members in tasks.items():
        first = [row for row in members if not row["restarts"]]
        shared = ("user", "account", "qos", "name", "requested_gpus", "time_limit_s", "submit")
        assert all(len({row[name] for row in first}) == 1 for name in shared), array
        assert all(row["job_id"].startswith(f"{array}_") for row in members)
    begun = [row for row in rows if row["start"] is not None]
    raw = {}
    for row in begun:
        assert raw.setdefault(row["job_id_raw"], row["job_id"]) == row["job_id"]
        if row["job_id"].endswith("_1"):
            assert row["job_id_raw"] == row["array_job_id"]
    waiting = [row for row in rows if "[" in row["job_id"]]
    assert {row["state"] for row in waiting} == {"PENDING", "CANCELLED"}
    assert all(row["start"] is None and row["job_id_raw"] == row["array_job_id"] for row in waiting)
    head = "JobID|JobIDRaw|State|Submit|Start|End|ElapsedRaw|NNodes\n"
    text = head + "".join(
        f"{row['job_id']}|{row['job_id_raw']}|PENDING|{row['submit']:%Y-%m-%dT%H:%M:%S}|||0|1\n"
        for row in rows
    )
    (tmp_path / "sacct.psv").write_text(text, "utf-8")
    options = ReadOptions(timezone="UTC")
    read = rows_of(read_all(named("slurm-sacct"), tmp_path / "sacct.psv", options), "attempts")
    assert [(row["job_id"], row["array_job_id"]) for row in read] == [
        (row["job_id"], row["array_job_id"]) for row in rows
    ]


def test_an_array_of_percent_1_runs_one_task_after_the_other():
    """Ten nodes are free, and still the tasks queue for each other."""
    scenario = quiet(
        period={"days": 1.0},
        machines={"nodes": 10},
        jobs=one_size(8, 600.0),
        arrivals={"jobs_per_day": 10.0},
        arrays=(ArrayClass(8, 1.0, 5.0, 1),),
    )
    attempts = played(scenario)[0]["attempts"]
    assert set(running_tasks(attempts).values()) == {1}
    by_array = defaultdict(list)
    for row in attempts.to_pylist():
        if row["end"] is not None:
            by_array[row["array_job_id"]].append((row["start"], row["end"]))
    assert max(len(runs) for runs in by_array.values()) > 3
    for runs in by_array.values():
        gaps_s = [
            (after[0] - before[1]).total_seconds() for before, after in pairwise(sorted(runs))
        ]
        assert all(0 <= gap_s <= 30 for gap_s in gaps_s)  # the interval between passes


@pytest.mark.slow
def test_arrays_have_as_many_tasks_as_the_scenario_says():
    """A third of 3,000 submissions are arrays of 4 on average: 2.0 jobs for each submission."""
    values = {
        "period": {"days": 5.0},
        "jobs": one_size(1, 60.0),
        "arrivals": {"jobs_per_day": 600.0, "day_amplitude": 0.0, "weekend_factor": 1.0},
    }
    plain = played(quiet(**values))[0]["attempts"].num_rows
    many = quiet(**values, arrays=(ArrayClass(1, 1 / 3, 4.0, 0),))
    # the standard error of tasks in a submission is about 2.4 / sqrt(3,000)
    assert played(many)[0]["attempts"].num_rows / plain == pytest.approx(2.0, abs=0.15)


def test_arrays_of_a_size_of_two_classes_are_each_of_one_class():
    """Jobs of one size, a minute long or an hour: a quarter of either are arrays."""
    levels = (Priority("normal", 2, 1.0, 1.0), Priority("lowest", 1, 0.0, 0.0))
    shared = quiet(
        jobs=(JobClass(2, 0.5, 60.0, 0.0), JobClass(2, 0.5, 3600.0, 0.0, priority="lowest")),
        arrivals={"jobs_per_day": 2000.0},
        priorities=levels,
        arrays=(ArrayClass(2, 0.25, 5.0, 0),),
    )
    jobs = list(with_tasks(shared, 1, 0, jobs_of_day(shared, 1, 0)))
    assert {(job.work_s, job.priority) for job in jobs} == {(60, 0), (3600, 1)}
    for work_s in (60, 3600):
        mine = [job for job in jobs if job.work_s == work_s]
        n_arrays = sum(job.array_task == 1 for job in mine)
        n_submitted = n_arrays + sum(job.array is None for job in mine)
        # four standard errors of a share of about 1,000 submissions
        assert n_arrays / n_submitted == pytest.approx(0.25, abs=0.055)


def test_a_change_of_one_entry_draws_no_task_of_another_again():
    """Whether jobs of one GPU are arrays leaves those of 8 GPUs as they were, task for task."""

    def tasks(*arrays: ArrayClass) -> list[tuple[int, ...]]:
        scenario = with_arrays(arrays=arrays)
        jobs = with_tasks(scenario, 1, 0, jobs_of_day(scenario, 1, 0))
        return [
            (job.submit_s, job.array_task, job.work_s, job.limit_s, job.outcome)
            for job in jobs
            if job.array is not None and job.gpus == 8
        ]

    own = ArrayClass(8, 0.5, 4.0, 2)
    alone = tasks(own)
    assert len(alone) > 10
    assert tasks(ArrayClass(1, 0.3, 15.0, 3), own) == alone
    assert tasks(ArrayClass(1, 0.9, 15.0, 3), own) == alone


def test_waiting_tasks_are_written_as_slurm_writes_them():
    assert shown_tasks([30, *range(40, 51), 60], 4) == "[30,40-50,60%4]"
    assert shown_tasks([7], 0) == "[7]"
    assert array_limits("17", 0) == ()
    (limit,) = array_limits("17", 2)
    assert held_by((limit,), {"array:17": 1}) is None
    assert held_by((limit,), {"array:17": 2}).reason == "JobArrayTaskLimit"


@pytest.mark.slow
def test_an_array_obeys_quotas_too_and_repeats_to_the_byte():
    scenario = with_arrays(quotas=(Quota("user", "*", 4),), period={"days": 1.0})
    (one, _), (same, _) = played(scenario), played(scenario)
    assert one == same
    assert max(most_at_once(one["attempts"], lambda row: row["user"]).values()) == 4


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gpus = 1", "gpus = 2", "arrays.gpus: 2; .* has no entry of that size; it has 1, "),
        ("share = 0.1", "share = 2", "arrays.1.share: 2.0; give a share"),
        ("mean_tasks = 20", "mean_tasks = 0.5", "arrays.mean_tasks: 0.5"),
        ("mean_tasks = 20", "mean_tasks = 50000", "tasks of arrays too"),
        ("most_running = 4", "most_running = 0.5", "is not a whole number"),
    ],
)
def test_what_cannot_be_is_refused(old: str, new: str, says: str):
    assert scenario_of(scenario_text("small")[0] + TABLE).arrays == (ArrayClass(1, 0.1, 20.0, 4),)
    with pytest.raises(UsageError, match=says):
        scenario_of(scenario_text("small")[0] + TABLE.replace(old, new))
