"""One run simulated: against renewal theory, the exact forms of the planner, and Erlang's loss."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ettr.analysis.fleet_evidence import typed_evidence
from ettr.analysis.projecting import project_fleet
from ettr.errors import UsageError
from ettr.models.data import LifeLaw, NodeRepair
from ettr.models.registry import law_of_age, model_of_key
from ettr.plan.levels import levels_ettr
from ettr.plan.renewal import exact_ettr, expected_wallclock_s, time_shares
from ettr.plan.run import PlannedRun, RunShape
from ettr.plan.schemes import SCHEMES, Domain, JobShape, terms_for
from ettr.plan.schemes.base import levels_of
from ettr.plan.wallclock import standstill_share, wallclock
from ettr.sim import engine
from ettr.sim.one_run import (
    Bursts,
    Precision,
    RepairTime,
    RunOutcome,
    RunScenario,
    Watch,
    plain_run,
    simulate_run,
)
from ettr.units import SECONDS_PER_DAY

DAY_S = float(SECONDS_PER_DAY)
EXACT = Precision(ettr_error=0.0, most_replicas=128)


def exponential(per_node_day: float) -> LifeLaw:
    return model_of_key("constant").law_of({"rate": per_node_day})


def within(outcome: RunOutcome, expected: float, errors: float = 4.0) -> bool:
    return abs(outcome.ettr - expected) <= errors * outcome.ettr_error


RUN = PlannedRun(
    n_nodes=64,
    failures_per_node_day=0.05,
    interval_s=1200.0,
    write_s=60.0,
    restart_s=300.0,
    queue_s=120.0,
)

# failures of 256 servers of mean life 100 days in 60 days: good as new, minimal repair
S3 = {
    ("weibull", 0.5): (375.7, 280.4),
    ("weibull", 2.0): (66.2, 72.4),
    ("lognormal", 1.0): (158.4, 175.2),
}
COUNTED = replace(RUN, n_nodes=256, write_s=0.0, restart_s=0.0, queue_s=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("law", S3)
def test_failures_of_a_fleet_under_each_repair_law(law: tuple[str, float]) -> None:
    life = law_of_age(law[0]).law_with_mean(law[1], 100 * DAY_S)
    scenario = RunScenario(*plain_run(COUNTED, life))
    new, minimal = S3[law]
    for expected, at in (
        (new, replace(scenario, age_s=0.0)),
        (minimal, replace(scenario, age_s=0.0, node_repair=NodeRepair(0.0))),
        # the last four fifths of the horizon
        (0.8 * 153.6, scenario),
    ):
        done = simulate_run(at, 3, EXACT, horizon_s=60 * DAY_S)
        mean = done.failures / done.replicas
        # counts of renewals at shape 0.5 vary 2.5 times as much as Poisson's
        assert abs(mean - expected) < 4 * math.sqrt(2.5 * expected / done.replicas)


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        RUN,
        replace(RUN, failures_per_node_day=0.4, interval_s=400.0),
        replace(RUN, queue_s=0.0, restart_s=20.0, write_s=5.0, interval_s=100.0),
    ],
)
def test_the_long_run_has_the_exact_ettr_of_the_planner(run: PlannedRun) -> None:
    scenario = RunScenario(*plain_run(run, exponential(run.failures_per_node_day)))
    done = simulate_run(scenario, 1, EXACT)
    assert within(done, exact_ettr(run))
    assert done.ettr_error < 0.004
    shares, expected = asdict(done.shares), asdict(time_shares(run))
    assert math.isclose(sum(shares.values()), 1.0, rel_tol=1e-9)
    for name, share in expected.items():
        assert abs(shares[name] - share) < 0.006, name


@pytest.mark.slow
@pytest.mark.parametrize("days", [0.2, 3.0])
def test_a_finite_run_has_the_wallclock_of_the_planner(days: float) -> None:
    run = replace(RUN, productive_s=days * DAY_S, failures_per_node_day=0.1)
    done = simulate_run(
        RunScenario(*plain_run(run, exponential(0.1))),
        7,
        Precision(0.0, most_replicas=1024),
    )
    law, lengths = wallclock(run), done.lengths
    assert lengths is not None
    assert within(done, exact_ettr(run))
    assert abs(lengths.mean_s - expected_wallclock_s(run)) < 4 * lengths.mean_error_s
    for share in (0.1, 0.5, 0.9):
        at_s = law.quantile_s(share)
        held = np.mean(np.array(lengths.each_s) <= at_s * (1.0 + 1e-9))
        # at a step of the law the share held is that of the step
        assert abs(held - law.within(at_s)) < 4 * math.sqrt(share * (1 - share) / 1024) + 1e-3
    assert done.unfinished == 0


def test_a_run_that_never_fails_takes_its_shortest_time() -> None:
    run = replace(RUN, productive_s=DAY_S, failures_per_node_day=0.0)
    done = simulate_run(RunScenario(*plain_run(run, exponential(0.0)), age_s=0.0), 1)
    assert done.lengths is not None
    assert done.lengths.each_s[0] == done.lengths.each_s[-1]
    assert math.isclose(done.lengths.mean_s, expected_wallclock_s(run))
    assert (done.failures, done.ettr_error) == (0, 0.0)


JOB = JobShape(
    n_nodes=128,
    state_bytes=2e12,
    step_s=10.0,
    storage_bytes_per_s=50e9,
    restart_s=240.0,
    queue_s=100.0,
    replicas=16,
    host_bytes=1e15,
    expert_share=0.5,
    embedding_share=0.6,
    logged_bytes_per_step=1e9,
)
SHARES = {"process": 0.2, "node": 0.6, "rack": 0.1, "job": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda one: one.name)
def test_every_scheme_has_the_ettr_of_the_planner(scheme: object) -> None:
    per_node_day = 0.2
    terms = terms_for(scheme, JOB)  # type: ignore[arg-type]
    interval_s = max(600.0, terms.shortest_interval_s)
    per_s = {d: SHARES[d.key] * per_node_day * JOB.n_nodes / DAY_S for d in Domain}
    expected = levels_ettr(levels_of(terms, JOB, per_s, interval_s))
    lost = {Domain.NODE: 1, Domain.RACK: 2}
    scenario = RunScenario(
        levels_of(terms, JOB, {d: SHARES[d.key] for d in Domain}, interval_s),
        tuple(lost.get(domain, 0) for domain in terms.responses),
        JOB.n_nodes,
        exponential(per_node_day),
        terms.responses[Domain.JOB].restart_s,
        JOB.productive_s,
    )
    done = simulate_run(scenario, 11, EXACT)
    assert within(done, expected)
    assert done.ettr_error < 0.004


def test_a_late_detection_is_a_longer_restart_where_nothing_waits() -> None:
    run = replace(RUN, queue_s=0.0)
    life = exponential(0.05)
    late = RunScenario(*plain_run(run, life), detection_s=200.0)
    done = simulate_run(late, 5, EXACT)
    assert within(done, exact_ettr(replace(run, restart_s=500.0)))
    assert done.short.detecting > 0.0


@pytest.mark.parametrize("law", ["exponential", "fixed"])
def test_spares_are_the_closed_loop_of_the_projection(law: str) -> None:
    """The case that `ettr project` answers with .244: 16,384 GPUs, 8 spares, repairs of 2 days."""
    evidence = typed_evidence("typed", 30, 5000.0, 2048, 8.0)
    (point,) = project_fleet(
        evidence, [2048], RunShape(1), spares=8, repair_days=2.0, confidence=0.9
    ).points
    projected = point.projection.ettr
    assert projected is not None
    assert f"{projected.estimate:.3f}" == "0.244"
    shape = RunShape(2048)
    run = shape.at(30 / 5000.0, point.interval_s or 0.0)
    repair = RepairTime(2 * DAY_S, exponential(0.5) if law == "exponential" else None)
    scenario = RunScenario(*plain_run(run, exponential(30 / 5000.0)), repair_time=repair, spares=8)
    done = simulate_run(scenario, 2, replace(EXACT, most_replicas=64))
    assert within(done, projected.estimate or 0.0)
    share = standstill_share(8, 2048 * 30 / 5000.0 * 2.0)
    assert abs(done.short.short_of_nodes - share) < 4 * done.ettr_error + 0.01


@pytest.mark.slow
def test_bursts_keep_the_rate_and_spread_the_counts() -> None:
    """Counts in windows longer than a burst vary 2 size - 1 times as much as independent ones."""
    run = replace(COUNTED, n_nodes=32, failures_per_node_day=0.1)
    life = exponential(0.1)
    scenario = RunScenario(
        *plain_run(run, life), age_s=0.0, bursts=Bursts(mean_size=4.0, gap_s=600.0)
    )
    watch = Watch.of(scenario, 10 * DAY_S)
    counts = np.array([watch.replica(9, i)[0][engine.ROW_FAILURES] for i in range(1200)])
    assert abs(counts.mean() - 32.0) < 4 * math.sqrt(7 * 32 / 1200)
    index = counts.var(ddof=1) / counts.mean()
    assert abs(index - 7.0) < 4 * 7.0 * math.sqrt(2 / 1200)


def test_a_burst_of_one_is_no_burst() -> None:
    scenario = RunScenario(*plain_run(RUN, exponential(0.05)))
    alone = replace(scenario, bursts=Bursts(1.0, 600.0))
    small = Precision(0.0, most_replicas=32)
    assert simulate_run(scenario, 4, small) == simulate_run(alone, 4, small)


FULL = """
import json, sys
if sys.argv[1] == "interpreted":
    sys.modules["numba"] = None
from ettr.models.registry import law_of_age, model_of_key
from ettr.models.data import NodeRepair
from ettr.plan.schemes import Domain, JobShape, PartialRecovery, terms_for
from ettr.plan.schemes.base import levels_of
from ettr.sim.one_run import Precision, Watch, simulate_run
from ettr.sim.one_run import Bursts, RepairTime, RunScenario
job = JobShape(n_nodes=40, state_bytes=2e12, step_s=10.0, storage_bytes_per_s=50e9, queue_s=60.0)
shares = {"process": 0.2, "node": 0.6, "rack": 0.1, "job": 0.1}
life = law_of_age("lognormal").law_with_mean(1.3, 3 * 86400.0)
terms = terms_for(PartialRecovery(), job)
lost = {Domain.NODE: 1, Domain.RACK: 2}
scenario = RunScenario(
    levels_of(terms, job, {d: shares[d.key] for d in Domain}, 900.0),
    tuple(lost.get(domain, 0) for domain in terms.responses),
    job.n_nodes, life, terms.responses[Domain.JOB].restart_s, job.productive_s,
    node_repair=NodeRepair(0.6), spares=3, detection_s=30.0,
    repair_time=RepairTime(7200.0, law_of_age("lognormal").law_with_mean(0.7, 7200.0)),
    bursts=Bursts(1.5, 900.0),
)
done = simulate_run(scenario, 5, Precision(0.0, most_replicas=4))
row, _ = Watch.of(scenario).replica(5, 2)
print(done.engine)
print(json.dumps([done.ettr.hex(), done.failures, [value.hex() for value in row.tolist()]]))
"""


def played(engine_wanted: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", FULL, engine_wanted], capture_output=True, text=True, check=True
    )
    name, numbers = done.stdout.splitlines()
    return name, numbers


@pytest.mark.slow
def test_compiled_and_interpreted_give_the_same_bits() -> None:
    pytest.importorskip("numba")
    compiled, interpreted = played("compiled"), played("interpreted")
    assert compiled[0].startswith("numba")
    assert interpreted[0] == "interpreted"
    assert compiled[1] == interpreted[1]
    assert json.loads(compiled[1])[1] > 100


def test_the_seed_decides() -> None:
    scenario = RunScenario(*plain_run(RUN, exponential(0.05)))
    small = Precision(0.0, most_replicas=32)
    first, again, other = (simulate_run(scenario, seed, small) for seed in (1, 1, 2))
    assert first == again
    assert first.ettr != other.ettr


def test_a_stream_of_one_cause_moves_no_other() -> None:
    """With longer repairs every node still has the lives that it had."""
    scenario = RunScenario(
        *plain_run(RUN, exponential(0.05)), spares=64, repair_time=RepairTime(3600.0)
    )
    longer = replace(scenario, repair_time=RepairTime(7200.0))
    rows = [Watch.of(one, 5 * DAY_S).replica(1, 0)[0] for one in (scenario, longer)]
    # never short of nodes, so that nothing else changes
    assert np.array_equal(*rows)


@settings(max_examples=15, deadline=None)
@given(
    n_nodes=st.integers(1, 12),
    spares=st.integers(0, 4),
    nodes_lost=st.integers(0, 3),
    shape=st.sampled_from([0.4, 1.0, 3.0]),
    size=st.sampled_from([1.0, 2.5]),
    share=st.sampled_from([0.2, 1.0]),
)
def test_no_node_is_lost_and_every_second_is_counted(
    n_nodes: int, spares: int, nodes_lost: int, shape: float, size: float, share: float
) -> None:
    run = replace(RUN, n_nodes=n_nodes, restart_s=900.0)
    life = law_of_age("weibull").law_with_mean(shape, n_nodes * 7200.0)
    scenario = RunScenario(
        *plain_run(run, life, nodes_lost),
        spares=spares,
        repair_time=RepairTime(5000.0),
        node_repair=NodeRepair(share),
        bursts=Bursts(size, 300.0),
        detection_s=60.0,
    )
    row, ended = Watch.of(scenario, 3 * DAY_S).replica(1, 0)
    assert ended
    spent = row[engine.ROW_QUEUED : engine.ROW_FAILURES].sum()
    assert math.isclose(spent, row[engine.ROW_WALL], rel_tol=1e-9)
    assert row[engine.ROW_PLACE] <= row[engine.ROW_TRAINING] + 1e-6


def test_nodes_stay_nodes_through_the_loop() -> None:
    """Each node is in use, in repair or a spare, and the heaps keep their order."""
    from ettr.sim.engine import stream
    from ettr.sim.one_run import _begin, course_of

    life = law_of_age("weibull").law_with_mean(0.7, 20 * 3600.0)
    scenario = RunScenario(
        *plain_run(replace(RUN, n_nodes=20), life, 2), spares=5, repair_time=RepairTime(9000.0)
    )
    for failures in (1, 7, 60):
        marks_s = np.array([40 * DAY_S])
        state = _begin(np.ones(25), np.zeros(25), marks_s)
        draws = engine.Draws(*(stream(1, name) for name in engine.Draws._fields))
        engine.play(course_of(scenario), state, draws, failures)
        active = state.active[: state.tally[engine.ACTIVE]].tolist()
        away = state.away[: state.tally[engine.IN_REPAIR]].tolist()
        first, n = state.tally[engine.FIRST_SPARE], state.tally[engine.SPARES]
        spare = [int(state.spare[(first + i) % 25]) for i in range(n)]
        assert sorted([*active, *away, *spare]) == list(range(25))
        for heap, keys in ((active, state.due_s), (away, state.back_s)):
            for at, node in enumerate(heap[1:], 1):
                assert keys[heap[(at - 1) // 2]] <= keys[node]


def test_what_cannot_be_simulated_is_listed() -> None:
    fields = plain_run(RUN, exponential(0.05))
    with pytest.raises(
        UsageError, match=r"(?s)spares without a repair time.*give the age"
    ) as caught:
        RunScenario(*fields, spares=3, node_repair=NodeRepair(0.0))
    assert str(caught.value).startswith("cannot simulate this run")
    with pytest.raises(UsageError, match="mean size of 1 or more"):
        Bursts(0.5, 60.0)
    with pytest.raises(UsageError, match="give the length of the run"):
        simulate_run(RunScenario(*fields, age_s=0.0), 1)
    with pytest.raises(UsageError, match="never fail have no steady state"):
        simulate_run(RunScenario(*plain_run(RUN, exponential(0.0))), 1)
