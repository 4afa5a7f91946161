"""The whole analysis says the same on Spark as on DuckDB, from the store to every part."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ibis
import pytest

from ettr.analysis import Analysis, Assumptions
from ettr.report.document import plain
from ettr.report.parts import PARTS
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_log
from ettr.sources.spool import LogFile
from ettr.store.folder import FolderStore
from ettr.tables import TABLES
from synthetic.cluster import ClusterPlan, build_cluster

pytestmark = [
    pytest.mark.spark,
    # Spark's gateway leaves sockets to the garbage collector and calls what pandas renamed.
    pytest.mark.filterwarnings("ignore"),
]

EXAMPLE = Path(__file__).resolve().parents[1] / "data" / "bad_morning"
PLAN = ClusterPlan(
    days=6.0,
    work_s=86400,
    slot_nodes=(20,),
    filler_nodes=6,
    rate_per_node_day={"gpu-memory": 0.03, "unattributed": 0.02},
    noise_events=30,
    red_herrings=15,
)

LEDGER = """date,kind,hours_lost,gpu_hours_lost
2025-03-01,GPU,6.5,
2025-03-02T04:00:00Z,switch,2.25,288
2025-03-04,GPU,,
"""


def ledger(folder: Path) -> LogFile:
    """A ledger of incidents, next to the store of that folder."""
    path = folder.with_name("incidents.csv")
    path.write_text(LEDGER, encoding="utf-8")
    return LogFile(path)


def synthetic_store(folder: Path) -> Path:
    """A store with a ledger and the tables of a synthetic cluster, said to be from one file."""
    tables = dict(build_cluster(PLAN, seed=4).tables)
    file = {
        "file_id": "synthetic",
        "name": "synthetic",
        "source": "synthetic",
        "size_bytes": 1,
        "rows_read": 1,
        "rows_rejected": 0,
        "rows_skipped": 0,
        "options": "{}",
    }
    with FolderStore(folder, create=True) as store, store.ingestion("synthetic") as ingestion:
        for name, rows in tables.items():
            if name in TABLES and name != "files":
                ingestion.write(name, rows)
        ingestion.commit({**file, "timezone": None, "notes": None})
    with FolderStore(folder) as store:
        ingest_log(store, ledger(folder), ReadOptions(timezone="UTC"))
    return folder


def example_store(folder: Path) -> Path:
    """A store with the bundled example and a ledger."""
    with FolderStore(folder, create=True) as store:
        logs = [LogFile(path) for path in sorted(EXAMPLE.iterdir())] + [ledger(folder)]
        for log in logs:
            ingest_log(store, log, ReadOptions(timezone="UTC"))
    return folder


STORES = {"synthetic": synthetic_store, "example": example_store}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pyspark = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = (
        pyspark.SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        # compiling each plan to Java would cost more than running it on so few rows
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield made
    made.stop()


@pytest.fixture(scope="module", params=STORES)
def both(
    request: pytest.FixtureRequest, session: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Analysis, Analysis]]:
    """The analysis of one store on DuckDB and on Spark."""
    folder = STORES[request.param](tmp_path_factory.mktemp(request.param) / "store")
    backend = ibis.pyspark.connect(session)
    with FolderStore(folder) as ours, FolderStore(folder, backend=backend) as theirs:
        yield Analysis(ours, Assumptions(above_gpus=8)), Analysis(theirs, Assumptions(above_gpus=8))


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_report_is_the_same(part: str, both: tuple[Analysis, Analysis]) -> None:
    ours, theirs = (plain(PARTS[part].result(analysis)) for analysis in both)
    assert ours  # nothing at all would be equal too
    assert_same(ours, theirs, part)


def test_the_stores_hold_what_the_parts_are_about(both: tuple[Analysis, Analysis]) -> None:
    ours, theirs = both
    assert ours.failure_rows
    assert ours.totals.attempts > 10
    assert ours.clusters == theirs.clusters
    assert plain(ours.period) == plain(theirs.period)


def assert_same(one: Any, other: Any, where: str) -> None:
    """Equal but for the last digits of sums, which depend on their order."""
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key, value in one.items():
            assert_same(value, other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{where}[{place}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9), where
    else:
        assert one == other, where
