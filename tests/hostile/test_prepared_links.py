"""A link that somebody prepared, at whatever name, leads no write to another file.

The names of drafts are random. Here the random part is known, which is the worst that can happen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ettr import chaos
from ettr.checkpoint.slots.durable_io import slot_file_name, slot_folder
from ettr.checkpoint.slots.layout import BlockSpec, Component, SlotLayout, TensorSpec
from ettr.checkpoint.slots.writer import SlotWriter
from ettr.errors import CheckpointError
from ettr.files import new_file, write_text
from ettr.recovery import restore_costs
from ettr.recovery.restore_costs import RunTimings, write_timings
from ettr.sim.cluster.log import write_truth

GUESSED = b"\x00" * 8
NAME = GUESSED.hex()


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file elsewhere that must stay as it is."""
    monkeypatch.setattr(os, "urandom", lambda _n: GUESSED)
    (tmp_path / "folder").mkdir()
    path = tmp_path / "theirs"
    path.write_text("theirs")
    return path


def test_a_taken_name_is_no_new_file(theirs: Path) -> None:
    link = theirs.parent / "folder" / "link"
    link.symlink_to(theirs)
    with pytest.raises(FileExistsError):
        new_file(link)
    assert theirs.read_text() == "theirs"


def test_a_link_in_place_of_a_ballast_is_not_filled(theirs: Path) -> None:
    folder = theirs.parent / "folder"
    (folder / f"{chaos.BALLAST_PREFIX}{NAME}").symlink_to(theirs)
    with pytest.raises(FileExistsError):
        chaos.fill(folder, 5_000)
    assert theirs.read_text() == "theirs"


def test_a_link_in_place_of_a_new_slot_is_not_written_to(theirs: Path) -> None:
    folder = slot_folder(theirs.parent / "folder", 0)
    folder.mkdir(parents=True)
    weights = TensorSpec("w", (24,), (Component("param", "float32"),))
    layout = SlotLayout((weights,), (BlockSpec(0, (0,), (24,)),))
    for generation in range(3):
        (folder / f".{slot_file_name(generation)}.{NAME}").symlink_to(theirs)
    with pytest.raises(CheckpointError, match="File exists"):
        SlotWriter.create(folder, layout)
    assert theirs.read_text() == "theirs"


@pytest.mark.torch
def test_a_link_in_place_of_a_handoff_is_not_written_to(theirs: Path) -> None:
    from ettr.elastic import torchrun

    folder = theirs.parent / "folder"
    (folder / "slot-0").write_bytes(b"")
    (folder / f".agreed-0.{NAME}").symlink_to(theirs)
    with pytest.raises(FileExistsError):
        torchrun.record_agreed_step(folder, 0, attempt=1, step=2)
    assert theirs.read_text() == "theirs"


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "text": ("page.html", lambda folder: write_text(folder / "page.html", "ours")),
    "timings": (
        restore_costs._FILE_NAME,
        lambda folder: write_timings(folder, RunTimings(1.0, None, {})),
    ),
    "truth": (
        "jobs.parquet",
        lambda folder: write_truth(folder, {"jobs": pa.table({"a": [1]})}, ""),
    ),
    "scenario": ("scenario.toml", lambda folder: write_truth(folder, {}, "ours")),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_in_place_of_a_file_is_replaced(theirs: Path, writer: str) -> None:
    name, write = WRITERS[writer]
    folder = theirs.parent / "folder"
    (folder / name).symlink_to(theirs)
    write(folder)
    assert theirs.read_text() == "theirs"
    assert not (folder / name).is_symlink()
    assert (folder / name).stat().st_size
