"""Kernel logs whose host names have a domain or another case: errors are those of the node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.program import ettr

SACCT = (
    "JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    "1|a|u|FAILED|1:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T08:00:00|28800|1|gpu01"
    "|billing=8,cpu=8,gres/gpu=8,node=1\n"
    "2|b|u|COMPLETED|0:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T08:00:00|28800|1|gpu02"
    "|billing=8,cpu=8,gres/gpu=8,node=1\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["gpu01", "gpu01.hpc.example.org", "GPU01"])
def test_errors_under_another_name_of_a_host_are_its_nodes(host: str, tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(SACCT)
    (tmp_path / "kernel.log").write_text(
        f"2026-03-01T07:59:00+00:00 {host} kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, "
        "GPU has fallen off the bus.\n"
    )
    logs = (tmp_path / "sacct.psv", tmp_path / "kernel.log")
    done = ettr("report", *logs, "--timezone", "UTC", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["failures"]["all_jobs"]["failures"] == 1
    assert [row["node"] for row in document["failure_list"]["failures"]] == ["gpu01"]
