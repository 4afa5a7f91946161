"""Small stores of which, together, every fact in a file has rows, and what is asked of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Words = tuple[str | Path, ...]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "slurm"
NCCL_TESTS = Path(__file__).resolve().parents[1] / "samples" / "nccl-tests" / "all-reduce.txt"
WATCH = Path(__file__).resolve().parents[1] / "samples" / "kubernetes" / "watch.jsonl"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HEAD = (
    "Cluster|JobID|JobIDRaw|JobName|User|Account|Partition|QOS|State|ExitCode|Submit|Eligible|Start|End|"
    "ElapsedRaw|NNodes|NodeList|AllocTRES|Dependency|ExcNodeList|TimelimitRaw\n"
)
STATES = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
LEDGER = "date,kind,hours_lost,gpu_hours_lost\n2026-11-16,GPU,6.5,52\n"


def example(folder: Path) -> Iterator[Words]:
    """The bundled day with a ledger of incidents, and summaries of its events kept."""
    store, ledger = folder / "store", folder / "incidents.csv"
    ledger.write_text(LEDGER)
    yield "ingest", store, *sorted(EXAMPLE.iterdir()), ledger, "--timezone", "UTC"
    yield "report", store, "--json", "--gpu-type", "h100"
    yield "explain", store, "2", "--json"
    yield "nodes", store, "--xid", "79", "--json"


def site(folder: Path) -> Iterator[Words]:
    """Two clusters, a kernel log that names neither, and what few sites have."""
    store = folder / "store"
    logs = {"sacct.psv": jobs(), "events.psv": states(), "slurmctld.log": controller()}
    for name, text in {**logs, "kern.log": kernel()}.items():
        (folder / name).write_text(text)
        yield "ingest", store, folder / name, "--timezone", "UTC"
    (folder / "progress.jsonl").write_text(progress(("501", "502")))
    (folder / "checks.csv").write_text(checks())
    columns = ",".join(f"{name}={name}" for name in ("time", "node", "code", "severity", "check"))
    table = ("--table", "events", "--cluster", "a", "--columns", columns)
    yield "ingest", store, folder / "progress.jsonl"
    yield "ingest", store, folder / "checks.csv", *table
    yield "report", store, "--json"
    yield "report", store, "--json", "--since", "2026-03-05", "--until", "2026-03-20"
    yield "report", store, "--json", "--cluster", "a"
    yield "timeline", store, "--json"
    yield "node", store, "n1", "--json"
    yield "lemons", store, "n1", "--json"
    yield "ingest", store, NCCL_TESTS, "--cluster", "a"
    yield "checks", store, "--json"
    yield "slow", store, "--json"


def records(folder: Path) -> Iterator[Words]:
    """Progress of training alone."""
    store = folder / "store"
    (folder / "progress.jsonl").write_text(progress(("501", None)))
    yield "ingest", store, folder / "progress.jsonl"
    yield "report", store, "--json"


def pods(folder: Path) -> Iterator[Words]:
    """A job of Kubernetes of which a pod was replaced."""
    yield "ingest", folder / "store", WATCH, "--cluster", "a"
    yield "failures", folder / "store", "--json"


STORES = {"records": records, "pods": pods, "example": example, "site": site}

# What only long histories make a command ask, asked of the last report about `site`
PLAIN = (
    *("ended_by_nodes", "failures_of_users", "last_times", "other_moments", "recorded_faults"),
    *("restarted_attempts", "restart_lines", "tickets"),
    *("away_states", "chosen_some", "error_sources", "event_ends"),
    "held_spans",
    *("rank_steps", "rank_steps_of_jobs", "run_segments", "run_segments_held"),
    "save_gaps",
)
DIRECT: dict[str, dict[str, Any]] = {
    **{name: {} for name in PLAIN},
    "history_similar": {"job_id": "460", "job_base": "460", "job_stem": "46"},
    "held_on_asked": {"asked_node_names": frozenset({"n1"})},
    "repeated_jobs": {"first_rows": 1 << 20},
    "ended_by_size": {"scored_from_s": 0.0, "scored_to_s": 4e9},
    "held_on_claimed": {"claimed": frozenset({("a", "n1")})},
    "held_on_repaired": {"repaired": SimpleNamespace(values=[("a", "n1")])},
    "node_cells": {"edges": SimpleNamespace(values=[1.7725e9, 1.773e9, 1.7735e9])},
}


def at(hours: float) -> str:
    """A moment so many hours after the beginning, in UTC."""
    return f"{BEGIN + timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}"


def job(
    cluster: str, number: str | int, state: str, start_h: float, hours: float, **given: Any
) -> str:
    """A line of sacct."""
    submit = at(given.get("submit_h", start_h - 0.1))
    cells = (
        *(
            cluster,
            number,
            given.get("raw", ""),
            given.get("name", "train"),
            given.get("user", "ann"),
            "lab",
        ),
        *(given.get("partition", "gpu"), given.get("qos", "normal"), state),
        *(given.get("exit", "0:0"), submit, submit, at(start_h)),
        *("Unknown" if state == "RUNNING" else at(start_h + hours), round(hours * 3600)),
        *(given.get("n_nodes", 1), given.get("nodes", "n1"), given.get("tres", "gres/gpu=8")),
        *(given.get("dependency", ""), given.get("excluded", ""), given.get("limit", "")),
    )
    return "|".join(map(str, cells)) + "\n"


def jobs() -> str:
    """Jobs of both clusters."""
    rows = [HEAD]
    kinds = ("NODE_FAIL", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1001", "PREEMPTED")
    for n in range(72):
        state = kinds[n % 6]
        given = {"user": f"u{n % 5}", "exit": "1:0" if state == "FAILED" else "0:0"}
        rows.append(job("a", n + 1, state, 8 * n, 7.5, nodes=f"n{n % 8}", **given))
        large = {"nodes": "n[8-39]", "n_nodes": 32, "tres": "gres/gpu=256", "name": "big"}
        rows.append(job("a", 100 + n, kinds[n % 3], 8 * n + 0.2, 7.1, **large, qos="high"))
        rows.append(job("b", n + 1, state, 8 * n + 1, 2.5, nodes=f"m{n % 5}", partition="cpu",
                        tres="cpu=64,node=1", **given))  # fmt: skip
    for n in range(12):  # heterogeneous jobs, of which every third is lost and begins again
        for part, gpus in ((0, 1), (1, 8)):
            at_h, number = 40.0 * n, f"{300 + 10 * n}+{part}"
            given = {
                "raw": 300 + 10 * n + part,
                "tres": f"gres/gpu={gpus}",
                "nodes": f"n{(n + 4 * part) % 8}",
                "name": "het",
            }
            state = "NODE_FAIL" if n % 3 == 0 else "COMPLETED"
            rows.append(job("a", number, state, at_h, 6, **given))
            if n % 3 == 0:
                again = {**given, "submit_h": at_h + 6.01}
                rows.append(job("a", number, "COMPLETED", at_h + 6.3, 4, **again))
        exit_code = {"exit": "137:0" if n % 4 == 1 else "0:0", "tres": "gres/gpu=2"}
        ended = ("COMPLETED", "FAILED", "OUT_OF_MEMORY", "PREEMPTED")[n % 4]
        rows.append(job("a", f"460_{n}", ended, 40.0 * n + 1, 3, nodes=f"n{n % 8}", **exit_code))
        rows.append(job("a", 480 + n, "FAILED", 40.0 * n + 1, 3, nodes="None assigned"))
    rows.append(job("b", 301, "COMPLETED", 30, 2, nodes="m1"))  # the id of a part above
    rows.append(job("a", 301, "COMPLETED", 30, 2))
    for n in range(5):  # a crash loop
        rows.append(job("a", 500, "NODE_FAIL", 200 + n, 0.4, name="loop", submit_h=199.9 + n))
    for n, number in enumerate((501, 502)):  # a run of two jobs, of which one waits for the other
        chain = {"name": "run", "user": "bob", "nodes": f"n[{n},{n + 1}]", "n_nodes": 2}
        waits = {"dependency": "afterany:501"} if n else {"excluded": "n[1,6]"}
        rows.append(
            job("a", number, ("NODE_FAIL", "COMPLETED")[n], 300 + 31 * n, 30, **chain, **waits)
        )
    rows.append(job("a", 510, "NODE_FAIL", 100, 5, nodes="n7"))  # an administrator's doing
    rows.append(job("a", 511, "RUNNING", 400, 190, nodes="n3", limit=60))  # forgotten
    rows.append(job("a", 512, "CANCELLED", 100, 5, nodes="n6"))
    rows.append(job("a", 513, "NODE_FAIL", 120, 5, nodes="n7"))  # under whom somebody moves a rack
    rows.append(job("a", 514, "COMPLETED", 120, 5, nodes="k1", tres="cpu=64,node=1"))
    for n in range(25):  # a black hole
        at_once = {"nodes": "n5", "user": f"u{n % 5}", "exit": "1:0"}
        rows.append(job("a", 600 + n, "FAILED", 247 + n / 10, 0.005, **at_once))
    for n in range(8):  # and of jobs on two nodes
        two = {"nodes": f"n[5,{10 + n}]", "n_nodes": 2, "user": f"u{n % 5}", "exit": "1:0"}
        rows.append(job("a", 630 + n, "FAILED", 247.05 + n / 10, 0.005, **two))
    rows.append("a|broken\n")
    return "".join(rows)


def states() -> str:
    """States of nodes of both clusters."""
    rows = [STATES]
    reasons = (
        "Not responding",
        "NHC: check_ib",
        "maintenance",
        "gres/gpu count too low",
        "gremlins",
    )
    for n in range(48):
        until = "Unknown" if n % 11 == 0 else at(12 * n + 13)
        state = "POWERED_DOWN" if n == 47 else ("DOWN*", "DRAIN", "MAINT", "INVAL")[n % 4]
        cluster, node = ("a", f"n{n % 8}") if n % 2 == 0 else ("b", f"m{n % 5}")
        rows.append(
            f"{cluster}|{node}|{at(12 * n + 7.5)}|{until}|{state}|{reasons[n % 5]}|root(0)\n"
        )
    rows.append(f"a|n7|{at(125)}|{at(139)}|DOWN|moving rack|ann(1001)\n")
    rows.append(f"a|n7|{at(105)}|{at(109)}|DOWN|maintenance: new firmware|root(0)\n")
    return "".join(rows)


def controller() -> str:
    """Who cancelled a job, of which the accounting says nothing."""
    return (
        f"[{at(0)}.000] slurmctld version 24.05.1 started on cluster a\n"
        f"[{at(104.999)}.000] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=512 uid 0\n"
    )


def kernel() -> str:
    """Errors of GPUs near the ends of jobs, in a log that names no cluster."""
    return "".join(
        f"{at(8 * n + 7.4 + k / 100)}+00:00 n{n % 8} kernel: NVRM: Xid (PCI:0000:3b:00): "
        f"{(79, 31, 48, 63, 94, 119)[(n + k) % 6]}, pid=1, x\n"
        for n in range(0, 72, 2)
        for k in range(3)
    )


def checks() -> str:
    """Findings of checks, tickets, and faults that somebody wrote down."""
    kinds = (
        ("site_1", "critical"),
        ("ticket", "critical"),
        ("fault", "critical"),
        ("serial", "ok"),
    )
    return "time,node,code,severity,check\n" + "".join(
        f"{at(6 * n)}Z,n{n % 8},{n % 3},{kinds[n % 4][1]},{kinds[n % 4][0]}\n" for n in range(90)
    )


def progress(of_jobs: tuple[str | None, ...]) -> str:
    """Steps, saves and restarts of one run; a job without its cluster."""
    lines = []
    for place, number in enumerate(of_jobs):
        for n in range(24):
            event = ("step", "step", "save", "save", "restart", "start")[(n + 5) % 6]
            seconds = (BEGIN + timedelta(hours=300.5 + 31 * place + n)).timestamp()
            line: dict[str, Any] = {"v": 1, "run": "r", "rank": 0, "time": seconds, "event": event}
            line |= {"step": n, **({"duration_s": 900.0} if event in ("step", "save") else {})}
            line |= {"job": number} if number else {}
            line |= {"cluster": "a"} if place else {}
            lines.append(json.dumps(line))
            if event == "step":
                wait = {"event": "stall", "duration_s": 60.0, "time": seconds - 840.0}
                lines.append(json.dumps(line | wait | {"detail": {"cause": "data"}}))
    return "\n".join(lines) + "\n"
