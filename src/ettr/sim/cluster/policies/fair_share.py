"""Fair share and the multifactor priority of Slurm, with its classic algorithm.

Who has used more than his share of late goes later. Usage fades by a half-life; a user's counts
together with that of his account.

Source:
    Slurm's manual, classic_fair_share and priority_multifactor (PriorityFlags=NO_FAIR_TREE).
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Weights(NamedTuple):
    """What each factor, from 0 to 1, weighs in the priority."""

    fair_share: float
    age: float
    job_size: float
    qos: float


def decayed_gpu_s(used_gpu_s: float, gpus: int, elapsed_s: float, half_life_s: float) -> float:
    """Usage after a time in which jobs held GPUs, all of it fading by the half-life.

    Args:
        used_gpu_s: Usage at the beginning.
        gpus: Held all the time.
        elapsed_s: How long.
        half_life_s: After which a GPU-second counts half.
    """
    kept = float(0.5 ** (elapsed_s / half_life_s))
    return used_gpu_s * kept + gpus * half_life_s / math.log(2.0) * (1.0 - kept)


def effective_usage(usage: float, of_siblings: float, above: float) -> float:
    """Usage of a user or account with its part of what its siblings used.

    Args:
        usage: Its own, as a share of all usage.
        of_siblings: Its shares over those of all siblings, itself included.
        above: Effective usage of the account above; at the top of the tree usage is effective.
    """
    return usage + (above - usage) * of_siblings


def fair_share_factor(effective: float, share: float) -> float:
    """The factor of a user: 1 without usage, 1/2 where usage is the share, towards 0 beyond.

    Args:
        effective: Effective usage.
        share: His shares as a part of the whole cluster, above 0.
    """
    return float(2.0 ** (-effective / share))


def age_factor(waited_s: float, longest_s: float) -> float:
    """The factor of waiting: 1 after the longest time that counts."""
    return min(1.0, waited_s / longest_s)


def size_factor(share_of_nodes: float, share_of_gpus: float) -> float:
    """The factor of size, which favours large jobs."""
    return (share_of_nodes + share_of_gpus) / 2.0


def multifactor_priority(weights: Weights, factors: Weights) -> int:
    """The priority, a whole number; the higher goes first.

    Args:
        weights: Of the scenario.
        factors: Of the job, each from 0 to 1.
    """
    return int(sum(weight * factor for weight, factor in zip(weights, factors, strict=True)))
