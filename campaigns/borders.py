"""A site with GPU nodes of two types and nodes without: is what is said of it true?

Sites of `mixed_fleet`, of whose laws the code assumes none. Each row is one question: in how many
sites the planted answer lies in the stated 90 % interval. The rate of a class is what its hazards
had in store for what ran, runs that hang and failures without a line included.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from campaigns import Table
from campaigns.mixed_fleet import CLASSES, GPUS, Truth, repair_hours, site
from ettr.cli.main import main

TITLE = "Sites of three classes of nodes"
SIZE = 10
SCALE_GPUS = 4096
CAUSES = ("node_hardware", "shared", "operator", "user_program")


@dataclass(frozen=True, slots=True)
class Said:
    """One answer next to the planted one; an end is infinite where the answer has none."""

    question: str
    truth: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether the planted answer lies in the interval."""
        return self.low <= self.truth <= self.high


@dataclass(frozen=True, slots=True)
class Judged:
    """What was said of one site.

    Attributes:
        said: Its answers with intervals.
        names_hole: Whether the black hole, and nothing else, is named.
        hangs: How many of the runs that hung are named, and how many there were.
        false: Sentences that are not true.
    """

    said: tuple[Said, ...]
    names_hole: bool
    hangs: tuple[int, int]
    false: tuple[str, ...]


def judged(seed: int, folder: Path) -> Judged:
    """Make the site of a seed in a folder, read it, and judge what is said of it."""
    made = site(seed)
    store = folder / "store"
    _ettr("ingest", store, *made.write(folder), "--timezone", "UTC", "--cluster", "c")
    report = json.loads(_ettr("report", store, "--json"))
    scale = json.loads(_ettr("project", store, "--gpus", str(SCALE_GPUS), "--json"))
    truth = made.truth
    said = [*_rates(report, truth), *_repairs(report, truth), _mttf(scale, truth)]
    said += _causes(report, truth)
    holes = {one["node"] for one in report["failures"]["black_holes"]}
    return Judged(
        tuple(said),
        holes == {truth.hole},
        (len(report["failures"]["hung_runs"]), truth.hangs),
        tuple(_false(report, scale, truth)),
    )


def run(size: int) -> Table:
    """Judge `size` sites."""
    sites = []
    for seed in range(1, size + 1):
        with tempfile.TemporaryDirectory() as folder:
            sites.append(judged(seed, Path(folder)))
    rows = []
    for place, one in enumerate(sites[0].said):
        held = sum(judged.said[place].holds for judged in sites)
        said = "; ".join(
            f"{pair.truth:.3g} in [{pair.low:.3g}, {pair.high:.3g}]"
            for pair in (judged.said[place] for judged in sites[:3])
        )
        rows.append((one.question, f"{held} of {size}", said))
    holes = sum(one.names_hole for one in sites)
    rows.append(("the black hole is named, and no other node", f"{holes} of {size}", ""))
    named, hung = (sum(one.hangs[place] for one in sites) for place in (0, 1))
    all_hangs = sum(one.hangs[0] >= one.hangs[1] for one in sites)
    rows.append(("all runs that hung are named", f"{all_hangs} of {size}", f"{named} of {hung}"))
    false = [words for one in sites for words in one.false]
    rows.append(("no false sentence", f"{sum(not one.false for one in sites)} of {size}", ""))
    pairs = [one.holds for judged in sites for one in judged.said]
    share = sum(pairs) / len(pairs)
    return Table(
        ("question", "holds", "planted in interval, first three sites"),
        tuple(rows),
        f"1 to {size}",
        "each interval in 7 of 10 sites or more, and in 85 % of all pairs; black hole and hangs in "
        "all; no false sentence",
        f"{sum(pairs)} of {len(pairs)} pairs hold ({100 * share:.0f} %). "
        + ("; ".join(false) if false else "No sentence was false."),
    )


def _ettr(*words: str | Path) -> str:
    """What the program prints."""
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["ettr", *map(str, words)]),
    ):
        try:
            main()
        except SystemExit as stop:
            if stop.code:
                raise RuntimeError(err.getvalue()) from None
    return out.getvalue()


def _interval(question: str, truth: float, of: dict[str, Any], times: float = 1.0) -> Said:
    high = float("inf") if of["high"] is None else of["high"] * times
    return Said(question, truth, (of["low"] or 0.0) * times, high)


def _rates(report: dict[str, Any], truth: Truth) -> list[Said]:
    by_class = {one["name"]: one["per_1000_node_days"] for one in report["failures"]["by_class"]}
    return [
        _interval(
            f"failures per 1,000 node-days of {kind.name}",
            truth.per_1000_node_days(kind.name),
            by_class[kind.name],
        )
        for kind in CLASSES
    ]


def _repairs(report: dict[str, Any], truth: Truth) -> list[Said]:
    found = report["nodes"]["repair_h"]
    return [
        _interval(f"{statistic} hours to repair", repair_hours(truth, statistic), found[name])
        for statistic, name in (("mean", "mean_h"), ("median", "median_h"))
    ]


def _mttf(scale: dict[str, Any], truth: Truth) -> Said:
    per_node_day = truth.large["expected"] / truth.large["node_days"]
    (point,) = scale["points"]
    return _interval(
        f"hours to failure at {SCALE_GPUS:,} GPUs of h100",
        24.0 / (SCALE_GPUS / GPUS * per_node_day),
        point["projection"]["mttf_h"],
    )


def _causes(report: dict[str, Any], truth: Truth) -> list[Said]:
    totals = {one["cause"]: one["share"] for one in report["causes"]["totals"]}
    n = report["causes"]["interruptions"]
    return [
        _interval(f"interruptions by {name}", truth.kinds[name], totals[name], n) for name in CAUSES
    ]


def _false(report: dict[str, Any], scale: dict[str, Any], truth: Truth) -> list[str]:
    """Sentences that are not true of a site whose rates are constant but for the week."""
    found = []
    for verdict in (report["previous"]["direction"], report["failures"]["direction"]["verdict"]):
        if verdict in ("better", "worse"):
            found.append(f"it is getting {verdict}")
    claimed = {one["node"] for one in report["lemons"]["candidates"] if one["claimed"]}
    if claimed - {truth.lemon}:
        found.append(f"ordinary nodes are lemons: {', '.join(sorted(claimed - {truth.lemon}))}")
    worst = next(one for one in report["summary"] if "worst nodes" in one["question"])
    if not {*worst["answer"].split(", ")} <= {truth.lemon, "none", "none stands out"}:
        found.append(f"the worst nodes are {worst['answer']}")
    shared = next(one for one in report["causes"]["totals"] if one["cause"] == "shared")
    if shared["share"]["low"] * report["causes"]["interruptions"] > truth.kinds["shared"] + 5:
        found.append("planned work is put down to what nodes share")
    if "rarer" in json.dumps(scale["notes"]) + json.dumps(report["next_steps"]):
        found.append("failures become rarer")
    return found
