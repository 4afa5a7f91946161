"""Memory that the engine may take, and what is put aside on disk."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ettr.errors import UsageError
from ettr.sources.ingest import ingest_file
from ettr.store import open_store, writing
from ettr.store.computing import Computing, allowed_bytes
from source_samples import samples

CGROUPS = {
    "v2, its own": ("0::/job/step", {"job/step/memory.max": "3000", "job/memory.max": "max"}, 3000),
    "v2, its parent's": ("0::/job/step", {"job/memory.max": "2000"}, 2000),
    "v2, in a container": ("0::/", {"memory.max": "1000"}, 1000),
    "v1": ("5:cpu:/\n4:memory:/job", {"memory/job/memory.limit_in_bytes": "4000"}, 4000),
}


@pytest.mark.parametrize("name", CGROUPS)
def test_the_least_limit_of_the_cgroups_is_what_the_process_may_have(name: str, tmp_path: Path):
    listed, limits, expected = CGROUPS[name]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(listed + "\n")
    for place, text in limits.items():
        path = tmp_path / "sys/fs/cgroup" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert allowed_bytes(tmp_path) == expected
    assert allowed_bytes(tmp_path / "none") > 1e8


def test_a_query_beyond_the_limit_is_put_aside_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="too little for the engine; give 128 MiB"):
        Computing(memory_bytes=1000)
    duck = Computing(memory_bytes=140_000_000).connect()
    ((folder,),) = duck.execute("SELECT current_setting('temp_directory')").fetchall()
    assert Path(folder).stat().st_mode & 0o077 == 0
    duck.execute("SET threads = 1")
    # 200 MB of texts, sorted: without the folder the engine is out of memory
    texts = (
        "SELECT repeat('x', 250) || i AS text FROM range(800_000) t(i) ORDER BY hash(i) OFFSET 1"
    )
    query = f"SELECT count(text) FROM ({texts})"
    assert duck.execute(query).fetchall() == [(799_999,)]
    duck.close()
    del duck
    assert not list(tmp_path.iterdir())


def test_no_bar_is_drawn_amid_the_answer_of_a_program_that_is_no_file():
    asked = "SELECT current_setting('enable_progress_bar')"
    program = f"""from ettr.store.computing import Computing
print(Computing().connect().execute("{asked}").fetchall())"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[(False,)]\n", done.stderr


def test_a_folder_of_a_killed_process_is_removed_by_the_next_and_a_live_ones_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dying = "from ettr.store.computing import *; import os, tempfile; tempfile.tempdir = {!r}; "
    dying += "d = Computing().connect(); folder_aside(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", dying.format(str(tmp_path))], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    first = Computing().connect()
    (held,) = tmp_path.iterdir()
    (held / "rows").touch()
    second = Computing().connect()
    assert (held / "rows").exists()
    del first, second
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_machine_stays_where_its_lock_may_not_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = tmp_path / "ettr-locked-login2.example-abc"
    theirs.mkdir()
    Computing().connect().close()
    assert list(tmp_path.iterdir()) == [theirs]


def test_rows_read_from_files_by_a_process_that_was_killed_go_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = samples("slurm-sacct")[0].path
    reading = (
        "import os, sys, tempfile, ettr; tempfile.tempdir = sys.argv[1]; "
        "held = ettr.read(sys.argv[2], timezone='UTC'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", reading, tmp_path, log], check=False)
    assert done.returncode == -9
    assert list(tmp_path.glob("*/store"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Computing().connect().close()
    assert not list(tmp_path.iterdir())


def test_keys_put_aside_count_as_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Dirty samples, in which records repeat others' keys."""
    found = []
    for most in (1 << 28, 0):
        monkeypatch.setattr(writing, "_MOST_KEY_BYTES", most)
        done, rows = [], {}
        for number, sample in enumerate([*samples("slurm-sacct"), *samples("pbs")]):
            options = replace(sample.options, timezone=sample.options.timezone or "UTC")
            place = tmp_path / f"{most}-{number}"
            with open_store(place, create=True) as store:
                try:
                    done.append(ingest_file(store, sample.path, options, sample.source.name))
                except Exception as error:
                    done.append(str(error))
                    continue
                rows[str(sample)] = {
                    name: sorted(map(str, store.rows(name).to_pylist()))
                    for name in ("attempts", "events", "allocations")
                }
        found.append((done, rows))
    assert found[0] == found[1]
    assert any(one.rows_folded for one in found[0][0] if not isinstance(one, str))
