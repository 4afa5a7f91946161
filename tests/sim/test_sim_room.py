"""Sets of nodes as bits: few nodes and many take different ways and give the same."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ettr.sim.cluster.room import NodeRoom, first_members, set_of

NODES = [*range(3, 40, 4), 63, 64, 65, 200, 999]


@pytest.mark.parametrize("count", [0, 1, 8, 9, len(NODES)])
def test_set_and_its_first_members(count: int) -> None:
    chosen = NODES[:count]

    assert set_of(chosen) == sum(2**node for node in chosen)
    assert first_members(sum(2**node for node in NODES), count) == chosen


@given(st.sets(st.integers(0, 3000)), st.integers(0, 3000))
def test_first_members_of_any_set_come_ascending(nodes: set[int], most: int) -> None:
    made = 0
    for node in nodes:
        made |= 1 << node
    count = min(most, len(nodes))
    assert first_members(made, count) == sorted(nodes)[:count]
    assert set_of(sorted(nodes, reverse=True)) == made


def test_nodes_that_close_under_a_large_job_are_not_free_after_it() -> None:
    room = NodeRoom(12, 8)
    room.take(1, list(range(10)), 8, 500)
    room.close(4)
    room.give_back(1, list(range(10)))

    assert room.by_free[8] == sum(2**node for node in range(12) if node != 4)
    assert sum(room.by_free[:8]) == 0
    assert room.free == [8] * 12
    assert (room.ready_s[4] > 10**12).all()
    assert not room.ready_s[[0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]].any()
