"""A Croissant 1.1 card of exported tables: fields, units, what null means, checksums, counts."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from ettr.errors import UsageError
from ettr.files import written_whole
from ettr.report.export import SIMULATED_COLUMN, ExportedTable
from ettr.tables import DERIVED, TABLES
from ettr.tables.columns import Column, Kind, Table
from ettr.version import __version__

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
