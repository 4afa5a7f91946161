"""How many failures chance explains: the estimate lies within its own ends."""

from __future__ import annotations

import random

import ibis
import pyarrow as pa
import pytest

from attribution.attribution_tables import Cluster, at
from ettr.attribution.background import background, false_failures_by_size
from ettr.attribution.rules import Window


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [0, 1, 20])
def test_the_expected_number_lies_within_its_interval(
    connection: ibis.BaseBackend, episodes: int
) -> None:
    """Two failures rest on a check; a long job meets so many critical events that end nothing."""
    cluster = Cluster()
    for job in (1, 2):
        cluster.attempt(str(job), "FAILED", (f"n{job}",))
        cluster.event(f"n{job}", 7100, "79")
    for job in (3, 4, 5):
        cluster.attempt(str(job), "FAILED", (f"n{job}",))
    cluster.attempt("9", "COMPLETED", ("n9",), end_s=7_200_000)
    for number in range(episodes):
        cluster.event("n9", 200_000 + 300_000 * number, "79")
    tables = cluster.on(connection)
    found = tables.attribute()
    false = false_failures_by_size(
        tables.allocations, found.endings, found.observed, found.episodes, 8
    )
    assert false.background.episodes == episodes
    expected = false.all_jobs.expected_false
    assert false.all_jobs.on_evidence == 2
    assert expected.low <= expected.estimate <= expected.high
    assert (expected.estimate > 0) is (episodes > 0)


@pytest.mark.slow
def test_the_background_counts_what_began_in_the_quiet_part_of_each_run() -> None:
    """Runs of a day and more, short ones and some that could be blamed, counted one by one."""
    draw = random.Random(5)
    window = Window(before_s=600.0, after_s=300.0)
    runs = []
    for number in range(60):
        start_s = draw.uniform(0.0, 300_000.0)
        ran_s = draw.choice([0.3, 400.0, 600.4, 601.5, 5_000.0, 200_000.0])
        runs.append((f"a{number}", f"n{number % 3}", start_s, start_s + ran_s, number % 2 == 0))
    begins = [(f"n{number % 3}", draw.uniform(0.0, 400_000.0)) for number in range(200)]
    # just before and after what decides: the beginning, the window and the end
    begins += [
        (node, moment_s + by_s)
        for _, node, start_s, end_s, _ in runs
        for moment_s in (start_s, end_s - window.before_s, end_s)
        for by_s in (-0.2, 0.2)
    ]

    def in_quiet(node: str, began_s: float) -> int:
        return sum(
            start_s < began_s <= (end_s - window.before_s if blamed else end_s)
            and int(end_s - window.before_s * blamed) > int(start_s)
            for _, name, start_s, end_s, blamed in runs
            if name == node
        )

    allocations = [
        {
            "cluster": "c",
            "node": node,
            "attempt_id": name,
            "start": at(start_s),
            "end": at(end_s),
            "elapsed_s": end_s - start_s,
        }
        for name, node, start_s, end_s, _ in runs
    ]
    ends = [
        {"attempt_id": name, "kind": "hardware-candidate" if blamed else "user-failure"}
        for name, *_, blamed in runs
    ]
    folded = [
        {
            "cluster": "c",
            "node": node,
            "symptom": "gpu",
            "fault": True,
            "first": at(began_s),
            "last": at(int(began_s) + 30.0),
        }
        for node, began_s in begins
    ]
    kept, ended, began = (
        ibis.memtable(pa.Table.from_pylist(rows)) for rows in (allocations, ends, folded)
    )
    found = background(kept, ended, began, window)
    expected = [in_quiet(node, began_s) for node, began_s in begins]
    assert found.episodes == sum(expected)
    assert found.mean_length_s == pytest.approx(30.0)
    assert found.by_symptom[0].symptom == "gpu"
    # the same to the last digit in whatever order the rows are
    for place in (1, 2, 8):
        turned = pa.Table.from_pylist(allocations[place:] + allocations[:place])
        assert background(ibis.memtable(turned), ended, began, window) == found


def test_of_two_runs_at_once_on_one_node_only_the_suspect_has_a_window() -> None:
    """Two GPUs of the node show the same fault at the same time, 100 s before both runs end."""
    held = {"cluster": "c", "node": "n", "start": at(0), "end": at(5000), "elapsed_s": 5000.0}
    allocations = [{**held, "attempt_id": name} for name in ("failed", "completed")]
    ends = [{"attempt_id": "failed", "kind": "hardware-candidate"}]
    fault = {"cluster": "c", "node": "n", "symptom": "gpu", "fault": True}
    folded = [{**fault, "first": at(4900), "last": at(4910)}] * 2
    folded += [{**fault, "first": at(1000), "last": at(1040)}]
    found = background(
        *(ibis.memtable(pa.Table.from_pylist(rows)) for rows in (allocations, ends, folded)),
        Window(before_s=600.0, after_s=300.0),
    )
    # the late two in the run that completed, the early one in both
    assert found.episodes == 2 + 2
    assert found.mean_length_s == pytest.approx((2 * 10.0 + 2 * 40.0) / 4)
    assert found.node_hours == pytest.approx((5000.0 + 4400.0) / 3600)
