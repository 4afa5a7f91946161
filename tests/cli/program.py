"""The `ettr` program, and a small site's logs with known answers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ettr.cli.main import main

PROGRAM = Path(sys.executable).with_name("ettr")

# four nodes of eight GPUs; hours and GPU-hours are counted in the comments
SACCT = """\
Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES|WorkDir
c|1|train|ann|COMPLETED|0:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-02T00:00:00|86400|2|n[1-2]|cpu=128,gres/gpu=16,node=2|/w/a
c|2|tune|bob|NODE_FAIL|0:0|2026-03-02T00:00:00|2026-03-02T00:00:00|2026-03-02T00:00:00|2026-03-02T12:00:00|43200|1|n1|cpu=64,gres/gpu=8,node=1|/w/b
c|2|tune|bob|COMPLETED|0:0|2026-03-02T12:00:00|2026-03-02T12:00:00|2026-03-02T13:00:00|2026-03-02T23:00:00|36000|1|n3|cpu=64,gres/gpu=8,node=1|/w/b
c|3|never|bob|CANCELLED by 1001|0:0|2026-03-02T00:00:00|2026-03-02T00:00:00|Unknown|2026-03-02T01:00:00|0|0|None assigned||/w/b
c|4|bug|eve|FAILED|1:0|2026-03-03T00:00:00|2026-03-03T00:00:00|2026-03-03T00:00:00|2026-03-03T01:00:00|3600|1|n4|cpu=64,gres/gpu=8,node=1|/w/c
c|5|spare|eve|PREEMPTED|0:0|2026-03-03T02:00:00|2026-03-03T02:00:00|2026-03-03T02:00:00|2026-03-03T04:00:00|7200|1|n4|cpu=64,gres/gpu=8,node=1|/w/c
"""  # noqa: E501
TOTALS = {
    "jobs": 4,  # 3 was cancelled before it ran
    "attempts": 6,
    "cpu_hours": 24 * 128 + (12 + 10 + 1 + 2) * 64,
    "node_hours": 24 * 2 + 12 + 10 + 1 + 2,
    "gpu_hours": 24 * 16 + (12 + 10 + 1 + 2) * 8,
}
KERNEL = (
    "2026-03-02T11:59:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', "
    "name=<unknown>, GPU has fallen off the bus.\n"
)
EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
c|n1|2026-03-02T12:00:00|2026-03-02T18:00:00|DOWN*|Not responding|slurm(64030)
"""


@dataclass(frozen=True)
class Done:
    """What a run of the program came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def ettr(*words: str | Path, folder: Path | None = None) -> Done:
    """Run the command line in this interpreter: what the script runs, without its start."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        chdir(folder or Path.cwd()),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["ettr", *map(str, words)]),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


@cache
def ettr_once(*words: str | Path) -> Done:
    """What a command says of a store that no test changes, run once."""
    return ettr(*words)


def program(*words: str | Path, folder: Path | None = None, timeout_s: float = 300) -> Done:
    """Run the installed script as a user does, with nothing to answer a prompt."""
    done = subprocess.run(
        [PROGRAM, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=timeout_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def write_logs(folder: Path) -> list[Path]:
    """The site's three logs."""
    files = []
    for name, text in (("kernel.log", KERNEL), ("sacct.psv", SACCT), ("events.psv", EVENTS)):
        files.append(folder / name)
        files[-1].write_text(text)
    return files
