"""Classes of jobs with a quality of service of their own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, replace

import pytest

from cluster_scenarios import played, quiet, small
from ettr.errors import UsageError
from ettr.sim.cluster.scenario import (
    SHIPPED,
    scenario_of,
    scenario_text,
    text_of,
)
from ettr.sim.cluster.scenario_parts import JobClass, Priority
from ettr.sim.cluster.standing import drawn_scenario, values_digest
from ettr.sim.cluster.whatif import changed_scenario, varied_values
from ettr.sim.cluster.workload import Job, jobs_of_day

LEVELS = (Priority("idle", 1, 0.0, 0.0), Priority("usual", 2, 1.0, 1.0))
IN_FILE = 'priority = { value = "high", source = "assumed: tests" }\n'


def text_with(line: str) -> str:
    """The text of `small`, with a line more in its first class of jobs."""
    return scenario_text("small")[0].replace("[[jobs]]\n", f"[[jobs]]\n{line}", 1)


def drawn(job: Job) -> tuple[object, ...]:
    """All that was drawn for a job, its priority aside."""
    return astuple(replace(job, priority=0))


def test_a_class_with_a_priority_changes_no_other_draw():
    plain = small()
    first, *others = plain.jobs
    one = replace(plain, jobs=(replace(first, priority="high"), *others))
    levels = [level.name for level in plain.priorities]
    was, now = (list(jobs_of_day(made, 3, 0)) for made in (plain, one))
    assert [drawn(job) for job in now] == [drawn(job) for job in was]
    of_class = [(a, b) for a, b in zip(was, now, strict=True) if a.gpus == first.gpus]
    assert {levels[job.priority] for job, _ in of_class} == {"low", "normal", "high"}
    assert {levels[job.priority] for _, job in of_class} == {"high"}
    rest = [(a, b) for a, b in zip(was, now, strict=True) if a.gpus != first.gpus]
    assert rest
    assert all(a.priority == b.priority for a, b in rest)


def test_two_classes_of_one_size_have_their_own_lengths_and_levels():
    jobs = (
        JobClass(8, 0.5, 1000.0, 0.0, priority="idle"),
        JobClass(8, 0.5, 50.0, 0.0, priority="usual"),
    )
    found = {
        (job.work_s, job.priority) for job in jobs_of_day(small(jobs=jobs, priorities=LEVELS), 1, 0)
    }
    assert found == {(1000, 0), (50, 1)}


def test_a_job_of_the_lowest_level_is_preempted_again_and_again_and_outlives_it():
    """Gangs of all four nodes come about twice a day; the others need ten hours each."""
    scenario = quiet(
        period={"days": 6.0},
        machines={"nodes": 4},
        priorities=LEVELS,
        arrivals={"jobs_per_day": 6.0},
        jobs=(
            JobClass(8, 0.7, 36_000.0, 0.0, priority="idle"),
            JobClass(32, 0.3, 3_600.0, 0.0, priority="usual"),
        ),
    )
    ends = defaultdict(list)
    tables, _ = played(scenario)
    for row in sorted(tables["attempts"].to_pylist(), key=lambda row: row["submit"]):
        assert row["qos"] == ("usual" if row["n_gpus"] == 32 else "idle")
        ends[row["qos"], row["job_id"]].append(row["state"])
    assert not any("PREEMPTED" in states for (qos, _), states in ends.items() if qos == "usual")
    often = [states for states in ends.values() if states.count("PREEMPTED") > 1]
    assert any(states[-1] == "COMPLETED" for states in often)


def test_the_field_is_read_and_written_and_a_file_without_it_stays_without():
    made = scenario_of(text_with(IN_FILE))
    assert [job.priority for job in made.jobs] == ["high"] + [""] * (len(made.jobs) - 1)
    assert made.sources["jobs[1].priority"] == "assumed: tests"
    again = scenario_of(text_of(made))
    assert again == made
    assert "\npriority = " not in text_of(small())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            IN_FILE.replace("high", "urgent"),
            r"jobs\.1\.priority: 'urgent' has no entry in \[\[priorities\]\]; give one of low, "
            "normal, high, or leave it out",
        ),
        (IN_FILE.replace('"high"', "30"), r"jobs\[1\]\.priority: 30 is not a text"),
    ],
)
def test_a_priority_that_cannot_be_is_refused(line: str, says: str):
    with pytest.raises(UsageError, match=says):
        scenario_of(text_with(line))


def test_a_what_if_moves_a_class_to_another_level():
    changed = changed_scenario(scenario_of(text_with(IN_FILE)), "jobs.1.priority=low")
    assert changed.jobs[0].priority == "low"


def test_a_level_that_is_assumed_is_named_among_what_is_not_varied():
    varied, left = varied_values(scenario_of(text_with(IN_FILE)), ["jobs.*.priority"])
    assert (varied, left) == ([], ["jobs.1.priority: is a text"])
    assert varied_values(small(), ["jobs.*.priority"]) == ([], [])


def test_shares_are_drawn_around_a_level_that_only_classes_name():
    made = replace(
        small(),
        priorities=(LEVELS[0], *small().priorities),
        intervals={"priorities[2].share_of_gangs": (0.1, 0.6)},
    )
    again = drawn_scenario(made, 5, 0)
    assert again.priorities != made.priorities
    assert again.priorities[0] == made.priorities[0]
    assert sum(one.share_of_gangs for one in again.priorities) == pytest.approx(1.0, rel=1e-12)


def test_the_priority_of_a_class_is_one_of_the_values_of_a_verdict():
    assert values_digest(scenario_of(text_with(IN_FILE))) != values_digest(small())


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_is_written_and_read_again(name: str):
    made = scenario_of(scenario_text(name)[0])
    assert scenario_of(text_of(made)) == made
