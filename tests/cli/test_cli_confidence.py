"""How sure failures are stands wherever a count of them does: in text and in JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.program import EVENTS, Done, ettr

pytestmark = pytest.mark.slow

# the site has one failure: the scheduler names the node, and its kernel log has an XID
HIGH = {"scheduler_only": 0, "high": 1, "medium": 0, "low": 0}
WORDS = "by confidence: 1 high"


def words(done: Done) -> str:
    assert done.code == 0, done.err
    return " ".join(done.out.split())


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (("goodput",), ()),
        (("plan", "--gpus", "64"), ("rate",)),
        (("project",), ()),
        (("compare", "--published"), ()),
        (("node",), ()),
        (("node", "n1"), ()),
        (("runs",), ()),
        (("forecast", "--ahead", "2h"), ()),
    ],
)
def test_a_count_of_failures_says_how_sure_they_are(
    site: Path, command: tuple[str, ...], place: tuple[str, ...]
):
    name, *options = command
    assert WORDS in words(ettr(name, site, *options, "--detail"))
    found: Any = ettr(name, site, *options, "--json").json
    for key in place:
        found = found[key]
    assert found["by_confidence"] == HIGH


def test_both_periods_say_how_sure_their_failures_are(site: Path):
    options = ("--previous", "--since", "2026-03-02", "--until", "2026-03-03")
    text = words(ettr("compare", site, *options, "--detail"))
    assert "share lost by confidence" in text
    assert "1 high" in text
    found = ettr("compare", site, *options, "--json").json
    assert found["this"]["by_confidence"] == HIGH
    assert found["before"]["by_confidence"] == {**HIGH, "high": 0}


def test_a_node_without_failures_has_none_to_be_sure_of(site: Path):
    assert "by confidence" not in words(ettr("node", site, "n4", "--detail"))
    assert ettr("node", site, "n4", "--json").json["by_confidence"] == {**HIGH, "high": 0}


def test_typed_failures_and_faults_of_nodes_have_no_confidence(tmp_path: Path):
    plan = ettr("plan", "--failures", "5", "--node-days", "1000", "--gpus", "64", "--json").json
    assert plan["rate"]["by_confidence"] is None
    typed = ettr("project", "--failures", "5", "--node-days", "1000", "--json").json
    assert typed["by_confidence"] is None
    (tmp_path / "events.psv").write_text(EVENTS)
    done = ettr("ingest", tmp_path / "store", tmp_path / "events.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    faults = ettr("forecast", tmp_path / "store", "--ahead", "20min", "--json").json
    assert faults["of_what"] == "faults"
    assert faults["by_confidence"] is None
