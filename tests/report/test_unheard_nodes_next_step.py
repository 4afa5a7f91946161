"""What to do next where a job failed on a node of which no log says anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr

SACCT = (
    "JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    "1|a|u|FAILED|1:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T08:00:00|28800|1|gpu01"
    "|gres/gpu=8\n"
    "2|b|u|FAILED|1:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T08:00:00|28800|1|gpu02"
    "|gres/gpu=8\n"
)
XID = (
    "2026-03-01T07:59:00+00:00 gpu02 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen "
    "off the bus.\n"
)
OTHER = "2026-03-01T01:00:00+00:00 {} kernel: usb 1-1: new device\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "wanted", "unwanted"),
    [
        (XID, "Collect whole kernel logs (some hold errors alone)", "silent nodes"),
        (XID + OTHER.format("gpu02"), "Collect logs of silent nodes", "errors alone"),
        (XID + OTHER.format("gpu01"), "", "Collect"),
    ],
    ids=["filtered", "one node's", "both nodes'"],
)
def test_the_step_says_what_makes_the_count_whole(
    log: str, wanted: str, unwanted: str, tmp_path: Path
) -> None:
    (tmp_path / "sacct.psv").write_text(SACCT)
    (tmp_path / "kernel.log").write_text(log)
    logs = (tmp_path / "sacct.psv", tmp_path / "kernel.log")
    done = ettr("report", "--detail", *logs, "--timezone", "UTC", "-o", tmp_path / "r.html")
    assert done.code == 0, done.err
    steps = " ".join(done.out.partition("What to do next")[2].split())
    assert wanted in steps
    assert unwanted not in steps
