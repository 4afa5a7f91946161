"""What a period and the one before it ask of all of the logs is computed once for the report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ettr.analysis import Analysis, lemon_nodes
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store

HEAD = "JobID|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, NODES = 60, 24


def log() -> str:
    """Each node runs a job a day for two months; a few end with their node."""
    rows = []
    for number in range(DAYS * NODES):
        start = FIRST + timedelta(days=number // NODES)
        ends = start + timedelta(hours=23)
        begun, ended = (f"{one:%Y-%m-%dT%H:%M:%S}" for one in (start, ends))
        state = "COMPLETED" if number % 97 else "NODE_FAIL"
        rows.append(
            f"{number + 1}|u|c|{state}|0:0|{begun}|{begun}|{ended}|{23 * 3600}|1"
            f"|n{number % NODES}|gres/gpu=8\n"
        )
    return HEAD + "".join(rows)


def test_the_weights_of_workloads_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked, compute = tmp_path / "sacct.psv", [], lemon_nodes.workload_weights
    path.write_text(log())

    def counted(*given: Any) -> dict[str, float]:
        asked.append(given)
        return compute(*given)

    monkeypatch.setattr(lemon_nodes, "workload_weights", counted)
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, path, ReadOptions(timezone="UTC"))
        analysis = Analysis(store)
        found = analysis.previous
        assert found is not None
        assert found.before is not None
        assert found.comparison is not None
        _ = analysis.lemon_nodes
    assert len(asked) == 1
