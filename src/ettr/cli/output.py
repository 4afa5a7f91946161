"""What commands print: text that cannot steer a terminal, JSON, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ettr.report.characters import harmless


def say(text: str = "") -> None:
    """Print to stdout."""
    sys.stdout.write(harmless(text) + "\n")


def complain(text: str) -> None:
    """Print a diagnostic to stderr."""
    sys.stderr.write(f"ettr: {harmless(text)}\n")


def say_json(document: Any) -> None:
    """Print a JSON document to stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n")


@contextmanager
def progress_bar(total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """A bar on stderr that is told (what, done so far); silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total or None)

        def tell(what: str, done: int) -> None:
            bar.update(task, description=escape(harmless(what)), completed=done)

        yield tell
