"""A file that an older reader read is named, with the command, and is read again by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from cli.program import KERNEL, SACCT, ettr
from ettr.sources.base import READERS
from ettr.sources.registry import all_sources, named


def test_a_report_knows_the_versions_without_the_readers() -> None:
    assert {s.name: s.version for s in all_sources().values() if s.version != 1} == READERS


def test_a_file_of_an_older_reader_is_named_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(SACCT)
    (tmp_path / "kern.log").write_text(KERNEL)
    logs, zone = (tmp_path / "sacct.psv", tmp_path / "kern.log"), ("--timezone", "UTC")
    store = tmp_path / "st"
    old = replace(named("kernel-xid"), version=1)
    with patch.dict(all_sources(), {"kernel-xid": old}):
        assert ettr("ingest", store, *logs, *zone).code == 0
    quality = " ".join(ettr("quality", store, "--detail").out.split())
    assert "ettr has been fixed since it read 1 file" in quality
    command = f"ettr ingest {store} kern.log --timezone UTC"
    assert command in quality
    again = ettr("ingest", store, *logs, *zone).out
    assert "1 kept" in again
    assert "sacct.psv: unchanged" in again or "already" in again
    assert "mended since" not in ettr("quality", store, "--detail").out
