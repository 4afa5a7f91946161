"""Whole reports over a Spark Connect server against DuckDB's, value by value.

    python benchmarks/engines.py [STORE ...]

Without stores: XDMoD's phillips and a captured Slurm 22.05, both of the shared data, and a
simulated week of 40 nodes. The server is a process of its own on one core of this machine, as
`SparkSession.builder.remote("local[1]")` starts it. Reports are the command's, `ettr report STORE
--json`. The anchor is that no value differs, numbers by at most 1e-9 of themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHARED = Path(os.environ.get("ETTR_SHARED", Path(__file__).resolve().parents[2] / "shared"))
PHILLIPS_FIELDS = (
    "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,"
    "elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
)
CAPTURED = ("sacct_jobs_X_D.psv", "slurmctld.log", "sacctmgr_event_all.psv", "scontrol_node.txt")
SERVER = """
import sys
from pyspark.sql import SparkSession
made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
made = made.config("spark.ui.showConsoleProgress", "false")
made = made.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
made = made.config("spark.connect.grpc.binding.port", sys.argv[1])
session = made.config("spark.log.level", "ERROR").getOrCreate()
print("ready", flush=True)
sys.stdin.read()
"""
TOLERANCE = 1e-9


def main() -> int:
    """Print a row for each store; 1 where a value differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path, nargs="*")
    given = parser.parse_args()
    n_other = 0
    with tempfile.TemporaryDirectory(prefix="ettr-engines-") as above, server() as url:
        print("store,values,other,s on DuckDB,s over Spark Connect")
        for store in given.store or stores(Path(above)):
            (ours, ours_s), (theirs, theirs_s) = report(store), report(store, "--engine", url)
            other = list(different(ours, theirs, ""))
            n_other += len(other)
            print(
                f"{store.name},{count(ours)},{len(other)},{ours_s:.0f},{theirs_s:.0f}", flush=True
            )
    return int(n_other > 0)


def stores(above: Path) -> list[Path]:
    """The stores, made here."""
    made = {name: above / name for name in ("phillips", "capture", "simulated")}
    log = SHARED / "data" / "traces" / "xdmod_slurm" / "phillips.log.zst"
    zone = ("--timezone", "America/New_York")
    program("ingest", made["phillips"], log, "--fields", PHILLIPS_FIELDS, *zone)
    logs = (SHARED / "data" / "slurm_capture" / name for name in CAPTURED)
    program("ingest", made["capture"], *logs, "--timezone", "UTC")
    program("simulate", "run", "small", "--store", made["simulated"], "--seed", "1")
    return list(made.values())


def report(store: Path, *words: str) -> tuple[Any, float]:
    """A report's JSON, and seconds that it took."""
    began = time.perf_counter()
    found = json.loads(program("report", store, "--json", *words))
    return found, time.perf_counter() - began


def program(*words: object) -> str:
    """What the command prints."""
    code = "from ettr.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"ettr {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


@contextmanager
def server() -> Iterator[str]:
    """The URL of a Spark Connect server in a process of its own."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        if process.stdout is None or not process.stdout.readline().startswith(b"ready"):
            raise SystemExit("no Spark Connect server came up")
        yield f"sc://localhost:{port}"
        process.communicate()


def count(found: Any) -> int:
    """Values in a document."""
    if isinstance(found, dict | list):
        return sum(map(count, found.values() if isinstance(found, dict) else found))
    return 1


def different(one: Any, other: Any, at: str) -> Iterator[str]:
    """Where two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from different(one[name], other[name], f"{at}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from different(*pair, f"{at}[{place}]")
    elif not same(one, other):
        print(f"{at}: {str(one)[:80]} and {str(other)[:80]}", file=sys.stderr)
        yield at


def same(one: Any, other: Any) -> bool:
    """Equal, numbers to a tolerance of themselves."""
    is_number = all(isinstance(side, int | float) for side in (one, other))
    if is_number and not isinstance(one, bool):
        return bool(one == other) or abs(one - other) <= TOLERANCE * max(abs(one), abs(other))
    return bool(one == other)


if __name__ == "__main__":
    sys.exit(main())
