"""A store in object storage: the folder's parts under a prefix, and numbered manifests.

    PREFIX/manifest/00…N.json      what the store holds; the newest stands
    PREFIX/parts/TABLE/*.parquet   as in a folder

A commit uploads its parts, then creates manifest N+1 on the condition that there is none. Of two
processes one wins; the other merges its rows with what the winner left. A process that is killed
leaves parts that no manifest names. Nothing that a manifest of the last day names is removed, so a
reader goes on with what it began.

Parts are read through a cache of this machine, and only once their checksum is right. Credentials
are the platform's own; nothing of them is kept or printed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from ettr.errors import StoreError
from ettr.files import written_whole
from ettr.object_storage import TRIES, CutError, ObjectStorage, at_once, manifest_name
from ettr.store import layout
from ettr.store.base import corrupt, crc32_of
from ettr.store.computing import Computing
from ettr.store.folder import FolderStore
from ettr.store.layout import PARTS, Access, Manifest

_KEPT_S = 86_400.0
"""How long a manifest that is not the newest is kept, and what it names."""
_LEAST_KEPT = 16
_SWEEP_EVERY = 256
_MODE = Access.OWNER.file_mode


class BucketStore(FolderStore):
    """A folder store of which the folder is a cache, and object storage has the manifests."""

    def __init__(
        self, url: str, *, create: bool = False, computing: Computing | None = None
    ) -> None:
        self._bucket = ObjectStorage(url, StoreError)
        self._url = self._bucket.url
        # the newest manifest read, and its number
        self._newest, self._number = Manifest(), -1
        self._is_conditional = False
        cache = _cache_of(self._url)
        try:
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            numbers = self._bucket.numbers()
            if not numbers:
                if not create:
                    raise StoreError(f"{url}: no store here; `ettr ingest {url} FILE...` makes one")
                self._make()
            layout.write(cache, self._read_manifest(numbers), _MODE)
        except OSError as error:
            raise StoreError(
                f"{cache}: the cache of {url} cannot be written: {error.strerror}; name another "
                "folder in XDG_CACHE_HOME"
            ) from error
        super().__init__(cache, computing=computing)

    @property
    def where(self) -> str:
        """The URL."""
        return self._url

    def _bytes_of(self, parts: Iterable[str]) -> int:
        wanted = set(parts)
        if all((self._folder / part).exists() for part in wanted):
            return super()._bytes_of(wanted)
        return sum(one["size"] for one in self._bucket.listed(f"{PARTS}/") if one["path"] in wanted)

    def part_files(self) -> tuple[str, ...]:
        """The parts of all tables, in the cache."""
        self._fetch(self._manifest.all_parts())
        return super().part_files()

    def parts_of(self, name: str) -> tuple[str, ...]:
        """URLs of the parts of one table, as Hadoop's readers take them."""
        url = self._url.replace("s3://", "s3a://", 1)
        return tuple(f"{url}/{part}" for part in self._manifest.parts.get(name, ()))

    def _verified_parts(self, name: str) -> list[Path]:
        self._fetch(self._manifest.parts.get(name, ()))
        return super()._verified_parts(name)

    # -- The manifests ---------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Begin with what was read last: the condition of the commit keeps writers apart."""
        self._manifest = self._newest
        try:
            yield
        except OSError as error:
            raise layout.cannot_write(self._folder, error) from error
        finally:
            self._manifest = self._newest
            self._sweep()

    def _read_manifest(self, numbers: dict[int, Any] | None = None) -> Manifest:
        for _ in range(TRIES):
            numbers = numbers or self._bucket.numbers()
            if not numbers:
                raise StoreError(
                    f"{self._url}: its manifests are gone; restore them, or ingest again"
                )
            if max(numbers) == self._number:
                return self._newest
            name = manifest_name(max(numbers))
            try:
                text = self._bucket.get(name)
            except FileNotFoundError:
                numbers = None  # newer ones came meanwhile
                continue
            self._newest = layout.parsed(text.decode("utf-8", "replace"), f"{self._url}/{name}")
            self._number = max(numbers)
            return self._newest
        raise StoreError(f"{self._url}: changes faster than it can be read; try again")

    def _make(self) -> None:
        empty = layout.sealed(Manifest()).encode()
        if self._bucket.create(manifest_name(0), empty):
            self._bucket.check_condition(manifest_name(0), empty)
            self._is_conditional = True

    def _write_manifest(self, held: Manifest) -> bool:
        if self._newest != self._manifest:  # pragma: no cover - a commit is of what was read
            return False
        numbers = self._bucket.numbers()
        if max(numbers, default=-1) != self._number:
            return False
        if not self._is_conditional:
            newest = layout.sealed(self._newest).encode()
            self._bucket.check_condition(manifest_name(self._number), newest)
            self._is_conditional = True
        new = sorted(held.all_parts() - self._manifest.all_parts())
        at_once(self._upload, new)
        number = self._number + 1
        if not self._bucket.create(manifest_name(number), layout.sealed(held).encode()):
            return False
        self._number, self._newest = number, held
        self._prune(numbers)
        return True

    # -- The parts -------------------------------------------------------------------------------

    def _fetch(self, parts: Iterable[str]) -> None:
        """Bring parts that the cache lacks, or has cut short, into it."""
        wanted = [part for part in parts if not (self._folder / part).exists()]
        for folder in {(self._folder / part).parent for part in wanted}:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        at_once(self._download, wanted)

    def _download(self, part: str) -> None:
        """One part, whole: what comes cut short or changed is asked for again."""
        checksum = self._manifest.crc32.get(part)
        why = "it is not there"
        for _ in range(TRIES):
            try:
                with written_whole(self._folder / part, _MODE) as file:
                    self._bucket.copy_to(part, file)
            except FileNotFoundError:
                break
            except CutError as error:
                why = f"it came cut short ({error})"
                continue
            if checksum is None or (found := crc32_of(self._folder / part)) == checksum:
                return
            why = f"its checksum is {found}, and {checksum} was written"
            (self._folder / part).unlink()
        if part in self._read_manifest().all_parts():
            raise corrupt(f"{self._url}/{part}", why)

    def _upload(self, part: str) -> None:
        self._bucket.put(part, self._folder / part)

    # -- What nobody needs any more ----------------------------------------------------------------

    def _sweep(self) -> None:
        """Let go of parts in the cache that were not named for a day."""
        files = [path for path in self._folder.glob(f"{PARTS}/*/*") if path.is_file()]
        named = self._manifest.all_parts()
        times_s = {path: path.stat().st_mtime for path in files}
        newest_s = max(times_s.values(), default=0.0)
        for path, time_s in times_s.items():
            if time_s < newest_s - _KEPT_S and str(path.relative_to(self._folder)) not in named:
                path.unlink(missing_ok=True)

    def _prune(self, numbers: dict[int, Any]) -> None:
        """Remove manifests that are a day old, and now and then parts that none of the rest names.

        By the server's clock. Of manifests of more than a day the newest stays: a reader may have
        it. A failure is no harm: a later commit tries again.
        """
        latest = max(numbers.values())
        limit = latest - timedelta(seconds=_KEPT_S)
        old = sorted(number for number, time in numbers.items() if time < limit)
        with suppress(StoreError, FileNotFoundError):
            if len(old) > _LEAST_KEPT:
                self._bucket.delete([manifest_name(number) for number in old[:-1]])
            if self._number % _SWEEP_EVERY == 0:
                self._remove_parts(limit, old[-1] if old else min(numbers))

    def _remove_parts(self, limit: Any, stood: int) -> None:
        """Remove parts older than the limit that neither the newest nor the manifest then has.

        Args:
            stood: the manifest that was the newest at the limit: what it lacks and is older was let
                go before, so that no reader of the last day has it.
        """
        text = self._bucket.get(manifest_name(stood))
        named = layout.parsed(text.decode(), self._url).all_parts() | self._newest.all_parts()
        gone = [
            one["path"]
            for one in self._bucket.listed(f"{PARTS}/")
            if one["path"] not in named and one["last_modified"] < limit
        ]
        self._bucket.delete(gone)


def _cache_of(url: str) -> Path:
    """The folder of this machine in which parts of the store are kept once they were read."""
    above = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME")
    endpoint = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return above / "ettr" / hashlib.sha256(f"{endpoint} {url}".encode()).hexdigest()[:20]
