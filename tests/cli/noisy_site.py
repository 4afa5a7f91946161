"""A site in which critical events that end nothing fall into the windows of users' own failures."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cli.program import ettr

ORIGIN = datetime(2026, 3, 1, tzinfo=UTC)
HEAD = "Cluster|JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
DAYS, NODES, JOB_NODES, JOB_H = 40, 64, 32, 4
NODE_FAILS, CHECKED = 20, 15
"""True failures: those that the scheduler names, and those of which a check alone says it."""
NOISE_PER_NODE_HOUR = 0.012


@dataclass(frozen=True)
class NoisySite:
    """The store, and what is true of it."""

    store: Path
    true_failures: int
    node_days: float


def noisy_site(folder: Path, seed: int = 1, noise: float = NOISE_PER_NODE_HOUR) -> NoisySite:
    """Two jobs of 256 GPUs at any time; a third of them fail by their own fault."""
    draw = random.Random(seed)
    slots = [(hour, part) for hour in range(0, 24 * DAYS, JOB_H) for part in (0, 1)]
    true = draw.sample(range(len(slots)), NODE_FAILS + CHECKED)
    own = {slot for slot in range(len(slots)) if slot not in true and draw.random() < 1 / 3}
    rows, events = [f"{HEAD}|AllocTRES"], []
    for slot, (hour, part) in enumerate(slots):
        start = ORIGIN + timedelta(hours=hour)
        # the next ones begin after the window of these has passed
        end = start + timedelta(hours=JOB_H, minutes=-20)
        state = "FAILED" if slot in own or slot in true else "COMPLETED"
        if slot in true[:NODE_FAILS]:
            state = "NODE_FAIL"
        if slot in true[NODE_FAILS:]:
            node = part * JOB_NODES + draw.randrange(JOB_NODES)
            events.append((end - timedelta(seconds=draw.randrange(5, 200)), node))
        times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start, end))
        first = part * JOB_NODES
        rows.append(
            f"c|{slot + 1}|train|ann|{state}|1:0|{times}|{(end - start).seconds}|{JOB_NODES}"
            f"|n[{first:02d}-{first + JOB_NODES - 1:02d}]|gres/gpu={8 * JOB_NODES}"
        )
    hours = 24 * DAYS
    for node in range(NODES):
        moment = draw.expovariate(noise) if noise else hours
        while moment < hours:
            events.append((ORIGIN + timedelta(hours=moment), node))
            moment += draw.expovariate(noise)
    kernel = [f"{time:%Y-%m-%dT%H:%M:%S}+00:00 n{node:02d} kernel: {XID}" for time, node in events]
    (folder / "sacct.psv").write_text("\n".join(rows) + "\n")
    (folder / "kernel.log").write_text("\n".join(sorted(kernel)) + "\n")
    for name in ("sacct.psv", "kernel.log"):
        done = ettr("ingest", folder / "store", folder / name, "--timezone", "UTC")
        assert done.code == 0, done.err
    node_days = len(slots) * JOB_NODES * (JOB_H - 1 / 3) / 24
    return NoisySite(folder / "store", NODE_FAILS + CHECKED, node_days)
