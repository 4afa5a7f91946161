"""Quotas of a simulated cluster: never exceeded, held jobs say why and block nobody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from cluster_scenarios import fault, most_at_once, one_size, played, quiet, small
from ettr.errors import UsageError
from ettr.sim.cluster.policies import Limit, held_by
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text
from ettr.sim.cluster.scenario_parts import Quota
from ettr.sim.cluster.scheduler import quota_limits
from ettr.sim.cluster.whatif import changed_scenario

EACH_USER = Quota("user", "*", 24)
TABLE = """
[[quotas]]
source = "assumed"
scope = "user"
name = "*"
most_gpus = 24
"""


def crowded(quotas: Iterable[Quota], **parts: object) -> ClusterScenario:
    """Four users of two accounts on 20 nodes that fail, with more jobs than they may run."""
    usual = {
        "period": {"days": 2.0},
        "machines": {"nodes": 20},
        "users": {"users": 4, "accounts": 2},
        "arrivals": {"jobs_per_day": 250.0},
        "faults": (fault("gpu-memory", 100.0), fault("node-hardware", 100.0, node_down_chance=0.9,
                                                     crash_chance=0.0)),
        "bursts": (),
    }  # fmt: skip
    return small(**(usual | {"quotas": tuple(quotas)} | parts))


def test_a_limit_counts_what_runs_and_what_is_asked():
    limits = (Limit("user:a", 8, 4, "first"), Limit("account:x", 6, 4, "second"))
    assert held_by(limits, {}) is None
    assert held_by(limits, {"user:a": 4, "account:x": 2}) is None
    assert held_by(limits, {"user:a": 5, "account:x": 3}).reason == "first"
    assert held_by(limits, {"user:a": 4, "account:x": 3}).reason == "second"


def test_a_quota_is_of_its_own_name_or_of_each():
    quotas = [Quota("user", "ann", 1), Quota("account", "*", 2), Quota("qos", "high", 3)]
    found = quota_limits(quotas, 4, "bob", "physics", "high")
    assert [(one.whose, one.most, one.asks) for one in found] == [
        ("account:physics", 2, 4),
        ("qos:high", 3, 4),
    ]
    # as Slurm's `squeue` shows them
    assert [one.reason for one in found] == ["AssocGrpGRES", "QOSGrpGRES"]


def test_a_quota_by_name_takes_the_place_of_the_one_for_each():
    """In either order, and larger or smaller; other scopes keep theirs."""
    each, own = Quota("user", "*", 24), Quota("user", "ann", 64)
    for quotas in ([each, own], [own, each]):
        (ann,) = quota_limits(quotas, 4, "ann", "physics", "high")
        assert (ann.whose, ann.most) == ("user:ann", 64)
        (bob,) = quota_limits(quotas, 4, "bob", "physics", "high")
        assert (bob.whose, bob.most) == ("user:bob", 24)
    of_accounts = Quota("account", "*", 8)
    found = quota_limits([of_accounts, own, each], 4, "ann", "physics", "high")
    assert [one.whose for one in found] == ["account:physics", "user:ann"]


def test_jobs_of_a_user_with_a_quota_of_his_own_count_once():
    """The first user may have 2 GPUs, the other 1; with both quotas he had 1 GPU at a time."""
    scenario = quiet(
        period={"days": 1.0},
        machines={"nodes": 10},
        users={"users": 2, "accounts": 1},
        jobs=one_size(1, 3600.0),
        arrivals={"jobs_per_day": 100.0},
        quotas=(Quota("user", "*", 1), Quota("user", "user1", 2)),
    )
    attempts = played(scenario)[0]["attempts"]
    assert most_at_once(attempts, lambda row: row["user"]) == {"user1": 2, "user2": 1}


quotas_of = st.lists(
    st.builds(
        Quota,
        scope=st.sampled_from(("user", "account", "qos")),
        name=st.just("*"),
        most_gpus=st.integers(1, 120),
    ),
    unique_by=lambda one: one.scope,
    min_size=1,
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    quotas=quotas_of,
    seed=st.integers(0, 1000),
    waiting=st.sampled_from(("easy-backfill", "in-order")),
)
def test_no_quota_is_ever_exceeded(quotas: list[Quota], seed: int, waiting: str):
    tables, run = played(crowded(quotas, scheduling={"waiting": waiting}), seed)
    for one in quotas:
        most = most_at_once(tables["attempts"], lambda row, key=one.scope: row[key])
        assert max(most.values(), default=0) <= one.most_gpus
    hours = [row["gpu_hours"] for row in run.truth()["hours"].to_pylist()]
    assert sum(one for one in hours if one is not None) == pytest.approx(20 * 8 * 48, rel=1e-12)


@pytest.mark.slow
def test_without_the_quota_it_would_have_been_exceeded_and_the_reason_is_kept():
    """Or the test above could not fail."""
    free, _ = played(crowded([]))
    assert max(most_at_once(free["attempts"], lambda row: row["user"]).values()) > 24
    assert set(free["attempts"]["reason"].to_pylist()) == {None}
    held, _ = played(crowded([EACH_USER]))
    most = most_at_once(held["attempts"], lambda row: row["user"])
    assert max(most.values()) == 24
    reasons = held["attempts"]["reason"].to_pylist()
    assert set(reasons) == {None, "QOSMaxGRESPerUser"}
    for row in held["attempts"].to_pylist():
        if row["requested_gpus"] > 24:  # more than any user may have: pending, as in Slurm
            assert row["start"] is None
            assert row["reason"] == "QOSMaxGRESPerUser"


@pytest.mark.slow
def test_a_held_job_blocks_nobody():
    """The first user's jobs may use 1 node of 20; the others wait no longer than without him."""
    scenario = quiet(
        period={"days": 2.0},
        machines={"nodes": 20},
        users={"users": 3, "accounts": 1},
        jobs=one_size(8, 3600.0),
        arrivals={"jobs_per_day": 300.0},
        quotas=(Quota("user", "user1", 8),),
    )
    rows = played(scenario)[0]["attempts"].to_pylist()
    waits = {"user1": [], "others": []}
    for row in rows:
        if row["start"] is not None:
            wait_s = (row["start"] - row["submit"]).total_seconds()
            waits["user1" if row["user"] == "user1" else "others"].append(wait_s)
    # 300 jobs of an hour a day need 12.5 of the 20 nodes, 6.8 of them for the first user
    assert sum(waits["others"]) / len(waits["others"]) < 60
    assert sum(waits["user1"]) / len(waits["user1"]) > 3600


def test_a_job_that_shares_a_pass_with_one_of_its_user_is_held_and_starts_later():
    """One GPU a user at once, ten nodes: each user's jobs run one after the other."""
    scenario = quiet(
        period={"days": 1.0},
        machines={"nodes": 10},
        users={"users": 2, "accounts": 1},
        jobs=one_size(1, 600.0),
        arrivals={"jobs_per_day": 100.0},
        quotas=(Quota("user", "*", 1),),
    )
    attempts = played(scenario)[0]["attempts"]
    assert most_at_once(attempts, lambda row: row["user"]) == {"user1": 1, "user2": 1}
    assert attempts["reason"].to_pylist().count("QOSMaxGRESPerUser") > 5


def test_quotas_are_read_changed_and_checked():
    text = scenario_text("small")[0] + TABLE
    scenario = scenario_of(text)
    assert scenario.quotas == (EACH_USER,)
    assert changed_scenario(scenario, "quotas.user.most_gpus=x2").quotas[0].most_gpus == 48
    for wrong, says in (
        ('scope = "team"', "quotas.scope: 'team'"),
        ("most_gpus = 0", "quotas.most_gpus: 0"),
        ('scope = "qos"\nname = "urgent"', "no entry in"),
    ):
        table = TABLE.replace('name = "*"\n', "") if "name" in wrong else TABLE
        key = wrong.split(" ")[0]
        lines = [wrong if line.startswith(key) else line for line in table.splitlines()]
        with pytest.raises(UsageError, match=says):
            scenario_of(scenario_text("small")[0] + "\n".join(lines) + "\n" + (
                'name = "*"\n' if "name =" not in "\n".join(lines) else ""))  # fmt: skip


def test_a_quota_of_nobody_is_refused():
    scenario = replace(small(), quotas=(Quota("user", "ann", 8),))
    with pytest.raises(UsageError, match="no user is called 'ann'; names are such as user1, user2"):
        played(scenario)
