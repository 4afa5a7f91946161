"""What is no parameter: kept without pickle, checked, labelled with its step, never torn."""

import gzip
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ettr.checkpoint import CheckpointError
from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402

from ettr.checkpoint import (  # noqa: E402
    Budget,
    RunningCheckpoint,
    TrainingState,
    read_extra,
    restore,
    rng_state,
    set_rng_state,
    verify,
    write_extra,
)
from ettr.checkpoint.slots.durable_io import OsDisk  # noqa: E402
from ettr.checkpoint.tensors.extra_state import decode, encode  # noqa: E402

SAMPLES = Path(__file__).parent / "samples"
ROOM_BYTES = 1 << 16


def there_and_back(values, step: int = 7):
    return decode(encode(values, step, room_bytes=ROOM_BYTES) + bytes(100))


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text())
values = st.recursive(
    plain | st.binary(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.integers(-(2**40), 2**40))
def test_values_come_back_as_what_they_were(given_values, step: int) -> None:
    found = there_and_back(given_values, step)
    assert (found.values, found.step) == (given_values, step)


def test_tensors_and_arrays_come_back_bit_for_bit() -> None:
    tensors = {
        "bf16": torch.randn(3, 5).to(torch.bfloat16),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "none": torch.empty(0, 3),
        "odd": torch.arange(24).reshape(2, 3, 4).transpose(0, 2),
        "bits": torch.tensor([True, False]),
    }
    arrays = {"u32": np.arange(7, dtype=np.uint32), "c": np.ones((2, 2), np.complex64)}
    found = there_and_back({"t": tensors, "a": arrays, "n": np.int64(4), "c": Counter({2: 3})})
    for name, tensor in tensors.items():
        back = found.values["t"][name]
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.values["a"][name], array, strict=True)
    assert found.values["n"] == 4
    assert found.values["c"].most_common() == [(2, 3)]


@pytest.mark.parametrize("scheduler", ["MultiStepLR", "OneCycleLR", "CosineAnnealingWarmRestarts"])
def test_a_scheduler_goes_on_where_it_was(scheduler: str) -> None:
    options = {
        "MultiStepLR": {"milestones": [2, 5, 5, 9]},
        "OneCycleLR": {"max_lr": 0.3, "total_steps": 20},
        "CosineAnnealingWarmRestarts": {"T_0": 4},
    }[scheduler]

    def make():
        opt = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        return opt, getattr(torch.optim.lr_scheduler, scheduler)(opt, **options)

    def run(opt, lrs, n: int) -> list[float]:
        rates = []
        for _ in range(n):
            opt.step()
            lrs.step()
            rates.append(opt.param_groups[0]["lr"])
        return rates

    opt, lrs = make()
    run(opt, lrs, 4)
    saved = there_and_back({"lrs": lrs.state_dict(), "opt": opt.state_dict()}).values
    expected = run(opt, lrs, 8)
    other, other_lrs = make()
    other.load_state_dict(saved["opt"])
    other_lrs.load_state_dict(saved["lrs"])
    assert run(other, other_lrs, 8) == expected


def test_random_states_come_back(tmp_path: Path) -> None:
    own = {"loader": torch.Generator().manual_seed(3), "sampler": np.random.default_rng(4)}

    def draw() -> list[float]:
        numbers = [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn()]
        numbers += [float(torch.rand(1)), float(torch.rand(1, generator=own["loader"]))]
        return [*numbers, own["sampler"].random()]

    table = torch.zeros(4)
    draw()  # so that Python and NumPy hold half of a pair of normal numbers
    with RunningCheckpoint(tmp_path, {"w": table}) as rc:
        rc.save_all(5, {"rng": rng_state(own), "loader": {"epoch": 2, "at": 300}})
    expected = draw()
    draw()
    report = restore(tmp_path, {"w": table})
    set_rng_state(report.extra["rng"], own)
    assert draw() == expected
    assert (report.extra_step, report.extra["loader"]) == (5, {"epoch": 2, "at": 300})
    with pytest.raises(UsageError, match=r"\['loader'\] were given and \['loader', 'sampler'\]"):
        set_rng_state(report.extra["rng"], {"loader": own["loader"]})
    state = {**report.extra["rng"], "cuda": [torch.zeros(16, dtype=torch.uint8)] * 99}
    with pytest.raises(UsageError, match="of 99 CUDA devices"):
        set_rng_state(state, own)


def test_what_cannot_be_kept_is_refused_by_name(tmp_path: Path) -> None:
    deep: list = []
    for _ in range(100):
        deep = [deep]
    refused = [
        ({"a": {"b": object()}}, r"extra: a\.b is a object; give numbers, .* its state_dict\(\)"),
        ({"f": torch.nn.Linear}, "extra: f is a type"),
        ({"s": torch.ones(2, 2).to_sparse()}, "extra: s is a tensor of float32 that is sharded"),
        ({"o": np.array([object()])}, "extra: o is a ndarray"),
        ({"deep": deep}, "is nested deeper than 64"),
        ({"x": bytes(70_000)}, r"extra: 7\d{4} bytes were given .* and 65536 fit; raise extra_byt"),
    ]
    for given_values, message in refused:
        with pytest.raises(UsageError, match=message):
            encode(given_values, 0, room_bytes=ROOM_BYTES)
    with RunningCheckpoint(tmp_path, {"w": torch.ones(1)}, extra_bytes=0) as rc:
        with pytest.raises(UsageError, match="and 0 fit; raise extra_bytes"):
            rc.step(1, {"x": 1})
        rc.save_all(1)
    for damaged in (b"", b"\xff" * 40, encode({"b": b"12345"}, 1, room_bytes=999)[:-20]):
        with pytest.raises(CheckpointError, match="extra: the record is not of format 2"):
            decode(damaged)


def test_what_was_given_last_stays_with_its_own_step(tmp_path: Path) -> None:
    table = torch.zeros(64)
    counts = {"epoch": 1}
    with RunningCheckpoint(tmp_path, {"w": table}, policy="full") as rc:
        rc.step(1, counts)
        rc.wait()
        counts["epoch"] = 99  # the checkpoint keeps what was given, not what it has become
        for step in (2, 3, 4):
            rc.step(step)
            rc.wait()
    report = restore(tmp_path, {"w": table})
    assert (report.newest_step, report.extra_step, report.extra) == (4, 1, {"epoch": 1})
    with RunningCheckpoint(tmp_path, {"w": table}, policy="full") as rc:  # another process
        rc.step(5)
        rc.wait()
        assert len(list(rc.folder.glob("blocks-*"))) == 1
    report = restore(tmp_path, {"w": table})
    assert (report.newest_step, report.extra_step, report.extra) == (5, 1, {"epoch": 1})


def test_it_survives_that_moments_appear(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    with RunningCheckpoint(tmp_path, TrainingState(model, optimizer)) as rc:
        rc.save_all(0, {"note": torch.ones(2)})
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        rc.save_all(1)
        assert rc.generation == 2
    report = restore(tmp_path, TrainingState(model, optimizer))
    assert report.extra_step == 0
    assert torch.equal(report.extra["note"], torch.ones(2))


def test_every_slot_keeps_its_own(tmp_path: Path) -> None:
    model = nn.Linear(8, 8)
    for rank in range(3):
        state = TrainingState(model, replica=(rank, 3))
        with RunningCheckpoint(tmp_path, state, slot=rank, block_bytes=32) as rc:
            rc.save_all(3 + (rank == 1), {"rank": rank})
    report = restore(tmp_path, model)
    assert {slot: extra.values["rank"] for slot, extra in report.extras.items()} == {
        "0": 0,
        "1": 1,
        "2": 2,
    }
    assert (report.extra, report.extra_step) == ({"rank": 1}, 4)
    assert restore(tmp_path, model, slot=2, allow_missing=True).extra == {"rank": 2}


def test_of_a_consistent_step_only_what_belonged_to_it(tmp_path: Path) -> None:
    table = torch.zeros(64)
    with RunningCheckpoint(
        tmp_path, {"w": table}, policy="round-robin", block_bytes=64, budget=Budget(fraction=0.3)
    ) as rc:
        rc.save_all(1, {"at": 1})
        rc.step(2, {"at": 2})
        rc.wait()
    assert restore(tmp_path, {"w": table}, mode="consistent").extra == {"at": 1}
    assert restore(tmp_path, {"w": table}).extra == {"at": 2}


def test_a_torn_one_falls_back_to_its_older_copy(tmp_path: Path) -> None:
    table = torch.zeros(8)
    with RunningCheckpoint(tmp_path, {"w": table}, policy="full", extra_bytes=256) as rc:
        for step in (1, 2):
            rc.step(step, {"at": step, "raw": bytes([step]) * 50})
            rc.wait()
        writer = rc._session.writer.slot
        begin = writer.geometry.offset(1, 1)
        path = next(rc.folder.glob("blocks-*"))
    whole = path.read_bytes()
    for cut in range(0, 64 + 200, 3):
        torn = bytearray(whole)
        torn[begin + cut : begin + 320] = b"\xa5" * (320 - cut)  # written up to here, then killed
        path.write_bytes(torn)
        report = restore(tmp_path, {"w": table})
        assert report.newest_step == 2
        assert (report.extra_step, report.extra) == (1, {"at": 1, "raw": b"\1" * 50})
    assert [(bad.fqn, bad.lost) for bad in verify(tmp_path)] == [("__extra__", False)]


class FailingDisk(OsDisk):
    fail = False

    def fdatasync(self, fd: int) -> None:
        if self.fail:
            raise OSError(28, "No space left on device")
        super().fdatasync(fd)


def test_a_failed_round_gives_it_once_more(tmp_path: Path) -> None:
    disk = FailingDisk()
    with RunningCheckpoint(tmp_path, {"w": torch.zeros(8)}, policy="full", disk=disk) as rc:
        rc.save_all(1, {"at": 1})
        disk.fail = True
        rc.step(2, {"at": 2})
        with pytest.raises(CheckpointError, match="No space"):
            rc.wait()
        disk.fail = False
        for step in (3, 4):
            rc.step(step)
            rc.wait()
    report = restore(tmp_path, {"w": torch.zeros(8)})
    assert (report.extra_step, report.extra) == (2, {"at": 2})


def test_a_file_with_a_full_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "extra-0"
    write_extra(path, {"rng": rng_state(), "at": (1, 2)}, 40)
    found = read_extra(path)
    assert (found.step, found.values["at"]) == (40, (1, 2))
    assert torch.equal(found.values["rng"]["torch"], torch.get_rng_state())
    assert [p.name for p in tmp_path.iterdir()] == ["extra-0"]
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        flipped = bytearray(whole)
        flipped[at] ^= 16
        for damaged in (flipped, whole[:at]):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match="damaged; take the file of an earlier"):
                read_extra(path)
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        read_extra(tmp_path / "none")


def put_format_1(root: Path) -> Path:
    """A slot written by ettr when its format was 1; see the expected values in the test."""
    path = root / "slot-0" / "blocks-00000001.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.decompress((SAMPLES / "slot-format-1.bin.gz").read_bytes()))
    return path


def test_a_store_of_format_1_is_read_and_taken_over(tmp_path: Path) -> None:
    put_format_1(tmp_path)
    model = nn.Linear(4, 6)
    optimizer = torch.optim.AdamW(model.parameters())
    state = TrainingState(model, optimizer)
    assert verify(tmp_path) == []
    for generation in (2, 3):
        report = restore(tmp_path, state, reached_step=3)
        # weights are n + 100 · step, by pairs of rows of steps 2, 3 and 1; the bias is of step 1
        rows = torch.arange(24.0).view(6, 4) + 100 * torch.tensor([2.0, 2, 3, 3, 1, 1])[:, None]
        assert torch.equal(model.weight.detach(), rows)
        assert torch.equal(model.bias.detach(), torch.arange(6.0) + 10100)
        moments = optimizer.state[model.bias]
        assert torch.equal(moments["exp_avg"], -torch.arange(6.0) - 1)
        assert (report.oldest_step, report.newest_step) == (1, 3)
        assert (report.extra_step, report.extra) == (3, {"loader": [3, 7]})
        with RunningCheckpoint(tmp_path, state) as rc:  # takes the slot over, in the new format
            assert rc.generation == generation
    with RunningCheckpoint(tmp_path, state) as rc:
        rc.save_all(4)
        assert [path.name for path in rc.folder.glob("blocks-*")] == ["blocks-00000004.bin"]
    report = restore(tmp_path, state)
    assert (report.newest_step, report.extra_step, report.extra) == (4, 3, {"loader": [3, 7]})


def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    import struct
    import zlib

    path = put_format_1(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[8:12] = (9).to_bytes(4, "little")
    length = struct.calcsize("<8sIIQQQQQ") + struct.unpack_from("<8sIIQQQQQ", raw)[6]
    raw[length : length + 4] = zlib.crc32(raw[:length]).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"blocks-00000001.bin: slot file of format 9: this "):
        verify(tmp_path)
