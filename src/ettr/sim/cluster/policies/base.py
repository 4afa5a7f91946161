"""What a policy sees of jobs, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Waiting(NamedTuple):
    """A job in the queue: its place there, GPUs, time limit in seconds, and priority level."""

    place: int
    gpus: int
    limit_s: int
    level: int


class Running(NamedTuple):
    """A job that may be preempted: its number, level, start, nodes and GPUs on each of them.

    `until_s` is the end of its time limit.
    """

    number: int
    level: int
    start_s: int
    nodes: tuple[int, ...]
    gpus_on_each: int
    until_s: int


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
