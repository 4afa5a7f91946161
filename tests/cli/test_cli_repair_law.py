"""The repair law of a projection: good as new by default where the clock counts use."""

from pathlib import Path

import numpy as np
import pytest

from cli.program import ettr

DAY_S = 86_400
HEAD = "JobID|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 nodes, one job each, new after each failure: Weibull .6, mean about 15 d, 300 days."""
    folder = tmp_path_factory.mktemp("renewing")
    rng = np.random.default_rng(1)
    lines, job, origin = [HEAD], 0, np.datetime64("2025-01-01T00:00:00")
    for node in range(40):
        clock_s = 0
        while clock_s < 300 * DAY_S:
            life_s = max(60, int(10 * DAY_S * rng.weibull(0.6)))
            end_s = min(clock_s + life_s, 300 * DAY_S)
            state = "NODE_FAIL" if clock_s + life_s < 300 * DAY_S else "COMPLETED"
            job += 1
            begin, end = (origin + np.timedelta64(s, "s") for s in (clock_s, end_s))
            lines.append(
                f"{job}|c|{state}|{begin}|{begin}|{end}|{end_s - clock_s}|1|n{node}|gres/gpu=8"
            )
            clock_s = end_s
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def rate(store: Path, *words: str) -> float:
    done = ettr(
        "project", store, "--nodes", 300, "--model", "weibull", "--ages", "0d,45d", *words, "--json"
    )
    assert done.code == 0, done.err
    estimate: float = done.json["points"][0]["projection"]["lines"][0]["per_node_day"]["estimate"]
    return estimate


@pytest.mark.slow
def test_new_nodes_fail_more_often_where_repairs_renew_them(store: Path):
    renewed, as_before = rate(store), rate(store, "--repair-law", "minimal")
    assert rate(store, "--repair-law", "good-as-new") == renewed
    # with a shape of .6 the hazard falls with age, so going back to new costs failures
    assert renewed > 1.15 * as_before


@pytest.mark.slow
def test_a_law_that_does_not_exist_is_answered_with_those_that_do(store: Path):
    done = ettr(
        "project",
        store,
        "--nodes",
        300,
        "--model",
        "weibull",
        "--ages",
        "0d,45d",
        "--repair-law",
        "magic",
    )
    assert done.code == 2
    assert "give good-as-new or minimal" in done.err
