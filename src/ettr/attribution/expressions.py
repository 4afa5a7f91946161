"""Attribution for what still reads expressions; it goes when nothing does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ibis.expr.types import Table

from ettr.attribution.rules import Window
from ettr.facts import Facts
from ettr.facts.interop import as_ibis
from ettr.selection import Selection
from ettr.tables import INTERRUPTIONS

ENDING_COLUMNS = (*INTERRUPTIONS.names, "node_failed", "named_node", "named_event")


@dataclass(frozen=True)
class Attribution:
    """What ended the attempts of all logs and why, as tables of the facts' engine."""

    facts: Facts

    @property
    def window(self) -> Window:
        """The window that was used."""
        window: Window = self.facts.given("assumptions").window
        return window

    @cached_property
    def endings(self) -> Table:
        """Interruptions with what the scheduler says of each end."""
        return as_ibis(self.facts, "all_endings", only=ENDING_COLUMNS)

    @cached_property
    def interruptions(self) -> Table:
        """The table `interruptions`."""
        return as_ibis(self.facts, "all_endings", only=INTERRUPTIONS.names)

    @cached_property
    def episodes(self) -> Table:
        """Each episode of a fault."""
        return as_ibis(self.facts, "all_episodes")

    @cached_property
    def observed(self) -> Table:
        """Each attempt, node and episode observed there in the window."""
        return as_ibis(self.facts, "all_observed")

    @cached_property
    def failures(self) -> Table:
        """The table `failures`."""
        everything = self.facts.under(selection=Selection(), since_us=None, until_us=None)
        return as_ibis(everything, "failure_texts")
