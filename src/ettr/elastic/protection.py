"""What guards the shard of a rank, and how a lost one may be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ettr.errors import refuse, too_small
from ettr.recovery import RecoveryPolicy

EARLIER_RUN = ("keep", "stop")


@dataclass(frozen=True, slots=True)
class Protection:
    """Where a lost shard can come from; any mixture, or nothing.

    Attributes:
        buddy: Every rank keeps its last two updates and those of the previous rank in host memory:
            four images of a shard with its moments. Exact.
        parity: Ranks of a group that keep one XOR parity of their shards, in place of a buddy's
            copies: 1/(parity - 1) of a shard on each. Exact for one lost rank of a group; but if
            it is lost between the vote and the end of the copy, another source is taken. 0: none.
        parity_images: Keep two images of the own shard and two parities besides, so that there is
            no such moment.
        replicas: Ranks hold the same tensors (DDP, HSDP): nothing is copied at a step, and a lost
            rank takes what another holds now, buffers and random state too, in place of a buddy's
            copies. Where ranks of one step differ, another source is taken.
        running: Folder of a running checkpoint, of which each rank saves a part at every step.
        earlier_run: If a run is to start at step 0 and `running` holds later steps: `keep` moves
            them aside, `stop` is an error. (To resume from them allow `RecoverySource.COMPOSITE`.)
        running_options: For `RunningCheckpoint`: policy, budget, every_steps, ...
        full: Folder of full checkpoints, each of one step, through torch.distributed.checkpoint.
        full_every_steps: A full checkpoint is due at steps that this divides.
        objects_bytes: Room for objects (schedulers, loaders) in each copy of a shard; None: four
            times what they take when they are built, at least 64 KiB.
        mttf_s: Mean time to failure of the whole job. With it `full_every_steps` holds only until
            the first save; from then on the distance is the one of largest expected ETTR, from the
            measured stall and step time.
    """

    buddy: bool = True
    parity: int = 0
    parity_images: bool = False
    replicas: bool = False
    running: Path | None = None
    earlier_run: str = "keep"
    running_options: Mapping[str, Any] = field(default_factory=dict)
    full: Path | None = None
    full_every_steps: int = 100
    objects_bytes: int | None = None
    mttf_s: float | None = None
    recovery: RecoveryPolicy = field(default_factory=RecoveryPolicy)

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: a value is out of range."""
        problems = too_small(self, full_every_steps=1)
        if self.parity < 0 or self.parity == 1:
            problems.append(f"parity: {self.parity} was given; give 2 ranks or more, or 0")
        if self.parity and self.replicas:
            problems.append("parity, replicas: both were given; replicas need no parity")
        if self.mttf_s is not None and not self.mttf_s > 0:
            problems.append(f"mttf_s: {self.mttf_s} was given; give a number above 0")
        if self.earlier_run not in EARLIER_RUN:
            problems.append(
                f"earlier_run: {self.earlier_run!r} was given; give one of {', '.join(EARLIER_RUN)}"
            )
        refuse("protection", problems)

    @property
    def copies(self) -> bool:
        """Whether shards are copied to other ranks, whole or as a parity."""
        return (self.buddy or self.parity > 0) and not self.replicas

    @property
    def timings_folder(self) -> Path | None:
        """Where the timings of the run are kept for a job that loses every process."""
        return self.full or self.running

    @property
    def scheme(self) -> str:
        """What is used, as one word: `buddy+full`; `none` for nothing."""
        memory = "parity" if self.parity else "buddy"
        used = (
            (memory, self.copies),
            ("replicas", self.replicas),
            ("running", self.running),
            ("full", self.full),
        )
        return "+".join(name for name, on in used if on) or "none"
