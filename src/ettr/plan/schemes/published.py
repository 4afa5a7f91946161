"""Published checkpoint schemes, one class each, with the paper it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ettr.plan.schemes.base import (
    Domain,
    JobShape,
    RecoveryLevel,
    Response,
    Scheme,
    Terms,
    everywhere,
)
from ettr.words import significant


@dataclass(frozen=True)
class Synchronous(Scheme):
    """Stop, write, go on."""

    name = "synchronous"
    source = "Young (1974); Kokolis et al. (HPCA 2025), whose w it is"
    assumptions = "Copy and write follow each other."

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=job.snapshot_s + job.write_alone_s,
            shortest_interval_s=job.step_s,
            host_bytes=0.0,
            # the last complete one stays until the next is
            storage_bytes=2 * job.state_bytes,
        )


@dataclass(frozen=True)
class Asynchronous(Scheme):
    """One checkpoint under way at a time."""

    slowdown: float = 0.0

    assumed = ("slowdown",)
    name = "asynchronous"
    source = "CheckFreq (Mohan et al., FAST 2021); DCP, torch.distributed.checkpoint.async_save"
    assumptions = (
        "The copy stalls training in full (CheckFreq overlaps part of it, and bounds its overhead "
        "at 3.5 %); the write costs no more than `slowdown`."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            host_bytes=job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
        )


@dataclass(frozen=True)
class Concurrent(Scheme):
    """As many checkpoints under way as the interval needs.

    Attributes:
        steps_per_checkpoint: Steps of training that each checkpoint costs; 3 % at one checkpoint
            in 10 steps, as published.
    """

    most_under_way: int = 4
    steps_per_checkpoint: float = 0.3

    name = "concurrent"
    source = "PCcheck (Strati, Friedman, Klimovic, ASPLOS 2025)"
    assumptions = (
        "Each checkpoint writes at the rate that one alone reaches and no more are under way than "
        "the storage serves at that rate, so they help only where one alone does not fill it "
        "(--one-writer-share under 1); the overhead published, 3 % at a checkpoint every 10 steps, "
        "is one of each checkpoint, and the copy to memory comes on top; `most-under-way` is "
        "assumed."
    )
    assumed = ("most_under_way",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        served = math.floor(1.0 / job.one_writer_share + 1e-9)
        n_under_way = min(self.most_under_way, served)
        return Terms(
            responses=everywhere(Response(RecoveryLevel.LIGHT, job.full_restart_s)),
            stall_s=job.snapshot_s + self.steps_per_checkpoint * job.step_s,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s / n_under_way),
            # a copy for each that is under way
            host_bytes=n_under_way * job.shard_bytes,
            storage_bytes=(n_under_way + 1) * job.state_bytes,
            memory_remedy="keep fewer under way",
        )


@dataclass(frozen=True)
class MemoryCopies(Scheme):
    """k copies in memory, one of them local, and now and then one in durable storage."""

    n_copies: int = 2
    spans_racks: bool = True

    name = "in-memory copies"
    source = "Gemini (Wang et al., SOSP 2023)"
    assumptions = (
        "Traffic hides in the idle time of the network over the next step, as Gemini arranges; two "
        "buffers a copy and a third for the durable checkpoint under way, which stalls training "
        "for its copy and outlives a node, as its peer writes on; no two failures hit all copies "
        "of a shard at once; copies lie in different racks."
    )
    assumed = ("spans_racks",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        send_s = (self.n_copies - 1) * job.shard_bytes / job.network_bytes_per_s
        from_memory = Response(RecoveryLevel.LIGHT, job.restart_s + job.fetch_s)
        # the job keeps its nodes, whose memory is all that it needs
        in_place = Response(RecoveryLevel.LIGHT, job.restart_s, waits=False)
        durable = Response(RecoveryLevel.DEEP, job.full_restart_s)
        return Terms(
            responses={
                Domain.PROCESS: in_place,
                Domain.NODE: from_memory if self.n_copies > 1 else durable,
                Domain.RACK: from_memory if self.n_copies > 1 and self.spans_racks else durable,
                Domain.JOB: durable,
            },
            stall_s=0.0,
            # the traffic is spread over the idle time of the next step
            lag_s=job.snapshot_s + job.step_s + send_s,
            shortest_interval_s=max(job.step_s, job.snapshot_s + send_s),
            host_bytes=3 * self.n_copies * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            two_levels=True,
            durable_period_s=job.durable_every_s,
            durable_stall_s=job.snapshot_s,
            durable_lag_s=job.write_alone_s,
            min_nodes=self.n_copies,
            memory_remedy="keep fewer copies",
        )


@dataclass(frozen=True)
class MemoryErasure(Scheme):
    """One parity over a group of nodes, in memory, and now and then a durable checkpoint."""

    group_nodes: int = 8
    spans_racks: bool = False

    name = "in-memory erasure code"
    source = "REFT (Wang et al., arXiv 2310.12670v1)"
    assumptions = (
        "One parity a group; two buffers and a third for the durable checkpoint under way, which "
        "stalls training for its copy and outlives a node, as the parity has it too; the code is "
        "computed during training; the death of a process leaves the snapshot of its "
        "node intact; group size and place are assumed."
    )
    assumed = ("group_nodes", "spans_racks")

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        parity_bytes = job.shard_bytes / (self.group_nodes - 1)
        exchange_s = job.shard_bytes / job.network_bytes_per_s
        # the new node reads its group, and the replicas that it holds
        decode_bytes = (self.group_nodes - 2) * job.shard_bytes + job.held_bytes
        durable = Response(RecoveryLevel.DEEP, job.full_restart_s)
        # the job keeps its nodes, whose memory is all that it needs
        in_place = Response(RecoveryLevel.LIGHT, job.restart_s, waits=False)
        rebuilt = Response(
            RecoveryLevel.LIGHT, job.restart_s + decode_bytes / job.network_bytes_per_s
        )
        return Terms(
            responses={
                Domain.PROCESS: in_place,
                Domain.NODE: rebuilt,
                Domain.RACK: rebuilt if self.spans_racks else durable,
                Domain.JOB: durable,
            },
            stall_s=0.0,
            lag_s=job.snapshot_s + exchange_s,
            shortest_interval_s=max(job.step_s, job.snapshot_s + exchange_s),
            host_bytes=3 * (job.shard_bytes + parity_bytes),
            storage_bytes=2 * job.state_bytes,
            two_levels=True,
            durable_period_s=job.durable_every_s,
            durable_stall_s=job.snapshot_s,
            durable_lag_s=job.write_alone_s,
            min_nodes=self.group_nodes,
        )


def healing_terms(
    job: JobShape, healed: Mapping[Domain, Response], *, checkpoints: int = 2
) -> Terms:
    """Terms of a scheme that heals some failures, and saves asynchronously for all others."""
    back = Response(RecoveryLevel.LIGHT, job.full_restart_s)
    return Terms(
        responses=dict.fromkeys(Domain, back) | dict(healed),
        stall_s=job.snapshot_s,
        lag_s=job.write_alone_s,
        shortest_interval_s=max(job.step_s, job.write_alone_s),
        host_bytes=job.shard_bytes,
        storage_bytes=checkpoints * job.state_bytes,
        min_nodes=2,
        obstacle=None
        if job.replicas > 1
        else "the state has no replica to heal from; train with two data-parallel copies",
    )


@dataclass(frozen=True)
class JustInTime(Scheme):
    """At user level: the survivors save, the job restarts; a periodic checkpoint for the rest."""

    name = "just in time"
    source = "Just-In-Time Checkpointing, user level (Gupta et al., EuroSys 2024)"
    assumptions = (
        "Replicas lie in different racks; one step is repeated; the state passes through durable "
        "storage to the restarted job; steady overhead is nil, as periodic checkpoints are rare."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        passed_on_s = job.write_alone_s + job.persist_s
        healed = Response(RecoveryLevel.SOFT, job.restart_s + passed_on_s, lost_s=job.step_s)
        outlived = (Domain.PROCESS, Domain.NODE, Domain.RACK)
        # two periodic ones, and the one of the moment
        return healing_terms(job, dict.fromkeys(outlived, healed), checkpoints=3)


@dataclass(frozen=True)
class JustInTimeSystem(Scheme):
    """At system level:"""

    recover_s: float = 10.0

    name = "system-level just in time"
    source = "Just-In-Time Checkpointing, transparent (Gupta et al., EuroSys 2024)"
    assumptions = (
        "Published are a few seconds for each GPU and one step repeated; `recover` is assumed. A "
        "lost node is replaced and gets its state from a replica; replicas lie in different racks."
    )
    assumed = ("recover_s",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        in_place = Response(
            RecoveryLevel.SOFT, self.recover_s + job.fetch_s, lost_s=job.step_s, waits=False
        )
        moved = Response(
            RecoveryLevel.SOFT, job.replace_s + self.recover_s + job.fetch_s, lost_s=job.step_s
        )
        return healing_terms(
            job, {Domain.PROCESS: in_place, Domain.NODE: moved, Domain.RACK: moved}
        )


@dataclass(frozen=True)
class HotSwap(Scheme):
    """Warm standby nodes, swapped in without a restart of the job.

    Attributes:
        swap_s: From the failure until training goes on, without the transfer of the state.
    """

    swap_s: float = 40.0

    name = "hot swap"
    source = "DeadPool (under 40 s on 512 A100); TorchPass"
    assumptions = (
        "`swap` is DeadPool's published upper bound, taken to hold at any size; a standby node "
        "is always at hand, which costs its GPU-hours, and gets its state from a replica; one "
        "step is repeated; the loss of a rack is more than the standby nodes replace."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        swapped = Response(
            RecoveryLevel.SOFT, self.swap_s + job.fetch_s, lost_s=job.step_s, waits=False
        )
        return healing_terms(job, dict.fromkeys((Domain.PROCESS, Domain.NODE), swapped))


@dataclass(frozen=True)
class ReplicaRestart(Scheme):
    """Fault-tolerant hybrid sharding: data-parallel replicas come and go."""

    pause_s: float = 180.0

    name = "replica restart"
    source = "FT-HSDP (stall of 10 min cut to 3 min at 100,000 GPUs)"
    assumptions = (
        "The 3 min published hold at any size; while the lost replica waits for a node and "
        "restarts its share of the work is lost; one step is repeated; a rack holds nodes of one "
        "replica only."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        # one replica of so many does no work while it restarts
        absent_s = (job.restart_s + job.fetch_s) / job.replicas
        paused = Response(
            RecoveryLevel.SOFT, self.pause_s, lost_s=job.step_s + absent_s, waits=False
        )
        awaiting = replace(paused, absent_share=1.0 / job.replicas)
        return healing_terms(
            job, {Domain.PROCESS: paused, Domain.NODE: awaiting, Domain.RACK: awaiting}
        )


@dataclass(frozen=True)
class CommunicatorEdit(Scheme):
    """Elastic training: fewer nodes until a new one joins."""

    edit_s: float = 1.0
    replan_s: float = 30.0

    name = "communicator edit"
    source = "ElasWave (communicators edited in under 1 s on 96 NPUs)"
    assumptions = (
        "`edit` is the published bound, taken to hold at any size; `replan` is assumed; the part "
        "of the lost node comes from a replica at the network rate of one node; until a new node "
        "joins, after --queue and --replace, the work of one node is lost; one step is repeated."
    )
    assumed = ("replan_s",)

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        edited = Response(
            RecoveryLevel.SOFT,
            self.replan_s + 2 * self.edit_s + job.fetch_s,
            lost_s=job.step_s + job.replace_s / job.n_nodes,
            waits=False,
        )
        awaiting = replace(edited, absent_share=1.0 / job.n_nodes)
        return healing_terms(job, {Domain.PROCESS: edited, Domain.NODE: awaiting})


@dataclass(frozen=True)
class PeerRecovery(Scheme):
    """Fast detection, replacement and a copy from a replica."""

    recovery_s: float = 150.0

    name = "peer recovery"
    source = "FlashRecovery (150 s on 4,800 devices)"
    assumptions = (
        "The 150 s published hold at any size and state, as the paper claims constant time; one "
        "step is repeated; for a lost node another is awaited; the loss of a rack goes back to a "
        "checkpoint."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        recovered = Response(RecoveryLevel.SOFT, self.recovery_s, lost_s=job.step_s)
        in_place = replace(recovered, waits=False)
        return healing_terms(job, {Domain.PROCESS: in_place, Domain.NODE: recovered})


@dataclass(frozen=True)
class Checkpointless(Scheme):
    """Recovery without a restart of the job, in a managed cluster with spare nodes."""

    recovery_s: float = 120.0

    name = "checkpointless"
    source = "SageMaker HyperPod checkpointless training (15-30 min cut to under 2 min)"
    assumptions = (
        "`recovery` is the published upper bound, taken to hold at any size and state; one step "
        "is repeated; spare nodes are at hand; the loss of a rack goes back to a checkpoint."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        recovered = Response(RecoveryLevel.SOFT, self.recovery_s, lost_s=job.step_s, waits=False)
        return healing_terms(job, dict.fromkeys((Domain.PROCESS, Domain.NODE), recovered))


@dataclass(frozen=True)
class LoggingReplay(Scheme):
    """Heal from a replica where there is one, else replay the log from the last checkpoint.

    Attributes:
        replay_share: Time to replay some work, as a share of it; several nodes share the replay.
    """

    replay_share: float = 0.5
    slowdown: float = 0.01

    name = "logging and replay"
    source = "Swift (Zhong et al., arXiv 2302.06173; IEEE TPDS 2024)"
    assumptions = (
        "`replay-share` and `slowdown` are assumed: measure them on the pipeline. Checkpoints go "
        "on during a replay, a further failure adds its own; each checkpoint drops the log before."
    )
    assumed = ("replay_share", "slowdown")

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        if job.replicas > 1:
            repaired = Response(RecoveryLevel.SOFT, job.replace_s + job.fetch_s, lost_s=job.step_s)
        else:
            repaired = Response(
                RecoveryLevel.SOFT,
                job.replace_s + job.shard_read_s,
                lost_staleness_share=self.replay_share,
            )
        back = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        logs = job.replicas == 1
        # from one durable checkpoint until the next can be used
        logged_s = job.durable_every_s + job.write_alone_s
        log_bytes = job.logged_bytes_per_step * logged_s / job.step_s
        return Terms(
            responses={
                Domain.PROCESS: replace(repaired, waits=False),
                Domain.NODE: repaired,
                Domain.RACK: back,
                Domain.JOB: back,
            },
            stall_s=job.snapshot_s,
            slowdown=self.slowdown if logs else 0.0,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            durable_period_s=job.durable_every_s if logs else 0.0,
            host_bytes=job.shard_bytes,
            storage_bytes=2 * job.state_bytes + (log_bytes if logs else 0.0),
            min_nodes=2,
            obstacle=None if job.replicas > 1 else _log_obstacle(job),
        )


def _log_obstacle(job: JobShape) -> str | None:
    """Why a job without replicas cannot keep a log; None where it can."""
    if not job.logged_bytes_per_step:
        return "there is neither a replica nor a log; give --logged-bytes of a pipeline"
    log_bytes_per_s = job.logged_bytes_per_step / job.step_s
    if log_bytes_per_s > job.storage_bytes_per_s:
        return (
            f"its log of {significant(log_bytes_per_s / 1e9)} GB/s is more than the "
            f"{significant(job.storage_bytes_per_s / 1e9)} GB/s that storage takes; log less, or "
            "train with two data-parallel copies"
        )
    return None


@dataclass(frozen=True)
class PartialRecovery(Scheme):
    """Restore the lost shards from a running checkpoint and train on.

    The work lost is the iteration cost ι: the extra steps to the loss that training would have
    had. It is stated as a share of the staleness of what was restored: half an interval and the
    write of a checkpoint, on average.
    """

    iteration_cost_share: float = 0.3
    slowdown: float = 0.0

    assumed = ("iteration_cost_share", "slowdown")
    name = "partial recovery"
    source = "SCAR (Qiao et al., ICML 2019); CPR (Maeng et al., MLSys 2021)"
    assumptions = (
        "`iteration-cost-share` 0.3 was seen on one small transformer with a tuned learning rate "
        "and a quarter lost, up to 0.7 with an untuned one: measure it on your model. The others "
        "live, and their writes under way complete."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        mended = Response(
            RecoveryLevel.SOFT,
            job.replace_s + job.shard_read_s,
            lost_staleness_share=self.iteration_cost_share,
        )
        responses = dict.fromkeys((Domain.PROCESS, Domain.NODE, Domain.RACK), mended)
        responses[Domain.PROCESS] = replace(mended, waits=False)
        responses[Domain.JOB] = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        return Terms(
            responses=responses,
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            # the running checkpoint is cached to find what has changed
            host_bytes=2 * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            min_nodes=2,
            quality=(
                "Approximate: lost parameters go back while others do not; training corrects "
                "the perturbation, at the cost counted here, if it converges by itself."
            ),
        )


@dataclass(frozen=True)
class EmbeddingParity(Scheme):
    """Erasure-coded tables in memory; dense parameters are replicated anyway."""

    group_nodes: int = 4
    slowdown: float = 0.02

    assumed = ("group_nodes", "slowdown")
    name = "embedding parity"
    source = "ECRM (Liu, Kosaian, Rashmi, arXiv 2104.01981)"
    assumptions = (
        "`slowdown` is assumed; training goes on while a shard is rebuilt, so only the "
        "replacement stops it; one server of a group at a time."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        rebuilt = Response(RecoveryLevel.SOFT, job.replace_s, lost_s=job.step_s)
        back = Response(RecoveryLevel.LIGHT, job.full_restart_s)
        tables = job.embedding_share * job.shard_bytes
        return Terms(
            responses={
                Domain.PROCESS: replace(rebuilt, waits=False),
                Domain.NODE: rebuilt,
                Domain.RACK: back,
                Domain.JOB: back,
            },
            stall_s=job.snapshot_s,
            slowdown=self.slowdown,
            lag_s=job.write_alone_s,
            shortest_interval_s=max(job.step_s, job.write_alone_s),
            host_bytes=tables / self.group_nodes + job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            min_nodes=self.group_nodes,
            obstacle=None
            if job.embedding_share >= 0.5
            else "less than half of the state is in embedding tables; use a scheme for dense state",
        )


@dataclass(frozen=True)
class PartialExperts(Scheme):
    """Everything but the experts, and a share of the experts in turn."""

    saved_share: float = 0.125

    name = "partial experts"
    source = "MoC-System (Cai et al., ASPLOS 2025, arXiv 2408.04307)"
    assumptions = (
        "Two levels, asynchronous: a snapshot in the memory of each node, which outlives a process "
        "and not its node, and each snapshot written to storage; three buffers; a restore mixes "
        "experts of several checkpoints; durable reads fetch the whole state."
    )

    def terms(self, job: JobShape) -> Terms:
        """Terms of the scheme for `job`."""
        share = 1.0 - job.expert_share * (1.0 - self.saved_share)
        write_s = share * job.write_alone_s
        from_memory = Response(RecoveryLevel.LIGHT, job.restart_s + job.snapshot_s, waits=False)
        from_storage = Response(RecoveryLevel.DEEP, job.full_restart_s)
        return Terms(
            responses={
                Domain.PROCESS: from_memory,
                Domain.NODE: from_storage,
                Domain.RACK: from_storage,
                Domain.JOB: from_storage,
            },
            stall_s=share * job.snapshot_s,
            shortest_interval_s=max(job.step_s, write_s),
            # the experts that are not in the last snapshot stay from earlier ones
            host_bytes=job.shard_bytes + 2 * share * job.shard_bytes,
            storage_bytes=2 * job.state_bytes,
            two_levels=True,
            durable_lag_s=write_s,
            quality=(
                "Approximate: experts not in the last checkpoint lose tokens; accuracy held in "
                "the paper while at most 3.75 % of tokens were lost."
            ),
            obstacle=None
            if job.expert_share > 0
            else "the state has no experts; give --expert-share, or use asynchronous",
        )
