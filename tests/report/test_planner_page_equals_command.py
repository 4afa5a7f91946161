"""The planner page computes what the command prints: its own script run by Node, no browser."""

import json
import math
import random
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from ettr.plan.assumed import inputs_of, run_with_state, with_inputs
from ettr.plan.cost import Price
from ettr.plan.outlook import RunPlan, plan_run, typed_rate
from ettr.plan.questions import Questions
from ettr.plan.renewal import time_shares
from ettr.plan.run import RunShape
from ettr.plan.schemes import Domain, JobShape
from ettr.report.planner_page import assumed_job, given

SCRIPT = """
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map((given) => {
  const s = given.state, nodes = Math.max(1, Math.ceil(s.gpus / given.gpus_per_node - 1e-9));
  const rate = s.per_1000 / 1000 * nodes / 86400;
  const inner = { nodes, rate, restart: s.restart_s, queue: s.queue_s };
  const share = forms.optimalShare(rate * s.write_s), interval = share / rate;
  return {
    interval,
    held: forms.heldShare(rate, s.queue_s),
    ettr: forms.longRun(rate, interval, s.write_s, s.restart_s + given.load_s, s.queue_s),
    schemes: given.schemes.map((one) => {
      const obstacle = forms.obstacle(one, inner, given.host_bytes);
      const best = obstacle ? null : forms.schemeBest(one, inner);
      return { name: one.name, usable: !obstacle, interval: best,
        ettr: obstacle ? null : forms.levels(forms.schemeLevels(one, inner, best)) };
    }),
  };
})));
"""


def node() -> str | None:
    """Node.js: the system's, or the one that Playwright brings."""
    found = shutil.which("node")
    if found is not None:
        return found
    try:
        driver = Path(str(resources.files("playwright"))) / "driver" / "node"
    except ModuleNotFoundError:
        return None
    return str(driver) if driver.is_file() else None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(node() is None, reason="no Node.js; `make setup` brings one"),
]


def drawn(rng: random.Random) -> RunPlan:
    """A plan anywhere in the ranges that the planner is for."""

    def log(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    shares = {domain.key: rng.choice([0.0, rng.random(), 1e-6]) for domain in Domain}
    shares[Domain.NODE.key] += 1e-3
    total = sum(shares.values())
    job = JobShape(
        n_nodes=rng.choice([1, 2, round(log(1, 125_000))]),
        restart_s=log(1.0, 3600.0),
        queue_s=rng.choice([0.0, log(1.0, 3600.0)]),
        state_bytes=log(1e9, 1e14),
        step_s=log(0.05, 60.0),
        storage_bytes_per_s=log(1e6, 1e14),
        network_bytes_per_s=log(1e9, 1e12),
        device_bytes_per_s=log(1e9, 1e12),
        host_bytes=log(1e9, 1e13),
        replace_s=rng.choice([0.0, log(1.0, 600.0)]),
        replicas=rng.choice([1, 2, 16]),
        one_writer_share=log(0.01, 1.0),
        durable_period_s=log(60.0, 86400.0),
        embedding_share=rng.choice([0.0, rng.random()]),
        expert_share=rng.choice([0.0, rng.random()]),
        logged_bytes_per_step=rng.choice([0.0, log(1e6, 1e12)]),
    )
    shape, _ = run_with_state(RunShape(**job.shape_values()), job, write_typed=False)
    names = inputs_of()
    inputs = {
        names["hot-swap.swap"]: log(1.0, 600.0),
        names["in-memory-copies.n-copies"]: rng.choice([1, 2, 3]),
        names["in-memory-erasure-code.group-nodes"]: rng.choice([2, 4, 8]),
    }
    return plan_run(
        shape,
        typed_rate(log(0.01, 1000.0)),
        job=job,
        domain_shares={key: share / total for key, share in shares.items()},
        chosen=with_inputs(inputs),
    )


@pytest.fixture(scope="module")
def both() -> list[tuple[RunPlan, dict[str, Any]]]:
    rng = random.Random(11)
    plans = [drawn(rng) for _ in range(150)]
    forms = resources.files("ettr.report") / "templates" / "planner_forms.js"
    script = forms.read_text("utf-8") + SCRIPT
    cases = []
    for plan in plans:
        assert plan.job is not None
        cases.append(given(plan, plan.job))
    done = subprocess.run(
        [str(node()), "-e", script],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return list(zip(plans, json.loads(done.stdout), strict=True))


@pytest.mark.slow
def test_the_head_is_equal(both: list[tuple[RunPlan, dict[str, Any]]]) -> None:
    for plan, page in both:
        assert page["interval"] == pytest.approx(plan.run.interval_s, rel=1e-6)
        assert page["ettr"] == pytest.approx(plan.ettr.estimate, rel=1e-6, abs=1e-12)


def test_gpus_are_held_for_the_same_share(both: list[tuple[RunPlan, dict[str, Any]]]) -> None:
    for plan, page in both:
        if plan.ettr.estimate:
            assert page["held"] == pytest.approx(1.0 - time_shares(plan.run).queued, rel=1e-9)


def test_the_cost_of_a_long_run_is_the_command_s() -> None:
    run = RunShape(2048, write_s=30.0, restart_s=600.0, queue_s=300.0, productive_s=540 * 86400.0)
    plan = plan_run(run, typed_rate(6.5), asked=Questions(price=Price(2.5, "USD")))
    cost = plan.answers.cost
    assert cost is not None
    assert plan.ettr.estimate is not None
    share = time_shares(plan.run)
    held = 2048 * 8 * 24 * (540 / plan.ettr.estimate) * (1.0 - share.queued)
    # what the page shows of a long run, the command computes for one of this length
    assert held == pytest.approx(cost.held_gpu_hours.estimate, rel=1e-3)
    page = given(plan, assumed_job(plan))
    assert page["state"]["days"] == 540.0
    assert (page["state"]["price"], page["currency"]) == (2.5, "USD")


STATES = """
const state = { gpus: 16384, per_1000: 6.5, interval_s: 600, write_s: 30, restart_s: 120,
  queue_s: 0, target: 0.9, days: 54, price: null, best: true, scheme: "typed write time" };
const kept = Object.assign({}, state, { write_s: 5, price: 2.5, best: false, scheme: "a & b=c" });
const names = [state.scheme, kept.scheme];
console.log(JSON.stringify({
  there: planState.fromHash("#" + planState.toHash(state, kept), state, names), state, kept,
  wrong: planState.fromHash("#gpus=-1&write_s=x&scheme=none&queue_s=60", state, names),
  parsed: [["restart_s", "2min"], ["restart_s", "1.5 h"], ["gpus", "16,384"], ["restart_s", "2"],
    ["queue_s", "0"], ["per_1000", "6.5"], ["gpus", "2 min"], ["write_s", "abc"], ["write_s", ""]]
    .map(([name, text]) => planState.parsed(name, text)),
}));
"""


def test_the_address_keeps_both_plans_and_fields_take_units() -> None:
    file = resources.files("ettr.report") / "templates" / "planner_state.js"
    done = subprocess.run(
        [str(node()), "-e", file.read_text("utf-8") + STATES],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["there"] == {"state": found["state"], "kept": found["kept"]}
    assert found["wrong"] == {"state": {**found["state"], "queue_s": 60}, "kept": None}
    assert found["parsed"] == [120, 5400, 16384, None, 0, 6.5, None, None, None]


def test_every_scheme_is_equal(both: list[tuple[RunPlan, dict[str, Any]]]) -> None:
    compared = 0
    for plan, page in both:
        of_page = {one["name"]: one for one in page["schemes"]}
        assert of_page.keys() == {one.name for one in plan.schemes}
        for one in plan.schemes:
            there = of_page[one.name]
            assert there["usable"] == one.usable, (one.name, plan.job)
            if one.usable:
                compared += 1
                assert there["ettr"] == pytest.approx(one.ettr.estimate, rel=1e-5, abs=1e-9), (
                    one.name,
                    plan.job,
                )
    assert compared > 500
