"""Options that say which rows an answer is about; every command that reads a store offers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.errors import UsageError
from ettr.selection import Selection

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.plan.cost import Price
    from ettr.store import Access, Store


_OF_LOGS = needs(Input.STORE, Input.FILES)


@dataclass(frozen=True, slots=True)
class Selecting(OptionGroup):
    """A period, and jobs and nodes by name."""

    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Start of the period (UTC unless it has an offset), or how long before the "
            "end of the logs: 7d, 12h, yesterday.",
        ),
        _OF_LOGS,
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="End of the period, not included."),
        _OF_LOGS,
    ] = None
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="NAME", help="Only jobs of this partition; repeatable."
        ),
        _OF_LOGS,
    ] = None
    account: Annotated[
        list[str] | None,
        typer.Option("--account", metavar="NAME", help="Only jobs of this account; repeatable."),
        _OF_LOGS,
    ] = None
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME", help="Only jobs of this user; repeatable."),
        _OF_LOGS,
    ] = None
    qos: Annotated[
        list[str] | None,
        typer.Option("--qos", metavar="NAME", help="Only jobs of this QOS; repeatable."),
        _OF_LOGS,
    ] = None
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", help="Only this cluster; repeatable."),
        _OF_LOGS,
    ] = None
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="NAME",
            help="Only time on these nodes: a name, a list (gpu[1-8]) or a pattern (gpu*); "
            "repeatable.",
        ),
        _OF_LOGS,
    ] = None
    gpu_type: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-type",
            metavar="NAME",
            help="Only nodes with this type of GPU; cpu for those without any; repeatable.",
        ),
        _OF_LOGS,
    ] = None

    place: Annotated[
        list[str] | None,
        typer.Option(
            "--place", metavar="NAME", help="Only nodes of this rack, pod or switch; repeatable."
        ),
        _OF_LOGS,
    ] = None

    def selection(self) -> Selection:
        """The rows asked for.

        Raises:
            UsageError: a time cannot be understood, or the period holds none.
        """
        since_back, until_back = (
            None if text is None else q.back_from_end(text) for text in (self.since, self.until)
        )
        return Selection(
            since=None if since_back else q.if_given(q.utc_moment, "--since", self.since),
            until=None if until_back else q.if_given(q.utc_moment, "--until", self.until),
            since_back=since_back,
            until_back=until_back,
            partition=tuple(self.partition or ()),
            account=tuple(self.account or ()),
            user=tuple(self.user or ()),
            qos=tuple(self.qos or ()),
            cluster=tuple(self.cluster or ()),
            node=tuple(self.node or ()),
            gpu_type=tuple(self.gpu_type or ()),
            place=tuple(self.place or ()),
        )


# -- the option that leaves pseudonyms in place of names -------------------------------------------


@dataclass(frozen=True, slots=True)
class Anonymising(OptionGroup):
    """A key, and what is done by it."""

    anonymise: Annotated[
        Path | None,
        typer.Option(
            "--anonymise",
            metavar="KEYFILE",
            help="Replace names of users, accounts, jobs, "
            "nodes, partitions, folders and files by pseudonyms, with the key in this file.",
        ),
    ] = None

    def analysis(
        self,
        store: Store,
        selection: Selection,
        of: Callable[[Store, Selection], Analysis],
        node: str = "",
    ) -> tuple[Analysis, str]:
        """The analysis of a store, under pseudonyms where they are asked for.

        Args:
            store: an open store.
            selection: by the names of the logs.
            of: makes an analysis of a store under a selection.
            node: a node that the command names; empty for none.

        Returns:
            The analysis, and the name under which it has the node.

        Raises:
            UsageError: the key cannot be read.
        """
        if self.anonymise is None:
            return of(store, selection), node
        from ettr.analysis.masking import (
            MaskedStore,
            Masks,
            masked_node,
            masked_selection,
            read_key,
        )

        bare = of(store, selection)
        masks = Masks(read_key(self.anonymise), bare.taxonomy)
        masked = of(MaskedStore(store, masks), masked_selection(bare.selection, masks))
        return masked, masked_node(node, masks) if node else node


# -- options that say where a store's questions are computed ---------------------------------------


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


# -- the option that puts money next to GPU-hours --------------------------------------------------


PriceOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-hour-price",
        metavar="PRICE",
        help="Price of a GPU-hour: 2.50USD; use XXX for a unit of your own.",
    ),
]


@dataclass(frozen=True, slots=True)
class Pricing(OptionGroup):
    """What a GPU-hour costs."""

    gpu_hour_price: PriceOption = None

    def price(self) -> Price | None:
        """The price; None where none was typed.

        Raises:
            UsageError: it is malformed, has no currency, or an unknown one.
        """
        return None if self.gpu_hour_price is None else price(self.gpu_hour_price)


def price(text: str) -> Price:
    """A price of a GPU-hour such as `2.50USD`.

    Raises:
        UsageError: it is malformed, has no currency, or an unknown one.
    """
    from ettr.plan.cost import price_of

    return price_of(text, "--gpu-hour-price")
