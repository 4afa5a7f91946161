"""`scontrol show node`, `sinfo -N -l` and their JSON: which nodes there are and what is in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from ettr.errors import SourceError
from ettr.sources.base import READERS, ReadOptions, Source
from ettr.sources.json_records import (
    Broken,
    Json,
    JsonObject,
    RecordShape,
    as_object,
    head_objects,
    load_json,
    number,
)
from ettr.sources.limits import LONGEST_NAME, MOST_GPUS_PER_NODE, most_listed
from ettr.sources.lines import (
    BadRecordError,
    first_texts,
    integer_of,
    numbered_texts,
    paragraphs,
)
from ettr.sources.log_rows import LogRows
from ettr.sources.node_lists import FileNodeLists, listed_nodes
from ettr.sources.origin import Origin
from ettr.sources.slurm.events import OUT_OF_SERVICE, node_state, user_name
from ettr.sources.slurm.fields import (
    NOTHING,
    gpus_of_gres,
    gpus_of_tres,
    other_gres,
    other_gres_note,
)
from ettr.sources.times import time_of, within_years
from ettr.tables.rows import Batch, Row, clean
from ettr.words import by_number

NAME = "slurm-inventory"
_MEBIBYTE = 1 << 20
_MOST_MEBIBYTES = 1 << 40
_PAIR = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*)=(?=(\S*))")
_REASON = re.compile(r"(?:^|\s)Reason=(.*)")
_JSON_NODES = re.compile(rb'"(?:nodes|sinfo)"\s*:\s*\[')
_JSON_OWN = re.compile(
    rb'"(?:real_memory|slurmd_start_time|slurmd_version|state_flags|gres_used|alloc_cpus)"'
)
_SHAPE = RecordShape(
    lambda node: node.keys() >= {"name", "real_memory"}, re.compile('"real_memory"')
)
_TABLE_HEAD = re.compile(rb"^(?:[^\n]*\n)?\s*NODELIST\s+NODES\s+PARTITION\s+STATE\b")


def matches(head: bytes, file_name: str) -> float:
    """1 for any of the forms."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if re.match(rb"NodeName=\S+ ", text):
        return 1.0
    if _TABLE_HEAD.match(text):
        return 1.0
    if not text.startswith(b"{"):
        return 0.0
    if _JSON_NODES.search(text) and len(set(_JSON_OWN.findall(text))) >= 2:
        return 1.0
    if b'"real_memory"' not in text:
        return 0.0
    return 1.0 if any(map(_SHAPE.is_record, head_objects(head, shape=_SHAPE))) else 0.0


def prints_local(head: bytes) -> bool:
    """Whether it says since when a node is down, which scontrol does in local time."""
    return any(
        (reason := _REASON.search(line)) and re.match(r"\d{4}-", _reason(reason[1])[2])
        for line in first_texts(head, most=2000)
    )


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One batch of nodes and of the states that they are in now.

    Raises:
        SourceError: it has another form, or is cut off JSON.
        UsageError: a node's reason has a local time and the user gave no zone.
    """
    head = origin.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    inventory = _Inventory(LogRows(NAME, origin, options))
    if head.startswith(b"{"):
        yield from inventory.read_json(load_json(origin, "nodes", _SHAPE))
    elif b"NodeName=" in head:
        yield from inventory.read_blocks()
    elif _TABLE_HEAD.match(head):
        yield from inventory.read_table()
    else:
        raise SourceError(
            f"{origin}: is not the output of scontrol show node, sinfo -N -l or sinfo --json"
        )
    yield inventory.batch()


class _Inventory:
    """Collects the nodes of one file, each once, and the states that they are in."""

    def __init__(self, rows: LogRows) -> None:
        self._rows = rows
        self._cluster = rows.options.cluster
        # by name, as `sinfo` lists a node once for each of its partitions
        self._nodes: dict[str, _Node] = {}
        # out of service, and the file does not say since when
        self._undated = 0
        self._future = 0
        self._accelerators = rows.options.accelerators or ()

    def read_json(self, document: JsonObject) -> Iterator[Batch]:
        """`scontrol show node --json`, or `sinfo --json` of old versions."""
        entries = document.get("nodes")
        if not isinstance(entries, list):
            raise SourceError(
                f'{self._rows.origin}: holds no "nodes" list; scontrol show nodes --json writes '
                "one (sinfo --json of Slurm 23.02 and later does not)"
            )
        yield from self._rows.each(enumerate(entries, 1), self._entry, _raw)

    def _entry(self, place: int, entry: Json) -> None:
        if isinstance(entry, Broken):
            raise BadRecordError("bad-json", entry.error)
        try:
            self._one_json(place, as_object(entry))
        except (TypeError, ValueError, KeyError, OverflowError, OSError) as why:
            detail = f"no node as Slurm writes it: {why}"
            raise BadRecordError("bad-node", detail) from why

    def _one_json(self, place: int, entry: JsonObject) -> None:
        name = entry["name"]
        if not isinstance(name, str) or not name:
            raise ValueError(f"name is {name!r}")
        states = [*_words(entry.get("state")), *_words(entry.get("state_flags"))]
        if self._is_future("+".join(states)):
            return
        self._cluster = self._cluster or clean(entry.get("cluster_name"))
        node = _Node(
            name,
            place,
            gres=clean(entry.get("gres")) or "",
            tres=clean(entry.get("tres")) or "",
            n_cpus=number(entry.get("cpus")),
            memory_mib=number(entry.get("real_memory")),
            partitions=_words(entry.get("partitions")),
            accelerators=self._accelerators,
            others=(clean(entry.get("hostname")) or "", clean(entry.get("address")) or ""),
        )
        since = number(entry.get("reason_changed_at"))
        state = None
        if since and states:
            moment = time_of(since)
            if moment is None:
                raise ValueError(f"reason_changed_at is {since!r:.100}")
            reason, user = entry.get("reason"), entry.get("reason_set_by_user")
            state = _state("+".join(states), clean(reason) or "", clean(user) or "", moment)
        self._keep(node, state)

    def read_blocks(self) -> Iterator[Batch]:
        """`scontrol show node`: blocks of key=value, or one line each with -o."""
        blocks = paragraphs(self._rows.origin, ("NodeName=",))
        yield from self._rows.each(blocks, self._block)

    def _block(self, line_number: int, text: str) -> None:
        keys: dict[str, str] = {}
        for key, value in _PAIR.findall(text):
            keys.setdefault(key, value)  # reasons and comments, which may hold pairs, come last
        name = keys.get("NodeName", "")
        if not text.startswith("NodeName=") or not name:
            raise BadRecordError("bad-node", "no NodeName=")
        try:
            if self._is_future(keys.get("State", "")):
                return
            node = _Node(
                name,
                line_number,
                gres=_known(keys.get("Gres")),
                tres=_known(keys.get("CfgTRES")),
                n_cpus=_count(keys.get("CPUTot")),
                memory_mib=_count(keys.get("RealMemory")),
                partitions=_known(keys.get("Partitions")).split(","),
                accelerators=self._accelerators,
                others=(_known(keys.get("NodeHostName")), _known(keys.get("NodeAddr"))),
            )
            self._keep(node, self._block_state(text, keys))
        except (ValueError, OverflowError) as why:
            raise BadRecordError("bad-node", str(why)) from why

    def _is_future(self, spelled: str) -> bool:
        """Count a node that is defined and does not exist yet; False for all others."""
        is_future = bool(spelled) and node_state(spelled)[0] == "FUTURE"
        if is_future:
            self._rows.count_skipped()
            self._future += 1
        return is_future

    def _block_state(self, text: str, keys: dict[str, str]) -> Row | None:
        written = _REASON.search(text)
        reason, user, since_text = _reason(written[1] if written else "")
        if not since_text or not keys.get("State"):
            state, _ = node_state(keys["State"]) if keys.get("State") else ("", None)
            self._undated += state in OUT_OF_SERVICE
            return None
        since = datetime.fromisoformat(since_text)
        moment = within_years(
            since.astimezone(UTC) if since.tzinfo else self._rows.utc(since, is_ordered=False)
        )
        if moment is None:
            raise ValueError(f"{since_text!r:.100} is not a time")
        return _state(keys["State"], reason, user, moment)

    def read_table(self) -> Iterator[Batch]:
        """`sinfo -N -l`: one line for each node and partition; it has no GPUs."""
        expand = FileNodeLists()
        columns: list[str] = []

        def keep(line_number: int, line: str) -> None:
            words = line.split()
            if not words:
                self._rows.count_skipped()
                return
            row = dict(zip(columns, words, strict=False))
            if len(words) < min(len(columns) - 1, 4):
                raise BadRecordError("bad-node", "no line of sinfo -N -l")
            try:
                nodes = self._table_nodes(line_number, row, expand)
            except ValueError as why:
                raise BadRecordError("bad-node", str(why)) from why
            are_new = [self._add(node) for node in nodes]
            if not any(are_new):
                self._rows.count_folded()

        for line_number, line in numbered_texts(self._rows.origin):
            if line.split()[:1] == ["NODELIST"]:
                columns = line.split()
            elif columns or line_number > 1:  # the first line is the date
                yield from self._rows.each([(line_number, line)], keep)

    def _table_nodes(
        self, line_number: int, row: dict[str, str], expand: FileNodeLists
    ) -> Iterator[_Node]:
        """The nodes of one line."""
        listed = row.get("NODELIST", "")
        if listed_nodes(listed) > most_listed(integer_of(row.get("NODES"))):
            raise ValueError("NODELIST names more nodes than NODES says")
        n_cpus, memory_mib = _count(row.get("CPUS")), _count(row.get("MEMORY"))
        gres, partition = _known(row.get("GRES")), row.get("PARTITION", "").rstrip("*")
        _Node("", 0, gres, "", n_cpus, memory_mib, [], self._accelerators).check()
        if max(len(gres), len(partition)) > LONGEST_NAME:
            raise ValueError(f"a name of more than {LONGEST_NAME} characters")
        names, partitions = expand(listed), [partition]
        return (
            _Node(name, line_number, gres, "", n_cpus, memory_mib, partitions, self._accelerators)
            for name in names
        )

    def _keep(self, node: _Node, state: Row | None) -> None:
        """Keep a node and the state in which it is out of service, if it is."""
        node.check()
        is_new = self._add(node)
        if state is not None:
            self._rows.add(
                "node_states", line=node.line, cluster=self._cluster, node=node.name, **state
            )
        elif not is_new:
            self._rows.count_folded()

    def _add(self, node: _Node) -> bool:
        """Keep a node, and say whether it is new; one that is known gets its partitions."""
        known = self._nodes.setdefault(node.name, node)
        if known is not node:
            both = [*known.partitions, *node.partitions]
            known.partitions = list(dict.fromkeys(both))
        return known is node

    def batch(self) -> Batch:
        """The nodes and their states."""
        for node in self._nodes.values():
            self._rows.add("nodes", line=node.line, cluster=self._cluster, **node.columns())
        if self._nodes and all(node.n_gpus is None for node in self._nodes.values()):
            self._rows.note("the file does not hold GPUs; scontrol show node does")
        others: Counter[str] = Counter()
        for node in self._nodes.values():
            others.update(other_gres(node.gres, self._accelerators))
        if others:
            self._rows.note(other_gres_note(others, "node"))
        if self._future:
            self._rows.note(
                by_number("{n} [node is|nodes are] FUTURE: not there yet, left out", self._future)
            )
        if self._undated:
            self._rows.note(
                by_number(
                    "{n} [node is|nodes are] out of service and the file does not say since when: "
                    "[its state is|their states are] left out (sacctmgr show event has them)",
                    self._undated,
                )
            )
        return self._rows.batch()


@dataclass(slots=True)
class _Node:
    """One node as the file describes it; empty texts and None for what it does not say."""

    name: str
    line: int
    gres: str
    tres: str
    n_cpus: float | None
    memory_mib: float | None
    partitions: list[str]
    accelerators: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def n_gpus(self) -> int | None:
        """Its GPUs; None where the file describes no resources."""
        if not self.gres and not self.tres:
            return None
        names = self.accelerators
        return gpus_of_gres(self.gres, names) or gpus_of_tres(self.tres, names)

    def check(self) -> None:
        """Check that its counts are those of a machine."""
        if (self.n_gpus or 0) > MOST_GPUS_PER_NODE:
            raise ValueError(f"{self.n_gpus} GPUs in one node")
        if (self.memory_mib or 0) > _MOST_MEBIBYTES or (self.n_cpus or 0) > _MOST_MEBIBYTES:
            raise ValueError(f"{self.n_cpus} CPUs and {self.memory_mib} MiB in one node")

    def columns(self) -> Row:
        """Columns of `nodes`."""
        kinds = (_gpu_type(name).search(self.gres) for name in ("gpu", *self.accelerators))
        kind = next(filter(None, kinds), None)
        others = {
            other
            for other in self.others
            if other not in ("", self.name) and "," not in other and len(other) <= LONGEST_NAME
        }
        return {
            "node": self.name,
            "n_gpus": self.n_gpus,
            "gpu_type": kind[1] if kind else None,
            "n_cpus": None if self.n_cpus is None else int(self.n_cpus),
            "memory_bytes": None if self.memory_mib is None else int(self.memory_mib) * _MEBIBYTE,
            "partitions": ",".join(name for name in self.partitions if name) or None,
            "other_names": ",".join(sorted(others)) or None,
        }


def _reason(written: str) -> tuple[str, str, str]:
    """Why a node is in its state, who said so and since when: `text [user@2026-03-01T00:00:00]`."""
    written = written.rstrip()
    text, bracket, stamp = written.rpartition("[")
    user, at, since = stamp[:-1].partition("@")
    if not (bracket and at and user and since and stamp.endswith("]")) or " " in stamp:
        return written, "", ""
    return text.rstrip(), user, since


def _state(spelled: str, reason: str, user: str, since: datetime) -> Row | None:
    """Columns of `node_states`; None for a node in service."""
    state, flags = node_state(spelled)
    if state not in OUT_OF_SERVICE:
        return None
    return {
        "state": state,
        "flags": flags,
        "reason": None if reason.strip() in NOTHING else reason.strip(),
        "user": user_name(user),
        "start": since,
    }


@cache
def _gpu_type(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|,)(?:gres:)?{re.escape(name)}:([A-Za-z0-9][^:,()]*):\d")


def _words(value: Json) -> list[str]:
    """The words of a JSON list, or of a text with commas; [] for nothing."""
    if isinstance(value, str):
        return value.split(",")
    return [str(word) for word in value] if isinstance(value, list) else []


def _raw(entry: Json) -> str:
    return entry.raw if isinstance(entry, Broken) else str(entry)


def _known(text: str | None) -> str:
    return "" if text is None or text in NOTHING else text


def _count(text: str | None) -> int | None:
    if text is None or text in NOTHING:
        return None
    if not re.fullmatch(r"\d{1,15}\+?", text):
        raise ValueError(f"{text!r} is no count")
    return int(text.rstrip("+"))


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="Slurm inventory, scontrol show node or sinfo",
    tables=("nodes", "node_states"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=("--cluster", "--timezone", "--accelerators"),
    how_to_get="scontrol show node > nodes.txt",
)
