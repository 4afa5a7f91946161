"""Every metric says the same on Spark as on DuckDB."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import ibis
import pytest

from ettr.metrics.availability import availability, service
from ettr.metrics.faults import fleet_faults
from ettr.metrics.goodput import lost_goodput
from ettr.metrics.instants import observed_period
from ettr.metrics.mttf import mttf_by_size
from ettr.metrics.preemptions import preemption_links
from ettr.metrics.quality import data_quality
from ettr.metrics.rates import failure_rates
from ettr.metrics.runs import job_runs
from ettr.metrics.sizes import size_mix
from ettr.metrics.status import status_mix
from ettr.metrics.totals import totals
from ettr.metrics.trend import rate_trend
from ettr.tables import DERIVED, TABLES
from ettr.taxonomy import load_taxonomy
from synthetic.cluster import ClusterPlan, build_cluster
from synthetic.tables import on_duckdb

pytestmark = [
    pytest.mark.spark,
    # Spark's gateway leaves sockets to the garbage collector and calls what pandas renamed.
    pytest.mark.filterwarnings("ignore"),
]

Tables = dict[str, ibis.Table]
INPUTS = ("files", "rejects", "attempts", "allocations", "nodes", "node_states", "events",
          "progress", "failures")  # fmt: skip
PLAN = ClusterPlan(days=8.0, work_s=2 * 86400, slot_nodes=(20,), filler_nodes=8,
                   rate_per_node_day={"gpu-memory": 0.02, "unattributed": 0.02},
                   noise_events=40, red_herrings=20)  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    return build_cluster(PLAN, seed=9)


@pytest.fixture(scope="module")
def duck(cluster) -> Tables:
    return on_duckdb(cluster.tables)


@pytest.fixture(scope="module")
def spark(cluster, tmp_path_factory) -> Iterator[Tables]:
    pyspark = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        pyspark.SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    backend = ibis.pyspark.connect(session)
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("tables")
    tables = {}
    for name, schema in {**TABLES, **DERIVED}.items():
        path = folder / f"{name}.parquet"
        pq.write_table(cluster.tables.get(name, schema.empty()), path)
        tables[name] = backend.read_parquet(str(path), table_name=f"metrics_{name}")
    yield tables
    session.stop()


def runs(t: Tables) -> Any:
    return job_runs(t["attempts"], t["progress"], min_scheduled_h=1.0, min_gpus=1)


def rates(t: Tables) -> Any:
    return failure_rates(t["attempts"], t["failures"])


def links(t: Tables) -> Any:
    return preemption_links(t["attempts"], t["allocations"], t["failures"], t["events"])


def period(t: Tables) -> Any:
    return observed_period(t["attempts"], t["node_states"], t["events"], t["nodes"])


METRICS: dict[str, Callable[[Tables], Any]] = {
    "period": period,
    "totals": lambda t: totals(t["attempts"]),
    "status": lambda t: status_mix(t["attempts"]),
    "sizes": lambda t: size_mix(t["attempts"]),
    "rates": rates,
    "trend": lambda t: rate_trend(t["attempts"], t["failures"], t["events"], period(t)),
    "mttf": lambda t: mttf_by_size(t["attempts"], t["failures"], t["progress"], rates(t).best),
    "runs": runs,
    "goodput": lambda t: lost_goodput(t["failures"], links(t)),
    "availability": lambda t: availability(
        t["nodes"], t["node_states"], t["allocations"], period(t), load_taxonomy()
    ),
    "faults": lambda t: fleet_faults(
        t["events"], service(t["nodes"], t["node_states"], period(t)), period(t), checks=("xid",)
    ),
    "quality": lambda t: data_quality(**{name: t[name] for name in INPUTS}),
}


@pytest.mark.parametrize("name", METRICS)
def test_spark_and_duckdb_say_the_same(name, duck, spark):
    assert_same(METRICS[name](duck), METRICS[name](spark), name)


def assert_same(one: Any, other: Any, where: str) -> None:
    assert type(one) is type(other), where
    if is_dataclass(one):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name),
                        f"{where}.{field.name}")  # fmt: skip
    elif isinstance(one, tuple):
        assert len(one) == len(other), where
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{where}[{place}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9), where
    else:
        assert one == other, where
