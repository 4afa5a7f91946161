"""Scenarios fitted to 40 days of a simulated site and judged by the next 20, and wrong ones.

100 nodes, preemption, a busy queue. The site fails in ways that a fit finds in part: lives by
Weibull's law of shape 0.7, bursts on racks, a tenth of the repairs leaves the age of the node.
`passed`: seeds whose back-test passed in every quantity. A wrong scenario is the fitted one
with one kind of value changed; `failed in question`: seeds where a quantity failed that the
change is about. `quantities failed`: of those that were measured in all seeds; false alarms,
where the scenario is right. Checkpoints are judged where training recorded them: each eighth job
of several nodes does, here. A seed takes about 20 CPU seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from campaigns import Table
from ettr.analysis import Analysis
from ettr.analysis.calibration.back_test import BackTest, back_test
from ettr.analysis.calibration.fit import fit_site
from ettr.analysis.calibration.record import SiteRecord, site_record
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario import (
    REPAIR_SPREAD,
    SAVES,
    ClusterScenario,
    scenario_of,
    scenario_text,
)
from ettr.sim.cluster.scenario_parts import BurstProcess, FaultProcess, JobClass
from ettr.store import open_store

TITLE = "Fitted scenarios judged by logs that were held back"
SIZE = 8
FIT_DAYS, HELD_BACK_DAYS = 40, 20
REPLICAS = 12
RIGHT = "as fitted"
SYMPTOMS = ("infiniband", "filesystem", "main-memory", "node-hardware")
RATE = ("failure rate", "outages per node", "share NODE_FAIL", "lost goodput")
REPAIR = ("repair time, median", "repair time, mean")
RECORDED = 8
"""One in so many jobs of several nodes records its checkpoints."""


def site() -> ClusterScenario:
    """The site that is to be predicted."""
    base = scenario_of(scenario_text("small")[0])
    faults = tuple(
        FaultProcess(symptom, "weibull", 0.7, 7.0, "high", 0.2, 0.4, 1.0, 3600.0 * 6.0, 0.8, 0.9)
        for symptom in SYMPTOMS
    )
    return replace(
        base,
        period=replace(base.period, days=float(FIT_DAYS + HELD_BACK_DAYS)),
        machines=replace(base.machines, nodes=100),
        arrivals=replace(base.arrivals, jobs_per_day=44.0),
        jobs=tuple(
            JobClass(gpus, share, mean_s, 0.8)
            for gpus, share, mean_s in (
                (8, 0.55, 36_000.0),
                (32, 0.3, 36_000.0),
                (128, 0.15, 36_000.0),
            )
        ),
        faults=faults,
        bursts=(BurstProcess("infiniband", "rack", 0.5, 1.0, 60.0),),
        lemons=replace(base.lemons, share=0.0),
        checks=replace(base.checks, false_high_per_node_day=0.0, false_low_per_node_day=0.0),
    )


def with_faults(made: ClusterScenario, name: str, factor: float) -> ClusterScenario:
    """One value of each fault process so many times what it was, its interval too."""
    keys = {f"faults[{i + 1}].{name}" for i in range(len(made.faults))}
    return replace(
        made,
        faults=tuple(replace(one, **{name: factor * getattr(one, name)}) for one in made.faults),
        intervals={
            key: (factor * low, factor * high) if key in keys else (low, high)
            for key, (low, high) in made.intervals.items()
        },
    )


def lengths_doubled(made: ClusterScenario) -> ClusterScenario:
    """Each job takes twice as long."""
    keys = {f"jobs[{i + 1}].mean_s" for i in range(len(made.jobs))}
    return replace(
        made,
        jobs=tuple(replace(one, mean_s=2.0 * one.mean_s) for one in made.jobs),
        intervals={
            key: (2.0 * low, 2.0 * high) if key in keys else (low, high)
            for key, (low, high) in made.intervals.items()
        },
    )


def repairs_alike(made: ClusterScenario) -> ClusterScenario:
    """Repairs of each kind last as long as each other."""
    return replace(
        made,
        faults=tuple(replace(one, repair_sigma=0.1) for one in made.faults),
        intervals={k: v for k, v in made.intervals.items() if not k.endswith(".repair_sigma")},
    )


def checkpoints_apart(made: ClusterScenario) -> ClusterScenario:
    """Six times as long between checkpoints."""
    rules = made.checkpoints
    return replace(made, checkpoints=replace(rules, interval_s=6 * rules.interval_s))


def with_recorded_saves(record: SiteRecord, made: ClusterScenario) -> SiteRecord:
    """The site as if some of its training had recorded its checkpoints."""
    rules, ran = made.checkpoints, record.attempts
    apart_s = float(rules.interval_s + rules.write_s)
    own = (ran.n_nodes > 1) & (ran.job % RECORDED == 0) & ~np.isnan(ran.end_s)
    saves = [
        np.arange(start_s + rules.restart_s + 2.0 * apart_s, end_s, apart_s)
        for start_s, end_s in zip(ran.start_s[own], ran.end_s[own], strict=True)
    ]
    at_s = np.concatenate(saves)
    return replace(record, save_end_s=at_s, save_gap_s=np.full(at_s.size, apart_s))


ARMS: dict[str, tuple[Callable[[ClusterScenario], ClusterScenario], tuple[str, ...]]] = {
    RIGHT: (lambda made: made, ()),
    "faults x3": (lambda made: with_faults(made, "per_1000_node_days", 3.0), RATE),
    "lengths x2": (lengths_doubled, ("utilisation", "wait of")),
    "repairs x5": (lambda made: with_faults(made, "repair_mean_s", 5.0), REPAIR),
    "repairs alike (sigma .1)": (repairs_alike, (REPAIR_SPREAD,)),
    "checkpoints x6 apart": (checkpoints_apart, (SAVES,)),
    "no preemption": (
        lambda made: replace(made, scheduling=replace(made.scheduling, preemption="none")),
        ("share PREEMPTED", "wait of"),
    ),
}


def of_seed(seed: int, names: Collection[str]) -> dict[str, BackTest]:
    """The back-test of each named scenario against one site."""
    made = site()
    with tempfile.TemporaryDirectory(prefix="ettr-") as folder:
        with open_store(Path(folder) / "site", create=True) as store:
            simulate_into(store, made, seed, "site", "site", Path(folder) / "truth")
        with open_store(Path(folder) / "site") as store:
            analysis = Analysis(store)
            begin: datetime = made.period.origin + timedelta(days=FIT_DAYS)
            fitted = fit_site(analysis, "site", begin).scenario
            reality = with_recorded_saves(site_record(analysis), made)
    end = begin + timedelta(days=HELD_BACK_DAYS)
    return {
        name: back_test(change(fitted), reality, "site", begin, end, replicas=REPLICAS, seed=seed)
        for name, (change, _) in ARMS.items()
        if name in names
    }


def rows_of(found: list[dict[str, BackTest]]) -> tuple[tuple[str, ...], ...]:
    """A row for each scenario."""
    rows = []
    for name in found[0]:
        concerned = ARMS[name][1]
        tests = [one[name] for one in found]
        passed = sum(one.verdict == "passed" for one in tests)
        hit = sum(
            any(quantity.startswith(concerned) for quantity in one.validation.failed)
            for one in tests
            if concerned
        )
        failed = sum(len(one.validation.failed) for one in tests)
        measured = failed + sum(len(one.validation.passed) for one in tests)
        names = sorted({quantity for one in tests for quantity in one.validation.failed})
        rows.append(
            (
                name,
                f"{passed} of {len(tests)}",
                f"{hit} of {len(tests)}" if concerned else "",
                f"{failed} of {measured}",
                ", ".join(names),
            )
        )
    return tuple(rows)


def run(size: int, names: Collection[str] = tuple(ARMS)) -> Table:
    """`size` sites, each judged by the right scenario and by wrong ones."""
    found = [of_seed(seed, names) for seed in range(1, size + 1)]
    return Table(
        ("scenario", "passed", "failed in question", "quantities failed", "which"),
        rows_of(found),
        f"1 to {size}",
        "as fitted: passed in .8 of the seeds or more (nominal .95); each wrong one: failed in "
        "a quantity that the change is about in .8 or more",
    )
