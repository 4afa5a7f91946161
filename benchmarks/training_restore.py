"""What checking every byte costs a restore: pairs, one checked and one not, taken in turn.

About 400 MB, read in three ways. Warm: the file in the page cache, the tensors used before, which
is where a checksum can hide least. Fresh: the tensors never touched, as in a process that has just
been started to replace another. Cold: the file dropped from the page cache; of these, three pairs
for five of the others. The ratio is the median over pairs with a bootstrap interval; both of a pair
meet the same machine. CPU time is printed too: the second thread that runs the checksums is not
free, and where all cores are busy the elapsed times follow it. The load average is printed for that
reason. Last, the loaders of torch on the same state.
"""

import argparse
import mmap
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from ettr.checkpoint import RunningCheckpoint, TrainingState, restore
from training_stall import Adam400, flat_state, trained_state

LIMIT = 1.1


@dataclass
class Pairs:
    """Seconds and CPU seconds of checked and unchecked restores, pair by pair."""

    wall_s: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    cpu_s: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})

    def ratio(self, of: dict[bool, list[float]]) -> str:
        """Checked over unchecked: the median over pairs and its 95 % interval."""
        ratios = np.array(of[True]) / np.array(of[False])
        low, high = bootstrap(ratios)
        return f"{np.median(ratios):.3f} ({low:.3f} to {high:.3f})"

    def median_ratio(self) -> float:
        """Of the elapsed times."""
        return float(np.median(np.array(self.wall_s[True]) / np.array(self.wall_s[False])))


def untouched(like: torch.Tensor) -> torch.Tensor:
    """A tensor in pages straight from the system; torch's own may have been used before."""
    pages = mmap.mmap(-1, like.numel() * like.element_size())
    return torch.frombuffer(pages, dtype=like.dtype).view(like.shape)


def fresh_state() -> TrainingState:
    """The same tensors in memory that no one has touched yet."""
    with torch.device("meta"):
        model = Adam400()
    state = {name: untouched(value) for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(0.0),
            "exp_avg": untouched(parameter),
            "exp_avg_sq": untouched(parameter),
        }
    return TrainingState(model, optimizer)


def drop_from_cache(folder: Path) -> None:
    """Have every file below a folder read from the disk next time."""
    for path in (p for p in folder.rglob("*") if p.is_file()):
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def measure(folder: Path, pairs: int, make: Callable[[], TrainingState], *, cold: bool) -> Pairs:
    """Restore in pairs; which of the two comes first changes from pair to pair."""
    found = Pairs()
    for pair in range(pairs + 1):
        for check in (True, False) if pair % 2 else (False, True):
            state = make()
            if cold:
                drop_from_cache(folder)
            cpu, begin = time.process_time(), time.perf_counter()
            restore(folder, state, check=check)
            took_s, used_s = time.perf_counter() - begin, time.process_time() - cpu
            if pair:  # the first is warm-up
                found.wall_s[check].append(took_s)
                found.cpu_s[check].append(used_s)
    return found


def bootstrap(ratios: np.ndarray) -> tuple[float, float]:
    """95 % interval of the median."""
    draws = np.random.default_rng(0).choice(ratios, (4000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(low), float(high)


def others(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
    """Print the times of torch's loaders into the same live tensors, warm and cold."""
    flat = flat_state(model, optimizer)
    torch.save(flat, folder / "torch" / "t.pt")
    dcp.save(flat, checkpoint_id=folder / "dcp", no_dist=True)

    def torch_load() -> None:
        with torch.no_grad():
            for name, value in torch.load(folder / "torch" / "t.pt", weights_only=True).items():
                flat[name].copy_(value)

    def dcp_load() -> None:
        dcp.load(flat, checkpoint_id=folder / "dcp", no_dist=True)

    for name, load, part in (
        ("torch.load + copy", torch_load, "torch"),
        ("dcp.load", dcp_load, "dcp"),
    ):
        for cold in (False, True):
            times = []
            for _ in range(n + 1):
                if cold:
                    drop_from_cache(folder / part)
                begin = time.perf_counter()
                load()
                times.append(time.perf_counter() - begin)
            kind = "cold" if cold else "warm"
            print(
                f"{name + ', ' + kind:22}{statistics.median(times[1:]) * 1e3:>11.0f}"
                f"   checks nothing",
                flush=True,
            )


def main() -> int:
    """Print the table; 1 if checking costs more than a tenth in any of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        for part in ("running", "torch", "dcp"):
            (folder / part).mkdir()
        model, optimizer = trained_state()
        state = TrainingState(model, optimizer)
        with RunningCheckpoint(folder / "running", state, policy="full") as checkpoint:
            checkpoint.save_all(0)
        n_cold, n_others = max(given.pairs * 3 // 5, 1), max(given.pairs // 3, 1)
        print(
            f"state {checkpoint.total_bytes / 1e6:.0f} MB; medians of {given.pairs} pairs, "
            f"{n_cold} with a cold file, and of {n_others} loads by torch; "
            f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
        )
        print(
            f"{'restore':22}{'checked ms':>11}{'unchecked':>11}   {'ratio of a pair':26}"
            f"{'CPU ms':>8}{'unchecked':>11}   ratio of a pair"
        )
        kinds = (
            ("warm", lambda: state, False),
            ("fresh memory", fresh_state, False),
            ("cold file", lambda: state, True),
        )
        for kind, make, cold in kinds:
            n = n_cold if cold else given.pairs
            found = measure(folder / "running", n, make, cold=cold)
            ms = [
                statistics.median(times[check]) * 1e3
                for times in (found.wall_s, found.cpu_s)
                for check in (True, False)
            ]
            wall, cpu = found.ratio(found.wall_s), found.ratio(found.cpu_s)
            print(
                f"{'ettr, ' + kind:22}{ms[0]:>11.0f}{ms[1]:>11.0f}   {wall:26}{ms[2]:>8.0f}"
                f"{ms[3]:>11.0f}   {cpu}",
                flush=True,
            )
            ratios[kind] = found.median_ratio()
        others(folder, model, optimizer, n_others)
    for kind, ratio in ratios.items():
        word = "ok  " if ratio <= LIMIT else "MISS"
        print(f"{word} checked restore / unchecked, {kind}: {ratio:.3f} (at most {LIMIT})")
    return int(any(ratio > LIMIT for ratio in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
