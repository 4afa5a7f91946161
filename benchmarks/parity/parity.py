"""Every answer about every store by one checkout, against the answers of another one.

    python benchmarks/parity.py check CHECKOUT [--quick] [--stores NAME...] [--parts NAME...]

Temporary: the safety net of the move from expressions to facts in SQL; it goes when that is done.
Stores (`parity.py stores`, made once by the code before the move) lie in OUT/stores, each with a
list of cases: words of the command line, and for which selection. `check` lets CHECKOUT answer the
cases in one process a store and compares with what the base answered (OUT/base): keys, nulls and
texts exactly, numbers to 1e-12. Accepted differences are lines `store case path # reason`
with wildcards in `parity_accepted.txt`.
"""

# ruff: noqa: E501, PLR0124, PLR0912, PLR0915, S108, S608 - temporary, with SQL of constants of this file

from __future__ import annotations

import argparse
import fnmatch
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
OUT = Path(os.environ.get("PARITY", "/tmp/parity"))
TOLERANCE = 1e-12
COPIED_BYTES = 300_000_000
LARGE = ("site2000", "pipeline")
QUICK = (
    *("example", "nastyexample", "synthetic2", "twoclusters", "capture", "hetjobs", "nogpus"),
    *("unnamed", "training", "rare"),
)

METRICS = (
    *("status", "user-failures", "sizes", "failures", "mttf", "runs", "goodput", "nodes"),
    "quality",
)
TABLES = ("interruptions", "failures", "blame", "causes", "runs", "outages", "node_summary")
Case = dict[str, Any]


# -- cases of a store -------------------------------------------------------------------------


def cases_of(store: Path, asked: list[list[str]] | None) -> list[Case]:
    """What is asked of a store: every command, of all of it and of some selections.

    Of the store of a test, the report, the failures and what the test asked.
    """
    import duckdb

    made = json.loads((store / "store.json").read_text())
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")

    def rows(table: str, sql: str) -> list[tuple[Any, ...]]:
        parts = [str(store / part) for part in made["parts"].get(table, ())]
        if not parts:
            return []
        return con.execute(sql.format(f"read_parquet({parts}, union_by_name=true)")).fetchall()

    cases: list[Case] = []

    def add(name: str, *words: str, selection: str = "none", options: tuple[str, ...] = ()) -> None:
        cases.append({"name": f"{selection}/{name}", "words": [*words, *options]})

    add("report", "report", "S", "--json")
    if asked is not None:
        add("failure-list", "failures", "S", "--list", "--json")
        add("timeline", "timeline", "S", "--json")
        return cases + [{"name": f"asked/{' '.join(one)}", "words": one} for one in asked]
    for name in METRICS:
        add(name, name, "S", "--json")
        add(f"{name}.text", name, "S")
    add("failure-list", "failures", "S", "--list", "--json")
    add("failure-list.text", "failures", "S", "--list")
    for name in ("causes", "lemons", "slow", "forecast"):
        add(name, name, "S", "--json")
        add(f"{name}.text", name, "S")
    add("timeline", "timeline", "S", "--json")
    add("previous", "compare", "S", "--previous", "--json")
    add("published", "compare", "S", "--published", "--json")
    add("project", "project", "S", "--gpus", "1024,16384", "--json")
    add("plan", "plan", "S", "--gpus", "1024", "--json")
    add("export", "export", "S", "--to", "X.duckdb", *(w for t in TABLES for w in ("--table", t)))
    per_state = rows(
        "attempts",
        "select state, min(job_id), arg_max(job_id, elapsed_s) from {} group by 1 order by "
        "position(state in 'NODE_FAIL FAILED REQUEUED PREEMPTED CANCELLED BOOT_FAIL COMPLETED')",
    )
    jobs = list(dict.fromkeys(job for _, *ids in per_state for job in ids if job))[:3]
    arrays = rows("attempts", "select min(job_id) from {} where job_id like '%\\_%' escape '\\'")
    jobs += [arrays[0][0].split("_")[0]] if arrays and arrays[0][0] else []
    for job in dict.fromkeys(jobs):
        add(f"explain {job}", "explain", "S", job, "--json")
    if jobs:
        add(f"explain.text {jobs[0]}", "explain", "S", jobs[0])
    busy = rows(
        "allocations", "select node, count(*) n from {} group by 1 order by 2 desc, 1 limit 1"
    )
    loud = rows(
        "events",
        "select node, count(*) n from {} where node is not null group by 1 order by 2 desc, 1 limit 1",
    )
    out = rows(
        "node_states", "select node, count(*) n from {} group by 1 order by 2 desc, 1 limit 1"
    )
    nodes = list(
        dict.fromkeys(row[0] for found in (busy, loud, out) for row in found[:1] if row[0])
    )
    for node in nodes:
        add(f"node {node}", "node", "S", node, "--json")
        add(f"lemon {node}", "lemons", "S", node, "--json")

    selections: dict[str, tuple[str, ...]] = {}
    span = rows("attempts", 'select min(start), max(coalesce("end", start)) from {}')
    if not span or span[0][0] is None:
        span = rows("events", "select min(time), max(time) from {}")
    if span and span[0][0] is not None and span[0][1] > span[0][0]:
        first, last = span[0]
        since, until = first + 0.35 * (last - first), first + 0.85 * (last - first)
        form = "%Y-%m-%dT%H:%M:%SZ"
        selections["period"] = ("--since", since.strftime(form), "--until", until.strftime(form))
        add("before", "compare", "S", "--before", since.strftime(form), "--json")
    for option, column, table in (
        ("--partition", "partition", "attempts"),
        ("--user", "user", "attempts"),
        ("--gpu-type", "gpu_type", "nodes"),
        ("--cluster", "cluster", "attempts"),
    ):
        found = rows(
            table,
            f'select "{column}", count(*) n from {{}} where "{column}" is not null '
            "group by 1 order by 2 desc, 1",
        )
        if len(found) > 1 or (found and option == "--gpu-type"):
            for value, _ in found[: 2 if option == "--cluster" else 1]:
                selections[f"{option[2:]}={value}"] = (option, value)
        if len(found) > 1 and option in ("--partition", "--cluster"):
            add(f"by-{column}", "compare", "S", option, found[0][0], "--json")
    if nodes:
        selections[f"node={nodes[0]}"] = ("--node", nodes[0])
    assumed: tuple[str, ...] = (
        "--above-gpus",
        "8",
        "--confidence",
        "0.8",
        "--window",
        "20m,10m",
        "--write",
        "60s",
    )
    assumed += ("--burst-gap", "60s", "--sticky-gap", "1h", "--log-tolerance", "2m")
    assumed += ("--interval", "30m", "--restart", "10m", "--gpus-per-node", "4")
    add("report", "report", "S", "--json", selection="options", options=assumed)
    add(
        "failure-list",
        "failures",
        "S",
        "--list",
        "--json",
        "--burst-gap",
        "60s",
        selection="options",
    )
    # the period, and of the others what the name of the store draws: a report of each is dear
    always = [name for name in selections if name.startswith(("period", "cluster"))]
    others = [name for name in selections if name not in always]
    at = zlib.crc32(store.parent.name.encode())
    always += [others[(at + n) % len(others)] for n in range(min(4 - len(always), len(others)))]
    for name, options in selections.items():
        if name not in always:
            continue
        add("report", "report", "S", "--json", selection=name, options=options)
        add("failure-list", "failures", "S", "--list", "--json", selection=name, options=options)
        add("forecast", "forecast", "S", "--json", selection=name, options=options)
        add("timeline", "timeline", "S", "--json", selection=name, options=options)
        add("export", *("export", "S", "--to", "X.duckdb", "--table", "failures", "--table", "outages"),
            selection=name, options=options)  # fmt: skip
    return cases


# -- one checkout answers ---------------------------------------------------------------------


@contextmanager
def _kept_analyses() -> Iterator[None]:
    """One open store and one analysis a selection and process, where the code allows it."""
    import ettr.analysis
    import ettr.store

    real_open, real = ettr.store.open_store, ettr.analysis.Analysis
    stores: dict[str, Any] = {}
    kept: dict[str, Any] = {}

    @contextmanager
    def opened(where: Any, *given: Any, **named: Any) -> Iterator[Any]:
        if given or named:
            with real_open(where, *given, **named) as store:
                yield store
            return
        if str(where) not in stores:
            stores[str(where)] = real_open(where).__enter__()
        yield stores[str(where)]

    def analysis(store: Any, *given: Any, **named: Any) -> Any:
        lines = {name: value for name, value in named.items() if name != "shows_lines"}
        key = repr((id(store), given, lines))
        if key not in kept:
            kept[key] = real(store, *given, **lines)
        return kept[key]

    with (
        patch.object(ettr.store, "open_store", opened),
        patch.object(ettr.analysis, "Analysis", analysis),
    ):
        yield
    for store in stores.values():
        store.__exit__(None, None, None)


def _answer(words: list[str]) -> Any:
    """What the command line prints, as JSON where it is JSON."""
    from ettr.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    status: Any = 0
    before = sys.argv
    sys.argv = ["ettr", *words]
    Path("X.duckdb").unlink(missing_ok=True)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        status = stop.code or 0
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {
            "CRASHED": f"{type(error).__name__}: {error}",
            "at": f"{where.filename}:{where.lineno}",
        }
    finally:
        sys.argv = before
    text = out.getvalue()
    answer: Any = {"status": status, "stderr": err.getvalue().splitlines()}
    if Path("X.duckdb").is_file():
        answer["files"] = _exported()
    try:
        answer["json"] = json.loads(text)
    except ValueError:
        answer["text"] = text.splitlines()
    return answer


def _exported() -> dict[str, Any]:
    import duckdb

    with duckdb.connect("X.duckdb", read_only=True) as con:
        con.execute("SET TimeZone = 'UTC'")
        names = [name for (name,) in con.execute("SHOW TABLES").fetchall()]
        tables = {}
        for name in names:
            found = con.execute(f'SELECT * FROM "{name}"')
            columns = [f"{column[0]} {column[1]}" for column in found.description]
            tables[name] = [columns, *json.loads(json.dumps(found.fetchall(), default=str))]
    return tables


def dump(
    stores: list[str], patterns: list[str], to: Path, from_: Path, *, merge: bool = False
) -> None:
    """Answer the cases of the stores with the code on the path."""
    import ettr

    print(f"# {Path(ettr.__file__).parents[2]}", flush=True)
    to.mkdir(parents=True, exist_ok=True)
    home = Path.cwd()
    for name in stores:
        cases = json.loads((from_ / name / "cases.json").read_text())
        store = (from_ / name / "S").resolve()
        began, cpu = time.monotonic(), time.process_time()
        answers: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            size = sum(one.stat().st_size for one in store.rglob("*") if one.is_file())
            if size < COPIED_BYTES:
                shutil.copytree(store, Path(folder) / "S")
            else:
                (Path(folder) / "S").symlink_to(store)
            os.chdir(folder)
            try:
                with _kept_analyses():
                    for case in cases:
                        if wanted(case["name"], patterns):
                            at = time.process_time()
                            answers[case["name"]] = _answer(case["words"])
                            if "PARITY_TIMES" in os.environ:
                                print(f"{time.process_time() - at:6.2f} {case['name']}", flush=True)
            finally:
                os.chdir(home)
        if merge and (to / f"{name}.json.gz").is_file():
            answers = {
                **json.loads(gzip.decompress((to / f"{name}.json.gz").read_bytes())),
                **answers,
            }
        with gzip.open(to / f"{name}.json.gz.part", "wt", compresslevel=3) as file:
            json.dump(answers, file)
        (to / f"{name}.json.gz.part").rename(to / f"{name}.json.gz")
        used = time.process_time() - cpu
        print(f"{name}: {len(answers)} answers, {used:.1f} CPU s, {time.monotonic() - began:.0f} s",
              flush=True)  # fmt: skip


def wanted(case: str, patterns: list[str]) -> bool:
    """Whether a case is asked for: a part by its name, `none/report` by both, wildcards."""
    if not patterns:
        return True
    selection, part = case.split("/", 1)
    names = (case, part, part.split(" ")[0], part.split(".")[0], selection)
    return any(fnmatch.fnmatch(name, one) for one in patterns for name in names) or (
        part == "report" and any(one not in KNOWN for one in patterns)
    )


KNOWN = {
    *METRICS,
    *("report", "failure-list", "causes", "lemons", "slow", "forecast", "timeline", "previous"),
    *("published", "project", "plan", "export", "explain", "node", "lemon", "before"),
    *("by-partition", "by-cluster", "none", "period", "asked"),
}


# -- comparing --------------------------------------------------------------------------------


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and what differs, of two answers."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            at = f"{path}.{key}"
            if key not in new:
                yield at, f"gone (was {short(old[key])})"
            elif key not in old:
                yield at, f"new ({short(new[key])})"
            else:
                yield from differences(old[key], new[key], at)
        if list(old) != list(new) and old.keys() == new.keys():
            yield path, "keys in another order"
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield path, f"{len(old)} entries, now {len(new)}: {short(old)} -> {short(new)}"
            return
        for n, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{path}[{n}]")
    elif not same(old, new):
        yield path, f"{short(old)} -> {short(new)}"


def same(old: Any, new: Any) -> bool:
    """Whether two leaves are equal: numbers of one type to the tolerance."""
    if type(old) is not type(new):
        return False
    if isinstance(old, float):
        if old == new or (old != old and new != new):
            return True
        return bool(abs(old - new) <= TOLERANCE * max(abs(old), abs(new)))
    if old == new:
        return True
    if isinstance(old, str) and re.fullmatch(r"-?\d[\d.]*(?:e-?\d+)?", old):
        try:  # a cell of a CSV
            return same(float(old), float(new))
        except ValueError:
            return False
    return False


def short(value: Any) -> str:
    """The value in a line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 160 else f"{text[:150]}..."


def compare(base: Path, new: Path, stores: list[str], patterns: list[str], most: int) -> int:
    """Print each difference; how many are not accepted."""
    accepted = []
    for line in (HERE / "parity_accepted.txt").read_text().splitlines():
        rule, _, reason = line.partition("#")
        if rule.strip():
            accepted.append((rule.split(), reason.strip()))
    waved: Counter[str] = Counter()
    total = leaves = 0
    for name in stores:
        try:
            old, now = (
                json.loads(gzip.decompress((one / f"{name}.json.gz").read_bytes()))
                for one in (base, new)
            )
        except (OSError, EOFError, ValueError) as error:
            print(f"{name}: NOT COMPARED ({error})")
            total += 1
            continue
        of_store = 0
        for case in now:
            if case not in old:
                continue
            leaves += 1
            found = [
                (path, what)
                for path, what in differences(old[case], now[case])
                if _of_parts(case, path, patterns)
            ]
            shown = 0
            for path, what in found:
                reasons = (said for fits, said in accepted if _fits(fits, name, case, path))
                if why := next(reasons, None):
                    waved[why] += 1
                    continue
                of_store += 1
                shown += 1
                if shown <= most:
                    print(f"DIFF {name} | {case} | {path} | {what}")
            if shown > most:
                print(f"     {name} | {case} | ... and {shown - most} more")
        print(f"{name}: {len(now)} cases, {of_store} differences", flush=True)
        total += of_store
    for reason, count in waved.items():
        print(f"accepted {count}: {reason}")
    print(f"{leaves} answers of {len(stores)} stores compared: {total} differences")
    return total


def _of_parts(case: str, path: str, patterns: list[str]) -> bool:
    """Of a whole report asked for by the name of a part: only what lies under its key."""
    if not patterns or wanted(
        case, [one for one in patterns if one in KNOWN or "*" in one] or [" "]
    ):
        return True
    key = path.removeprefix(".json.").split(".")[0].split("[")[0]
    return any(fnmatch.fnmatch(key, one) for one in patterns)


def _fits(rule: list[str], store: str, case: str, path: str) -> bool:
    where, part, leaf = rule[0], rule[1], " ".join(rule[2:])
    return (
        fnmatch.fnmatch(store, where)
        and fnmatch.fnmatch(case.replace(" ", "_"), part)
        and fnmatch.fnmatchcase(
            path.replace("[", "(").replace("]", ")"), leaf.replace("[", "(").replace("]", ")")
        )
    )


# -- making the stores ------------------------------------------------------------------------


def make_stores(folder: Path, data: Path, harvest: Path | None) -> None:
    """Make the stores with the code on the path, from inputs of this checkout and of `data`."""
    sys.path.insert(0, str(HERE))
    import parity_stores

    for store in parity_stores.make(folder, data, harvest):
        if not (store / "cases.json").is_file() and (store / "S" / "store.json").is_file():
            asked = store / "asked.json"
            words = json.loads(asked.read_text()) if asked.is_file() else None
            (store / "cases.json").write_text(json.dumps(cases_of(store / "S", words), indent=1))


def available(names: list[str], quick: bool, large: bool) -> list[str]:
    """The stores asked for, in order; all but the large ones where none is named."""
    every = sorted(one.parent.name for one in (OUT / "stores").glob("*/cases.json"))
    if names:
        return [one for one in every if any(fnmatch.fnmatch(one, name) for name in names)]
    if quick:
        return [one for one in every if one in QUICK]
    return [one for one in every if large or one not in LARGE]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "what",
        nargs="?",
        default="list",
        choices=("stores", "dump", "check", "base", "compare", "list"),
    )
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE.parents[1])
    parser.add_argument("--stores", nargs="+", default=[])
    parser.add_argument("--parts", nargs="+", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--merge", action="store_true", help="keep answers to other cases")
    parser.add_argument("--most", type=int, default=4, help="differences shown a case")
    parser.add_argument("--to", type=Path)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data")
    parser.add_argument("--harvest", type=Path)
    given = parser.parse_args()
    if given.what == "stores":
        make_stores(OUT / "stores", given.data, given.harvest)
        return 0
    names = available(given.stores, given.quick, given.large)
    if given.what == "list":
        print("\n".join(names))
        return 0
    to = given.to or (
        OUT / "base" if given.what == "base" else OUT / "new" / given.checkout.resolve().name
    )
    if given.what == "dump":
        dump(names, given.parts, to, OUT / "stores", merge=given.merge)
        return 0
    if given.what == "base":
        names = [one for one in names if given.stores or not (to / f"{one}.json.gz").is_file()]
    if given.what in ("check", "base"):
        env = {
            **os.environ,
            "PYTHONPATH": str(given.checkout.resolve() / "src"),
            "PARITY": str(OUT),
        }
        words = ["dump", "--to", str(to), "--stores", *names]
        words += ["--parts", *given.parts] if given.parts else []
        words += ["--merge"] if given.what == "base" else []
        code = subprocess.run([sys.executable, __file__, *words], env=env, check=False).returncode
        if code or given.what == "base":
            return code
    return min(compare(OUT / "base", to, names, given.parts, given.most), 1)


if __name__ == "__main__":
    sys.exit(main())
