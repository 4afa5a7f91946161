"""What a kernel message reports: XIDs and SXIDs here, all else by the taxonomy's rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ettr.taxonomy.rules import KERNEL_CHECK, KernelForm, read_kernel_forms

Observation = dict[str, Any]

INJECTED = "xid injected"
_FALLEN_WORDS = "fallen off the bus"
_MARKS = (_FALLEN_WORDS, "NVRM: The NVIDIA GPU", "NVRM: Xid", "Xid (PCI:", ": SXid (")
# the first of three lines; what it says of a GPU ends, or goes on in the line itself
NAMED_GPU = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{1,40})")
# printk cuts its lines at about so many characters
_SEARCHED = 1000
# what lies between is bounded, so that a line's time does not grow as its square
# of a GPU that is divided (MIG) the driver names the instances too: ` GPU-I:05 GPU-CI:00`
_XID = re.compile(
    r"Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,40})(?: [^()]{1,60})?\)[^:\d]{0,80}: "
    r"(?P<code>\d{1,6})\b(?P<rest>.*)",
    re.DOTALL,
)
_SXID = re.compile(
    r"SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,40})\)[^:\d]{0,80}: (?P<code>\d{1,6})\b(?P<rest>.*)",
    re.DOTALL,
)
_ANY_XID = re.compile(r"\bS?Xid \(")
_FALLEN = re.compile(
    r"NVRM: (?:GPU at |GPU )?(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{1,40}?):? "
    r"?(?:GPU )?has fallen off the bus"
)
_FALLEN_UNNAMED = re.compile(r"NVRM: (?:[^\n:]{0,80} )?fallen off the bus")
_NVLINK5 = re.compile(
    r"\b(?P<unit>[A-Z][A-Z0-9_]*(?:/[A-Z0-9_]+)?)\s+(?P<severity>Non-?fatal|Link[ -]Fatal|Fatal)"
    r"\s+XC(?P<xc>\d)\s+i(?P<injected>\d)(?:\s+Link\s+(?P<link>-?\d+))?",
    re.IGNORECASE,
)
_NVLINK5_CODES = range(144, 151)
_FATAL = {"nonfatal": "nonfatal", "non-fatal": "nonfatal", "fatal": "fatal"}
# the driver's own words, and none of the name of a process
_PROCESS = re.compile(r"\bname=[^,]{0,80}")
_INJECTED = re.compile(r"\binjected\b", re.IGNORECASE)
_CAUSED_BY = re.compile(r"\bcaused by previous Xid (\d{1,6})\b")


class Forms:
    """The forms of kernel messages that a log is read by: a site's own, then the package's."""

    def __init__(self, site: tuple[KernelForm, ...] = ()) -> None:
        self.rows = (*site, *read_kernel_forms())
        self.texts = (*_MARKS, *(row.mark for row in self.rows))
        self.marks = Marks(text.encode() for text in self.texts)

    def observations(self, text: str) -> list[Observation] | None:
        """What a message reports, an empty list for what is known to be no error.

        None for a message that holds a mark and fits no form. Each observation holds columns of
        `events`: check, code, entity, and severity where the message states it.
        """
        if "Xid" in text and (seen := _xids(text)) is not None:
            return seen
        if "Xid" in text and _ANY_XID.search(text):
            return None
        if _FALLEN_WORDS in text and "NVRM" in text:
            return _fallen(text)
        text = text[:_SEARCHED]
        for row in self.rows:
            if found := row.search(text):
                return [] if row.symptom is None else [_of_row(row, found)]
        return None if any(row.mark in text for row in self.rows) else []


@cache
def package_forms() -> Forms:
    """The package's own forms alone."""
    return Forms()


def _of_row(row: KernelForm, found: re.Match[str]) -> Observation:
    entity = found.groupdict().get("entity")
    if entity is None:
        return {"check": KERNEL_CHECK, "code": row.code}
    if row.entity_type == "PCI":
        entity = pci_address(entity)
    kind = row.entity_type or None
    return {"check": KERNEL_CHECK, "code": row.code, "entity_type": kind, "entity": entity}


def _xids(text: str) -> list[Observation] | None:
    if found := _SXID.search(text):
        first = found["rest"].strip(" ,").split(",")[0].strip().lower()
        severity = {"fatal": "critical", "non-fatal": "warning", "nonfatal": "warning"}
        return [
            {
                "check": "sxid",
                "code": str(int(found["code"])),
                "severity": severity.get(first, "unknown"),
                "entity_type": "NVSWITCH",
                "entity": pci_address(found["pci"]),
            }
        ]
    found = _XID.search(text)
    if found is None:
        return None
    seen = _of_gpu(_xid_code(int(found["code"]), found["rest"]), found["pci"])
    words = _PROCESS.sub("", found["rest"][:_SEARCHED])
    if _INJECTED.search(words) or ((link := _NVLINK5.search(words)) and link["injected"] != "0"):
        return [seen | {"check": INJECTED}]
    cause = _CAUSED_BY.search(words)
    return [seen, _of_gpu(str(int(cause[1])), found["pci"])] if cause else [seen]


def _fallen(text: str) -> list[Observation] | None:
    found = _FALLEN.search(text) or NAMED_GPU.search(text)
    if found:
        return [_of_gpu("79", found["pci"])]
    return [{"check": "xid", "code": "79"}] if _FALLEN_UNNAMED.search(text) else None


def _of_gpu(code: str, pci: str) -> Observation:
    return {"check": "xid", "code": code, "entity_type": "PCI", "entity": pci_address(pci)}


def _xid_code(code: int, rest: str) -> str:
    """`79`, or for NVLink5 `149.NETIR_LINK_EVT.fatal`."""
    detail = _NVLINK5.search(rest) if code in _NVLINK5_CODES else None
    if detail is None:
        return str(code)
    severity = _FATAL.get(detail["severity"].lower(), "link-fatal")
    return f"{code}.{detail['unit'].upper()}.{severity}"


def pci_address(address: str) -> str:
    """The address in lower case without its function, as XID lines and others agree on it."""
    return re.sub(r"\.\d+$", "", address.lower().rstrip(":."))


# -- Finds the lines that hold one of many texts, at about the cost of looking for one ------------

_WORD = 4
# a text of so many bytes holds a whole word, wherever the words of a block begin
SHORTEST_BYTES = 2 * _WORD - 1
_MIX = np.uint32(0x9E3779B1)
_UPPER_HALF = 1
_WINDOW = np.uint64((1 << 8 * SHORTEST_BYTES) - 1)
# what most lines are made of: a part of a text without any of it is found in fewer other places
_COMMON = (
    b" kernel: kernel link becomes ready entered state error, failed device port module "
    b"new high-speed interrupt took too long audit operation profile mlx5_core 0000: nvme nvme0: "
    b"amdgpu: amdgpu 0000: enabled register driver memory page process task not responding to the "
    b"temperature threshold time reset timeout of the in the and for more than during progress "
    b"using this service exceed before physical internal another action transaction version "
    b"corruption blocked connection recovery detected Link is Up: Link up: Going to event on dev "
)


class Marks:
    """Texts that mark a line.

    Of each a window of seven bytes is chosen, which holds a whole word of four bytes in one of four
    places. A block's own words are looked up in a table; where one is known the window is compared,
    and where that is the same the text.

    Raises:
        ValueError: a text is shorter than `SHORTEST_BYTES`.
    """

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts: dict[int, list[tuple[bytes, int]]] = {}
        for text in set(texts):
            if len(text) < SHORTEST_BYTES:
                raise ValueError(f"{text!r} has fewer than {SHORTEST_BYTES} bytes")
            first = min(range(len(text) - SHORTEST_BYTES + 1), key=lambda at: _n_common(text, at))
            window = int.from_bytes(text[first : first + SHORTEST_BYTES], "little")
            self._texts.setdefault(window, []).append((text, first))
        self._windows = np.array(sorted(self._texts), dtype="<u8")
        shifts = np.arange(_WORD, dtype="<u8") * np.uint64(8)
        self._words = [np.unique((self._windows >> shift).astype("<u4")) for shift in shifts]
        self._table = np.zeros(1 << 16, dtype=np.bool_)
        self._table[_hashes(np.concatenate(self._words))] = True

    def lines(self, block: bytes) -> set[int]:
        """Where each line begins that holds one of the texts, as places in the block."""
        starts: set[int] = set()
        n_wide = len(block) - SHORTEST_BYTES
        if n_wide < 1:
            return starts
        words = np.frombuffer(block, "<u4", len(block) // _WORD)
        wide = np.ndarray((n_wide,), "<u8", block, strides=(1,))
        places = np.flatnonzero(self._table.take(_hashes(words)))
        found = words[places]
        for shift, known in enumerate(self._words):
            at = places[_among(found, known)] * _WORD - shift
            at = at[(at >= 0) & (at < n_wide)]
            windows = wide[at] & _WINDOW
            same = _among(windows, self._windows)
            for place, window in zip(at[same].tolist(), windows[same].tolist(), strict=True):
                if any(block.startswith(text, place - n) for text, n in self._texts[window]):
                    starts.add(block.rfind(b"\n", 0, place) + 1)
        return starts


def _hashes(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint16]:
    halves: npt.NDArray[np.uint16] = (words * _MIX).view("<u2")[_UPPER_HALF::2]
    return halves


def _among(values: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of the values are known; those are sorted."""
    same: npt.NDArray[np.bool_] = (
        known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    )
    return same


def _n_common(text: bytes, at: int) -> int:
    return sum(text[place : place + _WORD] in _COMMON for place in range(at, at + _WORD))
