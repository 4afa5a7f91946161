"""How many failures chance explains: the estimate lies within its own ends."""

from __future__ import annotations

import ibis
import pytest

from attribution.attribution_tables import Cluster
from ettr.attribution.background import false_failures_by_size


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
