"""Output of commands: text that cannot steer a terminal, JSON, progress."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ettr.errors import UsageError
from ettr.words import harmless

if TYPE_CHECKING:
    import click

    from ettr.analysis.selecting import SelectionHead

LONGEST_MESSAGE = 3000
_PLAIN_ERRORS = "ettr-plain"
# what the texts of ettr hold beyond ASCII, for terminals that have no letters for it
_PLAIN = {
    "–": "-",
    "—": "-",
    "…": "...",
    "×": "x",
    "µ": "u",
    "≥": ">=",
    "≤": "<=",
    "∞": "inf",
    "±": "+-",
}


def write_any_text() -> None:
    """Let stdout and stderr take every text, whatever encoding the terminal has."""
    codecs.register_error(_PLAIN_ERRORS, _in_plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=_PLAIN_ERRORS)


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or ascii(c)[1:-1] for c in lost), error.end


def say(text: str = "") -> None:
    """Print to stdout."""
    sys.stdout.write(harmless(text) + "\n")


def complain(text: str) -> None:
    """Print a diagnostic to stderr."""
    sys.stderr.write(f"ettr: {harmless(_shortened(text))}\n")


def complain_of_use(error: click.ClickException) -> None:
    """Print what the parser says of wrong use, and how the command is used, to stderr."""
    usage = io.StringIO()
    error.show(file=usage)
    sys.stderr.write(harmless(_shortened(usage.getvalue())))


def _shortened(text: str) -> str:
    """A message of a page at most: its beginning and its end, which says what to do."""
    half = LONGEST_MESSAGE // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} [...] {text[-half:]}"


def say_json(document: Any) -> None:
    """Print a JSON document to stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def say_selection(head: SelectionHead) -> None:
    """Print what is selected and what its reader must know, where anything is left out."""
    from ettr.report.text import selection_text

    if text := selection_text(head):
        say(f"{text}\n")


def end_of_selection(head: SelectionHead | None) -> None:
    """End a command with status 1 where its selection matched nothing: a cron job sees it.

    Raises:
        typer.Exit: it matched nothing.
    """
    if head is not None and head.is_empty:
        complain(f"nothing is selected ({head.words}); give other names or another period")
        raise typer.Exit(1)


def complain_of_selection(head: SelectionHead) -> None:
    """Print the same to stderr, for a form of output that has no head."""
    from ettr.report.text import selection_text

    if text := selection_text(head):
        complain(text)


def check_writable(option: str, output: Path) -> None:
    """Find out before the work that a page can be written there; makes its folder.

    Raises:
        UsageError: it cannot.
    """
    if output.is_dir():
        raise UsageError(f"{option} {output}: is a folder; give a file name in it")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {output}: cannot make its folder: {error.strerror}") from error


@contextmanager
def progress_bar(total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """A bar on stderr, advanced by (what, done so far); silent where stderr is no terminal."""
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

        def advance(what: str, done: int) -> None:
            bar.update(task, description=escape(harmless(what)), completed=done)

        yield advance


@contextmanager
def reading_bar(size_bytes: int, place: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr over the bytes of one log; silent where stderr is no terminal.

    Args:
        size_bytes: of the log's file.
        place: which of the logs it is, as `2 of 7`.

    Yields:
        A function of the log's name, the records and the bytes read so far.
    """
    if not sys.stderr.isatty():
        yield lambda _name, _records, _bytes: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[records]:,} records"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(place, total=size_bytes, records=0)

        def advance(name: str, records: int, bytes_read: int) -> None:
            words = f"{escape(harmless(name))} ({place})"
            bar.update(task, description=words, completed=bytes_read, records=records)

        yield advance
