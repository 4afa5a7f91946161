"""Flipped bits and cuts in what a store keeps: parts and manifest of a folder, a DuckDB file.

Each draw damages one file of a store of 4,000 jobs at a random place (nine in ten flip one bit, the
others cut the file there) and reads every table. The rows are those that were written, or the store
refuses them in a sentence; other rows are silent damage.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from campaigns import Table
from campaigns.kills import dump, ingest

TITLE = "Damaged stores"
SIZE = 100
KINDS = ("parts of a folder", "manifest of a folder", "DuckDB file")
WHOLE, REFUSED, OTHER, ERROR, CRASH = "as written", "refused", "other rows", "other error", "crash"


def contents(place: Path) -> str:
    """Number of rows and sum of their hashes, of every table.

    Raises:
        StoreError: the store refuses.
    """
    import duckdb

    from ettr.store import open_store
    from ettr.tables import TABLES

    found = []
    with open_store(place) as store, duckdb.connect() as duck:
        for name in TABLES:
            duck.register("held", store.rows(name))
            found += duck.execute("SELECT count(*), sum(hash(held)::HUGEINT) FROM held").fetchall()
        found.append(tuple(file.file_id for file in store.files()))
    return repr(found)


def victims(place: Path, kind: str) -> list[Path]:
    """Files that are damaged, each as often as its size makes it likely."""
    if place.is_file():
        return [place]
    return [place / "store.json"] if "manifest" in kind else sorted(place.rglob("*.parquet"))


def draw(place: str, kind: str, seed: int, good: str, answer: str) -> None:
    """Damage one file, read all, and write what was read to `answer`."""
    from ettr.errors import StoreError

    rng, files = random.Random(seed), victims(Path(place), kind)  # noqa: S311
    (victim,) = rng.choices(files, [file.stat().st_size for file in files])
    raw = bytearray(victim.read_bytes())
    at = rng.randrange(len(raw))
    if rng.random() < 0.9:
        raw[at] ^= 1 << rng.randrange(8)
    else:
        del raw[at:]
    victim.write_bytes(raw)
    try:
        outcome = WHOLE if contents(Path(place)) == good else OTHER
    except StoreError:
        outcome = REFUSED
    except Exception as error:  # what is neither is what is counted
        outcome = f"{ERROR} {type(error).__name__}: {str(error)[:200]}"
    Path(answer).write_text(outcome, encoding="utf-8")


def run(size: int) -> Table:
    """`size` draws for each kind of file."""
    rows = [(kind, *counted(kind, size)) for kind in KINDS]
    return Table(
        ("file", WHOLE, REFUSED, OTHER, ERROR, CRASH),
        tuple(rows),
        "1000 for each kind and the draw's number",
        "no other rows in silence, no other error",
    )


def counted(kind: str, size: int) -> tuple[str, ...]:
    """One row of the table; what was no sentence is printed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["campaigns.kills_preloaded"])
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ettr-damage-") as name:
        folder = Path(name)
        made = folder / ("base.duckdb" if "DuckDB" in kind else "base")
        log = dump(folder / "log.psv", 1, ended=True)
        first = context.Process(target=ingest, args=(str(made), str(log)))
        first.start()
        first.join()
        good, answer = contents(made), folder / "answer"
        for number in range(size):
            place = folder / f"site{made.suffix}"
            (shutil.copytree if made.is_dir() else shutil.copy)(made, place)
            answer.unlink(missing_ok=True)
            seed = 1000 * KINDS.index(kind) + number
            words = (str(place), kind, seed, good, str(answer))
            process = context.Process(target=draw, args=words)
            process.start()
            process.join()
            outcome = answer.read_text(encoding="utf-8") if answer.exists() else CRASH
            if outcome.startswith((ERROR, OTHER, CRASH)):
                print(kind, seed, outcome, flush=True)
            counts[ERROR if outcome.startswith(ERROR) else outcome] += 1
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    return tuple(str(counts[one]) for one in (WHOLE, REFUSED, OTHER, ERROR, CRASH))
