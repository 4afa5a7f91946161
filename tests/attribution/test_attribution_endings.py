"""The truth table of end states, row by row, and what the controller's log adds to it."""

import pytest

from attribution.attribution_tables import CLUSTER, TAXONOMY, Cluster, at, by_job
from ettr.facts.facts import to_moment
from ettr.facts.stored import stored_sql
from ettr.tables import INTERRUPTIONS

# state, further columns, kind (None: no interruption), whether the scheduler says a node failed
TRUTH = [
    ("COMPLETED", {}, None, False),
    ("FAILED", {"exit_code": 1}, "hardware-candidate", False),
    ("FAILED", {"exit_signal": 11}, "hardware-candidate", False),
    ("FAILED", {"exit_code": 1, "step_state": "OUT_OF_MEMORY"}, "user-failure", False),
    ("FAILED", {"exit_code": 1, "derived_exit_signal": 125}, "user-failure", False),
    ("NODE_FAIL", {}, "hardware-candidate", True),
    ("BOOT_FAIL", {}, "hardware-candidate", True),
    ("LAUNCH_FAILED", {}, "hardware-candidate", False),
    ("RECONFIG_FAIL", {}, "hardware-candidate", False),
    ("OUT_OF_MEMORY", {"exit_signal": 125}, "user-failure", False),
    ("TIMEOUT", {}, None, False),
    ("DEADLINE", {}, None, False),
    ("PREEMPTED", {}, "preemption", False),
    ("CANCELLED", {"cancelled_by": "0"}, "operator", False),
    ("CANCELLED", {"cancelled_by": "1007"}, None, False),
    ("CANCELLED", {}, None, False),
    ("REQUEUED", {"exit_code": 0}, "operator", False),
    ("REQUEUED", {"exit_code": 99}, None, False),
    ("REQUEUED", {"failed_node": "n7"}, "hardware-candidate", True),
    ("REQUEUE_HOLD", {}, "operator", False),
    ("REQUEUE_HOLD", {"exit_code": 99}, None, False),
    ("REQUEUE_FED", {}, None, False),
    ("SPECIAL_EXIT", {"exit_code": 2}, "user-failure", False),
    ("REVOKED", {}, None, False),
    ("RESIZING", {}, None, False),
    ("SOMETHING_NEW", {}, None, False),
]


def test_every_end_state_has_the_kind_of_the_truth_table() -> None:
    cluster = Cluster()
    for number, (state, more, _, _) in enumerate(TRUTH):
        cluster.attempt(f"{number:02d}", state, **more)
    found = by_job(cluster.interruptions())
    for number, (state, more, kind, node_failed) in enumerate(TRUTH):
        row = found.get(f"{number:02d}")
        told = (row["kind"], row["node_failed"]) if row else (None, False)
        assert told == (kind, node_failed), (state, more)


def test_every_state_of_the_taxonomy_is_in_the_truth_table() -> None:
    terminal = {state for state, entry in TAXONOMY.states.items() if entry.terminal}
    assert terminal <= {state for state, *_ in TRUTH}


def test_an_attempt_that_still_runs_is_no_interruption() -> None:
    cluster = Cluster()
    for state in ("RUNNING", "PENDING", "COMPLETING", "SUSPENDED"):
        cluster.attempt(state, state, end_s=None)
    assert not by_job(cluster.interruptions())


def test_interruptions_match_their_schema() -> None:
    cluster = Cluster()
    cluster.attempt("1", "NODE_FAIL", ("n1", "n2"))
    facts = cluster.on()
    made = facts.engine.arrow(stored_sql(INTERRUPTIONS, facts.table("all_endings")), {})
    assert INTERRUPTIONS.check(made).num_rows == 1


@pytest.mark.slow
def test_who_cancels_for_several_users_is_an_operator() -> None:
    cluster = Cluster()
    cluster.attempt("1", "CANCELLED", user="ann", cancelled_by="500")
    cluster.attempt("2", "CANCELLED", user="bob", cancelled_by="500")
    cluster.attempt("3", "CANCELLED", user="ann", cancelled_by="501")
    cluster.attempt("4", "CANCELLED", user="ann", cancelled_by="501")
    found = by_job(cluster.interruptions())
    assert {job: row["kind"] for job, row in found.items()} == {"1": "operator", "2": "operator"}


def test_the_log_turns_a_requeue_into_a_node_failure() -> None:
    # as a real controller wrote it: requeue job JobId=17 due to failure of node node2
    cluster = Cluster()
    cluster.attempt("17", "REQUEUED", ("n1", "n2"), start_s=0, end_s=1000)
    cluster.attempt("17", "REQUEUED", ("n1", "n2"), start_s=1100, end_s=2000)
    cluster.attempt("17", "COMPLETED", ("n1", "n3"), start_s=2100, end_s=3000)
    cluster.event("n2", 2000.6, "NODE_FAIL", "slurmctld", job_id="17", event_id="said")
    found = sorted(cluster.interruptions(), key=lambda row: row["end_us"])
    told = [(to_moment(r["end_us"]), r["kind"], r["named_node"], r["named_event"]) for r in found]
    assert told == [
        (at(1000), "operator", None, None),
        (at(2000), "hardware-candidate", "n2", "said"),
    ]


def test_the_log_turns_a_requeue_into_a_preemption() -> None:
    cluster = Cluster()
    cluster.attempt("14", "REQUEUED", ("n1",), start_s=0, end_s=1000)
    cluster.event(None, 1000.2, "PREEMPTED", "slurmctld", job_id="14", related_job_id="15")
    found = by_job(cluster.interruptions())
    assert found["14"]["kind"] == "preemption"


@pytest.mark.parametrize(("late_s", "kind"), [(300.0, "hardware-candidate"), (300.1, "operator")])
def test_a_line_far_from_the_end_is_about_another_attempt(late_s: float, kind: str) -> None:
    cluster = Cluster()
    cluster.attempt("1", "REQUEUED", ("n1", "n2"), end_s=1000)
    cluster.event("n2", 1000 + late_s, "NODE_FAIL", "slurmctld", job_id="1")
    found = by_job(cluster.interruptions())
    assert found["1"]["kind"] == kind


def test_an_array_task_is_known_by_either_of_its_ids() -> None:
    cluster = Cluster()
    cluster.attempt("7_1", "REQUEUED", ("n1", "n2"), job_id_raw="8", array_job_id="7")
    cluster.attempt("7_2", "REQUEUED", ("n3", "n4"), job_id_raw="7", array_job_id="7")
    cluster.event("n1", 7200, "NODE_FAIL", "slurmctld", job_id="8")
    cluster.event("n4", 7200, "NODE_FAIL", "slurmctld", job_id="7_2")
    found = by_job(cluster.interruptions())
    assert {job: row["named_node"] for job, row in found.items()} == {"7_1": "n1", "7_2": "n4"}


def test_the_same_job_id_in_another_cluster_is_another_job() -> None:
    cluster = Cluster()
    cluster.attempt("1", "REQUEUED", ("n1", "n2"), cluster="other")
    cluster.event("n1", 7200, "NODE_FAIL", "slurmctld", job_id="1")
    found = by_job(cluster.interruptions())
    assert cluster.events[0]["cluster"] == CLUSTER
    assert found["1"]["kind"] == "operator"
