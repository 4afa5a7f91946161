"""The stores of `parity.py`: samples, captures, synthetic and simulated clusters, rare rules."""

# ruff: noqa: E501, S608 - temporary, with SQL of constants of this file

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

ROOT = Path(os.environ.get("PARITY_INPUTS", Path(__file__).resolve().parents[1]))


def ettr(*words: str | Path) -> None:
    """Run the command line of the code on the path."""
    code = "from ettr.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ettr {' '.join(map(str, words))}: {done.stderr}")


def ingest(store: Path, *files: Path, zone: str = "UTC", options: tuple[str, ...] = ()) -> None:
    """Read files into a store."""
    ettr("ingest", store, *files, "--timezone", zone, *options)


def write(folder: Path, name: str, text: str) -> Path:
    """A file with that text."""
    path = folder / name
    path.write_text(text)
    return path


# -- inputs made here ---------------------------------------------------------------------------


def synthetic(store: Path, seed: int = 5, days: float = 40.0) -> None:
    """The tables of the tests' synthetic cluster."""
    sys.path.insert(0, str(ROOT / "tests"))
    from ettr.store import open_store
    from ettr.tables import TABLES

    clusters = import_module("synthetic.cluster")

    tables = clusters.build_cluster(clusters.ClusterPlan(days=days), seed=seed).tables
    said = {"name": "synthetic", "source": "synthetic", "size_bytes": 0, "rows_read": 1}
    said |= {"rows_rejected": 0, "rows_skipped": 0, "options": "{}", "timezone": None}
    with open_store(store, create=True) as made, made.ingestion("f1") as ingestion:
        for name, rows in tables.items():
            if name in TABLES and name != "files":
                ingestion.write(name, rows)
        ingestion.commit({"file_id": "f1", **said, "notes": None})


def site(store: Path, nodes: int, days: int, seed: int = 3) -> None:
    """The texts of the tests' made-up site."""
    sys.path.insert(0, str(ROOT / "tests"))
    sites = import_module("synthetic.site")

    with tempfile.TemporaryDirectory() as folder:
        sites.write_site(
            Path(folder), sites.SitePlan(nodes=nodes, days=days, lemons=max(2, nodes // 160)), seed
        )
        ingest(store, *sorted(Path(folder).iterdir()), options=("--cluster", "helios"))


def nasty(store: Path, source: Path, share: float = 0.4) -> None:
    """A site with several causes a failure, bursts, long silences, rare states, arrays."""
    import duckdb

    from ettr.store import manifest
    from ettr.store.integrity import crc32_of

    shutil.copytree(source, store)
    made = json.loads((source / "store.json").read_text())
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; SET threads = 1; SELECT setseed(.3)")

    def read(table: str) -> str:
        return (
            f"read_parquet({[f'{source}/{p}' for p in made['parts'][table]]}, union_by_name=true)"
        )

    def replaced(table: str, sql: str) -> None:
        part = f"parts/{table}/nasty.parquet"
        con.execute(f"COPY ({sql}) TO '{store}/{part}' (FORMAT parquet)")
        made["parts"][table] = [part]

    replaced(
        "events",
        f"""SELECT * FROM {read("events")} UNION ALL BY NAME
        SELECT concat('n-', row_number() OVER ()) AS event_id, cluster, node,
          e + to_microseconds(CAST((r1 * 1300 - 900) * 1e6 AS BIGINT))
            + to_seconds(CAST(k * (40 + r3 * 500) AS BIGINT)) AS "time", 'xid' AS "check",
          (['79','48','74','63','94','119','31','45','62','64','95'])[1 + CAST(floor(r2 * 11) AS INT)]
            AS code, 'unknown' AS severity,
          CASE WHEN r3 < .7 THEN concat('gpu', CAST(floor(r3 * 8) AS INT)) END AS entity,
          'kernel-xid' AS source, 'f' AS file_id, row_number() OVER () AS line
        FROM (SELECT a.cluster, a.node, a."end" AS e, random() r1, random() r2, random() r3,
            unnest(range(CAST(floor(random() * 5) AS BIGINT) + 1)) k
          FROM (SELECT * FROM {read("allocations")} ORDER BY attempt_id, node) a
          JOIN {read("attempts")} t USING (attempt_id)
          WHERE a."end" IS NOT NULL AND (t.state = 'NODE_FAIL'
            OR (t.state IN ('FAILED', 'COMPLETED') AND random() < .05)) AND random() < {share})""",
    )
    replaced(
        "attempts",
        f"""SELECT * REPLACE (
          CASE WHEN line % 7 = 0 THEN concat(job_id, '_', line) ELSE job_id END AS job_id,
          CASE WHEN state = 'FAILED' AND line % 9 = 0 THEN 'REQUEUED'
            WHEN state = 'FAILED' AND line % 11 = 0 THEN 'BOOT_FAIL'
            WHEN state = 'FAILED' AND line % 13 = 0 THEN 'OUT_OF_MEMORY'
            WHEN state = 'FAILED' AND line % 17 = 0 THEN 'TIMEOUT'
            WHEN state = 'COMPLETED' AND line % 37 = 0 THEN 'DEADLINE'
            WHEN state = 'CANCELLED' AND line % 3 = 0 THEN 'PREEMPTED' ELSE state END AS state,
          CASE WHEN line % 5 = 0 THEN 125 ELSE derived_exit_signal END AS derived_exit_signal,
          CASE WHEN state = 'CANCELLED' AND line % 4 = 1 THEN NULL ELSE cancelled_by END
            AS cancelled_by,
          CASE WHEN line % 23 = 0 THEN NULL ELSE n_gpus END AS n_gpus,
          CASE WHEN line % 29 = 0 THEN 3600.0 ELSE suspended_s END AS suspended_s)
        FROM {read("attempts")}""",
    )
    replaced(
        "node_states",
        f"""SELECT * REPLACE (CASE WHEN line % 11 = 0 THEN NULL ELSE "end" END AS "end",
          CASE WHEN line % 13 = 0 THEN 'INVALID_REG' WHEN line % 17 = 0 THEN 'MAINT'
            WHEN line % 19 = 0 THEN 'REBOOT_ISSUED' ELSE state END AS state,
          CASE WHEN line % 23 = 0 THEN 'Kill task failed' WHEN line % 29 = 0 THEN NULL
            ELSE reason END AS reason) FROM {read("node_states")}""",
    )
    (store / "store.json").unlink()
    sums = {part: crc32_of(store / part) for parts in made["parts"].values() for part in parts}
    # summaries of events are of parts that are gone
    manifest.write(store, manifest.Manifest(made["parts"], sums, made.get("ingested", 4)))


HEAD = (
    "JobID|JobName|User|Account|Cluster|Partition|QOS|State|ExitCode|Submit|Eligible|Start|End|"
    "ElapsedRaw|NNodes|NodeList|AllocTRES|Comment\n"
)


def job(
    number: str | int,
    cluster: str,
    state: str,
    start_h: float,
    hours: float,
    nodes: str,
    tres: str,
    **given: str | float,
) -> str:
    """A line of sacct; times in hours of March 2026."""
    from datetime import UTC, datetime, timedelta

    def at(hour: float) -> str:
        moment = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=round(hour * 3600))
        return f"{moment:%Y-%m-%dT%H:%M:%S}"

    n_nodes = given.get("n_nodes", 1)
    submit = at(float(given.get("submit_h", start_h - 0.1)))
    cells = (number, given.get("name", "train"), given.get("user", "ann"),
             given.get("account", "lab"), cluster, given.get("partition", "gpu"),
             given.get("qos", "normal"), state, given.get("exit", "0:0"), submit, submit,
             at(start_h), at(start_h + hours) if hours else "Unknown", round(hours * 3600), n_nodes,
             nodes, tres, given.get("comment", ""))  # fmt: skip
    return "|".join(map(str, cells)) + "\n"


def two_clusters(store: Path, folder: Path) -> None:
    """One with GPUs and one without, of which the latter's nodes share names with the former's."""
    rows = [HEAD]
    for n in range(160):
        state = ("NODE_FAIL", "FAILED", "COMPLETED", "TIMEOUT", "CANCELLED by 1001")[(n * 7) % 5]
        rows.append(job(n + 1, "a", state, 4 * n, 3.5, f"n{n % 8}", "cpu=64,gres/gpu=8",
                        user=f"u{n % 7}", exit="1:0" if state == "FAILED" else "0:0"))  # fmt: skip
        rows.append(job(n + 1, "b", state, 4 * n + 1, 2.5, f"n{n % 5}", "cpu=64,node=1",
                        user=f"u{n % 5}", partition="cpu"))  # fmt: skip
    kernel = "".join(
        f"2026-03-{1 + n // 6:02d}T{(n * 4 + 3) % 24:02d}:29:10+00:00 n{n % 8} kernel: NVRM: Xid "
        f"(PCI:0000:3b:00): {(79, 31, 48, 63, 94)[n % 5]}, pid=1, x\n"
        for n in range(0, 150, 3)
    )
    states = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n" + "".join(
        f"{'ab'[n % 2]}|n{n % 5}|2026-03-{n + 1:02d}T05:00:00|2026-03-{n + 1:02d}T11:00:00|"
        f"{('DOWN*', 'DRAIN', 'MAINT', 'INVAL')[n % 4]}|{('Not responding', 'NHC: check_ib', 'maintenance', 'gres/gpu count reported lower than configured')[n % 4]}|root(0)\n"
        for n in range(24)
    )
    ingest(store, write(folder, "sacct.psv", "".join(rows)), write(folder, "events.psv", states))
    ingest(store, write(folder, "kern.log", kernel))


def unnamed(store: Path, folder: Path) -> None:
    """No log names the cluster, and a controller's log that does."""
    rows = [HEAD.replace("Cluster|", "")]
    for n in range(90):
        state = ("NODE_FAIL", "COMPLETED", "FAILED")[n % 3]
        line = job(
            n + 1, "X", state, 5 * n, 4.5, f"n[{n % 4}-{n % 4 + 1}]", "gres/gpu=16", n_nodes=2
        )
        rows.append(line.replace("|X|", "|", 1))
    log = "[2026-03-01T00:00:00.000] slurmctld version 24.05.1 started on cluster real\n" + "".join(
        f"[2026-03-{1 + n:02d}T{h:02d}:30:00.100] update_node: node n{n % 5} reason set to: NHC: XID 79\n"
        f"[2026-03-{1 + n:02d}T{h:02d}:30:00.100] update_node: node n{n % 5} state set to DRAINED\n"
        f"[2026-03-{1 + n:02d}T{h + 2:02d}:30:00.000] update_node: node n{n % 5} state set to IDLE\n"
        for n, h in ((n, (n * 5) % 20) for n in range(18))
    )
    ingest(store, write(folder, "sacct.psv", "".join(rows)))
    ingest(store, write(folder, "slurmctld.log", log))


def het_jobs(store: Path, folder: Path) -> None:
    """Heterogeneous jobs, requeued, with one part lost; an array; jobs without node lists."""
    rows = [HEAD]
    for n in range(40):
        hour, failed = 12.0 * n, n % 3 == 0
        for offset, gpus in ((0, 1), (1, 8)):
            state = "NODE_FAIL" if failed else "COMPLETED"
            rows.append(job(f"{1000 + 10 * n}+{offset}", "h", state, hour, 6, f"n{(n + 4 * offset) % 9}",
                            f"gres/gpu={gpus}", name="het"))  # fmt: skip
            if failed:
                rows.append(job(f"{1000 + 10 * n}+{offset}", "h", "COMPLETED", hour + 6.3, 4,
                                f"n{(n + 4 * offset + 1) % 9}", f"gres/gpu={gpus}", name="het",
                                submit_h=hour + 6.01))  # fmt: skip
        rows.append(job(f"{5000}_{n}", "h", ("COMPLETED", "FAILED", "OUT_OF_MEMORY", "PREEMPTED")[n % 4],
                        hour + 1, 3, f"n{n % 9}", "gres/gpu=2", exit="137:0" if n % 4 == 1 else "0:0"))  # fmt: skip
        rows.append(job(7000 + n, "h", "FAILED", hour + 1, 3, "None assigned", "gres/gpu=4"))
    states = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n" + "".join(
        f"h|n{(n + 4) % 9}|2026-03-{1 + n // 2:02d}T{12 * (n % 2) + 6:02d}:00:00|Unknown|DOWN*|Not responding|slurm(64030)\n"
        for n in range(0, 40, 6)
    )
    ingest(store, write(folder, "sacct.psv", "".join(rows)), write(folder, "events.psv", states))


def no_gpus(store: Path, folder: Path) -> None:
    """Jobs whose log accounts no GPUs, some still running, with and without an inventory."""
    rows = [HEAD]
    for n in range(120):
        state = ("COMPLETED", "NODE_FAIL", "FAILED", "CANCELLED by 0", "RUNNING")[
            n % 5 if n < 117 else 4
        ]
        hours = 0 if state == "RUNNING" and n >= 117 else 5
        state = "COMPLETED" if state == "RUNNING" and n < 117 else state
        rows.append(job(n + 1, "g", state, 5.5 * n, hours, f"n[{n % 6},{n % 6 + 1}]", "cpu=128,node=2",
                        n_nodes=2, user=f"u{n % 4}", partition=("long", "short")[n % 2]))  # fmt: skip
    inventory = "".join(
        f"NodeName=n{n} Arch=x86_64 CPUTot=64 Gres=gpu:h100:8 State=IDLE Partitions=long\n\n"
        for n in range(4)
    )
    ingest(store, write(folder, "sacct.psv", "".join(rows)))
    ingest(store, write(folder, "nodes.txt", inventory), options=("--cluster", "g"))


def training(store: Path, folder: Path) -> None:
    """Runs over requeues and chains of jobs with records of progress, one without saves."""
    from datetime import UTC, datetime, timedelta

    begin = datetime(2026, 3, 1, tzinfo=UTC)
    rows, lines = [HEAD], []

    def say(hour: float, job_id: str, event: str, step: int, seconds: float | None = None) -> None:
        line = {"v": 1, "run": "r", "cluster": "t", "job": job_id, "rank": 0,
                "time": (begin + timedelta(hours=hour)).timestamp(), "event": event, "step": step}  # fmt: skip
        lines.append(json.dumps(line | ({} if seconds is None else {"duration_s": seconds})))

    for run in range(6):
        step, hour = 0, 40.0 * run
        for part in range(3):
            number = 100 * run + part
            state = "COMPLETED" if part == 2 else ("NODE_FAIL", "TIMEOUT", "FAILED")[run % 3]
            rows.append(job(number, "t", state, hour, 10, f"n[{run},{run + 1},{run + 2},{run + 3}]",
                            "gres/gpu=32", n_nodes=4, name=f"run{run}", user="bob"))  # fmt: skip
            say(hour + 0.1, str(number), "start", step)
            for n in range(9):
                step += 1
                say(hour + 1 + n, str(number), "step", step, 3000.0 if run % 2 else None)
                if n % 3 == 2 and run != 4:
                    say(hour + 1.05 + n, str(number), "save", step, 120.0)
            step -= 2 * (run in (1, 2))
            hour += 10 if run % 2 else 10.5
    ingest(store, write(folder, "sacct.psv", "".join(rows)))
    ingest(store, write(folder, "progress.jsonl", "\n".join(lines) + "\n"))


def rare(store: Path, folder: Path) -> None:
    """What few sites have, all at once.

    Runs side by side, durations that overlap, a clock set back, records without a duration; a crash
    loop on one node; a runaway; states without an end; unknown reasons and checks; a shared outage
    that ends jobs of several users; jobs of 256 GPUs; rejects; racks; ends before starts; jobs put
    back by an operator; a log that begins late, one of other names, one read with a wrong zone.
    """
    rows = [HEAD]
    nodes = [f"n{n:02d}" for n in range(64)]
    for n in range(90):  # large jobs, back to back, of which a quarter fail
        state = ("COMPLETED", "NODE_FAIL", "COMPLETED", "FAILED", "CANCELLED by 1001")[n % 5]
        rows.append(job(n + 1, "r", state, 16.0 * n, 15.9, "n[00-31]", "cpu=9,gres/gpu=256",
                        n_nodes=32, name=f"big{n // 5}", user=f"u{n % 4}", qos="high",
                        comment="run=alpha" if n % 2 else ""))  # fmt: skip
        for k in range(3):
            end = ("COMPLETED", "PREEMPTED", "TIMEOUT", "OUT_OF_MEMORY", "REQUEUED", "FAILED")[
                (n + k) % 6
            ]
            rows.append(job(1000 + 3 * n + k, "r", end, 16.0 * n + 0.5, 6 + k, f"n{32 + (7 * n + k) % 32}",
                            "cpu=9,gres/gpu=8", user=f"u{k + 3}", qos="low",
                            exit="1:0" if end == "FAILED" else "0:0", partition=("a", "b")[k % 2]))  # fmt: skip
    for n in range(6):  # a crash loop on a node, each try of the same failure
        rows.append(job(3000, "r", "NODE_FAIL" if n < 5 else "COMPLETED", 500 + n, 0.4, "n60",
                        "gres/gpu=8", name="loop", user="eve", submit_h=499.9 + n))  # fmt: skip
    for n in range(5):  # all at one moment, of three users, by what they share
        rows.append(
            job(3100 + n, "r", "NODE_FAIL", 700, 10, f"n{40 + n}", "gres/gpu=8", user=f"w{n % 3}")
        )
    rows.append(job(3200, "r", "RUNNING", 20, 0, "n[00-01]", "gres/gpu=16", n_nodes=2, user="gone"))
    rows.append(job(3300, "r", "COMPLETED", 30, 0, "n02", "gres/gpu=8"))  # no end is known
    rows.append(job(3400, "r", "FAILED", 31, 1, "n03", "", exit="1:0"))  # nothing accounted
    for n in range(2):  # two jobs of a run at once
        rows.append(job(4000 + n, "r", "COMPLETED", 900 + 5 * n, 30, f"n[{33 + 4 * n}-{36 + 4 * n}]",
                        "gres/gpu=32", n_nodes=4, name="twice", user="bob", submit_h=899))  # fmt: skip
    rows.append("5000|broken|u|x\n")
    steps = []
    for n in range(40):
        moment = 1772323200 + 3600 * (900.5 + 0.5 * n)
        for number in ("4000", "4001"):
            shift = -7200 if number == "4001" and n > 30 else 0
            said = {"v": 1, "run": "twice", "cluster": "r", "job": number, "rank": 0, "time": moment + shift,
                    "event": ("step", "step", "save", "stall")[n % 4], "step": 2 * n}  # fmt: skip
            if n % 3:
                said["duration_s"] = 2400.0
            steps.append(json.dumps(said))
    kernel = [f"2026-03-{1 + n // 2:02d}T{7 + 16 * (n % 2) if n % 2 == 0 else 23:02d}:{50 + n % 9}:00+00:00 n{(5 * n) % 32:02d} "
              f"kernel: NVRM: Xid (PCI:0000:{n % 8}b:00): {(79, 48, 74, 94, 31, 119, 45, 62, 149)[n % 9]}, pid=1, "
              f"{'NETIR_LINK_EVT Fatal XC0 i0 Link 08' if n % 9 == 8 else 'x'}\n" for n in range(60)]  # fmt: skip
    kernel += [f"2026-03-{d:02d}T12:00:00+00:00 {n}.dom.example kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, x\n"
               for d in (3, 9) for n in nodes[:2]]  # fmt: skip
    reasons = (
        "Not responding",
        "moving rack",
        "NHC: check_fs_mount",
        "Kill task failed",
        "gremlins",
        "power work",
    )
    states = ["Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"]
    for n in range(48):
        day = 1 + n // 2
        end = "Unknown" if n % 7 == 0 else f"2026-03-{day + 1:02d}T0{n % 9}:00:00"
        states.append(f"r|{nodes[(3 * n) % 64]}|2026-03-{day:02d}T{6 + n % 12:02d}:00:00|{end}|"
                      f"{('DOWN*', 'DRAIN', 'DOWN', 'MAINT', 'IDLE+INVALID_REG', 'FAIL')[n % 6]}|"
                      f"{reasons[n % len(reasons)]}|{('root(0)', 'slurm(64030)')[n % 2]}\n")  # fmt: skip
    states += [f"r|n{40 + n}|2026-03-30T{14}:00:05|2026-03-30T18:00:00|DOWN*|NHC: check_fs_mount: /data|slurm(64030)\n"
               for n in range(5)]  # fmt: skip
    inventory = "".join(
        f"NodeName={name} Arch=x86_64 CPUTot=64 Gres=gpu:{'h100' if n < 32 else 'a100'}:8 State=IDLE\n\n"
        for n, name in enumerate(nodes[:60])
    )
    racks = "".join(f"SwitchName=s{k} Nodes=n[{16 * k:02d}-{16 * k + 15:02d}]\n" for k in range(4))
    checks = "time,node,code,severity,check\n" + "".join(
        f"2026-03-{1 + n % 28:02d}T{n % 24:02d}:15:00Z,{nodes[(11 * n) % 64]},,{('critical', 'ok')[n % 2]},site_{n % 3}\n"
        for n in range(200)
    )
    ingest(
        store,
        write(folder, "sacct.psv", "".join(rows)),
        write(folder, "events.psv", "".join(states)),
    )
    ingest(store, write(folder, "kern.log", "".join(kernel)), options=("--cluster", "r"))
    ingest(store, write(folder, "nodes.txt", inventory), write(folder, "topology.conf", racks),
           options=("--cluster", "r"))  # fmt: skip
    ingest(store, write(folder, "progress.jsonl", "\n".join(steps) + "\n"))
    ingest(store, write(folder, "checks.csv", checks),
           options=("--table", "events", "--cluster", "r", "--columns",
                    "time=time,node=node,code=code,severity=severity,check=check"))  # fmt: skip


def pipeline(store: Path, scale: float) -> None:
    """The store of the benchmark of the report: 4 million jobs and 50 million events times scale."""
    import_module("report_pipeline").generate(store, scale)


def recorded(store: Path, folder: Path, files: tuple[tuple[Path, tuple[str, ...]], ...]) -> None:
    """Files of tests or captures, each with its options."""
    for path, options in files:
        ingest(store, path, options=options)


# -- all of them -----------------------------------------------------------------------------------


def make(out: Path, data: Path, harvest: Path | None) -> Iterator[Path]:
    """Make the stores that are not there yet; what cannot be made is said.

    Yields:
        The folder of each.
    """
    example, morning = ROOT / "examples" / "slurm", ROOT / "tests" / "data" / "bad_morning"
    capture, traces = data / "slurm_capture", data / "traces"
    samples, cases = ROOT / "tests" / "samples", data.parent / "cases" / "cluster"
    made: dict[str, Callable[[Path, Path], object]] = {
        "example": lambda s, f: ingest(s, *sorted(example.iterdir())),
        "examplejobs": lambda s, f: ingest(s, example / "sacct.psv"),
        "examplelogs": lambda s, f: ingest(
            s, *(example / n for n in ("kernel.log", "events.psv", "slurmctld.log", "nodes.txt"))
        ),
        "morning": lambda s, f: ingest(s, *sorted(morning.iterdir())),
        "capture": lambda s, f: ingest(
            s, *(capture / n for n in ("sacct_all_D.psv", "sacctmgr_event_all.psv", "slurmctld.log", "scontrol_node.txt"))
        ),
        "capturejson": lambda s, f: ingest(s, capture / "sacct.json", capture / "slurmctld.log"),
        "phillips": lambda s, f: ingest(
            s, traces / "xdmod_slurm" / "phillips.log.zst", zone="America/New_York"
        ),
        "lanl": lambda s, f: ingest(s, next((traces / "lanl").glob("*.csv.zst"))),
        "infinitehbd": lambda s, f: ingest(
            s, traces / "infinitehbd" / "fault_trace.json.zst", options=("--nodes", "400")
        ),
        "samples": lambda s, f: recorded(s, f, tuple(
            (path, ("--cluster", "c", "--start", "2026-03-01T00:00Z"))
            for path in (samples / "pbs" / "20260301", samples / "kernel-xid" / "node07.dmesg",
                         samples / "nhc" / "marks.log", samples / "incidents" / "ledger.csv",
                         samples / "note" / "note.txt", samples / "gcm" / "checks.ndjson")
        )),
        "lsf": lambda s, f: ingest(s, samples / "lsf" / "lsb.acct"),
        "flux": lambda s, f: ingest(s, samples / "flux" / "jobs.json"),
        "exampleincidents": lambda s, f: recorded(s, f, (
            *((path, ()) for path in sorted(example.iterdir())),
            (samples / "incidents" / "ledger.csv", ("--cluster", "c")),
        )),
        "synthetic": lambda s, f: synthetic(s),
        "synthetic2": lambda s, f: synthetic(s, seed=11, days=15.0),
        "site": lambda s, f: site(s, 120, 30),
        "nasty": lambda s, f: nasty(s, out / "site" / "S"),
        "nastyexample": lambda s, f: nasty(s, out / "example" / "S", share=1.0),
        "site2000": lambda s, f: site(s, 2000, 60),
        "simsmall": lambda s, f: ettr("simulate", "run", "small", "--store", s, "--truth", f / "t"),
        "twoclusters": two_clusters,
        "unnamed": unnamed,
        "hetjobs": het_jobs,
        "nogpus": no_gpus,
        "training": training,
        "rare": rare,
        "pipeline1": lambda s, f: pipeline(s, 0.01),
    }  # fmt: skip
    if "PARITY_LARGE" in os.environ:
        made["pipeline"] = lambda s, f: pipeline(s, 1.0)
    for case in sorted(cases.glob("[0-9]*")) if cases.is_dir() else ():
        made[f"case{case.name.split('_')[0]}"] = partial(_each, case)
    for name, function in made.items():
        store = out / name / "S"
        if (store / "store.json").is_file():
            yield out / name
            continue
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir(parents=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(store, Path(folder))
                print(f"{name}: made", flush=True)
            except (RuntimeError, OSError, StopIteration) as error:
                print(f"{name}: NOT MADE: {str(error)[-300:]}", flush=True)
                shutil.rmtree(out / name, ignore_errors=True)
                continue
        yield out / name
    if harvest is not None:
        yield from _harvested(out, harvest)


def _each(case: Path, store: Path, _: Path) -> None:
    """Read what can be read of the files of a case."""
    kept = 0
    for path in sorted(case.iterdir()):
        if path.suffix in (".sh", ".txt") and path.name in ("run.sh", "lib.sh", "want.txt"):
            continue
        try:
            ingest(store, path, options=("--cluster", "c"))
            kept += 1
        except RuntimeError:
            continue
    if not kept:
        raise RuntimeError("nothing could be read")


def _harvested(out: Path, harvest: Path) -> Iterator[Path]:
    """Stores that tests asked something of, and the commands with which they asked."""
    for asked in sorted(harvest.glob("*.asked")):
        source, name = asked.with_suffix(""), f"t-{asked.stem}"
        if not (source / "store.json").is_file():
            continue
        if (out / name / "S").is_dir():
            yield out / name
            continue
        words: list[list[str]] = []
        tests = []
        for line in asked.read_text().splitlines():
            test, argv, *_ = json.loads(line)
            tests.append(test)
            if argv and len(argv) > 2:
                command = [argv[1], "S", *argv[3:]]
                if not {"-o", "--to", "--html", "--output", "--taxonomy"} & set(
                    command
                ) and not any("/" in word for word in command):
                    words.append(command)
        (out / name).mkdir(parents=True)
        shutil.copytree(source, out / name / "S")
        unique = [list(one) for one in dict.fromkeys(map(tuple, words))][:8]
        (out / name / "asked.json").write_text(json.dumps(unique))
        (out / name / "tests.txt").write_text("\n".join(dict.fromkeys(tests)) + "\n")
        yield out / name
