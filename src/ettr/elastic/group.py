"""What a generation needs of the group it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ettr.elastic.buddies.ring import Ring
    from ettr.elastic.buddies.shard_history import ShardStore
    from ettr.elastic.membership.rendezvous import Membership
    from ettr.elastic.protection import Protection
    from ettr.elastic.restore.rank_inventory import RecoveryReport
    from ettr.recovery.timings import Measuring


class RankGroup(Protocol):
    """The ranks of a run, seen from one of them: `ElasticGroup` and `TorchrunGroup`."""

    @property
    def protection(self) -> Protection:
        """What guards the shards."""

    @property
    def fingerprints(self) -> bool:
        """Whether the shard is hashed at each recovery."""

    @property
    def shards(self) -> ShardStore:
        """This rank's memory over the generations."""

    @property
    def timings(self) -> Measuring:
        """What was timed of the run."""

    @property
    def stop_reason(self) -> str | None:
        """Why this rank is to end after the next step; None: it goes on."""

    def open_ring(self, membership: Membership, slot: int, following: int) -> Ring:
        """Open a rank's connections to its neighbours in a generation."""

    def recovered(self, membership: Membership, report: RecoveryReport, begin_s: float) -> None:
        """Record that a generation has its state; `begin_s` is when it began to recover (Unix)."""

    def updated(self, membership: Membership, step: int, step_s: float, save_s: float) -> None:
        """Record that an update was made and copied."""
