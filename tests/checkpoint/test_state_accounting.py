"""The core of the accounting matrix: each form of optimizer state under each kind of change."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from campaigns import state_accounting  # noqa: E402
from campaigns.state_accounting import CHANGES, EXACT, IMPOSSIBLE, NAMED, SAID  # noqa: E402

FORMS = ("AdamW", "SGD", "LBFGS", "SAM", "Lookahead", "Prodigy", "LAMB", "a container")
FORMS += ("float32 masters", "a mean of the weights", "SparseAdam", "schedule-free wrapper")


@pytest.fixture(scope="module")
def matrix() -> state_accounting.Matrix:
    names = [name for name in FORMS if name in state_accounting.kinds()]
    return state_accounting.matrix(names, tuple(c for c in CHANGES if c != "ranks"))


def test_no_difference_is_kept_silent(matrix: state_accounting.Matrix) -> None:
    assert matrix.silent() == []
    assert matrix.counts()[IMPOSSIBLE] <= 4, "LBFGS in groups, sparse gradients under FSDP2"


def test_what_a_change_leaves_alone_is_restored_exactly(matrix: state_accounting.Matrix) -> None:
    for name in ("AdamW", "SAM", "Prodigy", "LAMB", "a container"):
        for change in ("none", "compile", "DDP", "FSDP2"):
            assert matrix.cells[name, change].verdict == EXACT, matrix.cells[name, change]
        assert matrix.cells[name, "lr"].verdict == SAID
        for change in ("renamed", "grown", "dtype", "frozen", "EMA added"):
            assert matrix.cells[name, change].verdict == NAMED


def test_the_matrix_sees_a_moment_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a restore that leaves moments as they are it says so."""
    from ettr.checkpoint.tensors.shards import PARAM, Shard

    kept = Shard.tensor_value

    def without_moments(self: Shard, name: str) -> torch.Tensor:
        value = kept(self, name)
        return value if name == PARAM else value.clone()

    monkeypatch.setattr(Shard, "tensor_value", without_moments)
    found = state_accounting.matrix(["Adam"], ("none",))
    (line,) = found.silent()
    assert "exp_avg" in line
