"""`ettr collect` beside commands that hang, talk, or do not notice a full disk."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ettr.collect import running
from ettr.collect.running import CollectCommand, CollectError, collect, collect_commands

TWO_LINES = "JobID|State\\n1|COMPLETED\\n"


def _run(tmp_path: Path, script: str) -> tuple[list[str], Path]:
    """What is said on stderr by a command of that script, and the folder."""
    said: list[str] = []
    command = CollectCommand(("sh", "-c", script), "sacct.psv", has_header=True)
    collect([command], tmp_path / "logs", {"PATH": "/usr/bin:/bin"}, said.append)
    return said, tmp_path / "logs"


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """As on a full disk, no file of this process grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_dump_that_ends_within_a_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="ends within a line, after 28 bytes"):
        _run(tmp_path, f"printf '{TWO_LINES}2|CO'")
    assert not list((tmp_path / "logs").iterdir())


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="is not text"):
        _run(tmp_path, "head -c 3000 /dev/zero")
    assert not list((tmp_path / "logs").iterdir())


def test_a_full_disk_is_noticed_though_the_command_does_not(tmp_path: Path) -> None:
    with files_of_at_most(40_000), pytest.raises(OSError, match="File too large"):
        _run(tmp_path, f"printf '{TWO_LINES}'; yes 2 | head -50000; exit 0")
    assert not list((tmp_path / "logs").iterdir())


def test_what_a_command_says_is_shown_and_not_held(tmp_path: Path) -> None:
    script = (
        f"printf '{TWO_LINES}'; echo 'sacct: error: partial result' >&2; yes | head -c 9000000 >&2"
    )
    said, logs = _run(tmp_path, script)
    assert said[0].startswith("sh: sacct: error: partial result")
    assert len(said[0]) < 1000
    assert (logs / "sacct.psv").read_text() == TWO_LINES.replace("\\n", "\n")


def test_a_command_that_hangs_is_ended_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WORD_AFTER_S", 0.1)
    monkeypatch.setattr(running, "SILENT_FOR_S", 0.3)
    with pytest.raises(CollectError, match=r"printed nothing for 0\.3 s and was ended"):
        _run(tmp_path, f"printf '{TWO_LINES}'; sleep 600")
    assert not list((tmp_path / "logs").iterdir())


def test_the_printed_script_refuses_a_cut_dump_too(tmp_path: Path) -> None:
    commands = collect_commands(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    lines = commands[-1].shell_lines(tmp_path)
    fake = tmp_path / "sacct"
    fake.write_text(f"#!/bin/sh\nprintf '{TWO_LINES}2|CO'\n")
    fake.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh"],
        input="\n".join(lines),
        text=True,
        check=False,
        capture_output=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert "its output ends within a line" in done.stderr
    assert not list(tmp_path.glob("sacct-*.psv"))
