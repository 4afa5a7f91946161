"""A site's own table of faults: rates without jobs, and a null end that is a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr, ettr_once

FAULTS = """\
cluster,node,time,time_end,code
c,n1,2026-01-01T00:00:00Z,2026-01-01T10:00:00Z,gpu/ecc
c,n2,2026-01-11T00:00:00Z,,gpu/bus
c,n1,2026-04-11T00:00:00Z,2026-04-11T20:00:00Z,network
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.csv").write_text(FAULTS)
    options = ("--source", "table", "--table", "events", "--columns", "check==fault")
    assert ettr("ingest", folder / "store", folder / "faults.csv", *options).code == 0
    return folder / "store"


def test_an_event_without_an_end_is_no_open_repair(store: Path):
    faults: Any = ettr_once("nodes", store, "--fleet-nodes", "10", "--json").json["faults"]
    assert faults["faults"] == 3
    repair = faults["repair_h"]
    assert (repair["count"], repair["still_open"]) == (2, 0)
    assert repair["mean_h"]["estimate"] == 15.0
    assert {one["category"] for one in faults["by_category"]} == {"gpu", "network"}


@pytest.mark.slow
def test_the_rate_has_an_estimate_once_the_fleet_is_known(store: Path):
    faults: Any = ettr("nodes", store, "--json").json["faults"]
    assert faults["in_service"]["per_1000_node_days"]["estimate"] is None
    assert faults["in_service"]["per_1000_node_days"]["high"] > 0
    faults = ettr_once("nodes", store, "--fleet-nodes", "10", "--json").json["faults"]
    rate = faults["in_service"]
    assert rate["per_1000_node_days"]["estimate"] == pytest.approx(3000 / rate["node_days"])
    assert rate["node_days"] == pytest.approx(10 * (100 + 20 / 24), rel=1e-6)


def test_a_fleet_has_no_fewer_nodes_than_the_logs_name(store: Path):
    done = ettr("nodes", store, "--fleet-nodes", "1", "--detail")
    assert done.code == 2
    assert "the logs name 2" in done.err


@pytest.mark.slow
def test_a_plan_rests_on_the_faults(store: Path):
    plan: Any = ettr("plan", store, "--nodes", "100", "--fleet-nodes", "10", "--json")
    assert plan.code == 0, plan.err
    refused = ettr("plan", store, "--nodes", "100")
    assert refused.code == 2
    assert "--fleet-nodes" in refused.err
    aged = ("--model", "weibull", "--ages", "0d,9d", "--fleet-nodes", "10")
    assert ettr("project", store, "--nodes", "10", *aged).code == 0


@pytest.mark.slow
def test_the_faults_are_known_to_the_taxonomy(store: Path):
    quality: Any = ettr("quality", store, "--json").json
    assert quality["unknown_checks"] == []
