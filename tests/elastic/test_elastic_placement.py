"""Where the workers of lost slots go, and whose memory holds whose shard."""

from __future__ import annotations

import pytest

from ettr.elastic.rendezvous import Membership
from ettr.elastic.supervisor import (
    Place,
    buddy_stride,
    first_membership,
    place_lost,
    sharing_a_node,
)


def placed(nodes: list[str], ranks_per_node: int, racks: list[str] | None = None) -> Membership:
    workers = tuple(f"w{slot}" for slot in range(len(nodes) * ranks_per_node))
    membership, _ = first_membership(Membership(1, workers), nodes, racks or nodes, ranks_per_node)
    return membership


@pytest.mark.parametrize("n_nodes", range(2, 9))
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_no_buddy_is_on_its_ranks_node(n_nodes: int, ranks: int) -> None:
    membership = placed([f"n{i}" for i in range(n_nodes)], ranks)
    assert sharing_a_node(membership.nodes, membership.buddy_stride) == []


@pytest.mark.parametrize(
    ("racks", "apart"),
    [
        ("rrss", True),
        ("rsrs", True),
        ("rrrsss", True),
        ("rrsst", True),
        ("rrrs", False),  # three of four nodes in one rack
        ("rrr", False),
    ],
)
def test_buddies_leave_the_rack_where_one_stride_can(racks: str, apart: bool) -> None:
    nodes = [f"n{i}" for i in range(len(racks))]
    membership, is_apart = first_membership(
        Membership(1, tuple(f"w{i}" for i in range(2 * len(racks)))), nodes, list(racks), 2
    )
    rack_of = dict(zip(nodes, racks, strict=True))
    world = membership.world
    shared = [
        slot
        for slot in range(world)
        if rack_of[membership.nodes[slot]]
        == rack_of[membership.nodes[(slot + membership.buddy_stride) % world]]
    ]
    assert (shared == []) is is_apart
    assert is_apart is apart
    assert sharing_a_node(membership.nodes, membership.buddy_stride) == []


def test_on_one_node_the_buddy_is_the_next_rank() -> None:
    assert buddy_stride(["n0"], 8) == (1, False)


def test_a_lost_rank_stays_on_its_node_and_takes_its_gpu() -> None:
    membership = placed(["a", "b"], 3)
    capacity = {"a": 3, "b": 3, "spare": 3}
    assert place_lost(membership, {4}, capacity, {"spare": 3}) == {4: Place("b", 1)}


def test_a_lost_node_moves_to_a_spare_node_as_one() -> None:
    membership = placed(["a", "b"], 3)
    places = place_lost(membership, {3, 4, 5}, {"a": 3, "spare": 3}, {"spare": 3})
    assert places == {3: Place("spare", 0), 4: Place("spare", 1), 5: Place("spare", 2)}


def test_a_rank_never_goes_to_a_node_whose_gpus_are_taken() -> None:
    membership = placed(["a", "b"], 3)
    assert place_lost(membership, {3, 4, 5}, {"a": 3}, {"a": 3}) is None
    assert place_lost(membership, {3, 4, 5}, {"a": 3, "spare": 2}, {}) is None


def test_slot_and_buddy_are_kept_on_two_nodes_where_there_is_a_choice() -> None:
    # slots 0-1 on a, 2-3 on b, 4-5 on c; b is lost, d and a have room for two
    membership = placed(["a", "b", "c"], 2)
    places = place_lost(membership, {2, 3}, {"a": 4, "c": 2, "d": 2}, {"a": 4})
    assert places is not None
    assert {place.node for place in places.values()} == {"d"}


def test_no_two_ranks_share_a_place_over_many_losses() -> None:
    membership = placed(["a", "b", "c"], 2)
    capacity = {"a": 2, "c": 2, "d": 2}
    places = place_lost(membership, {1, 2, 3}, capacity, {})
    assert places is not None
    kept = {
        Place(membership.nodes[slot], membership.local_ranks[slot])
        for slot in range(6)
        if slot not in places
    }
    assert len(kept | set(places.values())) == 6
    assert places[1] == Place("a", 1)
