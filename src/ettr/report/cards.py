"""A Croissant 1.1 card of exported tables: fields, units, what null means, checksums, counts."""

from __future__ import annotations

import csv
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ettr.errors import UsageError
from ettr.files import written_whole
from ettr.report.export import SIMULATED_COLUMN, ExportedTable
from ettr.tables import DERIVED, TABLES
from ettr.tables.columns import Column, Kind, Table
from ettr.version import __version__
from ettr.words import by_number, counted

CARD_NAME = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
FORMATS = {".parquet": "application/x-parquet", ".csv": "text/csv"}
_TITLE = "Reliability of an ML cluster"
_RECORDS_TITLE = "Progressive image records"
N_RECORDS = "number of records"
"""Name of the property of a file that says how many records it holds."""
_CR = (
    "annotation arrayShape citeAs column containedIn equivalentProperty excludes extract field "
    "fileProperty fileObject fileSet format includes isArray isLiveDataset jsonPath key md5 "
    "parentField path recordSet references regex repeated replace readLines samplingRate sdVersion "
    "separator source subField transform unArchive value"
)
CONTEXT: Any = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _CR.split()},
}
"""The terms of the specification's appendix 1, and those that readers expect next to them."""
_TYPES = {
    Kind.STRING: "sc:Text",
    Kind.INT: "sc:Integer",
    Kind.FLOAT: "sc:Float",
    Kind.BOOL: "sc:Boolean",
    Kind.TIME: "sc:DateTime",
}
_UNITS = (  # the first ending that fits a column's name without `_low` and `_high`
    ("gpu_hours", "GPU-hours"),
    ("node_days", "node-days"),
    ("_bytes", "bytes"),
    ("_s", "seconds"),
    ("_h", "hours"),
    ("hours", "hours"),
    ("_ratio", "share of 1"),
    ("_probability", "share of 1"),
)


@dataclass(frozen=True, slots=True)
class CardWords:
    """What the tables cannot say of themselves.

    Attributes:
        licence: An identifier of SPDX or a URL.
        creator: Who made the data; empty where that is left out.
        published: The day on which the card is made.
        simulated: The sentence that says so; empty for logs of a real site.
    """

    licence: str
    creator: str
    published: date
    simulated: str = ""


def check_card(to: str | None, licence: str | None) -> str:
    """The licence of a card that can be made for a target; None for files that are there.

    Raises:
        UsageError: no licence, or a target whose files no card describes.
    """
    if to is not None and Path(to).suffix not in FORMATS:
        raise UsageError(
            f"--card: describes Parquet and CSV files, not {Path(to).suffix}; give "
            "--to 'FOLDER/{table}.parquet'"
        )
    if not licence:
        raise UsageError(
            "--card: needs --licence, since who receives the files must know what they may do; "
            "give an identifier of SPDX (CC-BY-4.0) or a URL"
        )
    return licence


def write_card(
    tables: Sequence[ExportedTable],
    words: CardWords,
    is_masked: Callable[[str, str], bool] | None,
    mode: int,
) -> Path:
    """Write the card next to the files, and return where it is.

    Args:
        tables: As exported, in files of one folder.
        words: What the tables cannot say.
        is_masked: Of a table and a column, whether its values are pseudonyms or left out; None
            for an export under real names.
        mode: Of the file.

    Raises:
        OSError: a file cannot be read, or the card not be written.
    """
    folder = Path(tables[0].file).parent
    files = [_file(Path(one.file), FORMATS[Path(one.file).suffix], one.rows) for one in tables]
    sets = [_record_set(one, (TABLES | DERIVED)[one.table], words, is_masked) for one in tables]
    about = _description(words, masked=is_masked is not None)
    keywords = ["GPU cluster", "failures", "reliability", "ETTR"]
    return _written(folder, _TITLE, about, keywords, files, sets, words, mode)


def write_records_card(
    folder: Path,
    groups: Sequence[int],
    samples: Mapping[str, int],
    words: CardWords,
    mode: int = 0o644,
) -> Path:
    """Write the card of progressive records (`ettr records`) next to their shards.

    Args:
        folder: That holds `records.json` and the shards.
        groups: Scans of each fidelity.
        samples: Images of each shard, by its file.

    Raises:
        OSError: a file cannot be read, or the card not be written.
    """
    index = "records.json"
    files = [
        _file(folder / index, "application/json", len(samples)),
        *(_file(folder / name, "application/x-tar", n) for name, n in samples.items()),
    ]
    columns = [
        ("file", "sc:Text", "The shard, a tar", "$.shards[*].file"),
        ("samples", "sc:Integer", "Images in it", "$.shards[*].samples"),
        *(
            (
                f"head_bytes_{level}",
                "sc:Integer",
                f"Bytes from its start that fidelity {level} (the first {scans} scans) reads",
                f"$.shards[*].head_bytes[{level - 1}]",
            )
            for level, scans in enumerate(groups, 1)
        ),
    ]
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"shards/{name}",
            "name": name,
            "description": f"{means}. Never null.",
            "dataType": kind,
            **({"unitText": "bytes"} if name.startswith("head_bytes") else {}),
            "source": {"fileObject": {"@id": index}, "extract": {"jsonPath": path}},
        }
        for name, kind, means, path in columns
    ]
    about = (
        f"{sum(samples.values())} progressive JPEGs in {len(samples)} shards by ettr "
        f"{__version__}. A shard is a tar: index.json (name, scans, bytes and CRC-32 of each "
        "image), sidecars.bin (what belongs to the images), then a member for each group of "
        f"scans ({', '.join(map(str, groups))}), so that its head is all images with less detail. "
        "Nothing was anonymised: names of images and labels are those of the source."
    )
    shards = {
        "@type": "cr:RecordSet",
        "@id": "shards",
        "name": "shards",
        "description": f"One shard. {len(samples)} records.",
        "key": [{"@id": "shards/file"}],
        "field": fields,
    }
    keywords = ["progressive JPEG", "image records"]
    return _written(folder, _RECORDS_TITLE, about, keywords, files, [shards], words, mode)


def _written(
    folder: Path,
    title: str,
    about: str,
    keywords: Sequence[str],
    files: Sequence[dict[str, Any]],
    record_sets: Sequence[dict[str, Any]],
    words: CardWords,
    mode: int,
) -> Path:
    address, year = _name_of_content(files), words.published.year
    creator = words.creator or "not stated"
    card: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": title,
        "description": about,
        "license": _licence_url(words.licence),
        "url": address,
        "creator": {"@type": "sc:Organization", "name": creator},
        "citeAs": f"{creator}: {title}, {year}, {address}",
        "datePublished": words.published.isoformat(),
        "version": "1.0.0",
        "isLiveDataset": False,
        "keywords": list(keywords),
        "distribution": list(files),
        "recordSet": list(record_sets),
    }
    place = folder / CARD_NAME
    with written_whole(place, mode) as out:
        out.write(f"{json.dumps(card, indent=1, ensure_ascii=False)}\n".encode())
    return place


def unit_of(column: Column) -> str:
    """The unit of a numeric column; empty for a number without one."""
    if column.kind not in (Kind.INT, Kind.FLOAT):
        return ""
    name = column.name.removesuffix("_low").removesuffix("_high")
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "")


def _licence_url(licence: str) -> str:
    return licence if "://" in licence else f"https://spdx.org/licenses/{licence}"


def _description(words: CardWords, *, masked: bool) -> str:
    stated = [
        "How the nodes, jobs and training runs of an ML cluster failed: tables of logs, and tables "
        f"derived from them by ettr {__version__}. Times are UTC; a null says what the field says "
        "of it, never zero.",
        words.simulated,
        (
            "Names of users, accounts, jobs, nodes, partitions, folders and files are pseudonyms "
            "by a key that only the site has, also within texts; the fields say which."
            if masked
            else "Nothing was anonymised: names are those of the site."
        ),
    ]
    return " ".join(filter(None, stated))


def _name_of_content(files: Sequence[dict[str, Any]]) -> str:
    """A name of the bytes of all files (RFC 6920), for data that has no address."""
    whole = "".join(str(one["sha256"]) for one in files)
    digest = urlsafe_b64encode(sha256(whole.encode()).digest()).decode().rstrip("=")
    return f"ni:///sha-256;{digest}"


def _file(path: Path, form: str, n_records: int) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": form,
        "sha256": digest,
        "additionalProperty": [
            {"@type": "sc:PropertyValue", "propertyID": N_RECORDS, "value": n_records}
        ],
    }


def _record_set(
    one: ExportedTable,
    table: Table,
    words: CardWords,
    is_masked: Callable[[str, str], bool] | None,
) -> dict[str, Any]:
    means = f"{table.row[:1].upper()}{table.row[1:]}"
    missing = f" Not measured: {one.not_measured}." if one.not_measured else ""
    fields = [_field(one, column, is_masked) for column in table]
    if words.simulated and one.table in DERIVED:
        simulated = Column(SIMULATED_COLUMN, Kind.STRING, "that the data are simulated")
        fields.append(_field(one, simulated, None))
    return {
        "@type": "cr:RecordSet",
        "@id": one.table,
        "name": one.table,
        "description": f"{means}. {one.rows} records.{missing}",
        "key": [{"@id": f"{one.table}/{name}"} for name in table.key],
        "field": list(fields),
    }


def _field(
    one: ExportedTable, column: Column, is_masked: Callable[[str, str], bool] | None
) -> dict[str, Any]:
    means = f"{column.means[:1].upper()}{column.means[1:]}."
    null = f" Null: {column.null}." if column.null else " Never null."
    masked = is_masked is not None and is_masked(one.table, column.name)
    unit = unit_of(column)
    return {
        "@type": "cr:Field",
        "@id": f"{one.table}/{column.name}",
        "name": column.name,
        "description": f"{means}{null}{' Anonymised.' if masked else ''}",
        "dataType": _TYPES[column.kind],
        **({"unitText": unit} if unit else {}),
        "source": {
            "fileObject": {"@id": Path(one.file).name},
            "extract": {"column": column.name},
        },
    }


# -- whether the files of a folder are as its Croissant card says, in words; whoever made the card
# A card is text of others: nothing outside the folder is read, whatever path it names.


_LARGEST_CARD_BYTES = 64_000_000
_PREFIX = re.compile(r"^(?:sc:|cr:|dct:|https?://schema\.org/|http://mlcommons\.org/croissant/)")
_SPECIFICATION = re.compile(r"^https?://mlcommons\.org/croissant/(\d+\.\d+)/?$")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(B|KB|MB|GB|TB)?")
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_WANTED = ("name", "description", "license", "url", "creator", "datePublished", "distribution")
_DIGITS = {"sha256": 64, "md5": 32}
# what a column of a Parquet file may be for a type of the card; others are not compared
_FITS = {
    "Text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary),
    "Integer": (pa.types.is_integer,),
    "Int64": (pa.types.is_int64,),
    "Float": (pa.types.is_floating, pa.types.is_decimal),
    "Float64": (pa.types.is_float64,),
    "Boolean": (pa.types.is_boolean,),
    "DateTime": (pa.types.is_timestamp, pa.types.is_string),
    "Date": (pa.types.is_date, pa.types.is_timestamp, pa.types.is_string),
}


@dataclass(frozen=True, slots=True)
class CardProblem:
    """What is off, and at which file or part of the card."""

    place: str
    words: str


@dataclass(frozen=True, slots=True)
class CardCheck:
    """What a card and the files next to it came to.

    Attributes:
        card: The card's name.
        files: Files that the card names and that were read.
        records: Records in them, where they are tables.
        notes: What was not compared, and why.
    """

    card: str
    files: int
    records: int
    problems: tuple[CardProblem, ...]
    notes: tuple[str, ...]


def check_folder(folder: Path) -> CardCheck:
    """Compare the files of a folder with its card.

    Raises:
        UsageError: there is no folder, or not one card in it.
    """
    card = _card_of(folder)
    try:
        if card.stat().st_size > _LARGEST_CARD_BYTES:
            raise UsageError(f"{card}: larger than {_LARGEST_CARD_BYTES / 1e6:.0f} MB; no card is")
        read = json.loads(card.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        words = f"is cut off or no JSON ({error}); get the whole file"
        return CardCheck(card.name, 0, 0, (CardProblem(card.name, words),), ())
    if not isinstance(read, dict):
        words = f"holds a {type(read).__name__}; a card is one JSON object"
        return CardCheck(card.name, 0, 0, (CardProblem(card.name, words),), ())
    return _Comparison(folder.resolve(), card.name, _plain(read)).run()


def _card_of(folder: Path) -> Path:
    if not folder.is_dir():
        raise UsageError(f"--check {folder}: is not a folder; give the one that holds the card")
    if (folder / CARD_NAME).is_file():
        return folder / CARD_NAME
    found = sorted(path for path in folder.glob("*.json") if path.is_file())
    if len(found) != 1:
        names = ", ".join(path.name for path in found[:5]) or "no JSON file"
        raise UsageError(
            f"--check {folder}: holds no {CARD_NAME} ({names}); name the card so, and try again"
        )
    return found[0]


def _plain(node: Any) -> Any:
    """The same without prefixes of keys, in whichever of the usual forms they are."""
    if isinstance(node, dict):
        return {
            _PREFIX.sub("", key): value if key == "@context" else _plain(value)
            for key, value in node.items()
        }
    return [_plain(one) for one in node] if isinstance(node, list) else node


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _id_of(node: Any) -> str:
    """The name of a node, or of the node that it refers to; empty for none."""
    if isinstance(node, dict):
        node = node.get("@id", node.get("name"))
    return node if isinstance(node, str) else ""


def _kind(node: dict[str, Any]) -> str:
    return _PREFIX.sub("", str(node.get("@type", "")))


class _TableFile:
    """A file of the folder as a table, if it is one."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind

    @cached_property
    def columns(self) -> Sequence[str]:
        if self.kind == "text/csv":
            return next(self._csv_rows(), [])
        return list(pq.read_schema(self.path).names)

    def n_records(self) -> int:
        if self.kind == "text/csv":
            return max(0, sum(1 for _ in self._csv_rows()) - 1)
        return int(pq.read_metadata(self.path).num_rows)

    def repeats(self, key: Sequence[str]) -> int:
        """Records whose key an earlier record has."""
        if self.kind == "text/csv":
            places = [self.columns.index(name) for name in key]
            rows = self._csv_rows()
            next(rows, None)
            keys = [tuple(row[at] if at < len(row) else "" for at in places) for row in rows]
            return len(keys) - len(set(keys))
        read = pq.read_table(self.path, columns=list(key), memory_map=False)
        return int(read.num_rows - read.group_by(list(key)).aggregate([]).num_rows)

    def _csv_rows(self) -> Iterator[list[str]]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.reader(file, strict=True)


class _Comparison:
    """One comparison; problems and notes are gathered on the way."""

    def __init__(self, folder: Path, name: str, card: dict[str, Any]) -> None:
        self.folder, self.name, self.card = folder, name, card
        self.problems: list[CardProblem] = []
        self.notes: list[str] = []
        self.files, self.records = 0, 0
        self.resources: set[str] = set()
        self.tables: dict[str, _TableFile] = {}

    def run(self) -> CardCheck:
        self._head()
        for node in _listed(self.card.get("distribution")):
            self._resource(node)
        seen: set[str] = set()
        for node in _listed(self.card.get("recordSet")):
            self._record_set(node, seen)
        return CardCheck(
            self.name, self.files, self.records, tuple(self.problems), tuple(self.notes)
        )

    def _off(self, place: str, words: str) -> None:
        self.problems.append(CardProblem(place, words))

    def _head(self) -> None:
        if _kind(self.card) != "Dataset":
            self._off(self.name, f"is a {_kind(self.card) or 'thing without @type'}, no sc:Dataset")
        forms = [_id_of(one) for one in _listed(self.card.get("conformsTo"))]
        known = [found[1] for one in forms if (found := _SPECIFICATION.match(one))]
        if not known:
            given = ", ".join(forms) or "nothing"
            self._off(self.name, f"conforms to {given}, no version of Croissant")
        elif known[0] not in ("1.0", "1.1"):
            self.notes.append(f"what Croissant {known[0]} adds to 1.1")
        for key in _WANTED:
            if not self.card.get(key):
                self._off(self.name, f"has no `{key}`, which the specification asks for")

    def _resource(self, node: Any) -> None:
        if not isinstance(node, dict) or not (name := _id_of(node)):
            self._off(self.name, "an entry of `distribution` has no @id")
            return
        if name in self.resources:
            self._off(name, "two entries of `distribution` have this @id")
            return
        self.resources.add(name)
        if node.get("containedIn"):
            self.notes.append(f"{name}: is within {_id_of(_listed(node['containedIn'])[0])}")
        elif _kind(node) == "FileSet":
            self._file_set(name, node)
        elif isinstance(node.get("contentUrl"), str):
            self._file(name, node, node["contentUrl"])
        else:
            self._off(name, "has no `contentUrl`: nobody can find the file")

    def _file_set(self, name: str, node: dict[str, Any]) -> None:
        for pattern in _listed(node.get("includes")):
            if not isinstance(pattern, str) or not _stays(pattern):
                self._off(name, f"`includes` {pattern!r} leads out of the folder; refused")
            elif not any(self.folder.glob(pattern)):
                self._off(name, f"no file of the folder fits {pattern!r}")
        self.notes.append(f"{name}: a set of files has no checksum")

    def _file(self, name: str, node: dict[str, Any], url: str) -> None:
        address = url.removeprefix("file:")
        if "://" in address:
            self.notes.append(f"{name}: is elsewhere ({url})")
            return
        path = self.folder / address if _stays(address) else None
        if path is None or not path.resolve().is_relative_to(self.folder):
            self._off(name, f"`contentUrl` {url!r} leads out of the folder; refused, nothing read")
            return
        if not path.exists():
            self._off(name, f"the file {address!r} is missing; get it, or take it off the card")
            return
        if not path.is_file():
            self._off(name, f"{address!r} is not a file")
            return
        self.files += 1
        try:
            self._bytes(name, node, path)
            self._content(name, node, path)
        except OSError as error:
            self._off(name, f"cannot be read: {error.strerror or error}")

    def _bytes(self, name: str, node: dict[str, Any], path: Path) -> None:
        n_bytes = path.stat().st_size
        if (size := node.get("contentSize")) is not None:
            found = _SIZE.fullmatch(str(size).strip())
            if found is None:
                self._off(name, f"`contentSize` {size!r} is not a size such as 1200 B")
            elif (found[2] or "B") == "B" and float(found[1]) != n_bytes:
                self._off(name, f"has {n_bytes:,} bytes; the card says {float(found[1]):,.0f}")
            elif abs(float(found[1]) * _BYTES[found[2] or "B"] - n_bytes) > 0.1 * n_bytes + 1e3:
                self._off(name, f"has {n_bytes:,} bytes; the card says {size}")
        given = {key: node[key] for key in _DIGITS if node.get(key) is not None}
        if not given and self.card.get("isLiveDataset") is not True:
            self._off(name, "has no checksum (`sha256`): a changed byte would not be seen")
        for key, stated in given.items():
            if not re.fullmatch(f"[0-9a-fA-F]{{{_DIGITS[key]}}}", str(stated)):
                self._off(name, f"`{key}` {stated!r} is not a checksum of {_DIGITS[key]} digits")
                continue
            with path.open("rb") as file:
                found_digest = file_digest(file, key).hexdigest()
            if found_digest != str(stated).lower():
                self._off(
                    name,
                    f"its bytes have changed: {key} is {found_digest[:12]}…, the card says "
                    f"{str(stated)[:12]}…; get the file again, or ask who sent it",
                )

    def _content(self, name: str, node: dict[str, Any], path: Path) -> None:
        kinds = [str(one) for one in _listed(node.get("encodingFormat"))]
        if not kinds:
            self._off(name, "has no `encodingFormat`")
        kind = next((one for one in kinds if one in FORMATS.values()), None)
        if kind is None:
            self.notes.append(f"{name}: what is in it ({', '.join(kinds) or 'of unknown form'})")
            return
        read = _TableFile(path, kind)
        try:
            n_records = read.n_records()
            columns = read.columns
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, csv.Error, UnicodeError) as error:
            self._off(name, f"is cut off or no {kind}: {str(error).splitlines()[0]}")
            return
        self.records += n_records
        self.tables[name] = read
        if len(columns) != len(set(columns)):
            self._off(name, "two of its columns have one name")
        for one in _listed(node.get("additionalProperty")):
            if isinstance(one, dict) and one.get("propertyID") == N_RECORDS:
                stated = one.get("value")
                if stated != n_records:
                    self._off(name, f"holds {counted(n_records, 'record')}; the card says {stated}")

    def _record_set(self, node: Any, seen: set[str]) -> None:
        if not isinstance(node, dict) or not (name := _id_of(node)):
            self._off(self.name, "an entry of `recordSet` has no @id")
            return
        if name in seen:
            self._off(name, "two record sets or fields have this @id")
        seen.add(name)
        places: dict[str, tuple[str, str]] = {}
        for field in _listed(node.get("field")):
            if not isinstance(field, dict) or not (own := _id_of(field)):
                self._off(name, "a field has no @id")
                continue
            if own in seen:
                self._off(own, "two record sets or fields have this @id")
            seen.add(own)
            if not field.get("dataType") and not field.get("subField"):
                self._off(own, "has no `dataType`")
            place = self._source(own, field)
            if place is not None:
                places[own] = place
        self._key(name, [_id_of(one) for one in _listed(node.get("key"))], places)

    def _source(self, own: str, field: dict[str, Any]) -> tuple[str, str] | None:
        """The file and the column of a field, if they are here."""
        source = field.get("source")
        if not isinstance(source, dict):
            return None
        file = _id_of(source.get("fileObject") or source.get("fileSet"))
        if file and file not in self.resources:
            self._off(own, f"comes from {file!r}, which `distribution` does not have")
        extract = source.get("extract")
        column = extract.get("column") if isinstance(extract, dict) else None
        table = self.tables.get(file)
        if table is None or not isinstance(column, str):
            return None
        if column not in table.columns:
            self._off(own, f"{file} has no column {column!r}")
            return None
        if table.kind != "text/csv":
            self._type(own, field, table.path, column)
        return file, column

    def _type(self, own: str, field: dict[str, Any], path: Path, column: str) -> None:
        is_type = pq.read_schema(path).field(column).type
        for stated in _listed(field.get("dataType")):
            short = _PREFIX.sub("", str(stated))
            fits = _FITS.get(short)
            if fits is not None and not any(one(is_type) for one in fits):
                self._off(own, f"is {is_type} in {path.name}; the card says {stated}")

    def _key(self, name: str, key: Sequence[str], places: dict[str, tuple[str, str]]) -> None:
        files = {places[one][0] for one in key if one in places}
        if not key or len(files) != 1 or any(one not in places for one in key):
            return
        (file,) = files
        columns = [places[one][1] for one in key]
        repeated = self.tables[file].repeats(columns)
        if repeated:
            self._off(
                name,
                f"{', '.join(columns)} is its key, and "
                + by_number(f"{{n}} [record|records] of {file} [repeats|repeat] it", repeated),
            )


def _stays(path: str) -> bool:
    """Whether a path names something below where it begins, whatever system wrote it."""
    pure = PurePosixPath(path)
    is_plain = path.isprintable() and "\\" not in path and path.strip() != ""
    return is_plain and not pure.is_absolute() and ".." not in pure.parts and ":" not in path
