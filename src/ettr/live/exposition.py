"""What a store says as metrics: counters that never fall, the current view, rates with intervals.

A later log can give a failure another cause. Its counter keeps the first one; the change is counted
in `ettr_failure_cause_changes_total`, and `ettr_failures` has the view of now. What was counted is
kept in a file next to the store, replaced before a new value is served: a restart repeats nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ettr.analysis import Analysis
from ettr.analysis.objectives import objectives_held
from ettr.files import flush, written_whole
from ettr.metrics.sizes import size_class, size_end_of
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.estimates import Interval


# -- the metrics of `ettr watch`: one table; docs/dashboards.py makes panels and rules of them -----


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric: what it says, its labels, and whether it counts."""

    help: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False


_BOUND = "bound"
FAMILIES: Mapping[str, MetricFamily] = {
    "ettr_failures_counted": MetricFamily(
        "Failures by the labels with which each was first counted.",
        ("symptom", "domain", "partition", "size"),
        True,
    ),
    "ettr_failure_cause_changes": MetricFamily(
        "Failures to which a later log gave another symptom.", ("from", "to"), True
    ),
    "ettr_failures_withdrawn": MetricFamily(
        "Failures that a later log showed to be none.", (), True
    ),
    "ettr_node_days": MetricFamily("Node-days that jobs ran.", ("partition",), True),
    "ettr_partition_gpu_hours": MetricFamily("GPU-hours that jobs ran.", ("partition",), True),
    "ettr_gpu_hours": MetricFamily(
        "GPU-hours that ran, and those of them that were lost.", ("bucket",), True
    ),
    "ettr_failures": MetricFamily(
        "Failures as the logs have them now.", ("symptom", "domain", "partition", "size")
    ),
    "ettr_node_failures": MetricFamily(
        "Failures of the nodes with the most; 100 at most.", ("node",)
    ),
    "ettr_failure_rate_per_1000_node_days": MetricFamily(
        "Failures per 1,000 node-days of all or of large jobs, with its interval.", ("jobs", _BOUND)
    ),
    "ettr_symptom_rate_per_1000_node_days": MetricFamily(
        "The same of one symptom, all jobs.", ("symptom", _BOUND)
    ),
    "ettr_mttf_hours": MetricFamily("Mean time to failure by job size.", ("size", _BOUND)),
    "ettr_run_effective_ratio": MetricFamily(
        "Effective training time ratio of runs by size.", ("size", _BOUND)
    ),
    "ettr_node_time_down_ratio": MetricFamily("Share of node time lost to unplanned outages."),
    "ettr_nodes": MetricFamily("Nodes that the logs name."),
    "ettr_logs_end_timestamp_seconds": MetricFamily("The last moment that any log names."),
    "ettr_log_silent_days": MetricFamily(
        "Days without a row that do not come by chance.", ("table", "source")
    ),
    "ettr_slo_burn_ratio": MetricFamily(
        "What came over what the budget allows; above 1 it does not last.", ("slo", _BOUND)
    ),
    "ettr_slo_alert": MetricFamily("1 while the burn alert goes on.", ("slo",)),
    "ettr_slo_sum_of_threshold_ratio": MetricFamily(
        "The cumulative sum of the burn alert over its threshold.", ("slo",)
    ),
    "ettr_slo_allowed": MetricFamily("What the budget allows in its window.", ("slo",)),
    "ettr_slo_came": MetricFamily("What came in that window.", ("slo",)),
    "ettr_watch_last_success_timestamp_seconds": MetricFamily(
        "When everything was last read without an error."
    ),
    "ettr_watch_errors": MetricFamily("Looks at the logs that failed.", (), True),
}


# -- what a store says as metrics: counters that never fall, the current view, rates with
# intervals


STATE = "watch.json"
MOST_LABELS = 100
"""Values of a label at most; the rest are one, `other`."""
OTHER = "other"
Labels = tuple[str, ...]
Samples = dict[str, dict[Labels, float]]


@dataclass(slots=True)
class Counted:
    """What counters stand at, and with which labels each failure was counted."""

    failures: dict[str, Labels] = field(default_factory=dict)
    now: dict[str, Labels] = field(default_factory=dict)
    counts: dict[str, dict[Labels, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Counted:
        """From its file; nothing counted where there is none, or it is damaged."""
        try:
            held = json.loads(path.read_text("utf-8"))
            failures, now = (
                {str(key): tuple(labels) for key, labels in held[name]}
                for name in ("failures", "now")
            )
            counts = {
                str(name): {tuple(labels): float(value) for labels, value in rows}
                for name, rows in held["counts"]
            }
            return cls(failures, now, counts)
        except (OSError, ValueError, TypeError, KeyError):
            return cls()

    def write(self, path: Path) -> None:
        """Replace its file. Raises OSError: the disk is full; the old one is as it was."""
        held = {
            "failures": [*self.failures.items()],
            "now": [*self.now.items()],
            "counts": [(name, [*rows.items()]) for name, rows in self.counts.items()],
        }
        with written_whole(path, 0o600, durable=True) as file:
            file.write(json.dumps(held).encode())
        flush(path.parent)

    def count(self, rows: Mapping[str, Labels]) -> None:
        """Take the failures of now, each with symptom, domain, partition and size."""
        total = self.counts.setdefault("ettr_failures_counted", {})
        changes = self.counts.setdefault("ettr_failure_cause_changes", {})
        withdrawn = self.counts.setdefault("ettr_failures_withdrawn", {(): 0.0})
        for attempt, labels in rows.items():
            if attempt not in self.failures:
                self.failures[attempt] = labels
                total[labels] = total.get(labels, 0.0) + 1.0
            elif attempt in self.now and self.now[attempt][0] != labels[0]:
                change = self.now[attempt][0], labels[0]
                changes[change] = changes.get(change, 0.0) + 1.0
        withdrawn[()] += len(self.now.keys() - rows.keys())
        self.now = dict(rows)

    def raised(self, name: str, values: Mapping[Labels, float]) -> dict[Labels, float]:
        """A counter's values, none of them below what it was."""
        kept = self.counts.setdefault(name, {})
        for labels, value in values.items():
            kept[labels] = max(value, kept.get(labels, 0.0))
        return kept


def samples_of(analysis: Analysis, counted: Counted) -> Samples:
    """Every metric of `ettr.live.exposition` that the store bears, by name and values of labels."""
    made: Samples = {}
    if analysis.logs_read.jobs:
        _failures(analysis, counted, made)
        _rates(analysis, made)
    nodes = analysis.nodes
    if nodes.down_share is not None:
        made["ettr_node_time_down_ratio"] = {(): nodes.down_share}
    made["ettr_nodes"] = {(): float(nodes.nodes)}
    made["ettr_logs_end_timestamp_seconds"] = {(): analysis.period.end.timestamp()}
    _objectives(analysis, made)
    unknown = made.keys() - FAMILIES.keys()
    if unknown:
        raise KeyError(f"{', '.join(sorted(unknown))}: not in ettr.live.exposition.FAMILIES")
    return made


def _failures(analysis: Analysis, counted: Counted, made: Samples) -> None:
    facts = analysis.facts
    owned = {r["attempt_id"]: r["partition"] or "" for r in facts.rows("failure_owners")}
    rows = facts.rows("failures")
    of_partition = facts.engine.rows(
        f'SELECT a."partition" AS name, sum(e.node_s) AS node_s, '  # noqa: S608 - names of ours
        "sum(coalesce(a.parts_gpu_s, a.elapsed_s * a.n_gpus) * a.node_share) AS gpu_s "
        f"FROM {facts.table('exposure')} e JOIN {facts.table('chosen')} a "
        "ON e.attempt_id = a.attempt_id GROUP BY 1",
        {},
    )
    of_partition.sort(key=lambda row: -(row["node_s"] or 0.0))
    known = {row["name"] or "" for row in of_partition[:MOST_LABELS]}
    labels = {
        row["attempt_id"]: (
            row["symptom"],
            row["domain"],
            _named(owned.get(row["attempt_id"], ""), known),
            size_class(size_end_of(row["n_gpus"])).label,
        )
        for row in rows
    }
    counted.count(labels)
    for name in ("failures_counted", "failure_cause_changes", "failures_withdrawn"):
        made[f"ettr_{name}"] = counted.counts[f"ettr_{name}"]
    made["ettr_failures"] = {k: float(n) for k, n in Counter(labels.values()).items()}
    days, hours = Counter[Labels](), Counter[Labels]()
    for row in of_partition:
        name = _named(row["name"] or "", known)
        days[(name,)] += (row["node_s"] or 0.0) / SECONDS_PER_DAY  # type: ignore[assignment]
        hours[(name,)] += (row["gpu_s"] or 0.0) / 3600.0  # type: ignore[assignment]
    made["ettr_node_days"] = counted.raised("ettr_node_days", days)
    lost = analysis.goodput
    buckets: dict[Labels, float | None] = {
        ("ran",): analysis.totals.gpu_hours,
        ("lost_to_failures",): lost.first_order_gpu_hours,
        ("lost_to_preemptions",): lost.second_order_gpu_hours,
    }
    measured = {bucket: value for bucket, value in buckets.items() if value is not None}
    made["ettr_gpu_hours"] = counted.raised("ettr_gpu_hours", measured)
    made["ettr_partition_gpu_hours"] = counted.raised("ettr_partition_gpu_hours", hours)
    by_node = Counter(row["node"] for row in rows if row["node"])
    made["ettr_node_failures"] = {(n,): float(k) for n, k in by_node.most_common(MOST_LABELS)}


def _named(name: str, known: set[str]) -> str:
    return name if name in known else OTHER


def _rates(analysis: Analysis, made: Samples) -> None:
    rates = analysis.rates
    of_jobs = {"all": rates.all_jobs, "large": rates.large_jobs}
    made["ettr_failure_rate_per_1000_node_days"] = {
        (jobs, bound): value
        for jobs, rate in of_jobs.items()
        if rate.node_days > 0
        for bound, value in _bounds(rate.per_1000_node_days)
    }
    made["ettr_symptom_rate_per_1000_node_days"] = {
        (one.symptom, bound): value
        for one in rates.by_symptom[:MOST_LABELS]
        for bound, value in _bounds(one.all_jobs.per_1000_node_days)
    }
    sized = [one for one in analysis.mttf.classes if one.size.size_from is not None]
    made["ettr_mttf_hours"] = {
        (one.size.label, bound): value
        for one in sized
        for bound, value in _bounds(one.projected_mttf_h)
    }
    made["ettr_run_effective_ratio"] = {
        (one.size.label, bound): value
        for one in analysis.runs.by_size
        if one.size.size_from is not None
        for bound, value in _bounds(one.pooled_ettr_ratio)
    }


def _bounds(interval: Interval) -> Iterator[tuple[str, float]]:
    """The estimate and both ends of an interval; what is not known is left out."""
    for bound in ("estimate", "low", "high"):
        value = getattr(interval, bound)
        if value is not None and abs(value) != float("inf"):
            yield bound, value


def _objectives(analysis: Analysis, made: Samples) -> None:
    held = analysis.ask(objectives_held)
    made["ettr_log_silent_days"] = {
        (one.table, one.source): float(one.silent_days) for one in held.silent
    }
    names = ("burn_ratio", "alert", "sum_of_threshold_ratio", "allowed", "came")
    made |= {f"ettr_slo_{name}": {} for name in names}
    for one in held.objectives:
        made["ettr_slo_alert"][(one.name,)] = float(one.is_burning)
        made["ettr_slo_sum_of_threshold_ratio"][(one.name,)] = one.sum_of_threshold
        for bound, value in _bounds(one.burn):
            made["ettr_slo_burn_ratio"][one.name, bound] = value
        for name, spent in (("allowed", one.allowed), ("came", one.came)):
            if spent is not None:
                made[f"ettr_slo_{name}"][(one.name,)] = spent


@dataclass(frozen=True, slots=True)
class Moment:
    """Samples as of a time, in seconds since 1970; None for now."""

    samples: Samples
    time_s: float | None = None


def openmetrics(moments: Iterable[Moment]) -> bytes:
    """The samples of some moments as OpenMetrics, each family with all of its times together."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.openmetrics.exposition import generate_latest

    every = list(moments)

    class Held:
        def collect(self) -> Iterator[Any]:
            for name, one in FAMILIES.items():
                yield from self._family(name, one)

        @staticmethod
        def _family(name: str, one: MetricFamily) -> Iterator[Any]:
            made: Any = (CounterMetricFamily if one.is_counter else GaugeMetricFamily)(
                name, one.help, labels=one.labels
            )
            series: dict[Labels, list[tuple[float, float | None]]] = {}
            for moment in every:
                for labels, value in moment.samples.get(name, {}).items():
                    series.setdefault(labels, []).append((value, moment.time_s))
            for labels, values in sorted(series.items()):
                for value, time_s in values:
                    made.add_metric(labels, value, timestamp=time_s)
            if series:
                yield made

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Held())
    return bytes(generate_latest(registry))  # type: ignore[no-untyped-call]
