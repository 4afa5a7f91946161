"""The manifest of a folder store: which parts make up each table, and a checksum of each.

It is replaced atomically and last. Parquet's readers check no sums of their own here: a byte that
flips on disk may give another number instead of an error, so the manifest keeps a CRC-32 of every
part, and one of itself. A manifest from before that has neither; its parts get theirs at the next
ingestion.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ettr.errors import StoreError
from ettr.store.base import STORE_FORMAT, STORE_VERSION

MANIFEST = "store.json"
_OF_PARTS, _OF_ITSELF = "crc32", "manifest_crc32"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder store holds.

    Attributes:
        parts: of each table, the paths of its parts below the folder.
        crc32: of each part, the CRC-32 of its bytes in eight hexadecimal digits.
        ingested: how many files were ingested.
    """

    parts: dict[str, list[str]] = field(default_factory=dict)
    crc32: dict[str, str] = field(default_factory=dict)
    ingested: int = 0

    def all_parts(self) -> set[str]:
        """Paths of the parts of all tables."""
        return {part for parts in self.parts.values() for part in parts}


def read(folder: Path) -> Manifest:
    """The manifest of a store.

    Raises:
        StoreError: it is torn, corrupt, of another format, or newer than this program.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        if manifest["format"] != STORE_FORMAT:
            raise StoreError(f"{path}: is no {STORE_FORMAT} manifest")
        version = manifest["version"]
        if version > STORE_VERSION:
            raise StoreError(
                f"{folder}: written by a newer ettr (store version {version}, this one reads "
                f"{STORE_VERSION}); upgrade ettr, or ingest the logs into a new store"
            )
        # either key alone shows that both were written
        if (_OF_PARTS in manifest or _OF_ITSELF in manifest) and manifest.pop(
            _OF_ITSELF, None
        ) != _seal(manifest):
            raise StoreError(
                f"{path}: does not match the checksum that was written into it: it is corrupt or "
                "was edited; restore it from a backup, or ingest the logs into a new store"
            )
        return Manifest(
            dict(manifest["parts"]), dict(manifest.get(_OF_PARTS, {})), int(manifest["ingested"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: cannot be read as a store's manifest: {error}") from error


def write(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a store, whole or not at all."""
    content: dict[str, Any] = {
        "format": STORE_FORMAT,
        "version": STORE_VERSION,
        "ingested": manifest.ingested,
        "parts": manifest.parts,
        _OF_PARTS: manifest.crc32,
    }
    draft = folder / f"{MANIFEST}.draft"
    with draft.open("w", encoding="utf-8") as file:
        json.dump({**content, _OF_ITSELF: _seal(content)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MANIFEST)
    flush(folder)


def flush(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _seal(content: dict[str, Any]) -> str:
    """Checksum of a manifest, however its text is laid out."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"
