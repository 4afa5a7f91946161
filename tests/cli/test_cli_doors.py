"""Terminals and disks as sites have them; selections that match nothing."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cli.program import ettr
from collect.test_collect_hard import files_of_at_most
from ettr.analysis import Analysis
from ettr.report.export import export
from ettr.store import open_store

PROGRAM = [sys.executable, "-c", "from ettr.cli.main import main_alone; main_alone()"]
ESCAPES = "\x1b[31m\x9b\u202e"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doors")
    dump = folder / "sacct.psv"
    header = (
        "JobID|JobName|User|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
    )
    times = "2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T01:00:00|3600"
    row = f"1|name {ESCAPES}|ann|gpu|NODE_FAIL|{times}|1|n1|gres/gpu=8"
    dump.write_text(f"{header}\n{row}\n")
    done = ettr("ingest", folder / "st", dump, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "st"


def test_csv_cannot_steer_a_terminal_and_is_exact_in_a_file(store: Path) -> None:
    command = [*PROGRAM, "sql", str(store), "SELECT name FROM attempts", "--csv"]
    leader, follower = pty.openpty()
    subprocess.run(command, stdout=follower, stderr=subprocess.DEVNULL, check=False, timeout=100)
    os.close(follower)
    on_terminal = os.read(leader, 10_000).decode()
    os.close(leader)
    in_file = subprocess.run(command, capture_output=True, check=False, timeout=100).stdout.decode()
    assert "\\x1b[31m\\x9b\\u202e" in on_terminal
    assert "\x1b" not in on_terminal
    assert ESCAPES in in_file


def test_a_terminal_that_is_not_utf_8_gets_its_text(store: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "failures", str(store), "--list"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert b"unattributed" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.parametrize("name", ["all.duckdb", "{table}.csv"])
def test_a_full_disk_leaves_nothing_of_an_export(store: Path, tmp_path: Path, name: str) -> None:
    with open_store(str(store)) as opened:
        analysis = Analysis(opened)
        tables = ("attempts", "files", "rejects")
        with files_of_at_most(200), pytest.raises(OSError, match=r"duckdb|csv"):
            export(analysis, str(tmp_path / "out" / name), tables)
    assert not list((tmp_path / "out").iterdir())
