"""Kernel logs: XIDs, SXIDs, GPUs fallen off the bus, and the errors that the taxonomy lists.

Reads dmesg (plain, -T, --time-format iso, --json), syslog with old and ISO stamps and RFC 5424, and
journalctl in all its forms, gathered or not. All other lines are counted as skipped, and are passed
over without being parsed; that they were there shows on which days a node's log was arriving.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ettr.sources.base import READERS, ReadOptions, Source
from ettr.sources.kernel_lines import (
    KERNEL,
    PREFIXES,
    KernelDays,
    is_journal,
    is_of_kernel,
    message_of,
    plain_head,
    wrapping_of,
)
from ettr.sources.lines import (
    SEARCHED_CHARACTERS,
    BadRecordError,
    blocks,
    first_texts,
    lines_with,
)
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import MONTHS, has_local_stamps, time_in, time_of
from ettr.tables.rows import Batch, clean, text_of
from ettr.taxonomy.rules import KERNEL_CHECK, KernelForm, read_kernel_forms

NAME = "kernel-xid"

# journald writes a message that is not UTF-8 as an array of bytes, where no word shows
_ARRAYS = (b'"MESSAGE":[', b'"MESSAGE": [', b'"MESSAGE" : [')
# of three lines on a GPU that fell off its bus the first names it and the last says so
_LINES_OF_ONE = 4


def _time_of(file: LogRows, found: re.Match[str], number: int, line: str) -> datetime | None:
    """The moment of a line's stamp in UTC; what is assumed is noted."""
    parts, start = found.groupdict(), file.options.start
    if parts.get("uptime"):
        if start is None:
            return None
        file.note("stamps are seconds since boot; the boot was taken from the start given")
        try:
            return start.astimezone(UTC) + timedelta(seconds=float(parts["uptime"]))
        except OverflowError:
            return None
    if parts.get("iso"):
        iso, offset = parts["iso"], parts["offset"]
        return time_of(iso + offset) if offset else file.local_time(iso)
    text = f"{MONTHS[parts['month']]:02d}-{int(parts['day']):02d}T{parts['clock'].zfill(8)}"
    if parts.get("year"):
        return file.local_time(f"{parts['year']}-{text}")
    return file.time_without_year(text, number, line)


@dataclass(slots=True)
class _Named:
    """A GPU that the first of several lines names."""

    number: int
    time: datetime
    pci: str


class _Kernel:
    """Turns the lines of one log that hold a mark into events."""

    def __init__(self, file: LogRows) -> None:
        self._file = file
        self.forms = Forms(file.options.kernel) if file.options.kernel else package_forms()
        self._named: dict[str | None, _Named] = {}
        self._seen: set[tuple[str | None, str, str | None]] = set()

    def text_line(self, number: int, line: bytes) -> None:
        text = text_of(line[:SEARCHED_CHARACTERS]).replace("\x00", "\ufffd")
        found = next((found for form in PREFIXES if (found := form.match(text))), None)
        if found is None:
            self._unstamped(number, text.strip())
            return
        message = text[found.end() :].strip()
        if not KERNEL.match(message) and not _is_dmesg(found):
            # the words occur in a line of another program, which may well quote the kernel's
            self._file.count_skipped()
            return
        parts = found.groupdict()

        def time() -> datetime:
            stamp = _time_of(self._file, found, number, text)
            if stamp is None and parts.get("uptime"):
                raise BadRecordError(
                    "no-boot-time",
                    "the stamp is seconds since boot; say when the node booted with --start, or "
                    "take the log with dmesg -T",
                )
            if stamp is None:
                raise BadRecordError("bad-timestamp", f"no time: {found.group(0)!r}")
            return stamp

        named = clean(parts.get("host")) or clean(parts.get("gathered"))
        self._see(number, _bare(message), named, time)

    def _see(self, number: int, text: str, named: str | None, time: Callable[[], datetime]) -> None:
        """Keep what a message of the kernel reports of the nodes that its line names."""
        seen = self.forms.observations(text)
        if seen is None:
            raise BadRecordError("unknown-form", "a kernel message that holds a mark of an error")
        gpu = NAMED_GPU.search(text) if not seen else None
        if seen or gpu is not None:
            moment = time()
            for node in named.split(",") if named else [self._file.node_of_file()]:
                if gpu is not None:
                    self._named[node] = _Named(number, moment, gpu["pci"])
                self._keep(number, moment, node, text, seen)
        if not seen:
            self._file.count_skipped()

    def _unstamped(self, number: int, text: str) -> None:
        """A line without a stamp: of a message over several lines, or of no known wrapping."""
        seen = self.forms.observations(text)
        if not seen:
            self._file.count_skipped()
            return
        newest = max(self._named.items(), key=lambda one: one[1].number, default=None)
        if newest is None or number - newest[1].number >= _LINES_OF_ONE:
            raise BadRecordError("bad-timestamp", "the line begins with no stamp known")
        self._keep(number, newest[1].time, newest[0], text, seen)

    def journal_line(self, number: int, line: bytes) -> None:
        try:
            record = json.loads(text_of(line))
        except (ValueError, RecursionError) as error:
            raise BadRecordError("bad-json", f"no JSON: {error}") from error
        text = message_of(record.get("MESSAGE")) if isinstance(record, dict) else None
        if not text or not is_of_kernel(record):
            self._file.count_skipped()
            return

        def time() -> datetime:
            stamp = record.get("_SOURCE_REALTIME_TIMESTAMP") or record.get("__REALTIME_TIMESTAMP")
            is_micros = re.fullmatch(r"[0-9]{10,17}", str(stamp))
            return time_in(int(str(stamp)) / 1e6 if is_micros else None, "__REALTIME_TIMESTAMP")

        self._see(number, text, clean(record.get("_HOSTNAME")), time)

    def _keep(
        self, number: int, time: datetime, node: str | None, text: str, seen: list[Observation]
    ) -> None:
        for place, one in enumerate(seen):
            named = self._of_three_lines(number, node, one)
            if named["check"] == SERIAL and not named.get("entity"):
                self._file.count_skipped()  # of which GPU it is no line says
                continue
            if named["check"] == "xid":
                key = (node, named["code"].partition(".")[0], named.get("entity"))
                # what another XID names as its cause counts where no line of its own came before
                if place and key in self._seen:
                    continue
                self._seen.add(key)
            self._file.events.add(line=number, time=time, node=node, message=text, **named)

    def _of_three_lines(self, number: int, node: str | None, one: Observation) -> Observation:
        """The observation with the GPU that a line just before it named, where it names none."""
        if one["check"] not in ("xid", SERIAL) or one.get("entity"):
            return one
        before = self._named.pop(node, None)
        if before is None or number - before.number >= _LINES_OF_ONE:
            return one
        return one | {"entity_type": "PCI", "entity": pci_address(before.pci)}


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Events of checks `xid`, `sxid` and `kernel`, one for each line that reports one."""
    file = LogRows(NAME, origin, options)
    kernel = _Kernel(file)
    wrapping = wrapping_of(origin.head)
    as_json = wrapping is None and is_journal(origin.head)
    days = KernelDays(file, as_json=as_json)
    arrays = _ARRAYS if as_json else ()
    keep = kernel.journal_line if as_json else kernel.text_line
    number = 0
    for block in wrapping(blocks(origin)) if wrapping else blocks(origin):
        starts = kernel.forms.marks.lines(block)
        starts.update(start for mark in arrays for start in lines_with(block, mark))
        n_lines = block.count(b"\n")
        n_empty = sum(not line for line in block.split(b"\n")[:-1]) if wrapping else 0
        file.count_read(n_lines - n_empty)
        file.count_skipped(n_lines - n_empty - len(starts))
        for at, line in _numbered(block, sorted(starts), number):
            file.keep_or_reject(at, line, keep, bytes)
            if file.is_full:
                yield file.batch()
        days.see(block, number)
        number += n_lines
        if file.is_full:
            yield file.batch()
    days.keep()
    yield file.batch()


def _numbered(block: bytes, starts: list[int], before: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin at these places, with their numbers."""
    at, number = 0, before + 1
    for start in starts:
        number += block.count(b"\n", at, start)
        at = start
        yield number, block[start : block.find(b"\n", start)].rstrip(b"\r")


def _bare(message: str) -> str:
    """The message without `kernel: [12.3]`, so that one line seen in two logs reads the same."""
    return re.sub(
        r"^(?:kernel(?:\[\d+\])?: ?)?(?:\[\s*\d+\.\d+\] ?(?:\[\s*[TC]\d+\] ?)?)?", "", message
    )


def _is_dmesg(found: re.Match[str]) -> bool:
    """Whether a line begins as dmesg writes it: its stamp names no program."""
    parts = found.groupdict()
    iso = parts.get("iso")
    return bool(parts.get("uptime") or parts.get("year") or (iso and "," in iso))


def _looks_kernel(line: str) -> bool:
    for pattern in PREFIXES:
        if found := pattern.match(line):
            rest = line[found.end() :].lstrip()
            # dmesg brackets its stamp; all others name the program
            return _is_dmesg(found) or rest.startswith(("kernel", "NVRM:", "nvidia-nvswitch"))
    return False


def matches(head: bytes, name: str) -> float:
    """How sure it is that these are lines of a kernel log."""
    if is_journal(head):
        return 0.95 if b'"MESSAGE"' in head else 0.8
    lines = first_texts(plain_head(head))
    if not lines:
        return 0.0
    kernel = [line for line in lines if _looks_kernel(line)]
    # the forms are read where a line may have one
    if any(package_forms().observations(line) for line in kernel):
        return 0.95
    share = len(kernel) / len(lines)
    if share >= 0.5:
        return 0.8
    # a syslog in which the kernel speaks now and then
    return 0.55 if kernel and ("kern" in name or "messages" in name or "syslog" in name) else 0.0


_local_stamps = has_local_stamps(*PREFIXES)


def prints_local(head: bytes) -> bool:
    """Whether the stamps of this file are local time without a zone."""
    plain = plain_head(head)
    return not is_journal(plain) and _local_stamps(plain)


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="kernel logs: XIDs and other errors of a node (dmesg, syslog, journalctl)",
    tables=("events", "log_days"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=("--timezone", "--cluster", "--start"),
    how_to_get="journalctl -k -o json --no-pager > NODE.json, or dmesg -T > NODE.dmesg",
)


# -- What a kernel message reports: XIDs and SXIDs here, all else by the taxonomy's rows ----------

Observation = dict[str, Any]

INJECTED = "xid injected"
_FALLEN_WORDS = "fallen off the bus"
SERIAL = "serial"
_BOARD = "NVRM: GPU Board Serial Number"
_OF_GPUS = (_FALLEN_WORDS, "NVRM: The NVIDIA GPU", "NVRM: GPU at PCI:", _BOARD)
_MARKS = (*_OF_GPUS, "NVRM: Xid", "Xid (PCI:", ": SXid (")
# the first of several lines; what it says of a GPU ends, or goes on in the line itself
NAMED_GPU = re.compile(
    r"NVRM: (?:The NVIDIA GPU |GPU at PCI:)(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{1,40})"
)
_NUMBER = re.compile(rf"{_BOARD}: ?(?P<number>[0-9A-Z]{{6,20}})\b")
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
        if _BOARD in text:
            number = _NUMBER.search(text)
            return [{"check": SERIAL, "code": number[1], "severity": "ok"}] if number else []
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
        words = [(self._windows >> shift).astype("<u4").tolist() for shift in shifts]
        # `np.unique` loads all of NumPy's masked arrays
        self._words = [np.array(sorted(set(some)), dtype="<u4") for some in words]
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
