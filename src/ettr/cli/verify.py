"""`ettr verify`: check every byte of a checkpoint, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.output import say
from ettr.cli.printing import Printing

if TYPE_CHECKING:
    from ettr.checkpoint import BadBlock, BlockAge


def verify(
    root: Annotated[
        str,
        typer.Argument(
            help="Folder of a running checkpoint or of one of CheckedWriter, or a copy's URL."
        ),
    ],
    step: Annotated[
        int | None,
        typer.Option(help="Step that the training has reached; ages count back from it."),
    ] = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics for Prometheus' textfile collector.")
    ] = False,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", metavar="FILE", help="Write these metrics to a file."),
    ] = None,
    each_block: Annotated[
        bool, typer.Option("--each-block", help="Metrics of every block, not only of slots.")
    ] = False,
    *,
    printing: Printing,
) -> None:
    """Check every record of a checkpoint and print the ages of its blocks; exit 1 if one is lost.

    A record torn by a kill is damaged and not lost: the block's other copy is intact. While a
    training run writes into the checkpoint, the record it is writing may show as damaged, not as
    lost.
    """
    from ettr.checkpoint import prometheus_text, write_metrics
    from ettr.checkpoint.remote import at_hand

    with at_hand(root) as folder:
        checked = _check(folder)
    steps = checked.steps
    reached = step if step is not None else max(steps, default=0)
    text = prometheus_text(checked.ages, step=reached, bad=checked.damaged, each_block=each_block)
    if metrics is not None:
        write_metrics(metrics, text)
    if prometheus:
        say(text.rstrip())
    elif not printing.summary(
        {
            "root": root,
            "blocks": len(checked.ages),
            "unsaved": len(checked.ages) - len(steps),
            "oldest_step": min(steps, default=None),
            "newest_step": max(steps, default=None),
            "superseded_slots": list(checked.superseded_slots),
            "damaged": [asdict(finding) for finding in checked.damaged],
            "lost": checked.lost,
        }
    ):
        for line in _lines(checked):
            say(line)
    if checked.lost:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Checked:
    ages: list[BlockAge]
    damaged: list[BadBlock]
    superseded_slots: tuple[str, ...] = ()

    @property
    def steps(self) -> list[int]:
        """Of the blocks that are saved."""
        return [age.step for age in self.ages if age.step is not None]

    @property
    def lost(self) -> int:
        """Number of damaged records whose block has no good one."""
        return sum(finding.lost for finding in self.damaged)


def _check(root: Path) -> _Checked:
    from ettr.checkpoint import survey, verify, verify_dcp

    if (root / "checkpoint.json").is_file():
        return _Checked([], verify_dcp(root))
    surveyed = survey(root)
    return _Checked(surveyed.ages, verify(root), surveyed.superseded_slots)


def _lines(checked: _Checked) -> Iterator[str]:
    if checked.ages:
        steps = checked.steps
        span = f"steps {min(steps)} to {max(steps)}" if steps else "none saved"
        unsaved = len(checked.ages) - len(steps)
        yield f"{len(checked.ages)} blocks, {span}" + (
            f", {unsaved} never saved" if unsaved else ""
        )
    if checked.superseded_slots:
        names = ", ".join(checked.superseded_slots)
        yield f"slots of another number of ranks, not read any more: {names}"
    for finding in checked.damaged:
        place = f"{finding.fqn} at {list(finding.offsets)}" if finding.fqn else "file"
        fate = "LOST" if finding.lost else "the older copy is intact"
        yield (
            f"slot {finding.slot} generation {finding.generation} {place} "
            f"place {finding.place}: {finding.reason} ({fate})"
        )
    if checked.damaged:
        yield f"{len(checked.damaged)} damaged, {checked.lost} lost"
    else:
        yield "every record is intact"
