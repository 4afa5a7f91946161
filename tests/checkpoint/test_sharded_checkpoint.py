"""Each rank its own slot under FSDP2, ZeRO-1 and DDP; any slot set restores a plain model."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

WORKER = Path(__file__).with_name("sharded_worker.py")


@pytest.mark.parametrize(("kind", "world"), [("fsdp2", 3), ("zero1", 2), ("ddp", 2)])
def test_slots_come_back_bit_for_bit(tmp_path: Path, kind: str, world: int) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), kind, str(rank), str(world), str(tmp_path)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        errors = [rank.communicate(timeout=240)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(errors)
