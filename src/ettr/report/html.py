"""One self-contained HTML file: readable offline, dark and light, printable, safe to open.

Everything that came from a log is text: Jinja escapes it in the page, `script_json` in the data of
the figures, and a content security policy lets the page load nothing from anywhere.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import marshal
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from ettr.report.answers import Answer
from ettr.report.charts import INK
from ettr.report.numbers import legend
from ettr.report.rows import JsonValue
from ettr.report.section import Figure, Section, TextTable, first_sentence
from ettr.version import __version__
from ettr.words import cut, harmless

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ettr.report.first_screen import FirstScreen


# -- how pages are rendered: text from a log stays text, in the page and in the data of a script


_NOTHING = ""
"""The text of the style element that Plotly adds, before it puts rules in one by one."""


@cache
def environment() -> Environment:
    """Templates of the report, escaping whatever is not marked as safe; each compiled once."""
    made = Environment(
        loader=PackageLoader("ettr.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        bytecode_cache=_CompiledTemplates(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["cut"] = cut
    made.filters["code"] = with_code
    made.filters["one_sentence"] = first_sentence
    return made


class _CompiledTemplates(BytecodeCache):
    """Compiled templates next to their sources, as Python keeps its modules."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take what was compiled of this text, if there is any."""
        with suppress(OSError, ValueError, EOFError, TypeError):
            checksum, code = marshal.loads(_compiled(bucket).read_bytes())  # noqa: S302
            if checksum == bucket.checksum:
                bucket.code = code

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it where the package may be written to."""
        if sys.dont_write_bytecode:
            return
        path = _compiled(bucket)
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True, parents=True)
            new = path.with_suffix(f".{os.getpid()}")
            new.write_bytes(marshal.dumps((bucket.checksum, bucket.code)))
            new.replace(path)


def _compiled(bucket: Bucket) -> Path:
    own = Path(str(resources.files("ettr.report"))) / "templates" / f"{bucket.key}.py"
    return Path(cache_from_source(str(own)))


def script_json(value: object) -> Markup:
    """JSON that is safe inside a script element.

    Raises:
        ValueError: a number is not finite, which JSON has no name for.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(char, code)
    return Markup(text)  # noqa: S704 - just made safe


def own_file(*names: str) -> Markup:
    """Files of this package one after the other, as text of a script or style element."""
    folder = resources.files("ettr.report")
    text = "\n".join(folder.joinpath(name).read_text("utf-8") for name in names)
    return Markup(text.replace("</script", "<\\/script"))  # noqa: S704 - the package's own file


def content_policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """A content security policy: nothing is loaded, and only these inline texts count.

    A script that came in from a log would not run, as its hash is not listed.

    Source:
        W3C, Content Security Policy Level 3, section 6.7.3.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(scripts)}",
            f"style-src {_hashes((*styles, _NOTHING))}",
            "img-src data: blob:",
        )
    )


def _hashes(texts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts)
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests) or "'none'"


def with_code(text: str) -> Markup:
    """Text with what stands between backticks set as code; all of it escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(_visible(text))
    marked = (
        Markup("<code>{}</code>").format(_visible(part)) if place % 2 else escape(_visible(part))
        for place, part in enumerate(parts)
    )
    return Markup("").join(marked)


def _visible(value: object) -> object:
    """What a template prints: text without characters that reverse or hide it."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    # a number and its per cent sign stay on one line
    return harmless(value).replace(" %", "\N{NO-BREAK SPACE}%")


# -- one self-contained HTML file: readable offline, dark and light, printable, safe to open -------


LONGEST_CELL = 300
ROWS_A_PAGE = 25
"""Of a table that is shown page by page; its script has the same number."""
ROWS_SHOWN = 1000
ROWS_PRINTED = 5
"""Most rows of one table on paper; its style has the same number."""
_TEXT_KEYS = frozenset(
    {"text", "hovertext", "name", "x", "y", "labels", "title", "ticktext", "categoryarray"}
)


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
        sections=(section,),
        footer=f"ettr {__version__}. Times are UTC.",
        selection=selection,
        legend="" if confidence is None else legend(confidence),
    )


# -- sections of a report in a notebook: as HTML without a script, and their figures as Plotly's


NOTEBOOK_ROWS_SHOWN = 50
_TEMPLATE = "plotly_white"
_INK = "#2a3f5f"  # the text of that template


def sections_html(sections: Sequence[Section]) -> str:
    """Leads, tables and notes of sections; whatever came from a log is escaped."""
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(sections=sections, rows_shown=NOTEBOOK_ROWS_SHOWN)
    )


def answers_html(title: str, caution: str | None, answers: Sequence[Answer]) -> str:
    """The answers of a report, and what must be read before them."""
    return (
        environment()
        .get_template("notebook_answers.html.j2")
        .render(title=title, caution=caution, answers=answers)
    )


def plotly_figure(figure: Figure) -> go.Figure:
    """A figure of the report as Plotly's own object, with its title over it."""
    import plotly.graph_objects as go

    made = go.Figure(
        {"data": [_inked(escaped(trace)) for trace in figure.traces], "layout": figure.layout}
    )
    made.update_layout(escaped(figure.layout), template=_TEMPLATE)
    made.update_layout(title={"text": str(escaped(figure.title, is_text=True))})
    return made


def _inked(trace: object) -> object:
    """The trace with the colour of the text, which the page puts in by its theme."""
    if isinstance(trace, dict):
        return {key: _inked(value) for key, value in trace.items()}
    return _INK if trace == INK else trace
