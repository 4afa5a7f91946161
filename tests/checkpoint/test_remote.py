"""Copies of checkpoints in object storage: whole, partial, and as they were after any failure."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.checkpoint import CheckpointError, FencedError, download, remote, upload, verify
from store.object_server import ObjectServer, object_server
from store.test_bucket_store import environment

pytest.importorskip("obstore")
URL = "s3://runs/seven"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    with object_server() as running:
        for name, value in environment(running, tmp_path).items():
            monkeypatch.setenv(name, value)
        yield running


def folder_of(place: Path, **texts: str) -> Path:
    place.mkdir(exist_ok=True)
    (place / "rank0").mkdir(exist_ok=True)
    for name, text in texts.items():
        (place / "rank0" / name).write_text(text)
    return place


def brought(place: Path) -> dict[str, str]:
    download(URL, place)
    return {path.name: path.read_text() for path in place.rglob("*") if path.is_file()}


@pytest.mark.torch
def test_a_partial_save_sends_what_changed_and_comes_back_bit_for_bit(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from ettr.checkpoint import Budget, RunningCheckpoint, restore

    monkeypatch.setattr(remote, "_PIECE_BYTES", 4096)
    model, other = torch.nn.Linear(100, 200, bias=False), torch.nn.Linear(100, 200, bias=False)
    with RunningCheckpoint(
        tmp_path / "run", model, block_bytes=4096, policy="round-robin", budget=Budget(fraction=0.2)
    ) as running:
        running.save_all(1)
        running.wait()
        first = upload(tmp_path / "run", URL)
        with torch.no_grad():
            model.weight[:5] = -1.0
        running.step(2)
        running.wait()
        second = upload(tmp_path / "run", URL)
    restore(tmp_path / "run", other)
    expected = other.weight.detach().clone()
    torch.nn.init.zeros_(other.weight)
    assert first.n_sent == first.n_pieces
    assert 0 < second.n_sent < second.n_pieces / 2
    assert verify(URL) == []
    assert ettr("verify", URL).code == 0
    restore(URL, other)
    assert torch.equal(other.weight, expected)
    assert not any(b"\x80\x04" in data[:4] for data in server.objects.values())  # no pickle


def test_each_failure_leaves_the_copy_that_was_there_or_the_new_one(
    server: ObjectServer, tmp_path: Path
) -> None:
    run = folder_of(tmp_path / "run", a="first", b="stays")
    upload(run, URL)
    folder_of(run, a="second", c="new")
    seen = set()
    for n_allowed in range(9):
        objects, left = dict(server.objects), [n_allowed]

        def count(label: str, left: list[int] = left) -> bool:
            server.is_read_only = label.startswith(("PUT", "POST")) and left[0] == 0
            left[0] -= label.startswith("PUT") and left[0] > 0
            return False

        server.before = count
        with suppress(CheckpointError):
            upload(run, URL)
        server.is_read_only, server.before = False, lambda _: False
        found = brought(tmp_path / f"brought{n_allowed}")
        assert found in ({"a": "first", "b": "stays"}, {"a": "second", "b": "stays", "c": "new"})
        seen.add(found["a"])
        server.objects.clear()
        server.objects.update(objects)
    assert seen == {"first", "second"}


def test_of_two_writers_one_is_refused_and_a_server_without_conditions_is(
    server: ObjectServer, tmp_path: Path
) -> None:
    run, other = folder_of(tmp_path / "run", a="run"), folder_of(tmp_path / "other", a="other")
    upload(run, URL)
    folder_of(run, a="again")

    def meanwhile(label: str) -> bool:
        if "/pieces/" in label:
            server.before = lambda _: False
            upload(other, URL)
        return False

    server.lock = _NoLock()
    server.before = meanwhile
    with pytest.raises(FencedError, match="another process has made a copy"):
        upload(run, URL)
    assert brought(tmp_path / "brought") == {"a": "other"}
    server.is_conditional = False
    with pytest.raises(CheckpointError, match="ignores If-None-Match"):
        upload(run, URL)


class _NoLock:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_what_changed_in_storage_is_not_read(server: ObjectServer, tmp_path: Path) -> None:
    upload(folder_of(tmp_path / "run", a="weights"), URL)
    (piece,) = [name for name in server.objects if "/pieces/" in name]
    server.objects[piece] = b"weighty"
    with pytest.raises(CheckpointError, match="bytes have changed"):
        download(URL, tmp_path / "brought")
    assert not (tmp_path / "brought").exists()
    del server.objects[piece]
    with pytest.raises(CheckpointError, match="is missing"):
        download(URL, tmp_path / "brought")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_folder_that_is_written_meanwhile_is_refused(
    server: ObjectServer, tmp_path: Path
) -> None:
    run = folder_of(tmp_path / "run", a="first")
    upload(run, URL)
    folder_of(run, a="second")
    server.after = lambda label: folder_of(run, b=label)
    with pytest.raises(CheckpointError, match="copy between saves"):
        upload(run, URL)
    assert brought(tmp_path / "brought") == {"a": "first"}


def test_a_link_is_refused_and_not_left_out(server: ObjectServer, tmp_path: Path) -> None:
    run = folder_of(tmp_path / "run", a="first")
    (run / "latest").symlink_to("rank0")
    with pytest.raises(CheckpointError, match="latest: is a symbolic link"):
        upload(run, URL)
    (run / "latest").unlink()
    upload(run, URL)


def test_a_url_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="begins with s3, gs, az"):
        upload(folder_of(tmp_path / "run", a="first"), "ftp://bucket/run")


def test_what_a_killed_reader_has_brought_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = (
        "import os, sys, tempfile; from ettr.checkpoint import remote; "
        "tempfile.tempdir = sys.argv[1]; "
        "remote.download = lambda url, folder: (folder.mkdir(), os.kill(os.getpid(), 9)); "
        "remote.at_hand('s3://runs/seven').__enter__()"
    )
    done = subprocess.run([sys.executable, "-c", dying, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert len(list(tmp_path.glob("*/checkpoint"))) == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(remote, "download", lambda _url, folder: folder.mkdir())
    with remote.at_hand(URL) as brought_to:
        assert list(tmp_path.glob("*/checkpoint")) == [brought_to]
    assert not list(tmp_path.iterdir())
