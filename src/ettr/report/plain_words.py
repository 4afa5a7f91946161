"""Numbers and names as one says them: few digits, no powers of ten, no codes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ettr.report.findings import Finding
from ettr.taxonomy.catalogue import Taxonomy
from ettr.taxonomy.rules import UNATTRIBUTED
from ettr.units import HOURS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ettr.words import counted

NO_CAUSE = "no cause found"
_PLAIN = {
    "gpu-unavailable": "GPU unavailable",
    "gpu-memory": "GPU memory",
    "gpu-driver": "GPU driver",
    "nvlink": "NVLink",
    "infiniband": "InfiniBand",
    "filesystem": "file system",
    "main-memory": "main memory",
    "ethlink": "Ethernet",
    "pcie": "PCIe",
    "node-hardware": "node hardware",
    "boot": "node did not start",
    "oom": "out of memory",
    UNATTRIBUTED: NO_CAUSE,
}
_BRIEF = {
    "clock-shift": "clocks of two logs disagree",
    "runaway-jobs": "jobs without an end are counted",
    "too-few-states": "the export lacks end states",
    "unseen-attempts": "the accounting lacks some jobs",
    "restarts": "the accounting lacks some restarts",
    "part-covered": "logs cover only part of the period",
    "dump-window": "the export leaves jobs out",
    "early-start": "old jobs, but no nodes",
    "no-node-states": "a cluster lacks node states",
    "unplaced-rows": "some logs name no cluster",
    "unended-states": "node states lack an end",
    "no-node-list": "some jobs name no nodes",
    "no-gpu-count": "some jobs name no GPUs",
    "black-hole": "a node ends jobs at once",
    "hangs": "some runs probably hung",
    "no-checks": "no node logs were read",
    "other-names": "logs name nodes differently",
    "silent-nodes": "some nodes sent no logs",
    "false-failures": "some failures may be false",
    "down-by-hand": "nodes were stopped by hand",
    "short-logs": "the logs are very short",
    "read-again": "some files must be read again",
    "no-gpu-errors": "no log holds GPU errors",
    "joined-names": "nodes have several names",
}
_MOST, _BILLION, _MILLION = 1e12, 1e9, 1e6
_SMALLEST = 0.001


def plainly(value: float, digits: int = 2) -> str:
    """A number to two digits as one says it: 190,000, 1.2 million, under 0.001."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "endless"
    if value < 0.0:
        return f"minus {plainly(-value, digits)}"
    if 0.0 < value < _SMALLEST:
        return f"under {_SMALLEST}"
    if value >= _MOST:
        return "over 1,000 billion"
    for unit, name in ((_BILLION, " billion"), (_MILLION, " million")):
        if value >= unit:
            return _digits(value / unit, digits) + name
    return _digits(value, digits)


def _digits(value: float, digits: int) -> str:
    if value == 0.0:
        return "0"
    places = digits - 1 - math.floor(math.log10(value))
    rounded = round(value, places)
    if places <= 0 or rounded == int(rounded):
        return f"{rounded:,.0f}"
    return f"{rounded:.{places}f}".rstrip("0").rstrip(".")


def share_words(share: float) -> str:
    """A share in percent: 0.82 %, 34 %, under 0.01 %."""
    percent = 100.0 * share
    if 0.0 < percent < 0.01:
        return "under 0.01 %"
    return f"{plainly(percent)} %"


def hours_words(hours: float) -> str:
    """A length of time that is given in hours: 25 minutes, 7 hours, 13 days."""
    if hours < 2.0:
        return f"{plainly(hours * SECONDS_PER_HOUR / SECONDS_PER_MINUTE)} minutes"
    if hours < 2 * HOURS_PER_DAY:
        return f"{plainly(hours)} hours"
    return f"{plainly(hours / HOURS_PER_DAY)} days"


def cause_name(taxonomy: Taxonomy, symptom: str) -> str:
    """The plain name of a symptom."""
    known = taxonomy.symptoms.get(symptom)
    return _PLAIN.get(symptom) or (known.name if known else symptom.replace("-", " "))


def brief_of(finding: Finding) -> str:
    """A finding in about five words."""
    return _BRIEF.get(finding.code) or finding.code.replace("-", " ")


def nodes_words(names: Sequence[str]) -> str:
    """One node by its name, several by their number."""
    return names[0] if len(names) == 1 else counted(len(names), "node")
