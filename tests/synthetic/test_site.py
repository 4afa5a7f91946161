"""The raw texts of a made-up site, read as a user reads his own: what was planted is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ettr
from cli.program import ettr as run
from ettr.analysis import Analysis
from ettr.selection import Selection
from synthetic.site import ORIGIN, SYMPTOMS, SitePlan, SiteTruth, write_site

pytestmark = pytest.mark.slow

PLAN = SitePlan(nodes=160, days=30, lemons=3, maintenance_day=20)
LOGS = ("sacct.psv", "events.psv", "kernel.log", "slurmctld.log", "nodes.txt")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SiteTruth]:
    folder = tmp_path_factory.mktemp("site")
    truth = write_site(folder, PLAN, seed=0)
    store = folder / "store"
    done = run("ingest", store, *(folder / name for name in LOGS), "--timezone", "UTC")
    assert done.code == 0, done.err
    return store, truth


def shown(command: str, store: Path) -> Any:
    done = run(command, store, "--json")
    assert done.code == 0, done.err
    return done.json


def test_every_planted_failure_is_found_with_its_symptom_and_node(site):
    store, truth = site
    rows = shown("failures", store)["rows"]
    found = Counter((row["job_id"], row["node"], row["symptom"]) for row in rows)
    planted = Counter((one.job, one.node, one.symptom) for one in truth.failures)
    assert planted.total() >= 25
    assert set(SYMPTOMS) - {"unattributed"} <= {symptom for _, _, symptom in planted}
    assert found == planted


def test_exposure_is_the_nodes_time_in_jobs(site):
    store, truth = site
    rate = shown("failures", store)["all_jobs"]
    assert rate["node_days"] == pytest.approx(truth.node_s.total() / 86400, rel=1e-9)


def test_the_maintenance_window_is_planned_and_fails_no_job(site):
    store, truth = site
    reasons = {row["reason_class"]: row for row in shown("nodes", store)["by_reason"]}
    assert reasons["maintenance"]["is_planned"]
    assert 0 < reasons["maintenance"]["nodes"] <= len(truth.maintenance_nodes)
    unplanned = sum(row["outages"] for row in reasons.values() if not row["is_planned"])
    assert unplanned == len(truth.failures)


def test_preemptions_name_the_job_they_made_room_for(site):
    store, truth = site
    assert truth.preempted
    states = {row["state"]: row["attempts"] for row in shown("status", store)["states"]}
    assert states["PREEMPTED"] == len(truth.preempted)
    assert states["OUT_OF_MEMORY"] == sum(
        count for (_, state), count in truth.user_failures.items() if state == "OUT_OF_MEMORY"
    )


def test_claimed_lemons_are_planted_ones(site):
    store, truth = site
    report = shown("lemons", store)
    claimed = {row["node"] for row in report["candidates"] if row["claimed"]}
    assert claimed
    assert claimed <= truth.lemons
    planted = Counter(one.node for one in truth.failures)
    for row in report["candidates"]:
        assert row["named"] == len(row["jobs"]) == planted[row["node"]]
        assert row["failures"] == pytest.approx(row["named"]), "each culprit is named here"


PARTS = {
    "partition": [Selection(partition=(name,)) for name in ("train", "research")],
    "account": [Selection(account=(f"team-{name}",)) for name in "abcdz"],
    "period": [
        Selection(until=ORIGIN + timedelta(days=14, hours=5)),
        Selection(since=ORIGIN + timedelta(days=14, hours=5)),
    ],
}


@pytest.fixture(scope="module")
def fleet(site) -> Iterator[ettr.Fleet]:
    with ettr.open(site[0]) as opened:
        yield opened


def adding_up(analysis: Analysis) -> dict[str, float]:
    """What the parts of a partition of the rows have to add up to."""
    causes, own, lost = analysis.causes, analysis.user_failures, analysis.goodput
    assert causes is not None
    return {
        "interruptions": causes.interruptions,
        "preemptions": causes.preemptions,
        **{one.cause: one.expected for one in causes.totals},
        **{f"likeliest {one.cause}": one.likeliest for one in causes.totals},
        "user failures": own.attempts,
        "on one node": own.one_node_attempts,
        "held": own.gpu_hours,
        "lost": lost.first_order_gpu_hours,
        "lost by preempted": lost.second_order_gpu_hours,
        "failures": analysis.node_records.failures or 0,
    }


@pytest.mark.parametrize("name", PARTS)
def test_causes_and_failures_of_users_add_up_over_any_selection(name: str, fleet: ettr.Fleet):
    whole = adding_up(fleet.analysis)
    parts = [adding_up(fleet.analysis.of(one)) for one in PARTS[name]]
    assert {key: sum(part[key] for part in parts) for key in whole} == pytest.approx(whole)


def test_a_selection_does_not_change_the_cause_of_an_interruption(site, fleet: ettr.Fleet):
    """The program that always fails is the user's, also where its account is looked at alone."""
    alone = fleet.analysis.of(PARTS["account"][-1]).causes
    assert alone is not None
    shares = {one.cause: one.share.estimate for one in alone.totals}
    assert shares["user_program"] > 0.9
    assert alone.interruptions == site[1].user_failures["user99", "FAILED"]


def test_without_a_failure_nothing_is_said_of_lemons(tmp_path: Path):
    write_site(tmp_path, SitePlan(nodes=40, days=5, failures_per_1000_node_days=0.001, lemons=1))
    done = run("ingest", tmp_path / "store", tmp_path / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    report = shown("lemons", tmp_path / "store")
    assert report["candidates"] == []
    for group in report["groups"]:
        assert group["failures"] == 0
        assert group["bulk_per_1000_node_days"] is None
    assert "No failure" in run("lemons", tmp_path / "store").out
