"""Flight records for tests, in the forms that PyTorch 2.13 writes.

Gloo's are as a real run left them: no state but `scheduled`, members of groups not stated. NCCL's
are written from the published format 2.10 (torch/csrc/distributed/c10d/FlightRecorder.hpp), not
taken from a run on GPUs.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

BEGAN_NS = 1_760_000_000_000_000_000


def entry(
    seq: int,
    name: str = "gloo:all_reduce",
    *,
    group: tuple[str, str] = ("0", "default_pg"),
    done: bool = True,
    after_s: float = 0.0,
    sizes: tuple[int, ...] = (4,),
    **changed: Any,
) -> dict[str, Any]:
    """A call; `done` is gloo's retirement, or NCCL's state."""
    nccl = name.startswith("nccl")
    return {
        "collective_seq_id": seq,
        "input_dtypes": ["Float"],
        "input_sizes": [list(sizes)],
        "is_p2p": False,
        "op_id": seq,
        "output_dtypes": ["Float"],
        "output_sizes": [list(sizes)],
        "p2p_seq_id": 0,
        "pg_id": 0,
        "process_group": list(group),
        "profiling_name": name,
        "record_id": seq - 1,
        "retired": done,
        "state": ("completed" if done else "started") if nccl else "scheduled",
        "thread_id": "1",
        "thread_name": "python",
        "time_created_ns": BEGAN_NS + int((seq + after_s) * 1e9),
        "time_discovered_completed_ns": 0,
        "time_discovered_started_ns": 0,
        "timeout_ms": 600_000,
        **changed,
    }


def record(
    entries: list[dict[str, Any]],
    groups: dict[str, list[int]] | None = None,
    **added: Any,
) -> dict[str, Any]:
    """A record; `groups` as NCCL states them; `added` is what the watcher adds."""
    config = {
        name: {"name": name, "desc": "", "ranks": str(r)} for name, r in (groups or {}).items()
    }
    document: dict[str, Any] = {"comm_lib_version": ""}
    if entries:
        document["entries"] = entries
    document |= {"pg_config": config, "pg_status": {}, "version": "2.10"}
    return document | ({"ettr": added} if added else {})


def calls(n: int, last_done: bool = False, **facts: Any) -> list[dict[str, Any]]:
    """Collectives 1 to n, of which the last has not ended."""
    return [entry(seq, done=seq < n or last_done, **facts) for seq in range(1, n + 1)]


def write(folder: Path, records: dict[int, dict[str, Any]], form: str = "json") -> Path:
    """A folder with one record a rank, in PyTorch's own layout or as a pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, document in records.items():
        path = folder / f"nccl_trace_rank_{rank}"
        if form == "json":
            path.write_text(json.dumps(document, separators=(",", ":"), sort_keys=True))
        elif form == "spaced":
            path.write_text(json.dumps(document, indent=1))
        else:
            path.write_bytes(pickle.dumps(document, protocol=int(form)))
    return folder
