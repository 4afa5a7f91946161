"""Each rank its own slot under FSDP2, ZeRO-1 and DDP; any slot set restores a plain model."""

import sys
from pathlib import Path

import pytest

from forked_python import run_together

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

WORKER = Path(__file__).with_name("sharded_worker.py")


@pytest.mark.parametrize(("kind", "world"), [("fsdp2", 3), ("zero1", 2), ("ddp", 2)])
def test_slots_come_back_bit_for_bit(tmp_path: Path, kind: str, world: int) -> None:
    words = [[kind, str(rank), str(world), str(tmp_path)] for rank in range(world)]
    commands = [[sys.executable, str(WORKER), *own] for own in words]
    ranks = run_together(commands, tmp_path, limit_s=240)
    assert [rank.status for rank in ranks] == [0] * world, [rank.errors for rank in ranks]
