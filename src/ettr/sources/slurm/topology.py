"""Slurm's `topology.conf` and `scontrol show topology`: which switch and which block a node is in.

Format: Slurm's manual page topology.conf (plugins topology/tree and topology/block).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ettr.sources.base import ReadOptions, Source
from ettr.sources.limits import LONGEST_NAME
from ettr.sources.lines import LINE_LIMIT_BYTES, BadRecordError, first_texts, numbered_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.node_lists import FileNodeLists
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch

NAME = "slurm-topology"
_RECORD = re.compile(r"\s*(?:SwitchName|BlockName|AggregatedBlock)=\S", re.IGNORECASE)
_PLACES = ("switchname", "blockname")
_SETTING = re.compile(r"\s*BlockSizes=", re.IGNORECASE)


def matches(head: bytes, file_name: str) -> float:
    """1 where a line names a switch or a block."""
    return 1.0 if any(_RECORD.match(line) for line in first_texts(head)) else 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One batch of nodes with their switch, the switch above it, and their block.

    Raises:
        SourceError: the file is corrupt or truncated.
    """
    rows = LogRows(NAME, origin, options)
    places = _Places(rows)
    yield from rows.each(_whole_lines(origin), places.take)
    yield places.batch()


def _whole_lines(origin: Origin) -> Iterator[tuple[int, str]]:
    """Lines without comments; one that ends in a backslash goes on in the next, up to a limit."""
    first, text = 0, ""
    for number, line in numbered_texts(origin):
        first = first if text else number
        text += line.partition("#")[0].rstrip()
        if text.endswith("\\") and len(text) < LINE_LIMIT_BYTES:
            text = text[:-1]
            continue
        yield first, text
        text = ""
    if text:
        yield first, text


@dataclass(slots=True)
class _PlacedNode:
    """Where one node is, and the line that says it first."""

    line: int
    switch: str | None = None
    rack: str | None = None


class _Places:
    """Collects the switches and blocks of one file."""

    def __init__(self, rows: LogRows) -> None:
        self._rows, self._expand = rows, FileNodeLists()
        self._nodes: dict[str, _PlacedNode] = {}
        self._above: dict[str, list[str]] = defaultdict(list)
        self._lines: list[int] = []

    def take(self, number: int, line: str) -> None:
        """Keep what one line says; a line that is no record is skipped."""
        if not line.strip() or _SETTING.match(line):
            self._rows.count_skipped()
            return
        # not by a regex: without an equals sign its time would grow as the square of the line
        pairs = (word.partition("=") for word in line.split())
        keys = {key.lower(): value for key, _, value in pairs if value}
        if not _RECORD.match(line):
            raise BadRecordError("bad-topology", "names no switch and no block")
        if "switches" in keys and not {"switchname", "aggregatedblock"} & set(keys):
            raise BadRecordError("bad-topology", "a block has no switches below it")
        if max(len(keys.get(key, "")) for key in _PLACES) > LONGEST_NAME:
            detail = f"a name of more than {LONGEST_NAME} characters"
            raise BadRecordError("bad-topology", detail)
        try:
            listed = {key: self._expand(keys[key]) for key in ("nodes", "switches") if key in keys}
        except ValueError as why:
            raise BadRecordError("bad-node-list", str(why)) from why
        if not listed:
            raise BadRecordError("bad-node-list", "no list of nodes or switches")
        self._lines.append(number)
        self._keep(number, keys, listed.get("nodes", ()), listed.get("switches", ()))

    def _keep(
        self, number: int, keys: dict[str, str], nodes: tuple[str, ...], below: tuple[str, ...]
    ) -> None:
        if "aggregatedblock" in keys:
            return  # a group of blocks that are named themselves
        for name in below:
            self._above[name].append(keys["switchname"])
        if below:
            return  # the nodes that `scontrol` lists with it are those of the switches below
        for name in nodes:
            node = self._nodes.setdefault(name, _PlacedNode(number))
            if "switchname" in keys:
                node.switch = keys["switchname"]
            else:
                node.rack = keys["blockname"]

    def batch(self) -> Batch:
        """The nodes; lines that say more of a node that another line began are folded into it."""
        for name, node in self._nodes.items():
            above = self._above.get(node.switch or "", [])
            self._rows.add(
                "nodes",
                line=node.line,
                node=name,
                switch=node.switch,
                # of several switches above, none is the pod
                pod=above[0] if len(set(above)) == 1 else None,
                rack=node.rack,
            )
        began = {node.line for node in self._nodes.values()}
        for number in self._lines:
            if number not in began:
                self._rows.count_folded()
        return self._rows.batch()


SOURCE = Source(
    name=NAME,
    title="Slurm topology, topology.conf or scontrol show topology",
    tables=("nodes",),
    matches=matches,
    read=read,
    options=("--cluster",),
    how_to_get="scontrol show topology > topology.txt",
)
