"""Nodes without GPUs among others, and their jobs, are no part of a scenario that is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.program import ettr
from cluster_scenarios import fault, one_size, played, small
from ettr.analysis import Analysis
from ettr.analysis.calibration.back_test import Quantity, quantities_of
from ettr.analysis.calibration.fit import SiteFit, fit_site
from ettr.analysis.calibration.record import asks_for_none, site_record
from ettr.analysis.calibration.replay import replay_of
from ettr.sim.cluster.workload import Replay
from ettr.store import open_store
from ettr.tables import TABLES

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 5, tzinfo=UTC)
DAYS = 20
BARE = ("cpu1", "cpu2", "cpu3")
Tables = Mapping[str, pa.Table]


def tables_of_gpus() -> dict[str, pa.Table]:
    """Ten nodes of eight GPUs for twenty days, which fail and are repaired."""
    made = small(
        period={"days": float(DAYS)},
        machines={"nodes": 10},
        jobs=one_size(8, 20_000.0),
        arrivals={"jobs_per_day": 30.0},
        faults=(fault("main-memory", 60.0, node_down_chance=0.0),),
        bursts=(),
        lemons={"share": 0.0},
        checks={"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
    )
    logged, _ = played(made, 2)
    return {name: logged[name] for name in ("nodes", "attempts", "allocations", "node_states")}


def rows(name: str, cells: list[dict[str, object]], like: pa.Table) -> pa.Table:
    """Rows of a table with what the first row of another has where they say nothing."""
    first = like.slice(0, 1).to_pylist()[0]
    return pa.Table.from_pylist([{**first, **one} for one in cells], TABLES[name].arrow_schema)


def tables_of_nodes_without(gpus: Tables) -> dict[str, pa.Table]:
    """Three more nodes without any, that are down every other day, and a job a day on one."""
    days = [START + timedelta(days=k) for k in range(1, DAYS - 1)]
    hour = timedelta(hours=1)
    nodes = [{"node": name, "n_gpus": 0, "gpu_type": None} for name in BARE]
    down = [
        {"node": name, "state": "DOWN", "reason": "Kernel panic", "start": at, "end": at + 5 * hour}
        for at in days[::2]
        for name in BARE
    ]
    jobs = [
        {"job_id": f"9000{k}", "attempt_id": f"c/9000{k}", "user": "eve", "submit": at,
         "eligible": at, "start": at + 6 * hour, "end": at + 16 * hour, "elapsed_s": 36_000.0,
         "n_gpus": 0, "requested_gpus": 0, "n_nodes": 1, "node_list": "cpu1", "state": "COMPLETED"}
        for k, at in enumerate(days)
    ]  # fmt: skip
    held = [
        {name: job[name] for name in ("attempt_id", "start", "end", "elapsed_s")}
        | {"node": "cpu1", "n_gpus": 0.0}
        for job in jobs
    ]
    more = {"nodes": nodes, "node_states": down, "attempts": jobs, "allocations": held}
    return {
        name: pa.concat_tables([table, rows(name, more[name], table)])
        for name, table in gpus.items()
    }


def store_of(folder: Path, tables: Tables) -> Path:
    folder.mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        options = ("--source", "table", "--table", name)
        done = ettr("ingest", folder / "site", folder / f"{name}.parquet", *options)
        assert done.code == 0, done.err
    return folder / "site"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The nodes with GPUs alone, and with the others."""
    folder = tmp_path_factory.mktemp("bare")
    gpus = tables_of_gpus()
    return store_of(folder / "gpus", gpus), store_of(folder / "all", tables_of_nodes_without(gpus))


def fitted(store: Path) -> tuple[SiteFit, dict[str, Quantity]]:
    with open_store(store) as opened:
        analysis = Analysis(opened)
        record = site_record(analysis)
        end_s = (START + timedelta(days=DAYS)).timestamp()
        return fit_site(analysis, "site"), quantities_of(record, START.timestamp(), end_s)


def test_nodes_and_jobs_without_gpus_change_nothing_that_is_fitted(stores: tuple[Path, Path]):
    """Rates, node-days, repairs, arrivals and utilisation are those of the nodes with GPUs."""
    (alone, counted), (among, counted_among) = (fitted(store) for store in stores)
    a, b = alone.scenario, among.scenario
    assert b.machines == a.machines
    assert b.machines.nodes == 10
    for group in ("arrivals", "jobs", "outcomes", "users", "faults", "bursts", "lemons"):
        assert getattr(b, group) == getattr(a, group), group
    assert {k: v for k, v in b.sources.items() if k != "machines.nodes"} == {
        k: v for k, v in a.sources.items() if k != "machines.nodes"
    }
    assert b.intervals == a.intervals
    assert counted_among == counted
    assert [one for one in among.notes if one not in alone.notes] == [
        "3 nodes without GPUs are left out, with the faults, the outages and the time in service "
        "there.",
        "18 jobs that ask for no GPUs are left out.",
    ]


def test_faults_of_nodes_without_gpus_are_not_replayed(stores: tuple[Path, Path]):
    """They would come to nodes that have some; each fault has the node that it had."""
    replays: list[Replay] = []
    for store in stores:
        with open_store(store) as opened:
            analysis = Analysis(opened)
            made = fit_site(analysis, "site").scenario
            replays.append(replay_of(made, analysis, analysis)[1])
    alone, among = replays
    assert among.faults == alone.faults
    assert [(job.submit_s, job.gpus, job.work_s) for job in among.jobs or ()] == [
        (job.submit_s, job.gpus, job.work_s) for job in alone.jobs or ()
    ]
    assert "27 faults that are of nodes without GPUs are left out." in among.notes
    assert any(one.startswith("18 jobs that ask for no GPUs") for one in among.notes)


def test_what_asks_for_no_gpus_is_not_what_does_not_say():
    cells = [
        {"requested_gpus": 0, "n_gpus": 0},
        {"requested_gpus": None, "n_gpus": 0},
        {"requested_gpus": None, "n_gpus": 0, "start": None},
        {"requested_gpus": None, "n_gpus": None},
        {"requested_gpus": 8, "n_gpus": 0, "start": None},
        {"requested_gpus": 0, "n_gpus": 8},
    ]
    table = rows("attempts", cells, tables_of_gpus()["attempts"])
    assert asks_for_none(table).tolist() == [True, True, False, False, False, False]


def test_jobs_that_do_not_say_their_gpus_are_named(tmp_path: Path):
    """They count as arrivals, and are of the sizes of the others."""
    tables = tables_of_gpus()
    cells = tables["attempts"].to_pylist()
    for row in cells[:40]:
        row |= {"requested_gpus": None, "n_gpus": None}
    unsaid = pa.Table.from_pylist(cells, TABLES["attempts"].arrow_schema)
    fit, _ = fitted(store_of(tmp_path / "unsaid", {**tables, "attempts": unsaid}))
    says = "jobs do not say how many GPUs they ask for: they are taken to be of the sizes of the"
    assert any(says in one for one in fit.notes)
