"""Options that say where a store's questions are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ettr.store import Access, Store


@dataclass(frozen=True, slots=True)
class OnEngine(OptionGroup):
    """The engine, its settings, and its memory."""

    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="ENGINE",
            help="Engine: duckdb, spark, spark://HOST:7077, or sc://HOST:15002 (Spark Connect).",
        ),
        needs(Input.STORE),
    ] = "duckdb"
    engine_option: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-option",
            metavar="KEY=VALUE",
            help="Setting of the engine: spark.executor.memory=8g, or threads=4 for DuckDB; "
            "repeatable.",
        ),
        needs(Input.STORE),
    ] = None
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            metavar="SIZE",
            help="Memory that DuckDB may use, such as 8GB, before it spills to TMPDIR; "
            "default half of what the process may have.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = None

    def open(
        self, where: str | Path, *, create: bool = False, readable_by: Access | None = None
    ) -> Store:
        """Open a store.

        Raises:
            StoreError: it is not there, or is something else.
            UsageError: an option is wrong.
        """
        from ettr.store import open_store
        from ettr.store.computing import Computing

        memory = q.if_given(q.n_bytes, "--memory-limit", self.memory_limit)
        options = []
        for text in self.engine_option or ():
            key, sign, value = text.partition("=")
            if not (key.strip() and sign):
                raise UsageError(
                    f"--engine-option {q.shortened(text)!r}: give KEY=VALUE, as "
                    "spark.executor.memory=8g"
                )
            options.append((key.strip(), value.strip()))
        computing = Computing(self.engine, tuple(options), None if memory is None else int(memory))
        return open_store(where, create=create, readable_by=readable_by, computing=computing)
