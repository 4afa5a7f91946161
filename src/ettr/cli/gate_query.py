"""`ettr gate query`: how likely a model writes what a regular expression matches."""

from __future__ import annotations

from typing import Annotated

import typer

from ettr.cli.printing import Printing
from ettr.errors import UsageError


def gate_query(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A folder with local safetensors, or py:FILE:NAME."),
    ],
    regex: Annotated[str, typer.Argument(metavar="REGEX", help="What the model may write.")],
    *,
    printing: Printing,
) -> None:
    """Bound the probability that a model writes text that a regular expression matches."""
    raise UsageError(f"ettr gate query {model} {regex!r} {printing.json}: not ready yet")
