"""A folder that was begun with one world size and goes on with another: whose blocks count."""

import json
import zlib
from pathlib import Path

import pytest

from ettr.checkpoint import CheckpointError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ettr.checkpoint import (  # noqa: E402
    Budget,
    RandomStates,
    RestoreReport,
    RunningCheckpoint,
    TrainingState,
    block_ages,
    fence,
    restore,
    survey,
)
from ettr.checkpoint.export import assemble  # noqa: E402
from ettr.checkpoint.slots.durable_io import slot_files, slot_folder  # noqa: E402
from ettr.checkpoint.slots.format import FOOTER, HEADER_BYTES, SUPER  # noqa: E402
from ettr.checkpoint.slots.reader import open_slot  # noqa: E402

NAMES = [f"t{i}" for i in range(8)]


def tensors(value: float) -> nn.Module:
    """Eight small tensors and one of 24 rows, all of one value."""
    model = nn.Module()
    for name in NAMES:
        model.register_parameter(name, nn.Parameter(torch.full((4,), value)))
    model.register_parameter("table", nn.Parameter(torch.full((24, 2), value)))
    return model


def world(root: Path, n: int, *, rows: int = 4, **options) -> list[RunningCheckpoint]:
    """Open one slot a rank; the blocks are dealt out among them."""
    return [
        RunningCheckpoint(
            root,
            TrainingState(tensors(0.0), replica=(rank, n)),
            slot=rank,
            rows={"table": rows},
            newer="overwrite",
            policy=options.get("policy", "full"),
            budget=options.get("budget"),
        )
        for rank in range(n)
    ]


def save(
    ranks: list[RunningCheckpoint], step: int, value: float | None = None, *, wholly: bool = False
) -> None:
    for rank in ranks:
        with torch.no_grad():
            for parameter in rank._state.models[0][1].parameters():  # type: ignore[attr-defined]
                parameter.fill_(float(step) if value is None else value)
        if wholly:
            rank.save_all(step)
        else:
            rank.step(step)
            rank.wait()


def end(ranks: list[RunningCheckpoint]) -> None:
    for rank in ranks:
        rank.close()


def restored(root: Path, **options) -> tuple[set[float], RestoreReport]:
    model = tensors(-1.0)
    report = restore(root, model, **options)
    return {float(v) for p in model.parameters() for v in p.detach().reshape(-1)}, report


def left_by_four(root: Path) -> None:
    ranks = world(root, 4)
    for step in (0, 10, 20):
        save(ranks, step, wholly=True)
    end(ranks)


@pytest.mark.parametrize("rows", [4, 6])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("mode", ["newest", "consistent"])
def test_a_smaller_world_that_went_back_is_not_mixed_with_the_larger(
    tmp_path: Path, n: int, mode: str, rows: int
) -> None:
    """Four ranks came to 20, fewer went back to 10 and came to 12; also with other blocks."""
    left_by_four(tmp_path)
    ranks = world(tmp_path, n, rows=rows)
    save(ranks, 10, 110.0, wholly=True)
    save(ranks, 12, 112.0)
    end(ranks)
    values, report = restored(tmp_path, mode=mode)
    assert values == {112.0}
    assert (report.oldest_step, report.newest_step) == (12, 12)


@pytest.mark.parametrize("rows", [4, 6])
def test_the_same_step_of_two_branches_is_not_one_step(tmp_path: Path, rows: int) -> None:
    """The run of two ranks comes again to the step at which the run of four had ended."""
    left_by_four(tmp_path)
    ranks = world(tmp_path, 2, rows=rows)
    save(ranks, 10, 110.0, wholly=True)
    save(ranks, 20, 120.0)
    end(ranks)
    for mode in ("newest", "consistent"):
        assert restored(tmp_path, mode=mode)[0] == {120.0}
    assembled = assemble(tmp_path)
    assert (assembled.label, assembled.oldest_step, assembled.newest_step) == ("consistent", 20, 20)
    assert {float(v) for t in assembled.tensors.values() for v in t.reshape(-1)} == {120.0}


def test_blocks_of_several_ages_in_a_world_that_went_back(tmp_path: Path) -> None:
    """Every block is of the run that goes on, whichever of its steps it is of."""
    left_by_four(tmp_path)
    ranks = world(tmp_path, 2, policy="round-robin", budget=Budget(fraction=0.3))
    save(ranks, 10, 110.0, wholly=True)
    save(ranks, 11, 111.0)
    save(ranks, 12, 112.0)
    end(ranks)
    values, report = restored(tmp_path)
    assert values == {110.0, 111.0, 112.0}
    assert (report.oldest_step, report.newest_step) == (10, 12)


def test_a_smaller_world_that_did_not_go_back(tmp_path: Path) -> None:
    left_by_four(tmp_path)
    ranks = world(tmp_path, 2)
    save(ranks, 20, 120.0, wholly=True)
    save(ranks, 21, 121.0)
    end(ranks)
    for mode in ("newest", "consistent"):
        values, report = restored(tmp_path, mode=mode)
        assert (values, report.newest_step) == ({121.0}, 21)


def test_a_larger_world_after_a_smaller(tmp_path: Path) -> None:
    """4, 2, 3 ranks, each going back: the last counts, though slot 3 is of the first."""
    left_by_four(tmp_path)
    for n, value in ((2, 110.0), (3, 210.0)):
        ranks = world(tmp_path, n)
        save(ranks, 10, value, wholly=True)
        save(ranks, 11, value + 1)
        end(ranks)
    assert restored(tmp_path)[0] == {211.0}


def test_until_the_new_world_has_saved_all_the_old_one_can_be_restored(tmp_path: Path) -> None:
    """Opened and killed before the first round, nothing is lost."""
    left_by_four(tmp_path)
    end(world(tmp_path, 2))
    for mode in ("newest", "consistent"):
        assert restored(tmp_path, mode=mode)[0] == {20.0}


def test_a_zombie_of_the_old_world_does_not_win(tmp_path: Path) -> None:
    """It wakes up in a slot that nobody has opened since, and saves a later step."""
    old = world(tmp_path, 4)
    save(old, 20, wholly=True)
    ranks = world(tmp_path, 2)
    save(ranks, 10, 110.0, wholly=True)
    save(old[2:], 21)
    assert restored(tmp_path)[0] == {110.0}
    end(ranks)
    end(old)


def test_a_shrunken_world_with_a_damaged_block_fails_and_does_not_mix(tmp_path: Path) -> None:
    """The old slot 2 still holds the block, of the branch that was left."""
    left_by_four(tmp_path)
    ranks = world(tmp_path, 2)
    save(ranks, 10, 110.0, wholly=True)
    end(ranks)
    with open_slot(tmp_path, "0") as slot:
        record = slot.records["t2", (0,), (4,)][0]
        offset = record.file.places.offset(record.block, record.place) + HEADER_BYTES
        path = record.file.path
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 8)
    with pytest.raises(CheckpointError, match=r"1 tensors are not covered by intact blocks \(t2\)"):
        restored(tmp_path)


class TestSlotsOfOneWorld:
    """What the ranks of one job share is no sign of another world."""

    def test_of_whole_replicas_the_later_step_wins(self, tmp_path: Path) -> None:
        """Replica 0 was replaced at step 5 and has stood still since; replica 1 went on."""
        first = [RunningCheckpoint(tmp_path, tensors(0.0), slot=r, policy="full") for r in (0, 1)]
        save(first, 5, wholly=True)
        first[0].close()
        successor = RunningCheckpoint(tmp_path, tensors(0.0), slot=0, policy="full")
        save([successor], 6, wholly=True)
        save([first[1]], 9)
        assert restored(tmp_path)[0] == {9.0}
        successor.close()
        first[1].close()

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_shards_with_a_buffer_that_all_have(
        self, tmp_path: Path, order: tuple[int, int]
    ) -> None:
        """Whoever was opened last, each shard counts, and of the buffer the later copy."""
        shards = [
            {"own0": torch.full((4,), 1.0), "both": torch.full((2,), 1.0)},
            {"own1": torch.full((4,), 2.0), "both": torch.full((2,), 2.0)},
        ]
        opened = {r: RunningCheckpoint(tmp_path, shards[r], slot=r, policy="full") for r in order}
        opened[1].save_all(7)
        opened[0].save_all(8)
        found = {name: torch.zeros(4) for name in ("own0", "own1")} | {"both": torch.zeros(2)}
        restore(tmp_path, found)
        assert {name: float(t[0]) for name, t in found.items()} == {
            "own0": 1.0,
            "own1": 2.0,
            "both": 1.0,
        }
        end(list(opened.values()))

    def test_a_replaced_rank(self, tmp_path: Path) -> None:
        """Its slot is read while nobody owns it, and after the successor's first round."""
        ranks = world(tmp_path, 2)
        save(ranks, 5, wholly=True)
        ranks[0].close()
        generation = fence(tmp_path, 0)
        save([ranks[1]], 6)
        assert restored(tmp_path)[0] == {5.0, 6.0}
        state = TrainingState(tensors(0.0), replica=(0, 2))
        successor = RunningCheckpoint(
            tmp_path, state, slot=0, policy="full", generation=generation, rows={"table": 4}
        )
        assert restored(tmp_path)[0] == {5.0, 6.0}
        save([successor], 7)
        assert restored(tmp_path)[0] == {6.0, 7.0}
        successor.close()
        ranks[1].close()


def test_files_that_do_not_say_what_they_saw_are_read_as_before(tmp_path: Path) -> None:
    """Their superblocks do not name the other slots: the later step wins, nothing is refused."""
    left_by_four(tmp_path)
    ranks = world(tmp_path, 2)
    save(ranks, 30, 130.0, wholly=True)
    end(ranks)
    for folder in tmp_path.glob("slot-*"):
        for path in slot_files(folder).values():
            _forget(path)
    assert restored(tmp_path)[0] == {130.0}


def _forget(path: Path) -> None:
    """Rewrite a slot file as one that has no `seen`, of the same length."""
    raw = bytearray(path.read_bytes())
    head = SUPER.size
    fields = SUPER.unpack(raw[:head])
    text = bytes(raw[head : head + fields[6]])
    document = json.loads(text)
    del document["seen"]
    shorter = json.dumps(document, separators=(",", ":")).encode().ljust(len(text))
    whole = bytes(raw[:head]) + shorter
    whole += zlib.crc32(whole).to_bytes(4, "little")
    tail = FOOTER.unpack(raw[-FOOTER.size :])[0]
    for at in (0, tail):
        raw[at : at + len(whole)] = whole
    path.write_bytes(raw)


def test_a_slot_file_names_the_latest_files_of_the_other_slots(tmp_path: Path) -> None:
    """The latest file of every other slot; a fence without a file is nothing that was seen."""
    end(world(tmp_path, 2))
    fence(tmp_path, 1)
    slot_folder(tmp_path, "empty").mkdir()
    with RunningCheckpoint(tmp_path, tensors(0.0), slot="new"), open_slot(tmp_path, "new") as slot:
        assert slot.files[0].superblock.other_generations == {"0": 1, "1": 1}


def test_what_may_be_removed_is_named_and_does_not_age(tmp_path):
    from typer.testing import CliRunner

    from ettr.cli.main import build_app

    left_by_four(tmp_path)
    fewer = world(tmp_path, 2)
    found = survey(tmp_path)
    assert found.superseded_slots == ()  # nothing is given up before it is saved again
    assert {age.slot for age in found.ages} == {"0", "1", "2", "3"}
    save(fewer, 10, wholly=True)
    end(fewer)
    found = survey(tmp_path)
    assert found.superseded_slots == ("2", "3")
    assert {(age.slot, age.step) for age in found.ages} == {("0", 10), ("1", 10)}
    assert {(age.slot, age.step) for age in block_ages(tmp_path, slot="3")} == {("3", 20)}
    assert block_ages(tmp_path, slot="4") == []
    done = CliRunner().invoke(build_app("verify"), ["verify", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "slots of another number of ranks, not read any more: 2, 3\n" in done.output
    machine = CliRunner().invoke(build_app("verify"), ["verify", "--json", str(tmp_path)])
    assert json.loads(machine.output)["superseded_slots"] == ["2", "3"]


def test_random_states_of_another_number_of_ranks(tmp_path: Path) -> None:
    """Each rank takes its own; one that the job did not have keeps its own, and says so."""
    weight = torch.ones(4)

    def drawn(slot: int) -> float:
        with RunningCheckpoint(
            tmp_path, {"w": weight, "random": RandomStates()}, slot=slot, world=3, policy="full"
        ) as checkpoint:
            start = checkpoint.resume_or_begin()
        assert ("not restored: random" in str(start)) == (slot == 2)
        return torch.rand(1).item()

    expected = []
    for slot in range(2):
        torch.manual_seed(slot)
        with RunningCheckpoint(
            tmp_path, {"w": weight, "random": RandomStates()}, slot=slot, world=2
        ) as checkpoint:
            checkpoint.save_all(3)
        expected.append(torch.rand(1).item())
    torch.manual_seed(2)
    expected.append(torch.rand(1).item())
    torch.manual_seed(2)
    assert [drawn(2), drawn(0), drawn(1)] == [expected[2], expected[0], expected[1]]
