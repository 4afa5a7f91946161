"""The window is tested for each observation, and `explain` shows what it decided."""

from __future__ import annotations

import random
from typing import Any

import pytest

from attribution.attribution_tables import Cluster, at
from ettr.attribution import Confidence, FoldingRules, Window
from ettr.attribution.job_history import JobHistory, explain

pytestmark = pytest.mark.slow

SHORT = Window(10.0, 10.0)
END_S = 7200.0


def explained(cluster: Cluster, job: str, **assumed: Any) -> JobHistory:
    return explain(cluster.on(**assumed), job)


@pytest.mark.parametrize("offsets_s", [(-60,), (60,), (-60, 60), (-60, -20, 20, 60)])
def test_events_before_and_after_the_window_blame_nobody(offsets_s: tuple[float, ...]) -> None:
    """They fold into one stretch that spans the window, in which nothing was observed."""
    cluster = Cluster()
    cluster.attempt("1", "FAILED")
    for offset_s in offsets_s:
        cluster.event("n1", END_S + offset_s, "79")
    assert cluster.failures(window=SHORT) == []
    (attempt,) = explained(cluster, "1", window=SHORT).attempts
    assert (attempt.verdict, attempt.observed) == (None, ())


def test_one_event_in_the_window_among_others_of_its_burst_is_the_evidence() -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED")
    before, inside, after = (cluster.event("n1", END_S + s, "79") for s in (-60, 5, 60))
    (failure,) = cluster.failures(window=SHORT)
    # the episode began before the window; what counts of it was seen after the end alone
    assert (failure["evidence"], failure["confidence"]) == (before, "low")
    (attempt,) = explained(cluster, "1", window=SHORT).attempts
    assert attempt.verdict is not None
    assert attempt.verdict.confidence is Confidence.LOW
    assert [(one.event_id, one.role) for one in attempt.observed] == [(inside, "cause")]
    assert after not in {one.event_id for one in attempt.observed}


def test_a_short_attempt_does_not_inherit_what_was_seen_before_it_began() -> None:
    """The window begins with the attempt, in the middle of a burst that goes on after its end."""
    cluster = Cluster()
    cluster.attempt("1", "FAILED", start_s=7170)
    for offset_s in (-60, 50):
        cluster.event("n1", END_S + offset_s, "79")
    assert [row["confidence"] for row in cluster.failures()] == ["low"]
    assert cluster.failures(window=Window(600.0, 40.0)) == []


def test_a_fault_that_lasts_through_the_window_is_observed_in_it() -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED")
    lasting = cluster.event("n1", END_S - 3000, "79", time_end=at(END_S + 3000))
    (failure,) = cluster.failures(window=SHORT)
    assert (failure["evidence"], failure["confidence"]) == (lasting, "medium")
    (attempt,) = explained(cluster, "1", window=SHORT).attempts
    assert [(one.offset_s, one.role) for one in attempt.observed] == [(-3000.0, "cause")]


@pytest.mark.parametrize("window", [SHORT, Window(0.0, 7.0), Window(90.0, 0.0), Window()])
def test_the_window_holds_for_each_observation_of_many_attempts(window: Window) -> None:
    """One attempt a node, a handful of events around its end: counted by hand."""
    rng = random.Random(5)
    cluster = Cluster()
    expected: dict[str, bool] = {}
    for place in range(300):
        length_s = rng.choice((5.0, 60.0, 4000.0))
        cluster.attempt(str(place), "FAILED", (f"n{place}",), start_s=END_S - length_s)
        begins_s = END_S - min(window.before_s, length_s)
        inside = False
        for _ in range(rng.randrange(1, 6)):
            time_s = END_S + rng.choice((-1, 1)) * rng.choice((1, 8, 30, 100, 400, 900))
            lasts_s = rng.choice((0, 0, 0, 20, 2000))
            more = {"time_end": at(time_s + lasts_s)} if lasts_s else {}
            cluster.event(f"n{place}", time_s, "79", **more)
            inside |= time_s <= END_S + window.after_s and time_s + lasts_s >= begins_s
        expected[str(place)] = inside
    failed = {row["job_id"] for row in cluster.failures(window=window)}
    assert failed == {job for job, inside in expected.items() if inside}
    assert 0 < len(failed) < 300


def test_by_default_ten_minutes_before_the_end_and_five_after_it_count_and_no_second_more() -> None:
    """Kokolis et al. (2025)."""
    cluster = Cluster()
    for offset_s in (-601, -600, 300, 301):
        cluster.attempt(str(offset_s), "FAILED", (f"n{offset_s}",))
        cluster.event(f"n{offset_s}", END_S + offset_s, "79")
    assert {row["job_id"] for row in cluster.failures()} == {"-600", "300"}


def test_a_lone_sympathetic_code_is_a_cause_where_the_rules_count_it() -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED", ("n1",))
    cluster.attempt("2", "FAILED", ("n2",))
    for node in ("n1", "n2"):
        cluster.event(node, END_S - 100, "45")
    cluster.event("n2", END_S - 110, "31")
    counted = FoldingRules(count_lone_sympathetic=True)
    roles = {
        (job, rules.count_lone_sympathetic): [
            one.role for one in explained(cluster, job, folding=rules).attempts[0].observed
        ]
        for job in ("1", "2")
        for rules in (FoldingRules(), counted)
    }
    assert roles == {
        ("1", False): ["sympathetic"],
        ("1", True): ["cause"],
        ("2", False): ["context", "sympathetic"],
        ("2", True): ["context", "sympathetic"],
    }


def test_what_counts_for_no_failure_is_no_cause() -> None:
    cluster = Cluster()
    cluster.attempt("1", "COMPLETED")
    cluster.event("n1", END_S - 100, "79")
    (attempt,) = explained(cluster, "1").attempts
    assert attempt.verdict is None
    assert [(one.code, one.role) for one in attempt.observed] == [("79", "context")]


def test_words_on_other_jobs_and_other_attempts_are_left_out() -> None:
    """A requeued job lost two nodes within minutes; its neighbour on the second died with it."""
    cluster = Cluster()
    cluster.attempt("1", "NODE_FAIL", ("n1",), start_s=0, end_s=7200)
    cluster.attempt("1", "NODE_FAIL", ("n1", "n2"), start_s=7210, end_s=7350)
    cluster.attempt("9", "NODE_FAIL", ("n2",), start_s=0, end_s=7350)
    first = cluster.event("n1", 7200, "NODE_FAIL", "slurmctld", job_id="1")
    second = cluster.event("n2", 7350, "NODE_FAIL", "slurmctld", job_id="1")
    ninth = cluster.event("n2", 7351, "NODE_FAIL", "slurmctld", job_id="9")
    shown = [
        [(one.event_id, one.role) for one in attempt.observed]
        for job in ("1", "9")
        for attempt in explained(cluster, job).attempts
    ]
    assert shown == [[(first, "named")], [(second, "named")], [(ninth, "named")]]
