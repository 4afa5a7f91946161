"""All-gathers and gathers over gloo: each rank's part to its place, whatever the shape and type."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import Tensor  # noqa: E402

from ettr.elastic.abortable_gloo import (  # noqa: E402
    _SMALL_BYTES,
    AbortableGloo,
    GenerationOverError,
)
from gloo_ranks import GlooRanks  # noqa: E402

pytestmark = pytest.mark.torch

WORLD = 3
LARGE = (_SMALL_BYTES // 4, 3)  # in broadcasts, whatever the type
SHAPES = [(), (5,), (3, 4), (0,), (2, 0), LARGE]
TYPES = [torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.bool, torch.complex64]


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    made = GlooRanks(WORLD)
    yield made
    made.close()


def part_of(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Different in every element and rank, as far as the type can be."""
    n = torch.Size(shape).numel()
    return ((torch.arange(n) + 7 * rank) % 11 - 3).to(dtype).view(shape)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_rank_gets_every_part_in_its_place(ranks, shape, dtype):
    parts = [part_of(rank, shape, dtype) for rank in range(WORLD)]

    def listed(group: AbortableGloo, rank: int) -> list[Tensor]:
        outputs = [torch.zeros(shape, dtype=dtype) for _ in range(WORLD)]
        assert group.allgather([outputs], [parts[rank]]).wait()
        return outputs

    def single(group: AbortableGloo, rank: int) -> Tensor:
        output = torch.zeros(WORLD, *shape, dtype=dtype)
        assert group._allgather_base(output, parts[rank]).wait()
        return output

    def at_root(group: AbortableGloo, rank: int) -> list[Tensor]:
        options = dist.GatherOptions()
        options.rootRank = 1
        outputs = [torch.zeros(shape, dtype=dtype) for _ in range(WORLD if rank == 1 else 0)]
        assert group.gather([outputs] if outputs else [], [parts[rank]], options).wait()
        return outputs

    for outputs in ranks.all(listed):
        assert all(torch.equal(a, b) for a, b in zip(outputs, parts, strict=True))
    for output in ranks.all(single):
        assert torch.equal(output, torch.stack(parts))
    nothing, gathered, nothing_either = ranks.all(at_root)
    assert nothing == nothing_either == []
    assert all(torch.equal(a, b) for a, b in zip(gathered, parts, strict=True))


@pytest.mark.parametrize("shape", [(4, 6), LARGE], ids=str)
def test_tensors_that_lie_scattered_in_memory_are_gathered_too(ranks, shape):
    parts = [part_of(rank, shape, torch.float32).t() for rank in range(WORLD)]

    def gathered(group: AbortableGloo, rank: int) -> tuple[list[Tensor], Tensor]:
        outputs = [torch.zeros(shape).t().requires_grad_() for _ in range(WORLD)]
        group.allgather([outputs], [parts[rank].requires_grad_()]).wait()
        whole = torch.zeros(2 * WORLD, *parts[rank].shape)[::2]
        group._allgather_base(whole, parts[rank]).wait()
        return outputs, whole

    for outputs, whole in ranks.all(gathered):
        assert all(torch.equal(a, b) for a, b in zip(outputs, parts, strict=True))
        assert torch.equal(whole, torch.stack(parts))


def test_several_are_gathered_at_once(ranks):
    shapes = [(3,), LARGE, (2, 2)]
    parts = [
        [part_of(rank + i, s, torch.float32) for i, s in enumerate(shapes)] for rank in (0, 1, 2)
    ]

    def gathered(group: AbortableGloo, rank: int) -> tuple[list[Tensor], list[list[Tensor]]]:
        single = [torch.zeros(WORLD, *shape) for shape in shapes]
        work = group.allgather_into_tensor_coalesced(single, parts[rank])
        assert work.wait()
        assert work.result() == single
        lists = [[torch.zeros(shape) for shape in shapes] for _ in range(WORLD)]
        assert group.allgather_coalesced(lists, parts[rank]).wait()
        return single, lists

    for single, lists in ranks.all(gathered):
        for i, output in enumerate(single):
            assert torch.equal(output, torch.stack([of_rank[i] for of_rank in parts]))
        for of_rank, expected in zip(lists, parts, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(of_rank, expected, strict=True))


@pytest.mark.parametrize("shape", [(2,), LARGE], ids=str)
def test_a_future_brings_the_outputs_and_a_wait_after_it_changes_nothing(ranks, shape):
    def gathered(group: AbortableGloo, rank: int) -> bool:
        outputs = [torch.zeros(shape) for _ in range(WORLD)]
        work = group.allgather([outputs], [torch.full(shape, float(rank))])
        got = work.get_future().wait()
        as_sent = [one.mean().item() for one in got] == [0.0, 1.0, 2.0]
        outputs[0] += 5
        work.wait()
        assert work.is_completed()
        assert work.is_success()
        return as_sent and outputs[0].mean().item() == 5.0

    assert ranks.all(gathered) == [True] * WORLD


def test_what_does_not_fit_is_refused_before_anything_is_sent(ranks):
    group, part = ranks.groups[0], torch.ones(4)
    with pytest.raises(ValueError, match=r"3 part\(s\) of 4 torch.float32 do not fit an output"):
        group._allgather_base(torch.zeros(11), part)
    with pytest.raises(ValueError, match=r"an output of 4 torch.float64"):
        group.allgather([[torch.zeros(4, dtype=torch.float64) for _ in range(WORLD)]], [part])
    with pytest.raises(ValueError, match="2 outputs for 3 ranks; give one for each"):
        group.allgather([[torch.zeros(4) for _ in range(2)]], [part])
    options = dist.GatherOptions()
    options.rootRank = 0
    with pytest.raises(ValueError, match="1 outputs for 3 ranks"):
        group.gather([[torch.zeros(4)]], [part], options)


@pytest.mark.parametrize("shape", [(2,), LARGE], ids=str)
def test_one_that_never_ends_is_abandoned_with_the_generation(shape):
    ranks = GlooRanks(WORLD)
    try:
        work = ranks.groups[0]._allgather_base(torch.zeros(WORLD, *shape), torch.ones(shape))
        assert not work.is_completed()
        ranks.lost.append("a peer that takes no part")
        with pytest.raises(GenerationOverError, match="a rank was lost"):
            work.wait()
    finally:
        ranks.close()
