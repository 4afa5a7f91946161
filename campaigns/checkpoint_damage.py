"""Running checkpoints with schedulers, readers and random states inside, damaged and restored.

A small model with AdamW, two parameter groups, a scheduler, a reader's position with a buffer and
random states is trained for 9 steps under a policy (full, round-robin or priority) in one slot or
two; every step is recorded. Each draw damages a copy of the files and restores it, in mode `newest`
or, under the policy full, in one of the two by lot. `right`: every row of every tensor, with its
moments, is that of one recorded step, and every object that of the step which the report names; in
mode `consistent` all of one step. `older`: right, from older copies. `refused`: an error that says
what is damaged. `wrong`: anything else.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns import Table
from ettr.errors import EttrError

if TYPE_CHECKING:
    from ettr.checkpoint import RestoreReport

TITLE = "Damaged checkpoints"
SIZE = 500
STEPS = 9
PAGE = 512
POLICIES = ("full", "round-robin", "priority")

Files = dict[str, bytes]
History = dict[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint: its files, what each rank was at each step, and the modes it can be read in."""

    files: Files
    histories: list[History]
    slots: int
    modes: tuple[str, ...]


class Reader:
    """A position in the data of one rank, with a buffer, as loaders keep it."""

    def __init__(self, rank: int) -> None:
        self.state: dict[str, Any] = {"rank": rank, "at": 0, "buffer": b"", "nested": (1, [2.5])}

    def advance(self, step: int) -> None:
        """Move to a step."""
        self.state |= {"at": step, "buffer": bytes([step]) * (40 * step)}

    def state_dict(self) -> dict[str, Any]:
        """The position and the buffer."""
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        self.state = state_dict


class Run:
    """One rank's share of a training run that follows from its seed.

    Both ranks train alike, as under data parallelism, and share the blocks out.
    """

    def __init__(self, seed: int, rank: int) -> None:
        import torch
        from torch import nn

        from ettr.checkpoint import RandomStates

        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
        groups = [{"params": list(layer.parameters()), "lr": 0.1} for layer in self.model]
        self.optimizer = torch.optim.AdamW(groups)
        self.lrs = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.2, total_steps=50)
        self.reader = Reader(rank)
        self.generator = torch.Generator().manual_seed(seed + rank)
        self.random = RandomStates({"own": self.generator})
        self.parts: dict[str, object] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "lrs": self.lrs,
            "reader": self.reader,
            "random": self.random,
        }

    def train(self, step: int) -> None:
        """Do one step."""
        import torch

        data = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
        self.optimizer.zero_grad()
        self.model(data).square().mean().backward()
        self.optimizer.step()
        self.lrs.step()
        self.reader.advance(step)
        torch.rand(3, generator=self.generator)

    def tensors(self) -> dict[str, Any]:
        """Parameters with their moments: name -> rows of each, flat."""
        import torch

        found = {}
        for name, parameter in self.model.named_parameters():
            moments = self.optimizer.state[parameter]
            columns = [parameter.detach(), moments["exp_avg"], moments["exp_avg_sq"]]
            found[name] = torch.stack([c.reshape(len(parameter), -1) for c in columns], 1).clone()
        return found

    def objects(self) -> bytes:
        """Everything else, as bytes."""
        from ettr.checkpoint.tensors.typed_values import encode

        random_states = self.random.state_dict()["own"]
        groups = [
            {k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups
        ]
        return encode(
            {
                "lrs": self.lrs.state_dict(),
                "reader": self.reader.state_dict(),
                "random": random_states,
                "groups": groups,
            },
            0,
        )


def saved(folder: Path, seed: int, policy: str, slots: int) -> tuple[Files, list[History]]:
    """The files of a run's checkpoint, and what each rank was at each step."""
    from ettr.checkpoint import Budget, RunningCheckpoint, TrainingState

    histories: list[History] = []
    for rank in range(slots):
        run, history = Run(seed, rank), {}
        state = TrainingState.of(run.parts, replica=(rank, slots))
        with RunningCheckpoint(
            folder, state, slot=rank, policy=policy, block_bytes=512, budget=Budget(fraction=0.4)
        ) as checkpoint:
            for step in range(1, STEPS + 1):
                run.train(step)
                history[step] = {"tensors": run.tensors(), "objects": run.objects()}
                if step in (1, STEPS // 2):
                    checkpoint.save_all(step)
                else:
                    checkpoint.step(step)
                    checkpoint.wait()
        histories.append(history)
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.glob("slot-*/*")}
    return files, histories


def verdict(root: Path, one: Saved, mode: str) -> str:
    """`right`, `older`, `refused` or `wrong`."""
    from ettr.checkpoint import restore

    run = Run(4711, 0)
    try:
        report = restore(root, run.parts, mode=mode, objects_of=0 if one.slots > 1 else None)
    except EttrError:
        return "refused"
    except Exception:  # an error that says nothing of damage counts as wrong
        return "wrong"
    if not _is_right(run, one.histories[0], report, mode):
        return "wrong"
    return "older" if report.fell_back else "right"


def _is_right(run: Run, history: History, report: RestoreReport, mode: str) -> bool:
    if mode == "consistent" and report.objects_step != report.newest_step:
        return False
    if report.objects_step is None or run.objects() != history[report.objects_step]["objects"]:
        return False
    oldest, newest = report.oldest_step or 0, report.newest_step or 0
    steps = [newest] if mode == "consistent" else range(oldest, newest + 1)
    for name, rows in run.tensors().items():
        for number, row in enumerate(rows):
            if not any(row.equal(history[step]["tensors"][name][number]) for step in steps):
                return False
    return True


def flip_bits(files: Files, rng: random.Random, n_bits: int) -> Files:
    """Flip bits anywhere in one file."""
    name = rng.choice(sorted(files))
    raw = bytearray(files[name])
    for _ in range(n_bits):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return {**files, name: bytes(raw)}


def flip_superblocks(files: Files, rng: random.Random) -> Files:
    """Flip a bit in both superblocks of one file."""
    name = rng.choice(sorted(files))
    raw = bytearray(files[name])
    for begin in (0, len(raw) - 4096):
        raw[begin + rng.randrange(2000)] ^= 1 << rng.randrange(8)
    return {**files, name: bytes(raw)}


def truncate(files: Files, rng: random.Random) -> Files:
    """Cut one file off."""
    name = rng.choice(sorted(files))
    return {**files, name: files[name][: rng.randrange(len(files[name]))]}


def overwrite_pages(files: Files, rng: random.Random, what: str) -> Files:
    """Fill pages of one file with zeros, with garbage, or with other pages of it."""
    name = rng.choice(sorted(files))
    raw = bytearray(files[name])
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(raw) // PAGE) * PAGE
        page = {"zeros": bytes(PAGE), "garbage": rng.randbytes(PAGE)}.get(what)
        if page is None:
            other = rng.randrange(len(raw) // PAGE) * PAGE
            page = bytes(raw[other : other + PAGE])
        raw[at : at + PAGE] = page
    return {**files, name: bytes(raw)}


def append(files: Files, rng: random.Random) -> Files:
    """Write behind the end of one file."""
    name = rng.choice(sorted(files))
    return {**files, name: files[name] + rng.randbytes(rng.randint(1, 9000))}


def rename(files: Files, rng: random.Random) -> Files:
    """Give one file the name of another generation, or copy it there."""
    name = rng.choice(sorted(files))
    folder = name.rpartition("/")[0]
    other = f"{folder}/blocks-{rng.randint(1, 9):08d}.bin"
    left = dict(files) if rng.random() < 0.5 else {k: v for k, v in files.items() if k != name}
    return {**left, other: files[name]}


def exchange(files: Files, rng: random.Random) -> Files:
    """Exchange two files of the checkpoint, or put one into the folder of another slot."""
    one, two = rng.choice(sorted(files)), rng.choice(sorted(files))
    if one == two:
        return {"slot-7/" + one.rpartition("/")[2]: files[one]}
    return {**files, one: files[two], two: files[one]}


def lose(files: Files, rng: random.Random) -> Files:
    """Take one file away, or empty it."""
    name = rng.choice(sorted(files))
    left = {other: raw for other, raw in files.items() if other != name}
    return left if rng.random() < 0.5 else {**left, name: b""}


KINDS: Mapping[str, Callable[[Files, random.Random], Files]] = {
    "1 bit": lambda files, rng: flip_bits(files, rng, 1),
    "64 bits": lambda files, rng: flip_bits(files, rng, 64),
    "both superblocks": flip_superblocks,
    "truncated": truncate,
    "pages of zeros": lambda files, rng: overwrite_pages(files, rng, "zeros"),
    "pages of garbage": lambda files, rng: overwrite_pages(files, rng, "garbage"),
    "pages exchanged": lambda files, rng: overwrite_pages(files, rng, "others"),
    "bytes appended": append,
    "renamed or copied": rename,
    "files exchanged": exchange,
    "lost or emptied": lose,
}


def run(size: int) -> Table:
    """Outcomes of `size` damages of each kind."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoints = []
        for policy in POLICIES:
            for slots in (1, 2):
                folder = Path(scratch) / f"{policy}-{slots}"
                modes = ("newest", "consistent") if policy == "full" else ("newest",)
                checkpoints.append(Saved(*saved(folder, slots, policy, slots), slots, modes))
        rows = [_row(Path(scratch) / "trial", kind, checkpoints, size) for kind in KINDS]
    totals = [str(sum(int(row[column]) for row in rows)) for column in range(1, 5)]
    return Table(
        ("damage", "right", "older", "refused", "wrong"),
        (*rows, ("all", *totals)),
        "[kind, draw]; runs 1 (one slot) and 2 (two)",
        "0 wrong",
    )


def _row(root: Path, kind: str, checkpoints: list[Saved], size: int) -> tuple[str, ...]:
    outcomes: Counter[str] = Counter()
    for draw in range(size):
        rng = random.Random(f"{kind} {draw}")  # noqa: S311 - damage, no secret
        one = checkpoints[draw % len(checkpoints)]
        shutil.rmtree(root, ignore_errors=True)
        for name, raw in KINDS[kind](one.files, rng).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(raw)
        outcomes[verdict(root, one, rng.choice(one.modes))] += 1
    return (kind, *(str(outcomes[name]) for name in ("right", "older", "refused", "wrong")))
