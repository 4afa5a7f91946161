"""Bad links: the closed form against the flow model, published directions, the command."""

from __future__ import annotations

import random
from dataclasses import asdict, replace

import pytest
from scipy.optimize import linprog

from cli.program import ettr
from cluster_scenarios import fault, one_size, played, quiet
from ettr.errors import UsageError
from ettr.plan.network import (
    CONTENTION,
    GOODPUT,
    LinkFaults,
    Routing,
    crossing_chance,
    max_min,
    network_plan,
    step_factor,
)
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_parts import JobClass, Links
from ettr.sim.cluster.unread import is_simulated_alike
from flow_model import Collective, Fabric, contention, flows_of

FABRIC = Fabric(64)
DRAWS = 200


def job_bandwidths(
    fabric: Fabric,
    jobs: list[list[int]],
    bad: frozenset[int],
    routing: Routing,
    rng: random.Random,
    *,
    goodput: float = GOODPUT,
    collective: Collective = Collective.RING,
) -> list[float]:
    """The bandwidth of each job's collective, as a share of a network card's."""
    owners, rates = flows_of(fabric, jobs, bad, routing, rng, goodput, collective)
    found = [1.0] * (max(owners, default=-1) + 1)
    for job, rate in zip(owners, rates, strict=True):
        found[job] = min(found[job], rate)
    return found


def drawn(bad: int, routing: Routing, seed: int, collective: Collective = Collective.RING, **also):
    rng = random.Random(seed)
    found = []
    for _ in range(DRAWS):
        links = frozenset(rng.sample(range(FABRIC.links), bad))
        jobs = [range(FABRIC.n_nodes)]
        found += job_bandwidths(FABRIC, jobs, links, routing, rng, collective=collective, **also)
    return found


@pytest.mark.parametrize("bad", [1, 4, 16, 64])
def test_the_closed_form_is_the_flow_model(bad: int) -> None:
    assert FABRIC.links == 640
    shares = drawn(bad, Routing.STATIC, bad)
    mean = sum(shares) / DRAWS
    error = (sum((one - mean) ** 2 for one in shares) / DRAWS / DRAWS) ** 0.5
    found = network_plan(LinkFaults(bad, 640), 64, 8)
    assert found.bandwidth_share == pytest.approx(mean, abs=max(3.5 * error, 0.004))
    assert found.crossings == 64


def test_the_direction_of_the_paper() -> None:
    """Without resilience 50 to 75 % of the bandwidth goes; adaptive keeps it and varies less."""
    static = network_plan(LinkFaults(16, 640), 64, 8).bandwidth_share
    assert 0.25 <= static <= 0.5
    assert set(drawn(16, Routing.ADAPTIVE, 1)) == {1.0}
    assert set(drawn(16, Routing.REMOVAL, 1)) == {1.0}
    crowded = {one.routing: one for one in CONTENTION}
    for one in CONTENTION:
        for name, value in asdict(contention(one.routing)).items():
            assert getattr(one, name) == pytest.approx(value)
    assert crowded[Routing.ADAPTIVE].mean_share > 1.5 * crowded[Routing.STATIC].mean_share
    assert crowded[Routing.ADAPTIVE].low_share == pytest.approx(1.0)
    # measured apart: of the flows .55 on average, .25 for 5 %; a job is its slowest of 16
    static_crowd = crowded[Routing.STATIC]
    assert static_crowd.flow_share == pytest.approx(0.55, abs=0.05)
    assert static_crowd.mean_share < static_crowd.flow_share


def test_trees_cross_as_often_as_the_flow_model_says() -> None:
    shares = drawn(8, Routing.STATIC, 5, Collective.TREE, goodput=1e-6)
    hit = sum(one < 1e-3 for one in shares) / DRAWS
    found = network_plan(LinkFaults(8, 640), 64, 8).tree_crossing_chance
    assert found == pytest.approx(hit, abs=0.09)


def test_max_min_is_that_of_linear_programs() -> None:
    """Raise the least rate by a linear program, fix the flows that cannot rise, and again."""
    rng = random.Random(2)
    for _ in range(5):
        capacity = {link: rng.uniform(0.2, 2.0) for link in range(5)}
        paths = [tuple(rng.sample(range(5), rng.randint(1, 3))) for _ in range(6)]
        fixed: dict[int, float] = {}
        while len(fixed) < len(paths):
            rows = [[float(link in path) for path in paths] + [0.0] for link in capacity]
            least = [
                [-float(at == flow) for at in range(len(paths))] + [1.0]
                for flow in range(len(paths))
                if flow not in fixed
            ]
            bounds = [(fixed.get(flow, 0.0), fixed.get(flow, 1.0)) for flow in range(len(paths))]
            given = {"A_ub": rows + least, "b_ub": [*capacity.values()] + [0.0] * len(least)}
            level = linprog([0.0] * len(paths) + [-1.0], bounds=[*bounds, (0, 1)], **given).x[-1]
            for flow in [one for one in range(len(paths)) if one not in fixed]:
                most = [0.0] * (len(paths) + 1)
                most[flow] = -1.0
                held = [
                    (fixed.get(at, level - 1e-9), fixed.get(at, 1.0)) for at in range(len(paths))
                ]
                more = linprog(most, A_ub=rows, b_ub=[*capacity.values()], bounds=[*held, (0, 1)])
                if more.x[flow] < level + 1e-6:
                    fixed[flow] = level
        found = max_min(paths, capacity)
        assert found == pytest.approx([fixed[flow] for flow in range(len(paths))], abs=1e-6)


def test_borders_and_wrong_values() -> None:
    assert crossing_chance(0, 640, 32) == 0.0
    assert crossing_chance(640, 640, 32) == pytest.approx(1.0)
    # within a pod no uplink is used
    assert network_plan(LinkFaults(64, 640), 16, 8).step_factor == 1.0
    with pytest.raises(UsageError, match="cross 64 uplinks"):
        network_plan(LinkFaults(1, 60), 64, 8)
    with pytest.raises(UsageError, match="link-goodput"):
        LinkFaults(1, 640, goodput=0.0)


def test_the_command_says_what_a_run_loses_and_that_it_is_no_evidence() -> None:
    run = ("plan", "--nodes", "64", "--failures-per-1000-node-days", "6.5")
    found = ettr(*run, "--bad-links", "4/640", "--json").json["answers"]["network"]
    assert found["bandwidth_share"] == pytest.approx(0.747, abs=0.001)
    adaptive = ettr(*run, "--bad-links", "4/640", "--routing", "adaptive", "--detail").out
    assert "not evidence" in adaptive
    assert "adaptive (asked)" in adaptive
    for words in (("--routing", "static"), ("--bad-links", "4of640"), ("--bad-links", "9/4")):
        assert ettr(*run, *words).code == 2


def factor_of(scenario: ClusterScenario) -> float:
    _, run = played(scenario)
    attempts = run.truth()["attempts"]
    done, held = (
        sum(sum(attempts[name].to_pylist()) for name in names)
        for names in (("saved_s", "lost_s"), ("network_s",))
    )
    return (done + held) / done


def with_bad_links(bad: int, routing: str, days: float) -> ClusterScenario:
    """One run on 64 of 80 nodes in four pods, struck every 40 min and hashed again after each."""
    return quiet(
        machines={"nodes": 80, "nodes_per_rack": 4, "racks_per_pod": 5},
        period={"days": days},
        jobs=(JobClass(512, 1.0, 1e8, 0.0, series="run"),),
        arrivals={"jobs_per_day": 50.0 / days, "day_amplitude": 0.0, "weekend_factor": 1.0},
        scheduling={"longest_job_s": 10**9, "most_requeues": 10**6, "requeue_delay_s": 0},
        checkpoints={"restart_s": 0},
        checks={"interval_s": 30, "false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
        faults=(fault("pcie", 560.0, crash_chance=0.0, repair_mean_s=60.0, repair_sigma=0.0),),
        links=Links(20, bad, routing, 0.25, 0.3),
    )


def test_a_simulated_cluster_runs_as_slow_as_the_plan_says() -> None:
    for bad, days in ((4, 12.0), (16, 12.0)):
        plan = network_plan(LinkFaults(bad, 640), 64, 8)
        found = factor_of(with_bad_links(bad, "static", days))
        assert found == pytest.approx(plan.step_factor, rel=0.02)
    assert factor_of(with_bad_links(16, "adaptive", 1.0)) == 1.0
    with pytest.raises(UsageError, match="the pods have 640 uplinks"):
        factor_of(with_bad_links(641, "static", 1.0))


@pytest.mark.parametrize(
    ("uplinks", "bad", "routing"), [(4, 0, "static"), (2, 40, "static"), (1, 0, "adaptive")]
)
def test_simulated_jobs_that_share_links_run_as_slow_as_the_flow_model_says(
    uplinks: int, bad: int, routing: str
) -> None:
    """Eight jobs of 5 nodes fill pods of 4: each runs through two, and shares them with others."""
    jobs = [range(5 * at, 5 * at + 5) for at in range(8)]
    fabric = Fabric(40, rails=2, pod_nodes=4, uplinks=uplinks)
    rng, links = random.Random(1), frozenset(range(bad))
    shares = [
        share
        for _ in range(500)
        for share in job_bandwidths(fabric, jobs, links, Routing(routing), rng)
    ]
    expected = sum(step_factor(share, 0.3) for share in shares) / len(shares)
    assert expected > 1.1
    scenario = quiet(
        machines={"nodes": 40, "nodes_per_rack": 2, "racks_per_pod": 2, "gpus_per_node": 2},
        period={"days": 7.0},
        jobs=one_size(10, 7200.0, "exponential"),
        arrivals={"jobs_per_day": 110.0, "day_amplitude": 0.0, "weekend_factor": 1.0},
        links=Links(uplinks, bad, routing, 0.25, 0.3),
    )
    assert factor_of(scenario) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("links", "unread"),
    [
        (Links(4, 0, "static", 0.25, 0.3), {"goodput_share": 0.5}),
        (Links(4, 9, "removal", 0.25, 0.3), {"goodput_share": 0.5}),
        (Links(9, 2, "adaptive", 0.25, 0.3), {"bad": 3, "exposed_share": 0.9, "uplinks": 8}),
    ],
)
def test_values_of_links_that_nothing_reads_change_no_run(
    links: Links, unread: dict[str, float]
) -> None:
    scenario = quiet(
        machines={"nodes": 40, "nodes_per_rack": 2, "racks_per_pod": 2, "gpus_per_node": 2},
        period={"days": 1.0},
        jobs=one_size(10, 7200.0),
        arrivals={"jobs_per_day": 110.0},
        links=links,
    )
    for name, value in unread.items():
        changed = replace(scenario, links=replace(links, **{name: value}))
        assert is_simulated_alike(scenario, changed)
        assert factor_of(changed) == factor_of(scenario)
    for name, value in {"exposed_share": 0.9, "routing": "static"}.items():
        if name not in unread and getattr(links, name) != value:
            changed = replace(scenario, links=replace(links, **{name: value}))
            assert not is_simulated_alike(scenario, changed)
