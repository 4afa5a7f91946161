"""ETTR of a run with spare nodes, next to a simulation that knows nothing of the formula.

30 failures in 5,000 node-days, nodes of 8 GPUs, writes and restarts of 5 min at the interval that
`ettr project` chooses, repairs of exponential length. The simulation follows one run failure by
failure: a failure takes a node out, a spare replaces it, and without one the run stands still, and
nothing fails, until a node is back. `simulated`: mean and standard error over the draws, each of
3,000 failures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from campaigns import Table
from ettr.analysis.fleet_evidence import typed_evidence
from ettr.analysis.projecting import project_fleet
from ettr.plan.run import RunShape
from ettr.units import SECONDS_PER_DAY

TITLE = "ETTR with spare nodes"
SIZE = 200
FAILURES, NODE_DAYS, GPUS_PER_NODE = 30, 5000.0, 8
FAILURES_A_DRAW = 3000
SETTINGS = ((4096, 8, 2.0), (16_384, 8, 2.0), (16_384, 32, 2.0), (16_384, 8, 0.5))


@dataclass(frozen=True, slots=True)
class Simulated:
    """A run with spares; times in days."""

    n_nodes: int
    spares: int
    repair_days: float
    interval_days: float
    write_days: float
    restart_days: float

    def ettr(self, rng: np.random.Generator, failures: int) -> float:
        """Productive over wall-clock time until so many failures."""
        rate = self.n_nodes * FAILURES / NODE_DAYS
        now = productive = 0.0
        back: list[float] = []  # when each node in repair is back
        for _ in range(failures):
            runs = float(rng.exponential(1.0 / rate))
            trained = max(0.0, runs - self.restart_days)
            productive += trained // (self.interval_days + self.write_days) * self.interval_days
            now += runs
            back = [at for at in back if at > now]
            back.append(now + float(rng.exponential(self.repair_days)))
            if len(back) > self.spares:
                now = sorted(back)[len(back) - self.spares - 1]
        return productive / now


def run(size: int) -> Table:
    """ETTR by the formula and by simulation, `size` draws a row."""
    rows = []
    for gpus, spares, repair_days in SETTINGS:
        nodes = gpus // GPUS_PER_NODE
        evidence = typed_evidence("typed", FAILURES, NODE_DAYS, nodes, float(GPUS_PER_NODE))
        (point,) = project_fleet(
            evidence, [nodes], RunShape(1), spares=spares, repair_days=repair_days, confidence=0.9
        ).points
        shape = RunShape(1)
        simulated = Simulated(
            nodes,
            spares,
            repair_days,
            (point.interval_s or 0.0) / SECONDS_PER_DAY,
            shape.write_s / SECONDS_PER_DAY,
            shape.restart_s / SECONDS_PER_DAY,
        )
        rng = np.random.default_rng([gpus, spares, int(10 * repair_days)])
        draws = [simulated.ettr(rng, FAILURES_A_DRAW) for _ in range(size)]
        error = np.std(draws, ddof=1) / np.sqrt(len(draws))
        projected = point.projection.ettr
        rows.append(
            (
                f"{gpus:,}",
                str(spares),
                f"{repair_days:g} d",
                "" if projected is None else f"{projected.estimate:.3f}",
                f"{np.mean(draws):.3f} ± {error:.3f}",
            )
        )
    return Table(
        ("GPUs", "spares", "repair", "ETTR projected", "simulated"),
        tuple(rows),
        "[GPUs, spares, 10 x repair days]",
        "16,384 GPUs, 8 spares, 2 d: about .24, next to an own simulation",
    )
