"""Classes of jobs that end otherwise than the others, by shares of their own."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from cluster_scenarios import played, quiet, small
from ettr.errors import UsageError
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, text_of
from ettr.sim.cluster.scenario_parts import ArrayClass, JobClass, Outcomes
from ettr.sim.cluster.standing import values_digest
from ettr.sim.cluster.unread import refuse_no_effect
from ettr.sim.cluster.whatif import changed_scenario
from ettr.sim.cluster.workload import columns_of_day

OTHERS = Outcomes(0.2, 0.1, 0.0, 0.0, 0.0, 1.0, 4.0)


def by_class(**parts: object) -> ClusterScenario:
    """Short jobs of two sizes; those of 16 GPUs mostly end by their owners."""
    jobs = (
        JobClass(1, 0.5, 60.0, 0.0),
        JobClass(16, 0.5, 60.0, 0.0, failed_share=0.05, cancelled_share=0.7),
    )
    usual = {"jobs": jobs, "outcomes": OTHERS, "arrivals": {"jobs_per_day": 2000.0}}
    return quiet(**({"period": {"days": 1.0}} | usual | parts))


def shares_of(scenario: ClusterScenario) -> dict[int, dict[str, float]]:
    """Shares of the end states, by GPUs, of what came to an end."""
    rows = played(scenario)[0]["attempts"].to_pylist()
    done = [row for row in rows if row["end"] is not None]
    found = {}
    for gpus in {row["requested_gpus"] for row in done}:
        states = Counter(row["state"] for row in done if row["requested_gpus"] == gpus)
        assert states.total() > 300
        found[gpus] = {state: n / states.total() for state, n in states.items()}
    return found


@pytest.mark.parametrize("arrays", [(), (ArrayClass(16, 0.2, 5.0, 0),)])
def test_a_class_with_shares_of_its_own_ends_by_them_and_others_by_outcomes(
    arrays: tuple[ArrayClass, ...],
):
    found = shares_of(by_class(arrays=arrays))
    assert found[1]["FAILED"] == pytest.approx(0.2, abs=0.05)
    assert found[1]["CANCELLED"] == pytest.approx(0.1, abs=0.04)
    assert found[16]["FAILED"] == pytest.approx(0.05, abs=0.03)
    assert found[16]["CANCELLED"] == pytest.approx(0.7, abs=0.06)


def test_a_share_that_equals_that_of_all_moves_no_draw():
    plain = by_class(jobs=(JobClass(1, 1.0, 60.0, 0.5),))
    named = replace(plain.jobs[0], failed_share=0.2, cancelled_share=0.1)
    found, expected = (columns_of_day(one, 3, 0) for one in (replace(plain, jobs=(named,)), plain))
    assert all((one == other).all() for one, other in zip(found, expected, strict=True))


def test_a_scenario_with_such_shares_is_written_changed_and_checked():
    scenario = by_class()
    again = scenario_of(text_of(scenario))
    assert again.jobs == scenario.jobs
    assert text_of(again).count("cancelled_share") == 2  # of [outcomes] and of one class
    assert math.isinf(again.jobs[0].failed_share)
    assert values_digest(scenario) != values_digest(by_class(jobs=scenario.jobs[:1] * 2))
    changed = changed_scenario(scenario, "jobs.16.failed_share=x2")
    assert changed.jobs[1].failed_share == pytest.approx(0.1)
    assert changed.jobs[0] == scenario.jobs[0]


def test_a_share_of_nothing_stays_nothing_and_too_much_is_refused():
    for value in (1.5, -0.1):
        with pytest.raises(UsageError, match=rf"jobs.1.failed_share: {value}; give a"):
            by_class(jobs=(JobClass(1, 1.0, 60.0, 0.0, failed_share=value),))
    with pytest.raises(UsageError, match=r"of 16 GPUs: with the other shares of .outcomes. they"):
        by_class(jobs=(JobClass(16, 1.0, 60.0, 0.0, failed_share=0.95),))
    with pytest.raises(UsageError, match=r"of 1 GPU: with the other shares of .outcomes. they"):
        by_class(jobs=(JobClass(1, 1.0, 60.0, 0.0, failed_share=0.95),))
    assert small().outcomes.of(JobClass(1, 1.0, 60.0, 0.0, failed_share=0.0)).failed_share == 0.0


def test_a_share_that_no_class_reads_is_not_said_to_change_nothing():
    """It changes the class without one of its own; where there is none, the change is refused."""
    assert changed_scenario(by_class(), "outcomes.failed_share=0.4").outcomes.failed_share == 0.4
    refuse_no_effect(*with_change(by_class(), "outcomes.failed_share=0.4"))
    alone = by_class(jobs=(JobClass(16, 1.0, 60.0, 0.0, failed_share=0.05),))
    says = "outcomes.failed_share is not read where each class of jobs has a share of its own"
    with pytest.raises(UsageError, match=says):
        refuse_no_effect(*with_change(alone, "outcomes.failed_share=0.4"))
    refuse_no_effect(*with_change(alone, "outcomes.cancelled_share=0.4"))


def with_change(
    scenario: ClusterScenario, change: str
) -> tuple[ClusterScenario, str, ClusterScenario]:
    return scenario, change, changed_scenario(scenario, change)
