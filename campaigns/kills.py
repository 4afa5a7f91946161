"""`ettr ingest` killed by SIGKILL at random moments, and what is in the store afterwards.

Each draw ingests a dump of 4,000 jobs, half of which update jobs that an older store holds (at the
commit their older rows are taken out). The kill comes at a moment drawn over the time that the
same ingestion takes undisturbed and a tenth more; one in five in its first tenth, when a new store
is made; and one in three over the time of the commit, and a tenth more, from when the ingestion
says that it begins. `in commit` and `after commit` count the kills that fell between its begin and
its end, and after it. Afterwards every table is read: all rows as before, all rows as an
undisturbed ingestion leaves them, or anything else, which is mixed; a store that cannot be read is
unusable. Then the dump is ingested again, and all tables are compared with those of the undisturbed
ingestion. An ingestion that ended before its kill is not a draw.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from typing import Any

from campaigns import Table

TITLE = "Killed ingestions"
SIZE = 75
KINDS = ("folder", "DuckDB file")
STORES = ("old", "new")
N_JOBS = 4000
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
HEADER = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|"
    "NodeList|AllocTRES"
)
BEGUN, ENDED = "begun", "ended"
PHASES = ("before commit", "in commit", "after commit")
AS_BEFORE, AS_AFTER, MIXED, UNUSABLE = "as before", "as after", "mixed", "unusable"

State = dict[str, list[int]]
"""Of each table, how many rows it has and the sum of their hashes."""


def dump(path: Path, first_job: int, ended: bool) -> Path:
    """A dump of `N_JOBS` jobs on two nodes each; running, or failed an hour later."""
    lines = [HEADER]
    for job in range(first_job, first_job + N_JOBS):
        begin = FIRST + timedelta(minutes=job)
        start = f"{begin:%Y-%m-%dT%H:%M:%S}"
        end = f"{begin + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}" if ended else "Unknown"
        state, seconds = ("FAILED", 3600) if ended else ("RUNNING", 60)
        lines.append(
            f"c|{job}|train-{job}|ann|{state}|{int(ended)}:0|{start}|{start}|{start}|{end}|{seconds}|2|"
            f"n[{job % 90}-{job % 90 + 1}]|cpu=128,gres/gpu=16,node=2"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def ingest(store: str, log: str, commits: Connection | None = None) -> None:
    """What `ettr ingest STORE FILE` does; the whole program, in a process of its own.

    `commits` is sent `BEGUN` and `ENDED` around the commit, so that a kill can be aimed at it.
    """
    from ettr.cli.main import main

    if commits is not None:
        _announce(commits)
    sys.argv = ["ettr", "ingest", store, log, "--timezone", "UTC"]
    sys.stdout = sys.stderr = Path("/dev/null").open("w")  # noqa: SIM115
    main()


def _announce(commits: Connection) -> None:
    """Say when the commit of a store begins and ends, whatever kind of store it is."""
    from ettr.store import backend, folder

    for kind in (folder._FolderIngestion, backend._BackendIngestion):
        kind.commit = _announced(kind.commit, commits)  # type: ignore[method-assign]


def _announced(commit: Callable[..., None], commits: Connection) -> Callable[..., None]:
    def announced(*given: Any) -> None:
        commits.send(BEGUN)
        commit(*given)
        commits.send(ENDED)

    return announced


def look(store: str, answer: str) -> None:
    """Write what a store holds to a file: nothing where there is no store."""
    import duckdb

    from ettr.errors import StoreError
    from ettr.store import open_store
    from ettr.tables import TABLES

    place, state = Path(store), dict[str, list[int]]()
    if place.exists() and (place.is_file() or (place / "store.json").exists()):
        try:
            with open_store(store) as opened, duckdb.connect() as duck:
                for name in TABLES:
                    duck.register("held", opened.rows(name))
                    found = duck.execute("SELECT count(*), sum(hash(held)::HUGEINT) FROM held")
                    n_rows, hashes = found.fetchall()[0]
                    if n_rows:
                        state[name] = [n_rows, int(hashes)]
        except StoreError:
            state["unusable"] = [1, 1]
    Path(answer).write_text(json.dumps(state), encoding="utf-8")


def run(size: int) -> Table:
    """`size` kills for each kind of store, new and with older rows."""
    places = [(kind, store) for kind in KINDS for store in STORES]
    with ProcessPoolExecutor(len(places), multiprocessing.get_context("spawn")) as pool:
        rows = pool.map(outcome, *zip(*places, strict=True), [size] * len(places))
    return Table(
        (
            "kind",
            "store",
            "killed",
            "ended first",
            *PHASES,
            AS_BEFORE,
            AS_AFTER,
            MIXED,
            UNUSABLE,
            "again differs",
        ),
        tuple(rows),
        "1000 for DuckDB files, plus 1 for new stores",
        "0 unusable, 0 mixed, ingested again equals clean",
    )


def verdict(found: State, before: State, after: State) -> str:
    """What a kill left, from the tables read afterwards."""
    if "unusable" in found:
        return UNUSABLE
    if found == before:
        return AS_BEFORE
    return AS_AFTER if found == after else MIXED


def outcome(kind: str, store: str, size: int) -> tuple[str, ...]:
    """One row of the table."""
    rng = random.Random(1000 * KINDS.index(kind) + STORES.index(store))  # noqa: S311
    context = multiprocessing.get_context("forkserver")
    # what a killed process has loaded, so that the moments lie within the ingestion itself
    context.set_forkserver_preload(["campaigns.kills_preloaded"])
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ettr-kills-") as folder:
        bench = _Bench(Path(folder), kind, context)
        before, after, undisturbed_s, commit_s = bench.measure(store)
        while counts["killed"] < size:
            at_commit = counts["killed"] % 3 == 2
            if at_commit:
                moment_s = commit_s * rng.uniform(0.0, 1.1)
            else:
                moment_s = undisturbed_s * rng.uniform(0.0, 0.1 if rng.random() < 0.2 else 1.1)
            phase = bench.killed(store, moment_s, at_commit=at_commit)
            if phase is None:
                counts["ended"] += 1
                continue
            counts.update(("killed", phase))
            left = verdict(bench.state(), before, after)
            bench.ingest()
            differs = bench.state() != after
            counts.update({left: 1, "differs": differs})
            if differs or left in {MIXED, UNUSABLE}:
                print(
                    kind, store, f"{left=} {differs=} {moment_s=:.4f}", file=sys.stderr, flush=True
                )
    names = ("killed", "ended", *PHASES, AS_BEFORE, AS_AFTER, MIXED, UNUSABLE, "differs")
    return (kind, store, *(str(counts[name]) for name in names))


class _Bench:
    """A folder with two dumps, and the store that is killed over and over."""

    def __init__(self, folder: Path, kind: str, context: ForkServerContext) -> None:
        self._folder, self._context = folder, context
        ending = "" if kind == "folder" else ".duckdb"
        self._place, self._base = folder / f"site{ending}", folder / f"base{ending}"
        self._old = dump(folder / "old.psv", 1, ended=False)
        self._new = dump(folder / "new.psv", 1 + N_JOBS // 2, ended=True)

    def measure(self, store: str) -> tuple[State, State, float, float]:
        """State before and after an undisturbed ingestion, its median seconds, and its commit's."""
        self._run(ingest, self._base, self._old)
        self._prepare(store)
        before, times, commits_s = self.state(), list[float](), list[float]()
        for _ in range(5):
            self._prepare(store)
            begin = time.monotonic()
            process, commits = self._ingesting()
            commits.recv()
            begun = time.monotonic()
            commits.recv()
            commits_s.append(time.monotonic() - begun)
            process.join()
            times.append(time.monotonic() - begin)
        return before, self.state(), median(times), median(commits_s)

    def killed(self, store: str, after_s: float, *, at_commit: bool) -> str | None:
        """Ingest into the store as it was before and kill it; None where it had ended.

        Args:
            store: which one, of `STORES`.
            after_s: seconds after the start, or after the begin of the commit.
            at_commit: whether they are counted from the begin of the commit.

        Returns:
            The phase of `PHASES` in which it was killed.

        Raises:
            RuntimeError: it ended in an error of its own.
        """
        self._prepare(store)
        process, commits = self._ingesting()
        said = [commits.recv()] if at_commit else []
        process.join(after_s)
        process.kill()
        process.join()
        if process.exitcode not in {0, -signal.SIGKILL}:
            raise RuntimeError(f"the ingestion ended with exit status {process.exitcode}")
        while commits.poll():
            try:
                said.append(commits.recv())
            except EOFError:  # nothing more is said by a process that is no more
                break
        return None if process.exitcode == 0 else PHASES[len(said)]

    def _ingesting(self) -> tuple[BaseProcess, Connection]:
        """An ingestion of the newer dump that has begun, and what it says of its commit."""
        commits, says = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=ingest, args=(str(self._place), str(self._new), says)
        )
        process.start()
        says.close()
        return process, commits

    def ingest(self) -> None:
        """Ingest the newer dump, undisturbed."""
        self._run(ingest, self._place, self._new)

    def state(self) -> State:
        """What the store holds."""
        answer = self._folder / "answer.json"
        answer.unlink(missing_ok=True)
        self._run(look, self._place, answer)
        if not answer.exists():  # the reader ended in a traceback or a crash
            return {"unusable": [1, 1]}
        state: State = json.loads(answer.read_text(encoding="utf-8"))
        return state

    def _prepare(self, store: str) -> None:
        for left in self._folder.glob(f"{self._place.name}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if store == "new":
            return
        if self._base.is_dir():
            shutil.copytree(self._base, self._place)
        else:
            shutil.copy(self._base, self._place)

    def _run(self, target: Callable[[str, str], None], *words: Path) -> None:
        process = self._context.Process(target=target, args=tuple(map(str, words)))
        process.start()
        process.join()
