"""Checked storage under dcp.save and dcp.load."""

import warnings
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError
from synced import synced_paths

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402

from ettr.checkpoint import CheckedReader, CheckedWriter, verify_dcp  # noqa: E402
from ettr.checkpoint.dcp import METADATA  # noqa: E402


def state(seed: int = 0) -> dict:
    gen = torch.Generator().manual_seed(seed)
    return {
        "model": {
            "w": torch.randn(40, 5, generator=gen),
            "half": torch.randn(7, generator=gen).to(torch.bfloat16),
            "none": torch.empty(0, 3),
            "scalar": torch.tensor(3.5),
            "t": torch.randn(6, 4, generator=gen).t(),
        },
        "groups": [{"lr": 0.1 * (seed + 1)}],
        "step": seed,
    }


def save(path: Path, seed: int = 0, **options) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state(seed), storage_writer=CheckedWriter(path, **options), no_dist=True)


def load(path: Path) -> dict:
    into = state(9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(into, storage_reader=CheckedReader(path), no_dist=True)
    return into


def assert_is(found: dict, seed: int) -> None:
    expected = state(seed)
    for name, tensor in expected["model"].items():
        assert torch.equal(found["model"][name], tensor), name
    assert (found["step"], found["groups"]) == (seed, expected["groups"])


@pytest.mark.parametrize("checksum", ["xxh3", "crc32", None])
def test_a_state_comes_back(tmp_path: Path, checksum) -> None:
    save(tmp_path / "c", 3, checksum=checksum)
    assert_is(load(tmp_path / "c"), 3)
    assert verify_dcp(tmp_path / "c") == []


def test_saving_again_replaces_the_older_one(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert_is(load(tmp_path), 2)
    assert len(list(tmp_path.glob("*.data"))) == 1


def test_a_save_that_was_cut_short_leaves_the_older_one(tmp_path: Path, monkeypatch) -> None:
    save(tmp_path, 1)

    def cut(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckedWriter, "finish", cut)
    with pytest.raises(dcp.CheckpointException, match="No space left"):
        save(tmp_path, 2)
    assert_is(load(tmp_path), 1)


def test_the_name_of_its_folder_is_durable(tmp_path: Path, monkeypatch) -> None:
    synced = synced_paths(monkeypatch)
    save(tmp_path / "full" / "step-5", 1)
    assert {tmp_path, tmp_path / "full", tmp_path / "full" / "step-5"} <= set(synced)


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (path,) = tmp_path.glob("*.data")
    whole = path.read_bytes()
    for at in range(0, len(whole), 41):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert len(verify_dcp(tmp_path)) == 1
        with pytest.raises((CheckpointError, dcp.CheckpointException), match="is damaged"):
            load(tmp_path)
    path.write_bytes(whole[:-1])
    assert [bad.reason for bad in verify_dcp(tmp_path)] == ["short"]
    path.write_bytes(whole)
    meta = tmp_path / METADATA
    text = meta.read_bytes()
    meta.write_bytes(text.replace(b'"model.w"', b'"model.v"'))
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: damaged"):
        verify_dcp(tmp_path)
    meta.unlink()
    with pytest.raises(CheckpointError, match="the save did not finish"):
        verify_dcp(tmp_path)
