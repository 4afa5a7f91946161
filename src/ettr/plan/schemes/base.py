"""Terms of a checkpoint scheme for a job, and the class that every scheme extends."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from ettr.defaults import (
    DEVICE_BYTES_PER_S,
    DURABLE_PERIOD_S,
    HOST_BYTES,
    NETWORK_BYTES_PER_S,
    REPLACE_S,
)
from ettr.plan.levels import FailureKind, Levels, RecoveryLevel
from ettr.plan.run import RunShape
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant

__all__ = [
    "Domain",
    "JobShape",
    "RecoveryLevel",
    "Response",
    "Scheme",
    "Terms",
    "checked",
    "everywhere",
    "terms_for",
]

_OPTIONS = {
    "state_bytes": "--state-bytes",
    "step_s": "--step",
    "storage_bytes_per_s": "--bandwidth",
    "network_bytes_per_s": "--network",
    "device_bytes_per_s": "--device",
    "host_bytes": "--host-memory",
    "storage_space_bytes": "--storage-space",
    "replace_s": "--replace",
    "replicas": "--replicas",
    "one_writer_share": "--one-writer-share",
    "durable_period_s": "--durable-every",
    "embedding_share": "--embedding-share",
    "expert_share": "--expert-share",
    "logged_bytes_per_step": "--logged-bytes",
}
"""Fields of a job by the options of `ettr plan` that set them, for messages."""
_MAY_BE_ZERO = frozenset({"replace_s", "embedding_share", "expert_share", "logged_bytes_per_step"})


class Domain(StrEnum):
    """Extent of a failure: one process, one node, one rack of nodes, or the whole job."""

    PROCESS = "process"
    NODE = "node"
    RACK = "rack"
    JOB = "whole job"

    @property
    def key(self) -> str:
        """Its name among the shares of failures by what they take down."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape(RunShape):
    """A run shape with its state and its machines, which is what checkpoint schemes depend on.

    Of the shape they use nodes, restart and queue; `restart_s` is here without the load of the
    state, and `write_s` is not used, since each scheme states how long it stops training.

    Attributes:
        replicas: Complete copies of the state that training itself keeps (data parallelism).
        one_writer_share: Share of the storage's rate that a single checkpoint reaches.
    """

    state_bytes: float
    step_s: float
    storage_bytes_per_s: float
    network_bytes_per_s: float = NETWORK_BYTES_PER_S
    device_bytes_per_s: float = DEVICE_BYTES_PER_S
    host_bytes: float = HOST_BYTES
    storage_space_bytes: float = math.inf
    replace_s: float = REPLACE_S
    replicas: int = 1
    one_writer_share: float = 1.0
    durable_period_s: float = DURABLE_PERIOD_S
    embedding_share: float = 0.0
    expert_share: float = 0.0
    logged_bytes_per_step: float = 0.0

    def problems(self) -> Iterator[str]:
        """Values that cannot be, a sentence each."""
        inherited = {field.name for field in fields(RunShape)}
        for name in (field.name for field in fields(self) if field.name not in inherited):
            value: float = getattr(self, name)
            if not (value >= 0 if name in _MAY_BE_ZERO else value > 0):
                wanted = "0 or more" if name in _MAY_BE_ZERO else "more than 0"
                yield f"{_OPTIONS[name]} ({name}): {value}; give {wanted}"
            if name.endswith("_share") and value > 1:
                yield f"{_OPTIONS[name]} ({name}): {value}; a share is 1 at most"
        yield from RunShape.problems(self)

    @property
    def shard_bytes(self) -> float:
        """State of one node, with each byte of the state held once."""
        return self.state_bytes / self.n_nodes

    @property
    def held_bytes(self) -> float:
        """State of one node with the replicas that training keeps: what a new node must get."""
        return self.replicas * self.shard_bytes

    @property
    def fetch_s(self) -> float:
        """Transfer of all that a node holds, from its peers."""
        return self.held_bytes / self.network_bytes_per_s

    @property
    def shard_read_s(self) -> float:
        """Read of one node's part of a checkpoint, at the slower of storage and network."""
        return self.shard_bytes / min(self.storage_bytes_per_s, self.network_bytes_per_s)

    @property
    def snapshot_s(self) -> float:
        """Copy of the state from the GPUs to the memory of their nodes."""
        return self.shard_bytes / self.device_bytes_per_s

    @property
    def persist_s(self) -> float:
        """Read of the state from durable storage, or write to it, at the storage's full rate."""
        return self.state_bytes / self.storage_bytes_per_s

    @property
    def write_alone_s(self) -> float:
        """Write of the state to durable storage by a single checkpoint."""
        return self.persist_s / self.one_writer_share

    @property
    def durable_every_s(self) -> float:
        """Time between durable checkpoints of two-level schemes: none overtakes its own write."""
        return max(self.durable_period_s, self.write_alone_s)

    @property
    def full_restart_s(self) -> float:
        """Restart of the whole job and load of its state from durable storage."""
        return self.restart_s + self.persist_s


@dataclass(frozen=True, slots=True)
class Response:
    """Response of a scheme to a failure.

    Attributes:
        lost_staleness_share: Work to be made good, for soft failures, as a share of the work since
            the last checkpoint that can be used: half an interval and the lag, on average.
        waits: Whether the job waits first: it goes back to the scheduler, or stands still until it
            has another node. Not where it keeps its nodes, or has a standby one.
        absent_share: For soft failures after which the others train on: share of the work that is
            lost while a node is awaited.
    """

    level: RecoveryLevel
    restart_s: float
    lost_s: float = 0.0
    lost_staleness_share: float = 0.0
    waits: bool = True
    absent_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Costs and effects of a scheme for one job.

    Attributes:
        durable_period_s: Time between them, with two levels, 0 for one with every light one; with
            one level the longest interval, 0 where nothing bounds it.
        obstacle: Why the job cannot use the scheme, with what to change; None where it can. The
            scheme states only what is its own: nodes, memory and storage are checked for all.
    """

    responses: Mapping[Domain, Response]
    stall_s: float
    shortest_interval_s: float
    host_bytes: float
    storage_bytes: float
    slowdown: float = 0.0
    lag_s: float = 0.0
    two_levels: bool = False
    durable_period_s: float = 0.0
    durable_stall_s: float = 0.0
    durable_lag_s: float = 0.0
    min_nodes: int = 1
    memory_remedy: str = ""
    quality: str = "None: the state restored is one that training passed through."
    obstacle: str | None = None

    @property
    def survives(self) -> tuple[Domain, ...]:
        """Failures after which no durable checkpoint is needed."""
        return tuple(
            domain
            for domain, response in self.responses.items()
            if response.level is RecoveryLevel.SOFT
            or (self.two_levels and response.level is RecoveryLevel.LIGHT)
        )


class Scheme(ABC):
    """One way to keep what training has learnt through a failure.

    Contract, which the planner page relies on (`ettr.plan.schemes.base`) and which
    tests/plan/test_scheme_contract.py checks for every scheme of `SCHEMES`:

    - Every time, `host_bytes` and `absent_share` in `Terms` is c0 + c1 / n_nodes + c2 * restart_s,
      where the three may depend on everything else in the job.
    - `shortest_interval_s` is such a value, or one step if that is longer.
    - All else (levels, waits, slowdown, shares, `durable_period_s`, `min_nodes`, `storage_bytes`,
      `obstacle`) depends on neither nodes nor restart.

    A scheme that needs another shape (the logarithm of the nodes, say) changes the page first.

    Attributes:
        assumed: Its inputs (fields of the class) whose values no source gives; the others are as
            published.
    """

    name: str
    source: str
    assumptions: str
    assumed: tuple[str, ...] = ()

    @abstractmethod
    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`; see the contract of the class."""


def terms_for(scheme: Scheme, job: JobShape) -> Terms:
    """Terms of a scheme for a job, checked against the job's nodes, memory and storage."""
    return checked(scheme.terms(job), job)


def checked(terms: Terms, job: JobShape) -> Terms:
    """Terms with the obstacle that nodes, memory or storage raise, if any.

    On a job of one node the loss of the node, or of its rack, is that of the whole job.
    """
    obstacle = terms.obstacle or _lacking(terms, job)
    if job.n_nodes > 1 and obstacle == terms.obstacle:
        return terms
    responses = dict(terms.responses)
    if job.n_nodes == 1:
        responses |= dict.fromkeys((Domain.NODE, Domain.RACK), responses[Domain.JOB])
    return replace(terms, responses=responses, obstacle=obstacle)


def _lacking(terms: Terms, job: JobShape) -> str | None:
    if job.n_nodes < terms.min_nodes:
        return (
            f"it needs {terms.min_nodes} nodes or more and the job has {job.n_nodes}; use more "
            "nodes, or a scheme that writes to durable storage only"
        )
    if terms.host_bytes > job.host_bytes:
        needed, given = terms.host_bytes / 1e9, job.host_bytes / 1e9
        remedy = f"{terms.memory_remedy}, or use more nodes" if terms.memory_remedy else ""
        return (
            f"it needs {significant(needed, 4)} GB of a node's memory, which has "
            f"{significant(given, 4)} GB to give; {remedy or 'use more nodes'}"
        )
    if terms.storage_bytes > job.storage_space_bytes:
        needed, given = terms.storage_bytes / 1e12, job.storage_space_bytes / 1e12
        return (
            f"it needs {significant(needed, 4)} TB of durable storage and {significant(given, 4)} "
            "TB are given; give it more space, or use a scheme that keeps fewer checkpoints"
        )
    return None


def everywhere(response: Response) -> dict[Domain, Response]:
    """The same response whatever failed."""
    return dict.fromkeys(Domain, response)


LONGEST_INTERVAL_S = 7 * SECONDS_PER_DAY


def levels_of(
    terms: Terms, job: JobShape, per_s: Mapping[Domain, float], interval_s: float
) -> Levels:
    """The scheme at a checkpoint interval, each kind of failure with its own recovery."""
    return Levels(
        interval_s,
        terms.stall_s,
        terms.slowdown,
        terms.lag_s,
        n_light_per_durable(terms, interval_s),
        terms.durable_stall_s,
        terms.durable_lag_s,
        tuple(
            FailureKind(
                response.level,
                per_s.get(domain, 0.0),
                response.restart_s,
                _fixed_loss_s(response, job),
                response.lost_staleness_share,
                response.waits,
            )
            for domain, response in terms.responses.items()
        ),
        job.queue_s,
    )


def _fixed_loss_s(response: Response, job: JobShape) -> float:
    """Work to be made good whatever the interval: that of absent nodes included."""
    return response.lost_s + response.absent_share * job.queue_s


def n_light_per_durable(terms: Terms, interval_s: float) -> int:
    """Light checkpoints from one durable one to the next: the whole number nearest the period."""
    return max(1, math.floor(terms.durable_period_s / interval_s + 0.5))


def durable_every_s(terms: Terms, interval_s: float) -> float | None:
    """Productive time between durable checkpoints: the whole intervals nearest to their period.

    None for a scheme that has no such period.
    """
    apart = terms.two_levels and terms.durable_period_s > 0
    return n_light_per_durable(terms, interval_s) * interval_s if apart else None


def longest_interval_s(terms: Terms) -> float:
    """Longest interval that a scheme is tried at."""
    return terms.durable_period_s or LONGEST_INTERVAL_S


def lost_by_domain_s(terms: Terms, job: JobShape, interval_s: float) -> dict[Domain, float]:
    """Expected work lost in a failure, by what failed: to first order, half of what is unsaved.

    **Source**: derived in docs/explanation/checkpoint-schemes.md.
    """
    staleness_s = interval_s / 2.0 + terms.lag_s
    durable_s = n_light_per_durable(terms, interval_s) * interval_s / 2.0 + terms.durable_lag_s
    lost = {}
    for domain, response in terms.responses.items():
        if response.level is RecoveryLevel.SOFT:
            fixed_s = _fixed_loss_s(response, job)
            lost[domain] = fixed_s + response.lost_staleness_share * staleness_s
        else:
            lost[domain] = staleness_s if response.level is RecoveryLevel.LIGHT else durable_s
    return lost


def expected_lost_s(lost_s: Mapping[Domain, float], per_s: Mapping[Domain, float]) -> float:
    """Expected work lost a failure: the mean over domains, each by its share of the failures."""
    total = sum(per_s.values())
    return sum(per_s.get(d, 0.0) * lost for d, lost in lost_s.items()) / total if total else 0.0


_NO_STEP_S = 1e-12
_LATER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + over_nodes / n_nodes + per_restart_s * restart_s."""

    constant: float
    over_nodes: float
    per_restart_s: float

    def at(self, n_nodes: float, restart_s: float) -> float:
        """The value for so many nodes and such a restart."""
        return self.constant + self.over_nodes / n_nodes + self.per_restart_s * restart_s


@dataclass(frozen=True, slots=True)
class AffineTerms:
    """The terms of a scheme for a job, for any number of nodes and any restart time."""

    fixed: Terms
    stall_s: Affine
    lag_s: Affine
    durable_stall_s: Affine
    durable_lag_s: Affine
    shortest_interval_s: Affine
    host_bytes: Affine
    restart_s: Mapping[Domain, Affine]
    lost_s: Mapping[Domain, Affine]
    absent_share: Mapping[Domain, Affine]

    def at(self, job: JobShape) -> Terms:
        """The terms for the nodes and the restart time of `job`, all else as it was fitted."""

        def value(of: Affine) -> float:
            return of.at(job.n_nodes, job.restart_s)

        terms = replace(
            self.fixed,
            responses={
                domain: Response(
                    response.level,
                    value(self.restart_s[domain]),
                    value(self.lost_s[domain]),
                    response.lost_staleness_share,
                    response.waits,
                    value(self.absent_share[domain]),
                )
                for domain, response in self.fixed.responses.items()
            },
            stall_s=value(self.stall_s),
            lag_s=value(self.lag_s),
            durable_stall_s=value(self.durable_stall_s),
            durable_lag_s=value(self.durable_lag_s),
            shortest_interval_s=max(job.step_s, value(self.shortest_interval_s)),
            host_bytes=value(self.host_bytes),
        )
        return checked(terms, job)


def affine_terms(scheme: Scheme, job: JobShape) -> AffineTerms:
    """The terms of a scheme for a job, fitted at one node and at two, and at two restart times."""
    # a step so short that it is never the longer of two
    stepless = replace(job, step_s=_NO_STEP_S)

    def fitted(of: Callable[[Terms], float], base: JobShape = job) -> Affine:
        def at(n_nodes: int, restart_s: float) -> float:
            return of(scheme.terms(replace(base, n_nodes=n_nodes, restart_s=restart_s)))

        one = at(1, 0.0)
        over_nodes = 2.0 * (one - at(2, 0.0))
        return Affine(one - over_nodes, over_nodes, (at(1, _LATER_S) - one) / _LATER_S)

    def of_response(of: Callable[[Response], float], domain: Domain) -> Affine:
        return fitted(lambda terms: of(terms.responses[domain]))

    return AffineTerms(
        fixed=scheme.terms(job),
        stall_s=fitted(lambda terms: terms.stall_s),
        lag_s=fitted(lambda terms: terms.lag_s),
        durable_stall_s=fitted(lambda terms: terms.durable_stall_s),
        durable_lag_s=fitted(lambda terms: terms.durable_lag_s),
        shortest_interval_s=fitted(lambda terms: terms.shortest_interval_s, stepless),
        host_bytes=fitted(lambda terms: terms.host_bytes),
        restart_s={d: of_response(lambda one: one.restart_s, d) for d in Domain},
        lost_s={d: of_response(lambda one: one.lost_s, d) for d in Domain},
        absent_share={d: of_response(lambda one: one.absent_share, d) for d in Domain},
    )
