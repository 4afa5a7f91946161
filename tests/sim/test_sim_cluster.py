"""A simulated cluster: nothing is lost or held twice, and queues behave as theory says."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from cluster_scenarios import fault, one_size, played, quiet, seconds, small
from ettr.errors import UsageError
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.faults import NodeDraws, burst_hits
from ettr.sim.cluster.scenario import EVIDENCE, ClusterScenario
from ettr.sim.cluster.scenario_parts import BurstProcess, Priority
from ettr.taxonomy import load_taxonomy

pytestmark = pytest.mark.slow

STORMY = (
    fault("gpu-memory", 200.0, law="weibull", form=0.7, as_new_share=0.5),
    fault("node-hardware", 100.0, node_down_chance=0.9, crash_chance=0.0, seen_chance=0.4),
    fault("filesystem", 100.0, law="lognormal"),
    fault("system-services", 200.0, severity="low", crash_chance=0.0),
)
BURST = (BurstProcess("filesystem", "pod", 400.0, 0.8, 60.0),)


def stormy(write_s: int = 0) -> ClusterScenario:
    """A week of a cluster in which everything happens."""
    return small(
        faults=STORMY,
        bursts=BURST,
        checks={"false_high_per_node_day": 0.05},
        checkpoints={"write_s": write_s},
    )


WRITES_S = (0, 300, 0, 300)
"""Of a checkpoint, by seed."""


@cache
def stormy_week(seed: int) -> tuple[dict[str, pa.Table], SimulatedCluster]:
    """What that week logs, and its run: played once for all who look at it."""
    return played(stormy(WRITES_S[seed]), seed)


def held_by_node(allocations: pa.Table) -> dict[str, list[tuple[float, float, float, str]]]:
    """Of each node: start, end, GPUs and attempt of what it ran."""
    held = defaultdict(list)
    columns = (
        allocations["node"].to_pylist(),
        seconds(allocations["start"]),
        seconds(allocations["end"]),
        allocations["n_gpus"].to_pylist(),
        allocations["attempt_id"].to_pylist(),
    )
    for node, start, end, gpus, attempt in zip(*columns, strict=True):
        held[node].append((start, end, gpus, attempt))
    return held


def hours_of(run: SimulatedCluster, unit: str) -> dict[str, float]:
    """The hours of that unit by what they are."""
    rows = run.truth()["hours"].to_pylist()
    return {row["what"]: row[unit] for row in rows if row[unit] is not None}


@pytest.mark.parametrize("seed", range(4))
def test_every_gpu_hour_is_in_one_place(seed: int):
    scenario, write_s = stormy(), WRITES_S[seed]
    tables, run = stormy_week(seed)
    hours = hours_of(run, "gpu_hours")
    all_gpu_hours = 24 * scenario.period.days * scenario.machines.nodes * 8
    assert sum(hours.values()) == pytest.approx(all_gpu_hours, rel=1e-12)
    allocations = tables["allocations"]
    held = np.dot(allocations["elapsed_s"].to_numpy(), allocations["n_gpus"].to_numpy()) / 3600
    assert hours["held by jobs"] == pytest.approx(held, rel=1e-12)
    truth = run.truth()["attempts"].to_pydict()
    names = ["saved_s", "lost_s", "restart_s", *(["write_s"] if write_s else [])]
    assert [name for name in truth if name.endswith("_s")] == names
    parts = zip(*(truth[name] for name in names), truth["gpus"], strict=True)
    split = sum(sum(lengths) * gpus for *lengths, gpus in parts)
    assert split / 3600 == pytest.approx(held, rel=1e-12)
    assert min(min(truth[name]) for name in names) >= 0
    assert not write_s or sum(truth["write_s"]) > 0


@pytest.mark.parametrize("seed", range(4))
def test_every_node_hour_is_in_one_place(seed: int):
    scenario = stormy()
    tables, run = stormy_week(seed)
    hours = hours_of(run, "node_hours")
    nodes = scenario.machines.nodes
    assert sum(hours.values()) == pytest.approx(24 * scenario.period.days * nodes, rel=1e-12)
    end = scenario.period.origin.timestamp() + scenario.period.end_s
    states = tables["node_states"]
    starts, ends = seconds(states["start"]), seconds(states["end"])
    out_s = sum(min(until, end) - start for start, until in zip(starts, ends, strict=True))
    closed = hours["node draining"] + hours["node out of service"]
    # a node that has stopped takes no jobs for as long as nobody has noticed
    silent_s = scenario.checks.heartbeat_s * run.truth()["faults"]["effect"].to_pylist().count(
        "node down"
    )
    assert out_s / 3600 <= closed + 1e-9
    assert closed <= (out_s + silent_s) / 3600 + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_no_node_is_held_beyond_its_gpus_or_while_it_is_down(seed: int):
    tables, _ = stormy_week(seed)
    down = defaultdict(list)
    states = tables["node_states"]
    columns = (states["node"].to_pylist(), seconds(states["start"]), seconds(states["end"]))
    for node, start, end, state in zip(*columns, states["state"].to_pylist(), strict=True):
        if state == "DOWN":
            down[node].append((start, end))
    assert down
    for node, runs in held_by_node(tables["allocations"]).items():
        changes = [(start, gpus) for start, _, gpus, _ in runs]
        changes += [(end, -gpus) for _, end, gpus, _ in runs]
        level = 0.0
        for _, change in sorted(changes):  # ends come before starts of the same second
            level += change
            assert -1e-9 <= level <= 8
        for start, end, _, attempt in runs:
            for from_s, to_s in down[node]:
                assert end <= from_s or start >= to_s, (node, attempt)


def test_gangs_run_on_all_of_their_nodes_or_not_at_all():
    tables, _ = stormy_week(1)
    per_attempt = defaultdict(list)
    for node, runs in held_by_node(tables["allocations"]).items():
        for start, end, gpus, attempt in runs:
            per_attempt[attempt].append((node, start, end, gpus))
    attempts = tables["attempts"].to_pylist()
    assert max(row["n_gpus"] for row in attempts) > 8
    for row in attempts:
        rows = per_attempt[row["attempt_id"]]
        assert len(rows) == row["n_nodes"] == len({node for node, *_ in rows})
        assert sum(gpus for *_, gpus in rows) == row["n_gpus"]
        assert len({(start, end) for _, start, end, _ in rows}) <= 1
        if row["start"] is not None:
            assert row["n_gpus"] == row["requested_gpus"]


def erlang_c(servers: int, load: float) -> float:
    """Chance that a customer waits in M/M/c, from Erlang B by its recursion."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1.0 - load / servers * (1.0 - blocked))


def test_waits_of_single_gpus_are_those_of_m_m_c():
    """20 servers at load 16; 90 days, 34,560 jobs; the error is that of means over days."""
    servers, mean_s, per_day = 20, 3600.0, 384.0
    scenario = quiet(
        period={"days": 90.0},
        machines={"nodes": servers, "gpus_per_node": 1},
        jobs=one_size(1, mean_s, "exponential"),
        arrivals={"jobs_per_day": per_day, "day_amplitude": 0.0, "weekend_factor": 1.0},
        scheduling={"pass_interval_s": 0, "preemption": "none", "waiting": "in-order"},
        checkpoints={"restart_s": 0},
    )
    tables, _ = played(scenario, 5)
    started = tables["attempts"].filter(pa.compute.is_valid(tables["attempts"]["start"]))
    submit = np.array(seconds(started["submit"]))
    waits = np.array(seconds(started["start"])) - submit
    load = per_day * mean_s / 86400
    chance = erlang_c(servers, load)
    mean_wait_s = chance * mean_s / (servers - load)
    days = ((submit - submit.min()) // 86400).astype(int)
    for values, expected in (((waits > 0).astype(float), chance), (waits, mean_wait_s)):
        # days follow each other closely enough to make blocks of five
        means = np.array([values[days // 5 == block].mean() for block in range(1, 18)])
        error = means.std(ddof=1) / math.sqrt(means.size)
        assert means.mean() == pytest.approx(expected, abs=3.5 * error)
        assert error < 0.2 * expected


def test_requeue_storms_end():
    """Every attempt is ended by its node within minutes, and still every job comes to an end."""
    scenario = small(
        faults=(fault("node-hardware", 300_000.0, node_down_chance=1.0, crash_chance=0.0),),
        bursts=(),
        period={"days": 2.0},
        scheduling={"most_requeues": 5},
        arrivals={"jobs_per_day": 40.0},
        outcomes={"impatient_share": 0.0},
    )
    tables, run = played(scenario)
    attempts = tables["attempts"].to_pylist()
    assert max(row["restarts"] for row in attempts) == 5
    assert sum(row["state"] == "NODE_FAIL" for row in attempts) > 100
    assert run.tally.events < 200_000
    last = {row["job_id"]: row for row in attempts}
    given_up = [row for row in last.values() if row["state"] == "NODE_FAIL"]
    assert given_up
    assert {row["restarts"] for row in given_up} == {5}


def test_the_same_seed_gives_the_same_tables_and_another_does_not():
    again, _ = played(stormy(), 2)
    assert again == stormy_week(2)[0]
    assert again["attempts"] != stormy_week(0)[0]["attempts"]


def test_what_one_node_draws_moves_no_other():
    alone, among = NodeDraws(1, "lives", 8), NodeDraws(1, "lives", 8)
    for _ in range(100):
        among.uniform(2)
    assert [alone.uniform(5) for _ in range(40)] == [among.uniform(5) for _ in range(40)]


def test_two_kinds_of_bursts_of_one_symptom_come_at_times_of_their_own():
    pair = (BurstProcess("filesystem", "pod", 400.0, 0.8, 60.0),) * 2
    hits = burst_hits(small(faults=STORMY, bursts=pair), 1)
    first, second = ({h.time_s for h in hits if h.burst.startswith(n)} for n in "12")
    assert len(first) > 50
    assert len(first & second) < 0.1 * len(first)


def test_each_gpu_of_a_node_of_16_has_an_address_of_its_own():
    scenario = small(
        machines={"gpus_per_node": 16, "nodes": 4},
        jobs=one_size(16, 3600.0),
        faults=(fault("gpu-memory", 50_000.0),),
        bursts=(),
    )
    kernel = [row for row in played(scenario)[0]["events"].to_pylist() if row["check"] == "xid"]
    assert len({row["entity"] for row in kernel}) == 16


def test_preemption_spares_jobs_younger_than_the_limit_and_of_the_same_level():
    scenario = small()
    tables, _ = played(scenario)
    preempted = [row for row in tables["attempts"].to_pylist() if row["state"] == "PREEMPTED"]
    assert len(preempted) > 10
    assert all(row["elapsed_s"] >= scenario.scheduling.preempt_after_s for row in preempted)
    level = {row["job_id"]: row["priority"] for row in tables["attempts"].to_pylist()}
    lines = [row for row in tables["events"].to_pylist() if row["code"] == "PREEMPTED"]
    assert len(lines) == len(preempted)
    assert all(level[row["job_id"]] < level[row["related_job_id"]] for row in lines)


def test_no_attempt_outlives_its_limit_or_seven_days():
    tables, _ = stormy_week(1)
    for row in tables["attempts"].to_pylist():
        if row["elapsed_s"] is not None and row["state"] != "NODE_FAIL":
            assert row["elapsed_s"] <= row["time_limit_s"] <= 604800


@pytest.mark.parametrize("symptom", EVIDENCE)
def test_the_taxonomy_reads_the_evidence_as_the_symptom_that_it_is_of(symptom: str):
    trace, taxonomy = EVIDENCE[symptom], load_taxonomy()
    verdict = taxonomy.classify(trace.check, trace.code, "critical")
    assert verdict is not None
    assert verdict.symptom == symptom
    if trace.xid:
        kernel = taxonomy.classify("xid", trace.xid, "unknown")
        assert kernel is not None
        assert (kernel.symptom, kernel.is_node_fault) == (symptom, True)


def test_shares_that_sum_to_1_but_for_rounding_are_1():
    """0.2 + 0.4 + 0.3 + 0.1 is 1.0000000000000002 in floats."""
    outcomes = {"failed_share": 0.2, "cancelled_share": 0.4}
    outcomes |= {"out_of_memory_share": 0.3, "timeout_share": 0.1}
    assert sum(outcomes.values()) > 1
    run = SimulatedCluster(small(outcomes=outcomes, period={"days": 0.2}), 1, "test")
    assert list(run.play())
    with pytest.raises(UsageError, match="sum to more than 1"):
        small(outcomes=outcomes | {"timeout_share": 0.11})


def test_a_wrong_number_of_nodes_is_no_reproach_to_the_jobs():
    for nodes in (-(10**300), 0, 10**300):
        with pytest.raises(UsageError) as raised:
            small(machines={"nodes": nodes})
        said = str(raised.value)
        assert "machines.nodes" in said
        assert "jobs.gpus" not in said
        assert max(map(len, said.splitlines())) < 100


def test_what_cannot_be_is_said_all_at_once():
    scenario = small()
    with pytest.raises(UsageError) as raised:
        replace(
            scenario,
            jobs=(replace(scenario.jobs[0], gpus=12), *scenario.jobs[1:]),
            faults=(fault("rust", 1.0),),
            lemons=replace(scenario.lemons, share=1.5),
        )
    for words in ("jobs.gpus: 12", "'rust'", "lemons.share: 1.5"):
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("part", "values", "says"),
    [
        ("period", {"days": 0.0}, "period.days"),
        ("period", {"days": 1e-9}, "period.days"),
        ("period", {"start": "9999-12-31"}, "the year 9999"),
        ("period", {"start": "2026-01-05T07:13:00+02:00"}, "is not a day"),
        ("scheduling", {"longest_job_s": 10**19}, "scheduling.longest_job_s"),
        ("checks", {"interval_s": 10**30}, "checks.interval_s"),
        ("checks", {"false_high_per_node_day": 1e308}, "false_high_per_node_day"),
        ("outcomes", {"mean_patience_s": 1e308}, "outcomes.mean_patience_s"),
        ("outcomes", {"longest_limit_factor": 1e308}, "longest_limit_factor"),
        ("users", {"users": 10**9}, "users.users"),
        ("arrivals", {"weekend_factor": 1e308}, "weekend_factor"),
        ("lemons", {"factor": 1e308}, "lemons.factor"),
        ("machines", {"gpu_type": ""}, "machines.gpu_type"),
        ("machines", {"gpus_per_node": 0}, "machines.gpus_per_node"),
        ("jobs", one_size(8, 1e18), r"jobs\.8\.mean_s: over 1e\+15;"),
        ("jobs", (replace(one_size(8, 100.0)[0], sigma=30.0),), r"jobs\.8\.sigma: 30\.0;"),
        ("machines", {"nodes": 10**300}, r"machines\.nodes: over 1e\+15; give 1 to 100,000"),
        ("faults", (fault("nvlink", 1e308),), r"faults\.nvlink\.per_1000_node_days"),
        ("faults", (fault("nvlink", 1.0, from_day=5.0, to_day=1.0),), "from_day"),
        (
            "bursts",
            (BurstProcess("filesystem", "pod", 1e7, 0.8, 60.0),),
            r"bursts\.filesystem\.per_year",
        ),
        ("priorities", (Priority("a", 1, 0.5, 0.5), Priority("a", 2, 0.5, 0.5)), "of its own"),
        (
            "priorities",
            (Priority("a", -(10**30), 1.0, 1.0),),
            r"priorities\.a\.level: under -1e\+15;",
        ),
        ("jobs", (replace(one_size(8, 100.0)[0], gpus=-(10**400)),), r"jobs\.gpus: under -1e\+15"),
    ],
)
def test_a_value_too_large_or_of_no_use_is_refused_before_anything_runs(part, values, says):
    with pytest.raises(UsageError, match=says):
        small(**{part: values})
