"""Exports read by the formats' own libraries, and the honest label."""

import json
import warnings
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")

import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch import nn  # noqa: E402

from ettr.checkpoint import (  # noqa: E402
    Budget,
    RunningCheckpoint,
    TrainingState,
    export_dcp,
    export_safetensors,
)
from ettr.checkpoint.export import LABEL, assemble  # noqa: E402


def trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 2).to(torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model[1](model[0](torch.randn(4, 6)).to(torch.bfloat16)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_consistent_one_is_read_by_both_libraries(tmp_path: Path) -> None:
    model, optimizer = trained()
    for rank in (0, 1):
        state = TrainingState(model, optimizer, replica=(rank, 2))
        with RunningCheckpoint(tmp_path / "rc", state, slot=rank, block_bytes=64) as rc:
            rc.save_all(4)
    done = export_safetensors(tmp_path / "rc", tmp_path / "m.safetensors", moments=True)
    assert (done.label, done.oldest_step, done.newest_step) == ("consistent", 4, 4)
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        assert file.metadata()["ettr.consistency"] == "consistent"
        for name, tensor in model.state_dict().items():
            assert torch.equal(file.get_tensor(name), tensor)
        moments = optimizer.state[model[0].weight]
        assert torch.equal(file.get_tensor("optimizer.0.weight.exp_avg"), moments["exp_avg"])
        assert float(file.get_tensor("optimizer.0.weight.step")) == 1.0
    export_dcp(tmp_path / "rc", tmp_path / "dcp")
    into = {name: torch.zeros_like(t) for name, t in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(into, storage_reader=dcp.FileSystemReader(tmp_path / "dcp"), no_dist=True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(into[name], tensor)
    assert json.loads((tmp_path / "dcp" / LABEL).read_text()) == {
        "consistency": "consistent",
        "oldest_step": 4,
        "newest_step": 4,
    }


def test_mixed_steps_are_refused_or_labelled(tmp_path: Path) -> None:
    model, optimizer = trained()
    state = TrainingState(model, optimizer)
    with RunningCheckpoint(
        tmp_path / "rc", state, policy="round-robin", budget=Budget(fraction=0.3), block_bytes=64
    ) as rc:
        rc.save_all(1)
        for step in range(2, 14):
            rc.step(step)
            rc.wait()
    with pytest.raises(CheckpointError, match=r"no step has an intact copy of every block \(blo"):
        export_safetensors(tmp_path / "rc", tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()
    done = export_safetensors(tmp_path / "rc", tmp_path / "m.safetensors", allow_composite=True)
    assert done.label == "composite"
    assert done.oldest_step < done.newest_step == 13
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        assert file.metadata()["ettr.consistency"] == "composite"
        assert file.metadata()["ettr.newest_step"] == "13"


def test_a_tensor_of_which_nothing_is_left_is_a_hole(tmp_path: Path) -> None:
    """Both headers torn: its key is in no list of records any more, only in the layout."""
    state = {"a": torch.ones(4, 4), "b": torch.ones(4)}
    with RunningCheckpoint(tmp_path / "rc", state, policy="full") as rc:
        rc.save_all(1)
        rc.save_all(2)
        slot = rc._session.writer.slot
        headers = [slot.geometry.offset(1, place) for place in (0, 1)]
    path = next((tmp_path / "rc" / "slot-0").glob("blocks-*"))
    raw = bytearray(path.read_bytes())
    for at in headers:
        raw[at] ^= 1
    path.write_bytes(raw)
    for allow_composite in (False, True):
        with pytest.raises(CheckpointError, match=r"1 tensors have blocks .* intact copy \(b\)"):
            export_safetensors(
                tmp_path / "rc", tmp_path / "m.safetensors", allow_composite=allow_composite
            )
    assert not (tmp_path / "m.safetensors").exists()


def test_a_moment_that_not_every_block_has_is_a_hole(tmp_path: Path) -> None:
    """Saved whole before the first update, then an eighth of it with its moments."""
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    with RunningCheckpoint(
        tmp_path, TrainingState(model, optimizer), policy="round-robin", block_bytes=1024
    ) as rc:
        rc.save_all(0)
        model(torch.randn(2, 64)).sum().backward()
        optimizer.step()
        rc.step(1)
    assembled = assemble(tmp_path, allow_composite=True)
    assert (assembled.label, assembled.oldest_step, assembled.newest_step) == ("composite", 0, 1)
    assert set(assembled.tensors) == {"weight", "bias"}
    with pytest.raises(CheckpointError, match=r"optimizer\.weight\.exp_avg, .* saved with them"):
        assemble(tmp_path, allow_composite=True, moments=True)


def test_factors_are_moments_and_no_parameters(tmp_path: Path) -> None:
    model = nn.Linear(2000, 3)
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.randn(2, 2000)).sum().backward()
    optimizer.step()
    with RunningCheckpoint(tmp_path, TrainingState(model, optimizer)) as rc:
        rc.save_all(1)
    assert set(assemble(tmp_path).tensors) == {"weight", "bias"}
    found = assemble(tmp_path, moments=True).tensors
    factor = optimizer.state[model.weight]["col_var"]
    assert torch.equal(found["optimizer.weight.col_var"], factor)
