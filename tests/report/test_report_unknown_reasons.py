"""Reasons of nodes that the taxonomy does not know are listed, with rows that make them known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import SACCT, ettr

pytestmark = pytest.mark.slow

HEAD = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
STATES = (
    ("n1", "01T10:00:00", "01T11:00:00", "Ask  Bob"),
    ("n2", "02T10:00:00", "02T11:00:00", "ask bob"),
    ("n2", "02T12:00:00", "02T13:00:00", "XID 999"),
    ("n3", "02T14:00:00", "02T15:00:00", "IB port flapping"),
    ("n3", "02T16:00:00", "02T17:00:00", "planned maintenance: replace GPU"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reasons")
    (folder / "sacct.psv").write_text(SACCT)
    rows = (
        f"c|{node}|2026-03-{start}|2026-03-{end}|DRAIN|{reason}|root(0)\n"
        for node, start, end, reason in STATES
    )
    (folder / "events.psv").write_text(HEAD + "".join(rows))
    files = (folder / "sacct.psv", folder / "events.psv")
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def unknown(store: Path, *options: object) -> list[dict[str, Any]]:
    document: Any = ettr("report", store, *options, "--json").json
    return document["quality"]["unknown_reasons"]


def test_they_are_listed_with_how_many_states(store: Path):
    bob, xid = unknown(store)
    assert {key: bob[key] for key in ("reason", "node_states", "nodes", "first", "last")} == {
        "reason": "ask bob",
        "node_states": 2,
        "nodes": 2,
        "first": "2026-03-01T10:00:00Z",
        "last": "2026-03-02T10:00:00Z",
    }
    assert (xid["reason"], xid["node_states"]) == ("xid 999", 1)
    assert xid["taxonomy_row"].startswith("[xid.999]")
    text = " ".join(ettr("quality", store, "--detail").out.split())
    assert "Reasons of nodes that the taxonomy does not know" in text
    assert "3 node states with a reason that the taxonomy does not know name no fault" in text


def test_the_rows_can_be_pasted(store: Path, tmp_path: Path):
    site = tmp_path / "site.toml"
    rows = [row["taxonomy_row"] for row in unknown(store)]
    assert len(rows) == 2
    site.write_text("\n".join(rows))
    assert unknown(store, "--taxonomy", site) == []
