"""What a restore says of itself: share, staleness, ‖δ‖ measured and estimated, one sentence."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.checkpoint import (  # noqa: E402
    Budget,
    Perturbation,
    RunningCheckpoint,
    TensorState,
    TrainingState,
    restore,
    verify,
)
from ettr.checkpoint.restore_report import distance  # noqa: E402
from ettr.checkpoint.slots import record_selection  # noqa: E402
from ettr.checkpoint.tensors.shards import TensorPlace  # noqa: E402
from ettr.recovery import RecoveryPolicy  # noqa: E402


def walk(root: Path, table: torch.Tensor, steps: int, policy: str, **options) -> RunningCheckpoint:
    """Every element of row i moves by i + 1 a step, in a straight line."""
    rc = RunningCheckpoint(root, {"w": table}, policy=policy, rows={"w": 1}, **options)
    rc.save_all(0)
    for step in range(1, steps + 1):
        table += torch.arange(1.0, len(table) + 1)[:, None]
        rc.step(step)
        rc.wait()
    return rc


@pytest.mark.parametrize("policy", ["priority", "round-robin"])
def test_movement_in_a_straight_line_is_estimated_exactly(tmp_path: Path, policy: str) -> None:
    table = torch.zeros(16, 9)
    walk(tmp_path, table, 40, policy, budget=Budget(fraction=1 / 8)).close()
    for _ in range(5):
        table += torch.arange(1.0, 17)[:, None]
    lost = {"w": table.clone()}
    drill = restore(tmp_path, {"w": table}, reached_step=45, drill=True)
    by_hand = float((table - lost["w"]).double().norm())
    assert drill.perturbation == Perturbation(
        pytest.approx(by_hand), pytest.approx(float(table.double().norm())), True, 0
    )
    estimated = restore(tmp_path, {"w": table}, reached_step=45)
    assert estimated.delta_norm == pytest.approx(by_hand, rel=1e-5)
    assert (estimated.perturbation.exact, estimated.perturbation.unmeasured) == (False, 0)
    assert estimated.mean_step < 45 - 5
    assert restore(tmp_path, {"w": table}).perturbation is None


def test_what_never_moved_or_was_never_measured(tmp_path: Path) -> None:
    table = torch.ones(8, 4)
    with RunningCheckpoint(tmp_path / "once", {"w": table}, rows={"w": 2}) as rc:
        rc.save_all(3)
    report = restore(tmp_path / "once", {"w": table}, reached_step=9)
    assert (report.perturbation.unmeasured, report.perturbation.blocks) == (4, 4)
    assert "4 of 4 blocks unmeasured" in str(report)
    assert restore(tmp_path / "once", {"w": table}, reached_step=3).perturbation.unmeasured == 0
    with RunningCheckpoint(tmp_path / "twice", {"w": table}, policy="full") as rc:
        for step in (1, 2):
            rc.step(step)
            rc.wait()
    still = restore(tmp_path / "twice", {"w": table}, reached_step=9).perturbation
    assert (still.delta_norm, still.unmeasured) == (0.0, 0)


def test_rows_that_no_one_touches_count_as_still(tmp_path: Path) -> None:
    """Two of eight rows are touched in turn; the others are known not to move."""
    table = torch.zeros(8, 400)
    with RunningCheckpoint(
        tmp_path, {"w": table}, policy="touched", rows={"w": 1}, budget=Budget(fraction=1.0)
    ) as rc:
        rc.save_all(0)
        for step in range(1, 21):
            table[step % 2] += 1.0
            rc.touch("w", [step % 2])
            rc.step(step)
            rc.wait()
    for step in (21, 22):
        table[step % 2] += 1.0
    report = restore(tmp_path, {"w": table.clone()}, reached_step=22)
    assert report.perturbation.unmeasured == 0
    truth = math.sqrt(2 * 400)
    assert 0.5 * truth < report.perturbation.walk_norm < 3 * truth
    assert 0.5 * truth < report.delta_norm < 6 * truth


def test_of_a_shard_only_what_it_covers(tmp_path: Path) -> None:
    """Saved by one rank, restored into half the rows: half of each block that is cut in two."""
    table = torch.zeros(12, 4)
    with RunningCheckpoint(tmp_path, {"w": table}, policy="full", rows={"w": 12}) as rc:
        for step in (1, 2):
            table += 1.0
            rc.step(step)
            rc.wait()
    whole = restore(tmp_path, {"w": table}, reached_step=5)
    assert whole.delta_norm == pytest.approx(3 * math.sqrt(48))

    class HalfState(TensorState):
        def shards(self):
            (shard,) = super().shards()
            half = TensorPlace({"w": shard.tensor[6:]}, "w")
            return [replace(shard, offsets=(6, 0), sizes=(6, 4), place=half)]

    half = restore(tmp_path, HalfState({"w": table}), reached_step=5)
    assert half.delta_norm == pytest.approx(3 * math.sqrt(24))
    assert half.restored_fraction == 0.5


def trained(policy: str, root: Path, seed: int):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.BatchNorm1d(64), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(seed)
    teacher = torch.randn(16, 4, generator=gen)

    def advance() -> None:
        x = torch.randn(64, 16, generator=gen)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), (x @ teacher).argmax(1)).backward()
        optimizer.step()

    advance()
    state = TrainingState(model, optimizer)
    with RunningCheckpoint(root, state, policy=policy, block_bytes=2048) as rc:
        rc.save_all(0)
        for step in range(1, 41):
            advance()
            rc.step(step)
            rc.wait()
    for _ in range(5):
        advance()
    return state


@pytest.mark.parametrize("policy", ["priority", "round-robin"])
def test_the_estimate_is_near_the_truth_on_a_network(tmp_path: Path, policy: str) -> None:
    ratios = []
    for seed in range(2):
        state = trained(policy, tmp_path / str(seed), seed)
        truth = restore(tmp_path / str(seed), state, reached_step=45, drill=True)
        guess = restore(tmp_path / str(seed), state, reached_step=45)
        assert truth.perturbation.exact
        ratios.append(guess.delta_norm / truth.delta_norm)
    assert all(0.5 < ratio < 2.5 for ratio in ratios), ratios


def test_the_sentence(tmp_path: Path) -> None:
    table = torch.full((16, 9), 100.0)
    with walk(tmp_path, table, 12, "round-robin", budget=Budget(fraction=1 / 8)) as rc:
        slot = rc._session.writer.slot
        newest_of_first_row = slot.geometry.offset(0, slot._newest_place[0])
    report = restore(tmp_path, {"w": table}, reached_step=14)
    head = "restored 100 % of the parameters (16 of 16 blocks), of step 5 to 12, "
    assert str(report).startswith(head + "staleness 2 to 9 steps, ‖δ‖/‖x‖ = ")
    assert "% of it (estimated from the last measured movement, in a straight line; " in str(report)
    age = 14 - report.mean_step
    policy = RecoveryPolicy(iteration_cost_share=0.3)
    assert f"predicted cost {0.3 * age:.1f} iterations, in 0." in report.summary(policy)
    path = next((tmp_path / "slot-0").glob("blocks-*"))
    raw = bytearray(path.read_bytes())
    raw[newest_of_first_row + 70] ^= 1
    path.write_bytes(raw)
    report = restore(tmp_path, {"w": table}, reached_step=14)
    assert ", 1 damaged places, older copies taken, in 0." in str(report)


def test_reading_ahead_keeps_the_order_and_refuses_what_is_damaged(
    tmp_path: Path, monkeypatch
) -> None:
    """Large and small payloads mixed, several damaged, with and without a second thread."""
    gen = torch.Generator().manual_seed(1)
    lengths = [200_000, 3, 90_000, 300_000, 5, 150_000, 70_000, 70_001]
    state = {f"t{i}": torch.randn(n, generator=gen) for i, n in enumerate(lengths)}
    with RunningCheckpoint(tmp_path, state, policy="full", block_bytes=1 << 19) as rc:
        for step in (1, 2):
            for tensor in state.values():
                tensor.add_(1)
            rc.step(step)
            rc.wait()
        slot = rc._session.writer.slot
        places = [slot.geometry.offset(b, 1) for b in (0, 2, 5, 6)]
        damaged = [slot.superblock.layout.key(b) for b in (0, 2, 5, 6)]
    path = next((tmp_path / "slot-0").glob("blocks-*"))
    raw = bytearray(path.read_bytes())
    for at in places:
        raw[at + 70] ^= 8
    path.write_bytes(raw)
    expected = {name: tensor.clone() for name, tensor in state.items()}
    for fqn, offsets, sizes in damaged:
        expected[fqn][offsets[0] : offsets[0] + sizes[0]] -= 1
    for cores in (1, 2):
        monkeypatch.setattr(record_selection, "_cores", lambda cores=cores: cores)
        into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        report = restore(tmp_path, into)
        assert [(b.fqn, b.offsets, b.sizes) for b in report.fell_back] == damaged
        for name, tensor in into.items():
            # one step back, to the bit: 1 was added to what was stored
            assert torch.allclose(tensor, expected[name], atol=1e-6)
    assert len(verify(tmp_path)) == 4


def test_distances_take_little_memory() -> None:
    """A double of a whole tensor, or of all of them at once, is what a full node does not have."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        n_bytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            if isinstance(found, torch.Tensor):
                memory = found.untyped_storage()
                if memory.data_ptr() not in given:
                    self.n_bytes = max(self.n_bytes, memory.nbytes())
            return found

    gen = torch.Generator().manual_seed(2)
    a, b = (torch.randn(1500, 1000, generator=gen) for _ in range(2))
    given = {tensor.untyped_storage().data_ptr() for tensor in (a, b)}
    expected = float((a.double() - b.double()).norm())
    with Largest() as mode:
        assert distance([(a, b)] * 3) == pytest.approx(expected * math.sqrt(3), rel=1e-12)
    assert mode.n_bytes <= 4 << 20
