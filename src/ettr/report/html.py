"""One self-contained HTML file: readable offline, dark and light, printable, safe to open.

Everything that came from a log is text: Jinja escapes it in the page, `script_json` in the data of
the figures, and a content security policy lets the page load nothing from anywhere.
"""

from __future__ import annotations

import base64
import gzip
import html
import re
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from markupsafe import Markup

from ettr.report.answers import Answer
from ettr.report.characters import cut, harmless
from ettr.report.document import JsonValue
from ettr.report.jinja import content_policy, environment, own_file, script_json
from ettr.report.numbers import legend
from ettr.report.section import Figure, Section, TextTable
from ettr.version import __version__

if TYPE_CHECKING:
    from ettr.report.first_screen import FirstScreen

LONGEST_CELL = 300
ROWS_A_PAGE = 25
"""Of a table that is shown page by page; its script has the same number."""
ROWS_SHOWN = 1000
ROWS_PRINTED = 5
"""Most rows of one table on paper; its style has the same number."""
_ENDS = re.compile(r" (?=[\[(])")
_TEXT_KEYS = frozenset(
    {"text", "hovertext", "name", "x", "y", "labels", "title", "ticktext", "categoryarray"}
)


@dataclass(frozen=True, slots=True)
class Card:
    """One number at the head of a report, with what it means and its denominator."""

    label: str
    value: str
    detail: str

    @property
    def head(self) -> str:
        """The value without its interval or its range."""
        return _ENDS.split(self.value, maxsplit=1)[0]

    @property
    def interval(self) -> str:
        """The interval or the range of the value, empty where it has none."""
        return self.value[len(self.head) :].strip()


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing of scripts of its own, in `templates` as `NAME.html.j2` and `NAME.css`.

    `data` is what the scripts draw; its texts are plain, and they may set them as text only.
    """

    name: str
    scripts: tuple[str, ...]
    data: JsonValue


@dataclass(frozen=True, slots=True)
class Page:
    """A report before it is rendered.

    `selection` says what is left out, empty where nothing is; `site_notes` are the site's own
    texts on its logs; `caution` is what must be read before the numbers; `legend` says what
    brackets after a number mean; `picture` comes before the sections.
    """

    title: str
    subtitle: str
    caution: str | None
    cards: tuple[Card, ...]
    next_steps: tuple[str, ...]
    sections: tuple[Section, ...]
    footer: str
    selection: str = ""
    answers: tuple[Answer, ...] = ()
    site_notes: tuple[str, ...] = ()
    legend: str = ""
    picture: Picture | None = None
    first: FirstScreen | None = None


def render(page: Page) -> str:
    """The page as HTML."""
    figures = [figure for section in page.sections for figure in section.figures]
    template, styles, drawing = "report", ["report.css"], Markup("")
    if page.picture:
        template = page.picture.name
        styles.append(f"{template}.css")
        drawing = own_file(*(f"templates/{name}.js" for name in page.picture.scripts))
    style = own_file(*(f"templates/{name}" for name in styles))
    paged = [one for section in page.sections for one in section.tables if one.slug and one.rows]
    own_script = own_file("templates/report.js")
    library = plotly() if figures else Markup("")
    tables_script = own_file("templates/tables.js") if paged else Markup("")
    return (
        environment()
        .get_template(f"{template}.html.j2")
        .render(
            page=page,
            policy=Markup(  # noqa: S704 - of hashes only
                content_policy((library, own_script, tables_script, drawing), [style])
            ),
            style=style,
            figures=script_json([_figure(figure) for figure in figures]),
            library=packed() if figures else Markup(""),
            own_script=own_script,
            tables=script_json([_table(table) for table in paged]),
            tables_script=tables_script,
            picture=script_json(page.picture.data if page.picture else None),
            drawing=drawing,
            rows_a_page=ROWS_A_PAGE,
            rows_shown=ROWS_SHOWN,
            rows_printed=ROWS_PRINTED,
        )
    )


def _table(table: TextTable) -> dict[str, object]:
    """A table for the script that shows it in parts; the script sets each cell as text."""
    return {
        "slug": table.slug,
        "title": table.title,
        "numeric": sorted(table.numeric),
        "rows": [[harmless(cut(cell, LONGEST_CELL)) for cell in row] for row in table.rows],
    }


def plotly() -> Markup:
    """Plotly's bundle of bars, lines and heat maps, as published."""
    return Markup(gzip.decompress(_bundle()).decode())  # noqa: S704 - the package's own file


def packed() -> Markup:
    """Plotly compressed, as text; the page unpacks it, which its policy allows by its hash."""
    return Markup(base64.b64encode(_bundle()).decode())  # noqa: S704 - letters and digits


def _bundle() -> bytes:
    # compressed in the package: to do it for each page takes a tenth of a second
    return resources.files("ettr.report").joinpath("plotly/plotly-cartesian.min.js.gz").read_bytes()


def _figure(figure: Figure) -> dict[str, object]:
    return {
        "slug": figure.slug,
        "data": [escaped(trace) for trace in figure.traces],
        "layout": escaped(figure.layout),
    }


def escaped(value: object, is_text: bool = False) -> object:
    """Plotly reads some HTML in its texts; all of ours is text, with line breaks of our own."""
    if isinstance(value, dict):
        return {key: escaped(item, is_text or key in _TEXT_KEYS) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escaped(item, is_text) for item in value]
    if isinstance(value, str) and is_text:
        lines = (cut(line, LONGEST_CELL) for line in harmless(value).split("\n"))
        return "<br>".join(html.escape(line, quote=False) for line in lines)
    return value


def answer_page(
    section: Section,
    title: str,
    confidence: float | None,
    selection: str = "",
    caution: str | None = None,
) -> Page:
    """The page before it is rendered.

    Args:
        confidence: of its intervals; None where it says itself what its intervals are.
        selection: what is left out; empty where nothing is.
        caution: what must be read before the numbers; None for nothing.
    """
    return Page(
        title=title,
        subtitle="",
        caution=caution,
        cards=(),
        next_steps=(),
        sections=(section,),
        footer=f"ettr {__version__}. Times are UTC.",
        selection=selection,
        legend="" if confidence is None else legend(confidence),
    )
