"""Checkpoint schemes: one small class each, with the paper it comes from."""

from ettr.plan.schemes.asynchronous import Asynchronous
from ettr.plan.schemes.base import (
    Domain,
    JobShape,
    RecoveryLevel,
    Response,
    Scheme,
    Terms,
    terms_for,
)
from ettr.plan.schemes.checkpointless import Checkpointless
from ettr.plan.schemes.communicator_edit import CommunicatorEdit
from ettr.plan.schemes.concurrent import Concurrent
from ettr.plan.schemes.embedding_parity import EmbeddingParity
from ettr.plan.schemes.hot_swap import HotSwap
from ettr.plan.schemes.just_in_time import JustInTime
from ettr.plan.schemes.just_in_time_system import JustInTimeSystem
from ettr.plan.schemes.logging_replay import LoggingReplay
from ettr.plan.schemes.memory_copies import MemoryCopies
from ettr.plan.schemes.memory_erasure import MemoryErasure
from ettr.plan.schemes.partial_experts import PartialExperts
from ettr.plan.schemes.partial_recovery import PartialRecovery
from ettr.plan.schemes.peer_recovery import PeerRecovery
from ettr.plan.schemes.replica_restart import ReplicaRestart
from ettr.plan.schemes.synchronous import Synchronous

SCHEMES: tuple[Scheme, ...] = (
    Synchronous(),
    Asynchronous(),
    Concurrent(),
    MemoryCopies(),
    MemoryErasure(),
    JustInTime(),
    JustInTimeSystem(),
    HotSwap(),
    ReplicaRestart(),
    CommunicatorEdit(),
    PeerRecovery(),
    Checkpointless(),
    LoggingReplay(),
    PartialRecovery(),
    EmbeddingParity(),
    PartialExperts(),
)

__all__ = [
    "SCHEMES",
    "Asynchronous",
    "Checkpointless",
    "CommunicatorEdit",
    "Concurrent",
    "Domain",
    "EmbeddingParity",
    "HotSwap",
    "JobShape",
    "JustInTime",
    "JustInTimeSystem",
    "LoggingReplay",
    "MemoryCopies",
    "MemoryErasure",
    "PartialExperts",
    "PartialRecovery",
    "PeerRecovery",
    "RecoveryLevel",
    "ReplicaRestart",
    "Response",
    "Scheme",
    "Synchronous",
    "Terms",
    "terms_for",
]
