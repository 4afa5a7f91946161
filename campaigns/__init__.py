"""Measurements too long for every test run: thousands of simulated fleets, kills or mutants.

`make campaign NAME` prints a table and keeps it in docs/results/campaigns, with its seeds in the
index. A campaign is a module with `TITLE`, `SIZE` (how many draws a full run has) and
`run(size) -> Table`; the tests run each at a twentieth of its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMES = (
    "augmentation",
    "back-tests",
    "borders",
    "burn-alerts",
    "checkpoint-damage",
    "causes",
    "check-policies",
    "ckpt-chaos",
    "clustering",
    "damage",
    "direction",
    "false-attribution",
    "field",
    "flight-records",
    "fuzz",
    "grades",
    "input-buffers",
    "input-chains",
    "kills",
    "lemons",
    "long-lines",
    "memory-schemes",
    "mutants",
    "new-checks",
    "node-kills",
    "object-store",
    "options",
    "projections",
    "plan-inputs",
    "published",
    "queries",
    "recipe-kills",
    "records",
    "schemes",
    "simulated-clusters",
    "slow-nodes",
    "slow-runs",
    "slurm-referee",
    "small-commits",
    "spares",
    "state-accounting",
    "steps",
    "trainer-kills",
    "watch",
)


@dataclass(frozen=True, slots=True)
class Table:
    """What a campaign measured: column names, rows, and what was asked of them.

    `verdict` says, from the rows, what of that holds; empty where the table says it by itself.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    seeds: str
    asked: str
    verdict: str = ""

    def markdown(self) -> str:
        """The table as Markdown."""

        def line(cells: Sequence[str]) -> str:
            return f"| {' | '.join(cells)} |"

        rule = line(["---"] * len(self.headers))
        return "\n".join([line(self.headers), rule, *(line(row) for row in self.rows)])
