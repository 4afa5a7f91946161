"""Every checkpoint scheme, played failure by failure from its own description.

Jobs of 64, 2,048, 16,384 and 131,072 GPUs with 1, 5, 10 and 20 TB of state, 6.5 failures per 1,000
node-days (process .2, node .7, rack .05, whole job .05), steps of 10 s, restarts of 5 min, waits
of 2 min; each at four rates of the storage, once with 16 replicas and once without any and with a
writer that alone reaches a quarter of that rate. Each scheme is played at the interval that the
planner chooses, from the sentences of docs/explanation/checkpoint-schemes.md and not from its
class. Schemes that get nowhere, with an ETTR under .001 by both, are left out.
`largest`: largest difference between planner and Monte Carlo, in standard errors of the latter.
`over 3`: schemes that differ by more than 3. `apart`: pairs that the Monte Carlo separates by 3
standard errors of the difference; `otherwise`: those that the planner ranks the other way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from campaigns import Table
from ettr.estimates import Interval
from ettr.plan.ranking import rank
from ettr.plan.schemes import Domain, JobShape

TITLE = "Checkpoint schemes against a Monte Carlo of their descriptions"
SIZE = 4000
SHARES = {"process": 0.2, "node": 0.7, "rack": 0.05, "job": 0.05}
PER_NODE_DAY = 6.5e-3
DAY_S = 86400.0
STATES = {64: 1e12, 2048: 5e12, 16_384: 10e12, 131_072: 20e12}
STORAGE_GB_PER_S = (200, 50, 20, 10)
BURN_IN, EVENTS = 30, 60
ON, BACK, DEEP = range(3)
# a recovery that fails e^9 times on average is not worth playing
MOST_LOAD = 9.0
# under this the run gets nowhere, by the planner and by the Monte Carlo
NOWHERE = 1e-3
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """What the descriptions speak of, in seconds and bytes."""

    nodes: int
    state: float
    storage: float
    replicas: int
    writer: float
    step_s: float = 10.0
    restart_s: float = 300.0
    replace_s: float = 60.0
    queue_s: float = 120.0
    durable_s: float = 3600.0
    network: float = 50e9
    device: float = 100e9
    experts: float = 0.5

    @property
    def part(self) -> float:
        """Bytes of the state in one node, each byte held once."""
        return self.state / self.nodes

    @property
    def copy_s(self) -> float:
        """Copy of the state to the memory of the nodes."""
        return self.part / self.device

    @property
    def read_s(self) -> float:
        """Read of the state from storage by the whole job."""
        return self.state / self.storage

    @property
    def write_s(self) -> float:
        """Write of the state to storage by one checkpoint alone."""
        return self.state / (self.writer * self.storage)

    @property
    def part_read_s(self) -> float:
        """Read of one node's part from storage."""
        return self.part / min(self.storage, self.network)

    @property
    def peer_s(self) -> float:
        """All that a node holds, replicas included, from its peers."""
        return self.replicas * self.part / self.network


@dataclass(frozen=True)
class After:
    """What follows a failure: where training goes on, time down, and work to be made good.

    `waits`: for the scheduler or for a node, first.
    """

    level: int
    down_s: float
    redo_s: float = 0.0
    redo_share: float = 0.0
    waits: bool = True


@dataclass(frozen=True)
class Played:
    """A scheme as it is played; `durable_every_s` 0 saves a durable checkpoint each time."""

    after: tuple[After, After, After, After]
    stall_s: float = 0.0
    lag_s: float = 0.0
    slowdown: float = 0.0
    durable_every_s: float = 0.0
    durable_stall_s: float = 0.0
    durable_lag_s: float = 0.0


def descriptions(job: Job) -> dict[str, Played]:
    """Each scheme for a job, as its description has it: after a process, node, rack, job."""
    reload = After(BACK, job.restart_s + job.read_s)
    deep = After(DEEP, job.restart_s + job.read_s)
    in_memory = {
        "durable_every_s": max(job.durable_s, job.write_s),
        "durable_stall_s": job.copy_s,
        "durable_lag_s": job.write_s,
    }

    def healed(process: After, node: After, rack: After) -> Played:
        return Played((process, node, rack, reload), job.copy_s, job.write_s)

    def one_step(down_s: float, redo_s: float = 0.0) -> After:
        return After(ON, down_s, job.step_s + redo_s)

    def held(after: After, redo_s: float = 0.0) -> After:
        """The same without a wait: the nodes stay, a standby one comes in, or the others go on."""
        return replace(after, waits=False, redo_s=after.redo_s + redo_s)

    kept = 1 - job.experts * 7 / 8
    in_place = held(After(BACK, job.restart_s))
    peers = After(BACK, job.restart_s + job.peer_s)
    decoded = After(BACK, job.restart_s + 6 * job.part / job.network + job.peer_s)
    user = one_step(job.restart_s + job.write_s + job.read_s)
    moved = one_step(job.replace_s + 10.0 + job.peer_s)
    swapped = one_step(40.0 + job.peer_s)
    absent = one_step(180.0, (job.restart_s + job.peer_s) / job.replicas)
    edited = one_step(30.0 + 2.0 + job.peer_s, job.replace_s / job.nodes)
    copied = one_step(job.replace_s + job.peer_s)
    replayed = After(ON, job.replace_s + job.part_read_s, redo_share=0.5)
    mended = After(ON, job.replace_s + job.part_read_s, redo_share=0.3)
    rebuilt = one_step(job.replace_s)
    found = {
        "synchronous": Played((reload,) * 4, job.copy_s + job.write_s),
        "asynchronous": Played((reload,) * 4, job.copy_s, job.write_s),
        "concurrent": Played((reload,) * 4, job.copy_s + 0.3 * job.step_s, job.write_s),
        "in-memory copies": Played(
            (in_place, peers, peers, deep),
            lag_s=job.copy_s + job.step_s + job.part / job.network,
            **in_memory,
        ),
        "in-memory erasure code": Played(
            (in_place, decoded, deep, deep), 0.0, job.copy_s + job.part / job.network, **in_memory
        ),
        "partial recovery": healed(held(mended), mended, mended),
        "embedding parity": Played(
            (held(rebuilt), rebuilt, reload, reload), job.copy_s, job.write_s, 0.02
        ),
        "partial experts": Played(
            (held(After(BACK, job.restart_s + job.copy_s)), deep, deep, deep),
            kept * job.copy_s,
            durable_lag_s=kept * job.write_s,
        ),
    }
    if job.replicas == 1:
        found["logging and replay"] = Played(
            (held(replayed), replayed, reload, reload), job.copy_s, job.write_s, 0.01
        )
        return found
    return found | {
        "logging and replay": healed(held(copied), copied, reload),
        "just in time": healed(user, user, user),
        "system-level just in time": healed(held(one_step(10.0 + job.peer_s)), moved, moved),
        "hot swap": healed(held(swapped), held(swapped), reload),
        "replica restart": healed(held(absent), *(held(absent, job.queue_s / job.replicas),) * 2),
        "communicator edit": healed(held(edited), held(edited, job.queue_s / job.nodes), reload),
        "peer recovery": healed(held(one_step(150.0)), one_step(150.0), reload),
        "checkpointless": healed(held(one_step(120.0)), held(one_step(120.0)), reload),
    }


class Runs:
    """Many runs of one scheme side by side: where each is, what it has saved, what it owes."""

    def __init__(self, scheme: Played, interval_s: float, n_runs: int) -> None:
        self.scheme, self.interval_s = scheme, interval_s
        self.per_durable = max(1, int(scheme.durable_every_s / interval_s + 0.5))
        stalls_s = scheme.stall_s + scheme.durable_stall_s / self.per_durable
        self.length_s = interval_s * (1 + scheme.slowdown) + stalls_s
        self.clock_s, self.owed_s, self.within_s = np.zeros((3, n_runs))
        self.taken, self.usable, self.durable = np.zeros((3, n_runs), dtype=np.int64)
        # what was owed when each of the last checkpoints was taken
        self.ring = int(scheme.lag_s / self.length_s) + 3
        self.owed_then_s = np.zeros((n_runs, self.ring))
        self.rows = np.arange(n_runs)

    def train(self, for_s: Array) -> None:
        """Train without a failure for so long."""
        before = self.taken.copy()
        total_s = self.within_s + for_s
        self.taken += (total_s // self.length_s).astype(np.int64)
        self.within_s = total_s % self.length_s
        for back in range(self.ring):
            index = self.taken - back
            new = index > before
            self.owed_then_s[self.rows[new], index[new] % self.ring] = self.owed_s[new]
        self.clock_s += for_s
        self.usable = np.maximum(self.usable, self._reached(self.scheme.lag_s))
        late_s = max(self.scheme.lag_s, self.scheme.durable_lag_s)
        durable = self._reached(late_s) // self.per_durable * self.per_durable
        self.durable = np.maximum(self.durable, durable)

    def _reached(self, lag_s: float) -> NDArray[np.int64]:
        """The newest checkpoint that was taken so long ago."""
        return self.taken + np.floor((self.within_s - lag_s) / self.length_s).astype(np.int64)

    def go_on(self, levels: NDArray[np.int64], first: NDArray[np.int64]) -> None:
        """After a recovery: owe work, or go back."""
        stale_s = (self.taken - self.usable) * self.length_s + self.within_s
        stale_s *= self.interval_s / self.length_s
        after = self.scheme.after
        owed_s = np.array([one.redo_s for one in after])[first]
        owed_s += np.array([one.redo_share for one in after])[first] * stale_s
        self.owed_s += np.where(levels == ON, owed_s, 0.0)
        self.usable = np.where(levels == DEEP, self.durable, self.usable)
        back = levels != ON
        self.taken[back], self.within_s[back] = self.usable[back], 0.0
        self.owed_s[back] = self.owed_then_s[self.rows[back], self.usable[back] % self.ring]

    def kept_s(self) -> Array:
        """Productive work at hand, less what is owed."""
        at_s = self.taken * self.length_s + self.within_s
        return at_s * self.interval_s / self.length_s - self.owed_s


def played_ettr(
    scheme: Played, job: Job, interval_s: float, n_runs: int, rng: np.random.Generator
) -> tuple[float, float]:
    """ETTR of a scheme over many runs, and its standard error."""
    per_s = job.nodes * PER_NODE_DAY / DAY_S
    shares = np.array(list(SHARES.values()))
    # the slower of two at the deeper of two levels
    waits = [job.queue_s * after.waits for after in scheme.after]
    order = sorted(
        range(4), key=lambda i: (scheme.after[i].level, waits[i] + scheme.after[i].down_s)
    )
    place = np.argsort(order)
    down_s = np.array([scheme.after[i].down_s for i in order])
    wait_s = np.array([waits[i] for i in order])
    levels = np.array([scheme.after[i].level for i in order])
    runs = Runs(scheme, interval_s, n_runs)
    start_clock = start_kept = np.zeros(n_runs)
    for event in range(BURN_IN + EVENTS):
        if event == BURN_IN:
            start_clock, start_kept = runs.clock_s.copy(), runs.kept_s()
        runs.train(rng.exponential(1 / per_s, n_runs))
        first = rng.choice(4, n_runs, p=shares)
        worst = place[first]
        down = np.arange(n_runs)
        while down.size:
            until_s = rng.exponential(1 / per_s, down.size)
            needed_s = down_s[worst[down]]
            runs.clock_s[down] += wait_s[worst[down]] + np.minimum(until_s, needed_s)
            down = down[until_s < needed_s]
            worst[down] = np.maximum(worst[down], place[rng.choice(4, down.size, p=shares)])
        runs.go_on(levels[worst], first)
    clock_s, kept_s = runs.clock_s - start_clock, runs.kept_s() - start_kept
    ettr = kept_s.sum() / clock_s.sum()
    error = np.std(kept_s - ettr * clock_s) * np.sqrt(n_runs) / clock_s.sum()
    return float(ettr), float(error)


def planned(job: Job) -> dict[str, tuple[float, float]]:
    """Interval and ETTR that the planner has for each scheme that the job can use."""
    shape = JobShape(
        n_nodes=job.nodes,
        state_bytes=job.state,
        storage_bytes_per_s=job.storage,
        replicas=job.replicas,
        one_writer_share=job.writer,
        step_s=job.step_s,
        restart_s=job.restart_s,
        replace_s=job.replace_s,
        queue_s=job.queue_s,
        durable_period_s=job.durable_s,
        network_bytes_per_s=job.network,
        device_bytes_per_s=job.device,
        expert_share=job.experts,
        embedding_share=0.6,
        logged_bytes_per_step=1e9,
        host_bytes=1e15,
    )
    per_day = job.nodes * PER_NODE_DAY
    rates = {domain: Interval(*(SHARES[domain.key] * per_day,) * 3) for domain in Domain}
    return {
        one.scheme.name: (one.interval_s, one.ettr.estimate)
        for one in rank(shape, rates)
        if one.interval_s is not None and one.ettr.estimate is not None
    }


def setting(job: Job, n_runs: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """ETTR of the planner, of the Monte Carlo, and its standard error, for each scheme."""
    described, found = descriptions(job), {}
    plan = planned(job)
    if plan.keys() != described.keys():
        raise ValueError(f"schemes without a description: {plan.keys() ^ described.keys()}")
    for index, (name, scheme) in enumerate(described.items()):
        interval_s, ettr = plan[name]
        load = job.nodes * PER_NODE_DAY / DAY_S * max(one.down_s for one in scheme.after)
        if load < MOST_LOAD:
            rng = np.random.default_rng([seed, index])
            played, error = played_ettr(scheme, job, interval_s, n_runs, rng)
            if max(ettr, played) >= NOWHERE:
                found[name] = (ettr, played, error)
    return found


def pairs(found: Mapping[str, tuple[float, float, float]]) -> tuple[int, int]:
    """Pairs of schemes that the Monte Carlo separates, and those ranked otherwise."""
    apart = otherwise = 0
    for a, b in combinations(found.values(), 2):
        difference = a[1] - b[1]
        if abs(difference) > 3 * np.hypot(a[2], b[2]):
            apart += 1
            otherwise += (a[0] - b[0]) * difference <= 0
    return apart, otherwise


def best_by(found: Mapping[str, tuple[float, float, float]], place: int) -> str:
    """The scheme with the highest ETTR: of the planner (0), of the Monte Carlo (1)."""
    return max(found, key=lambda name: found[name][place])


def run(size: int) -> Table:
    """Each setting with `size` runs of each scheme."""
    rows: list[tuple[str, ...]] = []
    totals, seed = np.zeros(4, dtype=int), 0
    for gpus, state in STATES.items():
        for storage in STORAGE_GB_PER_S:
            for replicas, writer in ((16, 1.0), (1, 0.25)):
                job = Job(gpus // 8, state, storage * 1e9, replicas, writer)
                found = setting(job, size, seed)
                seed += 1
                off = [abs(plan - ettr) / error for plan, ettr, error in found.values()]
                over, (apart, otherwise) = sum(z > 3 for z in off), pairs(found)
                totals += np.array([len(found), over, apart, otherwise])
                best = [best_by(found, place) for place in (0, 1)]
                rows.append(
                    (
                        f"{gpus:,}",
                        f"{storage} GB/s",
                        str(replicas),
                        str(len(found)),
                        f"{max(off):.1f}",
                        str(over),
                        str(apart),
                        str(otherwise),
                        " / ".join(f"{name} {found[name][i]:.3f}" for i, name in enumerate(best)),
                    )
                )
    rows.append(("all", "", "", str(totals[0]), "", *map(str, totals[1:]), ""))
    return Table(
        (
            "GPUs",
            "storage",
            "replicas",
            "schemes",
            "largest",
            "over 3",
            "apart",
            "otherwise",
            "best by planner / by Monte Carlo",
        ),
        tuple(rows),
        "[row, scheme]",
        "over 3: 1 in 370 by chance, twice that at most; otherwise: 0",
    )
