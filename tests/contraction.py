"""A run whose state shrinks by one factor a step: the cost of a stale part is known exactly."""

from __future__ import annotations

import torch

CONTRACTION = 0.95


def build():
    """The state and the function of a step, as `ettr measure-recovery` takes them."""
    state = {"x": torch.ones(64, dtype=torch.float64)}

    def train_step(step: int):
        state["x"] *= CONTRACTION
        return state["x"].square().sum()

    return state, train_step
