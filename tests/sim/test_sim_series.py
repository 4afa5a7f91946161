"""Series: jobs that are submitted one after another, and what ends a turn."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from cluster_scenarios import fault, played, quiet
from ettr.errors import UsageError
from ettr.sim.cluster.run import loop_can
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text, text_of
from ettr.sim.cluster.scenario_parts import ArrayClass, JobClass
from ettr.sim.cluster.whatif import changed_scenario, what_if
from ettr.sim.cluster.workload import Replay, overfull_series

Row = dict[str, object]
RUN_GPUS, OTHER_GPUS = 64, 8


def runs(series: str = "pretraining", **parts: object) -> ClusterScenario:
    """Runs of 8 nodes that come faster than they end, and jobs of one node."""
    jobs = (
        JobClass(RUN_GPUS, 0.2, 6000.0, 1.0, series=series),
        JobClass(OTHER_GPUS, 0.8, 3000.0, 1.0),
    )
    return quiet(**({"jobs": jobs, "arrivals": {"jobs_per_day": 200.0}} | parts))


def rows_of(scenario: ClusterScenario, seed: int, gpus: int = RUN_GPUS) -> list[Row]:
    """The attempts of jobs of one size, in order of time."""
    tables, _ = played(scenario, seed)
    rows = [row for row in tables["attempts"].to_pylist() if row["requested_gpus"] == gpus]
    return sorted(rows, key=lambda row: (row["submit"], int(row["job_id"])))


def overlapping(rows: list[Row]) -> int:
    """Pairs of neighbours of which the latter was submitted before the former was over."""
    return sum(
        before["end"] is None or after["submit"] < before["end"]
        for before, after in itertools.pairwise(rows)
    )


def test_each_is_submitted_no_sooner_than_the_one_before_it_is_over():
    rows, free = rows_of(runs(), 1), rows_of(runs(series=""), 1)
    assert overlapping(free) > 50
    assert overlapping(rows) == 0
    at_once = sum(after["submit"] == before["end"] for before, after in itertools.pairwise(rows))
    assert at_once > 50
    # they come in the order in which they would have come, none sooner
    assert [row["time_limit_s"] for row in rows] == [r["time_limit_s"] for r in free][: len(rows)]
    assert all(row["submit"] >= one["submit"] for row, one in zip(rows, free, strict=False))


def test_it_moves_no_draw_of_other_jobs():
    drawn = ("submit", "user", "time_limit_s", "state")
    one, other = (
        [tuple(row[name] for name in drawn) for row in rows_of(scenario, 2, OTHER_GPUS)]
        for scenario in (runs(faults=()), runs(series="", faults=()))
    )
    assert len(one) > 500
    assert [row[:3] for row in one] == [row[:3] for row in other]


def test_classes_of_one_series_share_the_turn_and_series_do_not_wait_for_each_other():
    (run, *others) = runs().jobs
    halves = [replace(run, share=0.1), replace(run, share=0.1, gpus=32)]
    together = runs(jobs=(*halves, *others))
    apart = runs(jobs=(halves[0], replace(halves[1], series="tuning"), *others))
    both = {}
    for name, scenario in (("together", together), ("apart", apart)):
        rows = [*rows_of(scenario, 3), *rows_of(scenario, 3, 32)]
        both[name] = sorted(rows, key=lambda row: (row["submit"], int(row["job_id"])))
    assert overlapping(both["together"]) == 0
    assert overlapping(both["apart"]) > 20
    for gpus in (RUN_GPUS, 32):
        assert overlapping([row for row in both["apart"] if row["requested_gpus"] == gpus]) == 0


@pytest.mark.parametrize("resubmit_chance", [0.0, 1.0])
def test_a_job_keeps_its_turn_as_it_is_requeued_or_submitted_again(resubmit_chance: float):
    faults = (fault("node-hardware", 300.0, node_down_chance=0.4, crash_chance=0.6),)
    scenario = runs(
        faults=faults,
        checkpoints={"resubmit_chance": resubmit_chance, "mean_resubmit_s": 1800.0},
    )
    _, run = played(scenario, 4)
    of_log = rows_of(scenario, 4)
    states = {row["state"] for row in of_log}
    assert {"NODE_FAIL", "FAILED", "COMPLETED"} <= states
    by_name: dict[object, list[Row]] = {}
    for row in of_log:
        by_name.setdefault(row["name"], []).append(row)
    is_resubmitted = any(len({row["job_id"] for row in rows}) > 1 for rows in by_name.values())
    assert is_resubmitted == (resubmit_chance > 0)
    # what belongs to one run comes before whatever belongs to the next
    names = [row["name"] for row in of_log]
    assert len(dict.fromkeys(names)) == sum(a != b for a, b in itertools.pairwise(names)) + 1
    assert run.tally.jobs > 100


def test_an_owner_who_loses_patience_or_gives_a_crash_loop_up_ends_the_turn():
    scenario = runs(
        outcomes={
            "impatient_share": 0.5,
            "mean_patience_s": 600.0,
            "failed_share": 0.3,
            "crash_loop_share": 1.0,
            "mean_crash_loop_tries": 3.0,
            "mean_crash_loop_s": 600.0,
        },
        machines={"nodes": 10},
        arrivals={"jobs_per_day": 300.0},
    )
    rows = rows_of(scenario, 5)
    gone = [row for row in rows if row["start"] is None and row["state"] == "CANCELLED"]
    looped = [row for row in rows if row["state"] == "FAILED"]
    assert len(gone) > 5
    assert len(looped) > 10
    assert overlapping(rows) == 0
    assert rows[-1]["submit"] > max(row["submit"] for row in (*gone, *looped[:-5]))


def test_the_value_is_written_changed_and_checked():
    scenario = runs()
    assert scenario_of(text_of(scenario)).jobs[0].series == "pretraining"
    assert "series" not in text_of(runs(series=""))
    assert not loop_can(scenario)
    assert loop_can(runs(series=""))
    changed = changed_scenario(scenario, "jobs.8.series=pretraining")
    assert {one.series for one in changed.jobs} == {"pretraining"}
    with pytest.raises(UsageError, match=r"jobs.series: \[\[arrays\]\] has jobs of 64 GPUs; tasks"):
        runs(arrays=(ArrayClass(RUN_GPUS, 0.1, 4.0, 0),))


def test_a_series_without_room_for_its_runs_says_so_in_every_answer():
    full, roomy = runs(), runs(arrivals={"jobs_per_day": 50.0})
    (warning,) = overfull_series([roomy, full])
    # 200 jobs a day, a fifth of them runs of 6,000 s
    assert "THE SERIES pretraining FALLS BEHIND: each day 2.78 days of its runs" in warning
    assert overfull_series([roomy]) == ()
    # replayed jobs come when their log says
    assert overfull_series([full], Replay(jobs=())) == ()
    assert overfull_series([runs(series="")]) == ()
    found = what_if(roomy, ["arrivals.jobs_per_day=x4"], [1, 2, 3])
    assert found.warnings == (warning,)


def test_kalos_has_room_for_its_runs():
    assert overfull_series([scenario_of(*scenario_text("kalos-like"))]) == ()
