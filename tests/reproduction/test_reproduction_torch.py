"""The torch workloads: Adam against torch's own, the arms side by side, and the controls."""

import gzip
import struct

import numpy as np
import pytest

from ettr.errors import UsageError
from reproduction.scar import results, summary
from reproduction.scar.controls import controls
from reproduction.scar.trials import Settings, prepare, trial
from reproduction.scar.workload import keyed

pytestmark = pytest.mark.torch

QUICK = Settings(iterations=16, interval=8, grid="large", smooth=2)


@pytest.fixture
def digits(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 400).astype(np.uint8)
    images = rng.integers(0, 60, (400, 28, 28)).astype(np.uint8)
    images[np.arange(400), labels * 2 + 3, :] = 255
    head = struct.pack(">4I", 2051, 400, 28, 28)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images.tobytes()))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">2I", 2049, 400) + labels.tobytes())
    )
    return tmp_path


@pytest.fixture
def text(tmp_path):
    line = b"the quick brown fox jumps over the lazy dog. "
    (tmp_path / "input.txt.gz").write_bytes(gzip.compress(line * 60))
    return tmp_path


def test_the_step_is_that_of_adamw(text):
    import torch

    from reproduction.scar.gpt import gpt

    made = gpt(text, rate=1e-3)
    state = made.start(0)
    leaf = torch.nn.Parameter(torch.from_numpy(state[:, 0].copy()))
    own = torch.optim.AdamW([leaf], lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    for k in range(3):
        own.param_groups[0]["lr"] = 1e-3 * (k + 1) / 21
        own.zero_grad()
        made._loss(leaf[None], *made._batch(0, k)).sum().backward()
        own.step()
        (state,), _ = made.advance([state], k, 0)
    # where the slope is nearly 0, Adam's step is rounding noise over rounding noise
    assert np.abs(state[:, 0] - leaf.detach().numpy()).max() < 2e-5
    assert (state[:, 3] == 3).all()


@pytest.mark.parametrize("kind", ["cnn", "gpt"])
def test_arms_side_by_side_learn_as_they_would_alone(kind, digits, text):
    from reproduction.scar.gpt import gpt
    from reproduction.scar.network import network

    made = network(digits, "shard", digits=200) if kind == "cnn" else gpt(text, rate=3e-3)
    one, two = made.start(0), made.start(1)
    together, losses = made.advance([one, two], 0, 0)
    for state, in_company, loss in zip((one, two), together, losses, strict=True):
        (alone,), (single,) = made.advance([state], 0, 0)
        assert loss == pytest.approx(single, abs=1e-5)
        assert in_company[:, 1] == pytest.approx(alone[:, 1], abs=1e-5)


def test_the_network_is_two_convolutions_and_two_layers(digits):
    import torch
    from torch import nn

    from reproduction.scar.network import SHAPES, initial, loss

    values = torch.from_numpy(initial(0))
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    at = 0
    with torch.no_grad():
        for (name, shape), target in zip(SHAPES.items(), model.parameters(), strict=True):
            size = int(np.prod(shape))
            piece = values[at : at + size].view(shape)
            target.copy_(piece.T if name in ("hidden.weight", "output.weight") else piece)
            at += size
    images = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6)
    expected = nn.functional.cross_entropy(model(images), labels).item()
    assert loss(values[None], images, labels).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("by", ["layer", "shard"])
def test_the_controls_hold_for_the_network(by, digits):
    from reproduction.scar.network import network

    prepared = prepare(network(digits, by, digits=200), QUICK)
    assert prepared.workload.offsets.size - 1 == (8 if by == "layer" else 64)
    record = controls(prepared, 1)
    assert record["ok"], record
    assert {"full/full", "again", "partial/priority-8/50"} <= set(trial(prepared, 0)["arms"])


def test_units_by_anything_else_are_refused(digits):
    from reproduction.scar.network import network

    with pytest.raises(UsageError, match="allowed are layer and shard"):
        network(digits, "neuron")


def test_a_shard_comes_back_with_its_moments_and_its_step(text):
    from reproduction.scar.gpt import gpt
    from reproduction.scar.trials import recovered

    made = gpt(text, rate=3e-3)
    states = [made.start(0)]
    for k in range(4):
        states.append(made.advance([states[-1]], k, 0)[0][0])
    lost = keyed(1).permutation(64)[:16]
    mixed = recovered(states[4], states[2], made.offsets, lost)
    assert sorted(set(mixed[:, 3])) == [2, 4]
    (after,), _ = made.advance([mixed], 4, 0)
    assert sorted(set(after[:, 3])) == [3, 5]
    assert np.isfinite(after).all()


def test_a_stale_shard_is_priced_against_the_rollback(text, tmp_path, monkeypatch):
    from reproduction.scar import gpt_trials
    from reproduction.scar.gpt import gpt

    monkeypatch.setattr(gpt_trials, "STAGES", (12,))
    monkeypatch.setattr(gpt_trials, "STALENESS", (2, 4))
    few = Settings(iterations=20, interval=8, grid="large", smooth=2)
    prepared = prepare(gpt(text, rate=6e-3), few)
    shift = np.array(prepared.runs[0].states)
    monkeypatch.setattr(gpt_trials, "OLD", 4)
    record = gpt_trials.stale_trial(prepared, 0)
    assert {"25/2", "75/4", "25/none", "again"} <= set(record["arms"])
    assert (shift == prepared.runs[0].states).all()  # the clean run is not written over
    path = tmp_path / "gpt-stale-tuned.jsonl"
    results.append(path, {"kind": "settings", "rate": 6e-3, "label": "tuned"})
    results.append(path, record)
    rows = summary.stale_rows(tmp_path)
    assert {row["rollback"] for row in rows if row["arm"] == "50/4"} == {4.0}
    assert "lost / age" in summary.stale_table(rows)
