"""Copies of whole steps that are kept next to a running checkpoint, each a root of its own.

    RunningCheckpoint(root, state, policy="full", keep=Keep(last=2, every_steps=1000, best="loss"))

A copy lies in `step-<number>/slot-<slot>` below the root; `restore` and `verify` read it there, and
`resume_or_begin(step=)` goes on from it. It appears whole under its name, and goes so.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ettr.checkpoint.slots.durable_io import make_folder, replacing
from ettr.checkpoint.slots.writer import SlotWriter
from ettr.errors import UsageError
from ettr.files import flush

_STEP = re.compile(r"step-(\d+)$")
_METRICS = "metrics.json"


@dataclass(frozen=True, slots=True)
class Keep:
    """Which steps are kept as whole copies, of those that a round saves; each may keep more.

    Attributes:
        every_steps: Those that this divides, always.
        best: Those with the smallest values of this metric, given as `metrics` of `step`.
    """

    last: int = 0
    every_steps: int | None = None
    milestones: tuple[int, ...] = ()
    best: str | None = None
    n_best: int = 1
    highest: bool = False

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: one is out of range."""
        if self.last < 0 or self.n_best < 1 or (self.every_steps or 1) < 1:
            raise UsageError(
                f"keep: last={self.last}, every_steps={self.every_steps} and n_best={self.n_best} "
                f"were given; last is 0 or more, the others 1 or more"
            )

    def chosen(self, metrics_of: Mapping[int, Mapping[str, float]]) -> set[int]:
        """The steps to keep, of those that there are."""
        kept = set(sorted(metrics_of)[-self.last :] if self.last else ())
        kept |= {step for step in metrics_of if self.every_steps and step % self.every_steps == 0}
        kept |= metrics_of.keys() & set(self.milestones)
        values = {step: metrics.get(self.best or "") for step, metrics in metrics_of.items()}
        valued = {step: v for step, v in values.items() if v is not None and math.isfinite(v)}
        sign = -1 if self.highest else 1
        return kept | set(
            sorted(valued, key=lambda step: (sign * valued[step], step))[: self.n_best]
        )


def kept_root(root: str | os.PathLike[str], step: int) -> Path:
    """The folder of the copies of one step; a root of its own."""
    return Path(root) / f"step-{step:09d}"


def kept_steps(root: str | os.PathLike[str], slot: str | None = None) -> list[int]:
    """Steps of which copies are kept, the latest first."""
    found = (path.parent for path in Path(root).glob(f"step-*/slot-{slot or '*'}"))
    matches = (_STEP.match(folder.name) for folder in found)
    return sorted({int(match[1]) for match in matches if match}, reverse=True)


@dataclass(slots=True)
class Retention:
    """The kept copies of one slot."""

    root: Path
    slot: str
    keep: Keep
    _metrics_of: dict[int, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read what is there."""
        for step in kept_steps(self.root, self.slot):
            try:
                text = (self._folder(step) / _METRICS).read_text(encoding="utf-8")
                self._metrics_of[step] = {k: float(v) for k, v in json.loads(text).items()}
            except (OSError, ValueError, AttributeError):
                self._metrics_of[step] = {}

    def wants(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether a copy of this step would be kept."""
        return step in self.keep.chosen({**self._metrics_of, step: metrics})

    def copy(
        self,
        step: int,
        metrics: Mapping[str, float],
        like: SlotWriter,
        records: Mapping[int, memoryview],
    ) -> None:
        """Write the copy of a step that `wants` it, then remove those that it makes superfluous."""
        aside = self.root / f".step-{step}-{self.slot}-{os.urandom(4).hex()}"
        try:
            folder = aside / f"slot-{self.slot}"
            made = like.superblock
            writer = SlotWriter.create(
                folder,
                made.layout,
                checksum=made.checksum,
                world=made.world,
                run=made.run,
                sparse=True,
            )
            try:
                writer.begin_round()
                for block, record in records.items():
                    writer.write(block, step, record)
                writer.commit(list(records))
            finally:
                writer.close()
            with replacing(folder / _METRICS) as file:
                file.write(json.dumps(dict(metrics)).encode())
            make_folder(kept_root(self.root, step))
            self._remove(step)  # of a time before the run went back
            folder.rename(self._folder(step))
            flush(kept_root(self.root, step))
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        self._metrics_of[step] = dict(metrics)
        for other in self._metrics_of.keys() - self.keep.chosen(self._metrics_of):
            del self._metrics_of[other]
            self._remove(other)
            with_others = kept_root(self.root, other)
            if not any(with_others.glob("slot-*")):
                shutil.rmtree(with_others, ignore_errors=True)

    def _folder(self, step: int) -> Path:
        return kept_root(self.root, step) / f"slot-{self.slot}"

    def _remove(self, step: int) -> None:
        folder = self._folder(step)
        if folder.is_dir():
            gone = folder.with_name(f".gone-{os.urandom(4).hex()}")
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
