"""The text files that Slurm and the kernel would have written of a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ettr.files import write_text
from ettr.store.base import Store

SACCT, EVENTS, KERNEL, NOTE = "sacct.psv", "events.psv", "kernel.log", "note.txt"
_SACCT = (
    "JobID|Cluster|JobName|User|Account|QOS|Partition|State|ExitCode|Submit|Eligible|Start|End|"
    "ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|NodeList"
)
_EVENTS = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
_XIDS = {
    "48": "DBE (double bit error) detected",
    "63": "Row Remapper: New row marked for remapping",
    "64": "Row Remapper: Error recording",
    "74": "NVLink: fatal error detected on link 6",
    "79": "GPU has fallen off the bus.",
    "94": "Contained ECC error",
    "95": "Uncontained ECC error",
    "119": "Timeout waiting for RPC from GSP",
}


def write_logs(store: Store, folder: Path, note: str) -> list[Path]:
    """Write the accounting, the states of nodes and the kernel log of a simulated store."""
    made = {
        SACCT: [_SACCT, *map(_job, _ordered(store, "attempts", "submit"))],
        EVENTS: [_EVENTS, *map(_state, _ordered(store, "node_states", "start"))],
        KERNEL: [
            line for _, line in sorted([*_kernel(store.rows("events").to_pylist()), *_daily(store)])
        ],
        NOTE: ["# ettr note", note],
    }
    for name, lines in made.items():
        write_text(folder / name, "\n".join(lines) + "\n")
    return [folder / name for name in made]


def _ordered(store: Store, table: str, by: str) -> list[dict[str, Any]]:
    rows = store.rows(table)
    in_order = rows.take(pc.sort_indices(rows, [(by, "ascending")]))
    found: list[dict[str, Any]] = in_order.to_pylist()
    return found


def _time(at: datetime | None) -> str:
    return "Unknown" if at is None else at.strftime("%Y-%m-%dT%H:%M:%S")


def _job(row: Mapping[str, Any]) -> str:
    nodes, gpus, never = row["n_nodes"], row["n_gpus"], row["start"] is None
    cells = (
        *(row["job_id"], row["cluster"], row["name"], row["user"], row["account"], row["qos"]),
        *(row["partition"], row["state"]),
        f"{row['exit_code'] or 0}:{row['exit_signal'] or 0}",
        *map(_time, (row["submit"], row["eligible"], row["start"], row["end"])),
        *(f"{row['elapsed_s'] or 0:.0f}", f"{(row['time_limit_s'] or 0) / 60:.0f}"),
        "0" if never else str(nodes),
        "" if never else f"gres/gpu={gpus},node={nodes}",
        row["node_list"] or "None assigned",
    )
    return "|".join(str(cell) for cell in cells)


def _state(row: Mapping[str, Any]) -> str:
    cells = (row["cluster"], row["node"], _time(row["start"]), _time(row["end"]), row["state"])
    return "|".join((*cells, row["reason"] or "", f"{row['user'] or 'root'}(0)"))


def _daily(store: Store) -> Iterator[tuple[datetime, str]]:
    """A harmless line a node and day: logs without any would be logs that are missing."""
    times = [row["start"] for row in store.rows("attempts").to_pylist() if row["start"]]
    nodes = sorted({row["node"] for row in store.rows("nodes").to_pylist()})
    first, last = min(times), max(times)
    for day in range((last - first).days + 1):
        for place, node in enumerate(nodes):
            at = first + timedelta(days=day, seconds=place)
            yield at, f"{at.isoformat()} {node} kernel: usb 1-1: new high-speed USB device"


def _kernel(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[datetime, str]]:
    for row in rows:
        if row["check"] != "xid":
            continue
        says = _XIDS.get(row["code"], "error")
        pci = (row["entity"] or "0000:1b:00").removeprefix("pci:").removesuffix(".0")
        yield (
            row["time"],
            (
                f"{row['time'].isoformat()} {row['node']} kernel: NVRM: Xid (PCI:{pci}): "
                f"{row['code']}, pid='<unknown>', name=<unknown>, {says}"
            ),
        )
