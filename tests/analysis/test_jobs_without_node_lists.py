"""A job that ran held nodes and GPUs, whether or not the log names the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from attempt_tables import site_of_attempts
from cli.program import ettr
from ettr.analysis import Analysis
from ettr.store import open_store

HEAD = "Cluster|JobID|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
TEN_HOURS = "2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T10:00:00|36000"


def site(folder: Path, *rows: str) -> Path:
    (folder / "sacct.psv").write_text(HEAD + "".join(row + "\n" for row in rows))
    done = ettr("ingest", folder / "site", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "site"


@pytest.mark.parametrize("nodes", ["", "None assigned", "(null)"])
def test_a_dump_with_an_empty_node_list_keeps_its_nodes_and_gpus(
    nodes: str, tmp_path: Path
) -> None:
    """Four nodes of eight GPUs for ten hours, and a job that was cancelled while it waited."""
    rows = (
        f"c|1|ann|NODE_FAIL|{TEN_HOURS}|4|{nodes}|gres/gpu=32",
        "c|2|ann|CANCELLED|2026-03-01T00:00:00|2026-03-01T09:00:00|2026-03-01T09:00:00|0|2"
        f"|{nodes}|gres/gpu=16",
    )
    with open_store(site(tmp_path, *rows)) as store:
        analysis = Analysis(store)
        assert (analysis.totals.node_hours, analysis.totals.gpu_hours) == (40.0, 320.0)
        basis = analysis.exposure
        assert (basis.node_hours, basis.attempts_counted, basis.attempts_unknown) == (40.0, 1, 0)
        assert analysis.rates.all_jobs.node_days == pytest.approx(40 / 24)
        held = {
            row["job_id"]: (row["n_nodes"], row["n_gpus"])
            for row in analysis.facts.rows("attempts")
        }
    assert held == {"1": (4, 32), "2": (0, 0)}


def test_what_ran_on_no_node_at_all_is_counted_as_unknown(tmp_path: Path) -> None:
    rows = (
        f"c|1|ann|NODE_FAIL|{TEN_HOURS}|0||gres/gpu=8",
        f"c|2|ann|COMPLETED|{TEN_HOURS}|2|n[1-2]|gres/gpu=16",
    )
    with open_store(site(tmp_path, *rows)) as store:
        basis = Analysis(store).exposure
    assert (basis.attempts_named, basis.attempts_counted, basis.attempts_unknown) == (1, 0, 1)
    assert basis.sentences == (
        "1 attempt that ran names no nodes and no number of nodes: it adds no exposure, so "
        "rates come out too high.",
    )


def test_a_table_that_says_no_nodes_of_a_job_that_ran_is_counted_too(tmp_path: Path) -> None:
    """The same from a table of the site's own."""
    row = (
        "c,1,COMPLETED,2026-03-01T00:00:00Z,2026-03-01T00:00:00Z,2026-03-01T10:00:00Z,36000,0,8,\n"
    )
    with open_store(site_of_attempts(tmp_path, row)) as store:
        assert Analysis(store).exposure.attempts_unknown == 1
