"""Output of commands: text that cannot steer a terminal, JSON, progress."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar, cast

import typer

from ettr.cli.groups import Input, OptionGroup, needs
from ettr.errors import UsageError
from ettr.files import write_text
from ettr.words import harmless

if TYPE_CHECKING:
    import click
    from _typeshed import DataclassInstance

    from ettr.analysis import Analysis
    from ettr.analysis.selecting import SelectionHead
    from ettr.plan.cost import Price
    from ettr.report.rows import FlatRows, JsonValue
    from ettr.report.section import Section


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
    from ettr.report.rows import selection_text

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
    from ettr.report.rows import selection_text

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


# -- how a command prints what it found: as text, as JSON, or as CSV -------------------------------


ResultT = TypeVar("ResultT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class PageFile(OptionGroup):
    """A page of the answer."""

    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Also write the answer as a page."),
    ] = None

    def check(self) -> None:
        """Find out before the work that the page can be written.

        Raises:
            UsageError: it cannot.
        """
        if self.html is not None:
            check_writable("--html", self.html)

    def write(
        self,
        section: Section,
        title: str,
        confidence: float | None,
        head: SelectionHead | None,
        printing: Printing,
        caution: str | None = None,
    ) -> None:
        """Write the page, if one is asked for, and say where it is."""
        if self.html is None:
            return
        from ettr.report.html import answer_page, render
        from ettr.report.rows import selection_line

        selection = "" if head is None else selection_line(head)
        write_text(self.html, render(answer_page(section, title, confidence, selection, caution)))
        if printing.as_text:
            say(f"\nPage: {self.html}")


@dataclass(frozen=True, slots=True)
class Printing(OptionGroup):
    """Forms other than text."""

    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of text.")] = False

    def __post_init__(self) -> None:
        """Accept one form at a time.

        Raises:
            UsageError: both are given.
        """
        if self.json and self.csv:
            raise UsageError("--json and --csv: a command prints one format; give one of them")

    @property
    def as_text(self) -> bool:
        """Whether text is asked for."""
        return not (self.json or self.csv)

    def main_list(self, found: DataclassInstance, usual: str) -> str:
        """The list that CSV has."""
        return usual

    def say_sections(self, sections: Sequence[Section], head: SelectionHead | None) -> None:
        """Print sections as text, below what is selected."""
        from ettr.report.section import joined

        if head is not None:
            say_selection(head)
        say(joined(sections))

    def show(
        self,
        name: str,
        found: ResultT,
        section: Callable[[ResultT], Section],
        main: str = "",
        head: SelectionHead | None = None,
        price: Price | None = None,
    ) -> None:
        """Print a result as text, as a JSON document, or as CSV.

        Args:
            name: Of the document's format.
            found: The result.
            section: Makes text of it.
            main: The list that is the CSV; where empty, two columns, key and value.
            head: The selection of the store that it rests on; None where it rests on none.
            price: Of a GPU-hour, for money next to GPU-hours; None for none.
        """
        from ettr.report.rows import (
            object_with_costs,
            plain,
            plain_fields,
            priced,
            rows_of,
            summary_rows,
        )

        if self.as_text:
            self.say_sections([priced(section(found), price)], head)
            end_of_selection(head)
            return
        document = object_with_costs(plain_fields(found), price)
        if self.csv:
            if head is not None:
                complain_of_selection(head)
            main = self.main_list(found, main)
            say_csv(rows_of(found, document, main) if main else summary_rows(document))
        else:
            selection = {} if head is None else {"selection": plain(head)}
            if price is not None:
                selection["price"] = plain(price)
            say_json({"format": name, "version": 1, **selection, **document})
        end_of_selection(head)

    def summary(self, document: JsonValue) -> bool:
        """Print a document as JSON or as two columns; False where text is asked for."""
        from ettr.report.rows import summary_rows

        if self.csv:
            say_csv(summary_rows(document))
        elif self.json:
            say_json(document)
        return not self.as_text

    def listed(self, entries: Sequence[dict[str, JsonValue]]) -> bool:
        """Print a list as JSON or with one row an entry; False where text is asked for."""
        from ettr.report.rows import json_rows

        if self.csv:
            say_csv(json_rows(entries))
        elif self.json:
            say_json(list(entries))
        return not self.as_text


@dataclass(frozen=True, slots=True)
class FiledPrinting(Printing):
    """The same, into a file where one is named."""

    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the output to this file."),
    ] = None

    @contextmanager
    def around(self) -> Iterator[None]:
        """Write what is printed to the file, if one is named, and say where it is.

        Raises:
            UsageError: it cannot be written.
        """
        if self.output is not None:
            check_writable("--output", self.output)
        with written_to(self.output):
            yield


@dataclass(frozen=True, slots=True)
class Answering(FiledPrinting):
    """The same, and how much text: the answer in one line with its table, or all of it."""

    detail: Annotated[
        bool,
        typer.Option("--detail", help="Print everything: intervals, every table and note."),
        needs(Input.TEXT),
    ] = False
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="NAME", help="With --csv: print this list of the JSON."),
        needs(Input.CSV),
    ] = None

    @contextmanager
    def around(self) -> Iterator[None]:
        """Write what is printed to the file, if one is named, and say where it is.

        Raises:
            UsageError: it cannot be written, or a list of CSV is named without CSV.
        """
        if self.table is not None and not self.csv:
            raise UsageError(f"--table {self.table}: names a list for --csv; give that too")
        with FiledPrinting.around(self):
            yield

    def main_list(self, found: DataclassInstance, usual: str) -> str:
        """The list that CSV has."""
        from ettr.report.rows import known_list

        return usual if self.table is None else known_list(found, self.table)

    def say_sections(self, sections: Sequence[Section], head: SelectionHead | None) -> None:
        """Print the answer of the first section and its table, or all of it."""
        from ettr.report.section import brief_text

        if self.detail:
            Printing.say_sections(self, sections, head)
            if self.site_file:
                say(f"\nFrom {self.site_file[0]}: {', '.join(self.site_file[1:])}.")
            return
        if head is not None and head.simulated:  # before any number
            say(head.simulated)
        about = "" if head is None else head.sentence
        notes = () if head is None else head.notes
        say(brief_text(sections, about, notes[0] if notes else ""))

    def show_part(self, name: str, analysis: Analysis) -> None:
        """Print one part of the report of a selection."""
        from ettr.report.parts import part_alone, part_document, part_rows
        from ettr.report.rows import with_price, with_selection

        head = analysis.selection_head
        if self.csv:
            complain_of_selection(head)
            say_csv(part_rows(name, analysis, self.table))
        elif self.json:
            part = with_price(part_document(name, analysis), analysis.price)
            say_json(with_selection(part, head))
        else:
            self.say_sections(part_alone(name, analysis), head)
        end_of_selection(head)


@contextmanager
def written_to(output: Path | None) -> Iterator[None]:
    """Write what is printed within to a file, and say where it is; print it without a file."""
    if output is None:
        yield
        return
    printed = io.StringIO()
    with redirect_stdout(printed):
        yield
    write_text(output, printed.getvalue())
    say(f"Written: {output}")


def say_csv(rows: FlatRows) -> None:
    """Print rows as CSV to stdout; what could steer a terminal is made visible on one."""
    from ettr.report.rows import csv_text

    csv_output().write(csv_text(rows))


class _OnTerminal(io.TextIOBase):
    """Stdout with every character visible that could steer a terminal."""

    def write(self, text: str) -> int:
        return sys.stdout.write(harmless(text))


def csv_output() -> TextIO:
    """Where CSV goes: stdout, as it is for a program and harmless on a terminal."""
    return cast("TextIO", _OnTerminal()) if sys.stdout.isatty() else sys.stdout
