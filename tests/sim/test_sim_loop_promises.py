"""Which nodes the compiled loop keeps for the first job, beside the plain words of the policy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ettr.sim.cluster.log import Hours
from ettr.sim.cluster.play import FAR_S, WORD, new_board, promise, when_ready
from ettr.sim.cluster.room import Room
from ettr.sim.cluster.run import rules_of
from ettr.sim.cluster.scenario import scenario_of, scenario_text

N_NODES, PER_NODE = 70, 8  # more than two words of a set, the last one not full
RULES = rules_of(scenario_of(*scenario_text("small")))._replace(n_nodes=N_NODES, per_node=PER_NODE)

# free already, soon, later with ties, far off in time, and closed
READY_S = st.sampled_from([0, 0, 1, 7, 7, 3_600, 86_399, 86_400, 604_800, 28_512_000, FAR_S])
COLUMNS = st.lists(READY_S, min_size=N_NODES, max_size=N_NODES)
GPUS = st.one_of(st.integers(1, PER_NODE), st.integers(1, N_NODES + 2).map(lambda n: n * PER_NODE))


@given(st.lists(st.tuples(COLUMNS, GPUS), min_size=1, max_size=4))
def test_the_promised_nodes_are_those_of_the_reservation(
    asked: list[tuple[list[int], int]],
) -> None:
    # one board for all: each search begins at what the one before has left
    board = new_board(RULES, [0], Hours(N_NODES, PER_NODE))
    for column, gpus in asked:
        # another column for each number of GPUs, so that a wrong one is seen
        board.ready_s[:] = [column[n:] + column[:n] for n in range(PER_NODE + 1)]
        at_s = promise(board, RULES, gpus)
        kept = sum(int(word) << WORD * i for i, word in enumerate(board.promised))
        room = Room((0,) * (PER_NODE + 1), board.ready_s.T)
        assert (kept, at_s) == room.reservation(gpus)


@given(COLUMNS, st.integers(1, N_NODES), st.integers(0, 1 << 40))
def test_any_guess_finds_the_same_time(column: list[int], n_nodes: int, guess_s: int) -> None:
    board = new_board(RULES, [0], Hours(N_NODES, PER_NODE))
    board.ready_s[PER_NODE] = column
    assert when_ready(board, RULES, PER_NODE, n_nodes, guess_s) == sorted(column)[n_nodes - 1]
