"""A fault that ends a job of several nodes may be blamed on another of its nodes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cluster_scenarios import fault, one_size, played, quiet, seconds, small
from ettr.errors import UsageError
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.faults import FaultClock, law_of
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, text_of
from ettr.sim.cluster.whatif import changed_scenario
from ettr.store import open_store

GANG_NODES = 4


def gangs(chance: float, days: float = 4.0, gpus: int = 8 * GANG_NODES) -> ClusterScenario:
    """Jobs of one size on 40 nodes whose faults stop nodes, crash jobs, or do neither at once."""
    return quiet(
        period={"days": days},
        jobs=one_size(gpus, 20_000.0, "exponential"),
        arrivals={"jobs_per_day": 1200.0 / gpus, "day_amplitude": 0.0, "weekend_factor": 1.0},
        faults=(
            fault("gpu-memory", 400.0, crash_chance=0.6),
            fault("infiniband", 400.0, node_down_chance=0.4, crash_chance=0.3),
            fault("system-services", 400.0, severity="low", crash_chance=0.5),
        ),
        checks={
            "false_high_per_node_day": 0.0,
            "false_low_per_node_day": 0.0,
            "wrong_node_chance": chance,
        },
    )


def ended_by_own_node(run: SimulatedCluster) -> dict[int, dict[str, object]]:
    """The faults that ended an attempt that ran on their node, by number."""
    truth = run.truth()
    faults = {row["fault"]: row for row in truth["faults"].to_pylist()}
    return {
        row["fault"]: faults[row["fault"]]
        for row in truth["attempts"].to_pylist()
        if row["fault"] is not None and row["node"] == faults[row["fault"]]["node"]
    }


def outages_of(tables: dict[str, pa.Table]) -> set[tuple[str, float]]:
    """Node and begin of each."""
    states = tables["node_states"]
    return set(zip(states["node"].to_pylist(), seconds(states["start"]), strict=True))


@pytest.mark.slow
def test_half_of_the_jobs_are_blamed_on_another_node():
    _, run = played(gangs(0.5, days=12.0), 3)
    ended = ended_by_own_node(run).values()
    n_wrong = sum(one["blamed"] is not None for one in ended)
    assert len(ended) > 150
    assert abs(n_wrong - len(ended) / 2) < 4 * math.sqrt(len(ended) / 4)
    assert {one["effect"] for one in ended if one["blamed"]} == {
        *("node down", "jobs crash", "jobs go on"),
    }


@pytest.mark.slow
def test_any_of_the_other_nodes_is_blamed_and_never_the_true_one():
    tables, run = played(gangs(1.0, days=12.0), 4)
    ended = ended_by_own_node(run)
    nodes = {
        row["attempt_id"]: row["node_list"].split(",")
        for row in tables["attempts"].to_pylist()
        if row["node_list"]
    }
    places = []
    for row in run.truth()["attempts"].to_pylist():
        one = ended.get(row["fault"])
        if one is None or row["node"] != one["node"]:
            continue
        others = [node for node in nodes[row["attempt_id"]] if node != one["node"]]
        assert len(others) == GANG_NODES - 1
        places.append(others.index(one["blamed"]))
    counts = np.bincount(places, minlength=GANG_NODES - 1)
    expected = counts.sum() / counts.size
    assert expected > 50
    assert ((counts - expected) ** 2 / expected).sum() < 18.4  # chi-squared, 2 degrees: 1 in 10,000


def test_the_blamed_node_is_checked_and_taken_out_and_the_true_one_is_not():
    tables, run = played(gangs(1.0), 5)
    origin = gangs(1.0).period.origin
    at = {
        row["fault"]: (row["found"] - origin).total_seconds()
        for row in run.truth()["faults"].to_pylist()
        if row["found"]
    }
    faults = {row["fault"]: row for row in run.truth()["faults"].to_pylist()}
    looked_at = {
        (one["blamed"] or one["node"], origin.timestamp() + at[number])
        for number, one in faults.items()
        if number in at
    }
    began = outages_of(tables)
    assert len(began) > 30
    assert began <= looked_at
    checks = {
        (row["node"], row["time"])
        for row in tables["events"].to_pylist()
        if row["check"] != "xid" and row["code"] not in ("NODE_RESUMED", "NODE_FAIL")
    }
    wrong = [one for one in faults.values() if one["blamed"] and one["found"]]
    assert len(wrong) > 20
    for one in wrong:
        assert (one["blamed"], one["found"]) in checks
        assert (one["node"], one["found"]) not in checks


def test_a_job_that_the_taking_down_ends_is_ended_by_the_true_node():
    """Its attempt says so, and the controller names the node that it took down."""
    tables, run = played(gangs(1.0), 6)
    faults = {row["fault"]: row for row in run.truth()["faults"].to_pylist()}
    requeued = {
        (row["job_id"], row["time"]): row["node"]
        for row in tables["events"].to_pylist()
        if row["code"] == "NODE_FAIL"
    }
    attempts = {row["attempt_id"]: row for row in tables["attempts"].to_pylist()}
    seen = 0
    for row in run.truth()["attempts"].to_pylist():
        if row["end"] != "NODE_FAIL":
            continue
        attempt, one = attempts[row["attempt_id"]], faults[row["fault"]]
        named = requeued[attempt["job_id"], attempt["end"]]
        assert named == (one["blamed"] or one["node"])
        on_node = attempt["node_list"].split(",")
        if one["effect"] == "jobs crash":
            assert row["node"] == named
        else:
            assert row["node"] == one["node"]
            assert {named, row["node"]} <= set(on_node)
            seen += 1
    assert seen > 10


def test_jobs_of_one_node_are_never_blamed_on_another():
    _, run = played(gangs(1.0, gpus=8), 7)
    faults = run.truth()["faults"].to_pylist()
    assert sum(row["attempts_ended"] for row in faults) > 50
    assert {row["blamed"] for row in faults} == {None}


def test_false_alarms_blame_the_node_on_which_they_come():
    scenario = gangs(1.0)
    checks = replace(scenario.checks, false_high_per_node_day=0.3)
    _, run = played(replace(scenario, checks=checks), 8)
    alarms = [row for row in run.truth()["faults"].to_pylist() if row["is_false_alarm"]]
    assert sum(row["attempts_ended"] for row in alarms) > 5
    assert {row["blamed"] for row in alarms} == {None}


def test_a_fault_that_no_log_shows_blames_nobody():
    scenario = gangs(1.0)
    unseen = tuple(replace(one, seen_chance=0.0, node_down_chance=0.0) for one in scenario.faults)
    _, run = played(replace(scenario, faults=unseen), 8)
    faults = run.truth()["faults"].to_pylist()
    assert sum(row["attempts_ended"] for row in faults) > 30
    assert {(row["blamed"], row["found"]) for row in faults} == {(None, None)}


@pytest.mark.parametrize("chance", [0.5, 1.0])
def test_every_hour_is_in_one_place_and_a_silent_node_answers_again(chance: float):
    scenario = gangs(chance)
    scenario = replace(
        scenario, faults=(fault("infiniband", 1500.0, node_down_chance=1.0, crash_chance=0.0),)
    )
    tables, run = played(scenario, 9)
    hours = run.truth()["hours"].to_pylist()
    node_hours = {row["what"]: row["node_hours"] for row in hours if row["node_hours"] is not None}
    gpu_hours = {row["what"]: row["gpu_hours"] for row in hours if row["gpu_hours"] is not None}
    total = 24 * scenario.period.days * scenario.machines.nodes
    assert sum(node_hours.values()) == pytest.approx(total, rel=1e-12)
    assert sum(gpu_hours.values()) == pytest.approx(8 * total, rel=1e-12)
    assert min(*node_hours.values(), *gpu_hours.values()) >= 0
    end = scenario.period.origin.timestamp() + scenario.period.end_s
    states = tables["node_states"]
    pairs = zip(seconds(states["start"]), seconds(states["end"]), strict=True)
    out_s = sum(min(until, end) - start for start, until in pairs)
    closed = node_hours["node draining"] + node_hours["node out of service"]
    faults = run.truth()["faults"].to_pylist()
    assert sum(row["blamed"] is not None for row in faults) > 15
    silent_s = scenario.checks.heartbeat_s * len(faults)
    assert out_s / 3600 <= closed + 1e-9
    assert closed <= (out_s + silent_s) / 3600 + 1e-9


def test_the_same_seed_gives_the_same_tables_and_another_does_not():
    (one, first), (same, again), (other, _) = (
        played(gangs(0.5, days=1.0), seed) for seed in (3, 3, 4)
    )
    assert one == same
    assert first.truth() == again.truth()
    assert one["attempts"] != other["attempts"]


@pytest.mark.parametrize(("law", "form"), [("weibull", 0.7), ("weibull", 2.0), ("lognormal", 1.2)])
def test_a_node_that_nobody_repairs_keeps_its_age(law: str, form: float):
    """Its next fault is that of one whose repairs never make it new, on the same numbers."""
    process = fault("gpu-memory", 200.0, law=law, form=form, as_new_share=1.0)
    never_new = replace(process, as_new_share=0.0)
    clocks = [FaultClock(one, 8, 3, frozenset(), 1.0) for one in (process, never_new, process)]
    due_s = clocks[0].due_s(5)
    for clock in clocks:
        clock.strike(5, due_s)
    clocks[0].not_repaired(5, due_s, due_s)
    assert clocks[0].due_s(5) == clocks[1].due_s(5)
    assert clocks[0].due_s(5) != clocks[2].due_s(5)
    # and so on: the age holds beyond the next fault
    for clock in clocks[:2]:
        clock.strike(5, clock.due_s(5))
    assert law_of(process) is not None
    unrelated = clocks[0].due_s(4)
    clocks[0].not_repaired(4, due_s, due_s)
    assert clocks[0].due_s(4) == unrelated


def test_the_next_fault_of_a_node_that_nobody_repairs_lies_after_the_blame():
    """An age near the law's wear-out could put it between the fault and the check."""
    process = fault("gpu-memory", 1e6, law="weibull", form=4.0)
    clock = FaultClock(process, 8, 3, frozenset(), 1.0)
    due_s = clock.due_s(2)
    clock.strike(2, due_s)
    clock.not_repaired(2, due_s, due_s + 300)
    assert clock.due_s(2) > due_s + 300


@pytest.mark.slow
@pytest.mark.parametrize(("crash_chance", "form"), [(1.0, 0.7), (0.0, 2.0)])
def test_every_true_node_goes_on_from_its_age(
    crash_chance: float, form: float, monkeypatch: pytest.MonkeyPatch
):
    """As many clocks are set back as faults are blamed wrongly, and the next faults follow them."""
    scenario = gangs(1.0)
    process = fault("gpu-memory", 2500.0, law="weibull", form=form, crash_chance=crash_chance)
    scenario = replace(scenario, faults=(process,))
    due_s: dict[tuple[int, int], int] = {}
    original = FaultClock.not_repaired

    def spied(clock: FaultClock, node: int, struck_s: int, now_s: int) -> None:
        original(clock, node, struck_s, now_s)
        due_s[node, struck_s] = clock.due_s(node)

    monkeypatch.setattr(FaultClock, "not_repaired", spied)
    tables, run = played(scenario, 10)
    origin = scenario.period.origin.timestamp()
    faults = run.truth()["faults"]
    times = [round(time - origin) for time in seconds(faults["time"])]
    nodes = [run.log.names.index(node) for node in faults["node"].to_pylist()]
    blamed = faults["blamed"].to_pylist()
    wrong = [one for one, name in zip(zip(nodes, times, strict=True), blamed, strict=True) if name]
    assert len(wrong) > 100
    assert due_s.keys() == set(wrong)
    states = tables["node_states"]
    out = [
        (run.log.names.index(name), start - origin, end - origin)
        for name, start, end in zip(
            states["node"].to_pylist(),
            *(seconds(states["start"]), seconds(states["end"])),
            strict=True,
        )
    ]
    came = set(zip(nodes, times, strict=True))
    expected = {
        (node, due)
        for (node, struck_s), due in due_s.items()
        if due < scenario.period.end_s
        # its clock stands still as it is repaired
        and not any(on == node and from_s <= due and to_s > struck_s for on, from_s, to_s in out)
    }
    assert len(expected) > 30
    assert expected <= came


@pytest.mark.parametrize("chance", [0.0, 0.5])
def test_the_store_says_whether_wrong_blame_is_simulated(chance: float, tmp_path: Path):
    scenario = small(period={"days": 0.05}, checks={"wrong_node_chance": chance})
    store = open_store(str(tmp_path / "store"), create=True)
    simulate_into(store, scenario, 1, text_of(scenario), "small", tmp_path / "truth")
    (notes,) = store.rows("files")["notes"].to_pylist()
    assert ("blame on the wrong node" in notes) == (chance == 0.0)
    assert "users who react to failures" in notes


def test_a_scenario_with_the_chance_is_written_changed_and_checked():
    scenario = small(checks={"wrong_node_chance": 0.25})
    assert scenario_of(text_of(scenario)).checks.wrong_node_chance == 0.25
    assert "wrong_node_chance" not in text_of(small())
    changed = changed_scenario(small(), "checks.wrong_node_chance=0.5")
    assert changed.checks.wrong_node_chance == 0.5
    for value in (1.5, -0.1):
        with pytest.raises(UsageError, match=rf"checks.wrong_node_chance: {value}; give a"):
            small(checks={"wrong_node_chance": value})
