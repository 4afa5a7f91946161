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
from ettr.plan.schemes.concurrent import Concurrent
from ettr.plan.schemes.embedding_parity import EmbeddingParity
from ettr.plan.schemes.just_in_time import JustInTime
from ettr.plan.schemes.logging_replay import LoggingReplay
from ettr.plan.schemes.memory_copies import MemoryCopies
from ettr.plan.schemes.memory_erasure import MemoryErasure
from ettr.plan.schemes.partial_experts import PartialExperts
from ettr.plan.schemes.partial_recovery import PartialRecovery
from ettr.plan.schemes.synchronous import Synchronous

SCHEMES: tuple[Scheme, ...] = (
    Synchronous(),
    Asynchronous(),
    Concurrent(),
    MemoryCopies(),
    MemoryErasure(),
    JustInTime(),
    LoggingReplay(),
    PartialRecovery(),
    EmbeddingParity(),
    PartialExperts(),
)

__all__ = [
    "SCHEMES",
    "Asynchronous",
    "Concurrent",
    "Domain",
    "EmbeddingParity",
    "JobShape",
    "JustInTime",
    "LoggingReplay",
    "MemoryCopies",
    "MemoryErasure",
    "PartialExperts",
    "PartialRecovery",
    "RecoveryLevel",
    "Response",
    "Scheme",
    "Synchronous",
    "Terms",
    "terms_for",
]
