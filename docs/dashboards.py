"""The rules and dashboards of `ettr watch`, shipped in the package as JSON: `make docs`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a dashboard: its title, its query, the legend and the unit of its axis."""

    title: str
    query: str
    legend: str = ""
    unit: str = "short"
    kind: str = "timeseries"


_RATE = "ettr_failure_rate_per_1000_node_days"
RECORDED: Mapping[str, str] = {
    "ettr:failures_per_1000_node_days:7d": "1000 * sum(increase(ettr_failures_counted_total[7d])) "
    "/ sum(increase(ettr_node_days_total[7d]))",
    "ettr:gpu_hours_lost:ratio7d": 'sum(increase(ettr_gpu_hours_total{bucket=~"lost_.*"}[7d])) '
    '/ sum(increase(ettr_gpu_hours_total{bucket="ran"}[7d]))',
}
DASHBOARDS: Mapping[str, tuple[Panel, ...]] = {
    "fleet": (
        Panel("Failures per 1,000 node-days", f'{_RATE}{{jobs="all"}}', "{{bound}}"),
        Panel(
            "Failures over node-days of the last 7 days, per 1,000",
            RECORDED["ettr:failures_per_1000_node_days:7d"],
            "7 days",
        ),
        Panel(
            "Failures in 7 days, by symptom",
            "sum by (symptom) (increase(ettr_failures_counted_total[7d]))",
            "{{symptom}}",
        ),
        Panel(
            "Rate by symptom",
            'ettr_symptom_rate_per_1000_node_days{bound="estimate"}',
            "{{symptom}}",
        ),
        Panel("Node time down", "ettr_node_time_down_ratio", "down", "percentunit"),
        Panel(
            "Changes of cause by later logs",
            "sum(ettr_failure_cause_changes_total) or vector(0)",
            "changes",
        ),
    ),
    "partition": (
        Panel(
            "Failures per 1,000 node-days",
            "1000 * sum by (partition) (ettr_failures) / sum by (partition) (ettr_node_days_total)",
            "{{partition}}",
        ),
        Panel(
            "Failures now", "sum by (partition, domain) (ettr_failures)", "{{partition}} {{domain}}"
        ),
        Panel("Node-days", "sum by (partition) (ettr_node_days_total)", "{{partition}}"),
        Panel("GPU-hours", "sum by (partition) (ettr_partition_gpu_hours_total)", "{{partition}}"),
    ),
    "node": (
        Panel("Nodes with the most failures", "topk(20, ettr_node_failures)", "{{node}}"),
        Panel("Nodes", "ettr_nodes", "nodes"),
        Panel(
            "Share of failures on the five worst",
            "sum(topk(5, ettr_node_failures)) / sum(ettr_failures)",
            "share",
            "percentunit",
        ),
    ),
    "large-runs": (
        Panel("Mean time to failure", 'ettr_mttf_hours{bound="estimate"}', "{{size}} GPUs", "h"),
        Panel("Its lower end", 'ettr_mttf_hours{bound="low"}', "{{size}} GPUs", "h"),
        Panel(
            "Effective training time ratio",
            'ettr_run_effective_ratio{bound="estimate"}',
            "{{size}} GPUs",
            "percentunit",
        ),
        Panel(
            "Failures of large jobs, per 1,000 node-days", f'{_RATE}{{jobs="large"}}', "{{bound}}"
        ),
    ),
    "manager": (
        Panel(
            "Budgets: what came over what is allowed", "ettr_slo_burn_ratio", "{{slo}} {{bound}}"
        ),
        Panel("Burn alerts", "ettr_slo_alert", "{{slo}}"),
        Panel(
            "GPU-hours lost, share",
            'sum(ettr_gpu_hours_total{bucket=~"lost_.*"}) '
            '/ sum(ettr_gpu_hours_total{bucket="ran"})',
            "lost",
            "percentunit",
        ),
        Panel("GPU-hours", "sum by (bucket) (ettr_gpu_hours_total)", "{{bucket}}"),
        Panel("Age of the logs", "time() - ettr_logs_end_timestamp_seconds", "age", "s"),
    ),
}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert: its condition, how long it holds first, and its sentence."""

    query: str
    wait: str
    says: str
    severity: str = "warning"


ALERTS: Mapping[str, AlertRule] = {
    "EttrBudgetBurns": AlertRule(
        "ettr_slo_alert == 1",
        "0m",
        "{{ $labels.slo }}: failures come faster than its budget allows.",
    ),
    "EttrBudgetMissed": AlertRule(
        'ettr_slo_burn_ratio{bound="low"} > 1', "1h", "{{ $labels.slo }}: the budget is missed."
    ),
    "EttrLogSilent": AlertRule(
        "ettr_log_silent_days > 0",
        "0m",
        "{{ $labels.source }}: silent for {{ $value }} days; its failures are not counted.",
    ),
    "EttrWatchAbsent": AlertRule(
        "absent(ettr_watch_last_success_timestamp_seconds)",
        "10m",
        "ettr watch answers nothing: no budget is known to hold.",
        "critical",
    ),
    "EttrWatchStale": AlertRule(
        "time() - ettr_watch_last_success_timestamp_seconds > 3600",
        "0m",
        "ettr watch has read no log without an error for an hour.",
        "critical",
    ),
    "EttrLogsOld": AlertRule(
        "time() - ettr_logs_end_timestamp_seconds > 86400",
        "0m",
        "The last moment in any log is a day old.",
    ),
}


def rule_file() -> str:
    """Recording and alert rules as Prometheus reads them: YAML, of which JSON is a part."""
    recorded = [{"record": name, "expr": query} for name, query in RECORDED.items()]
    alerts = [
        {
            "alert": name,
            "expr": one.query,
            "for": one.wait,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.says},
        }
        for name, one in ALERTS.items()
    ]
    groups = [{"name": "ettr", "interval": "1m", "rules": [*recorded, *alerts]}]
    return json.dumps({"groups": groups}, indent=1) + "\n"


def dashboard(name: str) -> str:
    """A dashboard as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = [
        {
            "id": place + 1,
            "type": one.kind,
            "title": one.title,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (place % 2), "y": 8 * (place // 2)},
            "fieldConfig": {"defaults": {"unit": one.unit}, "overrides": []},
            "options": {
                "legend": {
                    "displayMode": "list",
                    "placement": "bottom",
                    "showLegend": True,
                    "calcs": [],
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            },
            "targets": [
                {
                    "refId": "A",
                    "datasource": source,
                    "expr": one.query,
                    "legendFormat": one.legend or "__auto",
                }
            ],
        }
        for place, one in enumerate(DASHBOARDS[name])
    ]
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    made = {
        "uid": f"ettr-{name}",
        "title": f"ettr: {name.replace('-', ' ')}",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "tags": ["ettr"],
        "time": {"from": "now-30d", "to": "now"},
        "templating": {"list": [variable]},
        "annotations": {"list": []},
        "panels": panels,
    }
    return json.dumps(made, indent=1) + "\n"


def shipped() -> dict[str, str]:
    """The files that `ettr watch --dashboards` copies, by name."""
    made = {f"{name}.json": dashboard(name) for name in DASHBOARDS}
    return {"rules.yml": rule_file(), **made}
