"""`scontrol show node`, `sinfo -N -l` and their JSON: which nodes there are and what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import load_json
from ettr.sources.lines import numbered_texts
from ettr.sources.node_lists import NodeLists
from ettr.sources.origin import Origin
from ettr.sources.slurm.fields import NOTHING, gpus_of_gres, gpus_of_tres
from ettr.sources.slurm.node_states import OUT_OF_SERVICE, node_state, user_name
from ettr.sources.slurm.sacct_json import number
from ettr.sources.times import need_zone, utc_of_local
from ettr.tables.rows import DEFAULT_CLUSTER, Batch, Rejects, table_of

NAME = "slurm-inventory"
_MEBIBYTE = 1 << 20
_PAIR = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*)=(?=(\S*))")
_REASON = re.compile(r"(?:^|\s)Reason=(.*?)(?:\s*\[(\S+?)@([^\]\s]+)\])?\s*$", re.MULTILINE)
_GPU_TYPE = re.compile(r"(?:^|,)(?:gres:)?gpu:([A-Za-z][^:,()]*):\d")
_JSON_NODES = re.compile(rb'"(?:nodes|sinfo)"\s*:\s*\[')
_JSON_OWN = re.compile(
    rb'"(?:real_memory|slurmd_start_time|slurmd_version|state_flags|gres_used|alloc_cpus)"'
)
_TABLE_HEAD = re.compile(rb"^(?:[^\n]*\n)?\s*NODELIST\s+NODES\s+PARTITION\s+STATE\b")

Rows = tuple[dict[str, Any], dict[str, Any] | None]


def matches(head: bytes, file_name: str) -> float:
    """1 for any of the forms."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if re.match(rb"NodeName=\S+ ", text):
        return 1.0
    if _TABLE_HEAD.match(text):
        return 1.0
    if text.startswith(b"{") and _JSON_NODES.search(text):
        return 1.0 if len(set(_JSON_OWN.findall(text))) >= 2 else 0.0
    return 0.0


def prints_local(head: bytes) -> bool:
    """Whether it says since when a node is down, which scontrol does in local time."""
    return re.search(rb"Reason=.*\[\S+@\d{4}-", head) is not None


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One batch of nodes and of the states that they are in now.

    Raises:
        SourceError: it is none of the forms, or no whole JSON.
        UsageError: a node's reason has a local time and the user gave no zone.
    """
    head = origin.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    maker = _Maker(origin, options)
    if head.startswith(b"{"):
        maker.json(load_json(origin))
    elif b"NodeName=" in head:
        maker.blocks()
    elif _TABLE_HEAD.match(head):
        maker.table()
    else:
        raise SourceError(f"{origin}: is none of scontrol show node, sinfo -N -l and sinfo --json")
    yield maker.batch()


class _Maker:
    """Records of one file on their way to rows of nodes and node_states."""

    def __init__(self, origin: Origin, options: ReadOptions) -> None:
        self._origin, self._options = origin, options
        self._cluster = options.cluster
        self._rejects = Rejects(NAME, origin.file_id)
        self._nodes: dict[str, dict[str, Any]] = {}
        self._states: list[dict[str, Any]] = []
        self._read = self._skipped = 0

    def json(self, document: dict[str, Any]) -> None:
        entries = document.get("nodes")
        if not isinstance(entries, list):
            raise SourceError(
                f'{self._origin}: holds no "nodes" list; scontrol show nodes --json writes one '
                "(sinfo --json of Slurm 23.02 and later does not)"
            )
        for place, entry in enumerate(entries, 1):
            self._read += 1
            try:
                self._one_json(place, entry)
            except (AttributeError, TypeError, ValueError, KeyError, OverflowError, OSError) as why:
                self._rejects.add(
                    place, "bad-node", f"no node as Slurm writes it: {why}", str(entry)
                )

    def _one_json(self, place: int, entry: dict[str, Any]) -> None:
        name = entry["name"]
        if not isinstance(name, str) or not name:
            raise ValueError(f"name is {name!r}")
        states = entry.get("state") or []
        states = [states] if isinstance(states, str) else list(states)
        spelled = "+".join([*states, *(entry.get("state_flags") or [])])
        partitions = entry.get("partitions") or []
        memory = number(entry.get("real_memory"))
        self._cluster = self._cluster or entry.get("cluster_name") or None
        self._add(
            place,
            name,
            gres=str(entry.get("gres") or ""),
            tres=str(entry.get("tres") or ""),
            n_cpus=number(entry.get("cpus")),
            memory_mib=memory,
            partitions=",".join(partitions) if isinstance(partitions, list) else str(partitions),
        )
        since = number(entry.get("reason_changed_at"))
        if since and spelled:
            self._state(
                place,
                name,
                spelled,
                str(entry.get("reason") or ""),
                str(entry.get("reason_set_by_user") or ""),
                datetime.fromtimestamp(since, UTC),
            )

    def blocks(self) -> None:
        """`scontrol show node`: blocks of key=value, or one line each with -o."""
        block: list[str] = []
        first = 0
        for line_number, line in numbered_texts(self._origin):
            if line.startswith("NodeName=") or not line.strip():
                self._block(first, block)
                block = []
            if line.strip():
                first = first if block else line_number
                block.append(line)
        self._block(first, block)

    def _block(self, line_number: int, block: list[str]) -> None:
        if not block:
            return
        self._read += 1
        text = "\n".join(block)
        keys = dict(_PAIR.findall(text))
        name = keys.get("NodeName", "")
        if not block[0].startswith("NodeName=") or not name:
            self._rejects.add(line_number, "bad-node", "no NodeName=", text)
            return
        try:
            self._add(
                line_number,
                name,
                gres=_said(keys.get("Gres")),
                tres=_said(keys.get("CfgTRES")),
                n_cpus=_count(keys.get("CPUTot")),
                memory_mib=_count(keys.get("RealMemory")),
                partitions=_said(keys.get("Partitions")),
            )
            reason = _REASON.search(text)
            if reason and reason[3] and keys.get("State"):
                since = datetime.fromisoformat(reason[3])
                if since.tzinfo is None:
                    since = utc_of_local(
                        since, need_zone(self._options.timezone, str(self._origin))
                    )
                self._state(line_number, name, keys["State"], reason[1], reason[2] or "", since)
        except (ValueError, OverflowError) as why:
            self._rejects.add(line_number, "bad-node", str(why), text)

    def table(self) -> None:
        """`sinfo -N -l`: one line for each node and partition; it does not tell GPUs."""
        expand = NodeLists()
        columns: list[str] = []
        for line_number, line in numbered_texts(self._origin):
            words = line.split()
            if words[:1] == ["NODELIST"]:
                columns = words
                continue
            if not columns and line_number == 1:
                continue  # the date
            self._read += 1
            if not words:
                self._skipped += 1
                continue
            row = dict(zip(columns, words, strict=False))
            names = expand(row.get("NODELIST", ""))
            if names is None or len(words) < min(len(columns) - 1, 4):
                self._rejects.add(line_number, "bad-node", "no line of sinfo -N -l", line)
                continue
            try:
                for name in names:
                    self._add(
                        line_number,
                        name,
                        gres=_said(row.get("GRES")),
                        tres="",
                        n_cpus=_count(row.get("CPUS")),
                        memory_mib=_count(row.get("MEMORY")),
                        partitions=row.get("PARTITION", "").rstrip("*"),
                    )
            except ValueError as why:
                self._rejects.add(line_number, "bad-node", str(why), line)

    def _add(
        self,
        line: int,
        name: str,
        *,
        gres: str,
        tres: str,
        n_cpus: float | None,
        memory_mib: float | None,
        partitions: str,
    ) -> None:
        known = self._nodes.get(name)
        if known is not None and partitions:
            both = [*(known["partitions"] or "").split(","), *partitions.split(",")]
            known["partitions"] = ",".join(dict.fromkeys(p for p in both if p))
            return
        kind = _GPU_TYPE.search(gres)
        says_gpus = bool(gres or tres)
        self._nodes[name] = {
            "node": name,
            "n_gpus": (gpus_of_gres(gres) or gpus_of_tres(tres)) if says_gpus else None,
            "gpu_type": kind[1] if kind else None,
            "n_cpus": None if n_cpus is None else int(n_cpus),
            "memory_bytes": None if memory_mib is None else int(memory_mib) * _MEBIBYTE,
            "partitions": partitions or None,
            "source": NAME,
            "file_id": self._origin.file_id,
            "line": line,
        }

    def _state(
        self, line: int, name: str, spelled: str, reason: str, user: str, since: datetime
    ) -> None:
        state, flags = node_state(spelled)
        if state not in OUT_OF_SERVICE:
            return
        self._states.append(
            {
                "node": name,
                "state": state,
                "flags": flags,
                "reason": None if reason.strip() in NOTHING else reason.strip(),
                "user": user_name(user),
                "start": since,
                "source": NAME,
                "file_id": self._origin.file_id,
                "line": line,
            }
        )

    def batch(self) -> Batch:
        cluster = self._cluster or DEFAULT_CLUSTER
        notes = []
        if self._cluster is None:
            notes.append(f"the file names no cluster; taken as {cluster} (--cluster names it)")
        nodes = [{"cluster": cluster, **row} for row in self._nodes.values()]
        if nodes and all(row["n_gpus"] is None for row in nodes):
            notes.append("the file does not tell GPUs; scontrol show node does")
        states = [{"cluster": cluster, **row} for row in self._states]
        tables = {
            name: table_of(name, rows)
            for name, rows in (("nodes", nodes), ("node_states", states))
            if rows
        }
        if self._rejects.rows:
            tables["rejects"] = self._rejects.table()
        return Batch(tables, self._read, len(self._rejects.rows), self._skipped, tuple(notes))


def _said(text: str | None) -> str:
    return "" if text is None or text in NOTHING else text


def _count(text: str | None) -> int | None:
    if text is None or text in NOTHING:
        return None
    if not re.fullmatch(r"\d{1,15}\+?", text):
        raise ValueError(f"{text!r} is no count")
    return int(text.rstrip("+"))


SOURCE = Source(
    name=NAME,
    title="Slurm inventory, scontrol show node or sinfo",
    tables=("nodes", "node_states"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=("--cluster", "--timezone"),
    how_to_get="scontrol show node > nodes.txt",
)
