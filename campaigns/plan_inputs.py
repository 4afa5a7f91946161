"""`ettr plan` on random inputs: a table or a sentence, never a traceback; page and command equal.

8 to 1,000,000 GPUs, 0.01 to 1,000 failures per 1,000 node-days, storage of 1 MB/s to 100 TB/s,
states of 1 MB to 100 TB, shares of 0 to 1 with tiny ones, times of 0 to days, options there or
not. `sentence`: refused, with what to change. `traceback`: anything else; the text is printed for
every fourth input, JSON and page are for all. `worse is better`: the same run with a failure rate,
a write, a restart, a wait or a replacement 1.5 times as high or long, or half the spares of every
tenth, and an ETTR of the head or of a scheme that is higher by more than 1 in 10,000.
`page differs`: ETTR and interval of the head, or ETTR and usability of a scheme, computed by the
script of the page that `--html` wrote, against the command; it needs Node.js.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from campaigns import Table

TITLE = "Random inputs of ettr plan"
SIZE = 2000
TOLERANCE = 1e-4
PAGE_TOLERANCE = 1e-6
PAGES_AT_ONCE = 50
Options = dict[str, str]


@dataclass(frozen=True)
class Done:
    """What a run of the command came to."""

    code: int
    out: str
    err: str


def ettr(words: Sequence[str]) -> Done:
    """Run the command line in this interpreter."""
    from ettr.cli.main import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", ["ettr", *words]),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except Exception as error:
            return Done(-1, "", repr(error))
    return Done(code, out.getvalue(), err.getvalue())


def drawn(rng: np.random.Generator) -> Options:
    """Options of one run; a state in three of four."""

    def spread(low: float, high: float) -> float:
        return float(10 ** rng.uniform(np.log10(low), np.log10(high)))

    def time(low: float, high: float) -> str:
        return "0s" if rng.random() < 0.1 else f"{spread(low, high):.4g}s"

    def share() -> str:
        return str(rng.choice(["0", "1e-9", "1", f"{rng.random():.3f}"]))

    options = {
        "--gpus": f"{spread(8, 1e6):.0f}",
        "--failures-per-1000-node-days": f"{spread(0.01, 1000):.4g}",
    }
    sometimes: dict[str, Callable[[], str]] = {
        "--write": lambda: time(0.01, 1e4),
        "--restart": lambda: time(1, 1e4),
        "--queue": lambda: time(1, 1e5),
        "--days": lambda: f"{spread(0.01, 400):.4g}d",
        "--target": lambda: f"{rng.uniform(0.01, 0.999):.3f}",
        "--interval": lambda: f"{spread(1, 1e6):.4g}s",
    }
    of_state: dict[str, Callable[[], str]] = {
        "--network": lambda: f"{spread(1e6, 1e12):.4g}B/s",
        "--device": lambda: f"{spread(1e6, 1e13):.4g}B/s",
        "--host-memory": lambda: f"{spread(1e6, 1e14):.4g}B",
        "--storage-space": lambda: f"{spread(1e9, 1e15):.4g}B",
        "--replace": lambda: time(1, 1e4),
        "--durable-every": lambda: time(1, 1e6),
        "--logged-bytes": lambda: f"{spread(1e3, 1e13):.4g}B",
        "--replicas": lambda: str(rng.integers(1, 65)),
        "--one-writer-share": share,
        "--embedding-share": share,
        "--expert-share": share,
        "--failure-shares": lambda: _shares(rng),
        "--assume": lambda: f"hot-swap.swap={time(1, 1e4)}",
    }
    options |= {name: draw() for name, draw in sometimes.items() if rng.random() < 0.3}
    if rng.random() < 0.75:
        options |= {
            "--state-bytes": f"{spread(1e6, 1e14):.4g}B",
            "--step": f"{spread(1e-3, 600):.4g}s",
            "--bandwidth": f"{spread(1e6, 1e14):.4g}B/s",
        }
        options |= {name: draw() for name, draw in of_state.items() if rng.random() < 0.3}
    return options


def _shares(rng: np.random.Generator) -> str:
    of = np.round(rng.dirichlet(np.full(4, 0.3)), 6)
    of[int(np.argmax(of))] += 1.0 - of.sum()
    names = ("process", "node", "rack", "job")
    return ",".join(f"{name}={share:.6f}" for name, share in zip(names, of, strict=True))


def words_of(options: Options, *more: str) -> list[str]:
    """The command line."""
    return ["plan", *(word for pair in options.items() for word in pair), *more]


def worse(options: Options, rng: np.random.Generator) -> Options:
    """The same run, one thing worse."""
    choices = [
        name
        for name in (
            "--failures-per-1000-node-days",
            "--write",
            "--restart",
            "--queue",
            "--replace",
            "--bandwidth",
        )
        if name in options
    ]
    name = str(rng.choice(choices))
    number, unit = re.fullmatch(r"([\d.e+-]+)(.*)", options[name]).groups()  # type: ignore[union-attr]
    factor = 1 / 1.5 if name == "--bandwidth" else 1.5
    return options | {name: f"{factor * float(number):.6g}{unit}"}


def ettrs(plan: dict[str, Any]) -> dict[str, float]:
    """ETTR of the head and of each scheme that can be used."""
    schemes = {one["name"]: one["ettr"]["estimate"] for one in plan["schemes"] if one["usable"]}
    return {"head": plan["ettr"]["estimate"], **schemes}


def better(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What became better although the run is worse.

    Storage too slow for the durable period stretches it, which saves stalls: not compared.
    """
    a, b = ettrs(before), ettrs(after)
    job, slower = before["job"], after["job"]
    if job and job["storage_bytes_per_s"] != slower["storage_bytes_per_s"]:
        write_s = slower["state_bytes"] / slower["storage_bytes_per_s"] / job["one_writer_share"]
        if write_s > job["durable_period_s"]:
            bound = ("in-memory", "logging")
            a = {name: ettr for name, ettr in a.items() if not name.startswith(bound)}
    return [name for name in a.keys() & b.keys() if b[name] > a[name] * (1 + TOLERANCE) + 1e-12]


SCRIPT = """
const asked = JSON.parse(require("fs").readFileSync(0));
const DAY = 86400;
console.log(JSON.stringify(asked.map((given) => {
  const s = given.state, nodes = Math.max(1, Math.ceil(s.gpus / given.gpus_per_node - 1e-9));
  const rate = s.per_1000 / 1000 * nodes / DAY;
  const inner = { nodes, rate, restart: s.restart_s, queue: s.queue_s };
  const best = s.best ? forms.optimalShare(rate * s.write_s) / rate : s.interval_s;
  const found = { head: [true, best,
    forms.longRun(rate, best, s.write_s, s.restart_s + given.load_s, s.queue_s)] };
  for (const one of given.schemes) {
    const lacking = nodes < one.min_nodes ||
      forms.affine(one.host_bytes, nodes, s.restart_s) > given.host_bytes;
    const interval = forms.schemeBest(one, inner);
    found[one.name] = [!one.obstacle && !lacking, interval,
      forms.levels(forms.schemeLevels(one, inner, interval))];
  }
  return found;
})));
"""


def node_js() -> str | None:
    """Node.js: of the system, or the one that Playwright brings."""
    if found := shutil.which("node"):
        return found
    try:
        import playwright
    except ImportError:
        return None
    driver = Path(playwright.__file__).parent / "driver" / "node"
    return str(driver) if driver.exists() else None


def pages_differ(pages: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[int, str]]:
    """Numbers of pages that are not those of the command: (page, what)."""
    given = [
        json.loads(re.search(r'id="given">(.*?)</script>', html, re.DOTALL).group(1))  # type: ignore[union-attr]
        for html, _ in pages
    ]
    forms = re.search(r"const forms = .*?\n}\)\(\);", pages[0][0], re.DOTALL)
    if forms is None:
        raise ValueError("the page has no forms")
    done = subprocess.run(
        [node_js() or "node", "-e", forms.group(0) + SCRIPT],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        (index, name)
        for index, (shown, (_, plan)) in enumerate(zip(json.loads(done.stdout), pages, strict=True))
        for name in _differing(shown, plan)
    ]


def _differing(shown: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    def near(a: float, b: float) -> bool:
        return abs(a - b) <= PAGE_TOLERANCE * max(abs(a), abs(b)) + 1e-12

    names = []
    if plan["run"]["productive_s"] is None:
        _, interval_s, ettr_ = shown["head"]
        if not near(ettr_, plan["ettr"]["estimate"]) or not near(
            interval_s, plan["run"]["interval_s"]
        ):
            names.append("head")
    for one in plan["schemes"]:
        usable, _, ettr_ = shown[one["name"]]
        same = usable == one["usable"] and (not usable or near(ettr_, one["ettr"]["estimate"]))
        if not same:
            names.append(one["name"])
    return names


def fewer_spares(rng: np.random.Generator) -> bool:
    """Whether half of the spares give a higher ETTR; every draw projects one fleet twice."""
    spares = int(rng.integers(1, 200))
    given = [
        *("project", "--failures", str(rng.integers(5, 500))),
        *("--node-days", f"{10 ** rng.uniform(3, 6):.0f}"),
        *("--gpus", f"{10 ** rng.uniform(1, 5.5):.0f}"),
        *("--repair", f"{10 ** rng.uniform(-1, 1):.3f}d"),
    ]
    both = [ettr([*given, "--spares", str(n), "--json"]) for n in (spares, spares // 2)]
    if any(done.code for done in both):
        raise ValueError(f"project {given}: {both}")
    more, fewer = (
        json.loads(done.out)["points"][0]["projection"]["ettr"]["estimate"] for done in both
    )
    return bool(fewer > more * (1 + TOLERANCE) + 1e-12)


class Tally:
    """What random inputs came to, with the first input of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.pages: list[tuple[str, dict[str, Any], str]] = []

    def count(self, what: str, words: str) -> None:
        """One more of a kind."""
        self.counts[what] += 1
        self.first.setdefault(what, words)

    def draw(self, seed: int, html: Path) -> None:
        """One random input: the table, the page, and the same run made worse."""
        rng = np.random.default_rng([seed])
        options = drawn(rng)
        words = " ".join(words_of(options))
        done = ettr(words_of(options, "--json", "--html", str(html)))
        if done.code:
            sentence = done.code in (1, 2) and done.err and "Traceback" not in done.err
            self.count("sentence" if sentence else "traceback", words)
            return
        self.count("table", words)
        plan = json.loads(done.out)
        if seed % 4 == 0 and not ettr(words_of(options)).out:
            self.count("traceback", words)
        if not all(0.0 <= value <= 1.0 for value in ettrs(plan).values()):
            self.count("no share", words)
        self.pages.append((html.read_text("utf-8"), plan, words))
        changed = ettr(words_of(worse(options, rng), "--json"))
        if changed.code not in (0, 1, 2):
            self.count("traceback", " ".join(words_of(worse(options, rng))))
        if changed.code == 0:
            self.count("made worse", words)
            for name in better(plan, json.loads(changed.out)):
                self.count("worse is better", f"{name}: {words}")
        if seed % 10 == 0:
            self.count("fewer spares", words)
            if fewer_spares(rng):
                self.count("worse is better", "spares")

    def compare(self) -> None:
        """The pages that were written against what the command printed."""
        if self.pages and node_js():
            for index, name in pages_differ([(html, plan) for html, plan, _ in self.pages]):
                self.count("page differs", f"{name}: {self.pages[index][2]}")
            self.counts["pages compared"] += len(self.pages)
        self.pages.clear()


def table_of(tally: Tally) -> Table:
    """The counts, and the first input of each kind that should not be."""
    kinds = (
        *("table", "sentence", "traceback", "no share", "made worse", "fewer spares"),
        *("worse is better", "pages compared", "page differs"),
    )
    failures = ("traceback", "no share", "worse is better", "page differs")
    return Table(
        ("of the inputs", "number", "first"),
        tuple(
            (kind, str(tally.counts[kind]), tally.first.get(kind, "") if kind in failures else "")
            for kind in kinds
        ),
        "[draw]",
        "traceback, no share, worse is better, page differs: 0",
    )


def run(size: int) -> Table:
    """`size` random inputs."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(size):
            tally.draw(seed, Path(folder) / "planner.html")
            if len(tally.pages) == PAGES_AT_ONCE:
                tally.compare()
    tally.compare()
    return table_of(tally)
