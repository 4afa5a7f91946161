"""Queries, rules and dashboards, answered by a real Prometheus from a simulated month."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr
from ettr.analysis import Assumptions
from ettr.live.exposition import FAMILIES
from ettr.live.watching import backfill, shipped
from ettr.metrics.objectives import Objective

SHIPPED = {name: json.loads(text) for name, text in shipped().items()}
DASHBOARDS = {name: made for name, made in SHIPPED.items() if name.endswith(".json")}
PANELS = {
    f"{name}: {panel['title']}": panel["targets"][0]["expr"]
    for name, made in DASHBOARDS.items()
    for panel in made["panels"]
}
RULES = {
    one.get("record") or one["alert"]: one["expr"]
    for group in SHIPPED["rules.yml"]["groups"]
    for one in group["rules"]
}
QUERIES = PANELS | RULES


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_parses(name: str) -> None:
    promql_parser = pytest.importorskip("promql_parser")
    promql_parser.parse(QUERIES[name])


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_dashboards_are_of_grafanas_schema(name: str) -> None:
    """Grafana's own models keep every key that we write, and what they require is written."""
    pytest.importorskip("grafana_foundation_sdk")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    made = DASHBOARDS[name]
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(made)))
    assert lost(made, kept) == []
    assert {"schemaVersion", "templating", "annotations", "uid", "title"} <= made.keys()
    assert 8 <= len(made["uid"]) <= 40
    places = [tuple(panel["gridPos"].items()) for panel in made["panels"]]
    assert len({panel["id"] for panel in made["panels"]}) == len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in made["panels"])


def lost(given: Any, kept: Any, where: str = "") -> list[str]:
    """Where what was given is not what is kept."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [x for key, one in given.items() for x in lost(one, kept.get(key), f"{where}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = enumerate(zip(given, kept, strict=True))
        return [x for n, (one, other) in pairs for x in lost(one, other, f"{where}[{n}]")]
    return [] if given == kept else [f"{where}: {given!r}, {kept!r}"]


TEST_OF_RULES = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'ettr_slo_alert{slo="big"}'
        values: '0x9 1x20'
      - series: 'ettr_log_silent_days{table="events",source="kernel-xid"}'
        values: '2x30'
      - series: 'ettr_watch_last_success_timestamp_seconds'
        values: '0x300'
    alert_rule_test:
      - alertname: EttrBudgetBurns
        eval_time: 5m
        exp_alerts: []
      - alertname: EttrBudgetBurns
        eval_time: 20m
        exp_alerts:
          - exp_labels: {severity: warning, slo: big}
            exp_annotations:
              summary: 'big: failures come faster than its budget allows.'
      - alertname: EttrLogSilent
        eval_time: 10m
        exp_alerts:
          - exp_labels: {severity: warning, table: events, source: kernel-xid}
            exp_annotations:
              summary: 'kernel-xid: silent for 2 days; its failures are not counted.'
      - alertname: EttrWatchStale
        eval_time: 90m
        exp_alerts:
          - exp_labels: {severity: critical}
            exp_annotations:
              summary: ettr watch has read no log without an error for an hour.
"""


@pytest.mark.prometheus
def test_rules_are_right(tmp_path: Path) -> None:
    for name, text in shipped().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "test.yml").write_text(TEST_OF_RULES)
    for words in (["check", "rules", "rules.yml"], ["test", "rules", "test.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


OBJECTIVES = (
    Objective("64-GPU runs", gpus=64, interruptions=1, per_days=3),
    Objective("useful", effective=0.95),
)


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, float]]:
    """A Prometheus with the history of a simulated month: its address, and the month's end."""
    folder = tmp_path_factory.mktemp("month")
    text = (files("ettr.sim.cluster") / "scenarios" / "small.toml").read_text("utf-8")
    (folder / "month.toml").write_text(text.replace("days = 7", "days = 30"))
    assert ettr("simulate", "run", "month.toml", "--store", "site", folder=folder).code == 0
    past = backfill(
        folder / "site", Assumptions(objectives=OBJECTIVES, above_gpus=16), timedelta(days=5)
    )
    (folder / "past.om").write_bytes(past)
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "past.om", "data"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    (folder / "empty.yml").write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--config.file=empty.yml", "--storage.tsdb.path=data", "--log.level=error"]
    words += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y"]
    with subprocess.Popen(["prometheus", *words], cwd=folder) as server:
        try:
            for _ in range(100):
                try:
                    urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            end_s = max(
                float(one.rsplit(" ", 1)[1])
                for one in past.decode().splitlines()[:-1]
                if not one.startswith("#")
            )
            yield address, end_s
        finally:
            server.terminate()


def answered(address: str, query: str, at_s: float) -> list[Any]:
    words = urllib.parse.urlencode({"query": query, "time": f"{at_s:.3f}"})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{words}", timeout=20) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    assert found["status"] == "success"
    rows: list[Any] = found["data"]["result"]
    return rows


@pytest.mark.slow
@pytest.mark.prometheus
def test_every_panel_is_filled_from_a_simulated_month(month: tuple[str, float]) -> None:
    address, end_s = month
    empty = [name for name, query in PANELS.items() if not answered(address, query, end_s)]
    assert empty == []
    for query in QUERIES.values():
        answered(address, query, end_s)
    total = answered(address, "sum(ettr_failures_counted_total)", end_s)[0]["value"][1]
    assert float(total) == float(answered(address, "sum(ettr_failures)", end_s)[0]["value"][1])


def test_every_metric_is_in_a_query_or_a_rule() -> None:
    queries = " ".join(QUERIES.values())
    assert {name for name in FAMILIES if name not in queries} <= {
        "ettr_failures_withdrawn",
        "ettr_slo_sum_of_threshold_ratio",
        "ettr_slo_allowed",
        "ettr_slo_came",
        "ettr_watch_errors",
    }
