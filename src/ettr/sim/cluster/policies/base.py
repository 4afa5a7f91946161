"""What a policy sees of jobs, and what it answers."""

from __future__ import annotations

from typing import NamedTuple


class Waiting(NamedTuple):
    """A job in the queue: its place there, GPUs, time limit in seconds, and priority level."""

    place: int
    gpus: int
    limit_s: int
    level: int


class Running(NamedTuple):
    """A job that may be preempted: its number, level, start, nodes and GPUs on each of them."""

    number: int
    level: int
    start_s: int
    nodes: tuple[int, ...]
    gpus_on_each: int


class JobStart(NamedTuple):
    """A job that starts now: its place in the queue, and its nodes."""

    place: int
    nodes: list[int]
