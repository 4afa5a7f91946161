"""`ettr verify` on whole, damaged and lost blocks."""

import itertools
import json
import re
from pathlib import Path

import pytest

from cli.program import Done, ettr

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from ettr.checkpoint import RunningCheckpoint  # noqa: E402
from ettr.checkpoint.slots.reader import PayloadReader, Record  # noqa: E402


def verify(*words: str | Path) -> Done:
    return ettr("verify", *words)


def test_whole_damaged_and_lost(tmp_path: Path) -> None:
    with RunningCheckpoint(tmp_path, {"w": torch.ones(8)}, policy="full") as rc:
        for step in (1, 2):
            rc.step(step)
            rc.wait()
        geometry = rc._session.writer.slot.geometry
    done = verify(tmp_path)
    assert (done.code, done.out) == (
        0,
        "1 blocks, steps 2 to 2\nevery record is intact\n",
    )
    path = next((tmp_path / "slot-0").glob("blocks-*"))
    raw = bytearray(path.read_bytes())
    for place, (exit_code, word) in enumerate([(0, "the older copy is intact"), (1, "LOST")]):
        raw[geometry.offset(0, 1 - place) + 70] ^= 1
        path.write_bytes(raw)
        done = verify(tmp_path)
        assert done.code == exit_code
        assert word in done.out
    found = json.loads(verify(tmp_path, "--json").out)
    assert (found["lost"], found["blocks"], len(found["damaged"])) == (2, 1, 2)
    text = verify(tmp_path, "--prometheus", "--step", "10").out
    assert 'ettr_checkpoint_block_age_max_steps{slot="0"} 8' in text
    assert 'ettr_checkpoint_records_lost{slot="0"} 2' in text
    assert "block_age_steps" not in text


def test_what_a_run_writes_over_while_it_is_read_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"w": torch.zeros(8)}
    with RunningCheckpoint(tmp_path, state, policy="full") as rc:

        def train(*steps: int) -> None:
            for step in steps:
                state["w"].fill_(step)
                rc.step(step)
                rc.wait()

        train(1, 2)
        read, calls = PayloadReader.read, itertools.count()

        def interrupted(reader: PayloadReader, record: Record) -> memoryview | None:
            if next(calls) == 0:
                train(3, 4)  # overwrites both copies of the block
            return read(reader, record)

        monkeypatch.setattr(PayloadReader, "read", interrupted)
        done = verify(tmp_path)
        assert done.code == 0, done.out
        assert "payload of step 2: a run that goes on wrote step 4 over it while it was" in done.out
        assert "LOST" not in done.out
        assert done.out.endswith("2 damaged, 0 lost\n")


def test_the_age_of_each_block_goes_to_a_file(tmp_path: Path) -> None:
    """The lines are those of Prometheus' text format; its own parser is not needed to see that."""
    state = {'odd"name\\of\na.tensor': torch.ones(6), "b": torch.ones(2, 2)}
    with RunningCheckpoint(
        tmp_path / "rc", state, policy="full", rows={'odd"name\\of\na.tensor': 4}
    ) as rc:
        rc.step(3)
        rc.wait()
    target = tmp_path / "out" / "ettr.prom"
    target.parent.mkdir()
    done = verify(tmp_path / "rc", "--metrics", target, "--step", "10", "--each-block")
    assert (done.code, done.out[:8]) == (0, "3 blocks")
    assert [path.name for path in target.parent.iterdir()] == ["ettr.prom"]
    lines = target.read_text().splitlines()
    name = r'ettr_checkpoint_block_age_steps{slot="0",tensor="odd\"name\\of\na.tensor",offsets='
    assert name + '"0"} 7' in lines
    assert name + '"4"} 7' in lines
    assert 'ettr_checkpoint_block_age_steps{slot="0",tensor="b",offsets="0,0"} 7' in lines
    sample = re.compile(r'[a-z_]+\{([a-z]+="([^"\\]|\\["\\n])*",?)+\} -?[0-9.e+]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)
