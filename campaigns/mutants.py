"""Small changes of a rule, each in a copy of the source: do the tests of that rule notice?

The rules are those that the analysis, the planner and the checkpoints had before the facts were
written in SQL (commit ae64b3a6), in today's code. A change is a text that stands once in the
source, and what stands there instead. Tests that fail without a change catch nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns import Table

TITLE = "Small changes of the rules"
ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 900
_KINDS = frozenset((".csv", ".py", ".sql"))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule, a text of the source and its change, and the tests of that rule."""

    rule: str
    was: str
    now: str
    tests: tuple[str, ...]


_WINDOW = ("attribution/test_attribution_window.py",)
_FAILURES = ("attribution/test_attribution_failures.py",)
_ENDINGS = ("attribution/test_attribution_endings.py",)
_EPISODES = ("attribution/test_attribution_episodes.py",)
_TAXONOMY = ("taxonomy/test_taxonomy_data.py", "taxonomy/test_taxonomy_classify.py")
_INTERVALS = ("estimates/", "metrics/test_metrics_coverage.py")
_COMPARE = ("models/test_models_compare.py",)
_PLAN = ("plan/test_plan_renewal.py", "plan/test_plan_intervals.py")
_RUNS = ("metrics/test_metrics_runs.py", "metrics/test_runs_without_saves.py")
_GOODPUT = ("metrics/test_metrics_goodput.py",)
_RECOVERY = ("recovery/test_recovery.py",)
_ROUNDS = ("checkpoint/test_running.py",)

MUTANTS = (
    Mutant(
        "an error counts until 5 min after the end",
        "WHERE r.first_us <= e.end_us + $after_us AND",
        "WHERE r.first_us <= e.end_us AND",
        _WINDOW,
    ),
    Mutant(
        "an error counts from 10 min before the end",
        "WINDOW_BEFORE_S = 600.0",
        "WINDOW_BEFORE_S = 900.0",
        _WINDOW,
    ),
    Mutant(
        "no error counts from before the start",
        "CASE WHEN start_us > end_us - $before_us THEN start_us ELSE end_us - $before_us END "
        "AS begins_us\n  FROM allocations WHERE end_us IS NOT NULL)",
        "end_us - $before_us AS begins_us\n  FROM allocations WHERE end_us IS NOT NULL)",
        _WINDOW,
    ),
    Mutant(
        "of several causes the one of lower rank leads, then the earlier",
        "o.rank, o.first_us, o.node",
        "o.first_us, o.rank, o.node",
        (*_FAILURES, *_WINDOW, *_EPISODES),
    ),
    Mutant(
        "a cause on the node that the scheduler names leads",
        "CASE WHEN o.node <> c.named_node THEN 1 ELSE 0 END, o.rank",
        "o.rank",
        _FAILURES,
    ),
    Mutant(
        "sure: an error on the node that the scheduler names",
        "WHEN lead_node = named_node THEN 'high'",
        "WHEN lead_node = named_node THEN 'medium'",
        ("attribution/test_confidence_rules.py", *_FAILURES),
    ),
    Mutant(
        "less sure: an error after the end of a FAILED job",
        "WHEN lead_us > end_us THEN 'low'",
        "WHEN lead_us > end_us THEN 'medium'",
        ("attribution/test_confidence_rules.py", *_FAILURES),
    ),
    Mutant(
        "a FAILED attempt without an error is no failure of the cluster",
        "WHERE c.node_failed OR l.symptom IS NOT NULL",
        "WHERE c.node_failed OR c.state = 'FAILED' OR l.symptom IS NOT NULL",
        _FAILURES,
    ),
    Mutant(
        "sticky codes fold over a longer silence",
        "CASE WHEN sticky THEN $sticky_us ELSE $burst_us END",
        "$burst_us",
        _EPISODES,
    ),
    Mutant(
        "a lone XID 45 is no fault, one with another is its echo",
        "WHERE (s.fault OR s.down) AND a.episode_id IS NULL",
        "WHERE (s.fault OR s.down)",
        _EPISODES,
    ),
    Mutant(
        "killed for memory: the user's, though FAILED",
        "WHEN out_of_memory THEN 'user-failure'",
        "WHEN out_of_memory THEN 'hardware-candidate'",
        _ENDINGS,
    ),
    Mutant(
        "who cancels jobs of several users is no owner",
        'GROUP BY cluster, cancelled_by HAVING count(DISTINCT "user") > 1',
        'GROUP BY cluster, cancelled_by HAVING count(DISTINCT "user") > 9',
        _ENDINGS,
    ),
    Mutant(
        "root's cancel is an operator's",
        "IN ('0', 'root')",
        "IN ('root')",
        _ENDINGS,
    ),
    Mutant(
        "a failure inside of planned maintenance is an operator's",
        "CASE WHEN p.attempt_id IS NULL THEN e.kind ELSE 'operator' END",
        "e.kind",
        (*_ENDINGS, "metrics/test_metrics_counts.py", "cli/test_cli_maintenance.py"),
    ),
    Mutant(
        "a job that a node failure ended names that node",
        "CASE WHEN node_failed AND n_nodes = 1 THEN node_list END",
        "NULL",
        (*_FAILURES, *_ENDINGS),
    ),
    Mutant(
        "XID 79 repeats until a reset",
        "fallen off the bus,gpu-unavailable,anchors,,yes,",
        "fallen off the bus,gpu-unavailable,anchors,,,",
        _TAXONOMY,
    ),
    Mutant(
        "XID 48 is the GPU's memory",
        "Double Bit ECC Error,gpu-memory,",
        "Double Bit ECC Error,gpu-driver,",
        _TAXONOMY,
    ),
    Mutant(
        "OUT_OF_MEMORY is the user's",
        "OUT_OF_MEMORY,OOM,yes,user-failure,user-failure,no",
        "OUT_OF_MEMORY,OOM,yes,hardware-candidate,user-failure,no",
        (*_TAXONOMY, *_ENDINGS),
    ),
    Mutant(
        "a state that sacct cuts off is read where one word fits",
        "if len(fits) == 1:\n            return ParsedState(",
        "if len(fits) == 99:\n            return ParsedState(",
        ("sources/test_slurm_fields.py", *_TAXONOMY),
    ),
    Mutant(
        "an interval is two-sided",
        "check_confidence(confidence)\n    tail = (1.0 - confidence) / 2.0\n    if count",
        "check_confidence(confidence)\n    tail = 1.0 - confidence\n    if count",
        _INTERVALS,
    ),
    Mutant(
        "the upper end of a share",
        "beta_quantile(part + 1, whole - part, 1.0 - tail)",
        "beta_quantile(part, whole - part + 1, 1.0 - tail)",
        _INTERVALS,
    ),
    Mutant(
        "without a failure an MTTF has a lower end only",
        "exposure / low if low > 0 else math.inf",
        "exposure / low if low > 0 else exposure / high",
        (*_INTERVALS, "metrics/test_metrics_rates.py"),
    ),
    Mutant(
        "MTTF of a job: all its nodes in series",
        "self.interval(confidence).scaled(n_nodes).inverse(HOURS_PER_DAY)",
        "self.interval(confidence).scaled(1.0).inverse(HOURS_PER_DAY)",
        ("estimates/test_counts.py",),
    ),
    Mutant(
        "a comparison allows for failures in bursts",
        "index = max(1.0, sum(value * d for value, d in indices) / degrees)",
        "index = 1.0",
        _COMPARE,
    ),
    Mutant(
        "the upper end of a ratio of rates",
        "beta_quantile(x + 1.0, y, 1.0 - tail) if b.failures",
        "beta_quantile(x, y + 1.0, 1.0 - tail) if b.failures",
        _COMPARE,
    ),
    Mutant(
        "Young's interval",
        "return math.sqrt(2.0 * write_s * mttf_s)\n",
        "return math.sqrt(write_s * mttf_s)\n",
        _PLAN,
    ),
    Mutant(
        "Daly's interval counts the restart",
        "math.sqrt(2.0 * write_s * (mttf_s + restart_s)) - write_s",
        "math.sqrt(2.0 * write_s * mttf_s) - write_s",
        _PLAN,
    ),
    Mutant(
        "ETTR: each failure waits in the queue",
        "* gone / (1.0 + failures_per_s * queue_s)",
        "* gone",
        _PLAN,
    ),
    Mutant(
        "ETTR: the first start waits and recovers too",
        "return expected_recovery_s(run) + full_s",
        "return full_s",
        _PLAN,
    ),
    Mutant(
        "a restart may fail and begin again",
        "math.exp(-failures_per_s * restart_s - load)",
        "math.exp(-load)",
        _PLAN,
    ),
    Mutant(
        "what a cut run loses by assumption",
        "r.state NOT IN ('COMPLETED', 'RUNNING', 'SUSPENDED', 'COMPLETING') AS cut",
        "r.state NOT IN ('RUNNING', 'SUSPENDED', 'COMPLETING') AS cut",
        _RUNS,
    ),
    Mutant(
        "a run's wait begins at the end of the attempt before",
        "CASE WHEN start_s > ready_s THEN start_s - ready_s ELSE 0 END AS queue_s",
        "0 AS queue_s",
        _RUNS,
    ),
    Mutant(
        "after COMPLETED a job of that name is a new run",
        "OR (prior_state = 'COMPLETED' AND prior_task <> task))",
        ")",
        _RUNS,
    ),
    Mutant(
        "a line belongs to a preemption within two minutes",
        "abs(l.time_us - e.end_us) <= $preemption_line_us",
        "abs(l.time_us - e.end_us) <= 100 * $preemption_line_us",
        (*_GOODPUT, "metrics/test_metrics_dependencies.py"),
    ),
    Mutant(
        "exposure counts each node of a job",
        "CASE WHEN node_list IS NOT NULL AND n_nodes > 0 THEN elapsed_s * n_nodes END",
        "CASE WHEN node_list IS NOT NULL AND n_nodes > 0 THEN elapsed_s END",
        ("metrics/test_listed_nodes.py",),
    ),
    Mutant(
        "an open repair is no end: Kaplan and Meier's curve",
        'at_risk = len(hours) - np.searchsorted(np.sort(hours), times_h, side="left")\n'
        "        left = at_risk - ended",
        "at_risk = len(hours[over]) - np.searchsorted(np.sort(hours[over]), times_h)\n"
        "        left = at_risk - ended",
        ("metrics/test_metrics_nodes.py", "metrics/test_in_service.py"),
    ),
    Mutant(
        "a lemon's ticket within three days of a failure is its echo",
        "TICKET_AFTER_S = 3 * SECONDS_PER_DAY",
        "TICKET_AFTER_S = 0.0",
        ("lemons/test_lemon_signals.py",),
    ),
    Mutant(
        "a slot's record is read only with its checksum",
        'if zlib.crc32(raw[:-4]).to_bytes(4, "little") != raw[-4:]:',
        "if not raw:",
        ("checkpoint/test_slotfile.py", "checkpoint/test_crash_safety.py"),
    ),
    Mutant(
        "the cheapest of the ways to recover",
        "best = min(open_options, key=lambda o: (o.cost_s, order.index(o.source)))",
        "best = min(open_options, key=lambda o: order.index(o.source))",
        _RECOVERY,
    ),
    Mutant(
        "no partial recovery over the ceiling",
        "if not relative <= policy.max_relative_perturbation:",
        "if relative > 10.0 * policy.max_relative_perturbation:",
        _RECOVERY,
    ),
    Mutant(
        "blocks by squared distance for each byte",
        "rank = -view.distance2 / np.maximum(view.n_bytes, 1)",
        "rank = view.distance2 / np.maximum(view.n_bytes, 1)",
        _ROUNDS,
    ),
    Mutant(
        "blocks that were never saved come first",
        "rank = np.where(unsaved, -np.inf, rank)",
        "rank = np.where(unsaved, np.inf, rank)",
        _ROUNDS,
    ),
)
SIZE = len(MUTANTS)


def run(size: int) -> Table:
    """The first `size` changes, and which test noticed each."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ettr-mutants-") as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        passing = {
            tests: _failing(tests, source) for tests in {one.tests for one in MUTANTS[:size]}
        }
        for mutant in MUTANTS[:size]:
            caught = passing[mutant.tests] and f"fails without a change: {passing[mutant.tests]}"
            rows.append((mutant.rule, caught or _caught(mutant, source)))
    survived = sum(".py" not in caught.split(":")[0] for _, caught in rows)
    return Table(
        headers=("rule", "caught by"),
        rows=tuple(rows),
        seeds="none, the changes are fixed",
        asked="each is caught",
        verdict=f"Of {len(rows)} changes {len(rows) - survived} are caught.",
    )


def _caught(mutant: Mutant, source: Path) -> str:
    """The test that fails once the change is made; undone before it returns."""
    was, now = mutant.was.encode(), mutant.now.encode()
    files = [path for path in source.rglob("*.*") if path.suffix in _KINDS]
    places = [path for path in files for _ in range(path.read_bytes().count(was))]
    if len(places) != 1:
        return f"stands {len(places)} times in the source"
    (place,) = places
    text, time_s = place.read_bytes(), place.stat().st_mtime
    place.write_bytes(text.replace(was, now))
    os.utime(place, (time_s, time_s + 10.0))  # or what is compiled already seems as new
    try:
        return _failing(mutant.tests, source) or "none"
    finally:
        place.write_bytes(text)
        os.utime(place, (time_s, time_s - 10.0))


def _failing(tests: Sequence[str], source: Path) -> str:
    """The first test that fails with that source; empty where all pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
        + [f"tests/{name}" for name in tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if not done.returncode:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1].removeprefix("tests/") if found else f"pytest's exit status {done.returncode}"
