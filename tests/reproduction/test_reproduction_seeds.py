"""The arm through the shipped RunningCheckpoint, and several seeds of one experiment together."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ettr.errors import UsageError
from reproduction.scar import results
from reproduction.scar.adam import Adam
from reproduction.scar.checkpoint_replay import Checkpointing, saved_at
from reproduction.scar.controls import controls
from reproduction.scar.seeds import write_pooled
from reproduction.scar.shipped import shipped_at
from reproduction.scar.trials import Settings, prepare, settings_record, trial
from reproduction.scar.workload import clean_run
from small_workloads import regression, topics

pytestmark = pytest.mark.torch

QUICK = Settings(iterations=16, interval=8, grid="headline", streams=2)


def test_the_shipped_checkpoint_saves_by_its_own_rules():
    pytest.importorskip("torch")
    workload = regression()
    clean = clean_run(workload, 0, 32, 1)
    ages = shipped_at(workload, clean, Checkpointing("shipped", 4), 8)
    assert ages.shape == (33, workload.offsets.size - 1)
    assert (ages[0] == 0).all()
    steps = np.arange(33)[:, None]
    changed = np.diff(ages, axis=0) != 0
    # a save is of its own iteration, and only where a round is due: every 8/4 iterations
    assert (ages[1:][changed] == np.broadcast_to(steps[1:], changed.shape)[changed]).all()
    assert not changed[0::2].any()
    assert changed[1::2].any(axis=1).all()
    # what was saved has moved most as it was scored, one iteration before: not quite the replay's
    replayed = saved_at(workload, clean, Checkpointing("priority", 4), 8)
    moved = workload.moved(clean.states[3], clean.states[0])  # scored at 3 for the round of 4
    second = np.flatnonzero(changed[3])
    left = np.flatnonzero(ages[4] == 0)
    assert moved[second].min() >= moved[left].max()
    assert (replayed[-1] >= 0).all()


def quadratic() -> Adam:
    """Adam towards 0 on 12 parameters, in units of 1, 4 and 7."""
    torch = pytest.importorskip("torch")
    ones = torch.ones(12)
    return Adam(
        "quadratic",
        initial=lambda stream: np.linspace(1, 2, 12, dtype=np.float32),
        batch=lambda stream, iteration: (ones, ones),
        judged=(ones, ones),
        loss=lambda values, weights, _: (weights * values.square()).sum(1),
        offsets=np.array([0, 1, 5, 12]),
        rate=0.05,
    )


@pytest.mark.parametrize("workload", [topics, quadratic])
def test_units_that_differ_in_size_are_blocks_of_their_own(workload):
    """What was restored is compared with what was saved, moments and steps with it."""
    pytest.importorskip("torch")
    clean = clean_run(workload(), 0, 16, 1)
    ages = shipped_at(workload(), clean, Checkpointing("shipped", 4), 8)
    assert ages.shape == (17, workload().offsets.size - 1)
    assert (np.diff(ages, axis=0) >= 0).all()
    assert (ages[-1] > 0).any()
    assert len(set(ages[-1].tolist())) > 1, "a part of the units is saved at a time"
    cut = shipped_at(workload(), clean, Checkpointing("shipped", 4), 8, last=9)
    assert (cut[:10] == ages[:10]).all()
    assert (cut[10:] == 0).all(), "no further than asked"


def run(folder, seed, trials=6):
    """One results file of a small regression."""
    pytest.importorskip("torch")
    prepared = prepare(regression(), replace(QUICK, seed=seed))
    path = folder / f"seed-{seed}" / "mlr-small.jsonl"
    results.resume(path, settings_record(regression(), prepared))
    list(results.missing(path, "control", 1, lambda number: controls(prepared, number)))
    list(results.missing(path, "trial", trials, lambda number: trial(prepared, number)))
    return path


def test_two_seeds_share_no_run_and_are_pooled(tmp_path):
    paths = [run(tmp_path, seed) for seed in (1, 2)]
    one, two = ([r for r in results.read(p) if r["kind"] == "trial"] for p in paths)
    assert {r["stream"] for r in one}.isdisjoint(r["stream"] for r in two)
    assert [r["T"] for r in one] != [r["T"] for r in two]
    assert all("partial/shipped-8/50" in r["arms"] for r in one)
    assert all(r["ok"] for p in paths for r in results.read(p) if r["kind"] == "control")
    (paths[0].parent / "summary.jsonl").write_text('{"arm": "full/full"}\n')  # as the run left it
    # trials of the GPT have other arms, and a table of their own
    results.append(paths[0].parent / "gpt-stale-tuned.jsonl", {"kind": "settings", "label": "x"})
    results.append(paths[0].parent / "gpt-stale-tuned.jsonl", {"kind": "trial", "arms": {}})
    write_pooled([p.parent for p in paths], tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "seeds.jsonl").read_text().splitlines()]
    of = {(line["seed"], line["arm"]): line for line in lines}
    key = "partial/shipped-8/50"
    assert of["all", key]["trials"] == 12
    by_hand = np.mean([r["arms"][key][0] for r in [*one, *two]])
    assert of["all", key]["cost"] == pytest.approx(by_hand, abs=1e-3)
    assert (tmp_path / "seeds.md").read_text().count("mlr-") == 3
    with pytest.raises(UsageError, match="seed 1 is there twice"):
        write_pooled([paths[0].parent, paths[0].parent], tmp_path)
    with pytest.raises(UsageError, match="no results"):
        write_pooled([tmp_path / "empty"], tmp_path)
