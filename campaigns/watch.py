"""A week of a simulated cluster, watched: killed, on a full disk, and undisturbed.

The week is written as Slurm and the kernel would have written it, an hour at a time and compressed
to seconds; the files rotate each day and yesterday's are compressed. `killed`: `ettr watch` gets
SIGKILL at a moment drawn over the time that a look takes, so often; and as often as said the disk
of its store, a small tmpfs, has no room left. `undisturbed`: one process sees all of it. Afterwards
each table of the store is compared with one ingestion of the rotated logs, and what is served with
what is served of that. Both weeks end with looks that each find one line more, so that memory is
also measured while the store stays as large as it is. Needs root, for the tmpfs.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from campaigns import Table

TITLE = "A week watched"
SIZE = 100
NODES_A_KILL = 20
DAYS, HOURS = 7, 24
DISK_MIB = 256
EVERY = 4
MORE = 30
LONGEST_S = 15.0
ETTR = Path(sys.executable).with_name("ettr")
_COUNTER = re.compile(r"^(ettr_\w+_total(?:\{.*\})?) (\S+)$", re.MULTILINE)
_OF_FILES = {"file_id", "line", "ingested"}
_END = {"sacct.psv": 12, "events.psv": 3}
VERDICT = (
    "nothing lost or counted twice, no counter falls; 246 to 290 MiB over the week, 284 while the "
    "store stays as large"
)


def run(size: int) -> Table:
    """Two weeks of 20 nodes a kill: one with `size` kills and a tenth as many full disks."""
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        nodes = NODES_A_KILL * size
        hours = simulated(folder, nodes)
        whole = folder / "whole"
        for at, hour in enumerate(hours):
            append(whole, hour)
            if at % HOURS == HOURS - 1:
                rotate(whole, at // HOURS)
        line = next(hour["kernel.log"] for hour in reversed(hours) if "kernel.log" in hour)
        more = {"kernel.log": line.splitlines(keepends=True)[-1]}
        for _ in range(MORE):
            append(whole, more)
        site_file(folder / "batch.toml", whole)
        metrics = ettr("watch", folder / "batch", "--config", folder / "batch.toml", "--once")
        batch = rows_of(folder / "batch"), gauges(metrics)
        with ThreadPoolExecutor(2) as threads:
            names, kills = ("killed", "undisturbed"), (size, 0)
            rows = [
                (name, str(nodes), *row)
                for name, row in zip(
                    names,
                    threads.map(
                        lambda n, k: watched(folder / n, hours, more, k, batch), names, kills
                    ),
                    strict=True,
                )
            ]
    return Table(
        (
            *(
                "week",
                "nodes",
                "attempts",
                "kills",
                "full disks",
                "looks that failed",
                "rows",
                "that differ",
            ),
            *("counters that fell", "gauges that differ", "resident at each day's end, MiB"),
            f"resident after every 10 of {MORE} looks with a line more, MiB",
        ),
        tuple(rows),
        "42",
        "tables and gauges equal those of one ingestion, no counter falls, and memory is flat",
        VERDICT,
    )


def simulated(folder: Path, nodes: int) -> list[dict[str, str]]:
    """Lines of each hour of the week, by file."""
    from ettr.sim.cluster.log import write_logs
    from ettr.store import open_store

    text = (files("ettr.sim.cluster") / "scenarios" / "small.toml").read_text("utf-8")
    text = text.replace("nodes = { value = 40,", f"nodes = {{ value = {nodes},")
    text = text.replace("jobs_per_day = { value = 360,", f"jobs_per_day = {{ value = {9 * nodes},")
    (folder / "week.toml").write_text(text)
    ettr("simulate", "run", folder / "week.toml", "--store", folder / "truth")
    (folder / "logs").mkdir()
    with open_store(folder / "truth") as opened:
        write_logs(opened, folder / "logs", "of a campaign")
    hours: list[dict[str, str]] = [{} for _ in range(DAYS * HOURS)]
    for path in (folder / "logs" / name for name in ("sacct.psv", "events.psv", "kernel.log")):
        lines = path.read_text().splitlines(keepends=True)
        column = _END.get(path.name)
        head = lines.pop(0) if column is not None else ""
        for line in lines:
            stamp = line.split("|")[column] if column is not None else line
            at = stamp[:19] if stamp[:2] == "20" else "9999"
            hour = hours[min(len(hours) - 1, hour_of(at))]
            hour.setdefault(path.name, head)
            hour[path.name] += line
    return hours


def hour_of(stamp: str) -> int:
    """Hours since the scenario began; what has no end yet is of the last."""
    if stamp == "9999":
        return DAYS * HOURS
    since = datetime.fromisoformat(stamp) - datetime(2026, 1, 5)  # noqa: DTZ001 - of the logs
    return max(0, int(since.total_seconds() // 3600))


def append(folder: Path, hour: dict[str, str]) -> None:
    """Write an hour; a file has its header once."""
    folder.mkdir(exist_ok=True)
    for name, text in hour.items():
        path = folder / name
        is_new = not path.exists()
        with path.open("a") as file:
            file.write(text if is_new or name not in _END else text.partition("\n")[2])


def rotate(folder: Path, day: int) -> None:
    """Rename the day's files, and compress those of the day before."""
    for name in ("sacct.psv", "events.psv", "kernel.log"):
        if (folder / name).exists():
            (folder / name).rename(folder / f"{name}.{day}")
        before = folder / f"{name}.{day - 1}"
        if before.exists():
            before.with_name(f"{before.name}.gz").write_bytes(gzip.compress(before.read_bytes()))
            before.unlink()


@dataclass(slots=True)
class Week:
    """A watched week: what its watcher answers, and what was seen of it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    seen: dict[str, float] = field(default_factory=dict)
    fell: int = 0
    failed: int = 0
    resident: list[int] = field(default_factory=list)

    def kill(self) -> None:
        """Kill -9, and start another one."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = started(self.folder)

    def scrape(self) -> None:
        """Wait for a look that went well, and hold the counters against the last ones."""
        wait_for(self.port, self.process, is_ok=True)
        found = counters(self.port)
        self.fell += sum(found.get(name, value) < value for name, value in self.seen.items())
        self.seen |= found

    def fill_disk(self, hour: dict[str, str]) -> None:
        """Let an hour come while the disk has no room, until the watcher says so."""
        filler = self.folder / "disk" / "filler"
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while file.write(b"\0" * 65536):
                file.flush()
        append(self.folder / "logs", hour)
        self.failed += wait_for(self.port, self.process, is_ok=False)
        filler.unlink()


def watched(
    folder: Path, hours: list[dict[str, str]], more: dict[str, str], kills: int, batch: Any
) -> tuple[str, ...]:
    """The row of one week, but for its name and nodes."""
    drawn = random.Random(42)  # noqa: S311 - moments of kills
    logs, disk = folder / "logs", folder / "disk"
    logs.mkdir(parents=True)
    disk.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    site_file(folder / "ettr.toml", logs, port)
    when = sorted(drawn.sample(range(len(hours)), min(kills, len(hours))))
    full = when[:: max(1, len(when) // (kills // 10 or 1))][: kills // 10]
    with mounted(disk):
        week = Week(folder, port, started(folder))
        for at, hour in enumerate(hours):
            if at in full:
                week.scrape()  # what a look under way lets go would be room again
                week.fill_disk(hour)
            else:
                append(logs, hour)
            if at in when:
                time.sleep(drawn.uniform(0.0, LONGEST_S))
                week.kill()
            elif at % EVERY == 0:
                week.scrape()
            if at % HOURS == HOURS - 1:
                week.resident.append(resident_mib(week.process))
                print(folder.name, at // HOURS, week.resident, file=sys.stderr)
                rotate(logs, at // HOURS)
        at_equal_size = []
        for at in range(MORE):
            append(logs, more)
            if not kills:
                week.scrape()
                at_equal_size += [resident_mib(week.process)] if at % 10 == 9 else []
        for _ in range(2):  # the first of them may have begun before the last line
            week.scrape()
        week.process.terminate()
        week.process.wait()
        metrics = ettr("watch", disk / "site", "--config", folder / "ettr.toml", "--once")
        rows, shown = rows_of(disk / "site"), gauges(metrics)
    wanted, of_batch = batch
    differ = sum(len(set(wanted[name]) ^ set(rows[name])) for name in wanted)
    differ += sum(abs(len(wanted[name]) - len(rows[name])) for name in wanted)
    return (
        f"{len(wanted['attempts']):,}",
        str(len(when)),
        str(len(full)),
        str(week.failed),
        f"{sum(map(len, wanted.values())):,}",
        str(differ),
        str(week.fell),
        str(sum(of_batch.get(one) != shown.get(one) for one in of_batch.keys() | shown.keys())),
        "" if kills else ", ".join(map(str, week.resident)),
        ", ".join(map(str, at_equal_size)),
    )


def site_file(path: Path, logs: Path, port: int = 9469) -> None:
    """Write what is watched."""
    path.write_text(
        f'timezone = "UTC"\n[watch]\nfiles = ["{logs}/sacct.psv", "{logs}/events.psv", '
        f'"{logs}/kernel.log"]\ncluster = "small"\nevery = "0.2s"\npage = false\nport = {port}\n'
    )


def ettr(*words: str | Path) -> str:
    """Run the program. Raises CalledProcessError: it failed."""
    asked = [str(ETTR), *map(str, words)]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A watcher of the folder's store."""
    words = [str(ETTR), "watch", str(folder / "disk" / "site")]
    words += ["--config", str(folder / "ettr.toml")]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(words, stdout=said, stderr=said)


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """A small disk there."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def asked(port: int, path: str) -> tuple[int, str]:
    """What the watcher answers; 0 where there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def wait_for(port: int, process: subprocess.Popen[bytes], *, is_ok: bool) -> int:
    """Wait for a look that began after this moment and went well, or did not; 1 if it came."""
    since, begun = time.monotonic(), datetime.now().astimezone()
    while time.monotonic() - since < 300.0 and process.poll() is None:
        status, text = asked(port, "/healthz")
        found = re.search(r'"at": "([^"]+)"', text)
        is_new = found and datetime.fromisoformat(found[1]) > begun
        if is_new and (status == 200) is is_ok:
            return 1
        time.sleep(0.1)
    return 0


def counters(port: int) -> dict[str, float]:
    """Every counter but that of the process itself."""
    found = {name: float(value) for name, value in _COUNTER.findall(asked(port, "/metrics")[1])}
    return {name: value for name, value in found.items() if "watch_errors" not in name}


def gauges(metrics: str) -> dict[str, str]:
    """Every sample that says how the store is now."""
    lines = [line for line in metrics.splitlines() if line[0] != "#" and "_total" not in line]
    kept = (line.rpartition(" ") for line in lines if "ettr_watch" not in line)
    return {name: f"{float(value):.9g}" for name, _, value in kept}


def rows_of(store: Path) -> dict[str, list[bytes]]:
    """Digests of all rows but those of `files`, without where they were read."""
    from ettr.store import open_store
    from ettr.tables import TABLES

    found = {}
    with open_store(store) as opened:
        for name in TABLES.keys() - {"files"}:
            table = opened.rows(name).to_pylist()
            found[name] = sorted(
                digest(repr([(key, value) for key, value in row.items() if key not in _OF_FILES]))
                for row in table
            )
    return found


def digest(text: str) -> bytes:
    """Of a row."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def resident_mib(process: subprocess.Popen[bytes]) -> int:
    """Memory of the process."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
