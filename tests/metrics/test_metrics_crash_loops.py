"""A large job that runs for weeks fails several times by chance; a crash loop does not."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from ettr.metrics.crash_loops import (
    JobFailure,
    JobRuntime,
    repeated_failures,
)

JOB = ("c", "42427")
# the fleet of the review: 774 failures in 119,000 node-days of 20,000 jobs
NODE_DAYS = 119_000.0
CAUSES = ("gpu-unavailable", "infiniband-link", "gpu-driver", "filesystem", "unattributed")


def elsewhere(count: int = 768) -> list[JobFailure]:
    """Failures of other jobs, of all causes."""
    causes = islice(cycle(CAUSES), count)
    return [JobFailure(("c", f"{i}"), cause, f"n{i}", 1) for i, cause in enumerate(causes)]


def ran(hours: float, n_nodes: int) -> JobRuntime:
    days = hours * n_nodes / 24.0
    return JobRuntime({JOB: hours}, {JOB: days}, NODE_DAYS, 20_000)


def judged(mine: list[JobFailure], runtime: JobRuntime | None):
    return repeated_failures([*mine, *elsewhere()], [JOB], runtime)[JOB]


def failures(causes: list[str], nodes: list[str | None], n_nodes: int) -> list[JobFailure]:
    return [JobFailure(JOB, c, n, n_nodes) for c, n in zip(causes, nodes, strict=True)]


def test_a_large_job_that_fails_as_often_as_its_size_makes_likely_is_no_loop():
    """512 GPUs for 29, 11, 30, 4.6, 36 and 8 h, each failure on another node by another cause."""
    causes = ["gpu-driver", "filesystem", "infiniband-link", "unattributed", "gpu-driver", "nhc"]
    found = judged(failures(causes, [f"m{i}" for i in range(6)], 64), ran(118.6, 64))
    assert found.patterns == ()
    assert found.run_hours == 118.6
    assert found.expected_failures == pytest.approx(768 / 119_000 * 316.27, rel=0.01)
    assert found.node is None


def test_a_job_that_fails_every_quarter_of_an_hour_is():
    """Twelve times within three hours on one node: 0.0008 would be expected."""
    found = judged(failures(["unattributed"] * 12, ["m1"] * 12, 1), ran(3.0, 1))
    assert found.patterns == ("fast",)
    assert found.expected_failures < 0.001


def test_failures_of_a_large_job_on_one_of_its_nodes_are_no_chance():
    causes = ["gpu-driver", "filesystem", "unattributed"]
    assert judged(failures(causes, ["m7"] * 3, 64), ran(300.0, 64)).patterns == ("same-node",)
    # of two nodes the same one fails thrice in one case of four
    assert judged(failures(causes, ["m7"] * 3, 2), ran(3000.0, 2)).patterns == ()
    # a failure that blames no node leaves it open
    assert judged(failures(causes, ["m7", "m7", None], 64), ran(300.0, 64)).patterns == ()


def test_one_rare_cause_is_no_chance_and_a_common_one_is():
    nodes = ["m1", "m2", "m3"]
    rare = judged(failures(["optics"] * 3, nodes, 64), ran(300.0, 64))
    assert rare.patterns == ("same-cause",)
    common = [JobFailure(("c", f"{i}"), "infiniband-link", f"n{i}", 1) for i in range(700)]
    mine = failures(["infiniband-link"] * 3, nodes, 64)
    found = repeated_failures([*mine, *common, *elsewhere(60)], [JOB], ran(300.0, 64))[JOB]
    assert found.patterns == ()


def test_failures_without_a_cause_have_none_in_common():
    mine = failures(["unattributed"] * 3, ["m1", "m2", "m3"], 64)
    assert judged(mine, ran(300.0, 64)).patterns == ()


def test_without_runtimes_no_job_counts_as_fast():
    found = judged(failures(["unattributed"] * 12, ["m1"] * 12, 1), None)
    assert found.patterns == ()
    assert found.run_hours is None
    assert found.expected_failures is None
