"""Attempts that ran and do not say their nodes ran on some, not on none."""

from __future__ import annotations

from pathlib import Path

import pytest

from attempt_tables import site_of_attempts
from cli.program import ettr
from ettr.analysis import Analysis
from ettr.metrics.mttf import SizeMttf
from ettr.store import open_store

pytestmark = pytest.mark.slow


def job(number: int, state: str, hours: int, nodes: int | None, gpus: int) -> str:
    day = "2026-03-01T"
    span = f"{day}00:00:00Z,{day}00:00:00Z,{day}{hours:02}:00:00Z,{3600 * hours}"
    return f"c,{number},{state},{span},{'' if nodes is None else nodes},{gpus},\n"


@pytest.mark.parametrize("unsaid", [None, 0])
def test_nodes_of_a_class_are_those_of_the_attempts_that_say_them(
    unsaid: int | None, tmp_path: Path
) -> None:
    """Of 32 GPUs: 4 nodes for 10 h are 40 node-hours, and 5 h are on nobody knows how many."""
    rows = (
        job(1, "NODE_FAIL", 10, unsaid, 8),
        job(2, "COMPLETED", 10, 4, 32),
        job(3, "COMPLETED", 5, unsaid, 32),
    )
    store = site_of_attempts(tmp_path, *rows)
    with open_store(store) as opened:
        mttf = Analysis(opened).mttf
    assert mttf.size_unit == "gpus"

    def nodes(one: SizeMttf) -> tuple[float | None, float | None, int]:
        return one.node_days, one.mean_nodes, one.attempts_without_nodes

    small, large = mttf.classes
    assert nodes(small) == (None, None, 1)
    assert nodes(large) == (pytest.approx(40 / 24), 4.0, 1)
    assert (small.projected_mttf_h.estimate, large.job_hours) == (None, 15.0)
    # one failure in the 40 node-hours known is one in 10 h of 4 nodes
    assert large.projected_mttf_h.estimate == pytest.approx(10.0)
    said = " ".join(ettr("mttf", store, "--detail").out.split())
    assert "2 attempts that ran do not say their nodes" in said


def test_a_class_that_says_its_nodes_is_as_it_was(tmp_path: Path) -> None:
    with open_store(site_of_attempts(tmp_path, job(1, "NODE_FAIL", 12, 2, 16))) as opened:
        (one,) = Analysis(opened).mttf.classes
    assert (one.node_days, one.mean_nodes, one.attempts_without_nodes) == (1.0, 2.0, 0)
