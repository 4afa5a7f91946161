"""A Croissant 1.1 card of exported tables: fields, units, what null means, checksums, counts."""

from __future__ import annotations

import csv
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
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
        not_read: Files that are elsewhere or missing.
    """

    card: str
    files: int
    records: int
    problems: tuple[CardProblem, ...]
    not_read: tuple[str, ...] = ()


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
        if not isinstance(read, dict):
            raise ValueError(f"a card is one object, not a {type(read).__name__}")
    except (ValueError, RecursionError) as error:
        words = f"is cut off or no JSON ({error}); get the whole file"
        return CardCheck(card.name, 0, 0, (CardProblem(card.name, words),))
    files: dict[str, _DataFile] = {}
    problems = [
        CardProblem(place or card.name, words)
        for place, words in _problems(_plain(read), folder.resolve(), files)
    ]
    n_records = sum(one.n_records for one in files.values() if one.is_table)
    named = {_id_of(one): None for one in _listed(_plain(read).get("distribution"))}
    not_read = tuple(name for name in named if name not in files)
    return CardCheck(card.name, len(files), n_records, tuple(problems), not_read)


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


@dataclass
class _DataFile:
    """A file of the folder: its bytes, and what is in it where it is a table."""

    path: Path
    kind: str
    n_records: int = 0
    columns: Sequence[str] = ()

    @property
    def is_table(self) -> bool:
        return bool(self.columns)

    def read(self) -> None:
        """Count its records, where it is a table."""
        if self.kind == FORMATS[".csv"]:
            self.columns = next(self._csv_rows(), [])
            self.n_records = max(0, sum(1 for _ in self._csv_rows()) - 1)
        elif self.kind == FORMATS[".parquet"]:
            self.columns = list(pq.read_schema(self.path).names)
            self.n_records = int(pq.read_metadata(self.path).num_rows)

    def repeats(self, key: Sequence[str]) -> int:
        """Records whose key an earlier record has."""
        if self.kind == FORMATS[".csv"]:
            places = [self.columns.index(name) for name in key]
            _, *rows = self._csv_rows()
            keys = [tuple("".join(row[at : at + 1]) for at in places) for row in rows]
            return len(keys) - len(set(keys))
        read = pq.read_table(self.path, columns=list(key), memory_map=False)
        return int(read.num_rows - read.group_by(list(key)).aggregate([]).num_rows)

    def _csv_rows(self) -> Iterator[list[str]]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.reader(file, strict=True)


def _problems(
    card: dict[str, Any], folder: Path, files: dict[str, _DataFile]
) -> Iterator[tuple[str, str]]:
    """What is off: of what (empty for the card itself), and words. Fills in the files read."""
    if _kind(card) != "Dataset":
        yield "", f"is a {_kind(card) or 'thing without @type'}, no sc:Dataset"
    forms = [_id_of(one) for one in _listed(card.get("conformsTo"))]
    if not any(map(_SPECIFICATION.match, forms)):
        yield "", f"conforms to {', '.join(forms) or 'nothing'}, no version of Croissant"
    for key in _WANTED:
        if not card.get(key):
            yield "", f"has no `{key}`, which the specification asks for"
    for node in _listed(card.get("distribution")):
        name, url = _id_of(node), isinstance(node, dict) and node.get("contentUrl")
        if not isinstance(url, str) or not name:
            yield name, "an entry of `distribution` has no @id or no `contentUrl`"
        elif "://" not in url.removeprefix("file:"):
            yield from ((name, words) for words in _of_file(name, node, folder, files))
    for node in _listed(card.get("recordSet")):
        yield from _of_record_set(node, files)


def _of_file(
    name: str, node: dict[str, Any], folder: Path, files: dict[str, _DataFile]
) -> Iterator[str]:
    """What is off of a file that the card says is here."""
    url = node["contentUrl"]
    address = url.removeprefix("file:")
    path = folder / address if _stays(address) else None
    if path is None or not path.resolve().is_relative_to(folder):
        yield f"`contentUrl` {url!r} leads out of the folder; refused, nothing read"
        return
    if not path.is_file():
        yield f"the file {address!r} is missing; get it, or take it off the card"
        return
    files[name] = _DataFile(path, "".join(map(str, _listed(node.get("encodingFormat"))[:1])))
    try:
        yield from _of_bytes(node, path)
        files[name].read()
    except OSError as error:
        yield f"cannot be read: {error.strerror or error}"
        return
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, csv.Error, UnicodeError) as error:
        yield f"is cut off or no {files[name].kind}: {str(error).splitlines()[0]}"
        return
    for one in _listed(node.get("additionalProperty")):
        stated = one.get("value") if isinstance(one, dict) else None
        n_records = files[name].n_records
        if files[name].is_table and one.get("propertyID") == N_RECORDS and stated != n_records:
            yield f"holds {counted(n_records, 'record')}; the card says {stated}"


def _of_bytes(node: dict[str, Any], path: Path) -> Iterator[str]:
    n_bytes, stated = path.stat().st_size, str(node.get("contentSize", ""))
    if stated.endswith(" B") and stated != f"{n_bytes} B":
        yield f"has {n_bytes:,} bytes; the card says {stated}"
    for key, digits in _DIGITS.items():
        if (digest := node.get(key)) is None:
            continue
        if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", str(digest)):
            yield f"`{key}` {digest!r} is not a checksum of {digits} digits"
            continue
        with path.open("rb") as file:
            found = file_digest(file, key).hexdigest()
        if found != str(digest).lower():
            yield (
                f"its bytes have changed: {key} is {found[:12]}…, the card says "
                f"{str(digest)[:12]}…; get the file again, or ask who sent it"
            )


def _of_record_set(node: Any, files: dict[str, _DataFile]) -> Iterator[tuple[str, str]]:
    """What is off of fields and keys, of tables that are here."""
    if not isinstance(node, dict):
        return
    columns: dict[str, tuple[str, str]] = {}
    for one in _listed(node.get("field")):
        source = one.get("source") if isinstance(one, dict) else None
        extract = source.get("extract") if isinstance(source, dict) else None
        file = _id_of(source.get("fileObject")) if isinstance(source, dict) else ""
        column = extract.get("column") if isinstance(extract, dict) else None
        table = files.get(file)
        if table is None or not table.is_table or not isinstance(column, str):
            continue
        if column not in table.columns:
            yield _id_of(one), f"{file} has no column {column!r}"
            continue
        columns[_id_of(one)] = file, column
        if table.kind == FORMATS[".parquet"]:
            is_type = pq.read_schema(table.path).field(column).type
            for stated in _listed(one.get("dataType")):
                fits = _FITS.get(_PREFIX.sub("", str(stated)))
                if fits is not None and not any(fit(is_type) for fit in fits):
                    yield _id_of(one), f"is {is_type} in {table.path.name}; the card says {stated}"
    key = [columns.get(_id_of(one), ("", "")) for one in _listed(node.get("key"))]
    (file,) = {file for file, _ in key} if len({file for file, _ in key}) == 1 else {""}
    repeated = files[file].repeats([column for _, column in key]) if file else 0
    if repeated:
        yield (
            _id_of(node),
            f"{', '.join(column for _, column in key)} is its key, and "
            + by_number(f"{{n}} [record|records] of {file} [repeats|repeat] it", repeated),
        )


def _stays(path: str) -> bool:
    """Whether a path names something below where it begins, whatever system wrote it."""
    pure = PurePosixPath(path)
    is_plain = path.isprintable() and "\\" not in path and path.strip() != ""
    return is_plain and not pure.is_absolute() and ".." not in pure.parts and ":" not in path
