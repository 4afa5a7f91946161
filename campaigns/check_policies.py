"""Policies of node checks on ten simulated fleets of known truth, with the same luck.

64 nodes, two jobs of 32 nodes and 24 h at a time, 20 days. Rates, hidden hours, coverage and
minutes are drawn for each fleet; a twentieth of the nodes fails 12 times as often. `useful`: work
kept over that, work lost, restarts and checks. `selector over none`: paired by seed, with the 95 %
interval of the mean.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t

from campaigns import Table
from campaigns.false_attribution import TESTS
from ettr.sim.cluster.scenario_parts import NodeCheck
from ettr.sim.cluster.whatif import hours_of

if TYPE_CHECKING:
    from ettr.sim.cluster.scenario import ClusterScenario

TITLE = "Policies of node checks"
SIZE = 12
FLEETS, RATES = 10, (1.0, 0.3, 0.1)
POLICIES = ("none", "before-each-job", "every-day", "selector")
KINDS = ("gpu-memory", "nvlink", "pcie", "infiniband", "main-memory")


def fleet(
    seed: int, rate: float = 1.0, days: float = 20.0, restart_s: int = 12_600
) -> ClusterScenario:
    """A fleet whose faults come `rate` times as often as one a job and day, about."""
    sys.path.insert(0, str(TESTS))
    from cluster_scenarios import fault, one_size, quiet

    rng = np.random.default_rng(seed)
    rates = rng.dirichlet(np.ones(5)) * rng.uniform(0.5, 1.0) / 32 * 1000
    checks = []
    for check in range(5):
        kinds = sorted({check, int(rng.integers(5))})
        run_s = float(rng.choice([2, 4, 6, 10, 15]) * 60)
        covers = " ".join(f"{KINDS[kind]}:{rng.uniform(0.75, 0.95):.3f}" for kind in kinds)
        checks.append(NodeCheck(f"check {check}", run_s, covers))
    latent_s = rng.uniform(4, 24, 5) * 3600
    return quiet(
        machines={"nodes": 64},
        period={"days": days},
        jobs=one_size(8 * 32, 86_400.0),
        arrivals={"jobs_per_day": 2.5, "day_amplitude": 0.0, "weekend_factor": 1.0},
        checkpoints={
            **{"interval_s": 3600, "restart_s": restart_s},
            **{"resubmit_chance": 1.0, "mean_resubmit_s": 60.0},
        },
        lemons={"share": 0.04, "factor": 12.0},
        faults=tuple(
            fault(kind, float(rate * own), latent_s=float(hidden_s), repair_mean_s=14_400.0)
            for kind, own, hidden_s in zip(KINDS, rates, latent_s, strict=True)
        ),
        node_checks=tuple(checks),
    )


def with_policy(scenario: ClusterScenario, policy: str) -> ClusterScenario:
    """The same fleet under another policy."""
    return replace(scenario, checks=replace(scenario.checks, policy=policy))


def useful_shares(scenario: ClusterScenario, seed: int) -> list[float]:
    """Of each policy, with the same seed."""
    found = [hours_of(with_policy(scenario, policy), seed) for policy in POLICIES]
    return [one.useful_gpu_hours / (one.useful_gpu_hours + one.lost_gpu_hours) for one in found]


def run(size: int) -> Table:
    """Useful share of each policy, `size` seeds a row."""
    rows, worse = [], 0
    for rate in RATES:
        for number in range(FLEETS):
            shares = np.array(
                [useful_shares(fleet(number, rate), seed) for seed in range(1, size + 1)]
            )
            cells = [f"{share:.4f}" for share in shares.mean(axis=0)]
            for other in range(len(POLICIES) - 1):
                more = shares[:, -1] - shares[:, other]
                error = more.std(ddof=1) / size**0.5 if size > 1 else np.inf
                half = float(t.ppf(0.975, max(size - 1, 1)) * error)
                cells.append(f"{more.mean():+.4f} ± {half:.4f}")
                worse += bool(more.mean() + half < 0)
            rows.append((f"x{rate:g}", str(number), *cells))
    over = tuple(f"selector over {name}" for name in POLICIES[:-1])
    return Table(
        ("rates", "fleet", *(f"useful, {name}" for name in POLICIES), *over),
        tuple(rows),
        "fleet: its number; runs: 1 to draws",
        "the selector at least as useful as each other policy on each fleet, within the interval",
        f"Of {len(rows) * 3} intervals {worse} are wholly below 0.",
    )
