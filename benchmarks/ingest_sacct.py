"""Anchor S1: `sacct -P` with every field (50,000 rows × 109 columns) into tables and a store.

    python benchmarks/ingest_sacct.py [--rows 50000] [--repeats 5] [--keep FILE]
        [--beside CHECKOUT]

The dump is generated deterministically, dirty records included: SubmitLines broken over lines,
separators in free text, a Latin-1 name, a truncated last record. The time is the reader's alone
(process start and imports are not counted); the anchor is 100,000 rows/s on 2 cores, where
gpucm 0.0.2 reads 930 rows/s. The floor of such a reader is Arrow's read of the same file into typed
columns, which repairs nothing: it runs in turn with ours, and CPU seconds are compared, since the
clock of a loaded machine says little. The anchor is 4.6 times Arrow's read.

With --beside another checkout of this repository reads an equal dump in the same run, by its own
copy of this file, and its CPU seconds are divided by the same read of Arrow's.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

Run = Callable[[Path, Path, int, int, int], float]
ANCHOR_ROWS_PER_S = 100_000
ANCHOR_TIMES_ARROW = 4.6
INTEGERS = (
    "AllocCPUS",
    "AllocNodes",
    "AssocID",
    "CPUTimeRAW",
    "DBIndex",
    "ElapsedRaw",
    "GID",
    "JobIDRaw",
    "NCPUS",
    "NNodes",
    "Priority",
    "QOSRAW",
    "ReqCPUS",
    "ReqNodes",
    "ResvCPURAW",
    "TimelimitRaw",
    "UID",
)
TIMES = ("Eligible", "End", "Start", "Submit")
FIELDS = (
    "Account AdminComment AllocCPUS AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead "
    "AveDiskWrite AvePages AveRSS AveVMSize BlockID Cluster Comment Constraints ConsumedEnergy "
    "ConsumedEnergyRaw Container CPUTime CPUTimeRAW DBIndex DerivedExitCode Elapsed ElapsedRaw "
    "Eligible End ExitCode Flags GID Group JobID JobIDRaw JobName Layout MaxDiskRead "
    "MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages "
    "MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask "
    "McsLabel MinCPU MinCPUNode MinCPUTask NCPUS NNodes NodeList NTasks Partition Priority QOS "
    "QOSRAW Reason ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax ReqCPUFreqMin ReqCPUS ReqMem ReqNodes "
    "ReqTRES Reservation ReservationId Reserved ResvCPU ResvCPURAW Start State Submit SubmitLine "
    "Suspended SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInAve "
    "TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode "
    "TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode "
    "TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot "
    "UID User UserCPU WCKey WCKeyID WorkDir"
)
STATES = (
    ("COMPLETED", 60),
    ("FAILED", 20),
    ("CANCELLED by 1041", 8),
    ("TIMEOUT", 5),
    ("OUT_OF_MEMORY", 3),
    ("PREEMPTED", 3),
    ("NODE_FAIL", 1),
)


def duration(seconds: int) -> str:
    """Seconds as sacct writes them: [DD-]HH:MM:SS."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def node_list(rng: random.Random, n_nodes: int) -> str:
    """A list of `n_nodes` nodes of a cluster of 1,000, mostly one range."""
    first = rng.randrange(1, 1001 - n_nodes)
    if n_nodes == 1:
        return f"gpu{first:04d}"
    if n_nodes >= 4 and rng.random() < 0.3:
        half = n_nodes // 2
        gap = first + half
        return f"gpu[{first:04d}-{gap - 1:04d},{gap + 1:04d}-{first + n_nodes:04d}]"
    return f"gpu[{first:04d}-{first + n_nodes - 1:04d}]"


def record(rng: random.Random, number: int, submit: datetime, state: str) -> dict[str, str]:
    """One job's fields, those that a real dump leaves empty left out."""
    n_nodes = rng.choice((1, 1, 1, 1, 1, 1, 2, 4, 8, 16, 32))
    start = submit + timedelta(seconds=rng.randrange(0, 7200))
    elapsed = rng.randrange(1, 4 * 86400)
    stamp = "%Y-%m-%dT%H:%M:%S"
    tres = f"billing={96 * n_nodes},cpu={96 * n_nodes},gres/gpu={8 * n_nodes},node={n_nodes}"
    task = number % 7 == 0
    user = f"user{rng.randrange(400):03d}"
    return {
        "Account": f"team{rng.randrange(40):02d}",
        "AllocCPUS": str(96 * n_nodes),
        "AllocNodes": str(n_nodes),
        "AllocTRES": tres,
        "AssocID": str(rng.randrange(4000)),
        "Cluster": "bench",
        "CPUTime": duration(elapsed * 96 * n_nodes),
        "CPUTimeRAW": str(elapsed * 96 * n_nodes),
        "DBIndex": str(10_000_000 + number),
        "DerivedExitCode": "0:0",
        "Elapsed": duration(elapsed),
        "ElapsedRaw": str(elapsed),
        "Eligible": submit.strftime(stamp),
        "End": (start + timedelta(seconds=elapsed)).strftime(stamp),
        "ExitCode": "1:0" if state == "FAILED" else "0:0",
        "Flags": "SchedBackfill,StartRecieved",
        "GID": "1000",
        "Group": "research",
        "JobID": f"{number - number % 7}_{number % 50}" if task else str(number),
        "JobIDRaw": str(number),
        "JobName": f"train-{rng.randrange(300)}",
        "NCPUS": str(96 * n_nodes),
        "NNodes": str(n_nodes),
        "NodeList": node_list(rng, n_nodes),
        "Partition": "train",
        "Priority": str(rng.randrange(1, 200_000)),
        "QOS": "normal",
        "QOSRAW": "1",
        "Reason": "None",
        "ReqCPUFreq": "Unknown",
        "ReqCPUFreqGov": "Unknown",
        "ReqCPUFreqMax": "Unknown",
        "ReqCPUFreqMin": "Unknown",
        "ReqCPUS": str(96 * n_nodes),
        "ReqMem": f"{n_nodes}T",
        "ReqNodes": str(n_nodes),
        "ReqTRES": tres,
        "Reserved": "00:10:00",
        "ResvCPU": "00:10:00",
        "ResvCPURAW": "600",
        "Start": start.strftime(stamp),
        "State": state,
        "Submit": submit.strftime(stamp),
        "SubmitLine": f"sbatch -N{n_nodes} --gres=gpu:8 /home/{user}/run-{number % 97}.sh",
        "Suspended": "00:00:00",
        "SystemCPU": "00:00:00",
        "Timelimit": "7-00:00:00",
        "TimelimitRaw": "10080",
        "TotalCPU": "00:00:00",
        "UID": str(rng.randrange(1000, 1400)),
        "User": user,
        "UserCPU": "00:00:00",
        "WorkDir": f"/home/{user}/runs/{number % 97}",
    }


def write_dump(path: Path, rows: int, seed: int = 1) -> int:
    """Write a dump of `rows` records and return how many of them cannot be read."""
    rng = random.Random(seed)
    names = FIELDS.split()
    states = [state for state, weight in STATES for _ in range(weight)]
    submit = datetime(2026, 1, 1)  # noqa: DTZ001
    with path.open("wb") as file:
        file.write(("|".join(names) + "\n").encode())
        for number in range(1, rows + 1):
            submit += timedelta(seconds=rng.randrange(0, 60))
            row = record(rng, number, submit, rng.choice(states))
            if number % 200 == 0:
                row["SubmitLine"] = 'sbatch --wrap python3 -c "\nimport run\nrun.main()"'
            elif number % 333 == 0:
                row["SubmitLine"] = "sbatch --wrap run || echo failed | mail"
            elif number % 1000 == 1:
                row["Comment"] = "r\xe9essai"
            line = "|".join(row.get(name, "") for name in names) + "\n"
            if number == rows:
                line = line[: len(line) // 2]
            file.write(line.encode("latin-1" if number % 1000 == 1 else "utf-8"))
    return 1


def main() -> None:
    """Print rows/s of the reader alone and with the write into a store, beside the anchor."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="keep the dump there")
    parser.add_argument("--beside", type=Path, help="another checkout, measured in the same run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "sacct.psv"
        unreadable = write_dump(path, given.rows)
        print(
            f"{given.rows:,} rows x {len(FIELDS.split())} columns, "
            f"{path.stat().st_size / 1e6:.0f} MB, best of {given.repeats}"
        )
        print(
            f"{'into':<10} {'s':>7} {'CPU s':>7} {'rows/s':>10} {'x Arrow':>8}   "
            f"anchors {ANCHOR_ROWS_PER_S:,} rows/s, {ANCHOR_TIMES_ARROW} x Arrow"
        )
        runs = {"Arrow": typed_read, "tables": into_tables, "a store": into_store}
        spent: dict[str, list[tuple[float, float]]] = {into: [] for into in runs}
        for k in range(given.repeats):
            for into, run in runs.items():
                spent[into].append(timed(run, path, Path(folder), k, given.rows, unreadable))
        other = beside(given.beside, given.rows, given.repeats) if given.beside else {}
        arrow_cpu_s = min(cpu_s for _, cpu_s in spent["Arrow"])
        for into, pairs in spent.items():
            best_s, best_cpu_s = (min(column) for column in zip(*pairs, strict=True))
            print(
                f"{into:<10} {best_s:>7.3f} {best_cpu_s:>7.3f} {given.rows / best_s:>10,.0f} "
                f"{best_cpu_s / arrow_cpu_s:>8.2f}"
            )
        for into, (best_s, best_cpu_s) in other.items():
            print(
                f"{into:<10} {best_s:>7.3f} {best_cpu_s:>7.3f} {given.rows / best_s:>10,.0f} "
                f"{best_cpu_s / arrow_cpu_s:>8.2f}   the other checkout"
            )


def beside(checkout: Path, rows: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds by the clock and of CPU that another checkout prints for tables and for a store."""
    printed = subprocess.run(
        [
            sys.executable,
            checkout / "benchmarks" / Path(__file__).name,
            *("--rows", str(rows), "--repeats", str(repeats)),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")},
    ).stdout
    found = {}
    for line in printed.splitlines():
        for into in ("tables", "a store"):
            if line.startswith(into):
                best_s, cpu_s = line.removeprefix(into).split()[:2]
                found[into] = (float(best_s), float(cpu_s))
    return found


def timed(
    run: Run, path: Path, folder: Path, k: int, rows: int, unreadable: int
) -> tuple[float, float]:
    """Seconds by the clock and seconds of CPU of one run."""
    began = time.process_time()
    spent = run(path, folder, k, rows, unreadable)
    return spent, time.process_time() - began


def typed_read(path: Path, folder: Path, k: int, rows: int, unreadable: int) -> float:
    """Seconds of Arrow's CSV reader with a type for every column; broken lines are left out."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() for name in FIELDS.split()}
    types |= dict.fromkeys(INTEGERS, pa.int64())
    types |= dict.fromkeys(TIMES, pa.timestamp("s"))
    began = time.perf_counter()
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(encoding="latin-1"),
        parse_options=csv.ParseOptions(
            delimiter="|", quote_char=False, invalid_row_handler=lambda _: "skip"
        ),
        convert_options=csv.ConvertOptions(column_types=types, null_values=["", "Unknown"]),
    )
    spent = time.perf_counter() - began
    if not 0.95 * rows <= table.num_rows <= rows:
        raise SystemExit(f"Arrow read {table.num_rows} of {rows}")
    return spent


def into_tables(path: Path, folder: Path, k: int, rows: int, unreadable: int) -> float:
    """Seconds from the file to Arrow tables; checks that no record is lost."""
    from ettr.sources.base import ReadOptions
    from ettr.sources.origin import HEAD_BYTES, Origin, open_bytes
    from ettr.sources.slurm.sacct import SOURCE

    with open_bytes(path) as file:
        head = file.read(HEAD_BYTES)
    began = time.perf_counter()
    batches = list(SOURCE.read(Origin(path, "bench", head), ReadOptions(timezone="UTC")))
    spent = time.perf_counter() - began
    kept = sum(b.tables["attempts"].num_rows for b in batches if "attempts" in b.tables)
    rejected = sum(b.rows_rejected for b in batches)
    if (kept, rejected) != (rows - unreadable, unreadable):
        raise SystemExit(f"kept {kept} and rejected {rejected} of {rows}")
    return spent


def into_store(path: Path, folder: Path, k: int, rows: int, unreadable: int) -> float:
    """Seconds of `ettr ingest` into a new store, recognition and hashing included."""
    from ettr.sources.base import ReadOptions
    from ettr.sources.ingest import ingest_file
    from ettr.store import open_store

    began = time.perf_counter()
    store = open_store(str(folder / f"store{k}"), create=True)
    done = ingest_file(store, path, ReadOptions(timezone="UTC"))
    spent = time.perf_counter() - began
    if (done.rows_read, done.rows_rejected) != (rows, unreadable):
        raise SystemExit(f"read {done.rows_read} and rejected {done.rows_rejected} of {rows}")
    return spent


if __name__ == "__main__":
    main()
