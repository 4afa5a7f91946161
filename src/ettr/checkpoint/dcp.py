"""Storage for torch.distributed.checkpoint in which every item carries a checksum.

    dcp.save(state_dict, storage_writer=CheckedWriter(path))
    dcp.load(state_dict, storage_reader=CheckedReader(path))

Each rank writes one file of raw bytes; the metadata is JSON with a checksum of its own (DCP's own
storage pickles it). Files get new names at every save and the metadata is renamed into place last,
so that saving over an older checkpoint never harms it. A read that fails its checksum raises;
nothing damaged is loaded. Items other than tensors go through DCP's planner, which reads them with
`torch.load`: load such checkpoints only from sources that you trust.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from ettr.checkpoint.slots.durable_io import make_folder, replacing
from ettr.checkpoint.slots.format import default_checksum, digest_function
from ettr.checkpoint.slots.reader import BadBlock
from ettr.checkpoint.tensors.shards import dtype_name, flat_bytes
from ettr.errors import CheckpointError
from ettr.files import flush

FORMAT = "ettr-dcp"
FORMAT_VERSION = 1
METADATA = "checkpoint.json"


@dataclass(frozen=True, slots=True)
class StoredItem:
    """The place of an item's bytes, and their checksum; a tensor has a type and a shape."""

    file: str
    offset: int
    n_bytes: int
    digest: int
    dtype: str | None
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Prefix:
    save_id: str
    rank: int = 0


class CheckedWriter(StorageWriter):
    """Writes a DCP checkpoint with a checksum for each item.

    Args:
        path: folder of the checkpoint; one that exists is replaced when all is durable.
        checksum: `xxh3` or `crc32`; None: the faster of those installed.
    """

    def __init__(self, path: str | os.PathLike[str], *, checksum: str | None = None) -> None:
        super().__init__()
        self.path = Path(path)
        self.checksum = checksum or default_checksum()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin a save, at another place where one is given."""
        if checkpoint_id:
            self.path = Path(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:
        """Make the folder."""
        make_folder(self.path)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Give every rank the name of this save."""
        save_id = uuid.uuid4().hex
        return [
            replace(plan, storage_data=_Prefix(save_id, rank)) for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's items to its file; durable when the future is done."""
        prefix: _Prefix = plan.storage_data
        name = f"{prefix.save_id}-{prefix.rank}.data"
        digest = digest_function(self.checksum)
        results: list[WriteResult] = []
        with (self.path / name).open("xb") as file:
            offset = 0
            for item in plan.items:
                data, dtype, shape = _bytes_of(item, planner)
                file.write(data)
                stored = StoredItem(name, offset, len(data), digest(data), dtype, shape)
                results.append(WriteResult(item.index, len(data), stored))
                offset += len(data)
            file.flush()
            os.fsync(file.fileno())
        flush(self.path)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint visible: the metadata is durable, then renamed, then old files go."""
        stored = {result.index: result.storage_data for of_rank in results for result in of_rank}
        with replacing(self.path / METADATA) as file:
            file.write(_metadata_json(metadata, stored, self.checksum))
        current = {item.file for item in stored.values()}
        for data_file in self.path.glob("*.data"):
            if data_file.name not in current:
                data_file.unlink(missing_ok=True)

    def storage_meta(self) -> StorageMeta | None:
        """None: DCP's metadata holds everything."""
        return None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a path."""
        return bool(str(checkpoint_id)) and "://" not in str(checkpoint_id)


class CheckedReader(StorageReader):
    """Reads checkpoints of `CheckedWriter`; every item is checked before it is loaded."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)
        self._stored: dict[MetadataIndex, StoredItem] = {}
        self._checksum: str | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin a load, from another place where one is given."""
        if checkpoint_id:
            self.path = Path(checkpoint_id)
        self._stored, self._checksum = {}, None

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """The metadata, checked. Raises CheckpointError: it is absent or damaged."""
        metadata, self._stored, self._checksum = _read_metadata(self.path)
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        """Take the places of the items from the metadata."""
        self._stored = metadata.storage_data
        if self._checksum is None:
            self._checksum = _read_metadata(self.path)[2]

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read, check and load the items of the plan.

        Raises:
            CheckpointError: an item is short or fails its checksum.
        """
        digest = digest_function(self._checksum or default_checksum())
        by_place: dict[tuple[str, int], list[ReadItem]] = {}
        for item in plan.items:
            stored = self._stored[item.storage_index]
            by_place.setdefault((stored.file, stored.offset), []).append(item)
        for _, items in sorted(by_place.items()):
            stored = self._stored[items[0].storage_index]
            data = _read_item(self.path, stored)
            if data is None or digest(data) != stored.digest:
                raise CheckpointError(
                    f"{self.path / stored.file}: {items[0].storage_index.fqn} is damaged "
                    f"({stored.n_bytes} bytes at {stored.offset}); load an earlier checkpoint"
                )
            for item in items:
                _load(item, stored, data, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether there is a checkpoint."""
        return (Path(checkpoint_id) / METADATA).is_file()


def verify_dcp(path: str | os.PathLike[str]) -> list[BadBlock]:
    """The damaged items of a checkpoint of `CheckedWriter`, without a model.

    Raises:
        CheckpointError: its metadata is absent or damaged.
    """
    folder = Path(path)
    _, stored, checksum = _read_metadata(folder)
    digest = digest_function(checksum)
    bad = []
    for index, item in stored.items():
        data = _read_item(folder, item)
        if data is None or digest(data) != item.digest:
            reason = "short" if data is None else f"{checksum} differs"
            offsets = tuple(index.offset or ())
            bad.append(
                BadBlock("dcp", 0, index.fqn, offsets, item.shape, item.file, reason, lost=True)
            )
    return bad


def _bytes_of(
    item: WriteItem, planner: SavePlanner
) -> tuple[memoryview, str | None, tuple[int, ...]]:
    value = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        assert isinstance(value, io.BytesIO)  # noqa: S101 - the planner's contract
        return value.getbuffer(), None, ()
    assert isinstance(value, Tensor)  # noqa: S101 - the planner's contract
    tensor = value.detach().cpu().contiguous()
    flat = flat_bytes(tensor) if tensor.numel() else tensor.new_empty(0)
    data = flat.numpy().data if tensor.numel() else memoryview(b"")
    return data.cast("B"), dtype_name(tensor.dtype), tuple(tensor.shape)


def _read_item(folder: Path, stored: StoredItem) -> bytearray | None:
    data = bytearray(stored.n_bytes)
    try:
        with (folder / stored.file).open("rb") as file:
            file.seek(stored.offset)
            n_bytes = file.readinto(data)
    except OSError:
        return None
    return data if n_bytes == stored.n_bytes else None


def _load(item: ReadItem, stored: StoredItem, data: bytearray, planner: LoadPlanner) -> None:
    if item.type == LoadItemType.BYTE_IO:
        planner.load_bytes(item, io.BytesIO(data))
        return
    dtype: torch.dtype = getattr(torch, stored.dtype or "uint8")
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    region = flat.view(stored.shape)
    for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        region = region.narrow(dim, offset, length)
    target = planner.resolve_tensor(item).detach()
    target.copy_(region)
    planner.commit_tensor(item, target)


def _metadata_json(
    metadata: Metadata, stored: dict[MetadataIndex, StoredItem], checksum: str
) -> bytes:
    entries: dict[str, dict[str, object]] = {}
    for fqn, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            entries[fqn] = {
                "dtype": dtype_name(entry.properties.dtype),
                "size": list(entry.size),
                "chunks": [(list(c.offsets), list(c.sizes)) for c in entry.chunks],
            }
        else:
            entries[fqn] = {}
    items = [
        [
            i.fqn,
            None if i.offset is None else list(i.offset),
            i.index,
            s.file,
            s.offset,
            s.n_bytes,
            s.digest,
            s.dtype,
            list(s.shape),
        ]
        for i, s in stored.items()
    ]
    paths = list((metadata.planner_data or {}).items())
    document = json.dumps(
        {"checksum": checksum, "entries": entries, "items": items, "planner": paths},
        separators=(",", ":"),
    )
    digest = digest_function("crc32")(document.encode())
    return (
        f'{{"format":"{FORMAT}","version":{FORMAT_VERSION},"crc32":{digest},"body":{document}}}'
    ).encode()


def _read_metadata(folder: Path) -> tuple[Metadata, dict[MetadataIndex, StoredItem], str]:
    path = folder / METADATA
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot read it: {error.strerror}; the save did not finish, or it is "
            "not a checkpoint of CheckedWriter"
        ) from error
    try:
        outer = json.loads(raw)
        body = raw[raw.index(b'"body":') + 7 : -1]
        intact = (
            outer["version"] == FORMAT_VERSION
            and outer["format"] == FORMAT
            and digest_function("crc32")(body) == outer["crc32"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: damaged; load an earlier checkpoint") from error
    if not intact:
        raise CheckpointError(f"{path}: damaged; load an earlier checkpoint")
    return _metadata_of(outer["body"])


def _metadata_of(body: dict[str, Any]) -> tuple[Metadata, dict[MetadataIndex, StoredItem], str]:
    entries: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    for fqn, entry in body["entries"].items():
        entries[fqn] = BytesStorageMetadata()
        if entry:
            chunks = [
                ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s in entry["chunks"]
            ]
            properties = TensorProperties(getattr(torch, entry["dtype"]))
            entries[fqn] = TensorStorageMetadata(properties, torch.Size(entry["size"]), chunks)
    stored = {
        MetadataIndex(fqn, None if at is None else torch.Size(at), index): StoredItem(
            file, offset, n_bytes, digest, dtype, tuple(shape)
        )
        for fqn, at, index, file, offset, n_bytes, digest, dtype, shape in body["items"]
    }
    planner = {fqn: tuple(path) for fqn, path in body["planner"]}
    return Metadata(entries, planner or None, stored), stored, body["checksum"]
