"""Options that say which rows an answer is about; every command that reads a store offers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.selection import Selection

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
