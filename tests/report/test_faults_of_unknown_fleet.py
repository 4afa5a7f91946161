"""Kernel logs alone name only nodes that had trouble: a rate is an upper bound in each table."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr

LINES = """\
2026-03-01T10:00:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off
2026-03-02T11:00:00+00:00 n2 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off
2026-03-20T11:00:00+00:00 n2 kernel: NVRM: Xid (PCI:0000:1b:00): 48, pid=1, Double Bit ECC Error
"""


def store_of(tmp_path: Path) -> Path:
    (tmp_path / "kernel.log").write_text(LINES)
    done = ettr("ingest", tmp_path / "site", tmp_path / "kernel.log", "--cluster", "c")
    assert "kernel.log: kernel-xid, 3 records read as rows of events (3)" in done.out
    return tmp_path / "site"


def row_of_poisson(page: str) -> str:
    return " ".join(page.partition("independent (Poisson)")[2].partition("</tr>")[0].split())


@pytest.mark.slow
def test_no_table_shows_an_estimate_that_the_lead_withholds(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    assert ettr("report", store, "--output", tmp_path / "r.html").code == 0
    page = (tmp_path / "r.html").read_text()
    assert "≤ 204 per 1,000 node-days" in page
    assert "≤ 204" in row_of_poisson(page)
    assert "[" not in row_of_poisson(page)
    given = ("report", store, "--fleet-nodes", "2", "--output", tmp_path / "k.html")
    assert ettr(*given).code == 0
    assert "78.8 [21.5, 204]" in row_of_poisson((tmp_path / "k.html").read_text())


@pytest.mark.slow
def test_a_store_without_jobs_is_compared_in_a_sentence_that_names_its_cluster(
    tmp_path: Path,
) -> None:
    done = ettr("compare", store_of(tmp_path), "new=12/6000", "--detail")
    assert done.code != 0
    said = " ".join(done.err.split())
    assert "the store holds no job accounting, so there is no exposure of jobs" in said
    assert "(its logs are of c)" in said
    assert "none" not in said
