"""The running checkpoint in a training loop: what is saved, what comes back, what it never does.

Over 400 lines: each test is one promise of one class, and they share its small models.
"""

import threading
from pathlib import Path

import numpy as np
import pytest

from ettr.checkpoint import CheckpointError, FencedError
from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.checkpoint import (  # noqa: E402
    Budget,
    RunningCheckpoint,
    TrainingState,
    fence,
    prometheus_text,
    restore,
    verify,
)
from ettr.checkpoint.selection import BlockView, choose  # noqa: E402
from ettr.checkpoint.slots.durable_io import OsDisk  # noqa: E402
from held_value import HeldValue  # noqa: E402


def make(seed: int = 0, optimizer=torch.optim.AdamW, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 8))
    return model, optimizer(model.parameters(), lr=1e-2, **options)


def train(model, optimizer, steps: int = 1, seed: int = 0) -> None:
    gen = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16, generator=gen)).square().mean().backward()
        optimizer.step()


def snapshot(model, optimizer) -> dict[str, torch.Tensor]:
    found = {name: t.detach().clone() for name, t in model.state_dict().items()}
    names = {id(p): name for name, p in model.named_parameters()}
    for p, moments in optimizer.state.items():
        for key, value in moments.items():
            found[f"{names[id(p)]}/{key}"] = torch.as_tensor(value).clone()
    return found


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.AdamW, {"amsgrad": True, "foreach": False}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adafactor, {}),
        (torch.optim.NAdam, {}),
        (torch.optim.SGD, {}),
    ],
)
def test_a_full_save_comes_back_bit_for_bit(tmp_path: Path, optimizer, options) -> None:
    model, opt = make(0, optimizer, **options)
    train(model, opt, 3)
    position = HeldValue([1, 2])
    parts = {"model": model, "optimizer": opt, "loader": position}
    with RunningCheckpoint(tmp_path, parts, block_bytes=512) as rc:
        rc.save_all(3)
    other, other_opt = make(1, optimizer, **options)
    position.value = None
    report = restore(tmp_path, {"model": other, "optimizer": other_opt, "loader": position}, slot=0)
    assert_same(snapshot(model, opt), snapshot(other, other_opt))
    assert (report.oldest_step, report.newest_step, report.consistent) == (3, 3, True)
    assert (report.objects, report.objects_step, position.value) == (("loader",), 3, [1, 2])
    assert report.fresh_moments == ()
    train(model, opt, 2, seed=5)
    train(other, other_opt, 2, seed=5)
    assert_same(snapshot(model, opt), snapshot(other, other_opt))


def test_parameters_and_their_moments_are_of_one_step(tmp_path: Path) -> None:
    model, opt = make()
    history = {}
    train(model, opt)
    with RunningCheckpoint(
        tmp_path,
        TrainingState(model, opt),
        policy="round-robin",
        block_bytes=600,
        budget=Budget(fraction=0.2),
    ) as rc:
        for step in range(1, 12):
            history[step] = snapshot(model, opt)
            report = rc.step(step)
            rc.wait()
            assert report.staged_bytes <= 0.2 * rc.total_bytes + 4200
            train(model, opt, seed=step)
        ages = rc.ages()
    assert len({age.step for age in ages}) > 3
    other, other_opt = make(1)
    report = restore(tmp_path, TrainingState(other, other_opt))
    assert not report.consistent
    now = snapshot(other, other_opt)
    for age in ages:
        then = history[age.step]
        box = tuple(slice(o, o + s) for o, s in zip(age.offsets, age.sizes, strict=True))
        for part in ("", "/exp_avg", "/exp_avg_sq"):
            if age.fqn + part in then:
                assert torch.equal(now[age.fqn + part][box], then[age.fqn + part][box])


def test_a_save_before_the_first_update_has_no_moments(tmp_path: Path) -> None:
    model, opt = make()
    with RunningCheckpoint(tmp_path, TrainingState(model, opt)) as rc:
        rc.save_all(0)
    other, other_opt = make(1)
    train(other, other_opt, 3)
    report = restore(tmp_path, TrainingState(other, other_opt))
    assert set(report.fresh_moments) == {name for name, _ in model.named_parameters()}
    assert len(other_opt.state) == len(report.fresh_moments)
    for moments in other_opt.state.values():
        assert float(moments["step"]) == 0
        assert not moments["exp_avg"].any()


def test_moments_that_appear_join_their_blocks(tmp_path: Path) -> None:
    model, opt = make()
    with RunningCheckpoint(tmp_path, TrainingState(model, opt), policy="full") as rc:
        rc.step(0)
        rc.wait()
        train(model, opt)
        rc.step(1)
        rc.wait()
        assert rc.generation == 2
    other, other_opt = make(1)
    assert restore(tmp_path, TrainingState(other, other_opt)).fresh_moments == ()
    assert_same(snapshot(model, opt), snapshot(other, other_opt))


def test_priority_saves_what_moved_most(tmp_path: Path) -> None:
    table = torch.zeros(64, 8)
    with RunningCheckpoint(
        tmp_path,
        {"table": table},
        policy="priority",
        rows={"table": 4},
        budget=Budget(fraction=1 / 16),
    ) as rc:
        rc.save_all(0)
        table[20:24] += 1.0
        table[40:44] += 3.0
        table[60:64] += 2.0
        rc._session.writer.score_soon(0)
        rc.wait()
        for step in (1, 2, 3, 4):
            rc.step(step)
            rc.wait()
        saved = {age.offsets[0]: age.step for age in rc.ages() if age.step}
    assert saved == {40: 1, 60: 2, 20: 3}  # and at step 4 nothing is left to save


def test_touched_rows_only(tmp_path: Path) -> None:
    table = nn.Embedding(100, 4)
    with RunningCheckpoint(
        tmp_path, table, policy="touched", rows={"weight": 10}, budget=Budget(fraction=1.0)
    ) as rc:
        rc.save_all(0)
        rc.touch("weight", torch.tensor([[3, 5], [77, 3]]))
        assert rc.step(1).blocks == 2
        rc.wait()
        assert {age.offsets[0] for age in rc.ages() if age.step == 1} == {0, 70}
        assert rc.step(2).blocks == 0


def test_dirty_leaves_frozen_parameters_alone(tmp_path: Path) -> None:
    model, _ = make()
    model[0].requires_grad_(False)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    train(model, opt)
    with RunningCheckpoint(
        tmp_path, TrainingState(model, opt), policy="dirty", budget=Budget(fraction=1.0)
    ) as rc:
        for step in (1, 2, 3):
            rc.step(step)
            rc.wait()
            train(model, opt)
        steps = {age.fqn: age.step for age in rc.ages()}
    assert (steps["0.weight"], steps["0.bias"], steps["2.weight"]) == (1, 1, 3)


def test_dirty_takes_what_a_fused_optimizer_trains_for_changed(tmp_path: Path) -> None:
    """Torch's fused kernels move no version counter of a plain tensor."""
    model, _ = make()
    model[0].requires_grad_(False)
    for policy_of in (torch.optim.AdamW, torch.optim.SGD):
        opt = policy_of(model.parameters(), lr=1e-2, fused=True)
        train(model, opt)
        with RunningCheckpoint(
            tmp_path / policy_of.__name__,
            TrainingState(model, opt),
            policy="dirty",
            budget=Budget(fraction=1.0),
        ) as rc:
            for step in (1, 2, 3):
                rc.step(step)
                rc.wait()
                train(model, opt)
            steps = {age.fqn: age.step for age in rc.ages()}
        assert (steps["0.weight"], steps["2.weight"]) == (1, 3)


def test_what_a_failed_round_held_is_saved_by_the_next(tmp_path: Path) -> None:
    table = nn.Embedding(40, 4)
    disk = SlowDisk()
    disk.go.set()
    for policy in ("touched", "dirty"):
        with RunningCheckpoint(
            tmp_path / policy,
            table,
            policy=policy,
            rows={"weight": 10},
            budget=Budget(fraction=1.0),
            disk=disk,
        ) as rc:
            rc.save_all(0)
            rc.touch("weight", [11])
            with torch.no_grad():
                table.weight[11] += 1
            disk.fail = OSError(28, "No space left on device")
            rc.step(1)
            with pytest.raises(CheckpointError, match="No space"):
                rc.wait()
            disk.fail = None
            rc.step(2)
            rc.wait()
            steps = {age.offsets[0]: age.step for age in rc.ages()}
        assert steps[10] == 2


def test_a_zombie_whose_moments_appear_does_not_take_the_slot_back(tmp_path: Path) -> None:
    model, opt = make()
    zombie = RunningCheckpoint(tmp_path, TrainingState(model, opt))
    fence(tmp_path, 0)
    train(model, opt)
    with pytest.raises(FencedError, match="must end"):
        zombie.step(1)


class SlowDisk(OsDisk):
    def __init__(self) -> None:
        self.go = threading.Event()
        self.fail: OSError | None = None

    def fdatasync(self, fd: int) -> None:
        self.go.wait(300)
        if self.fail:
            raise self.fail
        super().fdatasync(fd)


def test_several_saves_are_under_way_before_one_is_skipped(tmp_path: Path) -> None:
    disk = SlowDisk()
    state = {"w": torch.zeros(8)}
    with RunningCheckpoint(tmp_path, state, policy="full", under_way=3, disk=disk) as rc:
        skipped = []
        for step in range(1, 6):
            state["w"] += 1.0
            skipped.append(rc.step(step).skipped)
        assert skipped == [False, False, False, True, True]
        disk.go.set()
        rc.wait()
    restored = {"w": torch.zeros(8)}
    assert restore(tmp_path, restored, slot=0, mode="consistent").newest_step == 3
    assert torch.equal(restored["w"], torch.full((8,), 3.0))  # not what the steps after it made


def test_several_saves_under_way_need_a_policy_that_chooses_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="under_way: more than 1 needs policy='full'"):
        RunningCheckpoint(tmp_path, {"w": torch.zeros(8)}, under_way=2)


def test_a_busy_writer_skips_and_never_blocks(tmp_path: Path) -> None:
    model, opt = make()
    train(model, opt)
    disk = SlowDisk()
    with RunningCheckpoint(tmp_path, TrainingState(model, opt), policy="full", disk=disk) as rc:
        assert not rc.step(1).skipped
        reports = [rc.step(step) for step in (2, 3, 4)]
        assert all(report.skipped and report.staged_bytes == 0 for report in reports)
        assert rc.skipped_rounds == 3
        with pytest.raises(CheckpointError, match=r"still busy after 0\.01 s"):
            rc.wait(0.01)
        disk.go.set()
        rc.wait()
        assert rc.step(5).durable_step == 1


def test_a_failed_round_is_reported_and_training_goes_on(tmp_path: Path) -> None:
    model, opt = make()
    train(model, opt)
    disk = SlowDisk()
    disk.go.set()
    with RunningCheckpoint(tmp_path, TrainingState(model, opt), policy="full", disk=disk) as rc:
        rc.step(1)
        rc.wait()
        disk.fail = OSError(28, "No space left on device")
        rc.step(2)
        with pytest.raises(CheckpointError, match="older copies remain: No space left on device"):
            rc.wait()
        assert "No space left" in (rc.step(3).error or "")
        with pytest.raises(CheckpointError, match="No space"):
            rc.wait()
        assert {age.step for age in rc.ages()} == {1}
        disk.fail = None
        rc.step(4)
        rc.wait()
        assert {age.step for age in rc.ages()} == {4}


def test_a_replaced_process_is_shut_out(tmp_path: Path) -> None:
    model, opt = make()
    train(model, opt)
    zombie = RunningCheckpoint(tmp_path, TrainingState(model, opt), slot=2, policy="full")
    zombie.step(1)
    zombie.wait()
    successor = RunningCheckpoint(
        tmp_path, TrainingState(model, opt), slot=2, generation=fence(tmp_path, 2)
    )
    zombie.step(2)
    with pytest.raises(FencedError, match="generation 2 owns this slot"):
        zombie.wait()
    with pytest.raises(FencedError, match="must end"):
        zombie.step(3)
    zombie.close()
    successor.save_all(7)
    successor.close()
    assert [p.name for p in (tmp_path / "slot-2").glob("blocks-*")] == ["blocks-00000002.bin"]


def test_a_flipped_bit_falls_back_to_that_blocks_older_copy(tmp_path: Path) -> None:
    model, opt = make()
    train(model, opt)
    history = {}
    with RunningCheckpoint(
        tmp_path, TrainingState(model, opt), policy="full", block_bytes=1024
    ) as rc:
        for step in (1, 2):
            rc.step(step)
            rc.wait()
            history[step] = snapshot(model, opt)
            train(model, opt)
        writer = rc._session.writer.slot
        at = writer.geometry.offset(0, 1) + 64 + 5
    path = next((tmp_path / "slot-0").glob("blocks-*"))
    raw = bytearray(path.read_bytes())
    raw[at] ^= 4
    path.write_bytes(raw)
    (bad,) = verify(tmp_path)
    assert (bad.fqn, bad.place, bad.lost) == ("0.weight", "B", False)
    assert bad.reason == "payload of step 2: xxh3 differs"
    other, other_opt = make(1)
    report = restore(tmp_path, TrainingState(other, other_opt))
    assert (report.oldest_step, report.newest_step, len(report.fell_back)) == (1, 2, 1)
    report = restore(tmp_path, TrainingState(other, other_opt), mode="consistent")
    assert report.consistent
    assert report.newest_step == 1
    assert_same(snapshot(other, other_opt), history[1])


def test_what_is_not_covered_is_refused(tmp_path: Path) -> None:
    with RunningCheckpoint(tmp_path, {"a": torch.ones(4, 4)}) as rc:
        rc.save_all(1)
    target = {"a": torch.zeros(4, 4), "b": torch.zeros(3)}
    with pytest.raises(CheckpointError, match=r"1 tensors were not saved .* \(b\)"):
        restore(tmp_path, target)
    assert restore(tmp_path, target, allow_missing=True).missing == ("b",)
    with pytest.raises(CheckpointError, match="no slot '5'; there are: 0"):
        restore(tmp_path, target, slot=5)
    with pytest.raises(UsageError, match="mode: 'best' was given; give one of newest, consistent"):
        restore(tmp_path, target, mode="best")


def test_options_are_checked_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"policy: 'best' was given; .*; every_steps: 0 was given"):
        RunningCheckpoint(tmp_path, {"a": torch.ones(1)}, policy="best", every_steps=0)
    with pytest.raises(UsageError, match="give fraction, bytes_per_s or step_time_share"):
        Budget()
    with pytest.raises(UsageError, match="fraction: 2 was given; give a number above 0, 1 at most"):
        Budget(fraction=2)
    with pytest.raises(UsageError, match="newer: 'ask' was given; give one of stop, keep, overw"):
        RunningCheckpoint(tmp_path, {"a": torch.ones(1)}, newer="ask")


def test_replicas_save_each_block_once(tmp_path: Path) -> None:
    model, opt = make()
    train(model, opt)
    seen = []
    for rank in range(3):
        state = TrainingState(model, opt, replica=(rank, 3))
        with RunningCheckpoint(tmp_path, state, slot=rank, block_bytes=512) as rc:
            rc.save_all(1)
            seen += [(age.fqn, age.offsets) for age in rc.ages()]
    assert len(seen) == len(set(seen))
    other, other_opt = make(1)
    restore(tmp_path, TrainingState(other, other_opt))
    assert_same(snapshot(model, opt), snapshot(other, other_opt))


@pytest.mark.parametrize("policy", ["round-robin", "random", "priority"])
def test_the_mean_of_the_bytes_is_the_budget(tmp_path: Path, policy: str) -> None:
    """Blocks of very different sizes; every byte counts, those of the record of movement too."""
    gen = torch.Generator().manual_seed(1)
    state = {f"t{i}": torch.randn(17 * (i + 1) ** 2, generator=gen) for i in range(12)}
    total = 0
    with RunningCheckpoint(tmp_path, state, policy=policy, block_bytes=4096, seed=3) as rc:
        rc.save_all(0)
        for step in range(1, 81):
            for tensor in state.values():
                tensor.add_(torch.randn(tensor.shape, generator=gen))
            total += rc.step(step).staged_bytes
            rc.wait()
        budget_bytes = 80 * rc._session.data_bytes / 8
    assert total == pytest.approx(budget_bytes, rel=0.02)


def test_budgets() -> None:
    assert Budget(fraction=1 / 8).round_bytes(8000, 0.0, 1e9, 0) == 1000
    assert Budget(bytes_per_s=100.0).round_bytes(8000, 3.0, 1e9, 1) == 300
    assert Budget(step_time_share=0.01).round_bytes(8000, 0.5, 1e5, 5) == 500
    assert Budget(fraction=0.5, bytes_per_s=100.0).round_bytes(8000, 3.0, 1e9, 1) == 300


def test_selection_by_hand() -> None:
    view = BlockView(
        n_bytes=np.array([10, 10, 10, 40]),
        saved_round=np.array([3, 1, 2, 4]),
        distance2=np.array([1.0, 0.0, 2.0, 3.9]),
        touches=np.array([0, 5, 0, 8]),
        changed=np.array([True, False, True, True]),
    )
    rng = np.random.default_rng(0)
    assert choose("round-robin", view, 30, rng).tolist() == [1, 2, 0]
    assert choose("priority", view, 1000, rng).tolist() == [2, 0, 3]
    assert choose("touched", view, 20, rng).tolist() == [1]
    assert choose("dirty", view, 25, rng).tolist() == [2, 0]
    assert choose("full", view, 1, rng).tolist() == [0, 1, 2, 3]
    assert choose("priority", view, 1, rng).tolist() == [2]
    assert sorted(choose("random", view, 70, rng).tolist()) == [0, 1, 2, 3]
    view.saved_round[3] = -1
    assert choose("priority", view, 50, rng).tolist() == [3, 2]


def test_ages_for_prometheus(tmp_path: Path) -> None:
    with RunningCheckpoint(tmp_path, {"a": torch.ones(4)}, slot=3) as rc:
        text = prometheus_text(rc.ages(), step=9)
        assert 'ettr_checkpoint_blocks_unsaved{slot="3"} 1' in text
        rc.save_all(5)
        text = prometheus_text(rc.ages(), step=9, bad=verify(tmp_path))
    assert 'ettr_checkpoint_block_age_max_steps{slot="3"} 4' in text
    assert 'ettr_checkpoint_records_damaged{slot="3"} 0' in text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("policy", ["full", "priority"])
def test_on_a_cuda_device(tmp_path: Path, policy: str) -> None:
    model, opt = make()
    model.cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        model(torch.randn(8, 16, device="cuda")).square().mean().backward()
        opt.step()
    with RunningCheckpoint(tmp_path, TrainingState(model, opt), policy=policy) as rc:
        rc.save_all(1)
        rc.step(2)
        rc.wait()
    other, _ = make(1)
    other.cuda()
    other_opt = torch.optim.AdamW(other.parameters(), lr=1e-2)
    restore(tmp_path, TrainingState(other, other_opt))
    assert_same(snapshot(model, opt), snapshot(other, other_opt))
