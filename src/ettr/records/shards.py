"""Shards of progressive records: written once, read up to the fidelity that is asked for.

A shard is a plain tar: `index.json`, `sidecars.bin` (labels and the like), then one member per
group of scans, each with that group of all images, one after the other. The first k groups are
the head of the file, so that fidelity k is one read. `records.json` next to the shards says
where each head ends.

Which fidelity to read: fewer scans are fewer bytes, but all scans take two to three times the CPU
of a plain JPEG, so that progressive records lose where bytes are plenty. The rate of a reader is
that of its scarcer side: the bandwidth over the bytes of an image, or the cores over its CPU
seconds.
"""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import subprocess
import tarfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

from ettr.errors import EttrError
from ettr.files import write_text, written_whole
from ettr.words import counted

# -- the scans of a JPEG: where each ends, and how a picture becomes progressive without a loss ----


END_OF_IMAGE = b"\xff\xd9"
_START_OF_IMAGE = b"\xff\xd8"
_START_OF_SCAN = 0xDA
_END = 0xD9
# a marker within entropy-coded data: not a stuffed zero, a restart marker or a fill byte
_MARKER = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")
_LONGEST_S = 60.0
_MOST_SEQUENTIAL = 4  # scans of a sequential file: one a component
_MOST_SCANS = 100
"""A hostile file can hold thousands of scans, each a pass over the whole picture."""


class JpegError(EttrError):
    """Bytes are not a JPEG that can be taken apart."""


def scan_ends(jpeg: bytes) -> tuple[int, ...]:
    """Offsets at which the scans of a JPEG end; any of them plus an end mark is a JPEG.

    What stands before a scan (tables, headers) belongs to it.

    Raises:
        JpegError: the bytes are no JPEG, are cut, or hold more than 100 scans.

    Example:
        >>> from ettr.records import scan_ends
        >>> scan_ends(b"")
        Traceback (most recent call last):
        ...
        ettr.records.shards.JpegError: not a JPEG: it begins with no start mark
    """
    if not jpeg.startswith(_START_OF_IMAGE):
        raise JpegError("not a JPEG: it does not begin with a start marker")
    ends: list[int] = []
    place = 2
    while True:
        marker = _MARKER.match(jpeg, place)
        if marker is None:
            raise JpegError(f"a cut or damaged JPEG: no marker at byte {place}")
        kind = jpeg[marker.end() - 1]
        if kind == _END:
            if not ends:
                raise JpegError("a JPEG without a scan")
            return tuple(ends)
        length = int.from_bytes(jpeg[marker.end() : marker.end() + 2], "big")
        place = marker.end() + length
        if length < 2 or place > len(jpeg):
            raise JpegError(f"a cut or damaged JPEG: the segment at byte {marker.start()}")
        if kind == _START_OF_SCAN:
            following = _MARKER.search(jpeg, place)
            if following is None:
                raise JpegError(f"a cut JPEG: scan {len(ends) + 1} does not end")
            place = following.start()
            ends.append(place)
            if len(ends) > _MOST_SCANS:
                raise JpegError(f"a JPEG of more than {_MOST_SCANS} scans")


def progressive(jpeg: bytes) -> bytes:
    """The same pixels as a progressive JPEG, by `jpegtran`; one that is progressive stays.

    Only the coding of the coefficients changes: every pixel is the same, metadata are kept.

    Raises:
        JpegError: the bytes are no JPEG.
        EttrError: `jpegtran` is not installed.
    """
    if len(scan_ends(jpeg)) > _MOST_SEQUENTIAL:
        return jpeg
    return transcoded(jpeg, "-progressive")


def transcoded(jpeg: bytes, *options: str) -> bytes:
    """A JPEG coded again without a loss, tables optimised.

    Raises:
        JpegError: `jpegtran` refuses the bytes, or takes longer than a minute.
        EttrError: `jpegtran` is not installed.
    """
    tool = shutil.which("jpegtran")
    if tool is None:
        raise EttrError(
            "no `jpegtran`, which makes JPEGs progressive without loss: install it "
            "(Debian: libjpeg-turbo-progs), or give files that are progressive"
        )
    try:
        done = subprocess.run(
            [tool, "-copy", "all", "-optimize", *options],
            input=jpeg,
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JpegError(f"jpegtran took longer than {_LONGEST_S:.0f} s") from None
    # 2 is a warning: the data are damaged, and what came out is a guess
    if done.returncode or not done.stdout.endswith(END_OF_IMAGE):
        message = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise JpegError(f"jpegtran: {message[-1] if message else 'no image came out'}")
    return done.stdout


# -- shards of progressive records: written once, read up to the fidelity that is asked for --------


MANIFEST = "records.json"
FORMAT = "ettr records 1"
GROUPS = (1, 2, 5, 10)
"""Scans of each fidelity: libjpeg's own script has ten in colour, six in grey."""
_ENDINGS = (".jpg", ".jpeg")
_BLOCK = 512
_LARGEST_SIDECAR_BYTES = 1 << 20
_AT_A_TIME = 32

Reader = Callable[[Path, int], bytes]
"""Reads the first bytes of a file: `read(path, n_bytes)`; fewer come back where the file is cut."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An image to be written: its name, its JPEG, and what belongs to it, by ending."""

    name: str
    jpeg: bytes
    sidecars: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that was left out: the file, the index of the sample in it, and why."""

    file: str
    index: int | None
    why: str

    def __str__(self) -> str:
        place = "" if self.index is None else f", sample {self.index}"
        return f"{self.file}{place}: {self.why}"


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image as it was read: a JPEG of the scans that were asked for."""

    name: str
    jpeg: bytes
    sidecars: Mapping[str, bytes]
    n_scans: int


@dataclass(frozen=True, slots=True)
class ShardRead:
    """What one read of a shard gave: its records, and what is damaged in it."""

    records: tuple[ImageRecord, ...]
    damage: tuple[Damage, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """What was written: images, bytes before and after, and samples that were left out."""

    n_samples: int
    n_shards: int
    given_bytes: int
    written_bytes: int
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class RecordShard:
    """A shard as the manifest names it; `head_bytes[k - 1]` is what fidelity k reads."""

    file: str
    n_samples: int
    head_bytes: tuple[int, ...]
    index_crc32: int


@dataclass(frozen=True, slots=True)
class ImageRecords:
    """A folder of shards.

    Attributes:
        groups: scans of each fidelity, ascending; fidelity 1 is the coarsest.
        read: how the head of a file is read; another one reads from elsewhere.
    """

    folder: Path
    groups: tuple[int, ...]
    shards: tuple[RecordShard, ...]
    read: Reader

    @property
    def n_samples(self) -> int:
        """The number of images."""
        return sum(shard.n_samples for shard in self.shards)

    @property
    def full(self) -> int:
        """The fidelity of all pixels."""
        return len(self.groups)

    def head_bytes(self, fidelity: int) -> int:
        """Bytes that one pass over all shards reads at a fidelity."""
        return sum(shard.head_bytes[self._checked(fidelity) - 1] for shard in self.shards)

    def read_shard(self, index: int, fidelity: int | None = None) -> ShardRead:
        """The images of one shard up to a fidelity, by one read; all of it unless given.

        A shard that is cut or damaged gives the images that are whole up to that fidelity.
        """
        shard = self.shards[index]
        level = self._checked(self.full if fidelity is None else fidelity)
        head = self.read(self.folder / shard.file, shard.head_bytes[level - 1])
        return _parsed(shard, self.groups, level, head)

    def stream(
        self,
        fidelity: int | Callable[[], int] | None = None,
        shards: Iterable[int] | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[ImageRecord]:
        """The images of some shards, in the order given, one shard in memory at a time.

        Args:
            fidelity: a level, or a function that is asked before each shard.
            shards: which, in which order (a worker's share, shuffled by the caller); all unless
                given.
            on_damage: takes what is left out; a warning each unless given.
        """
        for index in range(len(self.shards)) if shards is None else shards:
            found = self.read_shard(index, fidelity() if callable(fidelity) else fidelity)
            for damage in found.damage:
                if on_damage is None:
                    warnings.warn(str(damage), stacklevel=2)
                else:
                    on_damage(damage)
            yield from found.records

    def _checked(self, fidelity: int) -> int:
        if not 1 <= fidelity <= self.full:
            raise EttrError(f"fidelity {fidelity}: allowed are 1 (coarsest) to {self.full} (all)")
        return fidelity


def samples_of_folder(folder: Path | str) -> Iterator[Sample | Damage]:
    """The JPEGs below a folder, in the order of their paths; the folder of each is its label.

    Links are not followed.
    """
    root = Path(folder)
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in _ENDINGS)
    for index, path in enumerate(paths):
        name = path.relative_to(root).with_suffix("").as_posix()
        if path.is_symlink() or not path.is_file():
            yield Damage(str(path), index, "not a plain file")
            continue
        label = path.parent.relative_to(root).as_posix()
        sidecars = {} if label == "." else {"folder": label.encode()}
        yield Sample(name, path.read_bytes(), sidecars)


def samples_of_tars(paths: Iterable[Path | str]) -> Iterator[Sample | Damage]:
    """The samples of webdataset shards: members that share a name up to its first dot.

    A tar that is cut gives the samples before the cut, and a `Damage`.
    """
    for path in map(Path, paths):
        index = 0
        parts: dict[str, bytes] = {}
        key = ""
        try:
            with tarfile.open(path, "r|*") as tar:
                for member in tar:
                    if not member.isfile():
                        continue
                    place, _, name = member.name.rpartition("/")
                    stem, _, ending = name.partition(".")
                    own = f"{place}/{stem}" if place else stem
                    if own != key:
                        yield from _sample(path, index, key, parts)
                        index += bool(parts)
                        key, parts = own, {}
                    ending = ending.lower()
                    if f".{ending}" not in _ENDINGS and member.size > _LARGEST_SIDECAR_BYTES:
                        yield Damage(str(path), index, f"{member.name} is larger than a mebibyte")
                        continue
                    file = tar.extractfile(member)
                    data = b"" if file is None else file.read()
                    if len(data) != member.size:
                        raise tarfile.ReadError("unexpected end of data")
                    parts[ending] = data
            yield from _sample(path, index, key, parts)
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            yield Damage(str(path), index, f"the rest of the tar cannot be read: {error}")


def _sample(path: Path, index: int, key: str, parts: dict[str, bytes]) -> Iterator[Sample | Damage]:
    if not parts:
        return
    jpegs = [ending for ending in parts if f".{ending}" in _ENDINGS]
    if len(jpegs) == 1:
        jpeg = parts.pop(jpegs[0])
        yield Sample(key, jpeg, parts)
    else:
        yield Damage(str(path), index, f"{key} has {counted(len(jpegs), 'JPEG')}")


def write_records(
    samples: Iterable[Sample | Damage],
    folder: Path | str,
    *,
    groups: Sequence[int] = GROUPS,
    samples_a_shard: int = 256,
    jobs: int = 1,
) -> WrittenRecords:
    """Write images as shards of scan groups, lossless; one that is no JPEG is left out and named.

    The manifest is written last: a folder without one is a write that did not end.

    Args:
        samples: images to write; a `Damage` among them is handed on.
        folder: a new or an empty folder.
        groups: scans of each fidelity, ascending; all that is left belongs to the last.
        samples_a_shard: images a shard; a shard is held in memory.
        jobs: how many `jpegtran` run side by side.

    Raises:
        EttrError: the folder is not empty, the groups do not ascend, or no image is left.
    """
    root = Path(folder)
    levels = tuple(groups)
    if not levels or levels[0] < 1 or any(one >= two for one, two in pairwise(levels)):
        raise EttrError(f"scan groups {list(levels)}: give ascending numbers, such as 1 2 5 10")
    if samples_a_shard < 1:
        raise EttrError(f"{samples_a_shard} samples per shard: give at least one")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise EttrError(f"{root} is not an empty folder: give a new one")
    root.mkdir(parents=True, exist_ok=True)
    shards: list[RecordShard] = []
    damage: list[Damage] = []
    given_bytes = written_bytes = 0
    coded = _coded(samples, damage, jobs)
    while batch := list(islice(coded, samples_a_shard)):
        shard, n_bytes = _write_shard(root, len(shards), batch, levels)
        shards.append(shard)
        given_bytes += sum(given for given, _, _ in batch)
        written_bytes += n_bytes
    if not shards:
        why = f"; the first left out: {damage[0]}" if damage else ""
        raise EttrError(f"no JPEG to write into {root}{why}")
    manifest = {
        "format": FORMAT,
        "groups": levels,
        "shards": [
            {
                "file": one.file,
                "samples": one.n_samples,
                "head_bytes": one.head_bytes,
                "index_crc32": one.index_crc32,
            }
            for one in shards
        ],
    }
    write_text(root / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    n_samples = sum(shard.n_samples for shard in shards)
    return WrittenRecords(n_samples, len(shards), given_bytes, written_bytes, tuple(damage))


def _coded(
    samples: Iterable[Sample | Damage], damage: list[Damage], jobs: int
) -> Iterator[tuple[int, Sample, tuple[int, ...]]]:
    """Samples as progressive JPEGs with the ends of their scans, in order."""

    def code(index: int, sample: Sample) -> tuple[Sample, tuple[int, ...]] | Damage:
        try:
            jpeg = progressive(sample.jpeg)
            return Sample(sample.name, jpeg, sample.sidecars), scan_ends(jpeg)
        except JpegError as error:
            return Damage(sample.name, index, str(error))

    numbered = enumerate(samples)
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        while some := list(islice(numbered, _AT_A_TIME)):
            begun = [
                (sample, None if isinstance(sample, Damage) else pool.submit(code, index, sample))
                for index, sample in some
            ]
            for sample, future in begun:
                result = sample if future is None else future.result()
                if isinstance(result, Damage):
                    damage.append(result)
                elif isinstance(sample, Sample) and not isinstance(result, Sample):
                    yield len(sample.jpeg), result[0], result[1]


def _write_shard(
    root: Path,
    number: int,
    batch: Sequence[tuple[int, Sample, tuple[int, ...]]],
    groups: tuple[int, ...],
) -> tuple[RecordShard, int]:
    pieces: list[list[bytes]] = []
    rows: list[dict[str, Any]] = []
    sidecars = io.BytesIO()
    for _, sample, ends in batch:
        cuts = [0, *(ends[min(scans, len(ends)) - 1] for scans in groups[:-1]), len(sample.jpeg)]
        own = [sample.jpeg[start:stop] for start, stop in pairwise(cuts)]
        pieces.append(own)
        rows.append(
            {
                "name": sample.name,
                "scans": len(ends),
                "bytes": [len(piece) for piece in own],
                "crc32": [zlib.crc32(piece) for piece in own],
                "sidecars": {ending: len(data) for ending, data in sample.sidecars.items()},
                "sidecars_crc32": zlib.crc32(b"".join(sample.sidecars.values())),
            }
        )
        sidecars.write(b"".join(sample.sidecars.values()))
    members = [
        ("index.json", json.dumps(rows, separators=(",", ":")).encode()),
        ("sidecars.bin", sidecars.getvalue()),
        *(
            (f"scans-{level + 1:02}.bin", b"".join(own[level] for own in pieces))
            for level in range(len(groups))
        ),
    ]
    heads = [*accumulate(_in_tar(len(data)) for _, data in members)]
    name = f"shard-{number:05}.tar"
    with (
        written_whole(root / name) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for member, data in members:
            entry = tarfile.TarInfo(member)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    index_crc32 = zlib.crc32(members[0][1])
    return RecordShard(name, len(batch), tuple(heads[2:]), index_crc32), (
        root / name
    ).stat().st_size


def _in_tar(n_bytes: int) -> int:
    """Bytes that a member takes in a tar: its head and its data, filled up to whole blocks."""
    return _BLOCK + -(-n_bytes // _BLOCK) * _BLOCK


def open_records(folder: Path | str, read: Reader | None = None) -> ImageRecords:
    """The shards of a folder.

    Args:
        folder: what `write_records` has written.
        read: reads the first bytes of a file; from the local disk unless given.

    Raises:
        EttrError: the folder holds no manifest that can be read.
    """
    root = Path(folder)
    reader = _head if read is None else read
    path = root / MANIFEST
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            raise EttrError(
                f"{path}: format {document['format']!r:.60}; this version reads {FORMAT}"
            )
        groups = _numbers(document["groups"])
        shards = tuple(
            RecordShard(
                _plain(one["file"]),
                _number(one["samples"]),
                _numbers(one["head_bytes"]),
                _number(one["index_crc32"]),
            )
            for one in document["shards"]
        )
        if not groups or any(len(shard.head_bytes) != len(groups) for shard in shards):
            raise ValueError("a shard without an end for each group")
    except FileNotFoundError:
        raise EttrError(
            f"{root} holds no {MANIFEST}: give a folder that `ettr records SOURCE -o FOLDER` has "
            "written to its end"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EttrError(f"{path} is not a valid list of shards: {error}") from None
    return ImageRecords(root, groups, shards, reader)


def _head(path: Path, n_bytes: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        head = file.read(n_bytes)
        # one call unless the system hands over less
        while len(head) < n_bytes and (more := file.read(n_bytes - len(head))):
            head += more
        return head


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is not a count")
    return value


def _numbers(values: Iterable[object]) -> tuple[int, ...]:
    return tuple(_number(value) for value in values)


def _plain(name: object) -> str:
    if not isinstance(name, str) or Path(name).name != name or name in {"", "..", "."}:
        raise ValueError(f"{name!r:.60} is not the name of a file in this folder")
    return name


def _parsed(shard: RecordShard, groups: tuple[int, ...], level: int, head: bytes) -> ShardRead:
    try:
        index_bytes = int(head[124:135] or b"0", 8)
        index = head[_BLOCK : _BLOCK + index_bytes]
        if zlib.crc32(index) != shard.index_crc32:
            raise ValueError("cut or damaged")
        rows = [_Row.of(row, len(groups)) for row in json.loads(index)]
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        why = f"its index cannot be read ({str(error)[:80]}); none of its images was read"
        return ShardRead((), (Damage(shard.file, None, why),), len(head))
    # each member begins with a block of its own
    start = _in_tar(index_bytes) + _BLOCK
    columns: list[list[bytes]] = []
    for lengths in (
        [sum(row.sidecars.values()) for row in rows],
        *([row.n_bytes[group] for row in rows] for group in range(level)),
    ):
        columns.append(_taken(head, start, lengths))
        start += _in_tar(sum(lengths))
    damage: list[Damage] = []
    records: list[ImageRecord] = []
    is_full = level == len(groups)
    for number, (row, sidecars, *pieces) in enumerate(zip(rows, *columns, strict=True)):
        bad = [
            f"group {group + 1} of its scans"
            for group, piece in enumerate(pieces)
            if zlib.crc32(piece) != row.crc32[group]
        ]
        if zlib.crc32(sidecars) != row.sidecars_crc32:
            bad.append("its sidecar data")
        if bad:
            damage.append(
                Damage(shard.file, number, f"{row.name!r:.80}: {bad[0]} is cut or damaged")
            )
            continue
        jpeg = b"".join(pieces) + (b"" if is_full else END_OF_IMAGE)
        n_scans = row.n_scans if is_full else min(groups[level - 1], row.n_scans)
        records.append(ImageRecord(row.name, jpeg, row.split(sidecars), n_scans))
    return ShardRead(tuple(records), tuple(damage), len(head))


def _taken(head: bytes, start: int, lengths: Sequence[int]) -> list[bytes]:
    """Slices of the given lengths, one after the other."""
    return [head[one:two] for one, two in pairwise(accumulate(lengths, initial=start))]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a shard's index."""

    name: str
    n_scans: int
    n_bytes: tuple[int, ...]
    crc32: tuple[int, ...]
    sidecars: Mapping[str, int]
    sidecars_crc32: int

    @classmethod
    def of(cls, row: Mapping[str, Any], n_groups: int) -> _Row:
        """The row as its document says; raises where it cannot be one."""
        sidecars = {str(name): _number(value) for name, value in row["sidecars"].items()}
        n_bytes, crc32 = _numbers(row["bytes"]), _numbers(row["crc32"])
        if len(n_bytes) != n_groups or len(crc32) != n_groups:
            raise ValueError("a sample without a length for each group")
        crc32_of_sidecars = _number(row["sidecars_crc32"])
        return cls(
            str(row["name"]), _number(row["scans"]), n_bytes, crc32, sidecars, crc32_of_sidecars
        )

    def split(self, data: bytes) -> dict[str, bytes]:
        """What belongs to the sample, by ending."""
        own = _taken(data, 0, [*self.sidecars.values()])
        return dict(zip(self.sidecars, own, strict=True))


# -- which fidelity to read: what each costs in bytes and CPU, what it wins, what it loses -------

_FEWEST_HELD_OUT = 30
BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class ImageForm:
    """What an image costs in one form: a fidelity of the records, or another format.

    Attributes:
        fidelity: the level of the records; null for a form that they do not hold.
        image_bytes: the mean bytes of an image as it is read.
        decode_cpu_s: the mean CPU seconds to decode an image.
        is_lossless: all pixels come back.
    """

    name: str
    fidelity: int | None
    image_bytes: float
    decode_cpu_s: float
    is_lossless: bool


@dataclass(frozen=True, slots=True)
class Gain:
    """How fast a form is read, how much faster than the baseline, and which side decides."""

    form: ImageForm
    images_per_s: float
    gain: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class LossIncrease:
    """How much the held-out loss grows at a fidelity, with its interval."""

    fidelity: int
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The fidelity that a held-out probe allows, and what it measured at each."""

    fidelity: int
    increases: tuple[LossIncrease, ...]
    why: str


def measure_forms(
    records: ImageRecords,
    decode: Callable[[bytes], Any],
    *,
    n_images: int = 64,
    repeats: int = 3,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> tuple[ImageForm, ...]:
    """Bytes and CPU seconds of an image at each fidelity, and as an optimised baseline JPEG.

    Args:
        decode: what the training does with the bytes of a JPEG, in the calling thread.
        n_images: how many images are measured, from the first shards.
        repeats: how often each; its fastest counts.
        cpu_clock: seconds of CPU of the calling thread.

    Returns:
        The baseline, then each fidelity, coarsest first.

    Raises:
        EttrError: no image can be read, or `jpegtran` is not installed.
    """
    forms: list[tuple[str, int | None, list[bytes]]] = []
    for level in range(1, records.full + 1):
        jpegs: list[bytes] = []
        for index in range(len(records.shards)):
            jpegs += [one.jpeg for one in records.read_shard(index, level).records]
            if len(jpegs) >= n_images:
                break
        name = _name(records, level)
        forms.append((name, level, jpegs[:n_images]))
    if not all(jpegs for *_, jpegs in forms):
        raise EttrError(f"{records.folder}: no image could be read; `ettr records` says why")
    forms.insert(0, (BASELINE, None, [transcoded(jpeg) for jpeg in forms[-1][2]]))
    seconds = [[math.inf] * len(jpegs) for *_, jpegs in forms]
    for _ in range(repeats):
        # form after form of the same image: what else runs on the host slows all of them alike
        for image in range(min(len(jpegs) for *_, jpegs in forms)):
            for own, (*_, jpegs) in zip(seconds, forms, strict=True):
                begun = cpu_clock()
                decode(jpegs[image])
                own[image] = min(own[image], cpu_clock() - begun)
    return tuple(
        ImageForm(
            name,
            level,
            fmean(map(len, jpegs)),
            fmean(one for one in own if one < math.inf),
            is_lossless=level in {None, records.full},
        )
        for own, (name, level, jpegs) in zip(seconds, forms, strict=True)
    )


def _name(records: ImageRecords, level: int) -> str:
    if level == records.full:
        return "all scans"
    scans = records.groups[level - 1]
    return "scan 1" if scans == 1 else f"scans 1 to {scans}"


def gains(
    forms: Sequence[ImageForm],
    *,
    bandwidth_bytes_per_s: float,
    n_cores: float,
    other_cpu_s: float = 0.0,
) -> tuple[Gain, ...]:
    """The rate of each form and its gain over the first one, the baseline.

    Args:
        forms: the baseline first; forms of other formats may follow, measured elsewhere.
        bandwidth_bytes_per_s: what the storage gives this process.
        n_cores: cores that decode.
        other_cpu_s: CPU seconds an image that every form needs besides (augmentation, collation).

    Example:
        >>> from ettr.records import ImageForm, gains
        >>> plain = ImageForm("baseline", None, 100e3, 1.4e-3, True)
        >>> five = ImageForm("scans 1 to 5", 3, 44e3, 1.6e-3, False)
        >>> [round(one.gain, 2) for one in
        ...  gains([plain, five], bandwidth_bytes_per_s=1e8, n_cores=8)]
        [1.0, 2.27]
        >>> [round(one.gain, 2) for one in
        ...  gains([plain, five], bandwidth_bytes_per_s=8e8, n_cores=8)]
        [1.0, 0.87]
    """
    if not bandwidth_bytes_per_s > 0 or not n_cores > 0 or not other_cpu_s >= 0:
        raise EttrError("give a bandwidth and cores above 0, and a time of at least 0")
    rates: list[tuple[float, str]] = []
    for form in forms:
        by_bytes = bandwidth_bytes_per_s / form.image_bytes
        cpu_s = form.decode_cpu_s + other_cpu_s
        by_cores = n_cores / cpu_s if cpu_s > 0 else math.inf
        rates.append((by_bytes, "bandwidth") if by_bytes < by_cores else (by_cores, "cores"))
    return tuple(
        Gain(form, rate, rate / rates[0][0], bound_by)
        for form, (rate, bound_by) in zip(forms, rates, strict=True)
    )


def choose_fidelity(
    losses: Mapping[int, Sequence[float]], *, tolerance: float, confidence: float = 0.9
) -> Choice:
    """The coarsest fidelity whose held-out loss grows by no more than the tolerance.

    The same images are judged at each fidelity by a model that was trained at it (or by one model,
    for a first look), so that differences are paired. A level is allowed where the upper end of
    its interval is within the tolerance; intervals hold for all levels together. Without one that
    is allowed it is all scans.

    Args:
        losses: by fidelity, one loss (or error: 0, 1) an image, in the same order; the highest
            fidelity is what the others are compared with.
        tolerance: how much the mean loss may grow.
        confidence: of all intervals together.

    Raises:
        EttrError: under 30 images, unequal numbers, or a loss that is no number.

    Example:
        >>> from ettr.records import choose_fidelity
        >>> coarse, fine = [0.5, 0.1] * 50, [0.5, 0.1] * 50
        >>> choose_fidelity({1: [one + 0.3 for one in coarse], 2: coarse, 3: fine},
        ...                 tolerance=0.02).fidelity
        2
    """
    levels = sorted(losses)
    n_images = {len(losses[level]) for level in levels}
    if len(n_images) != 1 or min(n_images) < _FEWEST_HELD_OUT:
        raise EttrError(
            f"held-out losses of {sorted(n_images)} images: give the same images at each fidelity, "
            f"at least {_FEWEST_HELD_OUT}"
        )
    if not all(math.isfinite(loss) for level in levels for loss in losses[level]):
        raise EttrError("a held-out loss is not a finite number: check the model of that level")
    if not tolerance >= 0 or not 0 < confidence < 1:
        raise EttrError("give a tolerance of at least 0, and a confidence between 0 and 1")
    full = losses[levels[-1]]
    # one-sided for the question, two-sided as it is shown; Bonferroni over the levels
    width = NormalDist().inv_cdf(1 - (1 - confidence) / 2 / max(len(levels) - 1, 1))
    increases: list[LossIncrease] = []
    for level in levels[:-1]:
        differences = [one - whole for one, whole in zip(losses[level], full, strict=True)]
        mean = fmean(differences)
        error = stdev(differences) / math.sqrt(len(differences))
        increases.append(LossIncrease(level, mean, mean - width * error, mean + width * error))
    for increase in increases:
        if increase.high <= tolerance:
            why = (
                f"the loss grows by {increase.estimate:.4f}, at most {increase.high:.4f}; "
                f"{tolerance:g} is allowed"
            )
            return Choice(increase.fidelity, tuple(increases), why)
    why = f"no coarser fidelity is shown to stay within {tolerance:g}"
    return Choice(levels[-1], tuple(increases), why)
