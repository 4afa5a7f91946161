"""Cases rebuilt from what sites met in public, each judged by what its `want.txt` asks.

A case is a folder with logs, a `run.sh` that takes `ETTR`, the command, and `want.txt`, the right
answer in words; they are handed out apart from the program, and `ETTR_CASES` is their folder.
Without it nothing is run. What the words ask stands here as patterns: of what must be printed, of
what may not, and of refusals that the words allow. A case without patterns here is not judged.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from campaigns import Table

TITLE = "Cases from the field"
SIZE = 1
LONGEST_S = 300
_SOURCES = Path(__file__).resolve().parents[1] / "src"
_COMMAND = """#!/bin/sh
PYTHONPATH='{src}' exec '{python}' -P -c \
'import sys; sys.argv[0] = "ettr"; from ettr.cli.main import main; sys.exit(main())' "$@"
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a case must print, line by line.

    Attributes:
        lines: Patterns of which each matches.
        never: Patterns of which none does.
        refused: Patterns that, matched as well, make the answer a refusal that is allowed.
    """

    lines: tuple[str, ...]
    never: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def _rows(*rows: str) -> tuple[str, ...]:
    """Patterns of rows of a table: the words of each in order, nothing else between them."""
    return tuple(
        r"^\| " + r" \| ".join(re.escape(cell) for cell in row.split()) + "( |$)" for row in rows
    )


_PREFIXED = ("01", "02", "03", "05", "06", "07", "08", "09", "10", "11", "14", "15", "16", "20")
WANTED = {
    "01_tres_forms": Wanted(
        (
            *_rows("101 1", "102 3", "103 8", "104 8", "105 0", "106 0", "107 7", "108 2", "109 4"),
            "2 attempts hold shares of GPUs",
            "gres/dcu .*gres/npu .*gres/hpu .*gres/neuron .*--accelerators",
        )
    ),
    "03_fallen_three_lines": Wanted(
        tuple(
            rf"\| {node} \| 79 \| 0000:{bus}:00 \|"
            for node, bus in (
                *((f"gpu{number:02}", "b3") for number in (6, 7, 8, 9)),
                ("gpu10", "1b"),
            )
        )
    ),
    "05_fqdn_hosts": Wanted(
        (
            " 2 .*gpu-1.* gpu-unavailable",
            " 3 .*gpu-2 +gpu-memory",
            "^Job 2 .*gpu-unavailable on gpu-1",
            "xid 79 on gpu-1",
        ),
        never=("No kernel message",),
    ),
    "06_kernel_prefixes": Wanted(
        (*(rf"\| n{number} \| 79$" for number in _PREFIXED), r"\| node17 \| 79$"),
        refused=tuple(f"{name}: no known" for name in ("n04.dmesg", "n12.vector", "n13.gcp")),
    ),
    "07_sacct_relative_time": Wanted(
        (r"\| 15 \| RUNNING \| 2026-03-01T11:00:00Z \|  \|", "offset.psv: .* 1 kept, 3 rejected"),
        refused=("SLURM_TIME_FORMAT",),
    ),
    "08_states_ids": Wanted(
        (
            *_rows(
                "300 CANCELLED 0 0",
                "301 RESV_DEL_HOLD 0 0",
                "302 SPECIAL_EXIT 1 8",
                "303 REVOKED 0 0",
                "304 LAUNCH_FAILED 1 8",
                "305 DEADLINE 1 8",
                "310 BOOT_FAIL 1 8",
                "311 REQUEUE_HOLD 1 8",
                "315 FAILED 1 8",
                "200 FAILED 2 16",
            ),
            "state is 'OUT_OF_ME\\+'|306 . OUT_OF_MEMORY",
        ),
        never=(r"^\| 200\+",),
    ),
    "09_node_lists": Wanted(
        (
            *_rows(*(f"{job} {n}" for job, n in ((1, 4), (2, 4), (3, 4), (4, 6), (7, 3), (9, 2)))),
            r"\| 5 \| 3 \| 24 \| gpu\[8-10\]",
            r"\| 6 \| 3 \| 24 \| gpu\[08-10\]",
            r"\| 10 \| 2 \| 16 \| compute\+b24_\[1-2\]",
            *_rows("12 2", "13 200", "14 4"),
            r"\| 8 \| 12 \| 96 \|",
            r"\| 11 \| 12 \| 96 \|",
        )
    ),
    "12_slurmctld": Wanted(
        (
            r"\| 16 \| g12 \| NODE_DOWN",
            r"\| 17 \| g13 \| NODE_DOWN",
            r"\| 9 \| g07 \| PROLOG_ERROR",
            r"\| g11 \| DRAIN \| gres/gpu count reported lower",
        )
    ),
    "13_amd_kernel": Wanted(
        (
            "^Job 1 .*gpu-(memory|unavailable) on m1",
            "^Job 2 .*gpu-memory on m2",
            "kernel amdgpu-ras-uncorrectable on m1",
        ),
        never=("found no error in them[.]",),
    ),
    "14_runaway_job": Wanted(
        ("such as job 500(?s:.*)^5 records read(?s:.*)such as job 500",),
    ),
    "17_training_logs": Wanted(
        (
            "megatron.log: .*rows of progress .3.",
            "titan.out: .*rows of progress .2.",
            "progress.txt: .*rows of progress .2.",
        ),
        refused=(
            "megatron_old.log: .*does not say when",
            "nemo.log: .*does not say when",
            "wandb_export.csv: .*does not say when",
            "hf_state.json: .*does not say when",
        ),
    ),
    "18_inval_node": Wanted(
        (
            *(rf"\| {node} \|.*\| false \| gres-count" for node in ("g6", "g7", "g8")),
            r"gres-count +no +3 +0 +3 +30 ",
        )
    ),
    "19_future_nodes": Wanted(
        (
            "4 nodes over 24 h, 96 node-hours in service",
            "gres/npu .1 node., gres/dcu .1 node.",
            *_rows("g1 8 h100", "m1 12"),
        )
    ),
    "20_mig_xid": Wanted(
        (
            *_rows("g1 94 0000:01:00", "g1 79 0000:3b:00", "g2 95 0000:01:00"),
            " 1 .*g1 +gpu-unavailable",
            " 2 .*g2 +gpu-memory",
        )
    ),
    "21_xid154_recovered": Wanted(
        (
            "^Job 1 ended FAILED: no failure of the infrastructure",
            "^Job 3 .*nvlink on g3",
            "^1 failure, ",
        ),
        never=("found no error in them[.]",),
    ),
    "24_nhc_log": Wanted((r"11:55:02Z \| gpu-1 \|",)),
    "25_recycled_ids": Wanted(("of 3 attempts ", "Another job had this id before"), ("^ +4  ",)),
    "27_nvsentinel_pod_log": Wanted(
        ("events.ndjson: .*rows of events .1.",),
        refused=tuple(f"{name}: no known" for name in ("k8s_events.json", "dcgm.prom")),
    ),
    "28_public_traces": Wanted(
        (
            r"\| dlrm1 \| COMPLETED \| 8 \| 2023-06-30T16:10:00Z",
            r"\| dlrm2 \| FAILED \| 16 \|",
            r"\| dlrm3 \| NODE_FAIL \| 16 \|",
            r"\| dlrm4 \| CANCELLED \| 0 \|",
        ),
        refused=("acme.csv: no known", "pai.csv: no known"),
    ),
    "29_gathered_logs": Wanted(
        (*_rows("node18 79", "node19 79"), " 1 .*node18 +gpu-", " 2 .*node19 +gpu-"),
        never=("all-nodes \\|",),
    ),
    "30_powered_down_in_service": Wanted(("of 43.333 node-hours in service",)),
    "33_pipe_last_comment": Wanted(
        (r"^\| 10 \| NODE_FAIL \| 512", r"^\| 12 \| COMPLETED \| 8", r"^\| 11 \||^\| \d+ \| "),
    ),
}
"""By the name of the case's folder."""


def run(size: int) -> Table:
    """Every case that lies in the folder; none where there is no folder."""
    place = os.environ.get("ETTR_CASES", "")
    rows: list[tuple[str, ...]] = []
    if size and place:
        with tempfile.TemporaryDirectory(prefix="ettr-field-") as folder:
            command = Path(folder) / "ettr"
            command.write_text(_COMMAND.format(src=_SOURCES, python=sys.executable))
            command.chmod(0o755)
            for want in sorted(Path(place).rglob("want.txt")):
                if want.parent.name in WANTED:
                    rows.append((want.parent.name, *judged(want.parent, command)))
    counts = [
        f"{sum(row[1] == verdict for row in rows)} {verdict}"
        for verdict in ("right", "refused as allowed", "wrong")
    ]
    return Table(
        ("case", "verdict", "what is not as asked"),
        tuple(rows),
        "none, the cases are fixed",
        "no case wrong",
        f"Of {len(rows)} cases: {', '.join(counts)}."
        if rows
        else "No cases: `ETTR_CASES` names no folder with some.",
    )


def judged(case: Path, command: Path) -> tuple[str, str]:
    """The verdict of one case, and which patterns are not as asked."""
    asked = WANTED[case.name]
    environment = {**os.environ, "ETTR": str(command), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", str(case / "run.sh")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LONGEST_S,
        check=False,
    )
    text = done.stdout.decode("utf-8", "replace")

    def has(pattern: str) -> bool:
        return re.search(pattern, text, re.MULTILINE) is not None

    faults = [f"no line of {pattern}" for pattern in asked.lines if not has(pattern)]
    faults += [f"a line of {pattern}" for pattern in asked.never if has(pattern)]
    if "Traceback" in text:
        faults.append("a traceback")
    if faults:
        return "wrong", "; ".join(f"`{fault}`" for fault in faults).replace("|", "\\|")
    refused = any(has(pattern) for pattern in asked.refused)
    return ("refused as allowed" if refused else "right"), ""
