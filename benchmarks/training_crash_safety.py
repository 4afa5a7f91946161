"""Kills, tears, flipped bits, truncation and full disks: what does each format load afterwards?

Every trial starts from an older checkpoint that is whole, saves a newer one over it, and damages
that save at a random place. Then the checkpoint is loaded and compared, bit by bit, with the states
that were really there. Three outcomes: the newest whole state; an error and nothing loaded; or
tensors that never existed ("wrong").

Kills are replayed at byte offsets from the writer's own calls, which reaches every offset; in
addition, processes are really killed with SIGKILL while they save. What is no tensor (random state,
loader position) is saved with it and judged in a row of its own, its label of a step included.

Every format saves over its older checkpoint at the same path. Users who keep a folder a step still
have the older one after a kill, if something notices that the newer is not whole: "nothing" is
then "the older one, by hand". A flipped bit is noticed in neither case.

One module of over 400 lines: the formats and the damage done to them are read side by side.
"""

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from ettr.checkpoint import (
    CheckedReader,
    CheckedWriter,
    RestoreReport,
    RunningCheckpoint,
    restore,
)
from ettr.checkpoint.dcp import METADATA
from ettr.checkpoint.slots.durable_io import OsDisk
from ettr.errors import CheckpointError, EttrError

OLD, NEW = 1, 2
PAGE_BYTES = 4096
SHAPES = {"emb": (150, 32), "w1": (64, 64), "b1": (64,), "w2": (64, 40), "b2": (40,)}
OBJECT_ROW = "ettr running, object"
KINDS = ("kill", "power cut", "bit flip", "truncation", "disk full")
State = dict[str, torch.Tensor]
Files = dict[str, bytes]


def state_of(step: int) -> State:
    """The whole state at a step, a function of the step alone."""
    gen = torch.Generator().manual_seed(step)
    return {name: torch.randn(shape, generator=gen) for name, shape in SHAPES.items()}


def outcome(loaded: State | None, newest: int = NEW) -> str:
    """`newest`, `older`, `none` or `wrong`."""
    if loaded is None:
        return "none"
    for step, word in ((newest, "newest"), (OLD, "older")):
        expected = state_of(step)
        if all(torch.equal(loaded[name], expected[name]) for name in expected):
            return word
    return "wrong"


class Format(ABC):
    """A checkpoint format: how it saves over an older one, byte by byte, and how it loads."""

    name = ""

    def save(self, folder: Path, step: int) -> None:  # noqa: B027 - `Running` records its own
        """Save the state of a step into the folder."""

    @abstractmethod
    def load(self, folder: Path) -> State:
        """Load it; raises where the format notices the damage."""

    def stages(self, old: Files, new: Files) -> list[tuple[str, bytes]]:
        """The files in the order in which a save writes them, over the old ones."""
        return sorted(new.items())

    def damaged(self, old: Files, new: Files, kind: str, rng: random.Random) -> tuple[Files, bool]:
        """The files after the trial, and whether the new checkpoint was complete before it."""
        if kind in {"bit flip", "truncation"}:
            return _spoil(new, kind, rng), True
        stages = self.stages(old, new)
        at = rng.randrange(sum(len(data) for _, data in stages))
        files = dict(old)
        for name, data in stages:
            if at >= len(data):
                files[name] = data
                at -= len(data)
                continue
            part = data[:at]
            if kind == "power cut":
                part = _lose_pages(part, rng)
            files[name] = part
            break
        return files, False


class TorchSave(Format):
    """torch.save to the same path, the commonest way."""

    name = "torch.save"

    def save(self, folder: Path, step: int) -> None:
        """As users do."""
        torch.save(state_of(step), folder / "ckpt.pt")

    def load(self, folder: Path) -> State:
        """As users do."""
        return torch.load(folder / "ckpt.pt", weights_only=True)


class TorchSaveRename(TorchSave):
    """torch.save to a second file, then rename: what careful users do, without fsync."""

    name = "torch.save + rename"

    def damaged(self, old: Files, new: Files, kind: str, rng: random.Random) -> tuple[Files, bool]:
        """A kill or a full disk leaves the old file; a power cut may have renamed lost pages."""
        if kind in {"kill", "disk full"}:
            return dict(old), False
        if kind == "power cut":
            return {name: _lose_pages(data, rng) for name, data in new.items()}, False
        return _spoil(new, kind, rng), True


class SafeTensors(Format):
    """safetensors' save_file to the same path."""

    name = "safetensors"

    def save(self, folder: Path, step: int) -> None:
        """As users do."""
        save_file(state_of(step), folder / "ckpt.safetensors")

    def load(self, folder: Path) -> State:
        """As users do."""
        return load_file(folder / "ckpt.safetensors")


class Dcp(Format):
    """dcp.save to the same checkpoint id: data in place, metadata renamed last."""

    name = "DCP"

    def save(self, folder: Path, step: int) -> None:
        """One process."""
        dcp.save(state_of(step), checkpoint_id=folder, no_dist=True)

    def load(self, folder: Path) -> State:
        """Into tensors of ones."""
        into = {name: torch.ones(shape) for name, shape in SHAPES.items()}
        dcp.load(into, checkpoint_id=folder, no_dist=True)
        return into

    def stages(self, old: Files, new: Files) -> list[tuple[str, bytes]]:
        """Data files, then the metadata: a rename, so all of it or nothing."""
        return [(name, data) for name, data in sorted(new.items()) if name != ".metadata"]


class CheckedDcp(Dcp):
    """dcp.save with this package's storage."""

    name = "DCP + CheckedWriter"

    def save(self, folder: Path, step: int) -> None:
        """One process."""
        dcp.save(state_of(step), storage_writer=CheckedWriter(folder), no_dist=True)

    def load(self, folder: Path) -> State:
        """Into tensors of ones."""
        into = {name: torch.ones(shape) for name, shape in SHAPES.items()}
        dcp.load(into, storage_reader=CheckedReader(folder), no_dist=True)
        return into

    def stages(self, old: Files, new: Files) -> list[tuple[str, bytes]]:
        """Data files under new names; the metadata is flushed before it is renamed."""
        return [(name, data) for name, data in sorted(new.items()) if name != METADATA]


class Values:
    """What is no tensor, at a step: as large as random states are."""

    def __init__(self, step: int | None = None) -> None:
        self.held: dict[str, Any] | None = None if step is None else values_of(step)

    def state_dict(self) -> dict[str, Any]:
        """The values."""
        return self.held or {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        self.held = state_dict


def values_of(step: int) -> dict[str, Any]:
    """The values of a step, a function of the step alone."""
    words = np.random.default_rng(step).integers(0, 2**32, 624, np.uint32)
    return {"at": step, "words": words, "raw": bytes([step % 251]) * 5000, "of": (step, None)}


def restore_newest(folder: Path, into: State, newest: int = NEW) -> tuple[str, RestoreReport]:
    """Restore what is there; the outcome of the object, and the report.

    The outcome is `newest`, `older`, `none` or `wrong`; wrong too where the label is of another
    step.
    """
    values = Values()
    report = restore(folder, {**into, "values": values}, allow_missing=True)
    if values.held is None or report.objects_step is None:
        return "none", report
    expected = values_of(report.objects_step)
    words = values.held.pop("words", None)
    if not np.array_equal(words, expected.pop("words")) or values.held != expected:
        return "wrong", report
    return ("newest" if report.objects_step >= newest else "older"), report


class RecordingDisk(OsDisk):
    """Keeps every write of the latest round."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, bytes]] = []

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Note it, then write."""
        self.writes.append((offset, bytes(data)))
        return super().pwrite(fd, data, offset)


class Running(Format):
    """The running checkpoint, a full round over an older one."""

    name = "ettr running"

    def __init__(self) -> None:
        self.disk = RecordingDisk()
        self._before = b""
        self.objects: Counter[str] = Counter()

    def record(self, folder: Path) -> None:
        """Save OLD whole, then record the writes of NEW."""
        state, values = state_of(OLD), Values(OLD)
        with RunningCheckpoint(
            folder, {**state, "values": values}, policy="full", block_bytes=8192, disk=self.disk
        ) as checkpoint:
            checkpoint.step(OLD)
            checkpoint.wait()
            self._before = next(folder.glob("slot-0/blocks-*")).read_bytes()
            self.disk.writes.clear()
            for name, tensor in state_of(NEW).items():
                state[name].copy_(tensor)
            values.held = values_of(NEW)
            checkpoint.step(NEW)
            checkpoint.wait()

    def load(self, folder: Path) -> State:
        """The newest step of which every block is whole; and no block may ever be wrong."""
        into = {name: torch.ones(shape) for name, shape in SHAPES.items()}
        object_outcome, report = restore_newest(folder, into)
        self.objects[object_outcome] += 1
        if report.missing:
            raise CheckpointError(f"not restored: {report.missing}")
        old, new = state_of(OLD), state_of(NEW)
        for name, tensor in into.items():
            if not ((tensor == old[name]) | (tensor == new[name])).all():
                return {name: torch.full_like(tensor, torch.nan) for name, tensor in into.items()}
        restore(folder, into, mode="consistent")
        return into

    def damaged(self, old: Files, new: Files, kind: str, rng: random.Random) -> tuple[Files, bool]:
        """Replay the recorded writes up to a byte, or spoil the finished file."""
        ((name, whole),) = new.items()
        if kind in {"bit flip", "truncation"}:
            return _spoil({name: whole}, kind, rng), True
        image = bytearray(self._before)
        at = rng.randrange(sum(len(data) for _, data in self.disk.writes))
        for offset, data in self.disk.writes:
            part = data[:at]
            if kind == "power cut":
                part = _keep_old_pages(part, offset, image, rng)
            image[offset : offset + len(part)] = part
            at -= len(part)
            if at <= 0:
                break
        return {name: bytes(image)}, False


def _lose_pages(data: bytes, rng: random.Random) -> bytes:
    # Without a flush, a file may be there with its length and some of its pages not.
    pages = bytearray(data)
    for begin in range(0, len(data), PAGE_BYTES):
        if rng.random() < 0.5:
            end = min(begin + PAGE_BYTES, len(data))
            pages[begin:end] = bytes(end - begin)
    return bytes(pages)


def _keep_old_pages(part: bytes, offset: int, image: bytearray, rng: random.Random) -> bytes:
    pages = bytearray(part)
    for begin in range(0, len(part), PAGE_BYTES):
        if rng.random() < 0.5:
            end = min(begin + PAGE_BYTES, len(part))
            pages[begin:end] = image[offset + begin : offset + end]
    return bytes(pages)


def _spoil(files: Files, kind: str, rng: random.Random) -> Files:
    spoiled = dict(files)
    names = sorted(files)
    name = rng.choices(names, [len(files[n]) for n in names])[0]
    data = bytearray(files[name])
    at = rng.randrange(len(data))
    if kind == "bit flip":
        data[at] ^= 1 << rng.randrange(8)
    spoiled[name] = bytes(data if kind == "bit flip" else data[:at])
    return spoiled


def read_files(folder: Path) -> Files:
    """All files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_files(folder: Path, files: Files) -> None:
    """Only these files below a folder."""
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        if str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def trials(
    fmt: Format, kind: str, n: int, scratch: Path, seed: int, rng: random.Random | None = None
) -> Counter[str]:
    """Outcomes of `n` trials of one kind; `rng` draws the places, else one of the seed's own."""
    rng = rng or random.Random(f"{seed} {fmt.name} {kind}")
    old_dir, new_dir, trial = (scratch / fmt.name / part for part in ("old", "new", "trial"))
    for folder in (old_dir, new_dir, trial):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    if isinstance(fmt, Running):
        fmt.record(new_dir)
        old, new = {}, read_files(new_dir)
    else:
        fmt.save(old_dir, OLD)
        fmt.save(new_dir, NEW)
        old, new = read_files(old_dir), read_files(new_dir)
    found: Counter[str] = Counter()
    for _ in range(n):
        files, _complete = fmt.damaged(old, new, kind, rng)
        write_files(trial, files)
        found[outcome(_try(fmt.load, trial))] += 1
    return found


def _try(load: Callable[[Path], State], folder: Path) -> State | None:
    try:
        return load(folder)
    except EttrError:
        return None
    except Exception:  # a foreign format may raise anything: all of it means "noticed"
        return None
    except BaseException as error:
        if type(error).__name__ == "CheckpointException":  # DCP's own is no Exception
            return None
        raise


def real_kills(n: int, scratch: Path, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Kill `n` processes with SIGKILL while they save round after round; then restore.

    A child reports each step that it knows to be durable; the restored step may not be older.
    Returns the outcomes of the tensors and of the object.
    """
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    objects: Counter[str] = Counter()
    for trial in range(n):
        root = scratch / f"real-{trial}"
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _save_until_killed(root, writer)
        os.close(writer)
        first = os.read(reader, 8)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open(reader, "rb") as rest:  # noqa: PTH123 - a descriptor, not a path
            reported = first + rest.read()
        durable = int.from_bytes(reported[-8:], "little") if len(reported) % 8 == 0 else 0
        outcomes = _after_real_kill(root, durable)
        found[outcomes[0]] += 1
        objects[outcomes[1]] += 1
        shutil.rmtree(root)
    return found, objects


def _save_until_killed(root: Path, durable_steps: int) -> None:
    try:
        torch.set_num_threads(1)
        state = {"x": torch.zeros(3000), "y": torch.zeros(40, 50)}
        values = Values(0)
        parts = {**state, "values": values}
        checkpoint = RunningCheckpoint(root, parts, policy="full", block_bytes=4096)
        for step in range(1, 1_000_000):
            for tensor in state.values():
                tensor.fill_(step)
            values.held = values_of(step)
            checkpoint.step(step)
            checkpoint.wait()
            os.write(durable_steps, step.to_bytes(8, "little"))
    finally:
        os._exit(1)


def _after_real_kill(root: Path, durable: int) -> tuple[str, str]:
    into = {"x": torch.zeros(3000), "y": torch.zeros(40, 50)}
    try:
        held, _ = restore_newest(root, into, durable)
        report = restore(root, into, mode="consistent")
    except EttrError:
        return "none", "none"
    if report.newest_step is None:
        return "none", held
    if any(not bool(torch.all(tensor == report.newest_step)) for tensor in into.values()):
        return "wrong", held
    return "newest" if report.newest_step in {durable, durable + 1} else "older", held


def run(n: int, n_real: int, seed: int, kinds: tuple[str, ...] = KINDS) -> Iterator[tuple]:
    """(format, kind, trials, outcomes) of every cell of the table."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # DCP logs a traceback for every damaged checkpoint
    torch.set_num_threads(1)  # children are forked: no pool of threads may exist
    formats = (Running(), CheckedDcp(), TorchSave(), TorchSaveRename(), SafeTensors(), Dcp())
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - speed only
    with tempfile.TemporaryDirectory(dir=base) as scratch:
        if n_real:
            found, objects = real_kills(n_real, Path(scratch), seed)
            yield Running.name, "real SIGKILL", n_real, found
            yield OBJECT_ROW, "real SIGKILL", n_real, objects
        for kind in kinds:
            for fmt in formats:
                yield fmt.name, kind, n, trials(fmt, kind, n, Path(scratch), seed)
                if isinstance(fmt, Running):
                    yield OBJECT_ROW, kind, n, fmt.objects
                    fmt.objects = Counter()


def main() -> int:
    """Print the table; 1 if ours loaded a wrong tensor or lost a state that was there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--real", type=int, default=200, help="processes really killed")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("WRONG: tensors that never existed were loaded without an error")
    print(
        f"{'what happened':14}{'format':22}{'trials':>7}{'newest':>8}{'older':>7}"
        f"{'nothing':>9}{'WRONG':>7}"
    )
    failed = 0
    for name, kind, n, found in run(given.trials, given.real, given.seed):
        print(
            f"{kind:14}{name:22}{n:>7}{found['newest']:>8}{found['older']:>7}"
            f"{found['none']:>9}{found['wrong']:>7}",
            flush=True,
        )
        if name.startswith(("ettr", "DCP +")):
            failed += found["wrong"]
        if name in {Running.name, OBJECT_ROW} and kind in {
            "kill",
            "power cut",
            "disk full",
            "real SIGKILL",
        }:
            failed += found["none"] + (found["older"] if kind == "real SIGKILL" else 0)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
