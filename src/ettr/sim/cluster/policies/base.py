"""What a policy sees of jobs, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class JobStart(NamedTuple):
    """A job that starts now: its place in the queue, its nodes, and who is preempted for it."""

    place: int
    nodes: list[int]
    victims: tuple[int, ...] = ()


class Able(NamedTuple):
    """Nodes that can take a job at its start, ascending, from which some are chosen.

    Attributes:
        nodes: Numbers of them.
        ready_s: As `Room.ready_s`, of these nodes alone: by running jobs, not by those that wait.
        gpus_on_each: That the job needs.
        n_nodes: That it needs.
        is_now: Whether it starts now.
    """

    nodes: list[int]
    ready_s: NDArray[np.int64]
    gpus_on_each: int
    n_nodes: int
    is_now: bool
