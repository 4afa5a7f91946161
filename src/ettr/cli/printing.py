"""How a command prints what it found: as text, as JSON, or as CSV."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeVar, cast

import typer

from ettr.cli.groups import OptionGroup
from ettr.cli.output import (
    check_writable,
    complain_of_selection,
    end_of_selection,
    say,
    say_json,
    say_selection,
)
from ettr.errors import UsageError
from ettr.files import write_text
from ettr.report.characters import harmless

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ettr.analysis.selecting import SelectionHead
    from ettr.plan.cost import Price
    from ettr.report.document import JsonValue
    from ettr.report.rows import FlatRows
    from ettr.report.section import Section

ResultT = TypeVar("ResultT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class PageFile(OptionGroup):
    """A page of the answer."""

    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Write the answer as a page, too."),
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
        from ettr.report.head import selection_line
        from ettr.report.html import answer_page, render

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
            raise UsageError("--json and --csv: a command prints one form; give one of them")

    @property
    def as_text(self) -> bool:
        """Whether text is asked for."""
        return not (self.json or self.csv)

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
        from ettr.report.document import plain, plain_fields
        from ettr.report.money import object_with_costs, priced
        from ettr.report.rows import rows_of, summary_rows
        from ettr.report.text import section_text

        if self.as_text:
            if head is not None:
                say_selection(head)
            say(section_text(priced(section(found), price)))
            end_of_selection(head)
            return
        document = object_with_costs(plain_fields(found), price)
        if self.csv:
            if head is not None:
                complain_of_selection(head)
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
