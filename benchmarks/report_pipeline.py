"""From a store to the full report: 4 million jobs, 50 million events, 60 s on 2 cores, under 8 GB.

    python benchmarks/report_pipeline.py [--scale 1.0] [--folder FOLDER] [--keep] [--threads 2]
        [--beside CHECKOUT] [--repeats 1]

DuckDB writes a store of eleven months of a cluster of 2,000 nodes with 8 GPUs each: 4 million
attempts (1 % of them requeues), their 8.75 million allocations, 50 million observations (mostly
checks that passed and warnings, 1 % critical, XIDs among them), node states. A process of its own
then makes the report from it, as `ettr report STORE` does, and its JSON. Seconds count from the
opened store, imports included; memory is the peak of that process. Another process asks the same
store for its lemons alone, as `ettr lemons STORE` does: 20 s on 2 cores.

With --beside another checkout of this repository makes its report of the same logs in turn, from a
store as its own copy of this file writes it, and the ratios of each turn and their medians are
printed.
What only one of them reports counts in its time. CPU seconds decide: the clock of a loaded machine
says little. The anchor is 1.15 times commit 23dc444.
"""

# ruff: noqa: S608 - the SQL is made of constants of this file

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ANCHOR_S = 60.0
ANCHOR_GB = 8.0
ANCHOR_LEMONS_S = 20.0
ANCHOR_TIMES_OTHER = 1.15
HERE = Path(__file__).resolve().parents[1]
JOBS, EVENTS, NODES, DAYS, PARTS = 4_000_000, 50_000_000, 2_000, 334, 11
REQUEUED_EVERY = 100
CRITICAL_EVERY = 100

# How many nodes: (cumulative share, nodes). Means and the tail are those of a research cluster.
SIZES = (
    (0.80, 1),
    (0.88, 2),
    (0.94, 4),
    (0.979, 8),
    (0.991, 16),
    (0.9965, 32),
    (0.9989, 64),
    (1.0, 128),
)
STATES = (
    (0.62, "COMPLETED"),
    (0.86, "FAILED"),
    (0.94, "CANCELLED"),
    (0.975, "TIMEOUT"),
    (0.98, "OUT_OF_MEMORY"),
    (1.0, "COMPLETED"),
)
# check, code, severity, message of what shows no fault and of what does
NOISE = (
    ("check_fs_mount", None, "ok", None),
    ("check_hw_ib", None, "ok", None),
    ("check_dmesg", None, "warning", "slow response from disk"),
    ("check_ps_loadavg", None, "warning", "load average above the number of cores"),
    ("xid", "13", "unknown", "NVRM: Xid (PCI:0000:1b:00): 13, pid=4711, Graphics Exception"),
    ("xid", "43", "unknown", "NVRM: Xid (PCI:0000:1b:00): 43, pid=4711, Ch 00000008"),
)
CRITICAL = (
    ("xid", "79", "critical", "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."),
    ("xid", "48", "critical", "NVRM: Xid (PCI:0000:1b:00): 48, Double Bit ECC Error"),
    ("xid", "74", "critical", "NVRM: Xid (PCI:0000:1b:00): 74, NVLink error"),
    ("check_hw_ib", None, "critical", "no active port"),
    ("check_fs_mount", None, "critical", "/data is not mounted"),
)
REASONS = (
    "Not responding",
    "NHC: check_hw_ib: no active port",
    "NHC: GPU 3 has ECC errors",
    "NHC: check_fs_mount: /data not mounted",
    "maintenance",
    "bad fan, ticket 4711",
)


def pick(table: tuple[tuple[float, Any], ...], salt: int) -> str:
    """SQL that draws from cumulative shares."""
    *cases, last = table
    quoted = [f"'{v}'" if isinstance(v, str) else str(v) for _, v in (*cases, last)]
    whens = " ".join(
        f"WHEN u(i, {salt}) < {p} THEN {q}" for (p, _), q in zip(cases, quoted[:-1], strict=True)
    )
    return f"CASE {whens} ELSE {quoted[-1]} END"


def chosen(rows: tuple[tuple[str | None, ...], ...], column: int, salt: int) -> str:
    """SQL that draws one of the rows and gives a column of it."""
    values = ", ".join("NULL" if r[column] is None else f"'{r[column]}'" for r in rows)
    return f"[{values}][1 + (hash(i * 31 + {salt}) % {len(rows)})::BIGINT]"


class Writer:
    """Writes the parts of a store with DuckDB."""

    def __init__(self, folder: Path, scale: float, threads: int) -> None:
        import duckdb

        self.folder, self.scale = folder, scale
        self.duck = duckdb.connect()
        self.parts: dict[str, list[str]] = {}
        self.jobs, self.events = int(JOBS * scale), int(EVENTS * scale)
        self.days = max(14.0, DAYS * min(1.0, scale * 4))
        for line in (
            "SET TimeZone = 'UTC'",
            f"SET threads = {threads}",
            "SET memory_limit = '4GB'",
            f"SET temp_directory = '{folder}/spill'",
            "CREATE MACRO u(i, s) AS (hash(i * 100 + s) % 1000003) / 1000003.0",
            "CREATE MACRO moment(s) AS make_timestamptz((1735689600 + s)::BIGINT * 1000000)",
        ):
            self.duck.execute(line)

    def write(self, name: str, columns: dict[str, str], source: str, part: int) -> None:
        """Write one part of a table, as the store does; a column that is not named is null."""
        from ettr.store.merging import TOGETHER, codec_of
        from ettr.tables import TABLES, Kind

        types = {
            Kind.STRING: "VARCHAR",
            Kind.INT: "BIGINT",
            Kind.FLOAT: "DOUBLE",
            Kind.BOOL: "BOOLEAN",
            Kind.TIME: "TIMESTAMPTZ",
        }
        has_lines = "line" in TABLES[name].names
        given = (
            {
                "cluster": "'bench'",
                "source": f"'{source}'",
                "file_id": f"'{source}-{part}'",
                "line": "i",
            }
            if has_lines
            else {}
        )
        given |= {key: value for key, value in columns.items() if key != "FROM"}
        listed = ", ".join(
            f'({given.get(c.name, "NULL")})::{types[c.kind]} AS "{c.name}"' for c in TABLES[name]
        )
        target = self.folder / "parts" / name / f"{source}-{part}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        self.duck.execute(
            f"COPY (SELECT {listed} FROM {columns['FROM']}"
            f"{f' ORDER BY {TOGETHER[name]}, i' if name in TOGETHER else ''}) TO '{target}' "
            f"(FORMAT parquet, COMPRESSION {codec_of(TABLES[name])})"
        )
        self.parts.setdefault(name, []).append(str(target.relative_to(self.folder)))

    def range_of(self, whole: int, part: int) -> str:
        """SQL of the numbers of one part."""
        low, high = whole * part // PARTS, whole * (part + 1) // PARTS
        return f"(SELECT range AS i FROM range({low}, {high}))"

    def attempts_of(self, part: int) -> str:
        """SQL of the attempts of one part; a requeue carries the job id of the one before it."""
        horizon_s = self.days * 86400
        every = REQUEUED_EVERY
        # the last attempt of a hundred is the requeue of the one before it
        return f"""(
          SELECT i, job, again, n_nodes, elapsed_s, state, first,
                 CASE WHEN again THEN begin_s + elapsed_before_s ELSE submit_s END AS submit_s,
                 CASE WHEN again THEN begin_s + elapsed_before_s + 180 ELSE begin_s END AS start_s
          FROM (
            SELECT i, i % {every} = {every - 1} AS again,
                   CASE WHEN again THEN i - 1 ELSE i END AS job,
                   job * {horizon_s} / {self.jobs} AS submit_s,
                   floor(submit_s)::BIGINT + (hash(job * 7) % 3600)::BIGINT AS begin_s,
                   (60 + floor(-4500 * ln(1 - u(job, 1))))::BIGINT AS elapsed_before_s,
                   (60 + floor(-4500 * ln(1 - u(i, 1))))::BIGINT AS elapsed_s,
                   {pick(SIZES, 2).replace("u(i,", "u(job,")} AS n_nodes,
                   1 + (hash(job * 13) % ({NODES + 1} - n_nodes))::BIGINT AS first,
                   CASE WHEN i % {every} <> {every - 2} THEN {pick(STATES, 3)}
                        WHEN i % {every * 10} = {every - 2} THEN 'NODE_FAIL'
                        ELSE 'PREEMPTED' END AS state
            FROM {self.range_of(self.jobs, part)}))"""


def jobs_part(to: Writer, part: int) -> None:
    """Attempts and allocations of one part."""
    rows = to.attempts_of(part)
    key = "'bench/' || job || '@' || strftime(moment(submit_s), '%Y-%m-%dT%H:%M:%SZ')"
    user = "'user' || (hash(job // 20 * 3) % 400)"
    gpus = "CASE WHEN n_nodes > 1 THEN 8 * n_nodes ELSE 1 + (hash(job * 17) % 8)::BIGINT END"
    listed = (
        "CASE WHEN n_nodes = 1 THEN printf('node%04d', first) ELSE "
        "printf('node[%04d-%04d]', first, first + n_nodes - 1) END"
    )
    ends = {
        "start": "moment(start_s)",
        "end": "moment(start_s + elapsed_s)",
        "elapsed_s": "elapsed_s",
    }
    to.write(
        "attempts",
        {
            **ends,
            "FROM": rows,
            "attempt_id": key,
            "job_id": "job",
            "job_id_raw": "job",
            "name": "'train-' || (hash(job // 20 * 11) % 300)",
            "user": user,
            "account": "'team' || (hash(job) % 40)",
            "partition": "'train'",
            "qos": "'normal'",
            "state": "state",
            "cancelled_by": "CASE WHEN state = 'CANCELLED' THEN '1041' END",
            "exit_code": "CASE WHEN state = 'FAILED' THEN 1 ELSE 0 END",
            "exit_signal": "0",
            "submit": "moment(submit_s)",
            "eligible": "moment(submit_s)",
            "suspended_s": "0.0",
            "time_limit_s": "604800.0",
            "n_nodes": "n_nodes",
            "n_cpus": "96 * n_nodes",
            "n_gpus": gpus,
            "node_list": listed,
            "priority": "(hash(i) % 100000)::BIGINT",
            "work_dir": f"'/home/' || {user} || '/run' || (hash(job // 20) % 97)",
            "submit_line": "'sbatch -N' || n_nodes || ' train.sh'",
        },
        "slurm-sacct",
        part,
    )
    spread = f"(SELECT *, unnest(range(0, n_nodes)) AS k FROM {rows})"
    to.write(
        "allocations",
        {
            **ends,
            "FROM": spread,
            "attempt_id": key,
            "node": "printf('node%04d', first + k)",
            "n_gpus": f"({gpus}) / n_nodes",
        },
        "slurm-sacct",
        part,
    )
    # what the controller says of node failures and preemptions
    said = f"(SELECT * FROM {rows} WHERE state IN ('NODE_FAIL', 'PREEMPTED'))"
    to.write(
        "events",
        {
            "FROM": said,
            "event_id": "md5('ctld' || i)[:24]",
            "node": "CASE WHEN state = 'NODE_FAIL' THEN printf('node%04d', first) END",
            "time": "moment(start_s + elapsed_s)",
            "check": "'slurmctld'",
            "code": "state",
            "severity": "'critical'",
            "job_id": "job",
            "related_job_id": "CASE WHEN state = 'PREEMPTED' THEN (job + 1)::VARCHAR END",
        },
        "slurmctld-log",
        part,
    )


def events_part(to: Writer, part: int) -> None:
    """Observations of one part: one in a hundred critical, half of those in bursts of fifty."""
    critical = f"i % {CRITICAL_EVERY} = 0"
    # the first half of every ten thousand's critical ones come from one node within minutes
    burst = f"{critical} AND i % 10000 < 5000"
    step_s = to.days * 86400 / to.events

    def either(column: int) -> str:
        one = chosen(CRITICAL, column, 5).replace("hash(i ", "hash(thing ")
        return f"CASE WHEN {critical} THEN {one} ELSE {chosen(NOISE, column, 6)} END"

    rows = (
        f"(SELECT i, CASE WHEN {burst} THEN i // 10000 * 10000 ELSE i END AS thing, "
        f"CASE WHEN {burst} THEN thing * {step_s} + (i - thing) / 100 * 10 "
        f"ELSE i * {step_s} END AS time_s FROM {to.range_of(to.events, part)})"
    )
    to.write(
        "events",
        {
            "FROM": rows,
            "event_id": "printf('%016x%08x', hash(i), i % 4294967295)",
            "node": f"printf('node%04d', 1 + (hash(thing * 3) % {NODES})::BIGINT)",
            "time": "moment(time_s)",
            "check": either(0),
            "code": either(1),
            "severity": either(2),
            "entity_type": f"CASE WHEN {either(0)} = 'xid' THEN 'PCI' END",
            "entity": f"CASE WHEN {either(0)} = 'xid' THEN '0000:1b:00' END",
            "message": either(3),
        },
        "gcm",
        part,
    )


def nodes_part(to: Writer) -> None:
    """The inventory, and outages: twenty a node and year."""
    inventory = f"(SELECT range + 1 AS i FROM range({NODES}))"
    to.write(
        "nodes",
        {
            "FROM": inventory,
            "node": "printf('node%04d', i)",
            "n_gpus": "8",
            "n_cpus": "96",
            "gpu_type": "'h100'",
            "partitions": "'train'",
            "rack": "'rack' || (i // 16)",
        },
        "slurm-nodes",
        0,
    )
    count = int(NODES * 20 * to.days / 365)
    rows = f"""(SELECT range AS i, floor(u(range, 7) * {to.days * 86400})::BIGINT AS from_s,
                (300 - 20000 * ln(1 - u(range, 8)))::BIGINT AS long_s FROM range({count}))"""
    to.write(
        "node_states",
        {
            "FROM": rows,
            "node": f"printf('node%04d', 1 + (hash(i * 3) % {NODES})::BIGINT)",
            "state": "CASE WHEN i % 3 = 0 THEN 'DOWN' ELSE 'DRAIN' END",
            "reason": chosen(tuple((r,) for r in REASONS), 0, 9),
            "user": "'root'",
            "start": "moment(from_s)",
            "end": f"CASE WHEN i % {max(count // 20, 2)} > 0 THEN moment(from_s + long_s) END",
        },
        "slurm-events",
        0,
    )


def files_part(to: Writer) -> None:
    """One row in `files` for each part."""
    made = sorted({Path(part).stem for parts in to.parts.values() for part in parts})
    listed = ", ".join(f"'{name}'" for name in made)
    to.write(
        "files",
        {
            "FROM": f"(SELECT unnest([{listed}]) AS name, unnest(range({len(made)})) AS i)",
            "file_id": "name",
            "name": "name",
            "source": "name[:-3]",
            "size_bytes": "1",
            "rows_read": "1",
            "rows_rejected": "0",
            "rows_skipped": "0",
            "options": "'{}'",
            "ingested": "i + 1",
        },
        "bench",
        0,
    )


def add_summaries(to: Writer) -> None:
    """Those that an ingestion leaves of large parts of the events."""
    from ettr.store.folder import embedded_duckdb, summaries_of

    def new_summary(name: str, part: Path) -> Path:
        path = to.folder / "parts" / name / part.name
        path.parent.mkdir(exist_ok=True)
        return path

    parts = [to.folder / part for part in to.parts["events"]]
    for name, paths in summaries_of(embedded_duckdb, parts, (), new_summary).items():
        to.parts[name] = [str(path.relative_to(to.folder)) for path in paths]


def generate(folder: Path, scale: float = 1.0, threads: int = 2) -> None:
    """Write the store into `folder`, which must not be there yet."""
    folder.mkdir(parents=True)
    to = Writer(folder, scale, threads)
    for part in range(PARTS):
        jobs_part(to, part)
        events_part(to, part)
    nodes_part(to)
    files_part(to)
    to.duck.close()
    add_summaries(to)
    manifest = {"format": "ettr-store", "version": 4, "ingested": 2, "parts": to.parts}
    (folder / "store.json").write_text(json.dumps(manifest, indent=1))
    shutil.rmtree(folder / "spill", ignore_errors=True)


def measure(folder: Path, threads: int) -> dict[str, Any]:
    """Make the report as the command does, and say what each part took."""
    began, began_cpu = time.perf_counter(), time.process_time()
    from ettr.analysis import Analysis
    from ettr.report.html import render
    from ettr.report.page import document, fewer_collections, page
    from ettr.report.registry import PARTS
    from ettr.store import open_store

    laps: list[tuple[str, float, float]] = []
    last = [time.perf_counter(), time.process_time()]

    def lap(name: str) -> None:
        now = [time.perf_counter(), time.process_time()]
        laps.append((name, now[0] - last[0], now[1] - last[1]))
        last[:] = now

    with open_store(str(folder)) as store, fewer_collections():
        if store.connection is not None:
            store.connection.execute(f"SET threads = {threads}")
        analysis = Analysis(store)
        sizes = {
            name: analysis.facts.engine.rows(
                f"SELECT count(*) AS n FROM {analysis.facts.table(name)}", {}
            )[0]["n"]
            for name in ("attempts", "allocations", "events", "node_states")
        }
        lap("start")
        # the stages in the order in which the page asks for them, each by itself
        for name in (
            "period",
            "clusters",
            "failure_rows",
            "totals",
            "status",
            "size_unit",
            "sizes",
            "rates",
            "trend",
            "mttf",
            "goodput",
            "runs",
            "co_occurrence",
            "false_attribution",
            "models",
            "projection",
            "checkpoint_advice",
            "nodes",
            "faults",
            "quality",
            "previous",
            "failure_list",
            "user_failures",
            "evidence",
            "node_records",
            "recovery_times",
            "lemon_nodes",
        ):
            getattr(analysis, name)
            lap(name)
        html = render(page(analysis))
        lap("page")
        text = json.dumps(document(analysis))
        lap("json")
        failed = len(analysis.failure_rows)
    spent, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    peak_gb = peak_bytes() / 1e9
    return {
        "laps": laps,
        "s": spent,
        "cpu_s": cpu_s,
        "peak_gb": peak_gb,
        "rows": sizes,
        "failures": failed,
        "keys": len(PARTS),
        "html_mb": len(html) / 1e6,
        "json_mb": len(text) / 1e6,
    }


def measure_lemons(folder: Path, threads: int) -> dict[str, Any]:
    """Ask for the lemons alone, as the command does, and say what it took."""
    began, began_cpu = time.perf_counter(), time.process_time()
    from ettr.analysis import Analysis
    from ettr.store import open_store

    with open_store(str(folder)) as store:
        if store.connection is not None:
            store.connection.execute(f"SET threads = {threads}")
        found = Analysis(store).lemon_nodes
    return {
        "nodes": sum(group.nodes for group in found.groups),
        "s": time.perf_counter() - began,
        "cpu_s": time.process_time() - began_cpu,
        "peak_gb": peak_bytes() / 1e9,
    }


def peak_bytes() -> int:
    """Peak resident memory of this process alone; ru_maxrss begins at its parent's size."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def in_child(
    step: str, folder: Path, scale: float, threads: int, checkout: Path = HERE
) -> dict[str, Any]:
    """Run one step of a checkout in a process of its own, so that its memory is its own."""
    given = ("--folder", folder, "--scale", scale, "--threads", threads)
    # bytecode of both checkouts is kept from one turn to the next, as an installed package's is
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    printed = subprocess.run(
        [
            sys.executable,
            checkout / "benchmarks" / Path(__file__).name,
            *("--step", step),
            *(str(one) for one in given),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**kept, "PYTHONPATH": str(checkout / "src")},
    ).stdout
    return json.loads(printed) if printed else {}


def main() -> int:
    """Print seconds by the clock and of CPU for each part, the total and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of 4 million jobs")
    parser.add_argument("--folder", type=Path, help="where the store is made, or is already")
    parser.add_argument("--threads", type=int, default=2, help="cores to use")
    parser.add_argument("--keep", action="store_true", help="leave the store in its folder")
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turn with this")
    parser.add_argument("--repeats", type=int, default=1, help="how often each is measured")
    parser.add_argument("--step", choices=("generate", "report", "lemons"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step == "generate":
        generate(given.folder, given.scale, given.threads)
        return 0
    if given.step == "report":
        print(json.dumps(measure(given.folder, given.threads)))
        return 0
    if given.step == "lemons":
        print(json.dumps(measure_lemons(given.folder, given.threads)))
        return 0
    with tempfile.TemporaryDirectory(prefix="ettr-bench-") as temporary:
        folder = given.folder or Path(temporary) / "store"
        stores = {HERE: folder}
        if given.beside:
            stores[given.beside.resolve()] = folder.with_name(f"{folder.name}-beside")
        for checkout, store in stores.items():
            make_store(store, checkout, given.scale, given.threads)
        measured: dict[Path, list[dict[str, Any]]] = {checkout: [] for checkout in stores}
        for _ in range(given.repeats):
            for checkout in reversed(stores):
                step = ("report", stores[checkout], given.scale, given.threads, checkout)
                measured[checkout].append(in_child(*step))
        ours, *others = measured.values()
        lemons = in_child("lemons", folder, given.scale, given.threads)
        if given.folder and not given.keep:
            for store in stores.values():
                shutil.rmtree(store)
    missed = print_report(min(ours, key=lambda one: one["cpu_s"]), given.scale, given.threads)
    missed = print_lemons(lemons, given.scale, given.threads) or missed
    return compare(ours, others[0], given.scale) or missed if others else missed


def make_store(folder: Path, checkout: Path, scale: float, threads: int) -> None:
    """The store of a checkout, unless it is there."""
    if (folder / "store.json").exists():
        return
    began = time.perf_counter()
    in_child("generate", folder, scale, threads, checkout)
    held = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    print(f"made a store of {held / 1e6:,.0f} MB in {time.perf_counter() - began:.0f} s")


def compare(ours: list[dict[str, Any]], others: list[dict[str, Any]], scale: float) -> int:
    """Print all runs and the median of their ratios; 1 where the anchor is missed at full size.

    Each turn has a ratio of its own: a machine that others use too is now faster, now slower, and
    the best of one and the best of the other may be of different times.
    """
    print(f"\n{'turn':<6} {'this: s':>9} {'CPU s':>8} {'other: s':>9} {'CPU s':>8}   ratios")
    ratios: dict[str, list[float]] = {"s": [], "cpu_s": []}
    for turn, (mine, other) in enumerate(zip(ours, others, strict=True), start=1):
        for key, found in ratios.items():
            found.append(mine[key] / other[key])
        print(
            f"{turn:<6} {mine['s']:>9.2f} {mine['cpu_s']:>8.2f} {other['s']:>9.2f} "
            f"{other['cpu_s']:>8.2f}   {ratios['s'][-1]:.3f} {ratios['cpu_s'][-1]:.3f}"
        )
    by_clock, by_cpu = (statistics.median(found) for found in ratios.values())
    print(
        f"median ratio: {by_clock:.3f} by the clock, {by_cpu:.3f} of CPU time; anchor "
        f"{ANCHOR_TIMES_OTHER}; parts {ours[0]['keys']} and {others[0]['keys']}"
    )
    return int(by_cpu > ANCHOR_TIMES_OTHER and scale >= 1.0)


def print_lemons(measured: dict[str, Any], scale: float, threads: int) -> int:
    """Print a line; 1 where the anchor is missed at full size by the CPU's own time."""
    print(
        f"{'lemons alone':<20} {measured['s']:>8.2f} {measured['cpu_s']:>8.2f}   "
        f"anchor {ANCHOR_LEMONS_S:.0f} s; CPU s / {threads} cores "
        f"{measured['cpu_s'] / threads:.1f}; {measured['nodes']:,} nodes"
    )
    over = min(measured["s"], measured["cpu_s"] / threads) > ANCHOR_LEMONS_S
    return int(over and scale >= 1.0)


def print_report(measured: dict[str, Any], scale: float, threads: int) -> int:
    """Print the table; 1 where an anchor is missed at full size by the CPU's own time."""
    print(", ".join(f"{name} {n:,}" for name, n in measured["rows"].items()))
    print(
        f"failures {measured['failures']:,}, HTML {measured['html_mb']:.1f} MB, "
        f"JSON {measured['json_mb']:.1f} MB, load average {os.getloadavg()[0]:.1f}"
    )
    print(f"{'part':<20} {'s':>8} {'CPU s':>8}")
    for name, spent, cpu_s in measured["laps"]:
        print(f"{name:<20} {spent:>8.2f} {cpu_s:>8.2f}")
    print(
        f"{'whole report':<20} {measured['s']:>8.2f} {measured['cpu_s']:>8.2f}   "
        f"anchor {ANCHOR_S:.0f} s; CPU s / {threads} cores "
        f"{measured['cpu_s'] / threads:.1f}"
    )
    print(f"{'peak memory':<20} {measured['peak_gb']:>8.2f} GB        anchor {ANCHOR_GB:.0f} GB")
    over = (
        min(measured["s"], measured["cpu_s"] / threads) > ANCHOR_S
        or measured["peak_gb"] > ANCHOR_GB
    )
    return int(over and scale >= 1.0)


if __name__ == "__main__":
    sys.exit(main())
