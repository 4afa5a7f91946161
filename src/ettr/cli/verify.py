"""`ettr verify`: check every byte of a checkpoint, without a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.output import say, say_json


def verify(
    root: Annotated[
        Path, typer.Argument(help="Folder of a running checkpoint, or of one of CheckedWriter.")
    ],
    step: Annotated[
        int | None, typer.Option(help="Step the training has reached; ages count back from it.")
    ] = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics for the textfile collector.")
    ] = False,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics", metavar="FILE", help="Write these metrics to a file, whole or not at all."
        ),
    ] = None,
    each_block: Annotated[
        bool, typer.Option("--each-block", help="Metrics of every block, not of slots alone.")
    ] = False,
    json: opt.JsonOption = False,
) -> None:
    """Check every record of a checkpoint and tell how old its blocks are; exit 1 if one is lost.

    A place torn by a kill is damaged and not lost: the block's other place is whole. While a
    training run writes into the checkpoint, the place it is writing may show as damaged.
    """
    from ettr.checkpoint import verification as verifying

    left: tuple[str, ...] = ()
    if (root / "checkpoint.json").is_file():
        from ettr.checkpoint import verify_dcp

        bad, ages = verify_dcp(root), []
    else:
        found = verifying.survey(root)
        bad, ages, left = verifying.verify(root), found.ages, found.left_slots
    steps = [age.step for age in ages if age.step is not None]
    reached = step if step is not None else max(steps, default=0)
    lost = sum(finding.lost for finding in bad)
    text = verifying.prometheus_text(ages, step=reached, bad=bad, each_block=each_block)
    if metrics is not None:
        verifying.write_metrics(metrics, text)
    if prometheus:
        say(text.rstrip())
    elif json:
        say_json(
            {
                "root": str(root),
                "blocks": len(ages),
                "unsaved": len(ages) - len(steps),
                "oldest_step": min(steps, default=None),
                "newest_step": max(steps, default=None),
                "superseded_slots": list(left),
                "damaged": [asdict(finding) for finding in bad],
                "lost": lost,
            }
        )
    else:
        if ages:
            span = f"steps {min(steps)} to {max(steps)}" if steps else "none saved"
            unsaved = len(ages) - len(steps)
            say(f"{len(ages)} blocks, {span}" + (f", {unsaved} never saved" if unsaved else ""))
        if left:
            say(f"slots of another number of ranks, not read any more: {', '.join(left)}")
        for finding in bad:
            fate = "LOST" if finding.lost else "older copy is whole"
            where = f"{finding.fqn} at {list(finding.offsets)}" if finding.fqn else "file"
            say(
                f"slot {finding.slot} generation {finding.generation} {where} "
                f"place {finding.place}: {finding.reason} ({fate})"
            )
        say("every byte is as it was written" if not bad else f"{len(bad)} damaged, {lost} lost")
    if lost:
        raise typer.Exit(1)
