"""Which interruptions are failures, of which node, for which cause, and how sure that is."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution.attribution_tables import TAXONOMY, Cluster, arrow, at, by_job
from ettr.attribution import Window
from ettr.attribution.background import co_occurrence, false_attribution
from ettr.attribution.job_history import failure_rows
from ettr.errors import UsageError
from ettr.facts.stored import stored_sql
from ettr.tables import FAILURES

pytestmark = pytest.mark.slow

END_S = 7200.0


@pytest.mark.parametrize(
    ("time_s", "counts"),
    [
        (END_S - 600.000001, False),
        (END_S - 600, True),
        (END_S, True),
        (END_S + 300, True),
        (END_S + 300.000001, False),
    ],
)
def test_both_ends_of_the_window_count(time_s: float, counts: bool) -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED", ("n1", "n2"), end_s=END_S)
    cluster.event("n2", time_s, "48")
    assert bool(by_job(cluster.failures())) is counts


def test_the_window_begins_no_earlier_than_the_job() -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED", ("n1",), start_s=1000, end_s=1060)
    cluster.attempt("2", "FAILED", ("n2",), start_s=1000, end_s=1060)
    cluster.event("n1", 999, "48")
    cluster.event("n2", 1000, "48")
    assert set(by_job(cluster.failures())) == {"2"}


def test_the_window_can_be_set() -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED", end_s=END_S)
    cluster.event("n1", END_S - 5000, "48")
    assert not cluster.failures()
    assert cluster.failures(window=Window(before_s=5000, after_s=0))
    with pytest.raises(UsageError, match="at least one of them over 0"):
        Window(before_s=0, after_s=0)


def test_an_old_sticky_fault_explains_nothing_unless_it_was_seen_again() -> None:
    # one episode from 0 to 10,000 s, in which nothing was seen around the first end
    cluster = Cluster()
    cluster.attempt("1", "FAILED", ("n1",), start_s=0, end_s=5000)
    cluster.attempt("2", "FAILED", ("n1",), start_s=5000, end_s=10_100)
    first = cluster.event("n1", 0, "79")
    cluster.event("n1", 10_000, "79")
    found = by_job(cluster.failures())
    assert {job: row["evidence"] for job, row in found.items()} == {"2": first}


def test_the_ranked_causes_of_a_named_node_failure() -> None:
    cluster = Cluster()
    cluster.attempt("17", "NODE_FAIL", ("n1", "n2"), end_s=END_S)
    mount = cluster.event("n2", END_S - 300, None, "check mountpoint", severity="critical")
    link = cluster.event("n2", END_S - 200, "74")
    bus = cluster.event("n2", END_S - 100, "79")
    elsewhere = cluster.event("n1", END_S - 400, "79")
    said = cluster.event("n2", END_S + 0.6, "NODE_FAIL", "slurmctld", job_id="17")
    row = by_job(cluster.failures())["17"]
    assert row["node"] == "n2"
    assert row["symptom"] == "gpu-unavailable"
    assert row["domain"] == TAXONOMY.domain("gpu-unavailable")
    assert row["confidence"] == "high"
    assert row["causes"] == "gpu-unavailable,nvlink,filesystem"
    assert row["evidence"] == ",".join([bus, link, mount, elsewhere, said])


@dataclass(frozen=True)
class Case:
    """One attempt, what was seen, and the row of `failures` that must come out (None: none)."""

    state: str
    seen: tuple[tuple[str, float, str], ...]
    expected: tuple[str | None, str, str] | None
    named: str | None = None
    nodes: tuple[str, ...] = ("n1", "n2")


CONFIDENCE_CASES = {
    "nothing seen": Case("NODE_FAIL", (), (None, "unattributed", "none")),
    "named, nothing seen": Case("NODE_FAIL", (), ("n1", "unattributed", "none"), "n1"),
    "named and seen there": Case(
        "NODE_FAIL", (("n1", -60, "79"),), ("n1", "gpu-unavailable", "high"), "n1"
    ),
    "named and seen elsewhere": Case(
        "NODE_FAIL", (("n2", -60, "79"),), ("n1", "gpu-unavailable", "low"), "n1"
    ),
    "the only node is named": Case(
        "NODE_FAIL", (("n1", -60, "48"),), ("n1", "gpu-memory", "high"), None, ("n1",)
    ),
    "not named and seen": Case("NODE_FAIL", (("n2", 60, "48"),), ("n2", "gpu-memory", "medium")),
    "seen on several nodes": Case(
        "NODE_FAIL", (("n1", -9, "48"), ("n2", -9, "48")), (None, "gpu-memory", "medium")
    ),
    "failed, seen before": Case("FAILED", (("n2", -60, "48"),), ("n2", "gpu-memory", "medium")),
    "failed, seen only after": Case("FAILED", (("n2", 60, "48"),), ("n2", "gpu-memory", "low")),
    "failed, nothing seen": Case("FAILED", (), None),
    "failed, own program": Case("FAILED", (("n1", -1, "31"), ("n1", -1, "45")), None),
    "failed, a pointer alone": Case("FAILED", (("n1", -1, "154"),), None),
    "cancelled beside a fault": Case("CANCELLED", (("n1", -1, "79"),), None),
    "timeout beside a fault": Case("TIMEOUT", (("n1", -1, "79"),), None),
    "preempted beside a fault": Case("PREEMPTED", (("n1", -1, "79"),), None),
    "out of memory beside a fault": Case("OUT_OF_MEMORY", (("n1", -1, "79"),), None),
    "completed beside a fault": Case("COMPLETED", (("n1", -1, "79"),), None),
    "requeued by its node's failure": Case(
        "REQUEUED", (("n1", -1, "79"),), ("n1", "gpu-unavailable", "high"), "n1"
    ),
    "requeued beside a fault": Case("REQUEUED", (("n1", -1, "79"),), None),
}


def test_confidence_follows_the_written_rules() -> None:
    cluster = Cluster()
    for number, (job, case) in enumerate(CONFIDENCE_CASES.items()):
        prefix = f"case{number}-"
        named = prefix + case.named if case.named else None
        nodes = tuple(prefix + node for node in case.nodes)
        cluster.attempt(job, case.state, nodes, end_s=END_S, failed_node=named)
        for node, offset_s, code in case.seen:
            cluster.event(prefix + node, END_S + offset_s, code)
    found = by_job(cluster.failures())
    told = {
        job: (row["node"] and row["node"].partition("-")[2], row["symptom"], row["confidence"])
        for job, row in found.items()
    }
    assert told == {job: case.expected for job, case in CONFIDENCE_CASES.items() if case.expected}


def test_a_node_that_went_down_names_itself_if_it_is_the_only_one() -> None:
    # as sacctmgr and the controller's log of a real cluster tell it: node2, node4 and node6 down
    cluster = Cluster()
    cluster.attempt("17", "NODE_FAIL", ("node1", "node2"), end_s=END_S)
    cluster.attempt("18", "NODE_FAIL", ("node3", "node4"), end_s=END_S)
    cluster.attempt("19", "NODE_FAIL", ("node5", "node6", "node7"), end_s=END_S)
    cluster.state("node2", "DOWN", "Not responding", END_S)
    cluster.event("node4", END_S, "NODE_DOWN", "slurmctld", severity="critical")
    cluster.state("node6", "DOWN", "Not responding", END_S)
    cluster.state("node7", "DOWN", "Not responding", END_S)
    found = by_job(cluster.failures())
    told = {job: (row["node"], row["symptom"], row["confidence"]) for job, row in found.items()}
    assert told == {
        "17": ("node2", "unattributed", "none"),
        "18": ("node4", "unattributed", "none"),
        "19": (None, "unattributed", "none"),
    }


def test_the_reason_of_a_drain_is_evidence() -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED", ("n1",), end_s=END_S)
    said = cluster.state("n1", "DRAIN", "NHC: check_dcgm: GPU 3 XID 79 fallen off the bus", END_S)
    row = by_job(cluster.failures())["1"]
    assert (row["symptom"], row["evidence"], row["confidence"]) == (
        "gpu-unavailable",
        said,
        "medium",
    )


def test_failures_match_their_schema() -> None:
    cluster = Cluster()
    cluster.attempt("1", "NODE_FAIL", ("n1", "n2"))
    cluster.attempt("2", "FAILED", ("n3",))
    cluster.event("n3", END_S, "48")
    assert arrow(FAILURES, cluster.failures()).num_rows == 2
    facts = cluster.on()
    made = facts.engine.arrow(stored_sql(FAILURES, facts.table("failure_texts")), {})
    assert FAILURES.check(made).num_rows == 2


def test_empty_logs_have_no_failures() -> None:
    facts = Cluster().on()
    assert failure_rows(facts) == []
    assert facts.rows("all_episodes") == []


def test_a_thousand_failed_jobs_of_one_user_are_no_failures_of_hardware() -> None:
    # a real log of one cluster holds 1,703 FAILED jobs of one user on one node, and no event
    cluster = Cluster()
    for number in range(1703):
        cluster.attempt(f"{number}", "FAILED", ("n1",), start_s=60 * number, end_s=60 * number + 30)
    facts = cluster.on()
    assert len(facts.rows("all_endings")) == 1703
    assert failure_rows(facts) == []


STATES = ("COMPLETED", "FAILED", "NODE_FAIL", "REQUEUED", "CANCELLED", "PREEMPTED", "TIMEOUT")


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_an_interruption_is_at_most_one_failure(data: st.DataObject) -> None:
    cluster = Cluster()
    nodes = ("n1", "n2", "n3")
    for number in range(data.draw(st.integers(1, 12))):
        own = tuple(sorted(data.draw(st.sets(st.sampled_from(nodes), min_size=1))))
        start_s = data.draw(st.integers(0, 20)) * 100
        cluster.attempt(
            str(number % 4),
            data.draw(st.sampled_from(STATES)),
            own,
            start_s=start_s + number,
            end_s=start_s + number + data.draw(st.integers(0, 20)) * 100,
        )
    for _ in range(data.draw(st.integers(0, 25))):
        cluster.event(
            data.draw(st.sampled_from(nodes)),
            data.draw(st.integers(0, 40)) * 100,
            data.draw(st.sampled_from(["79", "48", "74", "31", "45", "154"])),
        )
    for _ in range(data.draw(st.integers(0, 5))):
        cluster.event(
            data.draw(st.sampled_from(nodes)),
            data.draw(st.integers(0, 40)) * 100,
            data.draw(st.sampled_from(["NODE_FAIL", "PREEMPTED", "NODE_DOWN"])),
            "slurmctld",
            job_id=data.draw(st.sampled_from(["0", "1", "2", "3"])),
        )
    facts = cluster.on()
    interrupted = [row["attempt_id"] for row in facts.rows("all_endings")]
    failed = [row["attempt_id"] for row in failure_rows(facts)]
    assert len(set(interrupted)) == len(interrupted)
    assert len(set(failed)) == len(failed)
    assert set(failed) <= set(interrupted)
    surely = {a["attempt_id"] for a in cluster.attempts if a["state"] == "NODE_FAIL"}
    assert surely <= set(failed)


PLANTED = {"79": "gpu-unavailable", "48": "gpu-memory", "74": "nvlink"}


def test_planted_faults_of_a_simulated_cluster_come_back_exactly() -> None:
    draw = random.Random(20260101)
    cluster = Cluster()
    truth: dict[str, tuple[str, str, str]] = {}
    for number in range(400):
        nodes = tuple(f"s{number % 40}x{i}" for i in range(draw.randint(2, 4)))
        start_s = 10_000.0 * (number // 40)
        end_s = start_s + draw.randint(1200, 9000)
        fate = draw.random()
        job, victim = str(number), draw.choice(nodes)
        if fate < 0.6:
            cluster.attempt(job, "COMPLETED", nodes, start_s=start_s, end_s=end_s)
        elif fate < 0.8:
            cluster.attempt(job, "FAILED", nodes, start_s=start_s, end_s=end_s)
        else:
            code = draw.choice(list(PLANTED))
            state, said = ("NODE_FAIL", "high") if fate < 0.9 else ("FAILED", "medium")
            cluster.attempt(job, state, nodes, start_s=start_s, end_s=end_s)
            for _ in range(draw.randint(1, 30)):
                cluster.event(victim, end_s - draw.uniform(0, 170), code, entity="0000:18:00")
            if state == "NODE_FAIL":
                cluster.event(victim, end_s + 0.5, "NODE_FAIL", "slurmctld", job_id=job)
            truth[job] = (victim, PLANTED[code], said)
        for _ in range(3):  # what happens all the time and means nothing
            cluster.event(draw.choice(nodes), draw.uniform(start_s, end_s), "31")
            cluster.event(
                draw.choice(nodes),
                draw.uniform(start_s, end_s),
                None,
                "check ibstat",
                severity="ok",
            )
    draw.shuffle(cluster.events)
    facts = cluster.on()
    found = by_job(failure_rows(facts))
    assert {j: (r["node"], r["symptom"], r["confidence"]) for j, r in found.items()} == truth
    wrong = false_attribution(facts)
    assert wrong.n_touched == 0
    assert wrong.n_on_evidence == sum(said == "medium" for _, _, said in truth.values())


def test_completed_attempts_measure_how_often_the_window_errs() -> None:
    cluster = Cluster()
    for number in range(20):
        cluster.attempt(f"{number}", "COMPLETED", (f"n{number}",), end_s=END_S)
    cluster.attempt("failed", "FAILED", ("m1",), end_s=END_S)
    cluster.attempt("big", "FAILED", ("m2", "m3"), end_s=END_S)
    cluster.event("n0", END_S, "79")
    cluster.event("n0", END_S, "48")
    cluster.event("n1", END_S - 600, "48")
    cluster.event("n2", END_S - 700, "48")
    found = false_attribution(cluster.on())
    assert (found.n_completed, found.n_touched) == (20, 2)
    # Clopper and Pearson (1934), 2 of 20, 90 %: 0.018065 to 0.282619
    assert found.share.estimate == pytest.approx(0.1)
    assert (found.share.low, found.share.high) == pytest.approx((0.018065, 0.282619), abs=1e-5)
    assert [(s.symptom, s.n_attempts) for s in found.by_symptom] == [
        ("gpu-memory", 2),
        ("gpu-unavailable", 1),
    ]
    assert found.n_on_evidence == 0


def test_symptoms_that_come_together() -> None:
    cluster = Cluster()
    for number, codes in enumerate([("79", "74"), ("79",), ("79", "48"), ("74",), ()]):
        cluster.attempt(str(number), "NODE_FAIL", (f"n{number}",), end_s=END_S)
        for code in codes:
            cluster.event(f"n{number}", END_S, code)
    found = co_occurrence(cluster.on())
    assert (found.n_failures, found.n_several) == (4, 2)
    assert [(p.symptom, p.other, p.n_both, p.n_symptom) for p in found.pairs] == [
        ("gpu-memory", "gpu-unavailable", 1, 1),
        ("gpu-unavailable", "gpu-memory", 1, 3),
        ("gpu-unavailable", "nvlink", 1, 3),
        ("nvlink", "gpu-unavailable", 1, 2),
    ]


def test_what_a_job_leaves_behind_is_no_cause_of_its_end() -> None:
    """A node is drained since processes of the job that FAILED did not die."""
    cluster = Cluster()
    cluster.attempt("1", "FAILED", end_s=END_S)
    cluster.state("n1", "DRAIN", "Kill task failed", END_S + 60)
    cluster.attempt("2", "FAILED", ("n2",), end_s=END_S)
    cluster.state("n2", "DRAIN", "NHC: check_hw_ib: link down", END_S + 60)
    assert set(by_job(cluster.failures())) == {"2"}


def test_the_clock_of_these_tests() -> None:
    assert (at(60) - at(0)).total_seconds() == 60
