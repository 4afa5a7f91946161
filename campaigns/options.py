"""Every option and argument of every command with absurd values, each in a process of its own.

The options come from the argument parsers themselves, so that a new one is covered without being
named here. A value, drawn from a list for each command, is typed next to words with which the
command works. It must be answered (exit 0) or refused in a sentence (exit 2, or 1 where the value
is fine and the answer is that it could not): no traceback, no endless run, no message of more than
a page, no control character on the terminal. A run is endless after so much processor time that no
answer takes it, or where it waits for twenty minutes.
"""

from __future__ import annotations

import io
import json
import math
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from campaigns import Table

TITLE = "Absurd values of options"
SIZE = 2
SEED = 7
# of processor time, so that a busy machine makes no run endless
LIMIT_S = 120
WAIT_S = 1200.0
MEMORY_BYTES = 6 << 30
LONGEST_MESSAGE = 4000
LOGS = Path(__file__).resolve().parents[1] / "tests" / "data" / "bad_morning"
GATES = Path(__file__).resolve().parents[1] / "examples" / "gates"
SAMPLES = Path(__file__).resolve().parents[1] / "tests" / "samples"

VALUES = (
    *("-1", "0", "-0", "00", "nan", "inf", "-inf", "1e308", "-1e308", "1e-308", "5e-324", "1e400"),
    *("99999999999999999999", "9223372036854775807", "-9223372036854775808", "2147483648"),
    *("1" + "0" * 400, "", " ", "abc", "0x10", "1_000", "१२", "1,5", "--", "-", "=", ",", "=,=,="),
    *(
        "a" * 1_000_000,
        "9" * 1_000_000,
        "a=b," * 250_000,
        "x\x1b[2Jy",
        "a\nb",
        "a\x00b",
        "a\udcffb",
    ),
    *("-1s", "0s", "nan s", "1e308d", "1e400s", "1e-320s", "9" * 400 + "s", "1e-300s", "1e300s"),
    *("1e308GB", "1e308GB/s", "0GB/s", "0GB", "1e-308GB/s", "1e-308B", "-5GB", "1e300PB"),
    *("0,0", "-1,-1", "nan,nan", "1e308,1e308", "0d,0d", "1e308d,1e309d", "0d,1e-300d", "1,2,3"),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "2026-13-45"),
    *("node=nan,job=nan", "node=1e308,job=-1e308", "node=1", "0/0", "1/1e-308", "a=1e308/1e308"),
    *("../../..", "/dev/null", "/", "/proc/self/mem", "%s%n{0}", "{x.__class__}", r"(a+)+\1$", "["),
    *("(" * 5000, "(?P<", "*", "c/1", "1_0", "30+1", "postgres://", "duckdb://", "://", "a.duckdb"),
)


def flight_records(work: Path) -> str:
    """A folder with the flight record of one rank that called nothing."""
    folder = work / "records"
    folder.mkdir(exist_ok=True)
    (folder / "rank_0").write_text('{"version":"2.10"}')
    return str(folder)


def pipeline_code(work: Path) -> str:
    """A file with a pipeline of two stages."""
    path = work / "pipes.py"
    path.write_text("def chain():\n    return [range(9), abs]\n")
    return str(path)


def traced_stages(work: Path) -> str:
    """The stages of a pipeline, as a trace writes them."""
    from ettr.progress.stages import InputHost, InputStage, write_stages

    path = work / "stages.jsonl"
    write_stages(path, [InputStage("r", "s", 9, 1e-3, 1e-2, 1e-2, 1e-2, 1e-2)], InputHost())
    return str(path)


def packed_records(work: Path) -> str:
    """A folder of progressive records with one image."""
    from PIL import Image

    from ettr.records import Sample, write_records

    folder = work / "packed"
    if not folder.exists():
        coded = io.BytesIO()
        Image.new("RGB", (16, 16)).save(coded, "JPEG", progressive=True)
        write_records([Sample("grey", coded.getvalue())], folder)
    return str(folder)


def small_model(work: Path) -> str:
    """A file with a language model of four tokens."""
    (work / "small_model.py").write_text(
        "class Model:\n"
        "    vocabulary = [b'a', b'b', b'1', b'']\n"
        "    end = 3\n"
        "    def encode(self, text):\n"
        "        return ['ab1'.index(one) for one in text]\n"
        "    def log_probabilities(self, prefixes):\n"
        f"        return [[{-math.log(4)}] * 4 for _ in prefixes]\n"
        "MODEL = Model()\n"
    )
    return f"py:{work / 'small_model.py'}:MODEL"


def bases(work: Path) -> dict[str, list[list[str]]]:
    """For each command, words with which it works; `{new}` is a new name in each run."""
    site, page = str(work / "site"), str(work / "{new}.html")
    logs = [str(path) for path in sorted(LOGS.iterdir())]
    local = ["--timezone", "UTC"]
    trace = SAMPLES / "infinitehbd" / "trace.json"
    counts = ["--failures", "419", "--node-days", "110592"]
    state = ["--state-bytes", "10TB", "--bandwidth", "200GB/s", "--step", "10s"]
    return {
        "report": [
            ["report", site, "--json"],
            ["report", site, "-o", page],
            ["report", *logs, *local, "--json"],
        ],
        "ingest": [
            ["ingest", str(work / "{new}"), *logs, *local],
            ["ingest", str(work / "{new}"), str(trace), "--nodes", "400"],
            ["ingest", str(work / "{new}.duckdb"), *logs, *local],
        ],
        "export": [
            ["export", site, "--to", str(work / "{new}.duckdb")],
            ["export", site, "--table", "failures", "--to", str(work / "{new}.csv")],
        ],
        "explain": [["explain", site, "4"], ["explain", "--flight", flight_records(work)]],
        "plan": [
            ["plan", site, "--gpus", "1024"],
            ["plan", "--gpus", "1024", *counts, *state],
            ["plan", "--nodes", "2000", "--failures-per-1000-node-days", "6.5", "--html", page],
        ],
        "project": [
            ["project", site],
            ["project", *counts, "--gpus", "4096", "--repair", "2d", "--spares", "2"],
            ["project", site, "--nodes", "100", "--model", "weibull", "--ages", "0d,45d"],
        ],
        "compare": [
            ["compare", site, site],
            ["compare", "old=30/5000", "new=12/6000"],
            ["compare", site],
        ],
        "simulate run": [["simulate", "run", "small", "--store", str(work / "{new}")]],
        "simulate show": [["simulate", "show", "small"]],
        "simulate whatif": [
            ["simulate", "whatif", "small", "--set", "lemons.share=0", "--runs", "3"]
        ],
        "simulate fit": [["simulate", "fit", site, "--out", str(work / "{new}.toml")]],
        "simulate backtest": [["simulate", "backtest", site, "--hold-back", "1"]],
        "collect": [["collect", str(work / "{new}"), "--since", "2026-03-01"]],
        "collect kubernetes": [["collect", "kubernetes", str(work / "{new}"), "--context", "no"]],
        "collect prometheus": [
            [
                "collect",
                "prometheus",
                "http://127.0.0.1:1",
                str(work / "{new}"),
                "--since",
                "2026-03-01",
            ]
        ],
        "watch": [
            ["watch", site, "--dashboards", str(work / "{new}")],
            ["watch", site, "--backfill", str(work / "{new}.om")],
        ],
        "verify": [["verify", str(work)]],
        "records": [["records", packed_records(work)]],
        "input trace": [
            ["input", "trace", f"{pipeline_code(work)}:chain", "-o", str(work / "{new}.jsonl")]
        ],
        "input plan": [["input", "plan", traced_stages(work), "--rate", "50", "--cores", "2"]],
        "elastic": [["elastic", "--ranks", "1", "--", "true"]],
        "chaos": [["chaos", "--", "true"]],
        "gate grade": [
            ["gate", "grade", "--items", "600", "--templates", "20", "--reference", "0.03"],
        ],
        "gate items": [
            ["gate", "items", str(GATES / "templates.csv"), str(GATES / "fragments.csv")]
        ],
        "gate query": [
            ["gate query", small_model(work), "[ab]{3}1"],
            ["gate query", small_model(work), "[ab]1", "--samples", "100"],
        ],
        "sources": [["sources"]],
        "catalog": [["catalog"]],
    }


def commands() -> dict[str, Any]:
    """The parsers of all commands; of one that takes an action, under `simulate run` and so on."""
    import typer

    from ettr.cli.main import build_app

    group: Any = typer.main.get_command(build_app())
    return {
        " ".join([name, *action]): command
        for name, command in group.commands.items()
        for action in _actions(command)
    }


def _actions(command: Any) -> list[list[str]]:
    """What the first argument may be where that is a choice; else one empty list."""
    first = next((one for one in command.params if one.param_type_name == "argument"), None)
    kind = first and first.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [[one.value] for one in kind]
    return [[]]


def typed(command: Any, value: str) -> Iterator[tuple[str, list[str]]]:
    """The name of each option and argument of a command, and the words that type `value` for it."""
    for param in command.params:
        if param.param_type_name == "argument":
            yield param.name, [value]
        elif not param.is_flag:
            yield max(param.opts, key=len), [f"{max(param.opts, key=len)}={value}"]


def cases(work: Path, draws: int, one_in: int) -> dict[str, list[tuple[str, list[str]]]]:
    """For each command what is run: the name of the option or argument, and all words."""
    known, drawn = bases(work), {}
    for name, command in commands().items():
        rng = random.Random(f"{SEED} {name}")  # noqa: S311
        words = known.get(name) or [[*name.split(), str(work / "site")]]
        every = [
            (what, _with(rng.choice(words), extra, what, command))
            for value in rng.sample(VALUES, min(draws, len(VALUES)))
            for what, extra in typed(command, value)
        ]
        names = sorted({what for what, _ in every})
        some = set(rng.sample(names, math.ceil(len(names) / one_in)))
        drawn[name] = [(what, words) for what, words in every if what in some]
    return drawn


def _with(base: list[str], extra: list[str], what: str, command: Any) -> list[str]:
    """The words with one value typed: in place of the option, or as one more argument."""
    n_words = len((command.name or "").split())  # two of `gate grade`
    name, rest = base[:n_words], base[n_words:]
    if what.startswith("-"):
        spelled = next(param.opts for param in command.params if what in param.opts)
        places = [place for place, word in enumerate(rest) if word in spelled]
        kept = [word for place, word in enumerate(rest) if not {place, place - 1} & {*places}]
        return [*name, *extra, *kept]
    if command.name in {"elastic", "chaos"}:
        return [*name, *extra, *rest]
    first = next(param.name for param in command.params if param.param_type_name != "option")
    # the first argument is replaced, a later one follows it
    if what == first:
        return [*name, *extra, *rest[1:]]
    return [*name, rest[0], *extra, *rest[2:]]


def attempt(words: list[str], answer: str) -> None:
    """Run one command line and write what it ended in."""
    from ettr.cli.main import main

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    out, err = io.StringIO(), io.StringIO()
    os.chdir(Path(answer).parent)
    sys.argv = ["ettr", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        ended = "no exit"
    except SystemExit as stop:
        ended = str(stop.code)
    except BaseException:
        ended = "traceback"
        err.write(traceback.format_exc())
    Path(answer).write_text(json.dumps([ended, err.getvalue(), out.getvalue()[:2000]]))


def verdict(context: ForkServerContext, work: Path, words: list[str]) -> tuple[str, str]:
    """`answered`, `refused`, `could not`, or what is wrong; and the message."""
    answer = work / "run" / f"{os.urandom(6).hex()}.json"
    answer.parent.mkdir(exist_ok=True)
    words = [word.replace("{new}", os.urandom(6).hex()) for word in words]
    process = context.Process(target=attempt, args=(words, str(answer)))
    process.start()
    process.join(WAIT_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "endless", f"it did not end within {WAIT_S:g} s"
    if process.exitcode == -signal.SIGXCPU:
        return "endless", f"it took {LIMIT_S} s of processor time"
    if not answer.exists():
        return "traceback", f"the process ended with {process.exitcode}"
    ended, message, out = json.loads(answer.read_text())
    if any((ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160 for one in message + out):
        return "traceback", f"a control character on the terminal: {message[:200]!r}"
    if len(message) > LONGEST_MESSAGE and ended != "traceback":
        return "traceback", f"a message of {len(message)} characters: {message[:200]}"
    known = {"0": "answered", "None": "answered", "2": "refused", "1": "could not"}
    if ended in known and (ended in {"0", "None"} or message.strip() or "elastic" in words[0]):
        return known[ended], message
    return "traceback", message[-1500:]


def run(size: int, one_in: int = 1) -> Table:
    """`size` values for each option and argument of each command; prints what went wrong.

    `one_in` n: only an n-th of the options and arguments of each command.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["campaigns.options_preloaded"])
    names = ("answered", "refused", "could not", "traceback", "endless")
    rows = []
    with tempfile.TemporaryDirectory(prefix="ettr-options-") as folder:
        work = Path(folder)
        logs = [str(path) for path in sorted(LOGS.iterdir())]
        verdict(context, work, ["ingest", str(work / "site"), *logs, "--timezone", "UTC"])
        for name, drawn in cases(work, size, one_in).items():
            counts: Counter[str] = Counter()
            for _, words in drawn:
                what, message = verdict(context, work, words)
                counts[what] += 1
                if what in {"traceback", "endless"}:
                    shown = " ".join(repr(word)[:80] for word in words)
                    print(f"{what}: ettr {shown}\n{message}\n", file=sys.stderr, flush=True)
            options = len({option for option, _ in drawn})
            rows.append((name, str(options), *(str(counts[one]) for one in names)))
    return Table(
        ("command", "options and arguments", *names),
        tuple(rows),
        f"{SEED} and the command's name",
        "every option of every command with absurd values: a sentence; 0 tracebacks, 0 endless",
    )
