"""The groups of values by which users share a cluster; a scenario may go without any of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

QUOTA_SCOPES = ("user", "account", "qos")
EACH = "*"
WEIGHTS = ("fair_share_weight", "age_weight", "job_size_weight", "qos_weight")
MOST_MEAN_TASKS = 1e5
MOST_WEIGHT = 2.0**30
"""Priorities of Slurm are below 2^32."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Most GPUs that run at once for one user, account or quality of service.

    A quota by name takes the place of the one for each of its scope, as an association's own limit
    does in Slurm: it may be larger or smaller.

    Attributes:
        scope: Whose jobs count together: those of a user, an account or a qos.
        name: Of it, or * for each of them, which then has such a quota of its own.
        most_gpus: That its running jobs hold together.
    """

    scope: str
    name: str
    most_gpus: int


@dataclass(frozen=True, slots=True)
class FairShare:
    """The queue goes by Slurm's multifactor priority; preemption still goes by levels.

    Attributes:
        half_life_s: After which usage counts half (PriorityDecayHalfLife).
        calc_interval_s: Between two computations of all priorities (PriorityCalcPeriod).
        longest_age_s: Wait beyond which the priority rises no more (PriorityMaxAge).
        fair_share_weight: Of usage against shares (PriorityWeightFairshare), as the others.
        age_weight: Of the wait.
        job_size_weight: Of size, which favours large jobs.
        qos_weight: Of the level over the highest one.
    """

    half_life_s: float
    calc_interval_s: int
    longest_age_s: float
    fair_share_weight: float
    age_weight: float
    job_size_weight: float
    qos_weight: float


@dataclass(frozen=True, slots=True)
class AccountShares:
    """Shares of an account; one that has no entry has 1. Users share their account equally."""

    name: str
    shares: float


@dataclass(frozen=True, slots=True)
class ArrayClass:
    """Submissions of one size that are job arrays.

    Attributes:
        gpus: Of each task; that of an entry in [[jobs]].
        share: Of the submissions of that size, whichever class they are of; tasks have the lengths
            of the class of their submission, and its priority if it has one.
        mean_tasks: Mean number of tasks; geometric, 1 or more.
        most_running: Tasks of one array that run at once, N of Slurm's `%N`; 0 for no limit.
    """

    gpus: int
    share: float
    mean_tasks: float
    most_running: int


def problems_of_arrays(arrays: Sequence[ArrayClass], sizes: Collection[int]) -> Iterator[str]:
    """What cannot be, a sentence each.

    Args:
        arrays: Of a scenario.
        sizes: GPUs of each of its classes of jobs.
    """
    if len({one.gpus for one in arrays}) < len(arrays):
        yield "arrays.gpus: a size has one entry"
    for one in arrays:
        if one.gpus not in sizes:
            known = ", ".join(f"{size:,}" for size in sorted(set(sizes)))
            yield f"arrays.gpus: {one.gpus}; [[jobs]] has no entry of that size; it has {known}"
        if not 1.0 <= one.mean_tasks <= MOST_MEAN_TASKS:
            yield f"arrays.mean_tasks: {one.mean_tasks:g}; give 1 to {MOST_MEAN_TASKS:,.0f}"


def problems_of_shares(
    rules: FairShare | None, accounts: Sequence[AccountShares], levels: Sequence[int]
) -> Iterator[str]:
    """What cannot be, a sentence each.

    Args:
        rules: Of a scenario.
        accounts: With shares of their own.
        levels: Of its priorities.
    """
    names = [one.name for one in accounts]
    if len(set(names)) < len(names):
        yield "accounts.name: an account has one entry"
    if not all(one.shares > 0 for one in accounts):
        yield "accounts.shares: give a number above 0"
    if rules is None:
        if accounts:
            yield "accounts: shares are of no use without [fair_share]"
        return
    for name in ("half_life_s", "calc_interval_s", "longest_age_s"):
        if not getattr(rules, name) >= 1:
            yield f"fair_share.{name}: {getattr(rules, name):g}; give 1 second or more"
    for name in WEIGHTS:
        if getattr(rules, name) > MOST_WEIGHT:
            yield f"fair_share.{name}: give at most {MOST_WEIGHT:,.0f}"
    if rules.qos_weight and min(levels, default=0) < 0:
        yield "fair_share.qos_weight: goes with priorities.level of 0 or more"


def problems_of_quotas(quotas: Sequence[Quota], priorities: Collection[str]) -> Iterator[str]:
    """What cannot be, a sentence each.

    Args:
        quotas: Of a scenario.
        priorities: Names of its qualities of service.
    """
    known = {(one.scope, one.name) for one in quotas}
    if len(known) < len(quotas):
        yield "quotas: a user, account or qos has one quota"
    for one in quotas:
        if one.scope not in QUOTA_SCOPES:
            yield f"quotas.scope: {one.scope!r}; give one of {', '.join(QUOTA_SCOPES)}"
        elif one.scope == "qos" and one.name not in (EACH, *priorities):
            yield f"quotas.name: {one.name!r} has no entry in [[priorities]]"
        if one.most_gpus < 1:
            yield f"quotas.most_gpus: {one.most_gpus}; give 1 or more"
