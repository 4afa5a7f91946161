"""The metrics of `ettr watch`: one table; docs/dashboards.py makes panels and rules of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
