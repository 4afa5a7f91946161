"""Nodes that look renamed are pointed out; fleets that only grow, shrink or rest are not."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.lemons.fleet import likely_renames

DAY = 86400.0


def spans(cluster: str, nodes: range, first_day: float, last_day: float):
    return {
        (cluster, f"n{node}"): ((first_day + node / 100) * DAY, (last_day - node / 100) * DAY)
        for node in nodes
    }


def test_twenty_nodes_end_when_twenty_others_begin():
    held = spans("c", range(20), 0, 14) | spans("c", range(20, 40), 14, 28)
    held |= spans("c", range(40, 80), 0, 28)
    [found] = likely_renames(held | spans("d", range(30), 0, 28))
    assert (found.cluster, found.ended, found.began) == ("c", 20, 20)
    assert found.time_s == (14 + 20 / 100) * DAY


def test_a_fleet_that_grows_or_shrinks_or_replaces_a_few_has_no_new_names():
    stay = spans("c", range(40, 80), 0, 28)
    assert likely_renames(stay) == ()
    assert likely_renames(stay | spans("c", range(20), 14, 28)) == ()
    assert likely_renames(stay | spans("c", range(20), 0, 14)) == ()
    few = spans("c", range(3), 0, 14) | spans("c", range(3, 6), 14, 28)
    assert likely_renames(stay | few) == ()
    # twenty end, and five of an extension begin
    unequal = spans("c", range(20), 0, 14) | spans("c", range(20, 26), 14, 28)
    assert likely_renames(stay | unequal) == ()


def test_a_node_whose_job_goes_on_has_not_ended():
    going_on = {node: (first, math.inf) for node, (first, _) in spans("c", range(20), 0, 1).items()}
    assert likely_renames(going_on | spans("c", range(20, 40), 14, 28)) == ()


@pytest.mark.slow
def test_lemons_of_a_store_with_renamed_nodes_say_so(tmp_path: Path):
    head = "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
    rows, first = [head], datetime(2026, 3, 1, tzinfo=UTC)
    for day in range(20):
        for node in range(8):
            name = f"n{node}" if day < 10 else f"node-{node}"
            start = first + timedelta(days=day)
            times = [f"{one:%Y-%m-%dT%H:%M:%S}" for one in (start, start, start + timedelta(1))]
            cells = (100 * day + node, "a", "u", "c", "COMPLETED", *times, 86400, 1, name)
            rows.append("|".join(map(str, (*cells, "gres/gpu=8"))))
    (tmp_path / "sacct.psv").write_text("\n".join(rows) + "\n")
    done = ettr("ingest", tmp_path / "store", tmp_path / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    [note] = [
        one
        for one in ettr("lemons", tmp_path / "store", "--json").json["notes"]
        if "renamed" in one
    ]
    assert note.startswith("From 2026-03-11 on 8 nodes of c ran their first jobs, and 8 others")
    part = ettr("lemons", tmp_path / "store", "--json", "--since", "2026-03-05").json
    assert not any("renamed" in one for one in part["notes"])
