"""The fault rate of a real fleet: both intervals are shown, and the wider one is named.

584 faults on 400 nodes in 349 days (InfiniteHBD). They come in bursts: between windows of 28 days
they vary 15 times as much as independent faults would.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr
from shared_data import shared

pytestmark = pytest.mark.slow

EXACT = (3.90, 4.48)
# of 584 faults in 13 windows; a bootstrap over windows gives about [3.07, 5.74]
OVER_TIME = (3.03, 5.64)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = shared("data/traces/infinitehbd/fault_trace.json.zst")
    folder = tmp_path_factory.mktemp("infinitehbd") / "store"
    done = ettr("ingest", folder, trace, "--nodes", "400")
    assert done.code == 0, done.err
    return folder


def faults(document: Any) -> Any:
    nodes = document["nodes"]
    return nodes["faults"] if isinstance(nodes, dict) else document["faults"]


@pytest.mark.parametrize("command", ["report", "nodes"])
def test_the_json_has_both_and_names_the_one_over_time(store: Path, command: str):
    found = faults(ettr(command, store, "--json").json)
    wide, exact = (found["in_service"][f"{kind}per_1000_node_days"] for kind in ("", "exact_"))
    assert [round(wide[key], 2) for key in ("estimate", "low", "high")] == [4.18, *OVER_TIME]
    assert [round(exact[key], 2) for key in ("estimate", "low", "high")] == [4.18, *EXACT]
    assert wide["low"] == pytest.approx(3.07, rel=0.03)
    assert wide["high"] == pytest.approx(5.74, rel=0.03)
    believed = found["clustering"]["believed"]
    assert (believed["over"], believed["window_days"], believed["units"]) == ("time", 28.0, 13)


@pytest.mark.parametrize("command", ["report", "nodes"])
def test_the_lead_has_the_wider_and_the_table_below_it_both(
    store: Path, command: str, tmp_path: Path
):
    options = ("-o", tmp_path / "report.html") if command == "report" else ()
    text = " ".join(ettr(command, store, *options, "--detail").out.split())
    assert "4.18 [3.03, 5.64]" in text
    pages = [text] if command == "nodes" else [(tmp_path / "report.html").read_text("utf-8")]
    for page in pages:
        assert "independent (Poisson)" in page
        assert "4.18 [3.90, 4.48]" in page
        assert "clustered, as between windows of 28 d" in page
        _, _, recommended = page.partition("clustered, as between windows of 28 d")
        assert "4.18 [3.03, 5.64]" in recommended[:200]
        assert "yes" in recommended[:300]
