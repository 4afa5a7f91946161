"""`ettr project --repair-law`: how many failures 300 new nodes have in their first 45 days.

With lives of a Weibull law of shape .7 and mean 80 days: 266 if a repair makes a node as good as
new, 236 if it leaves it as old as it was. Each fleet was made by the law that it is projected with.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

SHAPE, SCALE_DAYS = 0.7, 80.0 / math.gamma(1.0 + 1.0 / 0.7)
NODES, SEEN_DAYS = 1500, 200.0
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)


def stamp(day: float) -> str:
    return f"{BEGIN + timedelta(days=day):%Y-%m-%dT%H:%M:%SZ}"


def failure_days(rng: np.random.Generator, law: str) -> np.ndarray:
    """When a node that is new on day 0 fails."""
    if law == "good-as-new":
        days = np.cumsum(SCALE_DAYS * rng.weibull(SHAPE, 400))
        return days[days < SEEN_DAYS]
    count = rng.poisson((SEEN_DAYS / SCALE_DAYS) ** SHAPE)
    return np.sort(SEEN_DAYS * rng.random(count) ** (1.0 / SHAPE))


@pytest.mark.parametrize(
    ("law", "clock", "failures"), [("good-as-new", "use", 266), ("minimal", "age", 236)]
)
def test_failures_of_300_new_nodes(tmp_path: Path, law: str, clock: str, failures: int):
    rng = np.random.default_rng(3)
    nodes, events = (
        ["cluster,node,n_gpus,in_service_from,in_service_to"],
        ["cluster,node,time,check,code,severity"],
    )
    for node in range(NODES):
        nodes.append(f"c,n{node},8,{stamp(0)},{stamp(SEEN_DAYS)}")
        for day in failure_days(rng, law):
            events.append(f"c,n{node},{stamp(float(day))},xid,79,critical")
    for name, lines in (("nodes", nodes), ("events", events)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        options = ("--source", "table", "--table", name)
        done = ettr("ingest", tmp_path / "store", tmp_path / name, *options)
        assert done.code == 0, done.err
    asked = ("--nodes", "300", "--days", "45d", "--model", "weibull", "--ages", "0d,45d")
    done = ettr(
        "project", tmp_path / "store", *asked, "--clock", clock, "--repair-law", law, "--json"
    )
    assert done.code == 0, done.err
    (point,) = done.json["points"]
    found = point["projection"]
    assert found["scale"]["repair_law"] == law
    # the fleet is a draw of 3,000 to 5,000 failures, and its fit has an error of its own
    assert 45 * 24 / found["mttf_h"]["estimate"] == pytest.approx(failures, rel=0.05)
    run = found["failures_in_run"]
    assert run["estimate"] == pytest.approx(failures, rel=0.05)
    assert run["low"] < failures < run["high"]
