"""Terms of a checkpoint scheme for a job, and the class that every scheme extends."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from ettr.defaults import (
    DEVICE_BYTES_PER_S,
    DURABLE_PERIOD_S,
    HOST_BYTES,
    NETWORK_BYTES_PER_S,
    REPLACE_S,
)
from ettr.plan.levels import RecoveryLevel
from ettr.plan.run import RunShape

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
        state_bytes: Parameters, optimizer and all else that a checkpoint holds, once.
        step_s: Time of one training step.
        storage_bytes_per_s: What the job as a whole can write to durable storage, and read.
        network_bytes_per_s: Of one node, to its peers.
        device_bytes_per_s: Of one node, from its GPUs to its memory.
        host_bytes: Memory of one node that checkpoints may use.
        storage_space_bytes: Durable storage that checkpoints may fill; without limit if infinite.
        replace_s: Replacement of what failed while the others stay up.
        replicas: Complete copies of the state that training itself keeps (data parallelism).
        one_writer_share: Share of the storage's rate that a single checkpoint reaches.
        durable_period_s: Time between durable checkpoints, for schemes with two levels.
        embedding_share: Share of the state in embedding tables.
        expert_share: Share of the state in experts.
        logged_bytes_per_step: What passes between pipeline stages in a step, whole job.
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
        level: From where training goes on.
        restart_s: Until it trains, waits not counted.
        lost_s: Work to be made good, for soft failures, that does not depend on the interval.
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
        responses: By what failed.
        stall_s: Training stops so long for a light checkpoint.
        slowdown: Steady overhead in addition to the stalls, as a share of the step time.
        lag_s: From a stall until the checkpoint can be used.
        shortest_interval_s: Light checkpoints cannot come faster.
        two_levels: Durable checkpoints are taken apart from the light ones.
        durable_period_s: Time between them, with two levels, 0 for one with every light one; with
            one level the longest interval, 0 where nothing bounds it.
        durable_stall_s: Training stops so long for each of them, in addition.
        durable_lag_s: From that stall until it can be used.
        min_nodes: The scheme needs so many nodes, such as a group that shares a parity.
        host_bytes: Memory needed in one node.
        storage_bytes: Durable storage needed.
        memory_remedy: What else than more nodes makes it need less memory, as an order.
        quality: Effect on the model trained, in a sentence.
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

    Contract, which the planner page relies on (`ettr.plan.schemes.affine`) and which
    tests/plan/test_scheme_contract.py checks for every scheme of `SCHEMES`:

    - Every time, `host_bytes` and `absent_share` in `Terms` is c0 + c1 / n_nodes + c2 * restart_s,
      where the three may depend on everything else in the job.
    - `shortest_interval_s` is such a value, or one step if that is longer.
    - All else (levels, waits, slowdown, shares, `durable_period_s`, `min_nodes`, `storage_bytes`,
      `obstacle`) depends on neither nodes nor restart.

    A scheme that needs another shape (the logarithm of the nodes, say) changes the page first.

    Attributes:
        name: As the table of schemes has it.
        source: Where it was published.
        assumptions: What the class adds to its source, in sentences.
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
            f"it needs {needed:.4g} GB of a node's memory, which has {given:.4g} GB to give; "
            f"{remedy or 'use more nodes'}"
        )
    if terms.storage_bytes > job.storage_space_bytes:
        needed, given = terms.storage_bytes / 1e12, job.storage_space_bytes / 1e12
        return (
            f"it needs {needed:.4g} TB of durable storage and {given:.4g} TB are given; give it "
            "more space, or use a scheme that keeps fewer checkpoints"
        )
    return None


def everywhere(response: Response) -> dict[Domain, Response]:
    """The same response whatever failed."""
    return dict.fromkeys(Domain, response)
