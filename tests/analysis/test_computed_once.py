"""What several parts of a report rest on is computed once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ettr.analysis import Analysis, lemon_nodes
from ettr.analysis.comparing import previous
from ettr.lemons import candidates, model
from ettr.lemons.model import LemonFit, NodeCounts
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store

HEAD = "JobID|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, NODES, SHARED = 60, 24, 97 * 14


def log() -> str:
    """Each node runs a job a day for two months; a few end with their node.

    The nodes of the last such job are two, and none of them is named as the culprit.
    """
    rows = []
    for number in range(DAYS * NODES):
        start = FIRST + timedelta(days=number // NODES)
        ends = start + timedelta(hours=23)
        begun, ended = (f"{one:%Y-%m-%dT%H:%M:%S}" for one in (start, ends))
        state = "COMPLETED" if number % 97 else "NODE_FAIL"
        nodes = f"n{number % NODES}"
        held = "2|n[0,1]|gres/gpu=16" if number == SHARED else f"1|{nodes}|gres/gpu=8"
        rows.append(f"{number + 1}|u|c|{state}|0:0|{begun}|{begun}|{ended}|{23 * 3600}|{held}\n")
    return HEAD + "".join(rows)


@pytest.mark.slow
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
        found = analysis.ask(previous)
        assert found is not None
        assert found.before is not None
        assert found.comparison is not None
        _ = analysis.lemon_nodes
    assert len(asked) == 1


@pytest.mark.slow
def test_the_model_of_lemons_is_fitted_once_for_their_list_and_for_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fitted, fit = tmp_path / "sacct.psv", [], model.fit_lemons
    path.write_text(log())

    def counted(counts: NodeCounts, *given: float) -> LemonFit:
        fitted.append(counts)
        return fit(counts, *given)

    # wherever it is asked for by that name
    for asking in (model, candidates):
        monkeypatch.setattr(asking, "fit_lemons", counted)
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, path, ReadOptions(timezone="UTC"))
        analysis = Analysis(store)
        (group,), _ = analysis.lemon_strata
        assert len(group.counts.shared) == 1
        assert analysis.blame
        assert sum(one is group.counts for one in fitted) == 1
        assert analysis.lemon_nodes.groups
    assert sum(one is group.counts for one in fitted) == 1
