"""The option that leaves pseudonyms in place of names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.groups import OptionGroup

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.selection import Selection
    from ettr.store import Store


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
