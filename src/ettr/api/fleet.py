"""A store opened for analysis, or logs read into a temporary one."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ettr.analysis import Analysis, Assumptions
from ettr.analysis.derived import table_sql
from ettr.analysis.given_facts import know_every_fact
from ettr.api.answers import FleetAnswers
from ettr.api.result import Result
from ettr.api.rows import Rows, rows_of
from ettr.errors import UsageError
from ettr.facts.duck import name_facts
from ettr.files import private_folder, write_text
from ettr.plan.cost import Price, price_of
from ettr.report.parts import part_alone, part_document
from ettr.report.registry import PARTS
from ettr.selection import Selection
from ettr.store import open_store
from ettr.store.computing import DUCKDB, Computing
from ettr.tables import DERIVED, TABLES
from ettr.tables.rows import is_taken_note

if TYPE_CHECKING:
    from ettr.report.registry import Part
    from ettr.report.section import Section
    from ettr.sources.ingest import Ingested

ValueT = TypeVar("ValueT")


class Fleet(FleetAnswers):
    """What a store says of its fleet; each result is computed when it is first asked for.

    Close it when done, or use it in a `with` statement.
    """

    def __init__(
        self, analysis: Analysis, name: str, opened: ExitStack, ingested: tuple[Ingested, ...] = ()
    ) -> None:
        self.analysis = analysis
        self.name = name
        self.ingested = ingested
        self._opened = opened

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def close(self) -> None:
        """Give the store back; a temporary one is removed."""
        self._opened.close()

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, stored and derived."""
        return (*TABLES, *DERIVED)

    def table(self, name: str) -> Rows:
        """Rows of a stored or derived table, in the columns of its schema.

        Raises:
            UsageError: there is no such table.
        """
        return rows_of(self.analysis.facts.engine, table_sql(self.analysis, name))

    def sql(self, select: str) -> Rows:
        """Rows of a SELECT over the facts that `ettr sql` lists, of the selection.

        Times are microseconds since 1970, UTC, in columns that end in `_us`. It runs as this
        process: unlike `ettr sql` it may read other files, so give it no stranger's text.

        Raises:
            UsageError: it is no single SELECT, or the engine cannot answer it.
        """
        import duckdb

        know_every_fact()
        facts = self.analysis.facts
        try:
            name_facts(facts, select)
            return rows_of(facts.engine, select)
        except duckdb.Error as error:
            raise UsageError(f"DuckDB: {error}") from error

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Result[Any]:
            part = None if name.startswith("_") else PARTS.get(name)
            if part is None or part.question is None or not part.in_python:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            made = self.__dict__[name] = self._part(part, self.analysis.ask(part.question))
            return made

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name, part in PARTS.items() if part.in_python)]

    def write_report(self, path: str | Path) -> None:
        """Write the whole report as one HTML file."""
        from ettr.report.html import render
        from ettr.report.page import page

        write_text(Path(path), render(page(self.analysis)))

    def _part(self, part: Part[ValueT], value: ValueT) -> Result[ValueT]:
        return Result(
            value,
            part.main,
            lambda: part_document(part.name, self.analysis),
            lambda: marked(part_alone(part.name, self.analysis), (self,)),
            self.analysis.price,
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the answers of the report, without their tables."""
        from ettr.report.actions import actions, loss_by_interval, sentences
        from ettr.report.answers import five_lines
        from ettr.report.findings import caution
        from ettr.report.html import answers_html

        known = (self.analysis.selection_head.simulated, caution(self.analysis))
        head = " ".join(filter(None, known)) or None
        steps = sentences(actions(self.analysis, loss_by_interval(self.analysis)))
        return answers_html(self.name, head, five_lines(self.analysis, steps))


def marked(sections: tuple[Section, ...], fleets: Iterable[Fleet]) -> tuple[Section, ...]:
    """The sections of a result; where rows are simulated, the first lead says so."""
    heads = {fleet.analysis.selection_head.simulated: None for fleet in fleets}
    words = " ".join(filter(None, heads))
    if not words or not sections:
        return sections
    return (replace(sections[0], lead=f"{words} {sections[0].lead}"), *sections[1:])


def open_fleet(
    store: str | Path,
    *,
    assumptions: Assumptions | None = None,
    selection: Selection | None = None,
    gpu_hour_price: str | Price | None = None,
    name: str | None = None,
    engine: str = DUCKDB,
    engine_options: Mapping[str, str] | None = None,
) -> Fleet:
    """Open a store that `ettr ingest` made.

    Args:
        store: A folder, a file ending in .duckdb, or postgres://USER@HOST/DB.
        assumptions: What the logs cannot say; the defaults where None.
        selection: What the results are about: a period, partitions, users, nodes; all where None.
        gpu_hour_price: Such as "2.50USD": money next to GPU-hours; none where None.
        name: What to call the fleet in comparisons; the place of the store where None.
        engine: What computes: duckdb, spark, spark://HOST:7077, or sc://HOST:15002.
        engine_options: Its settings, such as {"spark.executor.memory": "8g"}.

    Raises:
        StoreError: it is not there, or is something else; no engine answers.
        UsageError: an engine that is not known, or a price that cannot be understood.
    """
    price = price_given(gpu_hour_price)
    with ExitStack() as stack:
        computing = Computing(engine, tuple((engine_options or {}).items()))
        opened = stack.enter_context(open_store(store, computing=computing))
        return Fleet(
            Analysis(opened, assumptions, selection, price), name or opened.where, stack.pop_all()
        )


def read_logs(
    *files: str | Path,
    timezone: str | None = None,
    cluster: str | None = None,
    source: str | None = None,
    gpus_per_node: int | None = None,
    assumptions: Assumptions | None = None,
    selection: Selection | None = None,
    gpu_hour_price: str | Price | None = None,
    name: str | None = None,
) -> Fleet:
    """Read logs into a temporary store, which goes when the fleet is closed.

    What was read and what was refused is in `ingested`; records that could not be read, and what a
    reader should know of a log, are warnings too.

    Args:
        files: Logs, compressed or not.
        timezone: Zone of local times in them, such as Europe/Zurich.
        cluster: The cluster's name, where a log lacks it.
        source: Format of the files; recognised by content where None.
        gpus_per_node: GPUs of a node, where a log lacks it.
        assumptions: What the logs cannot say; the defaults where None.
        selection: What the results are about: a period, partitions, users, nodes; all where None.
        gpu_hour_price: Such as "2.50USD": money next to GPU-hours; none where None.
        name: What to call the fleet in comparisons.

    Raises:
        SourceError: a log cannot be read as a known format.
        UsageError: no file, or an argument is missing or wrong.
    """
    from ettr.analysis.reading import ingest_all
    from ettr.sources.base import ReadOptions

    price = price_given(gpu_hour_price)
    paths = [Path(file) for file in files]
    absent = [str(path) for path in paths if not path.exists()]
    if not paths or absent:
        raise UsageError(f"no such file: {', '.join(absent)}" if absent else "no file to read")
    options = ReadOptions(timezone=timezone, cluster=cluster, gpus_per_node=gpus_per_node)
    with ExitStack() as stack:
        folder = stack.enter_context(private_folder())
        store = stack.enter_context(open_store(folder / "store", create=True))
        analysis = Analysis(store, assumptions, selection, price)
        ingested = tuple(ingest_all(store, paths, options, source, _warn, analysis=analysis))
        _warn_of_rejects(ingested)
        named = name or ", ".join(path.name for path in paths)
        return Fleet(analysis, named, stack.pop_all(), ingested)


def price_given(price: str | Price | None) -> Price | None:
    """The price of a GPU-hour, typed or made.

    Raises:
        UsageError: it cannot be understood.
    """
    if isinstance(price, Price | None):
        return price
    return price_of(str(price), "gpu_hour_price")


def _warn(text: str) -> None:
    if is_taken_note(text.strip()):
        return  # a kernel log never names its cluster; `quality` has the note
    warnings.warn(text, UserWarning, stacklevel=4)


def _warn_of_rejects(ingested: tuple[Ingested, ...]) -> None:
    for one in ingested:
        if one.rows_rejected:
            why = ", ".join(f"{count:,} {reason}" for reason, count in one.rejected)
            _warn(f"{one.name}: {one.rows_rejected:,} of {one.rows_read:,} records rejected: {why}")
