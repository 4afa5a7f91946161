"""Which processes a run has on its nodes: ranks that take slots, and spares that are kept warm."""

from __future__ import annotations

from collections import Counter

from ettr.elastic.supervision.node_pool import NodePool
from ettr.elastic.supervision.states import WorkerState
from ettr.elastic.supervision.worker_process import Roster, Worker

_SPARE_WAIT_S = 5.0  # a new generation that has made no step by then gets its spare all the same


class Staffing:
    """Starts the processes of a run; every method takes the time now (monotonic, seconds).

    Args:
        n_spares: that a node with ranks keeps warm.
    """

    def __init__(self, roster: Roster, nodes: NodePool, n_spares: int) -> None:
        self._roster, self._nodes, self._n_spares = roster, nodes, n_spares
        self._newcomers: tuple[str, ...] = ()
        self._regrouped_s = 0.0

    def start(self, state: WorkerState, node: str, now_s: float) -> Worker:
        """Start a process on a node.

        If the node was lost since it was chosen the process counts as killed, and is replaced as
        such.
        """
        name = f"w{len(self._roster.workers)}"
        worker = Worker.start(name, self._nodes.node(node), state=state, now_s=now_s)
        self._roster.workers[name] = worker
        return worker

    def newcomer(self, node: str, now_s: float) -> Worker:
        """A warm spare of a node, or a process that is started there now."""
        for spare in self._roster.spares:
            if spare.node == node and not spare.exit.ending():
                spare.enter(WorkerState.RANK)
                spare.heard_s = now_s
                return spare
        return self.start(WorkerState.RANK, node, now_s)

    def regrouped(self, newcomers: tuple[str, ...], now_s: float) -> None:
        """A new generation was called, with these new ranks in it."""
        self._newcomers, self._regrouped_s = newcomers, now_s

    def warm(self) -> Counter[str]:
        """Waiting processes of each node."""
        return Counter(spare.node for spare in self._roster.spares if not spare.exit.ending())

    def restock(self, now_s: float, *, at_once: bool = False) -> None:
        """Start a node's next spare once the newcomers before have made a step in their slots.

        Its import takes a core for a second or more, which the regrouping must not wait for. A
        node without ranks is a spare node, whose every place is kept warm.
        """
        in_use = set(self._roster.membership.nodes)
        n_spares = Counter(spare.node for spare in self._roster.spares)
        for name, node in self._nodes.alive.items():
            wanted = self._n_spares if name in in_use else node.n_ranks
            if n_spares[name] >= wanted:
                continue
            if at_once or name not in in_use or self._newcomers_stepped(now_s):
                self.start(WorkerState.SPARE, name, now_s)

    def _newcomers_stepped(self, now_s: float) -> bool:
        newcomers = [self._roster.workers[name] for name in self._newcomers]
        stepped = all(worker.heartbeat.step >= 0 for worker in newcomers)
        return stepped or now_s - self._regrouped_s > _SPARE_WAIT_S
