"""Want of memory is a sentence and exit status 1, whichever library meets it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from cli.program import write_logs
from ettr.cli import main

SENTENCE = "memory ran out ("


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.lib.ArrowMemoryError("malloc of size 64 failed"),
        pa.lib.ArrowException("Unknown error: Failed to launch worker thread: try again"),
        RuntimeError("can't start new thread"),
        ImportError("_duckdb.so: failed to map segment from shared object"),
    ],
)
def test_an_error_of_a_library_for_want_of_memory_is_a_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(_words: list[str]) -> None:
        raise error

    monkeypatch.setattr(main, "check_words", short)
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert SENTENCE in said
    assert "ulimit -v" in said


def test_any_other_error_ends_as_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_words: list[str]) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(main, "check_words", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main.main()


@pytest.mark.slow
def test_a_limit_at_which_no_library_can_be_loaded_is_a_sentence(tmp_path: Path) -> None:
    """Refused before they are loaded: native code would end, or hang."""
    limit_bytes = 400_000 * 1024
    code = (
        "import sys; from ettr.cli.main import main; "
        f"sys.argv = ['ettr', 'ingest', {str(tmp_path / 's')!r}, "
        f"*{[str(one) for one in write_logs(tmp_path)]!r}, '--timezone', 'UTC']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes)),
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    assert SENTENCE in done.stderr
