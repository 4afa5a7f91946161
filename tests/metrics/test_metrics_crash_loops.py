"""A large job that runs for weeks fails several times by chance; a crash loop does not."""

from __future__ import annotations

from itertools import cycle, islice

import numpy as np
import pytest

from ettr.metrics.goodput import (
    JobAttempts,
    JobFailure,
    JobRuntimes,
    RepeatedFailures,
    repeated_failures,
)

JOB = ("c", "42427")
# a fleet with 6.5 failures per 1,000 node-days, 768 of them in other jobs
RATE = 6.5e-3
CAUSES = ("gpu-unavailable", "infiniband-link", "gpu-driver", "filesystem", "unattributed")


def elsewhere(count: int = 768) -> list[JobFailure]:
    """Failures of other jobs, of all causes."""
    causes = islice(cycle(CAUSES), count)
    return [JobFailure(("c", f"{i}"), f"o{i}", cause, f"n{i}", 1) for i, cause in enumerate(causes)]


def run_of(hours: list[float], n_nodes: int) -> JobAttempts:
    """One attempt after the other; the first ones end in a failure."""
    held = np.array(hours)
    return JobAttempts(tuple(f"a{i}" for i in range(len(hours))), held, held * n_nodes / 24.0)


def judged(
    causes: list[str], nodes: list[str | None], run: JobAttempts | None, n_nodes: int = 64
) -> RepeatedFailures:
    mine = [
        JobFailure(JOB, f"a{i}", cause, node, n_nodes)
        for i, (cause, node) in enumerate(zip(causes, nodes, strict=True))
    ]
    ran = None
    if run is not None:
        ran = JobRuntimes({JOB: run}, 768 / RATE + float(run.node_days.sum()))
    return repeated_failures([*mine, *elsewhere()], [JOB], ran)[JOB]


def different(count: int) -> tuple[list[str], list[str | None]]:
    """So many failures, of several causes and each on another node."""
    return list(islice(cycle(CAUSES), count)), [f"m{i}" for i in range(count)]


def test_a_large_job_that_fails_as_often_as_its_size_makes_likely_is_no_loop():
    """512 GPUs for 29, 11, 30, 4.6, 36 and 8 h, each failure on another node by another cause."""
    found = judged(*different(6), run_of([29.0, 11.0, 30.0, 4.6, 36.0, 8.0], 64))
    assert found.patterns == ()
    assert found.burst is None
    assert found.run_hours == pytest.approx(118.6)
    assert found.expected_failures == pytest.approx(RATE * 64 * 118.6 / 24)
    assert found.node is None


def test_a_job_that_fails_every_quarter_of_an_hour_is():
    """Twelve times on one node: 0.0008 would be expected."""
    found = judged(["unattributed"] * 12, ["m1"] * 12, run_of([0.25] * 12, 1), 1)
    assert found.patterns == ("fast",)
    assert found.burst is not None
    assert found.burst.failures == 12
    assert found.burst.run_hours == pytest.approx(3.0)
    assert found.burst.expected_failures == pytest.approx(RATE * 3.0 / 24)


def test_a_loop_at_the_start_of_a_long_run_is_not_diluted():
    """Twelve failures within three hours, and 2,000 h with three more, which its size explains."""
    hours = [0.25] * 12 + [600.0, 650.0, 700.0, 50.0]
    found = judged(*different(15), run_of(hours, 32), 32)
    assert found.patterns == ("fast",)
    assert found.burst is not None
    assert found.burst.failures == 12
    assert found.burst.run_hours == pytest.approx(3.0)


def test_failures_of_a_large_job_on_one_of_its_nodes_are_no_chance():
    causes, run = ["gpu-driver", "filesystem", "unattributed"], run_of([100.0] * 3, 64)
    assert judged(causes, ["m7"] * 3, run).patterns == ("same-node",)
    # of two nodes the same one fails thrice in one case of four
    assert judged(causes, ["m7"] * 3, run_of([1000.0] * 3, 2), 2).patterns == ()
    # a failure that blames no node leaves it open
    assert judged(causes, ["m7", "m7", None], run).patterns == ()


def test_one_rare_cause_is_no_chance_and_a_common_one_is():
    nodes, run = ["m1", "m2", "m3"], run_of([100.0] * 3, 64)
    assert judged(["optics"] * 3, nodes, run).patterns == ("same-cause",)
    common = [JobFailure(("c", f"{i}"), f"b{i}", "optics", f"n{i}", 1) for i in range(3000)]
    mine = [JobFailure(JOB, f"a{i}", "optics", node, 64) for i, node in enumerate(nodes)]
    assert repeated_failures([*mine, *common, *elsewhere()], [JOB], None)[JOB].patterns == ()


def test_failures_without_a_cause_have_none_in_common():
    found = judged(["unattributed"] * 3, ["m1", "m2", "m3"], run_of([100.0] * 3, 64))
    assert found.patterns == ()


def test_without_runtimes_no_job_counts_as_fast():
    found = judged(["unattributed"] * 12, ["m1"] * 12, None, 1)
    assert found.patterns == ()
    assert found.run_hours is None
    assert found.expected_failures is None


@pytest.mark.slow
def test_of_stores_without_any_loop_few_show_one():
    """200 stores of 40 jobs on 64 nodes over 20 days, failing independently at one rate."""
    rng = np.random.default_rng(11)
    marked = 0
    for _ in range(200):
        failures: list[JobFailure] = []
        runs: dict[tuple[str, str], JobAttempts] = {}
        for j in range(40):
            job, times = ("c", str(j)), np.sort(rng.uniform(0, 480, rng.poisson(RATE * 64 * 20)))
            hours = np.diff([0.0, *times, 480.0])
            ids = tuple(f"{j}-{i}" for i in range(len(hours)))
            runs[job] = JobAttempts(ids, hours, hours * 64 / 24)
            failures += [
                JobFailure(job, attempt, CAUSES[rng.integers(5)], f"n{rng.integers(64)}", 64)
                for attempt in ids[:-1]
            ]
        repeated = [job for job in runs if sum(one.job == job for one in failures) >= 3]
        ran = JobRuntimes(runs, 40 * 64 * 20.0)
        found = repeated_failures(failures, repeated, ran)
        marked += any(one.patterns for one in found.values())
    assert marked <= 30  # three patterns at 5 % each
