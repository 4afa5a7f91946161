"""The jobs and faults of the example's day, drawn from a seed: what is meant to happen."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

SEED = 20261116
NODES = tuple(f"gpu{i:02d}" for i in range(1, 17))
GPUS_PER_NODE = 8
LEMON = "gpu11"
HOUR_S = 3600.0
# users of the site and their accounts
ACCOUNTS = {
    "mira": "pretrain",
    "alice": "vision",
    "bob": "vision",
    "chen": "speech",
    "dana": "speech",
    "tom": "students",
}
Ending = Literal["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED"]


@dataclass(frozen=True)
class PlannedJob:
    """A job as its user means to submit it; `at_h` counts from midnight."""

    at_h: float
    name: str
    user: str
    qos: str
    n_nodes: int
    gpus_per_node: int
    work_s: float
    ending: Ending
    exit_code: int
    limit_min: int
    partition: str = "train"
    array: str = ""


@dataclass(frozen=True)
class PlannedFault:
    """A fault to be injected.

    `target` is a node, `training` (a node of the training run) or `other` (one of another job).
    `kernel` is what the node's kernel logs. `effect` is what becomes of the jobs there: the node
    dies with them (dead), they end with an exit code, or nothing happens (none). `reason` is what
    the operator's health check drains the node with. After `repair_h` it is back.
    """

    at_h: float
    target: str
    kernel: tuple[str, ...] = ()
    effect: Literal["dead", "crash", "none"] = "none"
    exit_code: int = 1
    reason: str = ""
    repair_h: float = 0.0
    cause: str = ""


def xid(code: int, text: str, pci: str = "0000:1b:00") -> str:
    """A line of the driver, as the kernel logs it."""
    return f"NVRM: Xid (PCI:{pci}): {code}, {text}"


FALLEN = xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
DOUBLE_BIT = xid(
    48, "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected"
)
REMAP = xid(63, "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping")
NVLINK = xid(74, "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6")
GSP = xid(119, "pid=41207, name=python, Timeout after 6s of waiting for RPC response from GPU3 GSP")
USER_31 = xid(
    31, "pid=52113, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS FAULT"
)
USER_13 = xid(13, "pid=48810, name=python, Graphics SM Warp Exception: Out Of Range Address")

FAULTS = (
    PlannedFault(1.7, LEMON, (REMAP,), cause="an early sign, without effect"),
    PlannedFault(2.65, "training", (FALLEN,), "dead", repair_h=0.8, cause="GPU off the bus"),
    PlannedFault(3.6, "other", (USER_31,), "crash", cause="the user's own program"),
    PlannedFault(
        5.2,
        LEMON,
        (REMAP, DOUBLE_BIT),
        "crash",
        reason="NHC: check_gpu_ecc: GPU 1 double bit ECC error",
        repair_h=0.7,
        cause="GPU memory",
    ),
    PlannedFault(7.1, "other", (USER_13,), "crash", cause="the user's own program"),
    PlannedFault(
        8.4,
        LEMON,
        (FALLEN,),
        "crash",
        reason="NHC: check_dcgm: GPU 1 XID 79 fallen off the bus",
        repair_h=1.1,
        cause="GPU off the bus",
    ),
    PlannedFault(10.3, "other", (), "dead", repair_h=0.45, cause="dies in silence"),
    PlannedFault(
        13.2,
        "training",
        (NVLINK,),
        "crash",
        exit_code=99,
        reason="NHC: check_nvlink: NVLink 6 of GPU 0 down",
        repair_h=1.4,
        cause="NVLink",
    ),
    PlannedFault(14.1, "gpu06", (REMAP,), cause="a sign, without effect"),
    PlannedFault(
        16.2,
        LEMON,
        (GSP,),
        "crash",
        reason="NHC: check_gpu: GPU 1 GSP timeout",
        repair_h=1.2,
        cause="GPU driver",
    ),
    PlannedFault(
        18.6,
        "training",
        (),
        "crash",
        exit_code=99,
        reason="NHC: check_hw_ib: mlx5_3 port 1 down",
        repair_h=1.0,
        cause="InfiniBand link",
    ),
    PlannedFault(19.4, "other", (USER_31,), "crash", cause="the user's own program"),
    PlannedFault(
        20.6,
        "other",
        (),
        "crash",
        reason="NHC: check_fs_mount: /lustre not mounted",
        repair_h=0.5,
        cause="file system",
    ),
    PlannedFault(21.6, LEMON, (FALLEN,), "dead", repair_h=0.9, cause="GPU off the bus"),
)
MAINTENANCE_ANNOUNCED_H, MAINTENANCE_DRAIN_H = 9.0, 11.5
MAINTENANCE_H, MAINTENANCE_END_H = 12.0, 15.0
MAINTENANCE_REASON = "scheduled maintenance: firmware update"
OPERATOR_REQUEUE_H = 4.2


def planned_jobs(seed: int = SEED) -> list[PlannedJob]:
    """Every job of the day but the training run, in order of submission."""
    rng = random.Random(seed)
    jobs = [
        PlannedJob(at_h, "burn-in", "mira", "high", 16, 8, 1500, "COMPLETED", 0, 45)
        for at_h in (0.02, 22.7)
    ]
    jobs += [
        PlannedJob(at_h, "release-eval", "dana", "high", 4, 8, 2400, "COMPLETED", 0, 60)
        for at_h in (5.6, 10.7, 17.4, 20.1)
    ]
    jobs += [
        PlannedJob(at_h, "lr-sweep", "tom", "normal", 1, 1, 900, "FAILED", 1, 30, array="0-11%4")
        for at_h in (6.3, 15.5)
    ]
    jobs += [_drawn(rng, at_h) for at_h in _arrivals(rng, 0.95, 21.9, 155)]
    return sorted(jobs, key=lambda job: job.at_h)


def _arrivals(rng: random.Random, begin_h: float, end_h: float, n: int) -> list[float]:
    return sorted(rng.uniform(begin_h, end_h) for _ in range(n))


def _drawn(rng: random.Random, at_h: float) -> PlannedJob:
    """One small job: its size, its length, its user and how it is to end."""
    n_nodes, gpus = rng.choices(
        [(1, 8), (1, 4), (1, 2), (1, 1), (2, 8), (4, 8)], [40, 12, 9, 9, 18, 12]
    )[0]
    mean_min = 40.0 if n_nodes > 1 else 50.0
    work_s = min(60 * mean_min * rng.lognormvariate(-0.25, 0.7), 4 * HOUR_S)
    user = rng.choices(["alice", "bob", "chen", "dana", "tom"], [3, 3, 2, 2, 2])[0]
    qos = "scavenger" if rng.random() < 0.35 else "normal"
    names = ["finetune", "eval", "ablation"] if gpus == GPUS_PER_NODE else ["notebook", "prepare"]
    weights = [55, 38, 4, 2, 3] if user == "tom" else [82, 7, 4, 3, 4]
    endings: list[Ending] = ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED"]
    ending = rng.choices(endings, weights)[0]
    code = rng.choice([1, 1, 1, 2, 127]) if ending == "FAILED" else 0
    if ending == "FAILED":
        work_s *= rng.uniform(0.03, 0.4)
    work_min = int(work_s / 60)
    limit = max(15, work_min * 3 // 4) if ending == "TIMEOUT" else 20 + work_min * 2
    if ending == "TIMEOUT":
        work_s = max(work_s, 60.0 * limit + 1800)
    partition = "interactive" if gpus < GPUS_PER_NODE else "train"
    name = rng.choice(names)
    return PlannedJob(at_h, name, user, qos, n_nodes, gpus, work_s, ending, code, limit, partition)
