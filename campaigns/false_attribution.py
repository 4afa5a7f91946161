"""Clusters in which faults that end nothing fall into the windows of jobs that failed on their own.

256 nodes, 60 days: 120 FAILED jobs of 64 nodes, 40 of them by a true fault, as many COMPLETED ones
as the row says, 9,000 one-node jobs of which 30 % fail for their own reasons, and background faults
at the row's rate per node-day, XIDs or other errors of the kernel. `false`: blamed by chance, truth
and estimate. `inside`: clusters whose true number lies in the 90 % interval. `r_f`: failures of
large jobs over the true ones, as counted and corrected.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from campaigns import Table
from ettr.analysis.assumptions import Assumptions
from ettr.attribution.background import false_failures_by_size
from ettr.tables import ALLOCATIONS, ATTEMPTS, EVENTS, NODE_STATES
from ettr.tables import Table as TableSchema
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

TITLE = "False attributions and the rate corrected for them"
SIZE = 20
NODES, LARGE_NODES, DAYS = 256, 64, 60.0
LARGE_FAILED, TRUE_FAULTS, SMALL = 120, 40, 9000
OWN_FAILURE_SHARE = 0.3
LARGE_GPUS = 128
CODES = {
    "xid": ("79", "48", "74"),
    "kernel": ("mce-uncorrected", "ib-link-down", "nfs-not-responding", "io-error", "nvme-down"),
}
"""By check: the first of a true fault, all of those that end nothing."""
SETTINGS = (
    *(
        ("xid", per_node_day, completed)
        for per_node_day in (0.02, 0.2)
        for completed in (0, 2, 200)
    ),
    *(("kernel", 0.2, completed) for completed in (2, 200)),
)
TIME = pa.timestamp("us", tz="UTC")
TESTS = Path(__file__).parents[1] / "tests"
ORIGIN_US = 1_767_225_600_000_000  # 2026-01-01


@dataclass
class Story:
    """Jobs and faults of one cluster, with the truth about each job."""

    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    nodes: list[np.ndarray] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    by_fault: list[bool] = field(default_factory=list)
    faults: list[tuple[float, int, str]] = field(default_factory=list)
    check: str = "xid"

    def job(
        self, start_s: float, run_s: float, nodes: np.ndarray, state: str, by_fault: bool
    ) -> None:
        """Add a job."""
        self.start_s.append(start_s)
        self.end_s.append(start_s + run_s)
        self.nodes.append(nodes)
        self.state.append(state)
        self.by_fault.append(by_fault)


def story(
    rng: np.random.Generator, per_node_day: float, completed: int, check: str = "xid"
) -> Story:
    """One cluster of the kind that this page describes."""
    made, codes = Story(check=check), CODES[check]
    for i in range(LARGE_FAILED + completed):
        start_s = rng.uniform(0.0, (DAYS - 1.1) * SECONDS_PER_DAY)
        run_s = rng.uniform(SECONDS_PER_HOUR, SECONDS_PER_DAY)
        nodes = rng.choice(NODES, LARGE_NODES, replace=False)
        state = "FAILED" if i < LARGE_FAILED else "COMPLETED"
        made.job(start_s, run_s, nodes, state, i < TRUE_FAULTS)
        if i < TRUE_FAULTS:
            when_s = start_s + run_s - rng.uniform(1.0, 60.0)
            made.faults.append((when_s, int(rng.choice(nodes)), codes[0]))
    for _ in range(SMALL):
        start_s = rng.uniform(0.0, (DAYS - 1.1) * SECONDS_PER_DAY)
        run_s = rng.exponential(4.0 * SECONDS_PER_HOUR) + 20.0
        state = "FAILED" if rng.random() < OWN_FAILURE_SHARE else "COMPLETED"
        made.job(start_s, run_s, rng.choice(NODES, 1), state, False)
    for _ in range(rng.poisson(per_node_day * NODES * DAYS)):
        when_s = rng.uniform(0.0, DAYS * SECONDS_PER_DAY)
        made.faults.append((when_s, int(rng.choice(NODES)), str(rng.choice(codes))))
    return made


def tables(made: Story) -> dict[str, pa.Table]:
    """Attempts, allocations, events and node states of a story."""
    jobs = len(made.state)
    keys = np.array([f"c/{i}" for i in range(jobs)])
    sizes = np.array([nodes.size for nodes in made.nodes])
    of_job = np.repeat(np.arange(jobs), sizes)
    start_us, end_us = (_us(moments) for moments in (made.start_s, made.end_s))
    elapsed_s = (end_us - start_us) / 1e6
    attempts = {
        "attempt_id": keys,
        "job_id": np.array([str(i) for i in range(jobs)]),
        "user": np.full(jobs, "u"),
        "state": np.array(made.state),
        "submit": start_us,
        "start": start_us,
        "end": end_us,
        "elapsed_s": elapsed_s,
        "n_nodes": sizes,
        "n_gpus": sizes * 8,
    }
    allocations = {
        "attempt_id": keys[of_job],
        "node": np.array([f"n{node}" for node in np.concatenate(made.nodes)]),
        "start": start_us[of_job],
        "end": end_us[of_job],
        "elapsed_s": elapsed_s[of_job],
        "n_gpus": np.full(of_job.size, 8.0),
    }
    when_s, node, code = zip(*made.faults, strict=True)
    events = {
        "event_id": np.array([f"e{i}" for i in range(len(node))]),
        "node": np.array([f"n{i}" for i in node]),
        "time": _us(when_s),
        "check": np.full(len(node), made.check),
        "code": np.array(code),
        "severity": np.full(len(node), "unknown"),
    }
    return {
        of.name: filled(of, columns)
        for of, columns in (
            (ATTEMPTS, attempts),
            (ALLOCATIONS, allocations),
            (EVENTS, events),
            (NODE_STATES, {}),
        )
    }


def _us(moments_s: object) -> np.ndarray:
    return (np.asarray(moments_s) * 1e6).astype(np.int64) + ORIGIN_US


def filled(of: TableSchema, columns: dict[str, np.ndarray]) -> pa.Table:
    """The columns in the table's schema; those not given are null, or say nothing where needed."""
    rows = len(next(iter(columns.values()), ()))
    origin = {
        "cluster": np.full(rows, "c"),
        "source": np.full(rows, "s"),
        "file_id": np.full(rows, "f"),
        "line": np.arange(1, rows + 1),
    }
    given = origin | columns
    return of.check(
        pa.table(
            {
                column.name: pa.array(given[column.name], column.kind.arrow)
                if column.name in given
                else pa.nulls(rows, column.kind.arrow)
                for column in of
            },
            schema=of.arrow_schema,
        )
    )


def run(size: int) -> Table:
    """Truth and estimate over `size` clusters a setting."""
    sys.path.insert(0, str(TESTS))
    from fact_tables import attributed

    rows, all_inside = [], 0
    for check, per_node_day, completed in SETTINGS:
        inside, truth, estimate, counted, corrected = 0, [], [], [], []
        for seed in range(size):
            rng = np.random.default_rng([seed, round(1000 * per_node_day), completed])
            made = story(rng, per_node_day, completed, check)
            facts = attributed(tables(made), Assumptions(above_gpus=LARGE_GPUS))
            blamed = [int(row["job_id"]) for row in facts.rows("all_failures")]
            false = sum(not made.by_fault[i] for i in blamed)
            large = sum(made.nodes[i].size == LARGE_NODES for i in blamed)
            found = false_failures_by_size(facts)
            whole = found.all_jobs.expected_false
            of_large = found.large_jobs.expected_false
            inside += whole.contains(false)
            truth.append(false)
            estimate.append(whole.estimate or 0.0)
            counted.append(large / TRUE_FAULTS)
            corrected.append((large - (of_large.estimate or 0.0)) / TRUE_FAULTS)
        all_inside += inside
        rows.append(
            (
                f"{per_node_day:g}" + (", kernel" if check == "kernel" else ""),
                str(completed),
                f"{np.mean(truth):.1f}",
                f"{np.mean(estimate):.1f}",
                f"{inside} of {size}",
                f"{np.mean(counted):.2f}",
                f"{np.mean(corrected):.2f}",
            )
        )
    rows.append(("all", "", "", "", f"{all_inside} of {len(SETTINGS) * size}", "", ""))
    return Table(
        (
            "noise per node-day",
            "large completed",
            "false",
            "estimated",
            "inside",
            "r_f counted",
            "r_f corrected",
        ),
        tuple(rows),
        "[cluster, 1000 x noise, completed]",
        "inside at least 15 of 20 in each row and 135 of all 160; r_f corrected within 10 % of 1",
    )
