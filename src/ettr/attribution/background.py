"""Faults that end nothing: how often they fall into a window by chance, and what that makes false.

A critical episode that has nothing to do with a job's end may still lie in its window, on one of
its nodes. How often follows from the rate of such episodes while jobs run: the more nodes and the
longer the window, the likelier. A 64-node job meets 64 times as many as a one-node job, so a share
over all completed jobs, which are mostly small, says little about the large ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np
from ibis.expr.types import Table

from ettr.attribution.endings import HARDWARE_CANDIDATE
from ettr.attribution.rules import Window, seconds
from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import rate_interval
from ettr.tables.ibis_time import epoch_day, epoch_s
from ettr.tables.materialize import materialize
from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class BackgroundRate:
    """Critical episodes of one symptom that ended nothing.

    Attributes:
        symptom: Which.
        episodes: Episodes that began on a running node, outside every window that could blame them.
        per_node_hour: Their rate while jobs run, with its exact interval.
    """

    symptom: str
    episodes: int
    per_node_hour: Interval


@dataclass(frozen=True, slots=True)
class Background:
    """The rate of critical episodes that ended nothing, per running node-hour.

    Attributes:
        node_hours: Running node-hours, the windows of hardware candidates left out.
        episodes: Episodes that began in them.
        per_node_hour: All symptoms together, with the exact interval.
        index: How many times the episodes vary as much between nodes as independent ones.
        mean_length_s: How long an episode lasts, from its first observation to its last.
        by_symptom: Each symptom, the most frequent first.
    """

    node_hours: float
    episodes: int
    per_node_hour: Interval
    index: float
    mean_length_s: float
    by_symptom: tuple[BackgroundRate, ...]


@dataclass(frozen=True, slots=True)
class FalseFailures:
    """Failures that rest on a check alone, and how many of them chance would give.

    Attributes:
        on_evidence: Failures counted because of a check, without the scheduler's word.
        unexplained: Attempts that failed alike and show no check.
        expected_false: Of `on_evidence`, how many are expected to be false; the interval is of the
            number itself, not of its mean.
    """

    on_evidence: int
    unexplained: int
    expected_false: Interval


@dataclass(frozen=True, slots=True)
class FalseFailuresBySize:
    """False failures of all jobs and of large ones, and the background that they follow from."""

    background: Background
    all_jobs: FalseFailures
    large_jobs: FalseFailures


def false_failures_by_size(
    allocations: Table,
    ends: Table,
    seen: Table,
    folded: Table,
    above_gpus: int,
    window: Window | None = None,
    confidence: float = CONFIDENCE,
    chosen: Table | None = None,
    suspect: Table | None = None,
    span_s: Mapping[tuple[object, object], float] | None = None,
) -> FalseFailuresBySize:
    """How many failures chance explains, of all jobs and of those of more than `above_gpus` GPUs.

    Args:
        allocations: the table `allocations`.
        ends: rows of `ettr.attribution.endings.endings`.
        seen: rows of `ettr.attribution.window.observed`.
        folded: fault episodes, rows of `ettr.attribution.episodes.episodes`.
        above_gpus: large jobs hold more GPUs than this.
        window: the one that was used for `seen`.
        confidence: of the intervals, between 0 and 1.
        chosen: the rows of `ends` that are asked about, where not all are: the rate of chance is
            measured on all of the logs.
        suspect: rows of `allocations` of the hardware candidates among `ends`, where they are at
            hand.
        span_s: by cluster and node, the whole seconds from the start to the end of all that ran
            and ended there, where they are at hand.
    """
    rate = background(allocations, ends, folded, window, confidence, suspect, span_s)
    ends = ends if chosen is None else chosen
    every = false_failures(ends, seen, rate, window, confidence=confidence)
    large = false_failures(ends, seen, rate, window, above_gpus=above_gpus, confidence=confidence)
    return FalseFailuresBySize(rate, every, large)


def background(
    allocations: Table,
    ends: Table,
    folded: Table,
    window: Window | None = None,
    confidence: float = CONFIDENCE,
    suspect: Table | None = None,
    span_s: Mapping[tuple[object, object], float] | None = None,
) -> Background:
    """Rate of critical episodes while jobs run, apart from those that may have ended one.

    Args:
        allocations: the table `allocations`.
        ends: rows of `ettr.attribution.endings.endings`.
        folded: fault episodes, rows of `ettr.attribution.episodes.episodes`.
        window: the part of an attempt before its end that is left out where it may be to blame.
        confidence: of the intervals, between 0 and 1.
        suspect, span_s: as for `false_failures_by_size`.
    """
    window = window or Window()
    ran = _runs(allocations)
    ended = _runs(_suspect(allocations, ends) if suspect is None else suspect)
    # kept: it is asked for twice
    ended = materialize(ended.drop("attempt_id"))
    span_s = _sums(_timed(ran), "ran_s") if span_s is None else span_s
    quiet_s = _quiet_s_by_node(span_s, ended, window)
    node_s = float(sum(quiet_s.values()))
    hours = node_s / SECONDS_PER_HOUR
    met = _quiet(materialize(_episodes_within(ran, folded)), ended, window)
    rows = (
        met.group_by("cluster", "node", "symptom")
        .aggregate(n=met["n"].sum(), length_s=(met["n"] * met["length_s"]).sum())
        .filter(lambda t: t["n"] > 0)
        .to_pyarrow()
        .to_pylist()
    )
    by_symptom: dict[str, int] = defaultdict(int)
    for row in rows:
        by_symptom[row["symptom"]] += row["n"]
    total = sum(by_symptom.values())
    return Background(
        node_hours=hours,
        episodes=total,
        per_node_hour=rate_interval(total, hours, confidence),
        index=_index_over_nodes(rows, quiet_s, total, node_s),
        mean_length_s=sum(row["length_s"] or 0.0 for row in rows) / total if total else 0.0,
        by_symptom=tuple(
            BackgroundRate(name, n, rate_interval(n, hours, confidence))
            for name, n in sorted(by_symptom.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def _suspect(allocations: Table, ends: Table) -> Table:
    """What the attempts held that their nodes may have ended."""
    suspects = ends.filter(ends.kind == HARDWARE_CANDIDATE)
    return allocations.semi_join(suspects, "attempt_id")


def _runs(allocations: Table) -> Table:
    """Node by node, the runs that took time."""
    ran = allocations.filter(
        allocations.start.notnull() & allocations.end.notnull() & (allocations.elapsed_s > 0)
    )
    return ran.select("cluster", "node", "attempt_id", "start", "end")


def _quiet_s_by_node(
    span_s: Mapping[tuple[object, object], float], suspect: Table, window: Window
) -> dict[tuple[object, object], float]:
    """Seconds of the quiet parts, by cluster and node; nodes without any are left out.

    All that ran, less what is no quiet part of the `suspect` runs: to join only those costs less.
    """
    quiet_s = dict(span_s)
    ended = _timed(suspect)
    until = ended.end - seconds(window.before_s)
    kept_s = (epoch_s(until) - epoch_s(ended.start)).cast("float64")
    ended = ended.mutate(loud_s=ended.ran_s - ibis.greatest(kept_s, 0.0))
    for node, loud_s in _sums(ended, "loud_s").items():
        quiet_s[node] -= loud_s
    # in order: an engine gives groups in any, and the last digit of a sum over them would vary
    return {node: quiet_s[node] for node in sorted(quiet_s, key=str) if quiet_s[node] > 0}


def _timed(runs: Table) -> Table:
    """The runs of a second and more, with their length."""
    ran_s = (epoch_s(runs.end) - epoch_s(runs.start)).cast("float64")
    return runs.mutate(ran_s=ran_s).filter(lambda t: t.ran_s > 0)


def _sums(runs: Table, column: str) -> dict[tuple[object, object], float]:
    summed = runs.group_by("cluster", "node").aggregate(s=runs[column].sum())
    return {(row["cluster"], row["node"]): row["s"] for row in summed.to_pyarrow().to_pylist()}


def _quiet(met: Table, suspect: Table, window: Window) -> Table:
    """Episodes by run, and how often one began in the quiet part of one: `n`.

    Runs have no ids here: to read those of all takes longer than the rest. Of runs on one node from
    one moment to another, so many are suspects as the `suspect` runs have there.
    """
    run = ["cluster", "node", "start", "end"]
    met = met.group_by(*run, "symptom", "began", "length_s", "episodes").aggregate(runs=met.count())
    near = suspect.semi_join(met, run)
    # kept, since they are few: an engine that expects many would hash the wrong side
    suspects = materialize(near.group_by(run).aggregate(n_suspect=near.count()))
    met = met.left_join(suspects, run)
    met = met.mutate(n_suspect=met["n_suspect"].fill_null(0))
    until = met["end"] - seconds(window.before_s)
    lasts = epoch_s(met["end"]) > epoch_s(met["start"])
    quiet = (epoch_s(until) > epoch_s(met["start"])) & (met["began"] <= until)
    runs = (met["runs"] - met["n_suspect"]) * lasts.ifelse(1, 0)
    runs += met["n_suspect"] * quiet.ifelse(1, 0)
    return met.mutate(n=runs * met["episodes"])


def _episodes_within(runs: Table, folded: Table) -> Table:
    """Pairs of an episode and a run that it began in; joined by node and day, never by node alone.

    A node that two jobs share is met once in each, as its hours are counted once in each.
    """
    began = folded.filter(folded.fault).select(
        "cluster",
        "node",
        "symptom",
        began="first",
        length_s=(epoch_s(folded["last"]) - epoch_s(folded["first"])).cast("float64"),
        day=epoch_day(folded["first"]),
    )
    # several things of a node may show the same at the same time
    began = began.group_by(began.columns).aggregate(episodes=began.count())
    begun = runs.drop("attempt_id")
    begun = begun.mutate(day=epoch_day(runs.start), last_day=epoch_day(runs.end))
    # most runs end on the day on which they began: only the others are on a list of days
    longer = begun.filter(begun.last_day > begun.day)
    later = longer.mutate(day=ibis.range(longer.day + 1, longer.last_day + 1, 1).unnest())
    days = ibis.union(begun, later, distinct=False)
    met = materialize(began).join(days, ["cluster", "node", "day"])
    return met.filter((met.began > met.start) & (met.began <= met.end))


def _index_over_nodes(
    rows: Iterable[Mapping[str, object]],
    quiet_s: Mapping[tuple[object, object], float],
    total: int,
    node_s: float,
) -> float:
    """Variance of the total over that of independent episodes, from the spread between nodes."""
    if total < 2 or not node_s:
        return 1.0
    counts: dict[tuple[object, object], int] = defaultdict(int)
    for row in rows:
        counts[row["cluster"], row["node"]] += int(str(row["n"]))
    found = np.array([counts[node] for node in quiet_s], dtype=np.float64)
    expected = np.array(list(quiet_s.values())) * total / node_s
    if expected.size < 2:
        return 1.0
    spread = float(np.sum((found - expected) ** 2)) / total
    return max(1.0, spread * expected.size / (expected.size - 1))


def false_failures(
    ends: Table,
    seen: Table,
    rate: Background,
    window: Window | None = None,
    *,
    above_gpus: int | None = None,
    confidence: float = CONFIDENCE,
) -> FalseFailures:
    """How many failures that rest on a check alone chance would give.

    Of an attempt that failed for its own reasons, chance shows a critical episode with probability
    p = 1 - exp(-rate * nodes * seconds that could blame it). Each such attempt without one
    represents p / (1 - p) of its kind that were blamed falsely (Horvitz and Thompson), so the sum
    over the unexplained failures is the expected number, size by size and without knowing which
    they are.

    Args:
        ends: rows of `ettr.attribution.endings.endings`.
        seen: rows of `ettr.attribution.window.observed`.
        rate: the background.
        window: as used for `seen`.
        above_gpus: attempts of more GPUs only; None takes all.
        confidence: of the interval.

    Source:
        Horvitz and Thompson (1952), JASA 47.
    """
    window = window or Window()
    uncertain = ends.filter((ends.kind == HARDWARE_CANDIDATE) & ~ends.node_failed)
    if above_gpus is not None:
        uncertain = uncertain.filter(uncertain.n_gpus > above_gpus)
    faults = seen.filter(seen.fault).select("attempt_id").distinct()
    explained = int(uncertain.semi_join(faults, "attempt_id").count().to_pyarrow().as_py())
    sizes = _by_size_and_reach(uncertain.anti_join(faults, "attempt_id"), window)
    return FalseFailures(
        on_evidence=explained,
        unexplained=sum(row["n"] for row in sizes),
        expected_false=_expected(sizes, explained, rate, confidence),
    )


def _by_size_and_reach(attempts: Table, window: Window) -> list[dict[str, Any]]:
    """How many attempts there are of each size and each length of time that could blame them."""
    # one of unknown runtime may have run for the whole window
    ran_s = attempts.elapsed_s.fill_null(window.before_s)
    reach_s = ibis.least(ran_s, ibis.literal(window.before_s)).round() + window.after_s
    counted = attempts.mutate(reach_s=reach_s).group_by("n_nodes", "reach_s")
    rows: list[dict[str, Any]] = (
        counted.aggregate(n=lambda t: t.count())
        .filter(lambda t: t.n_nodes > 0)
        .order_by("n_nodes", "reach_s")
        .to_pyarrow()
        .to_pylist()
    )
    return rows


def _expected(
    sizes: Iterable[Mapping[str, float]], on_evidence: int, rate: Background, confidence: float
) -> Interval:
    """Expected number of false ones and the interval of that number, at most `on_evidence`."""
    if not rate.node_hours:
        return Interval(None, 0.0, float(on_evidence))
    per_node_s = rate.episodes / rate.node_hours / SECONDS_PER_HOUR
    mean = variance = slope = 0.0
    for row in sizes:
        exposed_node_s = row["n_nodes"] * (row["reach_s"] + rate.mean_length_s)
        spared = math.exp(-per_node_s * exposed_node_s)
        mean += row["n"] * (1.0 - spared) / spared
        variance += row["n"] * (1.0 - spared) / spared**2
        slope += row["n"] * exposed_node_s / spared
    # a background of n episodes is known to 1 / sqrt(n) of itself; of none, to about one episode
    known = (rate.index * max(rate.episodes, 1)) ** 0.5 / rate.node_hours / SECONDS_PER_HOUR
    variance += (slope * known) ** 2
    low, high = _count_interval(mean, variance, confidence)
    # The ends are whole counts: of a mean far below 1 both may be 0, and the mean lies between.
    low, high = min(low, mean), max(high, mean)
    return Interval(min(mean, float(on_evidence)), min(low, on_evidence), min(high, on_evidence))


def _count_interval(mean: float, variance: float, confidence: float) -> tuple[float, float]:
    """Ends between which a count of that mean and variance lies (negative binomial)."""
    from ettr.estimates.counts import negative_binomial_quantile, poisson_quantile

    tail = (1.0 - confidence) / 2.0
    if variance <= 0.0:
        return 0.0, 0.0
    if mean <= 0.0 or variance <= mean * 1.0001:
        low, high = poisson_quantile([tail, 1.0 - tail], max(mean, variance**0.5)).tolist()
    else:
        size, p = mean**2 / (variance - mean), mean / variance
        low, high = (negative_binomial_quantile(q, size, p) for q in (tail, 1.0 - tail))
    return low, high
