"""One scenario file, simulated by AIReSim and by `ettr.sim`: failures and effective training time.

AIReSim is no package. Clone https://github.com/karthikp-ubc/airesim, install simpy into any Python,
and name both:

    export ETTR_AIRESIM=/path/to/airesim ETTR_AIRESIM_PYTHON=/path/to/python
    python benchmarks/airesim_side_by_side.py [airesim.toml]

AIReSim has no checkpoints, so the runs here lose no work; it has no failures while a job recovers.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from ettr.models.constant import ConstantLife
from ettr.models.data import LifeLaw, NodeRepair
from ettr.models.registry import law_of_age
from ettr.plan.levels import FailureKind, Levels, RecoveryLevel
from ettr.sim.one_run import Precision, RepairTime, RunScenario, simulate_run

RUNS = Path(__file__).with_name("airesim.toml")
FOLDER, PYTHON = "ETTR_AIRESIM", "ETTR_AIRESIM_PYTHON"
DAY_S, MINUTE_S = 86_400.0, 60.0
AUTO_S, MANUAL_S, MANUAL_SHARE = 7200.0, 2 * DAY_S, 0.8

# runs inside AIReSim's own Python; it knows nothing of ettr
THEIRS = """
import json, sys, time
from airesim.params import Params
from airesim.simulator import Simulator
run = json.load(sys.stdin)
begun = time.process_time()
done = [Simulator(Params(**run["params"]), seed=k).run() for k in range(run["replicas"])]
taken = time.process_time() - begun
print(json.dumps({
    "failures": [one.total_failures for one in done],
    "ettr": [one.total_compute_time / one.total_training_time for one in done],
    "cpu_s": taken / len(done),
}))
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the file; see there."""

    name: str
    servers: int
    standbys: int
    spares: int
    law: str
    mean_life_days: float
    job_days: float
    recovery_minutes: float
    host_selection_minutes: float
    replicas: int
    form: float = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """Means over replicas with their standard errors, and processor time of one replica."""

    failures: float
    failures_error: float
    ettr: float
    ettr_error: float
    cpu_s: float


def runs_of(path: Path) -> list[Run]:
    """The runs of a file."""
    return [Run(**one) for one in tomllib.loads(path.read_text("utf-8"))["run"]]


def by_airesim(run: Run, folder: str, python: str) -> Found:
    """AIReSim's answer.

    Args:
        run: The run.
        folder: Of the clone.
        python: That has simpy.
    """
    params = {
        "random_failure_rate": 1.0 / (run.mean_life_days * DAY_S / MINUTE_S),
        "systematic_failure_fraction": 0.0,
        "recovery_time": run.recovery_minutes,
        "host_selection_time": run.host_selection_minutes,
        "job_size": run.servers,
        "job_length": run.job_days * DAY_S / MINUTE_S,
        "warm_standbys": run.standbys,
        "working_pool_size": run.servers + run.standbys + run.spares,
        "spare_pool_size": 0,
        "failure_distribution": run.law,
        "weibull_shape": run.form,
        "lognormal_sigma": run.form,
        "auto_repair_time": AUTO_S / MINUTE_S,
        "manual_repair_time": MANUAL_S / MINUTE_S,
        "prob_auto_to_manual": MANUAL_SHARE,
    }
    done = subprocess.run(
        [python, "-c", THEIRS],
        input=json.dumps({"params": params, "replicas": run.replicas}),
        env={"PYTHONPATH": folder},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise SystemExit(f"AIReSim in {folder} by {python} failed: {' '.join(last)}")
    found = json.loads(done.stdout)
    failures, failures_error = mean_and_error(found["failures"])
    ettr, ettr_error = mean_and_error(found["ettr"])
    return Found(failures, failures_error, ettr, ettr_error, found["cpu_s"])


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    n = len(values)
    mean = sum(values) / n
    return mean, math.sqrt(sum((one - mean) ** 2 for one in values) / (n - 1) / n)


def by_ettr(run: Run, seed: int = 1) -> Found:
    """Ours: new servers, repairs that make new, and no work lost."""
    mean_s = run.mean_life_days * DAY_S
    life: LifeLaw
    if run.law == "exponential":
        life = ConstantLife(1.0 / mean_s)
    else:
        life = law_of_age(run.law).law_with_mean(run.form, mean_s)
    kind = FailureKind(RecoveryLevel.SOFT, 1.0, run.recovery_minutes * MINUTE_S, waits=False)
    scenario = RunScenario(
        Levels(interval_s=DAY_S, kinds=(kind,)),
        (1,),
        run.servers,
        life,
        run.host_selection_minutes * MINUTE_S,
        productive_s=run.job_days * DAY_S,
        age_s=0.0,
        node_repair=NodeRepair(1.0),
        repair_time=RepairTime(
            AUTO_S + MANUAL_SHARE * MANUAL_S, ConstantLife(1.0 / (AUTO_S + MANUAL_SHARE * MANUAL_S))
        ),
        spares=run.standbys + run.spares,
    )
    precision = Precision(ettr_error=1e-5, most_replicas=1024)
    simulate_run(scenario, seed, Precision(most_replicas=2))  # compiled before the clock runs
    begun = time.process_time()
    outcome = simulate_run(scenario, seed, precision)
    taken_s = time.process_time() - begun
    per_replica = outcome.failures / outcome.replicas
    return Found(
        per_replica,
        math.sqrt(per_replica / outcome.replicas),
        outcome.ettr,
        outcome.ettr_error,
        taken_s / outcome.replicas,
    )


def line(who: str, found: Found) -> str:
    """One row of the table."""
    return (
        f"  {who:8} {found.failures:10.1f} ± {found.failures_error:6.1f} {found.ettr:10.5f} ± "
        f"{found.ettr_error:.5f} {1000.0 * found.cpu_s:10.2f}"
    )


def main() -> None:
    """Print what both say of each run; the standard errors are those of the replicas."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    folder, python = os.environ.get(FOLDER, ""), os.environ.get(PYTHON, sys.executable)
    if not folder:
        print(f"AIReSim is absent, so ettr runs alone: {FOLDER} names its clone, {PYTHON} a Python")
    print(f"  {'':8} {'failures':>10} {'':8} {'ETTR':>10} {'':9} {'CPU ms':>10}")
    for run in runs_of(path):
        print(f"{run.name}: {run.servers} servers, {run.job_days:g} days")
        if folder:
            print(line("AIReSim", by_airesim(run, folder, python)))
        print(line("ettr", by_ettr(run)))


if __name__ == "__main__":
    main()
